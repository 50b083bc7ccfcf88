"""mapreduce.launch: what a command said, read back."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.mapreduce.launch import command_words, complaint_in, counters_in, failure_in

TRIED_AGAIN = """\
attempt_1_0001_m_000003_0 failed
  why:             a bad disk
  exit code 1: false
"""
OTHER = """\
attempt_1_0001_m_000007_0 failed
  why:             a bad record
  exit code 3: ./m.py
      | no such column
"""
LAST = """\
attempt_1_0001_m_000007_3 failed
  why:             a bad record, again
  repeat it:       mrstream -repeat attempt_1_0001_m_000007_3
"""
END = """\
2026-01-01 00:00:00,000 INFO Job job_1_0001 failed with state FAILED due to: Task failed {}
Job failed as tasks failed. failedMaps:1 failedReduces:0 killedMaps:0 killedReduces: 0
"""


@pytest.mark.parametrize(
    ("said", "culprit", "chosen"),
    [
        (TRIED_AGAIN + OTHER + LAST, "task_1_0001_m_000007", "attempt_1_0001_m_000007_3"),
        (TRIED_AGAIN + OTHER, "task_1_0001_m_000007", "attempt_1_0001_m_000007_0"),
        (TRIED_AGAIN + OTHER, "task_1_0001_m_000009", "attempt_1_0001_m_000003_0"),
        (TRIED_AGAIN + LAST, "task_1_0001_r_000000", "attempt_1_0001_m_000007_3"),
        (TRIED_AGAIN, "task_1_0001_m_000003", "attempt_1_0001_m_000003_0"),
    ],
)
def test_the_report_is_that_of_the_task_that_failed_the_job(
    said: str, culprit: str, chosen: str
) -> None:
    found = failure_in((said + END.format(culprit)).splitlines())

    assert found is not None and found.attempt_id == chosen


def test_what_a_report_says_is_read() -> None:
    found = failure_in(OTHER.splitlines())

    assert found is not None
    assert (found.why, found.exit_code, found.stderr) == ("a bad record", 3, "no such column")
    assert failure_in(["all is well"]) is None


def test_a_command_that_starts_after_its_starter_is_gone_does_nothing() -> None:
    ours, theirs = os.pipe()
    os.close(theirs)
    words = command_words(["-version"], ends_with_us=True)

    ended = subprocess.run(words, stdin=ours, capture_output=True, check=False)

    os.close(ours)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, b"", b"")


SAID = st.sampled_from(
    [
        "2026-11-18 06:00:01,234 INFO mapreduce.Job: Counters: 3", "\tgroup", "\t\ta=1", "\t\ta=b",
        "\t\ta=" + "9" * 5000, "\t\t=", "Counters: 1", "attempt_1_0001_m_000000_0 failed",
        "  exit code " + "9" * 5000 + ": x", "  why:             x", "      | said",
        "subprocess failed with code " + "7" * 5000, "Streaming Command Failed!",
        "2026-11-18 06:00:01,234 INFO mapreduce.Job: Task Id : attempt_1_1, Status : FAILED",
        "2026-11-18 06:00:01,234 ERROR Error Launching job : x", "job_1 due to: Task failed task_1",
    ]
)  # fmt: skip


@given(st.lists(SAID | st.text(max_size=20), max_size=12))
def test_whatever_a_command_says_is_read(lines: list[str]) -> None:
    """A program may print what looks like a counter, or like a report."""
    counters = counters_in(lines)
    found = failure_in(lines)

    assert all(isinstance(n, int) for group in counters.values() for n in group.values())
    assert found is None or found.text.startswith("attempt_")
    assert isinstance(complaint_in(lines), str)
