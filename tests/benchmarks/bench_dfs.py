"""The dfs against this machine's own disk, wire and threads, and the paper's three ratios.

Every peer does the same work by the plainest means there are: `cp`, a warm read, an empty call
over the same wire, threads that write and fsync. Daemons, clients and peers share the machine's
cores and its one disk.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.records import RecordAppender
from mrstream.dfs.client.writer import create
from tests.benchmarks.common import Row, Run, daemons_cpu_s, interleaved, run, workplace
from tests.benchmarks.dfs_calls import call_rates, million_files
from tests.benchmarks.dfs_links import shaped_links
from tests.benchmarks.dfs_moosefs import moosefs
from tests.cluster.local import LocalCluster

MB = 1_000_000
PIECE_BYTES = 1 << 20
APPENDERS = 16
RECORD_BYTES = 64 * 1024
SMALL_FILES = 10_000
SMALL_BYTES = 1024
SMALL_THREADS = 16
AS_SHIPPED = {"chunk_size": "64MiB", "dead_after": "10s", "heartbeat": "1s", "lease": "60s"}
"""What a cluster has unless it is told otherwise (tests are more impatient)."""


def bench(size_bytes: int = 1 << 30, small_files: int = SMALL_FILES) -> list[Row]:
    """Give the rows of the table."""
    rows: list[Row] = []
    with workplace() as place:
        rows += _copies(place, size_bytes)
        rows.append(_three_replicas(place, size_bytes))
        rows += _appends(place)
        rows.append(_small(place, small_files))
        rows += call_rates(place)
        rows += million_files(place)
        rows += shaped_links(place)
        rows += _beside_moosefs(place, size_bytes, small_files)
    return rows


@contextmanager
def one_server(place: Path) -> Iterator[LocalCluster]:
    """One host, one replica, chunks of the usual size."""
    home = place / "one"
    home.mkdir()
    try:
        with LocalCluster(home, 1, dfs=AS_SHIPPED) as cluster:
            yield cluster
    finally:
        shutil.rmtree(home)


def shell(cluster: LocalCluster, *words: str, host: str | None = None) -> Run:
    """Run `mrstream dfs WORDS` as a user would; `host` is where it believes to be."""
    code = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"
    root = str(Path(__file__).parent.parent.parent)
    env = {**cluster.environment, "PYTHONPATH": root}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has been compiled
    if host is not None:
        env["MRSTREAM_HOST"] = host
    return run([sys.executable, "-c", code, "dfs", *words], cluster.directory, env)


# -- put, get, read -----------------------------------------------------------------------


def _copies(place: Path, size_bytes: int) -> list[Row]:
    source = place / "source"
    _random_file(source, size_bytes)
    with one_server(place) as cluster:
        medians = interleaved(
            {
                "put": after(source, lambda: _put(cluster, source)),
                "cp && sync": after(
                    source, lambda: _copied(source, place / "copy", "&& sync copy")
                ),
                "get": after(source, lambda: _got(cluster, place / "got", None)),
                "get from afar": after(source, lambda: _got(cluster, place / "got", "elsewhere")),
                "cp": after(source, lambda: _copied(source, place / "copy", "")),
            }
        )
        reads = _reads(cluster, source)
    source.unlink()
    rates = {name: size_bytes / MB / one.wall_s for name, one in {**medians, **reads}.items()}
    size = f"{size_bytes / 2**30:g} GiB"
    return [
        Row(f"put of {size}, one replica, against `cp && sync`",
            rates["put"], rates["cp && sync"], "MB/s", "≥ 0.5"),
        Row(f"get of {size} against a warm `cp`", rates["get"], rates["cp"], "MB/s", "≥ 0.4"),
        Row(f"get of {size} through the chunkserver, against a warm `cp`",
            rates["get from afar"], rates["cp"], "MB/s", ""),
        Row("short-circuit read against reading the local file warm",
            rates["short-circuit"], rates["local"], "MB/s", "≥ 0.6"),
        Row("read through the chunkserver against reading the local file warm",
            rates["remote"], rates["local"], "MB/s", ""),
    ]  # fmt: skip


def after(source: Path, contender: Callable[[], Run]) -> Callable[[], Run]:
    """Begin each run alike: nothing dirty, and as much memory just freed as it needs (a virtual
    machine pays for memory that it has not touched lately)."""

    def begin_and_run() -> Run:
        _copied(source, source.with_name("scratch"), "&& sync scratch")
        return contender()

    return begin_and_run


def _random_file(path: Path, size_bytes: int) -> None:
    with open(path, "wb") as file:
        for _ in range(size_bytes // PIECE_BYTES):
            file.write(os.urandom(PIECE_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _put(cluster: LocalCluster, source: Path) -> Run:
    return shell(cluster, "-put", "-f", str(source), "/source")


def _got(cluster: LocalCluster, target: Path, host: str | None) -> Run:
    try:
        return shell(cluster, "-get", "/source", str(target), host=host)
    finally:
        target.unlink(missing_ok=True)


def _copied(source: Path, target: Path, then: str) -> Run:
    try:
        return _kept(source, target, then)
    finally:
        target.unlink(missing_ok=True)


def _kept(source: Path, target: Path, then: str) -> Run:
    return run(["sh", "-c", f"cp {source} {target.name} {then}"], target.parent)


def _reads(cluster: LocalCluster, source: Path) -> dict[str, Run]:
    near, far = cluster.client(), cluster.client()
    far.place = type(far.place)()
    return interleaved(
        {
            "short-circuit": timed(lambda: _read_dfs(near)),
            "remote": timed(lambda: _read_dfs(far)),
            "local": timed(lambda: _read_local(source)),
        }
    )


def _read_dfs(client: object) -> None:
    with DfsReader(client, "/source") as reader:  # type: ignore[arg-type]
        for _ in reader.pieces():
            pass


def _read_local(path: Path) -> None:
    buffer = bytearray(PIECE_BYTES)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def timed(action: Callable[[], object]) -> Callable[[], Run]:
    """Measure a function of this process; its CPU time is this process's alone."""

    def contender() -> Run:
        started_s, cpu_s = time.monotonic(), time.process_time()
        action()
        return Run(time.monotonic() - started_s, time.process_time() - cpu_s)

    return contender


