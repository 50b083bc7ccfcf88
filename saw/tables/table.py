"""What a table is to the system: the five functions of the paper (§7.3), and `add` for speed.

A `Table` is one declared table; its states are plain values. `merge` is commutative and
associative, so states of maps, shards and jobs meet in any grouping. `KINDS` lists all kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mrstream.saw.tables.kinds import Declaration, Value

State = Any
Row = tuple[Value, ...]


class Chance(Protocol):
    """Where tables draw numbers; `random.Random` is one."""

    def random(self) -> float:
        """Return a number of [0, 1)."""

    def getrandbits(self, k: int, /) -> int:
        """Return k bits."""


class _NoChance:
    """For tables that only look at a declaration, or only unpack."""

    def random(self) -> float:
        raise AssertionError("this table does not draw")

    def getrandbits(self, k: int, /) -> int:
        raise AssertionError("this table does not draw")


NO_CHANCE = _NoChance()


class BadTable(ValueError):
    """A declaration that its kind does not take."""


class Table(Protocol):
    """One declared table."""

    declaration: Declaration

    def new(self) -> State:
        """Return the state of a table to which nothing was emitted."""

    def add(self, state: State, value: Value, weight: Value) -> State:
        """Return the state with one more value; the old one is used up."""

    def merge(self, state: State, packed: bytes) -> State:
        """Return the state with all that another one held; the old one is used up."""

    def pack(self, state: State) -> bytes:
        """Return the state as bytes."""

    def final(self, state: State) -> list[Row]:
        """Return the rows for people: the value, then the weight if there is one."""

    def held_bytes(self, state: State) -> int:
        """Estimate the memory that a state takes: a map gives its tables away in time."""


NUMBER_BYTES = 40
"""What a number takes in a list, about."""
VALUE_BYTES = 250
"""What another value takes, or a number with its place in a dict or a set."""


def check(declaration: Declaration) -> str | None:
    """Say what is wrong with a declaration, if anything is: the first of the five functions."""
    from mrstream.saw.tables import registry

    kind = registry.KINDS.get(declaration.kind)
    if kind is None:
        return f"there is no table {declaration.kind}; {registry.nearest(declaration.kind)}"
    try:
        kind(declaration, NO_CHANCE)
    except BadTable as error:
        return str(error)
    return None


def require(
    declaration: Declaration, *, parameter: bool = False, weight: bool | None = False
) -> None:
    """Refuse a declaration whose parameter or weight is missing or too much (None: as one
    likes)."""
    kind = declaration.kind
    if parameter and declaration.parameter is None:
        raise BadTable(f"{kind} needs a parameter, such as {kind}(10)")
    if not parameter and declaration.parameter is not None:
        raise BadTable(f"{kind} takes no parameter")
    if declaration.parameter is not None and not 1 <= declaration.parameter <= PARAMETER_MAX:
        raise BadTable(f"{kind}({declaration.parameter}): it must be 1 to {PARAMETER_MAX:,}")
    if weight and declaration.weight is None:
        raise BadTable(f"{kind} needs a weight: table {kind}(…) of … weight NAME: int")
    if weight is False and declaration.weight is not None:
        raise BadTable(f"{kind} takes no weight")
    if declaration.weight is not None and declaration.weight.type.name not in _WEIGHTS:
        raise BadTable(f"a weight is an int, a float or a time, not {declaration.weight.type}")


PARAMETER_MAX = 10_000_000
_WEIGHTS = ("int", "float", "time")


def merged(table: Table, packed: Sequence[bytes]) -> State:
    """Return the state of several packed ones."""
    state = table.new()
    for one in packed:
        state = table.merge(state, one)
    return state
