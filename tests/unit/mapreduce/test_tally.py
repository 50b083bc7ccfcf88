"""The one bookkeeping of a job (mapreduce/tally.py), as local mode, master and board feed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mrstream.mapreduce.attempt.attempt_report import AttemptNews, Done
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.errors import TooManyCounters
from mrstream.mapreduce.progress import JobProgress
from mrstream.mapreduce.scheduler.commands import Command
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptProgress,
    AttemptSucceeded,
    CommitRequested,
    Event,
    FailAttemptRequested,
    JobSettings,
    JobSubmitted,
    MapTaskSpec,
    OutputLost,
    ShuffleFinished,
    WorkerLost,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import AttemptId, HostName, JobId, TaskId, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from mrstream.mapreduce.tally import JobTally, concerned

JOB = JobId("job_1_0001")


def attempt(kind: TaskKind, index: int, number: int = 0) -> AttemptId:
    return AttemptId(TaskId(JOB, kind, index), number)


def m(index: int, number: int = 0) -> AttemptId:
    return attempt(TaskKind.MAP, index, number)


def r(index: int, number: int = 0) -> AttemptId:
    return attempt(TaskKind.REDUCE, index, number)


def map_done(records: int, **counts: int) -> Done:
    return Done(
        {
            c.FRAMEWORK: {c.MAP_INPUT_RECORDS: records},
            c.FILE_INPUT: {c.BYTES_READ: records * 10},
            "Mine": {"seen": records, **counts},
        },
        segment_bytes=records * 2,
    )


def reduce_done(records: int) -> Done:
    framework = {c.REDUCE_INPUT_RECORDS: records, c.REDUCE_SHUFFLE_BYTES: records * 4}
    return Done({c.FRAMEWORK: framework}, output_bytes=records)


class Desk:
    """A brain and a tally that observes it, as every shell has them."""

    def __init__(
        self,
        maps: int = 2,
        reduces: int = 1,
        *,
        workers: Sequence[str] = ("w",),
        settings: JobSettings | None = None,
        user_counters_max: int = 100,
    ) -> None:
        self.now_s = 100.0
        self.brain = Scheduler()
        self.tally = JobTally(JOB, maps, reduces, self.now_s, user_counters_max=user_counters_max)
        for name in workers:
            self.register(name)
        wishes = settings or JobSettings(locality_wait_s=0.0, slowstart=1.0)
        self.tell(JobSubmitted(JOB, tuple(MapTaskSpec(1) for _ in range(maps)), reduces, wishes))

    def register(self, name: str, **brings: tuple[AttemptId, ...]) -> list[Command]:
        return self.tell(
            WorkerRegistered(WorkerId(name), HostName(name), 4, 4, 4, **brings)  # type: ignore[arg-type]
        )

    def tell(self, event: Event, pass_s: float = 0.0) -> list[Command]:
        self.now_s += pass_s
        commands = self.brain.handle(event, self.now_s)
        self.tally.observe(event, commands, self.now_s)
        return commands

    def hear(self, attempt_id: AttemptId, *figures: Any, **more: Any) -> None:
        told = AttemptNews(str(attempt_id), *figures, **more)
        self.tally.heard(attempt_id, told)
        self.tell(AttemptProgress(attempt_id, told.fraction))

    def finish(self, attempt_id: AttemptId, done: Done, pass_s: float = 1.0) -> None:
        self.tally.offer(attempt_id, done)
        if attempt_id.task_id.kind is TaskKind.REDUCE:
            self.tell(CommitRequested(attempt_id))
        self.tell(AttemptSucceeded(attempt_id), pass_s)

    @property
    def progress(self) -> JobProgress:
        known = self.brain.known(JOB)
        assert known is not None
        return self.tally.progress(known[0], self.now_s)


def test_fractions_count_done_and_running_tasks() -> None:
    desk = Desk(maps=4)
    desk.finish(m(0), map_done(10))
    desk.hear(m(1), 0.5, 5, 50)

    progress = desk.progress

    assert progress.map_fraction == pytest.approx(1.5 / 4)
    assert progress.reduce_fraction == 0.0
    assert (progress.maps_done, progress.reduces_done) == (1, 0)
    assert (progress.records, progress.bytes_done) == (15, 150)
    assert progress.shuffled_bytes == 20


def test_what_was_read_never_falls_as_reduces_go_from_shuffle_to_reduce_and_end() -> None:
    """The shown rate is its growth: it fell to 0 as reduces ended, and when their shuffle did."""
    desk = Desk(maps=1, reduces=2)
    seen = [desk.progress]

    def look() -> None:
        seen.append(desk.progress)

    desk.hear(m(0), 0.5, 50, 500)
    look()
    desk.finish(m(0), map_done(100))
    look()
    for index in range(2):
        desk.hear(r(index), 1 / 6, 0, 100, "shuffle")
        look()
        desk.hear(r(index), 1 / 3, 0, 200, "shuffle")
        look()
        desk.tell(ShuffleFinished(r(index)))
        desk.hear(r(index), 0.7, 5, 20, "reduce")
        look()
        desk.hear(r(index), 0.9, 35, 150, "reduce")
        look()
    for index in range(2):
        desk.finish(r(index), reduce_done(50))
        look()

    assert [each.bytes_done for each in seen] == sorted({each.bytes_done for each in seen})
    records = [each.records for each in seen]
    assert records == sorted(records)
    assert records[-1] == 100 + 2 * 50
    # Split, shuffle and merge, each once.
    assert seen[-1].bytes_done == 1000 + 2 * (200 + 200)


def test_what_a_reducer_reads_is_not_shuffled_again() -> None:
    """The board drew it as a second shuffle."""
    desk = Desk(maps=1)
    desk.finish(m(0), map_done(100))
    desk.hear(r(0), 1 / 3, 0, 200, "shuffle")

    desk.hear(r(0), 0.9, 35, 150, "reduce")

    assert (desk.tally.moved.shuffle_bytes, desk.tally.moved.merged_bytes) == (200, 150)


def test_a_failed_attempt_adds_nothing_but_its_failure() -> None:
    desk = Desk(maps=1)
    desk.tell(AttemptFailed(m(0), "exit code 1"))

    desk.finish(m(0, 1), map_done(10))

    counters = desk.tally.counters(desk.brain.totals(JOB))
    assert counters.value(c.MAP_INPUT_RECORDS) == 10
    assert counters.get(c.JOB, c.FAILED_MAPS) == 1
    assert counters.get(c.JOB, c.LAUNCHED_MAPS) == 2
    assert desk.tally.failures == [(m(0), "exit code 1")]


def test_counters_of_a_map_that_ran_again_count_once() -> None:
    """MapReduce §4.9: duplicates of re-executed tasks are not counted twice."""
    desk = Desk()
    desk.finish(m(0), map_done(10))
    desk.finish(m(1), map_done(5))
    desk.tell(OutputLost(m(0), "its disk is gone"))
    between = desk.tally.counters(None).get("Mine", "seen")
    assert desk.progress.maps_done == 1

    desk.finish(m(0, 1), map_done(11))

    counters = desk.tally.counters(desk.brain.totals(JOB))
    assert between == 15  # the job might end without it
    assert counters.get("Mine", "seen") == 16
    assert counters.get(c.JOB, c.LAUNCHED_MAPS) == 3
    assert (desk.progress.maps_done, desk.progress.shuffled_bytes) == (2, 32)


def test_counters_of_running_tasks_are_seen_once_a_task() -> None:
    """MapReduce §4.9 (MR-34): of two attempts of a task, those of the one that is further."""
    desk = Desk(workers=("w", "v"))
    desk.finish(m(0), map_done(10))
    free = next(name for name in ("w", "v") if not desk.brain.running_on(WorkerId(name)))
    desk.register(free, running=(m(1, 7),), segments=(m(0),))  # a backup, from a life before
    desk.hear(m(1), 0.2, 3, 0, counters={"Mine": {"seen": 3}})
    desk.hear(m(1, 7), 0.5, 4, 0, counters={"Mine": {"seen": 4}})
    before = desk.tally.counters(None).get("Mine", "seen")

    desk.finish(m(1), map_done(6))

    assert before == 14
    assert desk.tally.counters(None).get("Mine", "seen") == 16
    assert desk.tally.running[m(1, 7)].is_dying


def test_the_attempts_of_a_lost_worker_count_no_more() -> None:
    """They stayed in the master's sums until the end of the job."""
    desk = Desk(maps=1)
    desk.hear(m(0), 0.5, 5, 50, status="busy", counters={"Mine": {"seen": 5}})
    assert desk.progress.status == "busy"

    desk.tell(WorkerLost(WorkerId("w"), "silent"))

    assert desk.tally.running == {}
    assert desk.progress.status == ""
    assert desk.tally.counters(None).get("Mine", "seen") == 0
    assert desk.progress.records == 5  # that work was done, though in vain


