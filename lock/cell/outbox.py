"""What one event leads to, gathered in order, and the moment at which it is decided.

Also knows which calls repeat others: a numbered call that comes again while the first waits takes
its place, and one that was answered gets the same answer. Never decides anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.lock.cell.events import Command, Log, Refuse, Reply
from mrstream.lock.cell.records import AnyRecord

Told = Callable[[Any, ClusterError | None], None]


class Outbox:
    """The commands of the event being handled."""

    def __init__(self, apply: Callable[[AnyRecord], None]) -> None:
        self.now_s = 0.0
        self.wall_s = 0.0
        self._apply = apply
        self._commands: list[Command] = []
        self._stands_for: dict[int, int] = {}
        self._listeners: dict[int, Told] = {}

    def begin(self, now_s: float, wall_s: float) -> None:
        """An event is being handled at this time; time never goes back."""
        self.now_s = max(self.now_s, now_s)
        self.wall_s = wall_s

    def take(self) -> list[Command]:
        """Return what has gathered, and begin anew."""
        commands, self._commands = self._commands, []
        return commands

    def emit(self, record: AnyRecord) -> None:
        """Log a record and apply it: the code that recovers is the code that runs."""
        self._commands.append(Log(record))
        self._apply(record)

    # --- answers

    def listen(self, call: int, told: Told) -> None:
        """Have `told` know how the call is answered, when it is."""
        self._listeners[call] = told

    def replace(self, first: int, again: int) -> None:
        """The call `again` is the waiting call `first`, repeated: it gets the answer."""
        self._stands_for[first] = again

    def stand_in(self, call: int) -> int:
        """The call that gets the answer of this one."""
        return self._stands_for.get(call, call)

    def reply(self, call: int, value: Any) -> None:
        self._answered(call, value, None)
        self._commands.append(Reply(self._stands_for.pop(call, call), value))

    def refuse(self, call: int, error: ClusterError) -> None:
        self._answered(call, None, error)
        self._commands.append(Refuse(self._stands_for.pop(call, call), error))

    def refuse_quietly(self, call: int, error: ClusterError) -> None:
        """Refuse a call that another one stands for: nobody remembers this answer."""
        self._commands.append(Refuse(call, error))

    def _answered(self, call: int, value: Any, error: ClusterError | None) -> None:
        told = self._listeners.pop(call, None)
        if told is not None:
            told(value, error)
