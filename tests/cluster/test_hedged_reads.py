"""Fault gate 14: a chunkserver that keeps a reader waiting is not waited for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from mrstream.cluster.config.config import DFS_MASTER
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from tests.cluster.local import CHUNKSERVER, LocalCluster

FILE_BYTES = 48 << 20


def test_a_read_goes_on_elsewhere_when_its_server_falls_silent(tmp_path: Path) -> None:
    """Between two pieces a second replica is asked; in the middle of one the transfer times out.

    Which of the two it is here depends on the moment; `tests/unit/dfs/test_hedge.py` has the first.
    """
    (tmp_path / "big").write_bytes(content := os.urandom(1 << 20) * (FILE_BYTES >> 20))
    with LocalCluster(tmp_path, 3, dfs={"chunk_size": "64MiB"}) as cluster:
        put = cluster.mrstream("dfs", "-put", str(tmp_path / "big"), "/big")
        assert put.returncode == 0, put.stderr
        master = cluster.config.master_address(DFS_MASTER)
        client = DfsClient(master, cluster.cluster.identity(), transfer_s_max=5.0)
        with client, DfsReader(client, "/big") as file:
            first = file.read(1000)
            slow = file._server.server
            cluster.signal(CHUNKSERVER, slow, signal.SIGSTOP)
            rest = file.read()
            went_on_at = file._server.server
            cluster.signal(CHUNKSERVER, slow, signal.SIGCONT)

    assert first + rest == content
    assert went_on_at != slow
