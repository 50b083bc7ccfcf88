"""What the job master makes durable: little (a job came, a task is over, a job ended).

Takes and gives frozen records; `Journaled` folds them into what the next life of the master, on
this host or another, must go on with. Running attempts and segments are not here: workers bring
them when they register again. Never does any IO, reads no clock: every host folds the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from mrstream.cluster.errors import JournalCorrupt
from mrstream.mapreduce.attempt.attempt_report import Done

CLOSED_KEPT_S = 3600.0
"""So long after a job's end its submission, said again, still finds it."""
REQUESTS_KEPT = 100
"""So many changes of a job's priority are known again when they are repeated."""
RequestId = tuple[int, int]
NO_REQUEST: RequestId = (0, 0)


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The shape of every record."""


class MasterStarted(Record, frozen=True):
    """A master began its life; lives are counted so that attempts never share a number."""

    life: int
    stamp_ms: int = 0
    """What the ids of jobs begin with; the first that was ever said holds for all lives."""
    jobs_count: int = 0
    """How many jobs had an id of that stamp before this."""


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


class CommitGranted(Record, frozen=True):
    """An attempt may make its output visible. Before another of its task may, in whichever life,
    its output has to be taken away."""

    job_id: str
    attempt_id: str


class TaskAbandoned(Record, frozen=True):
    """A task has failed for good, and the job goes on without it (its failures.maxpercent)."""

    job_id: str
    task_id: str


class PriorityChanged(Record, frozen=True):
    """A person gave a job another priority."""

    job_id: str
    priority: int
    request: RequestId = NO_REQUEST
    """Of whom: said again, to another leader too, it changes nothing."""


class JobDecided(Record, frozen=True):
    """How a job ends is settled; its output is yet to be made final or cleared away."""

    job_id: str
    outcome: str
    reason: str
    culprit: str = ""


class JobClosed(Record, frozen=True):
    """All is done for a job, and its report is in the history; or it was refused after all."""

    job_id: str
    submission: str = ""
    """Said again within an hour it still gives this job; empty where it was refused."""
    closed_at_s: float = 0.0


OfJob = TaskCommitted | CommitGranted | TaskAbandoned | PriorityChanged | JobDecided
"""What is said of a job that is not closed."""
AnyRecord = MasterStarted | JobAccepted | JobClosed | OfJob

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)
_state_decoder: msgspec.msgpack.Decoder[list[AnyRecord]] = msgspec.msgpack.Decoder(list[AnyRecord])
_ARRAY = struct.Struct(">BI")
_ARRAY_MARK = 0xDD
"""What MessagePack begins an array with whose length takes four bytes."""


_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""MessagePack's bytes and text: how many bytes their length takes."""
_HOLDING = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Its arrays and maps: the same, and how many values each of what they count has."""
_PLAIN = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
          0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}  # fmt: skip
"""Its numbers and the like: how many bytes they take."""


def encode(record: AnyRecord) -> bytes:
    """Return the bytes of a record."""
    return _encode(record)


class OpenJob:
    """A job whose end is not closed, as the journal knows it."""

    def __init__(self, accepted: JobAccepted) -> None:
        self.accepted = accepted
        self.committed: dict[str, TaskCommitted] = {}
        """By task: an attempt id without its number."""
        self.abandoned: dict[str, TaskAbandoned] = {}
        """By task id."""
        self.granted: dict[str, dict[str, None]] = {}
        """Attempts that may have made output visible, of tasks that are not over; by task, as in
        `committed`, the one that was let last behind."""
        self.priority: int | None = None
        self.requests: dict[RequestId, int] = {}
        """Changes of the priority by known requests, the last ones."""
        self.decided: JobDecided | None = None

    def granted_with(self, attempt_id: str) -> dict[str, None]:
        """Return the attempts of the same task that may have made output visible."""
        return self.granted.get(_task_of(attempt_id), {})


class Journaled:
    """The fold of all records."""

    def __init__(self) -> None:
        self.life = 0
        self.stamp_ms = 0
        self.jobs_count = 0
        self.jobs: dict[str, OpenJob] = {}
        self.closed: dict[str, JobClosed] = {}
        """Jobs that ended within the hour before the last one did, by submission."""

    def apply(self, record: AnyRecord) -> None:
        """Take the next record; records of jobs that are closed say nothing any more."""
        if isinstance(record, MasterStarted):
            self.life = record.life
            self.stamp_ms = self.stamp_ms or record.stamp_ms
            self.jobs_count = max(self.jobs_count, record.jobs_count)
        elif isinstance(record, JobAccepted):
            self.jobs[record.job_id] = OpenJob(record)
            self._count(record.job_id)
        elif isinstance(record, JobClosed):
            self.jobs.pop(record.job_id, None)
            self._close(record)
        elif (job := self.jobs.get(record.job_id)) is not None:
            _apply_to(job, record)

    def job_id(self, number: int) -> str:
        """Return the id of a job; none comes twice if each number is above `jobs_count`."""
        return f"job_{self.stamp_ms}_{number:04d}"

    def find_submission(self, submission: str) -> str | None:
        """Return the job of a submission, running or ended within the hour."""
        for known in self.jobs.values():
            if known.accepted.submission == submission:
                return known.accepted.job_id
        closed = self.closed.get(submission)
        return None if closed is None else closed.job_id

    def _count(self, job_id: str) -> None:
        """Ids of before there was one stamp for all lives count for nothing."""
        head, _, number = job_id.rpartition("_")
        if head == f"job_{self.stamp_ms}" and number.isdecimal():
            self.jobs_count = max(self.jobs_count, int(number))

    def _close(self, record: JobClosed) -> None:
        if record.submission:
            self.closed[record.submission] = record
        for submission, known in list(self.closed.items()):
            if known.closed_at_s >= record.closed_at_s - CLOSED_KEPT_S:
                break  # in the order of their ends, but for clocks that differ
            del self.closed[submission]

    def restore(self, checkpoint: Iterable[bytes], records: Iterable[tuple[int, bytes]]) -> None:
        """Fold what was found on disk; JournalCorrupt if a record says nothing."""
        try:
            # A journal cuts what it is given into blocks of its own: where one ends says nothing.
            state = b"".join(checkpoint)
            for array in _arrays(state):
                for record in _state_decoder.decode(array):
                    self.apply(record)
            for _, payload in records:
                self.apply(_decoder.decode(payload))
        except msgspec.DecodeError as error:
            raise JournalCorrupt(f"a record of the job journal cannot be read: {error}") from None

    def pieces(self) -> Iterator[bytes]:
        """Yield what a checkpoint holds: one array of the records that still matter."""
        records = list(self._records())
        yield _ARRAY.pack(_ARRAY_MARK, len(records))
        yield from map(_encode, records)

    def _records(self) -> Iterator[AnyRecord]:
        yield MasterStarted(self.life, self.stamp_ms, self.jobs_count)
        yield from self.closed.values()
        for job in self.jobs.values():
            job_id = job.accepted.job_id
            yield job.accepted
            for request, priority in job.requests.items():
                yield PriorityChanged(job_id, priority, request)
            if job.priority is not None:
                yield PriorityChanged(job_id, job.priority)
            for granted in job.granted.values():
                for attempt_id in granted:
                    yield CommitGranted(job_id, attempt_id)
            yield from job.committed.values()
            yield from job.abandoned.values()
            if job.decided is not None:
                yield job.decided


def _apply_to(job: OpenJob, record: OfJob) -> None:
    match record:
        case TaskCommitted(attempt_id=attempt_id):
            task = _task_of(attempt_id)
            job.committed[task] = record
            job.granted.pop(task, None)
        case CommitGranted(attempt_id=attempt_id):
            granted = job.granted.setdefault(_task_of(attempt_id), {})
            granted.pop(attempt_id, None)
            granted[attempt_id] = None
        case TaskAbandoned(task_id=task_id):
            # A map that was done may be given up: nobody could fetch its output.
            task = f"attempt{task_id.removeprefix('task')}"
            job.committed.pop(task, None)
            job.granted.pop(task, None)
            job.abandoned[task_id] = record
        case PriorityChanged(priority=priority, request=request):
            job.priority = priority
            if tuple(request) != NO_REQUEST:
                job.requests[request] = priority
                if len(job.requests) > REQUESTS_KEPT:
                    del job.requests[next(iter(job.requests))]
        case JobDecided():
            job.decided = record
        case _:
            assert_never(record)


def _task_of(attempt_id: str) -> str:
    """An attempt id without its number."""
    return attempt_id.rpartition("_")[0]


def _arrays(state: bytes) -> Iterator[bytes]:
    """Cut what a checkpoint holds: one array; of versions before one for each 256 records."""
    began = 0
    while began < len(state):
        end = _end_of(state, began)
        yield state[began:end]
        began = end


def _end_of(state: bytes, at: int) -> int:
    """Where the value that begins there ends, whatever it is."""
    left = 1
    while left:
        if at >= len(state):
            raise msgspec.DecodeError("it ends in the middle of a record")
        kind, at, left = state[at], at + 1, left - 1
        if kind in _SIZED:
            at += _SIZED[kind] + int.from_bytes(state[at : at + _SIZED[kind]])
        elif kind in _HOLDING:
            size, values = _HOLDING[kind]
            left += values * int.from_bytes(state[at : at + size])
            at += size
        elif kind in _PLAIN:
            at += _PLAIN[kind]
        elif 0x80 <= kind < 0xA0:
            left += (kind & 15) * (2 if kind < 0x90 else 1)
        elif 0xA0 <= kind < 0xC0:
            at += kind & 31
        elif 0xC0 < kind < 0xE0:
            raise msgspec.DecodeError(f"no record holds a value of kind {kind:#x}")
    return at
