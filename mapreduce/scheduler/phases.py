"""A job: its tasks, how far it is, and what its phase allows.

S2: a reduce is told only of segments of committed maps.

Maps come first; reduces start when enough maps are committed (slowstart) and shuffle
while the rest run; the job ends with its last task. Counts are kept, never recounted.
Never looks at a worker.
"""

from __future__ import annotations

import math
from heapq import heapify, heappush

import msgspec

from mrstream.mapreduce.scheduler.events import JobSettings, MapTaskSpec
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, TaskId, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.locality import PendingMaps
from mrstream.mapreduce.scheduler.pace import Pace
from mrstream.mapreduce.scheduler.task import Attempt, Task, TaskState
from mrstream.mapreduce.scheduler.workers import Workers


class JobTotals(msgspec.Struct):
    """What was started for a job and what became of it, for counters and the closing report."""

    launched_maps: int = 0
    launched_reduces: int = 0
    host_local_maps: int = 0
    rack_local_maps: int = 0
    remote_maps: int = 0
    failed_maps: int = 0
    failed_reduces: int = 0
    killed_maps: int = 0
    killed_reduces: int = 0
    backup_maps: int = 0
    backup_reduces: int = 0
    backups_that_won: int = 0
    rerun_maps: int = 0
    """Committed maps that had to be run again because their output was lost."""
    abandoned_tasks: int = 0
    useful_s: float = 0.0
    """Slot time of the attempts that committed."""
    wasted_s: float = 0.0
    """Slot time of the attempts that did not."""
    backup_wasted_s: float = 0.0
    """Slot time of attempts that lost against their twin."""


class JobView(msgspec.Struct, frozen=True):
    """How far a job is, for whoever shows it; fractions from 0 to 1."""

    job_id: JobId
    priority: int
    maps: int
    maps_committed: int
    maps_running: int
    map_fraction: float
    reduces: int
    reduces_committed: int
    reduces_running: int
    reduce_fraction: float
    """Of all that reduces do: the shuffle is a third of it, as Hadoop counts."""
    shuffle_fraction: float
    """Of the shuffle alone."""


SHUFFLE_SHARE = 1 / 3
"""A reduce's progress is shuffle, sort and reduce, a third each, as Hadoop counts it."""


class Phase:
    """The tasks of one kind of a job, counted."""

    __slots__ = ("abandoned", "attempts_max", "backups", "committed", "kind", "late_pace", "pace",
                 "running", "running_max", "tasks")  # fmt: skip

    def __init__(
        self, kind: TaskKind, tasks: list[Task], *, attempts_max: int, running_max: int
    ) -> None:
        self.kind = kind
        self.tasks = tasks
        self.attempts_max = max(1, attempts_max)
        self.running_max = running_max
        self.running: dict[AttemptId, Attempt] = {}
        """Running attempts, without the dying ones."""
        self.committed = sum(task.state is TaskState.COMMITTED for task in tasks)
        self.abandoned = 0
        self.backups = 0
        """Backups started so far."""
        self.pace = Pace()
        self.late_pace = Pace()
        """The pace of reduces that found all maps over, and so never waited for one."""

    @property
    def is_over(self) -> bool:
        return self.committed + self.abandoned == len(self.tasks)

    def fresh_s(self) -> float | None:
        """What a new attempt would take, if any has shown it."""
        for pace in (self.late_pace, self.pace):
            if pace.count:
                return pace.mean_s
        return None

    def may_run_more(self) -> bool:
        return self.running_max <= 0 or len(self.running) < self.running_max

    def fraction_done(self, share: float = 1.0, *, failures_allowed: int = 0) -> float:
        """How far all tasks are together with the first `share` of their work, from 0 to 1. Of a
        task's attempts the furthest counts; what fails the job was not done."""
        if not self.tasks:
            return 1.0
        partly = sum(
            min(1.0, attempt.progress / share)
            for attempt in self.running.values()
            if attempt is attempt.task.furthest()
        )
        over = self.committed + min(self.abandoned, failures_allowed)
        return min(1.0, (over + partly) / len(self.tasks))


