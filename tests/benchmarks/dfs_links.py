"""The paper's network figures: three replicas over links of 100 Mbit/s (GFS §3.2, §6.1).

Four hosts on a switch, each with a link of its own, shaped in both directions: three chunkservers
(the first has the master too) and a client that holds no chunks.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mrstream.cluster.config.config import current_cluster
from mrstream.dfs.client.chunk_writer import Run, push
from mrstream.dfs.client.client import DfsClient, client_of
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import RUN_BYTES, create
from tests.benchmarks.common import Row
from tests.cluster.local import LocalCluster
from tests.cluster.netns import NetnsHosts

LINK = "100mbit"
LINK_MB_PER_S = 12.5
SERVERS = 3
ROUNDS = 3
PUSHES = 4
FILE_BYTES = 64 << 20


def shaped_links(place: Path) -> list[Row]:
    """Push, write and read between hosts."""
    home = place / "links"
    home.mkdir()
    hosts = NetnsHosts(SERVERS + 1)
    try:
        servers = hosts.names[:SERVERS]
        with LocalCluster(
            home,
            SERVERS,
            dfs={"chunk_size": "64MiB", "dead_after": "10s", "lease": "60s", "heartbeat": "1s"},
            addresses=[hosts.address(name) for name in servers],
            within={name: hosts.enter(name) for name in servers},
        ) as cluster:
            for name in hosts.names:
                hosts.shape(name, LINK)
            said = subprocess.run(
                [*hosts.enter(hosts.names[-1]), sys.executable, "-m", __name__, cluster.file],
                cwd=Path(__file__).parent.parent.parent, env=cluster.environment,
                stdout=subprocess.PIPE, check=True,
            ).stdout  # fmt: skip
    finally:
        hosts.close()
    found: dict[str, float] = json.loads(said)
    return [
        Row("push to three replicas over 100 Mbit/s against a push to one",
            found["push-3"], found["push-1"], "s", "≤ 1.3"),
        Row("write, three replicas, against the link", found["write"], LINK_MB_PER_S,
            "MB/s", "≥ 0.70"),
        Row("read against the link", found["read"], LINK_MB_PER_S, "MB/s", "≥ 0.85"),
    ]  # fmt: skip


# -- the client's side, in its own network -------------------------------------------------


def main(file: str) -> int:
    """Measure from here; print the medians."""
    cluster = current_cluster(file)
    assert cluster is not None, file
    with client_of(cluster) as client:
        found: dict[str, list[float]] = {"push-1": [], "push-3": [], "write": [], "read": []}
        for turn in range(ROUNDS):
            for replicas in (1, SERVERS):
                found[f"push-{replicas}"].append(_push_s(client, f"/p{turn}{replicas}", replicas))
            path = f"/file-{turn}"
            found["write"].append(_write_rate(client, path))
            found["read"].append(_read_rate(client, path))
    print(json.dumps({name: statistics.median(each) for name, each in found.items()}))
    return 0


def _push_s(client: DfsClient, path: str, replicas: int) -> float:
    """How long it takes to push a few runs down the chain, nothing written."""
    writer = create(client, path, replication=replicas)
    grant = writer._grant
    assert grant is not None and len(grant.replicas) == replicas, grant
    runs = [Run(0, 0, memoryview(os.urandom(RUN_BYTES))) for _ in range(PUSHES + 1)]
    push(client, runs.pop(), grant)  # the connections of the chain are made with the first
    started_s = time.monotonic()
    for run in runs:
        push(client, run, grant)
    pushed_s = time.monotonic() - started_s
    writer.abandon()
    return pushed_s


def _write_rate(client: DfsClient, path: str) -> float:
    data = os.urandom(1 << 20)
    started_s = time.monotonic()
    with create(client, path, replication=SERVERS) as writer:
        for _ in range(FILE_BYTES // len(data)):
            writer.write(data)
    return FILE_BYTES / 1e6 / (time.monotonic() - started_s)


def _read_rate(client: DfsClient, path: str) -> float:
    started_s = time.monotonic()
    with DfsReader(client, path) as reader:
        count = sum(len(piece) for piece in reader.pieces())
    assert count == FILE_BYTES, count
    return FILE_BYTES / 1e6 / (time.monotonic() - started_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
