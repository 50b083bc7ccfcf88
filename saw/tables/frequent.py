"""The table `top(n)`: the values emitted most often, with a bound of the error of each count.

Misra and Gries' counters: while there are few values every count is exact. When there are more than
the table holds, as much as the middle counter has is taken from all, and remembered as the error:
a true count is never above the one told, and never below it by more than the error. Good where some
values are much more frequent than others; on a flat distribution the error says that it is not.
"""

from __future__ import annotations

from mrstream.saw.tables import order, packing
from mrstream.saw.tables.kinds import FLOAT, INT, Declaration, Value
from mrstream.saw.tables.table import VALUE_BYTES, BadTable, Chance, Row, State, require

COUNTERS_MIN = 1024
COUNTERS_PER_ROW = 16


class _State:
    """Encoded value → count above the error; and the error."""

    __slots__ = ("counts", "error")

    def __init__(self) -> None:
        self.counts: dict[bytes, Value] = {}
        self.error: Value = 0


class Top:
    """Counts the values that stand out."""

    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        require(declaration, parameter=True, weight=None)
        if declaration.weight is not None and not declaration.weight.type.is_number:
            raise BadTable(f"the weight of top is an int or a float, not {declaration.weight.type}")
        assert declaration.parameter is not None
        self.declaration = declaration
        self._rows = declaration.parameter
        self._counters = max(COUNTERS_MIN, COUNTERS_PER_ROW * declaration.parameter)
        self._encode = order.encoder(declaration.value.type)
        self._decode = order.decoder(declaration.value.type)
        weight = INT if declaration.weight is None else declaration.weight.type
        assert weight in (INT, FLOAT)
        self._encode_count = order.encoder(weight)
        self._decode_count = order.decoder(weight)

    def new(self) -> State:
        """No counters."""
        return _State()

    def add(self, state: State, value: Value, weight: Value) -> State:
        """Count a value once, or by its weight; no or a negative weight counts nothing."""
        if weight is None:
            weight = 1
        elif not weight > 0:
            return state
        key = self._encode(value)
        counts = state.counts
        counts[key] = counts.get(key, 0) + weight
        if len(counts) > 2 * self._counters:
            self._shrink(state)
        return state

    def merge(self, state: State, packed: bytes) -> State:
        """Add another's counters and its error."""
        data = packing.body("top", packed)
        error, at = self._decode_count(data, 0)
        counts = state.counts
        while at < len(data):
            count, at = self._decode_count(data, at)
            _, end = self._decode(data, at)
            counts[data[at:end]] = counts.get(data[at:end], 0) + count
            at = end
        state.error += error
        if len(counts) > 2 * self._counters:
            self._shrink(state)
        return state

    def pack(self, state: State) -> bytes:
        """The error, then count and value of each counter, in value order."""
        if len(state.counts) > self._counters:
            self._shrink(state)
        return (
            packing.header("top")
            + self._encode_count(state.error)
            + b"".join(self._encode_count(state.counts[key]) + key for key in sorted(state.counts))
        )

    def final(self, state: State) -> list[Row]:
        """Value, count and error bound; most frequent first."""
        best = sorted(state.counts.items(), key=lambda item: (-item[1], item[0]))[: self._rows]
        return [(self._decode(key, 0)[0], count + state.error, state.error) for key, count in best]

    def held_bytes(self, state: State) -> int:
        """The counters."""
        return VALUE_BYTES * len(state.counts)

    def _shrink(self, state: _State) -> None:
        taken = sorted(state.counts.values(), reverse=True)[self._counters]
        state.counts = {k: count - taken for k, count in state.counts.items() if count > taken}
        state.error += taken
