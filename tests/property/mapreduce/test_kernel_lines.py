"""For all bytes and borders: lines of the C kernel = those of the Python twin."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.mapreduce.dataflow import kernel, twin
from mrstream.mapreduce.dataflow.record_form import Cut, LineForm, LineInput
from mrstream.streaming.records.key_value import KeyValueRule, split
from tests.support.kernel_strategies import (
    borders,
    pieces,
    rules,
    separators,
    some_bytes,
    tricky,
)

pytestmark = pytest.mark.skipif(not kernel.IS_NATIVE, reason="there is no C kernel to compare")

line_bytes = st.one_of(
    tricky, some_bytes, st.binary(max_size=30).map(lambda b: b"\xef\xbb\xbf" + b)
)


@given(
    data=line_bytes,
    borders=borders,
    form=st.sampled_from(LineForm),
    start=st.integers(0, 20),
    length=st.one_of(st.none(), st.integers(0, 40)),
    skip_first=st.booleans(),
    separator=separators,
    key_end=st.sampled_from(b"\t,a"),
    line_bytes_max=st.sampled_from([0, 0, 1, 2, 3, 5, 9]),
    strip_bom=st.booleans(),
)
def test_lines_are_fed_alike_by_kernel_and_twin(
    data: bytes,
    borders: list[int],
    form: LineForm,
    start: int,
    length: int | None,
    skip_first: bool,
    separator: bytes,
    key_end: int,
    line_bytes_max: int,
    strip_bom: bool,
) -> None:
    """Spec 3.2, 3.4, 3.5: the same bytes, records and end, wherever the feeds are cut."""
    end = None if length is None else start + length
    of = LineInput(form, start, end, skip_first, separator, key_end, line_bytes_max, strip_bom)

    def outcome(feeder: kernel.LineFeeder) -> tuple[bytes, int, bool]:
        out = b"".join([feeder.feed(piece) for piece in pieces(data, borders)])
        out += feeder.finish()
        return out, feeder.records, feeder.done

    native = outcome(kernel.line_feeder(of))

    assert native[:2] == outcome(twin.LineFeeder(of))[:2]


@given(data=st.one_of(tricky, some_bytes), splits=st.lists(st.integers(0, 80), max_size=6))
def test_every_line_is_in_exactly_one_split(data: bytes, splits: list[int]) -> None:
    """Spec 3.2: a line that begins at p belongs to the split with start < p <= end."""
    cuts = sorted({cut for cut in splits if 0 < cut < len(data)} | {0, len(data)})

    def lines_of(start: int, end: int) -> bytes:
        feeder = kernel.line_feeder(LineInput(start=start, end=end, skip_first=start > 0))
        return feeder.feed(data[start:]) + feeder.finish()

    found = b"".join(lines_of(a, b) for a, b in pairwise(cuts))

    whole = kernel.line_feeder(LineInput())
    assert found == whole.feed(data) + whole.finish()


@given(
    data=some_bytes,
    borders=borders,
    rule=rules,
    separator=st.one_of(st.just(b""), separators),
    key_only=st.booleans(),
)
def test_lines_are_rewritten_alike(
    data: bytes, borders: list[int], rule: KeyValueRule, separator: bytes, key_only: bool
) -> None:
    """Spec 4.4: `KEY separator VALUE`, the separator also where the value is empty."""
    cut = Cut.KEY_LINES if key_only else Cut.LINES

    def outcome(rewriter: kernel.LineRewriter) -> tuple[bytes, int]:
        out = b"".join([rewriter.feed(piece) for piece in pieces(data, borders)])
        return out + rewriter.finish(), rewriter.records

    native = outcome(kernel.line_rewriter(cut, rule, separator))

    assert native == outcome(twin.LineRewriter(cut, rule, separator))
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    sides = [(line, b"") if key_only else split(line, rule) for line in lines]
    joined = b"" if key_only else separator
    assert native[0] == b"".join(key + joined + value + b"\n" for key, value in sides)


@given(data=st.one_of(tricky, st.binary(max_size=2000)), repeat=st.integers(1, 300))
def test_lines_are_counted(data: bytes, repeat: int) -> None:
    """LF bytes only, at any length."""
    assert kernel.count_lines(data * repeat) == (data * repeat).count(b"\n")
