"""The keys of shards: table number and index, in bytes whose order is table and index order (§7.4).

`number u16 | index …`, and behind them the value where a kind is keyed by it. The hash of a key
says which shard it goes to, the same for every map and every job.
"""

from __future__ import annotations

import struct

from mrstream.saw.tables import order
from mrstream.saw.tables.kinds import Declaration, Type, Value
from mrstream.saw.tables.packing import StateCorrupt
from mrstream.saw.tables.registry import KEYED_BY_VALUE

TABLES_MAX = 1000
_NUMBER = struct.Struct(">H")


def key_types(declaration: Declaration) -> tuple[Type, ...]:
    """Return the types of all that stands in a table's keys."""
    if declaration.kind in KEYED_BY_VALUE:
        return (*declaration.index_types, declaration.value.type)
    return declaration.index_types


def key_of(number: int, declaration: Declaration, index: tuple[Value, ...]) -> bytes:
    return _NUMBER.pack(number) + order.encode_all(key_types(declaration), index)


def table_number(key: bytes) -> int:
    """Return the number of the table that a key belongs to."""
    if len(key) < _NUMBER.size:
        raise StateCorrupt(f"a key has {len(key)} bytes; it begins with a table's number")
    number: int = _NUMBER.unpack_from(key)[0]
    return number


def index_of(key: bytes, declaration: Declaration) -> tuple[Value, ...]:
    """Return the index, and the value where it is part of the key."""
    index, at = order.decode_all(key_types(declaration), key, _NUMBER.size)
    if at != len(key):
        raise StateCorrupt(f"a key of {declaration.name} has {len(key) - at} bytes too many")
    return index
