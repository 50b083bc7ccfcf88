"""What becomes of attempts, tasks and workers that fail."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.scheduler.commands import (
    AbandonTask,
    FinishJob,
    JobOutcome,
    KillAttempt,
    PublishSegment,
    QuarantineWorker,
    ReleaseWorker,
    WithdrawSegment,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptProgress,
    FailAttemptRequested,
    FetchFailed,
    JobKilled,
    JobSettings,
    KillAttemptRequested,
    OutputLost,
    ShuffleFinished,
    WorkerDraining,
    WorkerLost,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import HostName, JobId, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.task import TRANSITIONS, Change, ForbiddenChange, TaskState
from tests.support.scheduler_bench import (
    JOB,
    Bench,
    map_attempt,
    of_type,
    reduce_attempt,
    starts,
)


def test_a_failed_map_is_tried_again_on_another_worker() -> None:
    bench = Bench()
    bench.workers("a", "b")
    bench.submit(1)
    failed_on = bench.where(map_attempt(0))

    commands = bench.tell(AttemptFailed(map_attempt(0), "exit status 1"))

    assert starts(commands) == [("m_000000_1", "b" if failed_on == "a" else "a")]


def test_the_last_allowed_failure_ends_the_job_and_names_the_attempt() -> None:
    """MR-43: a task that fails again and again must not hang the job."""
    bench = Bench()
    bench.workers("a")
    bench.submit(2, settings=JobSettings(map_attempts_max=2, locality_wait_s=0.0))
    bench.tell(AttemptFailed(map_attempt(0), "exit status 1"))

    commands = bench.tell(AttemptFailed(map_attempt(0, 1), "exit status 2"))

    (finish,) = of_type(commands, FinishJob)
    assert finish.outcome is JobOutcome.FAILED
    assert finish.culprit == map_attempt(0, 1)
    assert "exit status 2" in finish.reason


def test_a_failed_attempt_that_a_worker_shows_again_does_not_fail_twice() -> None:
    """Messages come twice: a registration, and after it the report that was counted already."""
    bench = Bench()
    bench.workers("a", "b")
    bench.submit(1, settings=JobSettings(map_attempts_max=2, locality_wait_s=0.0))
    where = bench.where(map_attempt(0))
    bench.tell(AttemptFailed(map_attempt(0), "exit status 1"))
    shown = WorkerRegistered(WorkerId(where), HostName(where), 1, 1, 1, running=(map_attempt(0),))

    commands = bench.tell(shown) + bench.tell(AttemptFailed(map_attempt(0), "exit status 1"))

    assert [kill.attempt_id for kill in of_type(commands, KillAttempt)] == [map_attempt(0)]
    assert not of_type(commands, FinishJob)


def test_killed_attempts_do_not_count_as_failures() -> None:
    bench = Bench()
    bench.workers("a")
    bench.submit(1, settings=JobSettings(map_attempts_max=1, locality_wait_s=0.0))

    for number in range(5):
        commands = bench.tell(AttemptKilled(map_attempt(0, number), "worker makes room"))

    assert starts(commands) == [("m_000000_5", "a")]


def test_a_share_of_tasks_may_fail_without_failing_the_job() -> None:
    bench = Bench()
    bench.workers("a")
    settings = JobSettings(
        map_attempts_max=1, map_failures_percent_max=50, locality_wait_s=0.0, slowstart=1.0
    )
    bench.submit(2, 1, settings=settings)

    commands = bench.tell(AttemptFailed(map_attempt(0), "exit status 1"))
    bench.succeed(map_attempt(1))
    end = bench.succeed(reduce_attempt(0))

    assert of_type(commands, AbandonTask) == [AbandonTask(map_attempt(0).task_id, "exit status 1")]
    assert of_type(end, FinishJob)[0].outcome is JobOutcome.SUCCEEDED


def test_an_attempt_without_news_fails_and_one_with_news_does_not() -> None:
    bench = Bench()
    bench.workers("a", slots=2)
    bench.submit(2, settings=JobSettings(task_timeout_s=10.0, locality_wait_s=0.0))
    bench.now_s = 6.0
    bench.tell(AttemptProgress(map_attempt(1), 0.5))

    commands = bench.wait(5.0)

    kills = of_type(commands, KillAttempt)
    assert [(kill.attempt_id, kill.reason) for kill in kills] == [
        (map_attempt(0), "no news for 10 s")
    ]


def test_a_person_may_kill_or_fail_an_attempt() -> None:
    bench = Bench()
    bench.workers("a", "b")
    bench.submit(2, settings=JobSettings(map_attempts_max=2, locality_wait_s=0.0))

    bench.tell(KillAttemptRequested(map_attempt(0)))
    bench.tell(FailAttemptRequested(map_attempt(1)))

    totals = bench.scheduler.totals(JOB)
    assert (totals.killed_maps, totals.failed_maps) == (1, 1)


def test_a_killed_job_has_its_attempts_killed_and_keeps_their_slots_until_they_are_gone() -> None:
    """S5: a slot is free when its process is gone, not when we wish it to be."""
    bench = Bench()
    bench.workers("a")
    bench.submit(1)
    waiting = bench.submit(1, job_id=JobId("job_1_0002"))

    commands = bench.tell(JobKilled(JOB, "killed on request"))
    after = bench.tell(AttemptKilled(map_attempt(0), "killed"))

    assert starts(waiting) == starts(commands) == []
    assert of_type(commands, KillAttempt)[0].attempt_id == map_attempt(0)
    assert of_type(commands, FinishJob)[0].outcome is JobOutcome.KILLED
    assert len(starts(after)) == 1


def test_a_worker_that_fails_everything_is_quarantined_and_released_later() -> None:
    bench = Bench()
    bench.workers("bad", "good", "fine")
    bench.submit(30, settings=JobSettings(locality_wait_s=0.0))
    news = []
    for _ in range(4):
        (mine,) = [a for a, start in bench.running.items() if start.worker_id == "bad"]
        bench.running.pop(mine)
        news += bench.tell(AttemptFailed(mine, "no such program"))

    released = bench.wait(61.0)

    assert [worker.worker_id for worker in of_type(news, QuarantineWorker)] == ["bad"]
    assert ReleaseWorker(WorkerId("bad")) in released


def test_a_job_that_fails_everywhere_puts_nobody_in_quarantine_for_long() -> None:
    bench = Bench()
    bench.workers("a", "b", "c", slots=4)
    bench.submit(12, settings=JobSettings(map_attempts_max=4, locality_wait_s=0.0))
    while bench.scheduler.job(JOB) is not None:
        attempt = next(iter(bench.running))
        bench.running.pop(attempt)
        bench.tell(AttemptFailed(attempt, "exit status 1"))

    bench.wait(1.0)
    bench.bury()
    next_job = bench.submit(3, job_id=JobId("job_1_0002"))

    assert len({worker for _, worker in starts(next_job)}) == 3


def test_a_map_is_blamed_after_a_few_failed_fetches_and_not_before() -> None:
    bench = Bench()
    bench.workers("a", "b", slots=2)
    bench.submit(1, 2)
    bench.succeed(map_attempt(0))

    first = bench.tell(FetchFailed(reduce_attempt(0), map_attempt(0)))
    second = bench.tell(FetchFailed(reduce_attempt(1), map_attempt(0)))
    third = bench.tell(FetchFailed(reduce_attempt(0), map_attempt(0)))
    late = bench.tell(FetchFailed(reduce_attempt(1), map_attempt(0)))

    assert first == second == late == []
    assert len(of_type(third, WithdrawSegment)) == 1
    assert [attempt for attempt, _ in starts(third)] == ["m_000000_1"]


def test_a_lost_segment_runs_its_map_again_at_once() -> None:
    bench = Bench()
    bench.workers("a", "b", slots=2)
    bench.submit(1, 1)
    bench.succeed(map_attempt(0))

    commands = bench.tell(OutputLost(map_attempt(0), "block 3 has crc 1, expected 2"))
    again = bench.succeed(map_attempt(0, 1))

    assert [attempt for attempt, _ in starts(commands)] == ["m_000000_1"]
    assert of_type(again, PublishSegment)[0].attempt_id == map_attempt(0, 1)


def test_a_lost_map_that_no_reduce_needs_is_not_run_again_until_one_does() -> None:
    """MapReduce §3.3, refined: every reduce already has what it needs of the lost disk."""
    bench = Bench()
    bench.workers("a", "b", "c")
    bench.submit([["a"]], 1)
    bench.tell(WorkerDraining(WorkerId("a")))
    bench.succeed(map_attempt(0))
    assert bench.where(reduce_attempt(0)) != "a"
    bench.tell(ShuffleFinished(reduce_attempt(0)))

    lost = bench.tell(WorkerLost(WorkerId("a"), "silent"))
    needed = bench.tell(AttemptFailed(reduce_attempt(0), "exit status 1"))

    assert starts(lost) == []
    assert "m_000000_1" in [attempt for attempt, _ in starts(needed)]


def test_counts_of_kinds_stay_apart() -> None:
    bench = Bench()
    bench.workers("a", slots=2)
    bench.submit(2, 1)
    bench.succeed_all(TaskKind.MAP)

    view = bench.scheduler.job(JOB)

    assert view is not None
    assert (view.maps_committed, view.reduces_running, view.map_fraction) == (2, 1, 1.0)


def test_a_replaced_attempt_that_had_fetched_everything_leaves_its_task_in_need() -> None:
    """S3: maps lost after that are run again for the attempts that still fetch."""
    bench = Bench()
    bench.workers("a", "b", "c", slots=2)
    bench.submit(6, 3)
    bench.now_s = 0.2
    bench.succeed_all(TaskKind.MAP)
    slow = reduce_attempt(2)
    bench.tell(ShuffleFinished(slow))
    home = bench.where(slow)
    bench.succeed(reduce_attempt(0), reduce_attempt(1))
    for _ in range(30):  # silence: a backup is started, then the slower of the two is replaced
        bench.wait(1.0)
        bench.bury()
    assert slow not in bench.running

    lost = bench.tell(WorkerLost(WorkerId(home), "silent"))

    assert any(attempt.startswith("m_") for attempt, _ in starts(lost))


def test_a_job_may_outlive_its_failure_until_its_other_tasks_are_over() -> None:
    """Hadoop's local mode: what the others commit stays. The first failure is the one told."""
    bench = Bench()
    bench.workers("a", slots=3)
    settings = JobSettings(
        map_attempts_max=1, outlives_failure=True, locality_wait_s=0.0, slowstart=1.0
    )
    bench.submit(3, settings=settings)

    first = bench.tell(AttemptFailed(map_attempt(1), "exit status 1"))
    second = bench.tell(AttemptFailed(map_attempt(2), "exit status 2"))
    view = bench.scheduler.job(JOB)
    last = bench.succeed(map_attempt(0))

    assert [type(command) for command in (*first, *second)] == [AbandonTask, AbandonTask]
    assert view is not None and view.map_fraction == 0.0
    (finish,) = of_type(last, FinishJob)
    assert (finish.outcome, finish.culprit) == (JobOutcome.FAILED, map_attempt(1))
    assert finish.reason == (
        f"Task failed {map_attempt(1).task_id}\n"
        "Job failed as tasks failed. failedMaps:2 failedReduces:0 killedMaps:0 killedReduces: 0\n"
        "The last failure of the task: exit status 1"
    )


