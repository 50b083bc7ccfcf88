"""For all bytes, borders, partitions and buffer sizes: C kernel = Python twin = sorted()."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.mapreduce.dataflow import kernel, twin
from mrstream.mapreduce.dataflow.record_form import (
    FRAMED_FORM,
    FRAMED_RECORDS,
    KEY_ONLY_RECORDS,
    RAW_RECORDS,
    TYPED_RECORDS,
    Cut,
    RecordShape,
    Serial,
    Side,
    WireForm,
    text_records,
)
from mrstream.mapreduce.dataflow.twin_records import write_record
from mrstream.streaming.records.comparator import ByteOrder, ComparatorSpec, LongOrder
from mrstream.streaming.records.key_value import KeyValueRule
from mrstream.streaming.records.partitioner import (
    HashPartition,
    PartitionerSpec,
    TotalOrderPartition,
    partition,
)
from tests.support.kernel_strategies import (
    borders,
    capacities,
    collected,
    forms,
    keys,
    orders,
    pairs,
    partitioners,
    pieces,
    rules,
    some_bytes,
)

pytestmark = pytest.mark.skipif(not kernel.IS_NATIVE, reason="there is no C kernel to compare")


@given(
    data=some_bytes,
    borders=borders,
    rule=rules,
    partitions=st.integers(1, 5),
    partitioner=partitioners,
    order=orders,
    form=forms,
    capacity=capacities,
    size=st.integers(0, 300),
    key_only=st.booleans(),
)
def test_lines_are_sorted_alike_by_kernel_and_twin(
    data: bytes,
    borders: list[int],
    rule: KeyValueRule,
    partitions: int,
    partitioner: PartitionerSpec,
    order: ComparatorSpec,
    form: WireForm,
    capacity: int,
    size: int,
    key_only: bool,
) -> None:
    """Spec 4.1, 4.2, 5.1 to 5.3: same spills, same blobs, same counts."""
    shape = KEY_ONLY_RECORDS if key_only else text_records(rule)
    arguments = (capacity, partitions, shape, partitioner, order, form)

    native = collected(kernel.collector, pieces(data, borders), size, *arguments)

    assert native == collected(twin.Collector, pieces(data, borders), size, *arguments)


@given(
    records=st.lists(st.tuples(st.one_of(keys, some_bytes), some_bytes), max_size=80),
    borders=borders,
    partitions=st.integers(1, 5),
    capacity=capacities,
)
def test_sorted_records_are_what_sorted_gives(
    records: list[tuple[bytes, bytes]], borders: list[int], partitions: int, capacity: int
) -> None:
    """D1, and equal keys in order of emission."""
    data = pieces(twin.encode_records(records), borders)
    arguments = (capacity, partitions, FRAMED_RECORDS, HashPartition(), ByteOrder(), FRAMED_FORM)

    spills, total, _ = collected(kernel.collector, data, 100, *arguments)

    assert total == len(records)
    at = 0
    for spill in spills:
        got = [(w, *record) for w, _, _, b in spill for record in kernel.decode_records(b)]
        expected = [
            (partition(HashPartition(), key, partitions), key, value)
            for key, value in records[at : at + len(got)]
        ]
        assert got == sorted(expected, key=lambda record: record[:2])
        at += len(got)


@given(
    vocabulary=st.lists(keys, min_size=1, max_size=30),
    values=st.lists(st.one_of(st.just(b"1"), st.binary(max_size=40)), min_size=1, max_size=30),
    seed=st.integers(0, 1 << 32),
    fresh=st.sampled_from([0.0, 0.1, 0.9]),
    form=forms,
    size=st.integers(200, 5000),
    capacity=st.sampled_from([1 << 18, 1 << 20]),
)
@settings(max_examples=15)
def test_repeated_keys_are_grouped_without_a_trace(
    vocabulary: list[bytes],
    values: list[bytes],
    seed: int,
    fresh: float,
    form: WireForm,
    size: int,
    capacity: int,
) -> None:
    """The kernel keeps a key that repeats once; what it gives is what sorted() gives."""
    rng = random.Random(seed)
    records = []
    for i in range(12_000):
        # The share of new keys changes half way: grouping has to notice.
        new = rng.random() < (fresh if i > 6_000 else 0.1)
        key = b"%x" % rng.getrandbits(50) if new else rng.choice(vocabulary)
        records.append((key, rng.choice(values)))
    data = pieces(twin.encode_records(records), [seed, seed // 7, seed // 1000])
    arguments = (capacity, 3, FRAMED_RECORDS, HashPartition(), ByteOrder())

    spills, total, _ = collected(kernel.collector, data, size, *arguments, FRAMED_FORM)
    in_form, *_ = collected(kernel.collector, data, size, *arguments, form)

    assert total == len(records)
    at = 0
    for spill, formed in zip(spills, in_form, strict=True):
        got = [(w, *record) for w, _, _, b in spill for record in kernel.decode_records(b)]
        expected = [
            (partition(HashPartition(), key, 3), key, value)
            for key, value in records[at : at + len(got)]
        ]
        assert got == sorted(expected, key=lambda record: record[:2])
        written = b"".join([write_record(key, value, form) for _, key, value in got])
        assert b"".join([blob for *_, blob in formed]) == written
        at += len(got)


@given(
    base=st.binary(max_size=30),
    tails=st.lists(st.binary(max_size=3), min_size=1, max_size=200),
    repeat=st.integers(1, 40),
)
def test_keys_with_long_common_beginnings_are_sorted(
    base: bytes, tails: list[bytes], repeat: int
) -> None:
    """The radix sort goes on behind the prefix, also where keys end in NUL bytes."""
    records = [(base + tail * (i % 3), b"%d" % i) for i, tail in enumerate(tails * repeat)]
    data = [twin.encode_records(records)]
    arguments = (1 << 20, 1, FRAMED_RECORDS, HashPartition(), ByteOrder(), FRAMED_FORM)

    spills, _, _ = collected(kernel.collector, data, 1 << 20, *arguments)

    got = [
        record for spill in spills for _, _, _, b in spill for record in kernel.decode_records(b)
    ]
    assert got == sorted(records, key=lambda record: record[0])


@given(
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=80),
    reverse=st.booleans(),
    partitions=st.integers(1, 3),
)
def test_integer_keys_are_sorted_as_numbers_and_printed_in_decimal(
    numbers: list[int], reverse: bool, partitions: int
) -> None:
    """Identity jobs: LongWritable keys (spec 5.1, 5.3)."""
    records = [(n.to_bytes(8, "big", signed=True), b"%d" % i) for i, n in enumerate(numbers)]
    shape = RecordShape(Cut.FRAMED, key_serial=Serial.LONG)
    form = WireForm(key=Side.DECIMAL)
    data = [twin.encode_records(records)]
    arguments = (1 << 16, partitions, shape, HashPartition(), LongOrder(reverse), form)

    native = collected(kernel.collector, data, 1 << 16, *arguments)

    assert native == collected(twin.Collector, data, 1 << 16, *arguments)
    if partitions == 1:
        text = b"".join(blob for spill in native[0] for *_, blob in spill)
        found = [int(line.split(b"\t")[0]) for line in text.splitlines()]
        assert found == sorted(numbers, reverse=reverse)


@given(records=pairs, borders=borders, capacity=capacities)
def test_raw_bytes_are_cut_alike(
    records: list[tuple[bytes, bytes]], borders: list[int], capacity: int
) -> None:
    """Spec 9: int32 length and bytes, twice."""
    data = pieces(
        b"".join(len(side).to_bytes(4, "big") + side for pair in records for side in pair), borders
    )
    arguments = (capacity, 3, RAW_RECORDS, HashPartition(), ByteOrder(), FRAMED_FORM)

    native = collected(kernel.collector, data, 100, *arguments)

    assert native == collected(twin.Collector, data, 100, *arguments)
    assert native[1] == len(records)


def typed(value: object) -> bytes:
    """Return a value as typed bytes."""
    match value:
        case bool():
            return b"\2" + bytes([value])
        case int():
            return b"\4" + value.to_bytes(8, "big", signed=True)
        case bytes():
            return b"\0" + len(value).to_bytes(4, "big") + value
        case str():
            text = value.encode()
            return b"\7" + len(text).to_bytes(4, "big") + text
        case tuple():
            return b"\x08" + len(value).to_bytes(4, "big") + b"".join(map(typed, value))
        case list():
            return b"\x09" + b"".join(map(typed, value)) + b"\xff"
        case dict():
            sides = b"".join(typed(k) + typed(v) for k, v in value.items())
            return b"\x0a" + len(value).to_bytes(4, "big") + sides
    raise AssertionError(value)


scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=9), st.text(max_size=5)
)
typed_values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(scalars, inner, max_size=3),
    ),
    max_leaves=8,
)


@given(
    records=st.lists(st.tuples(typed_values, typed_values), max_size=12),
    borders=borders,
    capacity=capacities,
    ends=st.booleans(),
)
def test_typed_bytes_are_cut_alike(
    records: list[tuple[object, object]], borders: list[int], capacity: int, ends: bool
) -> None:
    """Spec 9: nested objects across any borders; 255 at the start of a record ends the data."""
    encoded = [(typed(key), typed(value)) for key, value in records]
    stream = b"".join(key + value for key, value in encoded) + (b"\xffrest" if ends else b"")
    data = pieces(stream, borders)
    arguments = (capacity, 2, TYPED_RECORDS, HashPartition(), ByteOrder(), FRAMED_FORM)

    native = collected(kernel.collector, data, 1000, *arguments)

    assert native == collected(twin.Collector, data, 1000, *arguments)
    got = [r for s in native[0] for *_, blob in s for r in kernel.decode_records(blob)]
    assert sorted(got) == sorted(encoded)


@given(
    data=st.binary(max_size=60),
    borders=borders,
    shape=st.sampled_from([RAW_RECORDS, TYPED_RECORDS, FRAMED_RECORDS]),
)
def test_malformed_binary_output_is_refused_by_both(
    data: bytes, borders: list[int], shape: RecordShape
) -> None:
    """Whatever bytes come: both take them alike, or both refuse them; neither crashes."""
    arguments = (4096, 2, shape, HashPartition(), ByteOrder(), FRAMED_FORM)

    def outcome(make: Callable[..., kernel.Collector]) -> object:
        try:
            return collected(make, pieces(data, borders), 100, *arguments)
        except ValueError:
            return "refused"

    assert outcome(kernel.collector) == outcome(twin.Collector)


@given(
    cuts=st.sets(keys, max_size=5).map(sorted).map(tuple),
    records=pairs,
    capacity=capacities,
)
def test_total_order_puts_partitions_in_order(
    cuts: tuple[bytes, ...], records: list[tuple[bytes, bytes]], capacity: int
) -> None:
    """Spec 5.1: the partition is the number of cut points that are at most the key."""
    data = [twin.encode_records(records)]
    partitioner = TotalOrderPartition(cuts)
    arguments = (capacity, len(cuts) + 1, FRAMED_RECORDS, partitioner, ByteOrder(), FRAMED_FORM)

    native = collected(kernel.collector, data, 100, *arguments)

    assert native == collected(twin.Collector, data, 100, *arguments)
    for spill in native[0]:
        found = [key for *_, blob in spill for key, _ in kernel.decode_records(blob)]
        assert found == sorted(found)
