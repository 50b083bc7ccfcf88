"""The job master's order of duties: nothing is carried out that a crash could take back (M1)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mrstream.cluster.errors import DiskFailed
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.dfs.errors import FencedOff
from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.master.duties import FENCE, Duties, is_deposed
from mrstream.mapreduce.master.job_journal import (
    JobAccepted,
    JobClosed,
    JobDecided,
    Journaled,
    PriorityChanged,
    TaskCommitted,
)
from mrstream.mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    JobOutcome,
    PublishSegment,
    RecordCommit,
    StartAttempt,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptSucceeded,
    CommitRequested,
    Event,
    JobKilled,
    JobPrioritySet,
    JobSettings,
    JobSubmitted,
    MapTaskSpec,
    Tick,
    WorkerLost,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import LIFE_ATTEMPTS, AttemptId, HostName, JobId, WorkerId
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from tests.support.forgetful_disk import ForgetfulDisk
from tests.support.scheduler_bench import JOB, map_attempt, reduce_attempt

ASKED = JobSubmitted(
    JOB, (MapTaskSpec(1), MapTaskSpec(1)), 1, JobSettings(locality_wait_s=0.0, slowstart=1.0)
)
DONE = Done({"Mine": {"seen": 7}}, segment_bytes=70)


class Paper:
    """Books that remember what they were told."""

    def __init__(self) -> None:
        self.seen: list[tuple[Event, list[Command]]] = []

    def take_down(self, event: Event, commands: Sequence[Command], wall_s: float) -> None:
        self.seen.append((event, list(commands)))

    def result(self, attempt_id: AttemptId) -> tuple[Done, float]:
        return DONE, 1.5


class Shell:
    """A master without a network: brain, journal and duties over a disk that forgets."""

    def __init__(self, disk: ForgetfulDisk, asked: JobSubmitted = ASKED) -> None:
        self.now_s = 0.0
        self.books = Paper()
        self.done: list[Command] = []
        self.brain = Scheduler()
        self.journaled = Journaled()
        self.journal = Journal("/j", "cluster", disk=disk)
        found = self.journal.recover()
        self.journaled.restore(found.checkpoint, found.records)
        log = RecordLog(self.journal, 1 << 30)
        self.duties = Duties(self.brain, log, self.journaled, self.books, self.done.append)
        self.duties.begin_life(1)
        for known in list(self.journaled.jobs.values()):
            self.duties.restore(known, asked, 0.0, 100.0)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.duties.event(event, self.now_s, 100.0 + self.now_s)

    def commit(self) -> list[Command]:
        """Make everything durable; give what was carried out because of that."""
        before = len(self.done)
        self.journal.commit()
        self.duties.gate.release()
        return self.done[before:]

    def accept(self) -> None:
        self.duties.append(JobAccepted(JOB, "token", b"spec", 1, False, 5.0))
        self.commit()
        self.tell(ASKED)


def registered(name: str = "w", slots: int = 2, *segments: AttemptId) -> WorkerRegistered:
    return WorkerRegistered(WorkerId(name), HostName(name), slots, slots, slots, segments=segments)


def working(disk: ForgetfulDisk) -> Shell:
    """A master with a job whose two maps run."""
    shell = Shell(disk)
    shell.accept()
    shell.tell(registered())
    assert shell.done == [
        StartAttempt(map_attempt(0), WorkerId("w")),
        StartAttempt(map_attempt(1), WorkerId("w")),
    ]
    shell.done.clear()
    return shell


def test_nothing_is_carried_out_before_this_life_is_on_record() -> None:
    """Else two lives could number their attempts alike."""
    shell = Shell(ForgetfulDisk())

    shell.duties.append(JobAccepted(JOB, "token", b"spec", 1, False, 5.0))
    shell.tell(ASKED, registered())

    assert shell.done == []
    assert len(shell.commit()) == 2


def test_a_commit_is_on_record_before_anyone_hears_of_it() -> None:
    shell = working(ForgetfulDisk())

    shell.tell(AttemptSucceeded(map_attempt(0)))

    assert shell.done == []
    assert shell.duties.gate.waits_for == shell.journal.sequence and not shell.duties.is_clear
    assert shell.commit() == [
        RecordCommit(map_attempt(0), WorkerId("w")),
        PublishSegment(map_attempt(0), WorkerId("w")),
    ]
    assert shell.duties.gate.waits_for == 0 and shell.duties.is_clear


def test_the_books_see_a_decision_before_it_is_carried_out() -> None:
    """The result that the record holds is theirs."""
    shell = working(ForgetfulDisk())

    shell.tell(AttemptSucceeded(map_attempt(0)))

    event, commands = shell.books.seen[-1]
    assert event == AttemptSucceeded(map_attempt(0))
    assert commands[0] == RecordCommit(map_attempt(0), WorkerId("w"))
    (commit,) = shell.journaled.jobs[JOB].committed.values()
    assert commit == TaskCommitted(JOB, str(map_attempt(0)), "w", DONE, 1.5)


def test_what_needs_no_record_of_its_own_waits_behind_what_does() -> None:
    """A reduce that starts after the last commit must not start if that commit is forgotten."""
    shell = working(ForgetfulDisk())

    shell.tell(AttemptSucceeded(map_attempt(0)), AttemptSucceeded(map_attempt(1)))
    shell.tell(CommitRequested(reduce_attempt(0)))

    assert shell.done == []
    kinds = [type(command) for command in shell.commit()]
    assert kinds[-2:] == [StartAttempt, GrantCommit]


def test_commands_are_carried_out_in_the_order_in_which_they_were_decided() -> None:
    shell = working(ForgetfulDisk())

    shell.tell(AttemptSucceeded(map_attempt(1)), AttemptSucceeded(map_attempt(0)))
    decided = [command for _, commands in shell.books.seen[-2:] for command in commands]

    assert shell.commit() == decided
    assert len(decided) == 5


def test_only_what_is_durable_is_let_go() -> None:
    """A flush that began before the second record was there says nothing about it."""
    shell = working(ForgetfulDisk())
    shell.tell(AttemptSucceeded(map_attempt(0)))
    first = shell.journal.sequence
    shell.journal.commit()

    shell.tell(AttemptSucceeded(map_attempt(1)))
    shell.duties.gate.release()

    assert shell.journal.durable == first
    attempts = [c.attempt_id for c in shell.done if isinstance(c, RecordCommit)]
    assert attempts == [map_attempt(0)]
    assert shell.duties.gate.waits_for == first + 1


def test_what_is_decided_while_nothing_waits_is_carried_out_at_once() -> None:
    shell = working(ForgetfulDisk())

    shell.tell(JobPrioritySet(JOB, 5), Tick(), registered("x"))

    assert shell.duties.is_clear


def test_what_the_shell_records_itself_is_waited_for_too() -> None:
    """Who saw a job's new order must see it again after a crash."""
    shell = working(ForgetfulDisk())
    shell.tell(AttemptFailed(map_attempt(0), "exit status 1"))
    shell.done.clear()

    shell.duties.append(PriorityChanged(JOB, 5))
    shell.tell(AttemptFailed(map_attempt(1), "exit status 1"))

    assert shell.done == []
    assert [type(command) for command in shell.commit()] == [StartAttempt]


