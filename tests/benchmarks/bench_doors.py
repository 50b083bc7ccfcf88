"""Files through a gateway (WebHDFS, curl) beside `mrstream dfs -get` and `-put` of the same bytes.

One host, one replica, everything on this machine. The commands' start-up is in their times, which
flatters HTTP; TLS is in HTTP's, which does not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from mrstream.cluster.config.config import GATEWAY, GATEWAY_HTTP
from tests.benchmarks.bench_dfs import AS_SHIPPED
from tests.benchmarks.common import MRSTREAM, Row, Run, interleaved, run, workplace
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster

CLIENTS = 16


def bench(size_bytes: int = 256 << 20, repeats: int = 3) -> list[Row]:
    """Give the rows of the table."""
    rows: list[Row] = []
    with workplace() as place:
        source = place / "source"
        with open(source, "wb") as file:
            for _ in range(size_bytes >> 20):
                file.write(os.urandom(1 << 20))
        for tls in (False, True):
            with one_gateway(place, tls) as door:
                rows += _one_client(door, place, source, size_bytes, repeats)
                rows.append(_many_clients(door, place, size_bytes))
    return rows


class Door:
    """A gateway of a cluster of one host, with a key."""

    def __init__(self, cluster: LocalCluster, place: Path, tls: bool) -> None:
        self.cluster = cluster
        self.words = "TLS" if tls else "plain"
        made = cluster.mrstream("key", "add", "bench").stdout.decode().split()
        authority = place / "ca.pem"
        assert cluster.secret.door is not None
        authority.write_text(cluster.secret.door.authority)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{cluster.config.port(GATEWAY_HTTP)}/webhdfs/v1"
        self.curl = [
            "curl", "-q", "-sSf", "--noproxy", "*", "--cacert", str(authority),
            "-u", f"{made[1]}:{made[3]}",
        ]  # fmt: skip


@contextmanager
def one_gateway(place: Path, tls: bool) -> Iterator[Door]:
    """One host with a gateway."""
    home = place / f"tls-{tls}"
    home.mkdir()
    gateway = f"{{hosts: [h1], tls: {str(tls).lower()}}}"
    roles = (MASTER, CHUNKSERVER, GATEWAY)
    with LocalCluster(home, 1, roles=roles, dfs=AS_SHIPPED, gateway=gateway) as cluster:
        yield Door(cluster, home, tls)


def _one_client(door: Door, place: Path, source: Path, size_bytes: int, repeats: int) -> list[Row]:
    def command(*words: str) -> Callable[[], Run]:
        return lambda: run([MRSTREAM, "dfs", *words], place, door.cluster.environment)

    def curl(*words: str) -> Callable[[], Run]:
        return lambda: run([*door.curl, *words], place)

    target = f"{door.url}/by-http?op=CREATE&overwrite=true"
    found = interleaved(
        {
            "put": command("-put", "-f", str(source), "/by-command"),
            "PUT": curl("-T", str(source), target),
            "get": command("-get", "-f", "/by-command", str(place / "got")),
            "GET": curl("-o", str(place / "fetched"), f"{door.url}/by-http?op=OPEN"),
        },
        repeats,
    )
    assert (place / "fetched").stat().st_size == size_bytes
    rates = {name: size_bytes / 1e6 / each.wall_s for name, each in found.items()}
    size = f"{size_bytes >> 20} MiB, {door.words}"
    return [
        Row(f"GET {size}, beside -get", rates["GET"], rates["get"], "MB/s", "≥ 0.7"),
        Row(f"PUT {size}, beside -put", rates["PUT"], rates["put"], "MB/s", "≥ 0.7"),
    ]


def _many_clients(door: Door, place: Path, size_bytes: int) -> Row:
    """Several readers at a time, each of its own connection, beside one after the other."""

    def fetch(_: int) -> None:
        run([*door.curl, "-o", os.devnull, f"{door.url}/by-http?op=OPEN&length={size_bytes // 8}"],
            place)  # fmt: skip

    began_s = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(fetch, range(CLIENTS)))
    together_s = time.monotonic() - began_s
    began_s = time.monotonic()
    for number in range(CLIENTS):
        fetch(number)
    alone_s = time.monotonic() - began_s
    total_mb = CLIENTS * (size_bytes // 8) / 1e6
    what = f"GET, {CLIENTS} clients at a time, {door.words}, beside one after the other"
    return Row(what, total_mb / together_s, total_mb / alone_s, "MB/s", "≥ 0.9")


if __name__ == "__main__":
    for found_row in bench(int(sys.argv[1]) << 20 if len(sys.argv) > 1 else 256 << 20):
        print(found_row)
