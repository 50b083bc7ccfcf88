"""Everything that the scheduler can ask of its shell, in the order it wants it done.

Frozen records, returned by `Scheduler.handle`. The shell carries out each one (it
starts, kills, journals, pushes) and reports what comes of it as a new event.
Never does any IO.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, TaskId, WorkerId


class Locality(StrEnum):
    """How near a map runs to its split (MapReduce §3.4)."""

    HOST = "host"
    RACK = "rack"
    REMOTE = "remote"
    NONE = "none"
    """The split has no home on this cluster (or the task is a reduce)."""


class JobOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"


class CommandRecord(msgspec.Struct, frozen=True, tag=True):
    """The shape of every command: comparable, and written down under its own name."""


class StartAttempt(CommandRecord, frozen=True):
    """Start this attempt on this worker, now; it holds a slot until its end is reported."""

    attempt_id: AttemptId
    worker_id: WorkerId
    locality: Locality = Locality.NONE
    is_backup: bool = False


class KillAttempt(CommandRecord, frozen=True):
    """Kill this attempt if it runs and drop its output; report AttemptKilled when it is gone.

    Its slot is taken until that report, so that a worker never runs more than it has slots.
    """

    attempt_id: AttemptId
    worker_id: WorkerId
    reason: str


class GrantCommit(CommandRecord, frozen=True):
    """This attempt, and for now no other of its task, may make its output visible."""

    attempt_id: AttemptId
    worker_id: WorkerId


class RecordCommit(CommandRecord, frozen=True):
    """The task is committed by this attempt: make that durable, count its counters (once)."""

    attempt_id: AttemptId
    worker_id: WorkerId


class PublishSegment(CommandRecord, frozen=True):
    """Tell all running reduces of the job, and those started later, where this map's output is."""

    attempt_id: AttemptId
    worker_id: WorkerId


class WithdrawSegment(CommandRecord, frozen=True):
    """Take back a published segment: it is lost, and its map will be run again."""

    attempt_id: AttemptId
    worker_id: WorkerId


class AbandonTask(CommandRecord, frozen=True):
    """The task has failed for good but the job goes on, for now at least; reduces expect nothing
    of it."""

    task_id: TaskId
    reason: str


class FinishJob(CommandRecord, frozen=True):
    """The job has ended: make its output visible or remove it, tell the client, drop segments.

    `culprit` is the attempt whose failure was the last straw. KillAttempt commands for what
    still runs come before; their AttemptKilled reports may come after.
    """

    job_id: JobId
    outcome: JobOutcome
    reason: str = ""
    culprit: AttemptId | None = None


class LoseWorker(CommandRecord, frozen=True):
    """This worker was silent for too long: drop its connection; it may register again."""

    worker_id: WorkerId
    reason: str


class QuarantineWorker(CommandRecord, frozen=True):
    """News: this worker failed everything of late and gets no attempts for a while."""

    worker_id: WorkerId
    reason: str


class ReleaseWorker(CommandRecord, frozen=True):
    """News: this worker's quarantine is over."""

    worker_id: WorkerId


Command: TypeAlias = (
    StartAttempt
    | KillAttempt
    | GrantCommit
    | RecordCommit
    | PublishSegment
    | WithdrawSegment
    | AbandonTask
    | FinishJob
    | LoseWorker
    | QuarantineWorker
    | ReleaseWorker
)