def test_a_worker_that_comes_back_without_an_attempt_has_lost_it() -> None:
    desk = Desk(maps=2)

    desk.register("w", running=(m(1),))

    assert m(0) not in desk.tally.running
    assert m(1) in desk.tally.running


def test_an_attempt_of_a_life_before_runs_on() -> None:
    """After a restart of the master it could not be killed by name, and was not shown."""
    desk = Desk(maps=1, workers=())

    desk.register("w", running=(m(0, 3),))
    desk.hear(m(0, 3), 0.5, 5, 50)

    assert list(desk.tally.running) == [m(0, 3)]
    assert desk.progress.records == 5


def test_an_end_that_is_said_twice_counts_once() -> None:
    """The acknowledgement of a worker's report may be lost."""
    desk = Desk()
    desk.finish(m(0), map_done(10))

    desk.finish(m(0), map_done(10))

    assert desk.tally.counters(None).get("Mine", "seen") == 10
    assert desk.progress.records == 10


def test_an_attempt_that_is_killed_or_failed_by_a_person_is_gone() -> None:
    desk = Desk()

    desk.tell(FailAttemptRequested(m(0)))
    desk.tell(AttemptKilled(m(0), "failed on request"))
    desk.tell(AttemptKilled(m(1), "its host went down"))

    assert m(0) not in desk.tally.running and m(1) not in desk.tally.running
    assert desk.tally.failures == [(m(0), "failed on request")]


