"""What the property tests of the kernel draw from, and how they drive it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import strategies as st

from mrstream.mapreduce.dataflow import kernel
from mrstream.mapreduce.dataflow.record_form import FRAMED_FORM, Side, WireForm
from mrstream.streaming.records.comparator import ByteOrder, KeyFieldOrder, KeySpec
from mrstream.streaming.records.key_value import KeyValueRule
from mrstream.streaming.records.partitioner import (
    BinaryPartition,
    HashPartition,
    KeyFieldPartition,
    StringHashPartition,
    ValuePartition,
)

# Few different bytes: separators, line ends, digits, signs and bytes that break UTF-8 meet often.
tricky = st.text(alphabet="\t\n\r\0ab,.-019", max_size=40).map(str.encode)
odd_utf8 = st.lists(
    st.sampled_from([b"\xed", b"\xa0", b"\x80", b"\xf0", b"\x9f", b"\x98", b"\xe2", b"\xf4", b"a"]),
    max_size=12,
).map(b"".join)
some_bytes = st.one_of(
    tricky, odd_utf8, st.binary(max_size=60), st.text(max_size=20).map(str.encode)
)
keys = st.text(alphabet="\tab,.-0123x", max_size=14).map(str.encode)
pairs = st.lists(st.tuples(keys, some_bytes), max_size=60)

separators = st.sampled_from([b"\t", b",", b".", b"ab", b"aa", b"\xc3\xa9"])
rules = st.builds(KeyValueRule, separators, st.integers(1, 4))
key_specs = st.builds(
    KeySpec,
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
spec_lists = st.lists(key_specs, min_size=1, max_size=3).map(tuple)
field_orders = st.builds(KeyFieldOrder, spec_lists, separators, st.booleans())
orders = st.one_of(st.just(ByteOrder()), field_orders)
key_partitioners = st.one_of(
    st.just(HashPartition()),
    st.just(StringHashPartition()),
    st.builds(KeyFieldPartition, spec_lists, separators, st.booleans()),
    st.builds(BinaryPartition, st.integers(-3, 3), st.integers(-3, 3)),
)
partitioners = key_partitioners | st.builds(ValuePartition, key_partitioners)
forms = st.one_of(
    st.just(FRAMED_FORM),
    st.builds(
        WireForm,
        st.sampled_from([s for s in Side if s is not Side.DECIMAL]),
        separators,
        st.sampled_from([s for s in Side if s is not Side.DECIMAL]),
        st.sampled_from([b"", b"\n"]),
    ),
)
capacities = st.sampled_from([256, 300, 1000, 4096, 1 << 20])


def pieces(data: bytes, borders: list[int]) -> list[bytes]:
    """Cut data at borders, taken modulo its length."""
    cuts = sorted({border % (len(data) + 1) for border in borders} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(cuts)]


borders = st.lists(st.integers(0, 1 << 16), max_size=12)


def next_blob(collector: kernel.Collector, size: int) -> tuple[int, int, bytes]:
    """Take the next blob, in a buffer of its own if one record needs it."""
    buffer = bytearray(size)
    records, hadoop_bytes, length = collector.next_blob(buffer)
    if not records:
        buffer = bytearray(length)
        records, hadoop_bytes, length = collector.next_blob(buffer)
    return records, hadoop_bytes, bytes(buffer[:length])


def collected(
    make: Callable[..., kernel.Collector],
    data: list[bytes],
    size: int,
    *arguments: object,
) -> tuple[list[list[tuple[int, int, int, bytes]]], int, int]:
    """Feed everything; return the blobs of every spill, and the totals."""
    collector = make(*arguments)
    spills = []

    def spill() -> None:
        collector.sort()
        blobs = []
        while (where := collector.partition) >= 0:
            blobs.append((where, *next_blob(collector, size)))
        collector.reset()
        spills.append(blobs)

    for piece in data:
        taken = collector.feed(piece)
        while taken < len(piece):
            spill()
            taken = collector.feed(piece, taken)
    if not collector.finish():
        spill()
        assert collector.finish()
    spill()
    return spills, collector.records_total, collector.bytes_total
