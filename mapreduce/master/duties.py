"""The job master's duties in order: decide, journal, wait until it is durable, then carry out (M1).

Sits between the brain and whatever speaks to workers: the asyncio shell of `master_shell`, or a
simulator. Everything decided waits in line behind the records that it rests on, and is carried out
in the order in which it was decided. Nothing goes into the journal but through here. Never does any
IO itself, reads no clock, never decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.master import job_journal
from mrstream.mapreduce.master.job_journal import (
    LIFE_ATTEMPTS,
    AnyRecord,
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
    JobPrioritySet,
    JobRestored,
    JobSubmitted,
)
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    JobId,
    WorkerId,
    parse_attempt_id,
    parse_task_id,
)
from mrstream.mapreduce.scheduler.scheduler import Scheduler


class Log(Protocol):
    """What is needed of a journal."""

    @property
    def sequence(self) -> int:
        """The last sequence given out."""
        ...

    @property
    def durable(self) -> int:
        """The last sequence that survives a crash."""
        ...

    def append(self, payload: bytes) -> int:
        """Take a record; give its sequence. It is not durable yet."""
        ...


class Books(Protocol):
    """What is kept of jobs beside the brain: it sees what was decided before it is carried out."""

    def take_down(self, event: Event, commands: Sequence[Command], wall_s: float) -> None:
        """Take note of an event and of what was decided on it."""
        ...

    def result(self, attempt_id: AttemptId) -> tuple[Done, float]:
        """Give what the attempt that committed its task reported, and the seconds it took."""
        ...


class Duties:
    """What was decided and may not be carried out yet."""

    def __init__(
        self,
        brain: Scheduler,
        journal: Log,
        journaled: Journaled,
        books: Books,
        carry_out: Callable[[Command], None],
    ) -> None:
        self._brain = brain
        self._journal = journal
        self._journaled = journaled
        self._books = books
        self._carry_out = carry_out
        self._held: deque[tuple[int, list[Command]]] = deque()
        self.unsaved_bytes = 0
        """Bytes of records since whoever writes checkpoints last set this to 0."""

    @property
    def is_clear(self) -> bool:
        """Is everything decided so far durable and carried out?"""
        return not self._held and self._journal.durable >= self._journal.sequence

    @property
    def waits_for(self) -> int:
        """The sequence that must be durable before the next thing is carried out; 0: none waits."""
        return self._held[0][0] if self._held else 0

    # --- a life begins

    def begin_life(self) -> None:
        """Count this life of the master; whatever it does rests on that."""
        self.append(MasterStarted(self._journaled.life + 1))

    def restore(self, known: OpenJob, asked: JobSubmitted, now_s: float, wall_s: float) -> None:
        """Go on with a job that no life before has closed; `asked` is what its client wanted."""
        if known.decided is not None:
            self._say([end_of(known.decided)])
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
        if commands:
            self._say(commands)

    def append(self, record: AnyRecord) -> None:
        """Put a record into the journal; all that is decided from now on rests on it."""
        payload = job_journal.encode(record)
        self._journaled.apply(record)
        self._journal.append(payload)
        self.unsaved_bytes += len(payload)

    def release(self) -> None:
        """The journal is durable further than before: carry out what waited for that."""
        held, durable = self._held, self._journal.durable
        while held and held[0][0] <= durable:
            for command in held.popleft()[1]:
                if not self._is_void(command):
                    self._carry_out(command)

    def _is_void(self, command: Command) -> bool:
        """Was it taken back while it waited? A worker that registered meanwhile did not name the
        attempt, so the brain has given it up: started now, it would run beside its successor."""
        if isinstance(command, StartAttempt | GrantCommit):
            return not self._brain.holds(command.attempt_id)
        return False

    def _say(self, commands: list[Command]) -> None:
        if self.is_clear:
            for command in commands:
                self._carry_out(command)
        else:
            self._held.append((self._journal.sequence, commands))

    def _record_of(self, command: Command) -> AnyRecord | None:
        """Give what must be durable before this command, and all after it, is carried out."""
        match command:
            case RecordCommit(attempt_id=attempt_id, worker_id=worker_id):
                done, seconds = self._books.result(attempt_id)
                job_id = attempt_id.task_id.job_id
                return TaskCommitted(job_id, str(attempt_id), worker_id, done, seconds)
            case AbandonTask(task_id=task_id):
                return TaskAbandoned(task_id.job_id, str(task_id))
            case FinishJob(job_id=job_id, outcome=outcome, reason=reason, culprit=culprit):
                return JobDecided(job_id, outcome.value, reason, str(culprit or ""))
            case StartAttempt() | KillAttempt() | GrantCommit():
                return None
            case PublishSegment() | WithdrawSegment():
                return None
            case LoseWorker() | QuarantineWorker() | ReleaseWorker():
                return None
            case _:
                assert_never(command)


def end_of(decided: JobDecided) -> FinishJob:
    """Give the command that a record of a job's end came from."""
    return FinishJob(
        JobId(decided.job_id),
        JobOutcome(decided.outcome),
        decided.reason,
        parse_attempt_id(decided.culprit) if decided.culprit else None,
    )


def _restored(known: OpenJob, asked: JobSubmitted, life: int) -> JobRestored:
    """Give what the brain must know of a job that an earlier life left unfinished."""
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
    )
