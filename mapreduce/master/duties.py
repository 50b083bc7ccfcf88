"""The job master's duties in order: decide, journal, wait until it is durable, then carry out (M1).

Sits between the brain and whatever speaks to workers: the asyncio shell of `master_shell`, or a
simulator. Everything decided waits at the gate behind the records that it rests on, and for the
leader's lease, and is carried out in the order in which it was decided. What touches the dfs, or
lets a worker touch the output of a job, waits besides until the dfs refuses whoever led before
(F6). Nothing goes into the journal but through here. Never does any IO itself, reads no clock,
never decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from mrstream.cluster.leader import gate
from mrstream.dfs.errors import FencedOff
from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.master import job_journal
from mrstream.mapreduce.master.job_journal import (
    AnyRecord,
    CommitGranted,
    JobDecided,
    Journaled,
    MasterStarted,
    OpenJob,
    TaskAbandoned,
    TaskCommitted,
)
from mrstream.mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    LoseWorker,
    PublishSegment,
    QuarantineWorker,
    RecordCommit,
    ReleaseWorker,
    StartAttempt,
    WithdrawSegment,
)
from mrstream.mapreduce.scheduler.events import (
    CommittedTask,
    Event,
    JobKilled,
    JobPrioritySet,
    JobRestored,
    JobSubmitted,
)
from mrstream.mapreduce.scheduler.ids import (
    LIFE_ATTEMPTS,
    AttemptId,
    JobId,
    WorkerId,
    parse_attempt_id,
    parse_task_id,
)
from mrstream.mapreduce.scheduler.scheduler import Scheduler

FENCE = "jobs"
"""The fence in the dfs under which a leader of a group works, its epoch the generation. Changes for
a job are under those of the job, too, behind this one."""


def is_deposed(error: FencedOff) -> bool:
    """Is it we who may change nothing any more, or only a job, whose lock has a later holder?"""
    return error.name == FENCE


class Log(gate.Log, Protocol):
    """What is needed of a journal; of the group's, or of a master's that is alone."""

    def append(self, payload: bytes) -> int:
        """Take a record; give its sequence. It is not durable yet."""


class Books(Protocol):
    """What is kept of jobs beside the brain: it sees what was decided before it is carried out."""

    def take_down(self, event: Event, commands: Sequence[Command], wall_s: float) -> None:
        """Take note of an event and of what was decided on it."""

    def result(self, attempt_id: AttemptId) -> tuple[Done, float]:
        """Return what the attempt that committed its task reported, and the seconds it took."""


class Duties:
    """What was decided and may not be carried out yet."""

    def __init__(
        self,
        brain: Scheduler,
        log: Log,
        journaled: Journaled,
        books: Books,
        carry_out: Callable[[Command], None],
        may_speak: Callable[[], bool] = gate.always,
    ) -> None:
        """`may_speak`: does the lease hold? A master that is alone always may."""
        self._brain = brain
        self._log = log
        self._journaled = journaled
        self._books = books
        self._carry_out = carry_out
        self.gate: gate.Gate[Command] = gate.Gate(log, self._do, may_speak)
        self._has_fence = True
        self._unfenced: list[Command] = []

    @property
    def is_clear(self) -> bool:
        """Is everything decided so far durable and carried out?"""
        return self.gate.is_clear

    # --- the fence

    def await_fence(self) -> None:
        """Another may have led before: touch nothing in the dfs until `fence_raised`."""
        self._has_fence = False

    def fence_raised(self) -> None:
        """From now on the dfs refuses whoever led before: do what waited for that."""
        self._has_fence = True
        waiting, self._unfenced = self._unfenced, []
        self.gate.say(waiting)

    def lock_lost(self, job_id: JobId, error: FencedOff, now_s: float, wall_s: float) -> None:
        """A job may change nothing in the dfs any more, and so it fails; nothing else does."""
        assert not is_deposed(error), f"{error}: what comes of {job_id} is our successor's to say"
        lost = JobKilled(job_id, f"its lock is lost: {error}", JobOutcome.FAILED)
        self.event(lost, now_s, wall_s)

    def to_fence(self, attempt_id: AttemptId) -> list[AttemptId]:
        """Return the attempts that were let commit before this one, in any life: their output has
        to be taken away before this one may."""
        granted = self._granted(attempt_id)
        return [parse_attempt_id(other) for other in granted if other != str(attempt_id)]

    def _granted(self, attempt_id: AttemptId) -> dict[str, None]:
        known = self._journaled.jobs.get(attempt_id.task_id.job_id)
        return {} if known is None else known.granted_with(str(attempt_id))

    # --- a life begins

    def begin_life(self, stamp_ms: int) -> None:
        """Count this life of the master; whatever it does rests on that. `stamp_ms` is what the ids
        of jobs begin with, if no life before has said."""
        known = self._journaled
        self.append(MasterStarted(known.life + 1, known.stamp_ms or stamp_ms, known.jobs_count))

    def restore(self, known: OpenJob, asked: JobSubmitted, now_s: float, wall_s: float) -> None:
        """Go on with a job that no life before has closed; `asked` is what its client wanted."""
        if known.decided is not None:
            self.gate.say([end_of(known.decided)])
            return
        self.event(_restored(known, asked, self._journaled.life), now_s, wall_s)
        if known.priority is not None:
            self.event(JobPrioritySet(asked.job_id, known.priority), now_s, wall_s)

    # --- the one way to the brain, and to the journal

    def event(self, event: Event, now_s: float, wall_s: float) -> None:
        """Take one event; what comes of it is carried out once what it rests on is durable."""
        commands = self._brain.handle(event, now_s)
        self._books.take_down(event, commands, wall_s)
        for command in commands:
            record = self._record_of(command)
            if record is not None:
                self.append(record)
        self.gate.say(commands)

    def append(self, record: AnyRecord) -> None:
        """Put a record into the journal; all that is decided from now on rests on it."""
        self._log.append(job_journal.encode(record))  # which may refuse it
        self._journaled.apply(record)

    def _do(self, command: Command) -> None:
        if self._is_void(command):
            return
        if not self._has_fence and isinstance(command, GrantCommit | FinishJob):
            self._unfenced.append(command)
        else:
            self._carry_out(command)

    def _is_void(self, command: Command) -> bool:
        """Was it taken back while it waited? A worker that registered meanwhile did not name the
        attempt, so the brain has given it up: started now, it would run beside its successor; or an
        attempt was killed that waited for its right to commit."""
        match command:
            case StartAttempt(attempt_id=attempt_id):
                return not self._brain.holds(attempt_id)
            case GrantCommit(attempt_id=attempt_id):
                return not self._brain.may_commit(attempt_id)
            case _:
                return False

    def _record_of(self, command: Command) -> AnyRecord | None:
        """Return what must be durable before this command, and all after it, is carried out."""
        match command:
            case RecordCommit(attempt_id=attempt_id, worker_id=worker_id):
                done, seconds = self._books.result(attempt_id)
                job_id = attempt_id.task_id.job_id
                return TaskCommitted(job_id, str(attempt_id), worker_id, done, seconds)
            case AbandonTask(task_id=task_id):
                return TaskAbandoned(task_id.job_id, str(task_id))
            case FinishJob(job_id=job_id, outcome=outcome, reason=reason, culprit=culprit):
                return JobDecided(job_id, outcome.value, reason, str(culprit or ""))
            case GrantCommit(attempt_id=attempt_id):
                return self._grant_record(attempt_id)
            case StartAttempt() | KillAttempt():
                return None
            case PublishSegment() | WithdrawSegment():
                return None
            case LoseWorker() | QuarantineWorker() | ReleaseWorker():
                return None
            case _:
                assert_never(command)

    def _grant_record(self, attempt_id: AttemptId) -> CommitGranted | None:
        """One is enough, however often an attempt asks, unless another was let in between: who was
        let last is on record, too."""
        if last_let(self._granted(attempt_id)) == str(attempt_id):
            return None
        return CommitGranted(attempt_id.task_id.job_id, str(attempt_id))


def last_let(granted: dict[str, None]) -> str:
    """Of the attempts of a task that were let commit, the last; "" if none was."""
    return next(reversed(granted), "")


def end_of(decided: JobDecided) -> FinishJob:
    """Return the command that a record of a job's end came from."""
    return FinishJob(
        JobId(decided.job_id),
        JobOutcome(decided.outcome),
        decided.reason,
        parse_attempt_id(decided.culprit) if decided.culprit else None,
    )


def _restored(known: OpenJob, asked: JobSubmitted, life: int) -> JobRestored:
    """Return what the brain must know of a job that an earlier life left unfinished."""
    return JobRestored(
        asked.job_id,
        asked.maps,
        asked.reduces,
        asked.settings,
        tuple(
            CommittedTask(parse_attempt_id(record.attempt_id), WorkerId(record.worker_id))
            for record in known.committed.values()
        ),
        LIFE_ATTEMPTS * (life - 1),
        tuple(parse_task_id(task_id) for task_id in known.abandoned),
        tuple(parse_attempt_id(last_let(granted)) for granted in known.granted.values()),
    )