# -- record appends -----------------------------------------------------------------------


def _appends(place: Path, seconds: float = 3.0) -> list[Row]:
    home = place / "three"
    home.mkdir()
    with LocalCluster(home, 3, dfs=AS_SHIPPED) as cluster:
        rates: dict[int, list[float]] = {1: [], APPENDERS: []}
        for round_number in range(3):
            for count, found in rates.items():
                path = f"/appended-{count}-{round_number}"
                found.append(_append_rate(cluster, path, count, seconds))
    shutil.rmtree(home)
    one, many = sorted(rates[1])[1], sorted(rates[APPENDERS])[1]
    return [
        Row(f"{APPENDERS} appenders on one file, three replicas, against one appender",
            many, one, "MB/s", "≥ 0.8"),
    ]  # fmt: skip


def _append_rate(cluster: LocalCluster, path: str, count: int, seconds: float) -> float:
    clients = [cluster.client() for _ in range(count)]
    create(clients[0], path).close()
    record = os.urandom(RECORD_BYTES)

    def append(number: int) -> int:
        appender = RecordAppender(clients[number], path)
        appended = 0
        while time.monotonic() < until_s:
            appender.append(record)
            appended += 1
        return appended

    started_s = time.monotonic()
    until_s = started_s + seconds
    with ThreadPoolExecutor(count) as threads:
        total = sum(threads.map(append, range(count)))
    return total * RECORD_BYTES / MB / (time.monotonic() - started_s)


# -- replicas -----------------------------------------------------------------------------


