"""For all runs: the merge of the C kernel = that of the Python twin = sorted()."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mrstream.mapreduce.dataflow import kernel, twin
from mrstream.mapreduce.dataflow.record_form import (
    FRAMED_FORM,
    FRAMED_RECORDS,
    WireForm,
    text_form,
    text_records,
)
from mrstream.streaming.records.comparator import ByteOrder, ComparatorSpec
from mrstream.streaming.records.key_value import KeyValueRule
from tests.support.kernel_strategies import (
    forms,
    keys,
    orders,
    pairs,
    some_bytes,
)

pytestmark = pytest.mark.skipif(not kernel.IS_NATIVE, reason="there is no C kernel to compare")


def merged(
    tree: kernel.MergeTree, runs: list[list[bytes]], size: int
) -> tuple[list[tuple[int, bytes]], int, int, int, tuple[bytes, int]]:
    """Drive a tree to its end."""
    sources = [iter(blocks) for blocks in runs]
    blobs = []
    while True:
        wanted, records, blob = tree.step(size)
        if blob is not None:
            blobs.append((records, blob))
        elif wanted >= 0:
            tree.supply(wanted, next(sources[wanted], None))
        else:
            return blobs, tree.records, tree.groups, tree.hadoop_bytes, tree.largest_group


def blocks_of(records: list[tuple[bytes, bytes]], block_records: int) -> list[bytes]:
    return [
        twin.encode_records(records[i : i + block_records])
        for i in range(0, len(records), block_records)
    ]


runs_of_pairs = st.lists(st.lists(st.tuples(keys, some_bytes), max_size=20), max_size=9)


@given(
    runs=runs_of_pairs,
    order=orders,
    form=forms,
    block_records=st.integers(1, 7),
    size=st.integers(0, 200),
)
def test_runs_are_merged_alike_by_kernel_and_twin(
    runs: list[list[tuple[bytes, bytes]]],
    order: ComparatorSpec,
    form: WireForm,
    block_records: int,
    size: int,
) -> None:
    """Same blobs, same counts, whatever the number of runs and their blocks."""
    blocks = []
    for run in runs:
        numbered = [(0, key, value) for key, value in run]
        in_order = [(key, value) for _, key, value in twin.merge_sort(numbered, order)]
        blocks.append(blocks_of(in_order, block_records))
    shape = text_records(KeyValueRule())

    native = merged(kernel.merge_tree(len(runs), order, form, shape), blocks, size)

    assert native == merged(twin.MergeTree(len(runs), order, form, shape), blocks, size)


@given(runs=runs_of_pairs, block_records=st.integers(1, 7))
def test_a_merge_is_what_sorted_gives(
    runs: list[list[tuple[bytes, bytes]]], block_records: int
) -> None:
    """Ties by the order of the runs, then of emission; groups are different whole keys."""
    in_order = [sorted(run, key=lambda record: record[0]) for run in runs]
    blocks = [blocks_of(run, block_records) for run in in_order]
    tree = kernel.merge_tree(len(runs), ByteOrder(), FRAMED_FORM, FRAMED_RECORDS)

    blobs, records, groups, _, largest = merged(tree, blocks, 1 << 20)

    expected = sorted((r for run in in_order for r in run), key=lambda record: record[0])
    assert [r for _, blob in blobs for r in kernel.decode_records(blob)] == expected
    assert (records, groups) == (len(expected), len({key for key, _ in expected}))
    counts = [sum(k == key for k, _ in expected) for key, _ in expected]
    assert largest[1] == max(counts, default=0)


@given(run=st.lists(st.tuples(keys, some_bytes), min_size=2, max_size=20), block=st.integers(1, 5))
def test_a_run_out_of_order_is_found_when_it_is_read(
    run: list[tuple[bytes, bytes]], block: int
) -> None:
    """D1 is asserted on read."""
    assume(any(a[0] > b[0] for a, b in pairwise(run)))
    tree = kernel.merge_tree(1, ByteOrder(), FRAMED_FORM, FRAMED_RECORDS)

    with pytest.raises(ValueError, match="D1"):
        merged(tree, [blocks_of(run, block)], 1 << 20)


@given(block=st.one_of(st.binary(max_size=50), pairs.map(twin.encode_records)))
def test_blocks_are_decoded_alike(block: bytes) -> None:
    """Good blocks to the same records, bad ones to the same refusal."""

    def outcome(decode: Callable[[bytes], object]) -> object:
        try:
            return decode(block)
        except ValueError as error:
            return str(error)

    assert outcome(kernel.decode_records) == outcome(twin.decode_records)


def test_text_form_always_has_its_separator() -> None:
    """Spec 4.3: also for an empty value."""
    tree = kernel.merge_tree(1, ByteOrder(), text_form(b"\t"), FRAMED_RECORDS)

    blobs, *_ = merged(tree, [[twin.encode_records([(b"a", b""), (b"b", b"1")])]], 1 << 20)

    assert blobs == [(2, b"a\t\nb\t1\n")]
