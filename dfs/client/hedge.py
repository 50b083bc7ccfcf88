"""Hedged reads: a replica that keeps us waiting is not waited for alone.

Takes the replica being read and a way to open others; gives the one that sends first, and closes
the rest. A stopped server, a failing disk or a bad link then costs half a second, not a time-out.
Never judges a replica.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

SLOW_S = 0.5
"""A replica that has sent nothing for so long gets company."""


class Racer(Protocol):
    """A replica whose server was asked for bytes."""

    @property
    def is_ready(self) -> bool:
        """Whether something is here already."""

    @property
    def patience_s(self) -> float:
        """How long a silent server is waited for."""

    def fileno(self) -> int:
        """Return the descriptor that is readable once something came."""

    def close(self) -> None: ...


R = TypeVar("R", bound=Racer)


def quickest(first: R, others: Iterator[R]) -> R:
    """Return the replica that has something for us; one more is asked each time that none has."""
    racing = [first]
    while (winner := _ready_one(racing, SLOW_S)) is None:
        other = next(others, None)
        if other is None:
            # Nobody is left to ask: wait as long as one of them may take.
            winner = _ready_one(racing, first.patience_s) or first
            break
        racing.append(other)
    for source in racing:
        if source is not winner:
            source.close()
    return winner


def _ready_one(sources: Sequence[R], seconds: float) -> R | None:
    for source in sources:
        if source.is_ready:
            return source
    poll = select.poll()
    by_descriptor = {source.fileno(): source for source in sources}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    for descriptor, _ in poll.poll(seconds * 1000):
        return by_descriptor[descriptor]
    return None
