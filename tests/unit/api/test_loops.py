"""The loops of a task, and what stands in lines between maps and reduces."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.api import codecs, loops
from mrstream.api.codecs import BadRecord
from mrstream.api.layout import FIELD_END, Layout, partition_marks
from mrstream.streaming.records.partitioner import key_field_partition, partition


class Kept:
    """Holds records as they come."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def take(self, records: Iterable[Any] | None) -> None:
        self.records += records or []

    def flush(self) -> None:
        """Nothing waits."""


def read_through_a_pipe(data: bytes, writes: list[int]) -> list[bytes]:
    """Give the blocks of data that comes in pieces of these sizes."""
    source, sink = os.pipe()
    found = []
    try:
        blocks = loops.blocks(source)
        for size in [*writes, len(data)]:
            piece, data = data[:size], data[size:]
            os.write(sink, piece)
        os.close(sink)
        sink = -1
        found = list(blocks)
    finally:
        os.close(source)
        if sink >= 0:
            os.close(sink)
    return found


@given(st.binary(max_size=2000), st.lists(st.integers(0, 50), max_size=5))
def test_blocks_hold_whole_lines_however_they_come(data: bytes, writes: list[int]) -> None:
    blocks = read_through_a_pipe(data, writes)

    lines = [line for block in blocks for line in block.split(b"\n")]
    assert lines == (data.removesuffix(b"\n").split(b"\n") if data else [])


def test_a_line_longer_than_a_block_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "READ_BYTES", 3)

    assert read_through_a_pipe(b"abcdefgh\nij\nk", []) == [b"abcdefgh", b"ij", b"k"]


def mapped(function: Callable[..., Any], lines: list[Any]) -> list[Any]:
    out = Kept()
    loops.run_map(function, [lines], out, loops.Place())
    return out.records


def test_a_mapper_yields_returns_or_says_nothing() -> None:
    def yields(line: str) -> Iterator[tuple[str, int]]:
        yield line, 1

    assert mapped(yields, ["a", "b"]) == [("a", 1), ("b", 1)]
    assert mapped(lambda line: [line, line], ["a"]) == ["a", "a"]
    assert mapped(lambda line: None, ["a"]) == []
    assert mapped(lambda key, value: [(value, key)], [("a", 1)]) == [(1, "a")]


def test_the_record_of_a_failure_is_known() -> None:
    place = loops.Place()
    with pytest.raises(ZeroDivisionError):
        loops.run_map(lambda line: [1 // int(line)], [["1", "2", "0", "3"]], Kept(), place)

    assert place.record == "0"


def test_records_are_written_before_they_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(loops, "RECORDS_MAX", 10)
    sizes: list[int] = []

    def lines(records: Any) -> bytes:
        sizes.append(len(records))
        return b"".join(b"%d\n" % each for each in records)

    descriptor = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
    try:
        out = loops.Output(descriptor, lines)
        out.take(range(1000))
        out.take([1000])
        out.flush()
    finally:
        os.close(descriptor)

    assert max(sizes) <= 20
    assert (tmp_path / "out").read_text().split() == [str(n) for n in range(1001)]


def reduced(layout: Layout, function: Callable[..., Any], data: bytes) -> list[Any]:
    out = Kept()
    cut = data.find(b"\n") + 1  # a group that goes over the edge of a block is one group
    blocks = [block.removesuffix(b"\n") for block in (data[:cut], data[cut:]) if block]
    loops.run_reduce(function, blocks, layout, out, loops.Place())
    return out.records


@given(st.lists(st.tuples(st.integers(0, 5), st.integers())))
def test_a_reducer_gets_each_key_once_with_all_its_values(pairs: list[tuple[int, int]]) -> None:
    layout = Layout(codecs.json)
    pairs.sort(key=lambda pair: codecs.json.encode(pair[0]))

    found = reduced(layout, lambda key, values: [(key, list(values))], layout.writer(1)(pairs))

    wanted: dict[int, list[int]] = {}
    for key, value in pairs:
        wanted.setdefault(key, []).append(value)
    assert found == list(wanted.items())


def test_values_that_a_reducer_leaves_are_not_those_of_the_next_key() -> None:
    data = b"1\t10\n1\t11\n2\t20\n"

    assert reduced(Layout(codecs.json), lambda key, values: [(key, next(values))], data) == [
        (1, 10),
        (2, 20),
    ]


def test_keys_and_values_come_in_the_order_asked_for() -> None:
    layout = Layout(
        codecs.json, lambda key, reduces: key % reduces, lambda key: -key, sort_values=True
    )
    pairs = [(key, value) for key in (3, 1, 2, 10) for value in (9, 10, -1)]

    lines = sorted(layout.writer(1)(pairs).splitlines(keepends=True))
    found = reduced(layout, lambda key, values: [(key, list(values))], b"".join(lines))

    assert found == [(key, [-1, 9, 10]) for key in (10, 3, 2, 1)]


@pytest.mark.parametrize("reduces", [1, 2, 7, 100, 1009])
def test_a_mark_leads_to_its_reduce(reduces: int) -> None:
    spec = key_field_partition("-k1,1", FIELD_END)

    found = [
        partition(spec, mark + FIELD_END + b"key", reduces) for mark in partition_marks(reduces)
    ]

    assert found == list(range(reduces))


@pytest.mark.parametrize("number", [-1, 2, "1", None])
def test_a_partition_that_is_none_is_refused(number: Any) -> None:
    writer = Layout(codecs.json, lambda key, reduces: number).writer(2)

    with pytest.raises(BadRecord, match="from 0 to 1"):
        writer([("a", 1)])


def test_a_key_that_would_end_its_field_is_refused() -> None:
    writer = Layout(codecs.text, sort_values=True).writer(1)

    with pytest.raises(BadRecord, match="1F"):
        writer([("a\x1fb", 1)])
    with pytest.raises(BadRecord, match="no pair"):
        writer(["lone"])