def _three_replicas(place: Path, size_bytes: int) -> Row:
    """CPU time of the command and of all daemons for a put with three replicas and with one."""
    source, home = place / "source", place / "three"
    _random_file(source, size_bytes)
    home.mkdir()
    with LocalCluster(home, 3, dfs=AS_SHIPPED) as cluster:

        def put(replicas: int) -> Callable[[], Run]:
            def contender() -> Run:
                before_s = daemons_cpu_s(cluster)
                words = ("-D", f"dfs.replication={replicas}", "-put", "-f", str(source), "/put")
                ran = shell(cluster, *words)
                return Run(ran.wall_s, ran.cpu_s + daemons_cpu_s(cluster) - before_s)

            return contender

        medians = interleaved({"three": put(3), "one": put(1)})
    source.unlink()
    shutil.rmtree(home)
    return Row(
        "put with three replicas, CPU of all processes, against one replica",
        medians["three"].cpu_s, medians["one"].cpu_s, "s", "≤ 3.3",
    )  # fmt: skip


# -- small files --------------------------------------------------------------------------


def _small(place: Path, count: int) -> Row:
    source = place / "small"
    _small_files(source, count)
    rounds = iter(range(100))
    with one_server(place) as cluster:
        medians = interleaved(
            {
                "mrstream": lambda: _put_small(cluster, source, f"/{next(rounds)}"),
                "threads": timed(lambda: _write_and_sync(source, place / "synced")),
            }
        )
    shutil.rmtree(source)
    return Row(
        f"{count:,} files of 1 KB, one replica, against {SMALL_THREADS} threads that write and "
        "fsync them",
        medians["mrstream"].wall_s, medians["threads"].wall_s, "s", "≤ 3",
    )  # fmt: skip


def _small_files(source: Path, count: int) -> None:
    source.mkdir()
    content = os.urandom(SMALL_BYTES)
    for number in range(count):
        (source / f"{number:05}").write_bytes(content)


def _put_small(cluster: LocalCluster, source: Path, target: str) -> Run:
    return shell(cluster, "-put", "-t", str(SMALL_THREADS), str(source), target)


def _beside_moosefs(place: Path, size_bytes: int, small_files: int) -> list[Row]:
    """The same put, get and small files through MooseFS's mount."""
    with moosefs(place) as peer, one_server(place) as cluster:
        if isinstance(peer, str):
            print(f"(no rows beside MooseFS: {peer})", file=sys.stderr)
            return []
        source, small = place / "source", place / "small"
        _random_file(source, size_bytes)
        _small_files(small, small_files)
        rounds = iter(range(100))

        def got() -> Run:
            peer.forget()
            return _copied(peer.mount / "copy", place / "got", "")

        medians = interleaved(
            {
                "put": after(source, lambda: _put(cluster, source)),
                "their put": after(
                    source, lambda: _kept(source, peer.mount / "copy", "&& sync copy")
                ),
                "get": after(source, lambda: _got(cluster, place / "got", None)),
                "their get": after(source, got),
                "small": lambda: _put_small(cluster, small, f"/{next(rounds)}"),
                "their small": timed(lambda: _write_and_sync(small, peer.mount / "small")),
            }
        )
    rates = {name: size_bytes / MB / one.wall_s for name, one in medians.items()}
    return [
        Row("put against `cp && sync` to MooseFS", rates["put"], rates["their put"], "MB/s", ""),
        Row("get against `cp` from MooseFS", rates["get"], rates["their get"], "MB/s", ""),
        Row(f"{small_files:,} files of 1 KB against {SMALL_THREADS} threads on MooseFS",
            medians["small"].wall_s, medians["their small"].wall_s, "s", ""),
    ]  # fmt: skip


def _write_and_sync(source: Path, target: Path) -> None:
    target.mkdir()

    def copy(name: str) -> None:
        content = (source / name).read_bytes()
        descriptor = os.open(target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    with ThreadPoolExecutor(SMALL_THREADS) as threads:
        list(threads.map(copy, sorted(os.listdir(source))))
    shutil.rmtree(target)
