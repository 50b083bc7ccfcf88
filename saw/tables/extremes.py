"""The tables `maximum(n)` and `minimum(n)`: the values of the highest, or lowest, weights.

Of equal weights the value that is first in order wins, so that the result does not depend on who
met whom. A weight that is no number (NaN) is never kept.
"""

from __future__ import annotations

from bisect import insort

from mrstream.saw.tables import order, packing
from mrstream.saw.tables.kinds import Declaration, Value
from mrstream.saw.tables.table import VALUE_BYTES, Chance, Row, State, require


class Extremes:
    """Keeps (rank, encoded value) pairs in order; the rank of a maximum is minus its weight."""

    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        require(declaration, parameter=True, weight=True)
        assert declaration.weight is not None and declaration.parameter is not None
        self.declaration = declaration
        self._limit = declaration.parameter
        self._sign = -1 if declaration.kind == "maximum" else 1
        self._encode = order.encoder(declaration.value.type)
        self._decode = order.decoder(declaration.value.type)
        self._encode_weight = order.encoder(declaration.weight.type)
        self._decode_weight = order.decoder(declaration.weight.type)

    def new(self) -> State:
        """The best pairs, best first."""
        return []

    def add(self, state: State, value: Value, weight: Value) -> State:
        """Take a value, if its weight is among the best."""
        rank = self._sign * weight
        # Most values are no candidates, and are not even encoded.
        if len(state) < self._limit or rank <= state[-1][0]:
            self._insert(state, rank, self._encode(value))
        return state

    def merge(self, state: State, packed: bytes) -> State:
        """Take the best of another."""
        data = packing.body(self.declaration.kind, packed)
        at = 0
        while at < len(data):
            weight, at = self._decode_weight(data, at)
            _, end = self._decode(data, at)
            self._insert(state, self._sign * weight, data[at:end])
            at = end
        return state

    def pack(self, state: State) -> bytes:
        """Weight and value of each."""
        return packing.header(self.declaration.kind) + b"".join(
            self._encode_weight(self._sign * rank) + value for rank, value in state
        )

    def final(self, state: State) -> list[Row]:
        """Value and weight, best first."""
        return [(self._decode(value, 0)[0], self._sign * rank) for rank, value in state]

    def held_bytes(self, state: State) -> int:
        """The best pairs."""
        return VALUE_BYTES * len(state)

    def _insert(self, state: list[tuple[Value, bytes]], rank: Value, value: bytes) -> None:
        if rank != rank:
            return
        insort(state, (rank, value))
        if len(state) > self._limit:
            state.pop()