class Job:
    """One job that has not ended."""

    def __init__(
        self,
        job_id: JobId,
        maps: tuple[MapTaskSpec, ...],
        reduces: int,
        settings: JobSettings,
        *,
        number: int,
        now_s: float,
        attempt_number_first: int = 0,
    ) -> None:
        self.job_id = job_id
        self.settings = settings
        self.number = number
        """Jobs of one priority go in the order of these."""
        self.submitted_at_s = now_s
        self.held_until_s = now_s
        """A restored job starts nothing before workers had time to report what they run."""
        map_tasks = [
            Task(TaskId(job_id, TaskKind.MAP, index), spec, attempt_number_first)
            for index, spec in enumerate(maps)
        ]
        reduce_tasks = [
            Task(TaskId(job_id, TaskKind.REDUCE, index), None, attempt_number_first)
            for index in range(reduces)
        ]
        self.maps = Phase(
            TaskKind.MAP,
            map_tasks,
            attempts_max=settings.map_attempts_max,
            running_max=settings.running_maps_max,
        )
        self.reduces = Phase(
            TaskKind.REDUCE,
            reduce_tasks,
            attempts_max=settings.reduce_attempts_max,
            running_max=settings.running_reduces_max,
        )
        self.pending_maps: PendingMaps
        self.pending_reduces = list(range(reduces))
        """A heap of reduce numbers; entries of reduces that are not idle are stale."""
        self.pending_reduce_count = reduces
        self.slowstart_count = math.ceil(settings.slowstart * len(maps))
        self.reduces_in_need = reduces
        """Reduces that may still fetch: not over, and without an attempt that has it all."""
        self.parked: dict[int, None] = {}
        """Committed maps whose segment is gone while no reduce needs it."""
        self.awaited: dict[WorkerId, list[int]] = {}
        """After a restart: committed maps by the worker that must still show the segment."""
        self.awaited_until_s = now_s
        self.maps_over_at_s = now_s
        self.workers_in_use: dict[WorkerId, int] = {}
        self.totals = JobTotals()
        self.failure: tuple[str, AttemptId] | None = None
        """Why it fails, and by which attempt, once its other tasks are over too."""

    def start_queues(self, workers: Workers) -> None:
        """Index the idle tasks; called once, when the states of the tasks are set."""
        self.pending_maps = PendingMaps(self.maps.tasks, workers, self.settings)
        self.pending_reduces = [
            task.task_id.task_index for task in self.reduces.tasks if task.state is TaskState.IDLE
        ]
        heapify(self.pending_reduces)
        self.pending_reduce_count = len(self.pending_reduces)

    def set_priority(self, priority: int) -> None:
        self.settings = msgspec.structs.replace(self.settings, priority=priority)

    def order(self) -> tuple[int, int]:
        """The sort key of the queue: higher priority first, then first come, first served."""
        return (-self.settings.priority, self.number)

    def phase(self, kind: TaskKind) -> Phase:
        return self.maps if kind is TaskKind.MAP else self.reduces

    def task(self, task_id: TaskId) -> Task:
        return self.phase(task_id.kind).tasks[task_id.task_index]

    def began_at_s(self, attempt: Attempt) -> float:
        """When an attempt could begin: the wait of a reduce for maps does not count."""
        if attempt.task.task_id.kind is TaskKind.REDUCE:
            return max(attempt.started_at_s, self.maps_over_at_s)
        return attempt.started_at_s

    def pace_of(self, attempt: Attempt) -> Pace:
        """The usual course of attempts like this one."""
        if attempt.task.task_id.kind is TaskKind.MAP:
            return self.maps.pace
        if self.maps.is_over and attempt.started_at_s >= self.maps_over_at_s:
            return self.reduces.late_pace
        return self.reduces.pace

    def has_final_output(self, kind: TaskKind) -> bool:
        """Whether a task's output is part of the result, and so must be committed in the dfs."""
        return kind is TaskKind.REDUCE or not self.reduces.tasks

    def may_start_reduces(self) -> bool:
        return self.maps.committed + self.maps.abandoned >= self.slowstart_count

    def may_use(self, worker_id: WorkerId) -> bool:
        limit = self.settings.workers_max
        return limit <= 0 or worker_id in self.workers_in_use or len(self.workers_in_use) < limit

    def has_pending(self) -> bool:
        return self.pending_maps.count > 0 or self.pending_reduce_count > 0

    def add_pending_reduce(self, task: Task) -> None:
        heappush(self.pending_reduces, task.task_id.task_index)
        self.pending_reduce_count += 1

    @property
    def is_over(self) -> bool:
        # A job with reduces is done when they are: a map that was lost after the last
        # fetch is never needed again.
        if self.reduces.tasks:
            return self.reduces.is_over
        return self.maps.is_over

    def view(self) -> JobView:
        maps, reduces = self.maps, self.reduces
        allowed = self.failures_allowed(TaskKind.REDUCE)
        return JobView(
            self.job_id,
            self.settings.priority,
            len(maps.tasks),
            maps.committed,
            len(maps.running),
            maps.fraction_done(failures_allowed=self.failures_allowed(TaskKind.MAP)),
            len(reduces.tasks),
            reduces.committed,
            len(reduces.running),
            reduces.fraction_done(failures_allowed=allowed),
            reduces.fraction_done(SHUFFLE_SHARE, failures_allowed=allowed),
        )

    def failures_allowed(self, kind: TaskKind) -> int:
        percent = (
            self.settings.map_failures_percent_max
            if kind is TaskKind.MAP
            else self.settings.reduce_failures_percent_max
        )
        return len(self.phase(kind).tasks) * percent // 100