def test_a_map_that_reduces_need_fails_its_job_at_once_all_the_same() -> None:
    bench = Bench()
    bench.workers("a", slots=2)
    bench.submit(2, 1, settings=JobSettings(map_attempts_max=1, outlives_failure=True))

    commands = bench.tell(AttemptFailed(map_attempt(0), "exit status 1"))

    assert len(of_type(commands, KillAttempt)) == 1
    assert [finish.outcome for finish in of_type(commands, FinishJob)] == [JobOutcome.FAILED]


def test_a_change_that_cannot_happen_is_told_with_the_task_and_its_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug of the brain ends the master: whoever reads its log knows which task, and its past."""
    bench = Bench()
    bench.workers("a")
    bench.submit(1)
    monkeypatch.delitem(TRANSITIONS, (TaskState.RUNNING, Change.STOPPED))

    with pytest.raises(ForbiddenChange) as caught:
        bench.tell(AttemptFailed(map_attempt(0), "exit status 1"))

    first, *story = str(caught.value).splitlines()
    assert first == "task_1_0001_m_000000 is RUNNING: STOPPED cannot happen to it"
    assert "StartAttempt" in story[0]
    assert "AttemptFailed" in story[-1] and "exit status 1" in story[-1]


def test_of_two_attempts_the_furthest_says_how_far_their_task_is() -> None:
    """Once the first of them was gone its backup counted nothing."""
    bench = Bench()
    bench.workers("a", "b")
    bench.submit(1)
    bench.tell(
        WorkerRegistered(WorkerId("b"), HostName("b"), 1, 1, 1, running=(map_attempt(0, 5),))
    )
    bench.tell(AttemptProgress(map_attempt(0), 0.25))
    bench.tell(AttemptProgress(map_attempt(0, 5), 0.5))
    both = bench.scheduler.job(JOB)

    bench.tell(AttemptKilled(map_attempt(0), "its host went down"))

    alone = bench.scheduler.job(JOB)
    assert both is not None and alone is not None
    assert (both.map_fraction, alone.map_fraction) == (0.5, 0.5)
