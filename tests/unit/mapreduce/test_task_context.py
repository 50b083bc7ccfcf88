"""mapreduce/attempt/task_context.py: what an attempt has around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command.command import Program


@pytest.mark.parametrize(
    ("job", "given", "timeout_s"),
    [
        ("1700000000000_0001", {}, 600.0),
        ("1700000000000_0001", {"mapreduce.task.timeout": "0"}, 0.0),
        ("local1700000000000_0001", {}, 0.0),
        ("local1700000000000_0001", {"mapreduce.task.timeout": "2000"}, 2.0),
    ],
)
def test_programs_may_be_silent_for_ever_on_one_machine_unless_asked_for(
    tmp_path: Path, job: str, given: dict[str, str], timeout_s: float
) -> None:
    """Spec 8.3 and 11: there is no timeout in local mode."""
    spec = JobSpec(JobId(f"job_{job}"), given, Program(), None, None, 0, (), None)
    order = AttemptOrder(f"attempt_{job}_m_000000_0", 1, str(tmp_path), "", str(tmp_path))

    assert Attempt(spec, order, lambda message: None).timeout_s == timeout_s


@pytest.mark.parametrize(("number", "skips"), [(1, "false"), (2, "true")])
def test_a_program_can_see_that_bad_records_are_being_skipped(
    tmp_path: Path, number: int, skips: str
) -> None:
    """`mapreduce_job_skiprecords`, and `mapred_skip_on` of old: from the attempt on that may."""
    job = "local1700000000000_0001"
    given = {"mapreduce.map.skip.maxrecords": "1", "mapreduce.task.skip.start.attempts": "2"}
    spec = JobSpec(JobId(f"job_{job}"), given, Program(), None, None, 0, (), None)
    order = AttemptOrder(f"attempt_{job}_m_000000_{number}", 1, str(tmp_path), "", str(tmp_path))

    _, environment = Attempt(spec, order, lambda message: None).workplace.surroundings()

    assert environment["mapreduce_job_skiprecords"] == environment["mapred_skip_on"] == skips
