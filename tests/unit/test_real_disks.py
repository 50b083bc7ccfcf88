"""The real disks do what the forgetful ones of the simulators promise in their name: bytes and
names are synced by the operating system before anybody is told that they last."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import DiskFailed
from mrstream.cluster.journal.journal import Journal
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion
from mrstream.dfs.chunks.chunk_store import ChunkStore, Reserve


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order; they still are."""
    paths: list[str] = []

    def noting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def noted(descriptor: int) -> None:
            sync(descriptor)
            paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))

        return noted

    monkeypatch.setattr(os, "fsync", noting(os.fsync))
    monkeypatch.setattr(os, "fdatasync", noting(os.fdatasync))
    return paths


def opened(directory: Path) -> Journal:
    journal = Journal(str(directory), "c1", disk=OsDisk())
    journal.recover()
    return journal


def test_a_record_of_a_journal_is_synced_before_it_is_durable(
    tmp_path: Path, synced: list[str]
) -> None:
    """Fault gate 4: kill -9 does not show whether anybody synced, a power cut would."""
    journal = opened(tmp_path)
    journal.append(b"first")
    synced.clear()

    journal.commit()

    assert journal.durable == 1
    assert [Path(path).parent for path in synced] == [tmp_path]
    journal.close()


def test_a_master_s_disk_that_fails_to_sync_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault gate 6, on the disk that masters have."""
    journal = opened(tmp_path)

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    journal.append(b"bad")

    with pytest.raises(DiskFailed, match="cannot make the journal durable"):
        journal.commit()

    assert journal.durable == 0
    journal.close()


def test_new_files_of_a_journal_are_in_a_directory_that_was_synced(
    tmp_path: Path, synced: list[str]
) -> None:
    journal = opened(tmp_path / "deep" / "journal")
    journal.append(b"first")
    journal.commit()

    assert str(tmp_path / "deep" / "journal") in synced, "its log file"
    assert str(tmp_path / "deep") in synced and str(tmp_path) in synced, "what was made on the way"
    journal.close()


def test_a_new_chunk_is_in_a_directory_that_was_synced(tmp_path: Path, synced: list[str]) -> None:
    store = ChunkStore(
        [OsDisk(str(tmp_path))], cluster="c1", server="h1", reserve=Reserve(fraction=0.0)
    )
    synced.clear()

    replica = store.create(ChunkHandle(0x1234), ChunkVersion(1))
    store.write(replica, 0, [memoryview(b"abc")])

    directories = [path for path in synced if os.path.isdir(path)]
    files = {Path(path).parent for path in synced if os.path.isfile(path)}
    assert directories and files <= {Path(path) for path in directories}
