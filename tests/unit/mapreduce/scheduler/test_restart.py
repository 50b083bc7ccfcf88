"""Workers and jobs that come back."""

from __future__ import annotations

import msgspec

from mrstream.mapreduce.scheduler import events
from mrstream.mapreduce.scheduler.commands import (
    FinishJob,
    GrantCommit,
    KillAttempt,
    PublishSegment,
    RecordCommit,
    WithdrawSegment,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptSucceeded,
    CommitRequested,
    CommittedTask,
    Event,
    JobRestored,
    MapTaskSpec,
    WorkerLost,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    HostName,
    WorkerId,
    parse_attempt_id,
    parse_task_id,
)
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from tests.support.scheduler_bench import (
    JOB,
    QUICK,
    Bench,
    map_attempt,
    of_type,
    reduce_attempt,
    starts,
)


def registered(
    name: str, running: tuple[AttemptId, ...] = (), segments: tuple[AttemptId, ...] = ()
) -> WorkerRegistered:
    return WorkerRegistered(
        WorkerId(name), HostName(name), 2, 2, 2, running=running, segments=segments
    )


def restored(*committed: tuple[AttemptId, str], maps: int = 2, reduces: int = 1) -> JobRestored:
    return JobRestored(
        JOB,
        (MapTaskSpec(1),) * maps,
        reduces,
        QUICK,
        tuple(CommittedTask(attempt, WorkerId(worker)) for attempt, worker in committed),
        attempt_number_first=1000,
    )


def test_a_restarted_master_goes_on_and_repeats_no_finished_map() -> None:
    bench = Bench()
    bench.tell(restored((map_attempt(0), "a")))

    back = bench.tell(registered("a", running=(map_attempt(1),), segments=(map_attempt(0),)))
    after_hold = bench.wait(5.0)
    done = bench.succeed(map_attempt(1))

    assert [command.attempt_id for command in of_type(back, PublishSegment)] == [map_attempt(0)]
    assert starts(back) == starts(after_hold) == []
    assert starts(done) == [("r_000000_1000", "a")]


def test_a_map_that_finished_while_the_master_was_away_counts() -> None:
    bench = Bench()
    bench.tell(restored(maps=1))

    commands = bench.tell(registered("a", segments=(map_attempt(0),)))

    assert [command.attempt_id for command in of_type(commands, RecordCommit)] == [map_attempt(0)]


def test_a_worker_that_does_not_come_back_loses_its_maps_after_a_while() -> None:
    bench = Bench()
    bench.tell(restored((map_attempt(0), "gone"), maps=1))
    bench.tell(registered("a"))

    soon = bench.wait(5.0)
    later = bench.wait(6.0)

    assert of_type(soon, WithdrawSegment) == []
    assert len(of_type(later, WithdrawSegment)) == 1
    assert starts(later) == [("m_000000_1000", "a")]


def test_a_restored_job_whose_reduces_are_all_committed_is_over() -> None:
    bench = Bench()

    commands = bench.tell(restored((reduce_attempt(0), "a")))

    assert len(of_type(commands, FinishJob)) == 1


def test_a_restarted_master_does_without_the_tasks_that_had_failed_for_good() -> None:
    """`mapreduce.map.failures.maxpercent`: given up once, a map is not tried again."""
    bench = Bench()
    given_up = map_attempt(1).task_id
    bench.tell(msgspec.structs.replace(restored(maps=2), abandoned=(given_up,)))
    bench.tell(registered("a", segments=(map_attempt(0), map_attempt(1))))

    after_hold = bench.wait(5.0)

    assert starts(after_hold) == [("r_000000_1000", "a")]
    assert bench.scheduler.totals(JOB).abandoned_tasks == 1


def test_a_worker_that_reconnects_without_an_attempt_has_lost_it() -> None:
    bench = Bench()
    bench.tell(registered("a"))
    bench.submit(1)

    commands = bench.tell(registered("a"))

    assert starts(commands) == [("m_000000_1", "a")]


def test_what_a_worker_brings_back_too_late_is_dropped() -> None:
    bench = Bench()
    bench.tell(registered("a"))
    bench.submit(1, 1)
    bench.tell(WorkerLost(WorkerId("a"), "silent"))
    bench.tell(registered("b"))
    bench.succeed(map_attempt(0, 1))

    commands = bench.tell(registered("a", running=(map_attempt(0),)))

    assert [kill.attempt_id for kill in of_type(commands, KillAttempt)] == [map_attempt(0)]


def test_a_healed_partition_brings_back_a_segment_that_nobody_has_made_again() -> None:
    bench = Bench()
    bench.tell(registered("a"))
    bench.submit(1, 1)
    bench.succeed(map_attempt(0))
    bench.tell(WorkerLost(WorkerId("a"), "silent"))

    commands = bench.tell(registered("a", segments=(map_attempt(0),)))

    assert [command.attempt_id for command in of_type(commands, PublishSegment)] == [map_attempt(0)]
    assert "m_000000_1" not in [attempt for attempt, _ in starts(commands)]


