"""`cluster restore`: which of several logs a new master comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.cluster.errors import UserError
from mrstream.cluster.hosts.restore import FoundLog, _choose, doubts_about
from mrstream.cluster.hosts.status import log_copy_lines
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


def test_a_person_is_asked_before_records_are_given_up(tmp_path: Path) -> None:
    """A master that went on alone has acknowledged what no copy holds."""
    own = found(tmp_path, "h1", b"a", b"b", b"c", is_own=True)
    even = found(tmp_path, "h2", b"a", b"b")
    same = found(tmp_path, "h3", b"a", b"b")
    short = found(tmp_path, "h4", b"a")

    assert doubts_about(own, [own, even, short], [], "h1") == []
    (shorter,) = doubts_about(even, [own, even], [], "h1")
    assert "the copy on h2 ends at record 2, and the log on h1 goes to 3" in shorter
    assert doubts_about(even, [even, same], ["h1"], "h1") == []
    (uneven,) = doubts_about(even, [even, short], ["h1"], "h1")
    assert "h1 cannot be reached, and its copies do not agree" in uneven
    (unasked,) = doubts_about(even, [even], ["h1", "h3"], "h1")
    assert "h3 cannot be asked" in unasked


def test_a_master_that_goes_on_with_fewer_copies_of_its_log_is_told_of() -> None:
    assert log_copy_lines({"in_step": 2, "wanted": 2}) == []
    assert log_copy_lines({"in_step": None, "wanted": None}) == []
    assert log_copy_lines({"in_step": 1, "wanted": 2}) == [
        "1 of 2 copies of the dfs master's log are in step"
    ]
    (alone,) = log_copy_lines({"in_step": 0, "wanted": 2})
    assert alone.endswith("one copy only, on the master's own disk")
