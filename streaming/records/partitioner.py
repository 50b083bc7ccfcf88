"""To which reducer a key goes.

A `PartitionerSpec` is plain data: the kernel, its twin and `partition` here give
the same answer for it. All arithmetic is 32-bit, signed, with wrap-around. Never
reads properties or files (the cut points of a total order come in as bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from mrstream.streaming.java.java_text import clean_text, decode_text
from mrstream.streaming.records.comparator import (
    BYTE_ORDER,
    TAB,
    ComparatorSpec,
    KeySpec,
    compare,
    field_lengths,
    parse_key_specs,
    range_of,
)


class HashPartition(msgspec.Struct, frozen=True):
    """Hash of the key's bytes, starting at 1: text, raw bytes and typed bytes."""


class LongHashPartition(msgspec.Struct, frozen=True):
    """The low 32 bits of a big-endian integer key (byte offsets of identity jobs)."""


class StringHashPartition(msgspec.Struct, frozen=True):
    """Hash of the key's UTF-16 units, starting at 0 (a key field partitioner without options).

    Bytes that are not UTF-8 count as U+FFFD.
    """


class KeyFieldPartition(msgspec.Struct, frozen=True):
    """One running hash, starting at 0, over the byte ranges of `specs`.

    The key is decoded and encoded again first, so that a byte that is not UTF-8
    counts as the three of U+FFFD. An empty key goes to partition 0.
    """

    specs: tuple[KeySpec, ...]
    separator: bytes = TAB
    whole_key: bool = False


class TextOfKeyPartition(msgspec.Struct, frozen=True):
    """What `of` makes of the text of a key that is none: Java's `toString` of a number, of raw or
    of typed bytes."""

    of: StringHashPartition | KeyFieldPartition
    text: Callable[[bytes], bytes]


class BinaryPartition(msgspec.Struct, frozen=True):
    """Hash, starting at 1, of the bytes from `left` to `right`, both inclusive.

    Negative offsets count from the end of the key, as in Python.
    """

    left: int = 0
    right: int = -1


class TotalOrderPartition(msgspec.Struct, frozen=True):
    """The number of cut points that are at most the key; `cuts` strictly increase."""

    cuts: tuple[bytes, ...]
    order: ComparatorSpec = BYTE_ORDER


KeyPartitionerSpec = (
    HashPartition
    | LongHashPartition
    | StringHashPartition
    | KeyFieldPartition
    | TextOfKeyPartition
    | BinaryPartition
    | TotalOrderPartition
)


class ValuePartition(msgspec.Struct, frozen=True):
    """What `of` makes of the value, instead of the key."""

    of: KeyPartitionerSpec


PartitionerSpec = KeyPartitionerSpec | ValuePartition


def partition_record(spec: PartitionerSpec, key: bytes, value: bytes, reduces: int) -> int:
    """Return the partition, 0 to `reduces` - 1, of a record."""
    if isinstance(spec, ValuePartition):
        return partition(spec.of, value, reduces)
    return partition(spec, key, reduces)


def key_field_partition(
    options: str, separator: bytes = TAB, *, fields_count: int | None = None
) -> StringHashPartition | KeyFieldPartition:
    """Return the key field partitioner for an option string.

    `fields_count`, the older way to say `-k1,N`, wins over the options; below 1 it
    means no spec at all.
    """
    if fields_count is not None:
        options = f"-k1,{fields_count}" if fields_count >= 1 else ""
    specs, whole_key = parse_key_specs(options)
    if not specs:
        return StringHashPartition()
    return KeyFieldPartition(specs, separator or TAB, whole_key)


# --- the pure twin of the kernel's partition


def partition(spec: KeyPartitionerSpec, key: bytes, reduces: int) -> int:
    """Return the partition, 0 to `reduces` - 1, of a key."""
    match spec:
        case HashPartition():
            return (hash_bytes(key, 1) & 0x7FFFFFFF) % reduces
        case LongHashPartition():
            return (int.from_bytes(key[-4:], "big") & 0x7FFFFFFF) % reduces
        case StringHashPartition():
            return (_hash_utf16(key) & 0x7FFFFFFF) % reduces
        case KeyFieldPartition():
            return _key_field_partition(spec, key, reduces)
        case TextOfKeyPartition(of=of, text=text):
            return partition(of, text(key), reduces)
        case BinaryPartition(left=left, right=right):
            length = len(key)
            part = key[(left + length) % length : (right + length) % length + 1] if length else b""
            return (hash_bytes(part, 1) & 0x7FFFFFFF) % reduces
        case TotalOrderPartition(cuts=cuts, order=order):
            return _cuts_at_most(cuts, order, key)


def hash_bytes(data: bytes, seed: int) -> int:
    """Return h = 31 * h + byte over signed bytes, as an unsigned 32-bit number."""
    h = seed
    for byte in data:
        h = (31 * h + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return h


def _hash_utf16(key: bytes) -> int:
    h = 0
    units = decode_text(key).encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        h = (31 * h + (high << 8 | low)) & 0xFFFFFFFF
    return h


def _key_field_partition(spec: KeyFieldPartition, key: bytes, reduces: int) -> int:
    key = clean_text(key)
    if not key:
        return 0
    lengths = [len(key)] if spec.whole_key else field_lengths(key, spec.separator)
    h = 0
    for key_spec in spec.specs:
        found = range_of(key_spec, len(key), lengths, len(spec.separator))
        if found is not None:
            h = hash_bytes(key[found[0] : max(found)], h)
    return (h & 0x7FFFFFFF) % reduces


def _cuts_at_most(cuts: Sequence[bytes], order: ComparatorSpec, key: bytes) -> int:
    low, high = 0, len(cuts)
    while low < high:
        middle = (low + high) // 2
        if compare(order, cuts[middle], key) <= 0:
            low = middle + 1
        else:
            high = middle
    return low
