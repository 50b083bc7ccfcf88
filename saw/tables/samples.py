"""The tables `sample(n)` and `weightedsample(n)`: some of the values, chosen by chance.

Every value draws a priority and the n lowest are kept, wherever they were drawn: a uniform number
gives a sample without bias, an exponential one over the weight gives each value a chance in
proportion to it (Efraimidis and Spirakis). The chance is passed in, so that an attempt that is run
again draws the same.
"""

from __future__ import annotations

import math
from bisect import insort

from mrstream.saw.tables import order, packing
from mrstream.saw.tables.kinds import FLOAT, Declaration, Value
from mrstream.saw.tables.table import VALUE_BYTES, Chance, Row, State, require

_encode_priority = order.encoder(FLOAT)
_decode_priority = order.decoder(FLOAT)


class Sample:
    """Keeps (priority, encoded value, encoded weight) in order of priority."""

    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        self._is_weighted = declaration.kind == "weightedsample"
        require(declaration, parameter=True, weight=self._is_weighted)
        assert declaration.parameter is not None
        self.declaration = declaration
        self._limit = declaration.parameter
        self._random = chance.random
        self._encode = order.encoder(declaration.value.type)
        self._decode = order.decoder(declaration.value.type)
        weight = declaration.weight.type if declaration.weight is not None else FLOAT
        self._encode_weight = order.encoder(weight)
        self._decode_weight = order.decoder(weight)

    def new(self) -> State:
        """The kept values, lowest priority first."""
        return []

    def add(self, state: State, value: Value, weight: Value) -> State:
        """Let a value draw; one of no or negative weight has no chance."""
        priority = self._random()
        if self._is_weighted:
            if not weight > 0:
                return state
            priority = -math.log1p(-priority) / weight
        if len(state) < self._limit or priority < state[-1][0]:
            known = self._encode_weight(weight) if self._is_weighted else b""
            self._insert(state, priority, self._encode(value), known)
        return state

    def merge(self, state: State, packed: bytes) -> State:
        """Take what another kept."""
        data = packing.body(self.declaration.kind, packed)
        at = 0
        while at < len(data):
            priority, start = _decode_priority(data, at)
            _, middle = self._decode(data, start)
            at = self._decode_weight(data, middle)[1] if self._is_weighted else middle
            self._insert(state, priority, data[start:middle], data[middle:at])
        return state

    def pack(self, state: State) -> bytes:
        """Priority, value and weight of each."""
        return packing.header(self.declaration.kind) + b"".join(
            _encode_priority(priority) + value + weight for priority, value, weight in state
        )

    def final(self, state: State) -> list[Row]:
        """A row a value, in value order: the order of priorities means nothing."""
        rows = sorted((value, weight) for _, value, weight in state)
        if self._is_weighted:
            return [(self._decode(v, 0)[0], self._decode_weight(w, 0)[0]) for v, w in rows]
        return [(self._decode(value, 0)[0],) for value, _ in rows]

    def held_bytes(self, state: State) -> int:
        """The kept values."""
        return VALUE_BYTES * len(state)

    def _insert(
        self, state: list[tuple[float, bytes, bytes]], priority: float, value: bytes, weight: bytes
    ) -> None:
        insort(state, (priority, value, weight))
        if len(state) > self._limit:
            state.pop()
