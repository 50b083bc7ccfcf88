"""What a master has decided and may not say yet: the gate between its brain and everybody else.

Nothing leaves before the records that it rests on are durable (M1), and nothing leaves without the
leader's lease (C4): a read's answer, a refusal and a command to a chunkserver neither. A leader
that loses its epoch leaves what it held unsaid, for ever: its successor may commit the records of
it, so neither yes nor no would be true. What is held leaves in the order in which it was decided.
Never does any IO itself; the shells and the simulators run this very code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

Said = TypeVar("Said")


class Log(Protocol):
    """How far the log is."""

    @property
    def seen(self) -> int:
        """The sequence that the brain's state rests on."""

    @property
    def durable(self) -> int:
        """The sequence that no crash takes back."""


def always() -> bool:
    """The lease of a master that is alone."""
    return True


class Gate(Generic[Said]):
    """Things to be said, each behind the record that it rests on."""

    def __init__(
        self,
        log: Log,
        carry_out: Callable[[Said], None],
        may_speak: Callable[[], bool] = always,
    ) -> None:
        """`may_speak`: does the lease hold, at this moment? A master that is alone always may."""
        self._log = log
        self._carry_out = carry_out
        self._may_speak = may_speak
        self._held: deque[tuple[int, Sequence[Said]]] = deque()
        """What waits, in the order of decision, each behind the last record at that moment: these
        never go down, so that nothing is said before what was decided earlier."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_clear(self) -> bool:
        """Is everything decided so far durable and said, and may more be said at once?"""
        return not self._held and self._log.durable >= self._log.seen and self._may_speak()

    @property
    def waits_for(self) -> int:
        """The sequence that must be durable before the next thing can be said; 0: nothing waits."""
        return self._held[0][0] if self._held else 0

    def say(self, commands: Sequence[Said]) -> None:
        """Say these things when they may be said, which may be now."""
        if not commands:
            return
        if self.is_clear:
            for command in commands:
                self._carry_out(command)
        else:
            assert not self._held or self._held[-1][0] <= self._log.seen, "the log went back"
            self._held.append((self._log.seen, commands))

    def release(self) -> None:
        """More may be durable, or the lease has come back: say what waited for that."""
        held = self._held
        while held and held[0][0] <= self._log.durable and self._may_speak():
            for command in held.popleft()[1]:
                self._carry_out(command)
