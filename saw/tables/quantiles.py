"""The table `quantile(n)`: n values that cut what was emitted into parts of equal number.

A stack of compactors (as in KLL): level 0 holds values; a level that is full is sorted, every other
value of it goes up a level, where it stands for twice as many. Which of the two halves goes is
drawn by the chance that is passed in. Exact until the first level is full; the two ends always
are.
"""

from __future__ import annotations

from heapq import merge as in_order

from mrstream.saw.tables import order, packing
from mrstream.saw.tables.kinds import Declaration, Value
from mrstream.saw.tables.table import (
    NUMBER_BYTES,
    VALUE_BYTES,
    BadTable,
    Chance,
    Row,
    State,
    require,
)

LEVEL_VALUES = 2048
"""Values a level holds: ranks are then right to about 0.1 % (tests/property)."""
VALUES_PER_QUANTILE = 8
LEVELS_MAX = 60
_LONG = ("string", "bytes")


class _State:
    """The levels, and the two ends."""

    __slots__ = ("ends", "levels")

    def __init__(self) -> None:
        self.levels: list[list[Value]] = [[]]
        self.ends: tuple[Value, Value] | None = None


class Quantile:
    """Holds a summary of all values."""

    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        require(declaration, parameter=True)
        assert declaration.parameter is not None
        if declaration.parameter < 2:
            raise BadTable("quantile(1): it must be 2 or more, the lowest and the highest value")
        if not declaration.value.type.is_ordered:
            raise BadTable(f"quantile takes values with an order, not {declaration.value.type}")
        self.declaration = declaration
        self._count = declaration.parameter
        self._capacity = max(LEVEL_VALUES, VALUES_PER_QUANTILE * declaration.parameter)
        self._chance = chance
        self._encode = order.encoder(declaration.value.type)
        self._decode = order.decoder(declaration.value.type)

    def new(self) -> State:
        """No level has a value."""
        return _State()

    def add(self, state: State, value: Value, weight: Value) -> State:
        """Take a value; what is no number (NaN) has no place in an order."""
        if value == value:
            lowest = state.levels[0]
            lowest.append(value)
            if len(lowest) >= self._capacity:
                self._compact(state)
        return state

    def merge(self, state: State, packed: bytes) -> State:
        """Take the levels of another."""
        data = packing.body("quantile", packed)
        count, at = packing.take_number(data, 0)
        if count > LEVELS_MAX:
            raise packing.StateCorrupt(f"a packed quantile has {count} levels, more than there are")
        if count:
            low, at = self._decode(data, at)
            high, at = self._decode(data, at)
            state.ends = _wider(state.ends, low, high)
        for index in range(count):
            values, at = packing.take_number(data, at)
            if index == len(state.levels):
                state.levels.append([])
            for _ in range(values):
                value, at = self._decode(data, at)
                state.levels[index].append(value)
        packing.at_end("quantile", data, at)
        self._compact(state)
        return state

    def pack(self, state: State) -> bytes:
        """The number of levels, the ends, and each level's values in order."""
        self._see_ends(state)
        if state.ends is None:
            return packing.header("quantile") + packing.put_number(0)
        parts = [packing.header("quantile"), packing.put_number(len(state.levels))]
        parts += map(self._encode, state.ends)
        for level in state.levels:
            parts.append(packing.put_number(len(level)))
            parts += map(self._encode, sorted(level))
        return b"".join(parts)

    def final(self, state: State) -> list[Row]:
        """The value of index i is at least as large as i / (n - 1) of all values."""
        self._see_ends(state)
        if state.ends is None:
            return []
        weighted = list(
            in_order(
                *([(v, 1 << at) for v in sorted(level)] for at, level in enumerate(state.levels))
            )
        )
        total = sum(weight for _, weight in weighted)
        rows: list[Row] = []
        passed, values = 0, iter(weighted)
        value = None
        for index in range(self._count):
            rank = -(-index * (total - 1) // (self._count - 1))  # rounded up
            while passed <= rank:
                value, weight = next(values)
                passed += weight
            rows.append((value,))
        rows[0], rows[-1] = (state.ends[0],), (state.ends[1],)
        return rows

    def held_bytes(self, state: State) -> int:
        """The values of all levels."""
        size = VALUE_BYTES if self.declaration.value.type.name in _LONG else NUMBER_BYTES
        return size * sum(map(len, state.levels))

    def _compact(self, state: _State) -> None:
        self._see_ends(state)
        for index in range(LEVELS_MAX):
            if index == len(state.levels):
                return
            level = state.levels[index]
            if len(level) < self._capacity:
                continue
            level.sort()
            kept = [level.pop()] if len(level) % 2 else []
            if index + 1 == len(state.levels):
                state.levels.append([])
            state.levels[index + 1] += level[self._chance.getrandbits(1) :: 2]
            state.levels[index] = kept

    def _see_ends(self, state: _State) -> None:
        """Level 0 has all values that came since the ends were seen last."""
        lowest = state.levels[0]
        if lowest:
            state.ends = _wider(state.ends, min(lowest), max(lowest))


def _wider(ends: tuple[Value, Value] | None, low: Value, high: Value) -> tuple[Value, Value]:
    return (low, high) if ends is None else (min(ends[0], low), max(ends[1], high))
