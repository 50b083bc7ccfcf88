"""mapreduce.local.progress: sums of a job, counted once (MapReduce §4.9)."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.attempt.attempt_report import Done, Failure, Progress
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.counters import Counters
from mrstream.mapreduce.local.progress import Tally
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, TaskId, TaskKind


def attempt(kind: TaskKind, index: int, number: int = 0) -> AttemptId:
    return AttemptId(TaskId(JobId("job_1_1"), kind, index), number)


def done(records: int) -> Done:
    return Done(
        {c.FRAMEWORK: {c.MAP_INPUT_RECORDS: records}, c.FILE_INPUT: {c.BYTES_READ: 100}},
        segment_bytes=50,
    )


@pytest.fixture
def tally() -> Tally:
    return Tally(maps=4, reduces=2, started_at_s=0.0, counters=Counters())


def test_fractions_count_finished_and_running_tasks(tally: Tally) -> None:
    for index in range(2):
        tally.started(attempt(TaskKind.MAP, index), 0.0)
    tally.committed(attempt(TaskKind.MAP, 0), done(10), 5.0)
    tally.heard(attempt(TaskKind.MAP, 1), Progress(0.5, 5, 50))

    progress = tally.progress(10.0)

    assert progress.map_fraction == pytest.approx(1.5 / 4)
    assert progress.reduce_fraction == 0.0
    assert (progress.records, progress.bytes_done) == (15, 150)
    assert progress.shuffled_bytes == 50


def test_a_failed_attempt_adds_nothing_but_its_failure(tally: Tally) -> None:
    first, second = attempt(TaskKind.MAP, 0), attempt(TaskKind.MAP, 0, 1)
    tally.started(first, 0.0)
    tally.failed(first, Failure("no"))
    tally.started(second, 1.0)
    tally.committed(second, done(10), 2.0)

    assert tally.counters.value(c.MAP_INPUT_RECORDS) == 10
    assert tally.counters.get(c.JOB, c.FAILED_MAPS) == 1
    assert tally.counters.get(c.JOB, c.LAUNCHED_MAPS) == 2
    assert tally.failed_tasks(TaskKind.MAP) == 1


def test_a_task_that_fails_its_job_is_not_done() -> None:
    """One that the job can do without is over, and counts as such."""
    strict = Tally(1, 2, 0.0, Counters())
    lenient = Tally(1, 2, 0.0, Counters(), may_fail=(0, 1))
    for tally in (strict, lenient):
        tally.started(attempt(TaskKind.REDUCE, 0), 0.0)
        tally.failed(attempt(TaskKind.REDUCE, 0), Failure("no"))
        tally.abandoned(TaskKind.REDUCE)

    assert strict.progress(1.0).reduce_fraction == 0.0
    assert lenient.progress(1.0).reduce_fraction == 0.5


def test_a_job_without_maps_has_done_them_all() -> None:
    tally = Tally(0, 1, 0.0, Counters())

    assert tally.progress(1.0).map_fraction == 1.0


def test_the_kept_report_has_tasks_failures_and_counters(tally: Tally) -> None:
    tally.started(attempt(TaskKind.MAP, 3), 1.0)
    tally.committed(attempt(TaskKind.MAP, 3), done(7), 2.5)

    report = tally.kept_report("job_1_1", "a name", "succeeded", 10.0)

    assert report["tasks"] == {"map 3": {"seconds": 1.5, "records": 7}}
    assert report["input_bytes"] == 100
    assert report["elapsed_s"] == 10.0
