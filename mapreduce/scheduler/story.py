"""The recent past, so that the life of one task can be told.

Keeps the last events (without progress, ticks and signs of life) and the commands they led to, in a
ring. Never grows beyond its bound.
"""

from __future__ import annotations

from collections import deque

from mrstream.mapreduce.scheduler.commands import Command
from mrstream.mapreduce.scheduler.events import AttemptProgress, Event, Tick, WorkerHeard
from mrstream.mapreduce.scheduler.ids import AttemptId, TaskId

REMEMBERED_MAX = 20_000
_SMALL_TALK = (AttemptProgress, Tick, WorkerHeard)


class Story:
    """A ring of what happened."""

    __slots__ = ("_ring",)

    def __init__(self, length_max: int = REMEMBERED_MAX) -> None:
        self._ring: deque[tuple[float, Event, list[Command]]] = deque(maxlen=length_max)

    def add(self, now_s: float, event: Event, commands: list[Command]) -> None:
        if commands or type(event) not in _SMALL_TALK:
            self._ring.append((now_s, event, commands))

    def of_task(self, task_id: TaskId) -> list[str]:
        """Return one line for each event and command that names the task, oldest first."""
        lines: list[str] = []
        for now_s, event, commands in self._ring:
            if _names(event, task_id):
                lines.append(f"{now_s:.3f}s  {_line(event)}")
            lines.extend(
                f"{now_s:.3f}s    → {_line(command)}"
                for command in commands
                if _names(command, task_id)
            )
        return lines


def _names(record: Event | Command, task_id: TaskId) -> bool:
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, AttemptId) and value.task_id == task_id:
            return True
        if isinstance(value, TaskId) and value == task_id:
            return True
    return False


def _line(record: Event | Command) -> str:
    parts = [f"{name}={getattr(record, name)!s}" for name in record.__struct_fields__]
    return f"{type(record).__name__} {' '.join(parts)}"
