"""Lock and dfs meet: what an ex-holder does late is refused by the file system itself (CH-20)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.lock.client.client import CellClient
from tests.cluster.local import DFS_ROLES, LocalCluster

LOCK = "/ls/local/nightly"
MRSTREAM = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path_factory.mktemp("fence"), 1, roles=[*DFS_ROLES, "lock.master"], more="lock: {}\n"
    ) as running:
        yield running


def test_a_late_write_of_an_ex_holder_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    """CH-20 end to end: acquire fences what its command does in the dfs, without a word in it."""
    file = tmp_path / "report"
    file.write_bytes(b"first")
    with CellClient(cluster.cluster).open_session() as cell:
        held = cell.acquire(LOCK)
        put = (sys.executable, "-c", MRSTREAM, "dfs", "-put", "-f", str(file), "/report")
        ours = {**cluster.environment, "MRSTREAM_SEQUENCER": held.fence_text}
        first = subprocess.run(put, env=ours, capture_output=True, check=False)
        assert first.returncode == 0, first.stderr
        held.release()
        # Somebody else has the lock now, and does its work by the command.
        file.write_bytes(b"second")
        second = cluster.mrstream("lock", "acquire", LOCK, "--", *put)
        assert second.returncode == 0, second.stderr

        file.write_bytes(b"first, late")
        late = subprocess.run(put, env=ours, capture_output=True, check=False)

    assert late.returncode == 1 and LOCK.encode() in late.stderr, late.stderr
    assert cluster.mrstream("dfs", "-cat", "/report").stdout == b"second"
