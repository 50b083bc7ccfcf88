"""The tables `collection`, `text` and `set`: all values, as they are or each once.

A value of a collection is part of its key, and its state is how often it was
emitted: so values are dealt to shards by their hash, come out in their order, and a value emitted a
million times is one record (§8: a collection must not overload one shard).
"""

from __future__ import annotations

from mrstream.saw.tables import order, packing
from mrstream.saw.tables.kinds import Declaration, Value
from mrstream.saw.tables.table import VALUE_BYTES, BadTable, Chance, Row, State, require


class Collection:
    """Counts how often one value was emitted; the value itself stands in the key."""

    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        require(declaration)
        if declaration.kind == "text" and declaration.value.type.name not in ("string", "bytes"):
            raise BadTable(f"text takes strings or bytes, not {declaration.value.type}")
        self.declaration = declaration

    def new(self) -> State:
        """How often: not yet."""
        return 0

    def add(self, state: State, value: Value, weight: Value) -> State:
        return state + 1

    def merge(self, state: State, packed: bytes) -> State:
        """As often as both."""
        data = packing.body(self.declaration.kind, packed)
        count, at = packing.take_number(data, 0)
        packing.at_end(self.declaration.kind, data, at)
        return state + count

    def pack(self, state: State) -> bytes:
        return packing.header(self.declaration.kind) + packing.put_number(state)

    def final(self, state: State) -> list[Row]:
        """As many rows as the value was emitted; the reader of the key puts the value in."""
        return [()] * state

    def held_bytes(self, state: State) -> int:
        """A number."""
        return VALUE_BYTES


class Set:
    """Each value once; of more than the parameter, the first in order."""

    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        require(declaration, parameter=declaration.parameter is not None)
        self.declaration = declaration
        self._limit = declaration.parameter
        self._encode = order.encoder(declaration.value.type)
        self._decode = order.decoder(declaration.value.type)

    def new(self) -> State:
        """The encoded values."""
        return set()

    def add(self, state: State, value: Value, weight: Value) -> State:
        state.add(self._encode(value))
        return self._trimmed(state)

    def merge(self, state: State, packed: bytes) -> State:
        """Take all values of another set."""
        data = packing.body("set", packed)
        at = 0
        while at < len(data):
            _, end = self._decode(data, at)
            state.add(data[at:end])
            at = end
        return self._trimmed(state)

    def pack(self, state: State) -> bytes:
        """The encoded values in order."""
        return packing.header("set") + b"".join(self._first(state))

    def final(self, state: State) -> list[Row]:
        """A row a value, in order."""
        return [(self._decode(one, 0)[0],) for one in self._first(state)]

    def held_bytes(self, state: State) -> int:
        """All values."""
        return VALUE_BYTES * len(state)

    def _trimmed(self, state: set[bytes]) -> set[bytes]:
        # Twice as many are held, so that a full set is sorted once in as many values as it holds.
        if self._limit is not None and len(state) > 2 * self._limit:
            return set(self._first(state))
        return state

    def _first(self, state: set[bytes]) -> list[bytes]:
        return sorted(state)[: self._limit]
