"""The workers: their slots, what they run, what they keep, and whom to distrust.

S5: attempts on a worker, dying ones too, never exceed its slots.
S3: a lost worker takes its segments with it, never a committed reduce (MapReduce §3.3).

Knows which workers have room without looking at all of them. Never chooses a task.
"""

from __future__ import annotations

from mrstream.mapreduce.scheduler.events import WorkerRegistered
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    HostName,
    JobId,
    RackName,
    TaskKind,
    WorkerId,
)
from mrstream.mapreduce.scheduler.task import Attempt, Task

# A worker that fails this often in a row is quarantined, whatever others do.
FAILURES_IN_A_ROW_MAX = 4
# Never quarantine more than this share of the workers: then the cluster is not to blame.
QUARANTINED_SHARE_MAX = 1 / 3


class Worker:
    """One worker process and what the scheduler believes about it."""

    __slots__ = (
        "failures_in_a_row",
        "heard_at_s",
        "host",
        "is_draining",
        "map_slots",
        "quarantined_until_s",
        "rack",
        "reduce_slots",
        "running",
        "running_maps",
        "segments",
        "slots",
        "slowness",
        "worker_id",
    )

    def __init__(self, event: WorkerRegistered, now_s: float) -> None:
        self.heard_at_s = now_s
        self.worker_id = event.worker_id
        self.host = event.host
        self.rack = event.rack
        self.slots = event.slots
        self.map_slots = event.map_slots
        self.reduce_slots = event.reduce_slots
        self.running: dict[AttemptId, Attempt] = {}
        self.running_maps = 0
        self.segments: dict[JobId, dict[int, None]] = {}
        """Maps that committed here, by job; an entry counts while the task still says so."""
        self.failures_in_a_row: list[JobId] = []
        self.quarantined_until_s: float | None = None
        self.is_draining = False
        self.slowness = 1.0
        """Smoothed ratio of its attempts' times to the usual time of such an attempt."""

    @property
    def running_reduces(self) -> int:
        return len(self.running) - self.running_maps

    @property
    def shares_slots(self) -> bool:
        """Whether a reduce that runs here may keep a map from running here."""
        return self.slots < self.map_slots + self.reduce_slots

    @property
    def is_trusted(self) -> bool:
        return self.quarantined_until_s is None and not self.is_draining

    def has_room(self, kind: TaskKind) -> bool:
        if len(self.running) >= self.slots or not self.is_trusted:
            return False
        if kind is TaskKind.MAP:
            return self.running_maps < self.map_slots
        return self.running_reduces < self.reduce_slots


class Workers:
    """All registered workers, and those of them that have room."""

    def __init__(self) -> None:
        self.by_id: dict[WorkerId, Worker] = {}
        self.by_host: dict[HostName, list[Worker]] = {}
        self.rack_of: dict[HostName, RackName] = {}
        self.free_for_map: dict[WorkerId, Worker] = {}
        self.free_for_reduce: dict[WorkerId, Worker] = {}
        self.trusted_count = 0
        self.slots_total = 0
        self.running_maps = 0
        self.running_reduces = 0

    def add(self, event: WorkerRegistered, now_s: float) -> Worker:
        assert event.worker_id not in self.by_id
        worker = Worker(event, now_s)
        self.by_id[worker.worker_id] = worker
        self.by_host.setdefault(worker.host, []).append(worker)
        self.rack_of[worker.host] = worker.rack
        self.trusted_count += 1
        self.slots_total += worker.slots
        self.refresh(worker)
        return worker

    def silent_since(self, moment_s: float) -> list[Worker]:
        return [worker for worker in self.by_id.values() if worker.heard_at_s < moment_s]

    def forgive(self, seconds: float, now_s: float) -> None:
        """The master itself was stopped for so long: that silence is not the workers'."""
        for worker in self.by_id.values():
            worker.heard_at_s = min(now_s, worker.heard_at_s + seconds)

    def remove(self, worker: Worker) -> None:
        """Forget a worker; its attempts have been ended before."""
        assert not worker.running
        del self.by_id[worker.worker_id]
        self.by_host[worker.host].remove(worker)
        if not self.by_host[worker.host]:
            del self.by_host[worker.host]
            del self.rack_of[worker.host]
        self.free_for_map.pop(worker.worker_id, None)
        self.free_for_reduce.pop(worker.worker_id, None)
        self.trusted_count -= worker.is_trusted
        self.slots_total -= worker.slots

    def occupy(self, worker: Worker, attempt: Attempt) -> None:
        worker.running[attempt.attempt_id] = attempt
        if attempt.task.task_id.kind is TaskKind.MAP:
            worker.running_maps += 1
            self.running_maps += 1
        else:
            self.running_reduces += 1
        self.refresh(worker)

    def vacate(self, worker: Worker, attempt: Attempt) -> None:
        del worker.running[attempt.attempt_id]
        if attempt.task.task_id.kind is TaskKind.MAP:
            worker.running_maps -= 1
            self.running_maps -= 1
        else:
            self.running_reduces -= 1
        self.refresh(worker)

    def refresh(self, worker: Worker) -> None:
        """Bring the tables of workers with room up to date."""
        for kind, free in (
            (TaskKind.MAP, self.free_for_map),
            (TaskKind.REDUCE, self.free_for_reduce),
        ):
            if worker.has_room(kind):
                free[worker.worker_id] = worker
            else:
                free.pop(worker.worker_id, None)

    def should_avoid(self, worker: Worker, task: Task, workers_max: int) -> bool:
        """Whether the task failed on this worker and its job may try it on another one."""
        failed_on = task.failed_on
        if worker.worker_id not in failed_on:
            return False
        choice = self.trusted_count if workers_max <= 0 else min(self.trusted_count, workers_max)
        return len(dict.fromkeys(failed_on)) < choice

    def set_draining(self, worker: Worker, is_draining: bool) -> None:
        self.trusted_count -= worker.is_trusted
        worker.is_draining = is_draining
        self.trusted_count += worker.is_trusted
        self.refresh(worker)

    def quarantine(self, worker: Worker, until_s: float) -> None:
        self.trusted_count -= worker.is_trusted
        worker.quarantined_until_s = until_s
        self.refresh(worker)

    def release(self, worker: Worker) -> None:
        """End a quarantine; one more failure starts it again."""
        worker.quarantined_until_s = None
        self.trusted_count += worker.is_trusted
        del worker.failures_in_a_row[FAILURES_IN_A_ROW_MAX - 1 :]
        self.refresh(worker)

    def may_quarantine_one_more(self) -> bool:
        untrusted = len(self.by_id) - self.trusted_count
        allowed = max(1, int(len(self.by_id) * QUARANTINED_SHARE_MAX))
        return self.trusted_count > 1 and untrusted < allowed
