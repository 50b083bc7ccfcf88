"""The table `unique(n)`: how many different values were emitted.

Keeps the n lowest 64-bit hashes of values: fewer are the exact number, and of n the highest tells
how thick they lie. The standard deviation is about N/√n, so that 10,000 is right to 2 % in 95 of
100 (§7.2). Two tables merge by their hashes, whoever computed them.
"""

from __future__ import annotations

from hashlib import blake2b

from mrstream.saw.tables import order, packing
from mrstream.saw.tables.kinds import Declaration, Value
from mrstream.saw.tables.table import NUMBER_BYTES, VALUE_BYTES, Chance, Row, State, require

HASH_BYTES = 8
WAITING_MAX = 4096
_SPACE = 1 << 64


def fingerprint(data: bytes) -> int:
    """Return the 64-bit hash of bytes: stable over hosts, versions and time."""
    return int.from_bytes(blake2b(data, digest_size=HASH_BYTES).digest(), "big")


class _State:
    """Values that wait for their hash (hashing once is enough for many equal ones), and hashes."""

    __slots__ = ("hashes", "waiting")

    def __init__(self) -> None:
        self.waiting: set[Value] = set()
        self.hashes: set[int] = set()


class Unique:
    """Estimates the number of different values."""

    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        require(declaration, parameter=True)
        assert declaration.parameter is not None
        self.declaration = declaration
        self._limit = declaration.parameter
        self._encode = order.encoder(declaration.value.type)
        self._is_hashable = not declaration.value.type.is_mutable

    def new(self) -> State:
        """No values."""
        return _State()

    def add(self, state: State, value: Value, weight: Value) -> State:
        waiting = state.waiting
        waiting.add(value if self._is_hashable else self._encode(value))
        if len(waiting) >= WAITING_MAX:
            self._hash_waiting(state)
        return state

    def merge(self, state: State, packed: bytes) -> State:
        """Take the hashes of another."""
        data = packing.body("unique", packed)
        if len(data) % HASH_BYTES:
            raise packing.StateCorrupt(f"a packed unique has {len(data)} bytes of hashes")
        state.hashes.update(
            int.from_bytes(data[at : at + HASH_BYTES], "big")
            for at in range(0, len(data), HASH_BYTES)
        )
        if len(state.hashes) > 2 * self._limit:
            state.hashes = set(self._lowest(state))
        return state

    def pack(self, state: State) -> bytes:
        """The lowest hashes in order."""
        self._hash_waiting(state)
        return packing.header("unique") + b"".join(
            one.to_bytes(HASH_BYTES, "big") for one in self._lowest(state)
        )

    def final(self, state: State) -> list[Row]:
        """One row: the number."""
        self._hash_waiting(state)
        lowest = self._lowest(state)
        if len(lowest) < self._limit:
            return [(len(lowest),)]
        return [(max(len(lowest), round((self._limit - 1) * _SPACE / max(1, lowest[-1]))),)]

    def held_bytes(self, state: State) -> int:
        """The values that wait, and the hashes: numbers in a set."""
        return VALUE_BYTES * len(state.waiting) + 2 * NUMBER_BYTES * len(state.hashes)

    def _hash_waiting(self, state: _State) -> None:
        encode = self._encode if self._is_hashable else bytes
        state.hashes.update(fingerprint(encode(value)) for value in state.waiting)
        state.waiting.clear()
        if len(state.hashes) > 2 * self._limit:
            state.hashes = set(self._lowest(state))

    def _lowest(self, state: _State) -> list[int]:
        return sorted(state.hashes)[: self._limit]
