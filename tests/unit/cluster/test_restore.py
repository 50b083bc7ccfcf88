"""`cluster restore`: which of several logs a new master comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.cluster.errors import UserError
from mrstream.cluster.hosts.restore import FoundLog, _choose
from mrstream.cluster.journal.journal import Journal


def found(directory: Path, host: str, *records: bytes, is_own: bool = False) -> FoundLog:
    journal = Journal(str(directory / host), "c1")
    journal.recover()
    for record in records:
        journal.append(record)
    journal.close()
    return FoundLog(host, is_own, str(directory / host), "c1", len(records))


def test_the_log_that_goes_furthest_counts(tmp_path: Path) -> None:
    own = found(tmp_path, "h1", b"a", is_own=True)
    short = found(tmp_path, "h2", b"a", b"b")
    long = found(tmp_path, "h3", b"a", b"b", b"c")

    assert _choose([own, short, long], None, "h1") is long


def test_between_logs_that_went_different_ways_a_person_chooses(tmp_path: Path) -> None:
    """An old log that was written on is longer, and lacks what was acknowledged."""
    own = found(tmp_path, "h1", b"a", b"x", b"y", is_own=True)
    copy = found(tmp_path, "h2", b"a", b"b")

    with pytest.raises(UserError, match=r"went different ways.*--from HOST"):
        _choose([own, copy], None, "h1")

    assert _choose([own, copy], "h2", "h1") is copy
    assert _choose([own, copy], "h1", "h1") is own


def test_without_any_log_a_backup_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no host has a log .* back from a backup"):
        _choose([], None, "h1")