def test_the_commit_of_a_task_is_granted_to_one_attempt_at_a_time() -> None:
    """S1; a second attempt waits, and gets the right when the first is lost."""
    bench = Bench()
    bench.tell(registered("a"))
    bench.tell(restored(maps=1, reduces=0))
    bench.tell(registered("a", running=(map_attempt(0),)))
    bench.tell(registered("b", running=(map_attempt(0, 1),)))

    first = bench.tell(CommitRequested(map_attempt(0)))
    again = bench.tell(CommitRequested(map_attempt(0)))
    second = bench.tell(CommitRequested(map_attempt(0, 1)))
    after_loss = bench.tell(WorkerLost(WorkerId("a"), "silent"))

    assert first == again == [GrantCommit(map_attempt(0), WorkerId("a"))]
    assert second == []
    assert GrantCommit(map_attempt(0, 1), WorkerId("b")) in after_loss


def test_success_without_the_right_to_commit_counts_for_nothing() -> None:
    """S1: whoever was granted may be renaming its output at this moment."""
    bench = Bench()
    bench.tell(registered("a"))
    bench.tell(restored(maps=1, reduces=0))
    bench.tell(registered("a", running=(map_attempt(0),)))
    bench.tell(registered("b", running=(map_attempt(0, 1),)))
    bench.tell(CommitRequested(map_attempt(0)))

    without = bench.tell(AttemptSucceeded(map_attempt(0, 1)))
    granted = bench.tell(AttemptSucceeded(map_attempt(0)))

    assert of_type(without, RecordCommit) == [] and of_type(without, FinishJob) == []
    assert of_type(granted, RecordCommit) == [RecordCommit(map_attempt(0), WorkerId("a"))]


def test_a_success_counts_for_nothing_once_another_was_let_commit() -> None:
    """S1: that one may have made its output visible over this one's, and its end is not heard."""
    bench = Bench()
    bench.tell(restored(maps=1, reduces=0))
    bench.tell(registered("a", running=(map_attempt(0),)))
    bench.tell(registered("b", running=(map_attempt(0, 1),)))
    bench.tell(CommitRequested(map_attempt(0)))
    bench.tell(CommitRequested(map_attempt(0, 1)))
    bench.tell(WorkerLost(WorkerId("a"), "silent"))
    bench.tell(WorkerLost(WorkerId("b"), "silent"))
    bench.tell(registered("a", running=(map_attempt(0),)))

    of_the_first = bench.tell(AttemptSucceeded(map_attempt(0)))
    bench.tell(registered("b", running=(map_attempt(0, 1),)))
    of_the_last = bench.tell(AttemptSucceeded(map_attempt(0, 1)))

    assert of_type(of_the_first, RecordCommit) == []
    assert of_type(of_the_last, RecordCommit) == [RecordCommit(map_attempt(0, 1), WorkerId("b"))]


def test_who_was_let_commit_last_in_a_life_before_is_known_in_this_one() -> None:
    """S1: of two that were let, one by each of two leaders, the first comes back first."""
    bench = Bench()
    last = map_attempt(0, 1)
    bench.tell(msgspec.structs.replace(restored(maps=1, reduces=0), let=(last,)))
    bench.tell(registered("a", running=(map_attempt(0),)))

    of_the_first = bench.tell(AttemptSucceeded(map_attempt(0)))
    bench.tell(registered("b", running=(last,)))
    of_the_last = bench.tell(AttemptSucceeded(last))

    assert of_type(of_the_first, RecordCommit) == []
    assert of_type(of_the_last, RecordCommit) == [RecordCommit(last, WorkerId("b"))]


def test_who_was_let_commit_in_the_life_before_succeeds_in_this_one() -> None:
    """The brain was not asked in this life; its worker commits only what it was let commit."""
    bench = Bench()
    bench.tell(msgspec.structs.replace(restored(maps=1, reduces=0), let=(map_attempt(0),)))
    bench.tell(registered("a", running=(map_attempt(0),)))

    commands = bench.tell(AttemptSucceeded(map_attempt(0)))

    assert of_type(commands, RecordCommit) == [RecordCommit(map_attempt(0), WorkerId("a"))]


def test_the_story_of_a_task_names_its_events_and_commands() -> None:
    bench = Bench()
    bench.tell(registered("a"))
    bench.submit(1, 1)
    bench.succeed(map_attempt(0))

    story = "\n".join(bench.scheduler.story(map_attempt(0).task_id))

    assert "StartAttempt" in story
    assert "AttemptSucceeded" in story
    assert "PublishSegment" in story


def test_recorded_events_replay_into_the_same_commands() -> None:
    """A history from the field becomes a test: events are written down and read back."""
    history = [registered("a"), restored((map_attempt(0), "a")), AttemptSucceeded(map_attempt(1))]
    first, second = Scheduler(), Scheduler()
    commands = [first.handle(event, 1.0) for event in history]

    written = msgspec.json.encode(history)
    read = msgspec.json.decode(written, type=list[Event])  # type: ignore[arg-type]

    assert read == history
    assert [second.handle(event, 1.0) for event in read] == commands


def test_every_event_has_a_handler() -> None:
    kinds = [
        kind
        for kind in vars(events).values()
        if isinstance(kind, type)
        and issubclass(kind, events.EventRecord)
        and kind is not events.EventRecord
    ]

    assert sorted(kind.__name__ for kind in Scheduler()._handlers) == sorted(
        kind.__name__ for kind in kinds
    )


def test_ids_print_as_people_know_them_and_read_back() -> None:
    assert str(map_attempt(3, 1)) == "attempt_1_0001_m_000003_1"
    assert parse_attempt_id("attempt_1_0001_m_000003_1") == map_attempt(3, 1)
    assert parse_task_id("task_1_0001_r_000002") == reduce_attempt(2).task_id