def test_a_failed_flush_is_never_followed_by_anything() -> None:
    disk = ForgetfulDisk()
    shell = working(disk)
    shell.tell(AttemptSucceeded(map_attempt(0)))
    disk.fail_sync = True

    with pytest.raises(DiskFailed):
        shell.commit()
    disk.fail_sync = False
    with pytest.raises(DiskFailed):
        shell.tell(AttemptSucceeded(map_attempt(1)))

    assert shell.done == []


@pytest.mark.parametrize("seed", range(8))
def test_what_a_crash_took_back_was_never_carried_out(seed: int) -> None:
    disk = ForgetfulDisk(seed)
    shell = working(disk)
    shell.tell(AttemptSucceeded(map_attempt(0)))
    shell.commit()
    shell.tell(AttemptSucceeded(map_attempt(1)))

    disk.crash()
    again = Shell(disk)

    carried_out = [str(c.attempt_id) for c in shell.done if isinstance(c, RecordCommit)]
    assert carried_out == [str(map_attempt(0))]
    found = [record.attempt_id for record in again.journaled.jobs[JOB].committed.values()]
    assert found in (carried_out, [*carried_out, str(map_attempt(1))])


def test_the_next_life_goes_on_with_the_same_state() -> None:
    """Finished maps are not repeated, and no attempt has a number of the life before."""
    disk = ForgetfulDisk()
    shell = working(disk)
    shell.duties.append(PriorityChanged(JOB, 5))
    shell.tell(JobPrioritySet(JOB, 5), AttemptSucceeded(map_attempt(0)))
    shell.commit()

    disk.crash()
    again = Shell(disk)
    again.commit()
    again.tell(registered("w", 2, map_attempt(0)))
    again.now_s = 5.0
    again.tell(Tick())

    view = again.brain.job(JOB)
    assert view is not None and (view.priority, view.maps_committed) == (5, 1)
    assert again.done == [
        PublishSegment(map_attempt(0), WorkerId("w")),
        StartAttempt(map_attempt(1, LIFE_ATTEMPTS), WorkerId("w")),
    ]


