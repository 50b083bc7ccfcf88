"""The workers that a master knows: who they are, what they have, and who is dead.

W1: a worker is dead when it was silent for `silence_s_max` of the master's own waking time, never
sooner (P4-22). W2: a dead worker stays in the table and has no task.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mrstream.mapreduce.p4.brain.messages import Register
from mrstream.mapreduce.p4.brain.tasks import Task

HEARTBEAT_S = 2.0
SILENCE_S_MAX = 6 * HEARTBEAT_S
"""More than five heartbeats missed in a row: the sixth is overdue."""
OWN_PAUSE_S = HEARTBEAT_S
"""A master that did not look at the clock for so long was stopped itself, and has heartbeats to
read that came meanwhile."""
READY, BUSY, DEAD = "ready", "busy", "dead"


class Worker(msgspec.Struct, eq=False):
    """One worker, by its process id."""

    pid: int
    host: str
    port: int
    heard_at_s: float
    tasks: list[Task] = msgspec.field(default_factory=list)
    """Given to it and not finished, oldest first."""
    is_dead: bool = False
    is_unreachable: bool = False
    """It did not take messages: heartbeats alone do not bring it back."""

    @property
    def state(self) -> str:
        """ready, busy or dead (P4-05)."""
        if self.is_dead:
            return DEAD
        return BUSY if self.tasks else READY


class Workers:
    def __init__(self, outstanding_max: int = 0, workers_max: int = 1000) -> None:
        """`outstanding_max` tasks at once for a worker (R6); 0: any number."""
        self._outstanding_max = outstanding_max
        self._workers_max = workers_max
        self._by_pid: dict[int, Worker] = {}
        self._looked_at_s: float | None = None

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._by_pid.values())

    def get(self, pid: int) -> Worker | None:
        """The worker with this process id, if it registered."""
        return self._by_pid.get(pid)

    def alive(self) -> list[Worker]:
        """Those that are not dead, in the order of their registration."""
        return [worker for worker in self if not worker.is_dead]

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another."""
        return len(self._by_pid) >= self._workers_max

    def add(self, said: Register, now_s: float) -> Worker:
        """Take a worker into the table, in the place of one with the same process id."""
        worker = Worker(said.worker_pid, said.worker_host, said.worker_port, now_s)
        self._by_pid[said.worker_pid] = worker
        return worker

    def next_free(self) -> Worker | None:
        """The one with the fewest tasks, of equals the one that registered first (P4-10)."""
        free = [
            worker
            for worker in self.alive()
            if not self._outstanding_max or len(worker.tasks) < self._outstanding_max
        ]
        return min(free, key=lambda worker: len(worker.tasks)) if free else None

    def silent(self, now_s: float) -> list[Worker]:
        """Those that must be dead by now."""
        slept_s = now_s - self._looked_at_s if self._looked_at_s is not None else 0.0
        self._looked_at_s = now_s
        if slept_s > OWN_PAUSE_S:
            for worker in self:
                worker.heard_at_s = min(now_s, worker.heard_at_s + slept_s)
        return [w for w in self.alive() if now_s - w.heard_at_s >= SILENCE_S_MAX]
