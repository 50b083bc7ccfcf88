"""Is a history linearizable? Wing and Gong's search with Lowe's memo, for one object at a time.

A history is a list of operations with the moments of their call and return; one that never returned
may have had its effect at any time after its call, or never. Linearizability is local: a history of
many objects is checked object by object (Herlihy and Wing), which keeps each search small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

Step = Callable[[Any, Any], tuple[Any, Any]]
"""(state, what was asked) gives (state after it, answer); states are hashable."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of one client."""

    called_at: float
    returned_at: float
    """`math.inf` when no answer came."""
    asked: Any
    answer: Any = None
    """Of no account when no answer came."""

    @property
    def is_open(self) -> bool:
        return math.isinf(self.returned_at)


def is_linearizable(history: Sequence[Operation], initial: Hashable, step: Step) -> bool:
    """Is there an order of the operations that keeps real time and gives these answers?"""
    operations = sorted(history, key=lambda op: (op.called_at, op.returned_at))
    required = sum(1 << at for at, op in enumerate(operations) if not op.is_open)
    seen: set[tuple[int, Hashable]] = set()
    stack: list[tuple[int, Any]] = [(0, initial)]
    while stack:
        done, state = stack.pop()
        if done & required == required:
            return True
        for at in _next(operations, done):
            operation = operations[at]
            after, answer = step(state, operation.asked)
            if not operation.is_open and answer != operation.answer:
                continue
            key = (done | 1 << at, after)
            if key not in seen:
                seen.add(key)
                stack.append(key)
    return False


def _next(operations: list[Operation], done: int) -> list[int]:
    """Return those not done that no other not done had returned before they were called."""
    first_return = math.inf
    left: list[int] = []
    for at, operation in enumerate(operations):
        if done >> at & 1:
            continue
        if operation.called_at > first_return:
            break
        left.append(at)
        first_return = min(first_return, operation.returned_at)
    return [at for at in left if operations[at].called_at <= first_return]


def register(state: Hashable, asked: tuple[str, ...]) -> tuple[Hashable, Any]:
    """A register: `("write", v)`, `("read",)`, `("swap", old, new)`, which says whether it did."""
    match asked:
        case ("write", value):
            return value, None
        case ("swap", old, new):
            return (new, True) if state == old else (state, False)
        case _:
            return state, state


def mutex(state: Hashable, asked: tuple[str, str]) -> tuple[Hashable, Any]:
    """A lock: `("take", who)` and `("free", who)` say whether they did; the state is its holder."""
    verb, who = asked
    if verb == "take":
        return (who, True) if state is None else (state, False)
    return (None, True) if state == who else (state, False)


def name(state: Hashable, asked: str) -> tuple[Hashable, Any]:
    """A name of a file system, there or not: `"make"` and `"remove"` say whether they did, `"look"`
    whether it is there."""
    match asked:
        case "make":
            return True, not state
        case "remove":
            return False, bool(state)
        case _:
            return state, bool(state)