def test_a_life_that_left_no_record_said_nothing_so_that_its_number_may_be_given_again() -> None:
    disk = ForgetfulDisk(5)
    working(disk)
    for _ in range(12):
        disk.crash()
        life = Shell(disk)
        life.tell(registered())
        life.now_s = 5.0
        life.tell(Tick())
        assert life.done == []

    last = Shell(disk)
    last.tell(registered())
    last.now_s = 5.0
    last.tell(Tick())
    last.commit()

    started = [c.attempt_id for c in last.done if isinstance(c, StartAttempt)]
    assert len(started) == 2
    assert all(attempt_id.number >= LIFE_ATTEMPTS for attempt_id in started)


def test_an_end_that_was_decided_is_carried_out_by_every_life_until_the_job_is_closed() -> None:
    disk = ForgetfulDisk()
    shell = working(disk)
    shell.tell(JobKilled(JOB, "killed on request"))
    shell.commit()
    ended = FinishJob(JOB, JobOutcome.KILLED, "killed on request")
    assert shell.done[-1] == ended

    disk.crash()
    second = Shell(disk)
    assert second.commit() == [ended]
    assert second.brain.job(JOB) is None
    second.duties.append(JobClosed(JOB))
    second.commit()
    disk.crash()
    third = Shell(disk)

    assert third.commit() == []
    assert third.journaled.jobs == {}


def test_a_failed_job_is_remembered_with_its_culprit() -> None:
    disk = ForgetfulDisk()
    shell = working(disk)
    for number in range(4):
        shell.tell(AttemptFailed(map_attempt(0, number), "exit status 1"))
    (finish,) = [c for c in shell.commit() if isinstance(c, FinishJob)]

    again = Shell(disk)

    assert finish.outcome is JobOutcome.FAILED and finish.culprit == map_attempt(0, 3)
    assert again.journaled.jobs[JOB].decided == JobDecided(
        JOB, "failed", finish.reason, str(finish.culprit)
    )
    assert again.commit() == [finish]


def test_a_task_that_was_given_up_is_on_record_and_stays_so() -> None:
    disk = ForgetfulDisk()
    settings = JobSettings(
        locality_wait_s=0.0, map_attempts_max=1, map_failures_percent_max=50, slowstart=1.0
    )
    asked = JobSubmitted(JOB, ASKED.maps, 1, settings)
    shell = Shell(disk)
    shell.duties.append(JobAccepted(JOB, "token", b"spec", 1, False, 5.0))
    shell.commit()
    shell.tell(asked, registered(), AttemptFailed(map_attempt(0), "exit status 1"))
    assert not any(isinstance(command, AbandonTask) for command in shell.done)
    assert any(isinstance(command, AbandonTask) for command in shell.commit())

    disk.crash()
    again = Shell(disk, asked)
    again.tell(registered("w", 2, map_attempt(1)))
    again.commit()

    assert list(again.journaled.jobs[JOB].abandoned) == [str(map_attempt(0).task_id)]
    started = [c.attempt_id.task_id for c in again.done if isinstance(c, StartAttempt)]
    assert map_attempt(0).task_id not in started


