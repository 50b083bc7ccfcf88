"""A task's life and its attempts.

S1: a task has at most one committed attempt.
S4: at most two attempts of a task run at a time; it fails for good after its allowed failures.

The life is the table below: what is not in it cannot happen. There is no state for
"being cancelled": an attempt is a process, and to cancel it is to kill it.
"""

from __future__ import annotations

from enum import IntEnum

from mrstream.mapreduce.scheduler.commands import Locality
from mrstream.mapreduce.scheduler.events import MapTaskSpec
from mrstream.mapreduce.scheduler.ids import AttemptId, TaskId, TaskKind, WorkerId

RUNNING_ATTEMPTS_MAX = 2


class TaskState(IntEnum):
    """Where a task is in its life (MapReduce §3.2: idle, in progress, completed)."""

    IDLE = 0
    RUNNING = 1
    COMMITTED = 2
    ABANDONED = 3


class Change(IntEnum):
    """What moves a task from one state to another."""

    STARTED = 0
    """The first of its running attempts was started."""
    STOPPED = 1
    """The last of its running attempts ended without success."""
    SUCCEEDED = 2
    FAILED_FOR_GOOD = 3
    OUTPUT_LOST = 4


TRANSITIONS: dict[tuple[TaskState, Change], TaskState] = {
    (TaskState.IDLE, Change.STARTED): TaskState.RUNNING,
    (TaskState.RUNNING, Change.STOPPED): TaskState.IDLE,
    (TaskState.RUNNING, Change.SUCCEEDED): TaskState.COMMITTED,
    # A worker that comes back may still hold the segment of a map that was to be run again.
    (TaskState.IDLE, Change.SUCCEEDED): TaskState.COMMITTED,
    (TaskState.RUNNING, Change.FAILED_FOR_GOOD): TaskState.ABANDONED,
    # Fetch failures count as failures of the map, and may be its last allowed one.
    (TaskState.IDLE, Change.FAILED_FOR_GOOD): TaskState.ABANDONED,
    # Maps only: their output died with the worker's disk (MapReduce §3.3).
    (TaskState.COMMITTED, Change.OUTPUT_LOST): TaskState.IDLE,
}


class ForbiddenChange(AssertionError):
    """A task was to change as the table does not allow: a bug, told with the task's story."""

    def __init__(self, task_id: TaskId, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class Attempt:
    """One running try at a task, from its start to the report of its end.

    A dying attempt is one that we asked to be killed: it still holds its slot, but its
    task has forgotten it, and however it ends changes nothing but the slot.
    """

    __slots__ = (
        "attempt_id",
        "heard_at_s",
        "is_backup",
        "is_dying",
        "is_shuffled",
        "locality",
        "pace",
        "progress",
        "started_at_s",
        "task",
        "wants_commit",
        "worker_id",
    )

    def __init__(
        self,
        attempt_id: AttemptId,
        task: Task,
        worker_id: WorkerId,
        *,
        now_s: float,
        locality: Locality = Locality.NONE,
        is_backup: bool = False,
    ) -> None:
        self.attempt_id = attempt_id
        self.task = task
        self.worker_id = worker_id
        self.started_at_s = now_s
        self.heard_at_s = now_s
        self.progress = 0.0
        self.pace = 1.0
        """How many times longer than usual it takes, of late."""
        self.locality = locality
        self.is_backup = is_backup
        self.is_dying = False
        self.is_shuffled = False
        self.wants_commit = False


NO_ATTEMPTS: tuple[Attempt, ...] = ()
NO_WORKERS: tuple[WorkerId, ...] = ()


class Task:
    """One map or reduce task: its state, its running attempts, its winner."""

    __slots__ = (
        "failed_numbers",
        "failed_on",
        "fetch_failed_at_s",
        "fetch_failures",
        "granted",
        "let_number",
        "needs_segments",
        "next_number",
        "pending_key",
        "running",
        "spec",
        "state",
        "task_id",
        "winner_number",
        "winner_worker",
    )

    def __init__(self, task_id: TaskId, spec: MapTaskSpec | None, first_number: int) -> None:
        self.task_id = task_id
        self.spec = spec
        self.state = TaskState.IDLE
        self.running: tuple[Attempt, ...] = NO_ATTEMPTS
        self.next_number = first_number
        self.failed_on: tuple[WorkerId, ...] = NO_WORKERS
        """The worker of each failure, in order; its length is the count of failures."""
        self.failed_numbers: tuple[int, ...] = ()
        """Attempts that failed, so that none counts twice when it is shown again."""
        self.granted: Attempt | None = None
        """The one attempt that may make its output visible."""
        self.let_number = -1
        """The attempt that was let last, in any life of the master; -1: none. It need not run any
        more, but what it may have made visible may lie over the output of one that was let before,
        and never under it: that one was fenced first."""
        self.needs_segments = task_id.kind is TaskKind.REDUCE
        self.fetch_failures = 0
        self.fetch_failed_at_s = float("-inf")
        """When the last of them counted."""
        self.pending_key = -1
        self.winner_worker: WorkerId | None = None
        self.winner_number = -1

    def change(self, change: Change) -> None:
        """Move to the next state of the table."""
        after = TRANSITIONS.get((self.state, change))
        if after is None:
            text = f"{self.task_id} is {self.state.name}: {change.name} cannot happen to it"
            raise ForbiddenChange(self.task_id, text)
        self.state = after

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of it for now."""
        return self.state >= TaskState.COMMITTED

    def furthest(self) -> Attempt | None:
        """Of its running attempts, the one that got furthest."""
        return max(self.running, key=lambda attempt: attempt.progress, default=None)

    def winner(self) -> AttemptId:
        assert self.state is TaskState.COMMITTED
        return AttemptId(self.task_id, self.winner_number)