def test_a_task_that_fails_its_job_is_not_done_and_one_that_may_fail_is() -> None:
    strict = JobSettings(reduce_attempts_max=1, outlives_failure=True, slowstart=1.0)
    lenient = JobSettings(reduce_attempts_max=1, reduce_failures_percent_max=50, slowstart=1.0)
    fractions = []
    for settings in (strict, lenient):
        desk = Desk(maps=0, reduces=2, settings=settings)
        desk.tell(AttemptFailed(r(0), "no"))
        fractions.append(desk.progress.reduce_fraction)

    assert fractions == [0.0, 0.5]


def test_a_job_without_maps_has_done_them_all() -> None:
    assert Desk(maps=0).progress.map_fraction == 1.0


def test_an_ended_job_still_says_how_far_it_was() -> None:
    desk = Desk(maps=1, reduces=1)
    desk.finish(m(0), map_done(1))
    desk.finish(r(0), reduce_done(1))

    assert desk.brain.job(JOB) is None
    assert (desk.progress.map_fraction, desk.progress.reduce_fraction) == (1.0, 1.0)
    assert (desk.progress.maps_done, desk.progress.reduces_done) == (1, 1)


def test_a_job_that_was_decided_before_this_process_began_is_known_by_its_results() -> None:
    tally = JobTally(JOB, 2, 1, 0.0)
    tally.restore(m(0), map_done(10), 1.5)

    progress = tally.progress(None, 5.0)

    assert (progress.maps_done, progress.map_fraction, progress.records) == (1, 0.5, 10)
    assert tally.facts(5.0).maps[0].seconds == 1.5


def test_more_counters_than_allowed_are_refused() -> None:
    desk = Desk(user_counters_max=3)

    with pytest.raises(TooManyCounters):
        desk.finish(m(0), map_done(1, a=1, b=1, c=1))


def test_facts_have_the_time_and_size_of_every_task() -> None:
    desk = Desk(maps=1)
    desk.finish(m(0), map_done(7), pass_s=1.5)

    facts = desk.tally.facts(110.0)

    assert [(task.name, task.seconds, task.records) for task in facts.maps] == [("map 0", 1.5, 7)]
    assert (facts.elapsed_s, facts.input_bytes, facts.shuffled_bytes) == (10.0, 70, 14)


def test_only_the_jobs_that_an_event_is_about_are_told_of_it() -> None:
    other = JobId("job_1_0002")
    tallies = {job_id: JobTally(job_id, 1, 1, 0.0) for job_id in (JOB, other)}

    assert concerned(tallies, AttemptFailed(m(0), "no"), []) == [tallies[JOB]]
    assert concerned(tallies, WorkerLost(WorkerId("w"), "silent"), []) == list(tallies.values())
