"""Everything that can happen to the scheduler: the only way to change it.

A shell turns what it sees (messages, exits, silence, time) into these frozen
records and passes each to `Scheduler.handle(event, now_s)`. They hold plain
values only, so that a recorded history replays. Never does any IO.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from mrstream.mapreduce.scheduler.commands import JobOutcome
from mrstream.mapreduce.scheduler.ids import AttemptId, HostName, JobId, RackName, TaskId, WorkerId

ANYWHERE: tuple[HostName, ...] = ()
NO_RACK = RackName("")


class MapTaskSpec(msgspec.Struct, frozen=True):
    """What the scheduler must know of a split: its size and the hosts that hold it."""

    length_bytes: int
    hosts: tuple[HostName, ...] = ANYWHERE


class JobSettings(msgspec.Struct, frozen=True):
    """The wishes of a job that bear on scheduling; a maximum of 0 means no limit."""

    priority: int = 3
    """Higher goes first; 1 very low, 3 normal, 5 very high."""
    map_attempts_max: int = 4
    reduce_attempts_max: int = 4
    map_failures_percent_max: int = 0
    """Share of maps that may fail for good without failing the job."""
    reduce_failures_percent_max: int = 0
    outlives_failure: bool = False
    """A task with final output that fails the job lets the others come to their end first: what
    they commit stays, as in Hadoop's local mode. Not for a master: its journal does not hold why a
    job is going to fail."""
    slowstart: float = 0.05
    """Share of maps that must be committed before reduces are started."""
    backup_maps: bool = True
    backup_reduces: bool = True
    backup_share_max: float = 0.03
    """Backups started, at most, as a share of the tasks of their kind (but see backup.py)."""
    task_timeout_s: float = 600.0
    """An attempt without news for this long has failed; 0 waits forever."""
    locality_wait_s: float = 1.0
    """How long a job leaves slots free, hoping for one on a host (then a rack) of its data."""
    workers_max: int = 0
    """Workers that run this job's attempts at the same time (MapReduce, appendix A)."""
    running_maps_max: int = 0
    running_reduces_max: int = 0


class EventRecord(msgspec.Struct, frozen=True, tag=True):
    """The shape of every event: comparable, and written down under its own name."""


# --- jobs


class JobSubmitted(EventRecord, frozen=True):
    """A client wants a job run; maps are numbered as given, reduces from 0."""

    job_id: JobId
    maps: tuple[MapTaskSpec, ...]
    reduces: int
    settings: JobSettings = JobSettings()


class CommittedTask(msgspec.Struct, frozen=True):
    """A commit that the journal remembers: the winning attempt and where it ran."""

    attempt_id: AttemptId
    worker_id: WorkerId


class JobRestored(EventRecord, frozen=True):
    """A restarted master found this job unfinished in its journal.

    Committed reduces (and maps of a job without reduces) stay committed. Committed maps
    count as soon as their worker registers and still has the segment. New attempts are
    numbered from `attempt_number_first`, so that they never meet one of the life before.
    """

    job_id: JobId
    maps: tuple[MapTaskSpec, ...]
    reduces: int
    settings: JobSettings
    committed: tuple[CommittedTask, ...]
    attempt_number_first: int
    abandoned: tuple[TaskId, ...] = ()
    """Tasks that had failed for good, and that the job does without."""
    let: tuple[AttemptId, ...] = ()
    """Of each task that is not over: the attempt that was let commit last."""


class JobKilled(EventRecord, frozen=True):
    """Someone with the right to do so wants the job to end now."""

    job_id: JobId
    reason: str
    outcome: JobOutcome = JobOutcome.KILLED
    """`failed` if nobody wanted it: the job cannot do what it is for any more."""


class JobPrioritySet(EventRecord, frozen=True):
    """From now on the job's idle tasks are ordered by this priority."""

    job_id: JobId
    priority: int


# --- workers


class WorkerRegistered(EventRecord, frozen=True):
    """A worker offers its slots, and says what it still has from before.

    `slots` bounds all attempts together, `map_slots` and `reduce_slots` each kind.
    A worker that the scheduler already knows is reconciled: what it does not name is gone.
    """

    worker_id: WorkerId
    host: HostName
    slots: int
    map_slots: int
    reduce_slots: int
    rack: RackName = NO_RACK
    running: tuple[AttemptId, ...] = ()
    segments: tuple[AttemptId, ...] = ()


class WorkerHeard(EventRecord, frozen=True):
    """A worker gave a sign of life."""

    worker_id: WorkerId


class WorkerLost(EventRecord, frozen=True):
    """A worker is known to be dead (MapReduce §3.3); of its silence the scheduler judges itself."""

    worker_id: WorkerId
    reason: str


class WorkerDraining(EventRecord, frozen=True):
    """A worker shall get no more attempts (its host is to leave, or its disks are full).

    Until WorkerResumed, or until it registers anew.
    """

    worker_id: WorkerId


class WorkerResumed(EventRecord, frozen=True):
    """A draining worker may get attempts again."""

    worker_id: WorkerId


# --- attempts


class AttemptProgress(EventRecord, frozen=True):
    """An attempt did something since the last report; `progress` runs from 0 to 1."""

    attempt_id: AttemptId
    progress: float


class ShuffleFinished(EventRecord, frozen=True):
    """A reduce attempt has its partition of every map, and needs no worker's segments."""

    attempt_id: AttemptId


class CommitRequested(EventRecord, frozen=True):
    """An attempt with final output has written all of it and asks to make it visible.

    For reduces, and for maps of a job without reduces. Answered by GrantCommit, or by
    KillAttempt once another attempt has committed; in between it waits.
    """

    attempt_id: AttemptId


class AttemptSucceeded(EventRecord, frozen=True):
    """An attempt is complete: a segment lies on its worker, or its final output is visible."""

    attempt_id: AttemptId


class AttemptFailed(EventRecord, frozen=True):
    """An attempt ended badly by its own doing; it counts against its task and its worker."""

    attempt_id: AttemptId
    reason: str


class AttemptKilled(EventRecord, frozen=True):
    """An attempt is gone for a reason outside of it; it counts against nobody."""

    attempt_id: AttemptId
    reason: str


class KillAttemptRequested(EventRecord, frozen=True):
    """A person wants this attempt killed; its task is tried again at no cost."""

    attempt_id: AttemptId


class FailAttemptRequested(EventRecord, frozen=True):
    """A person wants this attempt killed and counted as a failure of its task."""

    attempt_id: AttemptId


# --- segments


class FetchFailed(EventRecord, frozen=True):
    """A reduce could not fetch from a committed map; a few such reports blame the map."""

    reduce_attempt_id: AttemptId
    map_attempt_id: AttemptId


class OutputLost(EventRecord, frozen=True):
    """The segment of a committed map is surely gone or corrupt."""

    map_attempt_id: AttemptId
    reason: str


# --- time


class Tick(EventRecord, frozen=True):
    """Time has passed: lose silent workers, expire attempts and waits, consider backup tasks.

    A shell sends one about once a second, and at `Scheduler.wake_at_s` if that is sooner.
    """


Event: TypeAlias = (
    JobSubmitted
    | JobRestored
    | JobKilled
    | JobPrioritySet
    | WorkerRegistered
    | WorkerHeard
    | WorkerLost
    | WorkerDraining
    | WorkerResumed
    | AttemptProgress
    | ShuffleFinished
    | CommitRequested
    | AttemptSucceeded
    | AttemptFailed
    | AttemptKilled
    | KillAttemptRequested
    | FailAttemptRequested
    | FetchFailed
    | OutputLost
    | Tick
)
