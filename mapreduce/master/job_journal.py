"""What the job master makes durable: little (a job came, a task is over, a job ended).

Takes and gives frozen records; `Journaled` folds them into what a restarted master must go on with.
Running attempts and segments are not here: workers bring them when they register again. Never does
any IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from mrstream.cluster.errors import JournalCorrupt
from mrstream.mapreduce.attempt.attempt_report import Done

LIFE_ATTEMPTS: Final = 1000
"""Attempt numbers start at this many times the restarts of the master, so that none comes twice."""


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The shape of every record."""


class MasterStarted(Record, frozen=True):
    """A master began its life; lives are counted so that attempts never share a number."""

    life: int


class JobAccepted(Record, frozen=True):
    """A job was submitted, under a name that its client chose."""

    job_id: str
    submission: str
    spec: bytes
    file_count: int
    is_output_temporary: bool
    submitted_at_s: float


class TaskCommitted(Record, frozen=True):
    """A task is done, by this attempt; its counters count."""

    job_id: str
    attempt_id: str
    worker_id: str
    done: Done
    seconds: float = 0.0


class TaskAbandoned(Record, frozen=True):
    """A task has failed for good, and the job goes on without it (its failures.maxpercent)."""

    job_id: str
    task_id: str


class PriorityChanged(Record, frozen=True):
    """A person gave a job another priority."""

    job_id: str
    priority: int


class JobDecided(Record, frozen=True):
    """How a job ends is settled; its output is yet to be made final or cleared away."""

    job_id: str
    outcome: str
    reason: str
    culprit: str = ""


class JobClosed(Record, frozen=True):
    """All is done for a job, and its report is in the history."""

    job_id: str


AnyRecord = (
    MasterStarted
    | JobAccepted
    | TaskCommitted
    | TaskAbandoned
    | PriorityChanged
    | JobDecided
    | JobClosed
)

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)
_pieces_decoder: msgspec.msgpack.Decoder[list[AnyRecord]] = msgspec.msgpack.Decoder(list[AnyRecord])
_PIECE_RECORDS = 256


def encode(record: AnyRecord) -> bytes:
    """Give the bytes of a record."""
    return _encode(record)


class OpenJob:
    """A job whose end is not closed, as the journal knows it."""

    def __init__(self, accepted: JobAccepted) -> None:
        self.accepted = accepted
        self.committed: dict[str, TaskCommitted] = {}
        """By task: an attempt id without its number."""
        self.abandoned: dict[str, TaskAbandoned] = {}
        """By task id."""
        self.priority: int | None = None
        self.decided: JobDecided | None = None


class Journaled:
    """The fold of all records."""

    def __init__(self) -> None:
        self.life = 0
        self.jobs: dict[str, OpenJob] = {}

    def apply(self, record: AnyRecord) -> None:
        """Take the next record; records of jobs that are closed say nothing any more."""
        if isinstance(record, MasterStarted):
            self.life = record.life
        elif isinstance(record, JobAccepted):
            self.jobs[record.job_id] = OpenJob(record)
        elif isinstance(record, JobClosed):
            self.jobs.pop(record.job_id, None)
        elif (job := self.jobs.get(record.job_id)) is not None:
            match record:
                case TaskCommitted(attempt_id=attempt_id):
                    job.committed[attempt_id.rpartition("_")[0]] = record
                case TaskAbandoned(task_id=task_id):
                    # A map that was done may be given up: nobody could fetch its output.
                    job.committed.pop(f"attempt{task_id.removeprefix('task')}", None)
                    job.abandoned[task_id] = record
                case PriorityChanged(priority=priority):
                    job.priority = priority
                case JobDecided():
                    job.decided = record

    def restore(self, checkpoint: Iterable[bytes], records: Iterable[tuple[int, bytes]]) -> None:
        """Fold what was found on disk; JournalCorrupt if a record says nothing."""
        try:
            for piece in checkpoint:
                for record in _pieces_decoder.decode(piece):
                    self.apply(record)
            for _, payload in records:
                self.apply(_decoder.decode(payload))
        except msgspec.DecodeError as error:
            raise JournalCorrupt(f"a record of the job journal cannot be read: {error}") from None

    def pieces(self) -> Iterator[bytes]:
        """Give the blocks of a checkpoint: the records that still matter."""
        held: list[AnyRecord] = []
        for record in self._records():
            held.append(record)
            if len(held) >= _PIECE_RECORDS:
                yield _encode(held)
                held = []
        if held:
            yield _encode(held)

    def _records(self) -> Iterator[AnyRecord]:
        yield MasterStarted(self.life)
        for job in self.jobs.values():
            yield job.accepted
            if job.priority is not None:
                yield PriorityChanged(job.accepted.job_id, job.priority)
            yield from job.committed.values()
            yield from job.abandoned.values()
            if job.decided is not None:
                yield job.decided
