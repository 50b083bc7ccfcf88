"""Faults of the chunk store that take minutes: `python tests/cluster/dfs_soak.py`.

Fault gate 12 as it is written: with the default lease of 60 s its holder is stopped for 60 s and
resumed, and its late write, which waited for it all the while, is fenced.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from mrstream.cluster.errors import Unavailable
from mrstream.dfs.client import writer
from mrstream.dfs.client.chunk_writer import Run, ask_primary, push
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.protocol import WriteChunk
from tests.cluster.local import CHUNKSERVER, LocalCluster

STOPPED_S = 60.0


def resume_with_a_late_write(cluster: LocalCluster, client: DfsClient, stopped_s: float) -> None:
    """Stop the primary of a chunk being written, for so long and until another has taken its place;
    a write at the old version is in its socket when it wakes, and comes again afterwards. Both must
    be refused; `/late` then holds "first second third"."""
    file = writer.create(client, "/late")
    file.write(b"first ")
    file.flush()
    old = file._grant
    assert old is not None
    run = Run(0, 6, memoryview(b"LATE! "))
    push(client, run, old)
    request = WriteChunk(old.handle, old.version, 6, 6, run.data_id, old.replicas)
    outcomes: list[object] = []

    def write_late() -> None:
        try:
            outcomes.append(ask_primary(client, old, request))
        except Unavailable as error:
            outcomes.append(error)

    cluster.signal(CHUNKSERVER, old.primary, signal.SIGSTOP)
    stopped_at_s = time.monotonic()
    file.write(b"second ")
    file.flush()
    grant = file._grant
    assert grant is not None and grant.version > old.version
    time.sleep(max(0.0, stopped_at_s + stopped_s - time.monotonic()))
    waiting = threading.Thread(target=write_late)
    waiting.start()
    cluster.signal(CHUNKSERVER, old.primary, signal.SIGCONT)
    waiting.join()
    write_late()
    file.write(b"third")
    file.close()

    assert all(isinstance(outcome, Unavailable) for outcome in outcomes), outcomes
    with DfsReader(client, "/late") as back:
        assert back.read() == b"first second third"


def main() -> int:
    defaults = {"dead_after": "10s", "heartbeat": "1s", "lease": "60s"}
    directory = Path(tempfile.mkdtemp(prefix="dfs-soak-"))
    with LocalCluster(directory, 3, dfs=defaults) as cluster:
        client = cluster.client(retry_s=120.0)
        began_s = time.monotonic()
        resume_with_a_late_write(cluster, client, STOPPED_S)
        report = client.report()
        while report.under_replicated or report.missing or report.corrupt:
            time.sleep(1.0)
            report = client.report()
        with DfsReader(client, "/late") as back:
            assert back.read() == b"first second third"
    shutil.rmtree(directory)  # of a run that failed it is kept, to be read
    print(f"gate 12: fenced after {STOPPED_S:g} s; all replicas {time.monotonic() - began_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
