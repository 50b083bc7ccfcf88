"""The table `sum`: numbers, and tuples, arrays and maps of them, element by element; `mrcounter`.

Ints wrap as C's do, but only when packed: until then Python's are exact, and so is their sum
modulo 2⁶⁴ in any order.
"""

from __future__ import annotations

from collections.abc import Callable

from mrstream.saw.tables import order, packing
from mrstream.saw.tables.kinds import Declaration, Type, Value
from mrstream.saw.tables.table import VALUE_BYTES, BadTable, Chance, Row, State, require

Add = Callable[[Value, Value], Value]
_SIGN = 1 << 63
_MASK = (1 << 64) - 1


class Sum:
    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        require(declaration)
        kind = declaration.value.type
        if not _is_summable(kind):
            raise BadTable(f"sum adds ints, floats, and tuples, arrays or maps of them, not {kind}")
        self.declaration = declaration
        self._header = packing.header(declaration.kind)
        self._kind = kind
        self._plus = plus(kind)
        self._encode = order.encoder(kind)
        self._decode = order.decoder(kind)

    def new(self) -> State:
        """None: nothing was emitted yet."""
        return None

    def add(self, state: State, value: Value, weight: Value) -> State:
        return value if state is None else self._plus(state, value)

    def merge(self, state: State, packed: bytes) -> State:
        """Add another sum."""
        data = packing.body(self.declaration.kind, packed)
        if not data:
            return state
        value, at = self._decode(data, 0)
        packing.at_end(self.declaration.kind, data, at)
        return self.add(state, value, None)

    def pack(self, state: State) -> bytes:
        """Header and value; the header alone if nothing was emitted."""
        return self._header + (b"" if state is None else self._encode(state))

    def final(self, state: State) -> list[Row]:
        """One row, or none."""
        return [] if state is None else [(wrapped(self._kind, state),)]

    def held_bytes(self, state: State) -> int:
        """The numbers; a sum of maps has as many as there are keys."""
        return VALUE_BYTES * (len(state) if isinstance(state, dict | list) else 1)


class Counter(Sum):
    """`mrcounter`: a sum that is counted in the job's counters, not in its shards."""

    def __init__(self, declaration: Declaration, chance: Chance) -> None:
        if declaration.value.type.name != "int":
            raise BadTable(f"mrcounter counts ints, not {declaration.value.type}")
        if declaration.indexes:
            raise BadTable("mrcounter takes no index: its counter has the table's name")
        super().__init__(declaration, chance)


def plus(kind: Type) -> Add:
    """Return the function that adds two values of a type."""
    match kind.name:
        case "tuple":
            adds = [plus(part) for part in kind.parts]
            return lambda a, b: tuple(add(x, y) for add, x, y in zip(adds, a, b, strict=True))
        case "array":
            return _array_plus(plus(kind.parts[0]))
        case "map":
            return _map_plus(plus(kind.parts[1]))
    return lambda a, b: a + b


def _array_plus(add: Add) -> Add:
    """Arrays add by position; the longer one's rest stays."""

    def add_arrays(a: Value, b: Value) -> Value:
        shared = [add(x, y) for x, y in zip(a, b, strict=False)]
        return [*shared, *a[len(shared) :], *b[len(shared) :]]

    return add_arrays


def _map_plus(add: Add) -> Add:
    """Maps add by key."""

    def add_maps(a: Value, b: Value) -> Value:
        total = dict(a)
        for key, value in dict(b).items():
            total[key] = add(total[key], value) if key in total else value
        return total

    return add_maps


def wrapped(kind: Type, value: Value) -> Value:
    """Return a sum with its ints cut to 64 bits, as its packed form has them."""
    match kind.name:
        case "int":
            return (value + _SIGN & _MASK) - _SIGN
        case "tuple":
            return tuple(wrapped(part, item) for part, item in zip(kind.parts, value, strict=True))
        case "array":
            return [wrapped(kind.parts[0], item) for item in value]
        case "map":
            return {key: wrapped(kind.parts[1], item) for key, item in dict(value).items()}
    return value


def _is_summable(kind: Type) -> bool:
    match kind.name:
        case "tuple":
            return bool(kind.parts) and all(map(_is_summable, kind.parts))
        case "array":
            return _is_summable(kind.parts[0])
        case "map":
            return _is_summable(kind.parts[1])
    return kind.is_number
