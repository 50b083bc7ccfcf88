"""Idle maps, found by where their data is: host, then rack, then anywhere (MapReduce §3.4).

A job that has idle maps but none near a free slot lets the slot pass for a short
while (delay scheduling), since a slot beside the data is often about to come free.
Everything is a heap of task numbers with lazy removal, so that each question costs
a few comparisons and not a walk over the tasks. Never decides whose turn it is.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from mrstream.mapreduce.scheduler.commands import Locality
from mrstream.mapreduce.scheduler.events import JobSettings
from mrstream.mapreduce.scheduler.ids import HostName, RackName
from mrstream.mapreduce.scheduler.task import Task, TaskState
from mrstream.mapreduce.scheduler.workers import Worker, Workers

# How many tasks that failed on a worker are passed over in search of one that did not.
PASSED_OVER_MAX = 8
# How many local maps are compared to find the one that other hosts need least.
CANDIDATES_MAX = 8


class PendingMaps:
    """The idle maps of one job.

    An entry of a heap is a key: the task's number for one that must be run again (others
    wait for it), the task's number plus the number of maps for one that was never run. An
    entry is valid while the task is idle and has that key.
    """

    __slots__ = (
        "_any",
        "_backlog",
        "_by_host",
        "_by_rack",
        "_homeless",
        "_maps",
        "_skipped_since_s",
        "_wait_s",
        "_workers_max",
        "count",
    )

    def __init__(self, maps: list[Task], workers: Workers, settings: JobSettings) -> None:
        self._maps = maps
        self._wait_s = settings.locality_wait_s
        self._workers_max = settings.workers_max
        self._skipped_since_s: float | None = None
        self._any: list[int] = []
        self._homeless: list[int] = []
        self._by_host: dict[HostName, list[int]] = {}
        self._by_rack: dict[RackName, list[int]] = {}
        self._backlog: dict[HostName, int] = {}
        """How many idle maps have their data on a host."""
        self.count = 0
        for task in maps:
            if task.state is TaskState.IDLE:
                self._add(task, len(maps) + task.task_id.task_index, workers)

    def add_again(self, task: Task, workers: Workers) -> None:
        """Put back a map that was running or committed; it goes before those never run."""
        key = task.task_id.task_index
        self._add(task, key, workers)
        if not self._homeless or self._homeless[0] != key:
            heappush(self._homeless, key)

    def remove(self, task: Task) -> None:
        """Forget a map that is no longer idle."""
        task.pending_key = -1
        self.count -= 1
        assert task.spec is not None, "maps have a spec"
        for host in task.spec.hosts:
            self._backlog[host] -= 1

    def learn_host(self, worker: Worker) -> None:
        """Index by rack the maps of a host whose rack was not known before."""
        keys = self._by_host.get(worker.host)
        if keys:
            heap = self._by_rack.setdefault(worker.rack, [])
            heap.extend(keys)
            heapify(heap)

    def choose(
        self, worker: Worker, workers: Workers, now_s: float
    ) -> tuple[Task, Locality] | None:
        """Return the best map for a slot of `worker`, or None to let the slot pass for now."""
        task = None
        # A map to be run again has reduces waiting for it: it takes the first slot there is.
        if self._homeless and self._homeless[0] < len(self._maps):
            task = self._first(self._homeless, worker, workers)
        if task is None:
            heap = self._by_host.get(worker.host)
            if heap:
                task = self._first(heap, worker, workers)
                if task is not None and task.pending_key >= len(self._maps):
                    task = self._least_wanted(heap, task, worker, workers)
        if task is None and self._homeless:
            task = self._first(self._homeless, worker, workers)
        if task is not None:
            level = locality_of(task, worker, workers)
            if level is Locality.HOST:
                self._skipped_since_s = None
            return task, level
        return self._choose_far(worker, workers, now_s)

    def has_one_for(self, worker: Worker, workers: Workers) -> bool:
        """Whether a slot of this worker would be taken, if need be after a wait for a nearer."""
        return self._first(self._any, worker, workers) is not None

    def wait_ends_at_s(self, now_s: float) -> float | None:
        """When the job will next lower its demand for locality, if it is waiting."""
        if self._skipped_since_s is None or self.count == 0:
            return None
        for steps in (1, 2):
            at_s = self._skipped_since_s + steps * self._wait_s
            if at_s > now_s:
                return at_s
        return None

    def _choose_far(
        self, worker: Worker, workers: Workers, now_s: float
    ) -> tuple[Task, Locality] | None:
        if self._skipped_since_s is None:
            self._skipped_since_s = now_s
        waited_s = now_s - self._skipped_since_s
        if waited_s >= self._wait_s:
            heap = self._by_rack.get(worker.rack)
            task = self._first(heap, worker, workers) if heap else None
            if task is None and waited_s >= 2 * self._wait_s:
                task = self._first(self._any, worker, workers)
            if task is not None:
                return task, locality_of(task, worker, workers)
        return None

    def _add(self, task: Task, key: int, workers: Workers) -> None:
        assert task.spec is not None, "maps have a spec"
        task.pending_key = key
        self.count += 1
        heappush(self._any, key)
        racks: list[RackName] = []
        for host in task.spec.hosts:
            self._backlog[host] = self._backlog.get(host, 0) + 1
            heappush(self._by_host.setdefault(host, []), key)
            rack = workers.rack_of.get(host)
            if rack is not None and rack not in racks:
                racks.append(rack)
                heappush(self._by_rack.setdefault(rack, []), key)
        if not racks:
            heappush(self._homeless, key)

    def _least_wanted(self, heap: list[int], first: Task, worker: Worker, workers: Workers) -> Task:
        """Among a few local maps, choose the one that other hosts need least to stay local.

        A host whose maps are taken by others ends up reading over the network; so take what
        is held only by hosts that have many other maps to run.
        """
        maps = self._maps
        total = len(maps)
        best, best_spare = first, -1
        for key in heap[:CANDIDATES_MAX]:
            task = maps[key if key < total else key - total]
            if task.pending_key != key or workers.should_avoid(worker, task, self._workers_max):
                continue
            assert task.spec is not None, "maps have a spec"
            spare = min(
                (
                    self._backlog[host]
                    for host in task.spec.hosts
                    if host != worker.host and host in workers.by_host
                ),
                default=total,
            )
            if spare > best_spare:
                best, best_spare = task, spare
        return best

    def _first(self, heap: list[int], worker: Worker, workers: Workers) -> Task | None:
        """Return the first valid map of a heap that has not failed on this worker."""
        maps = self._maps
        total = len(maps)
        passed_over: list[int] = []
        found = None
        while heap and len(passed_over) < PASSED_OVER_MAX:
            key = heap[0]
            task = maps[key if key < total else key - total]
            if task.pending_key != key:
                heappop(heap)
            elif workers.should_avoid(worker, task, self._workers_max):
                passed_over.append(heappop(heap))
            else:
                found = task
                break
        for key in passed_over:
            heappush(heap, key)
        return found


def locality_of(task: Task, worker: Worker, workers: Workers) -> Locality:
    """How near to its data a task would run on a worker."""
    hosts = task.spec.hosts if task.spec else ()
    if not hosts:
        return Locality.NONE
    if worker.host in hosts:
        return Locality.HOST
    if any(workers.rack_of.get(host) == worker.rack for host in hosts):
        return Locality.RACK
    return Locality.REMOTE
