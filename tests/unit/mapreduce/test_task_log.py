"""task_log: counters, status and bounded logs out of a program's stderr (spec 7.5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.mapreduce.attempt import task_log
from mrstream.mapreduce.attempt.attempt_report import Message, Noted, Said
from mrstream.mapreduce.attempt.task_log import TaskLog
from mrstream.mapreduce.job.errors import TooManyCounters


def log_at(path: Path, told: list[Message], **options: int) -> TaskLog:
    return TaskLog(str(path), told.append, prefix=b"reporter:", user_counters_max=120, **options)


def hear(log: TaskLog, *data: bytes) -> None:
    ear = log.ear()
    for piece in data:
        ear.feed(piece)
    ear.close()


def test_reporter_lines_are_ours_and_the_rest_is_logged_and_echoed(tmp_path: Path) -> None:
    told: list[Message] = []
    log = log_at(tmp_path / "stderr", told)

    hear(log, b"hello\nreporter:counter:g,n,2\nreporter:sta", b"tus:at 5\nreporter:counter:g,n,3")
    log.close()

    assert log.user_counters() == {"g": {"n": 5}}
    assert log.status == "at 5"
    assert (tmp_path / "stderr").read_bytes() == b"hello\n"
    assert (tmp_path / "stderr").stat().st_mode & 0o777 == 0o600  # not for all users of the host
    assert told == [Said(b"hello\n")]


def test_a_line_that_makes_no_sense_is_noted(tmp_path: Path) -> None:
    told: list[Message] = []

    hear(log_at(tmp_path / "stderr", told), b"reporter:counter:bad\n")

    assert told == [Noted("WARN", "Cannot parse counter line: reporter:counter:bad")]


def test_a_counter_too_many_is_an_error_for_the_task(tmp_path: Path) -> None:
    log = log_at(tmp_path / "stderr", [])

    with pytest.raises(TooManyCounters):
        hear(log, b"".join(b"reporter:counter:g,%d,1\n" % n for n in range(121)))


def test_nothing_said_makes_no_file(tmp_path: Path) -> None:
    log = log_at(tmp_path / "stderr", [])
    hear(log, b"reporter:status:quiet\n")
    log.close()

    assert not (tmp_path / "stderr").exists()


def test_the_log_keeps_its_beginning_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_log, "LOG_BYTES_MAX", 100)
    monkeypatch.setattr(task_log, "TAIL_BYTES", 50)
    told: list[Message] = []
    log = log_at(tmp_path / "stderr", told, echo_bytes_max=30)

    hear(log, *(b"line %04d\n" % n for n in range(1000)))
    log.close()

    text = (tmp_path / "stderr").read_bytes()
    assert text.startswith(b"line 0000\n") and text.endswith(b"line 0999\n")
    assert len(text) < 250
    assert b"9850 bytes are left out here" in text
    assert log.tail() == tuple(f"line {n:04d}" for n in range(995, 1000))
    assert b"more of this program's stderr is in" in b"".join(
        message.text for message in told if isinstance(message, Said)
    )