def test_a_checkpoint_restores_what_the_records_before_it_do() -> None:
    disk = ForgetfulDisk()
    shell = working(disk)
    shell.tell(AttemptSucceeded(map_attempt(0)))
    shell.commit()
    sequence = shell.journal.rotate()
    shell.journal.commit()
    shell.journal.write_checkpoint(sequence, shell.journaled.pieces())
    shell.tell(AttemptSucceeded(map_attempt(1)))
    shell.commit()

    disk.crash()
    again = Shell(disk)

    before, after = shell.journaled.jobs[JOB], again.journaled.jobs[JOB]
    assert after.accepted == before.accepted
    assert list(after.committed.values()) == list(before.committed.values())
    assert len(after.committed) == 2
    assert again.journaled.life == 2


def test_another_job_s_decisions_wait_in_the_same_line() -> None:
    """One order for all: what a later decision saw may be an earlier one's."""
    shell = working(ForgetfulDisk())
    other = JobId("job_1_0002")
    shell.duties.append(JobAccepted(other, "second", b"spec", 1, False, 6.0))
    shell.tell(JobSubmitted(other, (MapTaskSpec(1),), 0), registered("x"))

    assert shell.done == []
    (start,) = shell.commit()
    assert isinstance(start, StartAttempt) and start.attempt_id.task_id.job_id == other


def reducing(disk: ForgetfulDisk) -> Shell:
    """A master with a job whose reduce has asked to commit."""
    shell = working(disk)
    shell.tell(AttemptSucceeded(map_attempt(0)), AttemptSucceeded(map_attempt(1)))
    shell.commit()
    shell.tell(CommitRequested(reduce_attempt(0)))
    return shell


def granted(commands: list[Command]) -> list[AttemptId]:
    return [c.attempt_id for c in commands if isinstance(c, GrantCommit)]


def test_a_right_to_commit_is_on_record_before_it_is_given() -> None:
    """S1: the next life must know whose output may be visible; said again it needs no record."""
    shell = reducing(ForgetfulDisk())

    assert granted(shell.done) == []
    assert granted(shell.commit()) == [reduce_attempt(0)]
    sequence = shell.journal.sequence
    shell.tell(CommitRequested(reduce_attempt(0)))
    assert granted(shell.done[-1:]) == [reduce_attempt(0)] and shell.journal.sequence == sequence


def taken_over(disk: ForgetfulDisk) -> tuple[AttemptId, Shell]:
    """The next life: another attempt of the reduce has asked to commit."""
    reducing(disk).commit()
    disk.crash()
    again = Shell(disk)
    again.tell(registered("w", 2, map_attempt(0), map_attempt(1)))
    again.now_s = 5.0
    again.tell(Tick())
    successor = reduce_attempt(0, LIFE_ATTEMPTS)
    again.tell(CommitRequested(successor))
    return successor, again


def running(name: str, *attempts: AttemptId) -> WorkerRegistered:
    return WorkerRegistered(WorkerId(name), HostName(name), 2, 2, 2, running=attempts)


def test_of_all_that_were_let_commit_in_any_life_only_the_last_is_believed() -> None:
    """S1: the output of the first lies below that of its successor, or will."""
    disk = ForgetfulDisk()
    successor, again = taken_over(disk)
    again.commit()
    disk.crash()
    third = Shell(disk)
    third.tell(running("v", reduce_attempt(0)), AttemptSucceeded(reduce_attempt(0)))
    third.tell(running("u", successor), AttemptSucceeded(successor))

    assert [c for c in third.commit() if isinstance(c, RecordCommit)] == [
        RecordCommit(successor, WorkerId("u"))
    ]


def test_who_is_let_commit_again_after_another_is_on_record_again() -> None:
    """S1: the next life must know which of them was the last."""
    successor, again = taken_over(ForgetfulDisk())
    again.tell(running("v", reduce_attempt(0)), CommitRequested(reduce_attempt(0)))
    again.tell(WorkerLost(WorkerId("w"), "silent"))

    assert granted(again.commit()) == [reduce_attempt(0)]
    known = again.journaled.jobs[JOB].granted_with(str(successor))
    assert list(known) == [str(successor), str(reduce_attempt(0))]


