"""What a worker decides: heartbeats after the acknowledgement, one task after the other.

Tasks run and are reported in the order in which they came (R3); a worker never asks whether a
task is a map or a reduce (P4-14).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import assert_never

import msgspec

from mrstream.mapreduce.p4.brain.layout import REDUCER, under
from mrstream.mapreduce.p4.brain.messages import (
    FilesStatus,
    FileStatus,
    NewSortJob,
    NewWorkerJob,
    RegisterAck,
    Shutdown,
    Status,
)

FINISHED = "finished"
TASKS_WAITING_MAX = 100_000
Order = NewWorkerJob | NewSortJob


class TaskEnded(msgspec.Struct, frozen=True):
    """What was run last has ended."""


Event = RegisterAck | NewWorkerJob | NewSortJob | Shutdown | TaskEnded


class Beat(msgspec.Struct, frozen=True):
    """Begin to send heartbeats."""


class Run(msgspec.Struct, frozen=True):
    """Do a task; answered by `TaskEnded`."""

    order: Order
    outputs: tuple[str, ...]
    """Where what each input gives must lie; of a sort, its one output."""


class Tell(msgspec.Struct, frozen=True):
    """Send a status to the master."""

    status: Status


class Stop(msgspec.Struct, frozen=True):
    """End at once, with all that runs."""


class Warn(msgspec.Struct, frozen=True):
    text: str


Command = Beat | Run | Tell | Stop | Warn


class WorkerBrain:
    def __init__(self, pid: int, *, reduce_status_is_literal: bool = False) -> None:
        """With `reduce_status_is_literal` a reduce is reported as the source prints it, M8 (R1)."""
        self._pid = pid
        self._is_literal = reduce_status_is_literal
        self._waiting: deque[Order] = deque()
        self._running: Order | None = None
        self._beats = False
        self._is_over = False

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """Take one event; give what to do, in order."""
        del now_s  # a worker waits for nothing but its tasks
        return [] if self._is_over else list(self._heard(event))

    def _heard(self, event: Event) -> Iterator[Command]:
        match event:
            case RegisterAck(worker_pid=pid):
                if pid != self._pid:
                    yield Warn(f"an acknowledgement for {pid} is ignored: this is {self._pid}")
                elif not self._beats:
                    self._beats = True
                    yield Beat()
            case NewWorkerJob() | NewSortJob():
                if len(self._waiting) >= TASKS_WAITING_MAX:
                    yield Warn(f"a task is ignored: {TASKS_WAITING_MAX} wait already")
                    return
                self._waiting.append(event)
                yield from self._run_next()
            case TaskEnded():
                assert self._running is not None, "nothing ran"
                yield Tell(self._status_of(self._running))
                self._running = None
                yield from self._run_next()
            case Shutdown():
                self._is_over = True
                yield Stop()
            case _:
                assert_never(event)

    def _run_next(self) -> Iterator[Command]:
        if self._running is None and self._waiting:
            self._running = self._waiting.popleft()
            yield Run(self._running, outputs_of(self._running))

    def _status_of(self, order: Order) -> Status:
        outputs = outputs_of(order)
        if isinstance(order, NewSortJob):
            return FileStatus(outputs[0], FINISHED, self._pid)
        folder = order.output_directory.rstrip("/").rpartition("/")[2]
        if self._is_literal and folder == REDUCER and len(outputs) == 1:
            return FileStatus(outputs[0], FINISHED, self._pid)
        return FilesStatus(list(outputs), FINISHED, self._pid)


def outputs_of(order: Order) -> tuple[str, ...]:
    """The paths that a task writes, as its master will read them again (R2)."""
    if isinstance(order, NewSortJob):
        return (order.output_file,)
    return tuple(under(order.output_directory, path) for path in order.input_files)