def test_who_was_let_commit_in_a_life_before_is_fenced_before_another_is() -> None:
    """S1: it may be in the middle of it, on a worker that nobody hears."""
    successor, again = taken_over(ForgetfulDisk())

    assert granted(again.commit()) == [successor]
    assert again.duties.to_fence(successor) == [reduce_attempt(0)]
    assert again.duties.to_fence(reduce_attempt(0)) == [successor]
    again.tell(AttemptSucceeded(successor))
    assert again.duties.to_fence(reduce_attempt(0)) == [], "it is over"


def test_nothing_touches_the_dfs_before_it_refuses_whoever_led_before() -> None:
    """F6: all else goes on meanwhile."""
    shell = working(ForgetfulDisk())
    shell.duties.await_fence()
    shell.tell(AttemptSucceeded(map_attempt(0)), AttemptSucceeded(map_attempt(1)))
    shell.commit()
    shell.tell(CommitRequested(reduce_attempt(0)))
    assert StartAttempt in [type(c) for c in shell.done] and granted(shell.commit()) == []
    shell.tell(JobKilled(JOB, "killed on request"))
    assert FinishJob not in [type(c) for c in shell.commit()]

    shell.duties.fence_raised()

    assert shell.done[-1] == FinishJob(JOB, JobOutcome.KILLED, "killed on request")
    assert granted(shell.done) == [], "that attempt was killed while it waited"


def test_a_job_whose_lock_is_lost_fails_and_that_is_on_record() -> None:
    disk = ForgetfulDisk()
    shell = working(disk)
    lost = FencedOff("/ls/a: generation 1 is over, 2 has come", name="/ls/a", generation=1, seen=2)

    shell.duties.lock_lost(JOB, lost, 1.0, 101.0)

    reason = f"its lock is lost: {lost}"
    assert shell.done[-1:] != [FinishJob(JOB, JobOutcome.FAILED, reason)]
    *_, finish = shell.commit()
    assert finish == FinishJob(JOB, JobOutcome.FAILED, reason)
    shell.duties.lock_lost(JOB, lost, 2.0, 102.0)
    assert shell.commit() == [], "it has ended: once more changes nothing"
    disk.crash()
    assert Shell(disk).commit() == [finish], "nor does another life"


def test_a_leader_does_not_take_its_own_end_for_that_of_a_job() -> None:
    """What comes of the job is the successor's to say."""
    shell = working(ForgetfulDisk())
    own = FencedOff("jobs: generation 1 is over, 2 has come", name=FENCE, generation=1, seen=2)

    assert is_deposed(own) and not is_deposed(FencedOff("another", name="/ls/local/jobs"))
    with pytest.raises(AssertionError, match="successor"):
        shell.duties.lock_lost(JOB, own, 1.0, 101.0)
    assert shell.commit() == []


def test_nothing_is_carried_out_without_the_lease() -> None:
    """C4: what was decided leaves when the lease has come back, or never."""
    shell = working(ForgetfulDisk())
    has_lease = False
    log = RecordLog(shell.journal, 1 << 30)
    duties = Duties(
        shell.brain, log, shell.journaled, shell.books, shell.done.append, lambda: has_lease
    )

    duties.event(registered("x"), 1.0, 101.0)
    duties.event(JobKilled(JOB, "killed on request"), 1.0, 101.0)
    shell.journal.commit()
    duties.gate.release()

    assert shell.done == []
    has_lease = True
    duties.gate.release()
    assert any(isinstance(command, FinishJob) for command in shell.done)


def test_an_attempt_that_was_given_up_while_its_start_waited_is_not_started() -> None:
    """Seed 1117: its worker had registered meanwhile without it, and a successor was started."""
    shell = working(ForgetfulDisk())
    shell.tell(AttemptSucceeded(map_attempt(0)), AttemptSucceeded(map_attempt(1)))

    shell.tell(registered("w", 2, map_attempt(0), map_attempt(1)))

    started = [c.attempt_id for c in shell.commit() if isinstance(c, StartAttempt)]
    assert started == [reduce_attempt(0, 1)]
