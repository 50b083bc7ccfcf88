"""mapreduce.attempt.narrow: the smallest range of records that fails, and inputs without it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.mapreduce.attempt.narrow import RecordIndex, narrow, without


@given(st.integers(1, 500), st.data())
def test_one_bad_record_is_found_in_about_log2_runs(records: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, records - 1))
    asked = []

    def fails(first: int, behind: int) -> bool:
        asked.append((first, behind))
        return first <= bad < behind

    assert narrow(fails, records) == (bad, bad + 1)
    assert len(asked) <= records.bit_length() + 4


def test_of_two_bad_records_the_first_is_found() -> None:
    assert narrow(lambda first, behind: any(first <= b < behind for b in (3, 7)), 10) == (3, 4)


def test_records_that_fail_only_together_are_found_as_a_range() -> None:
    assert narrow(lambda first, behind: first <= 4 and behind > 6, 100) == (4, 7)


def test_a_program_that_fails_without_input_is_told_apart() -> None:
    assert narrow(lambda first, behind: True, 100) == (0, 0)


def test_nothing_is_found_if_all_is_well() -> None:
    assert narrow(lambda first, behind: False, 100) is None


def test_records_are_found_again_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "stdin"
    path.write_bytes(b"a\n\nbcd\nlast")

    index = RecordIndex(str(path), "text")

    assert len(index) == 4
    assert [index.read(n, n + 1) for n in range(4)] == [b"a\n", b"\n", b"bcd\n", b"last"]
    assert b"".join(index.blobs(1, 3)) == b"\nbcd\n"


def test_raw_records_are_found_again_too(tmp_path: Path) -> None:
    one = struct.pack(">i", 1) + b"k" + struct.pack(">i", 2) + b"vv"
    path = tmp_path / "stdin"
    path.write_bytes(one * 3)

    index = RecordIndex(str(path), "rawbytes")

    assert len(index) == 3
    assert index.read(1, 2) == one


@given(
    st.lists(st.binary(max_size=5).map(lambda b: b.replace(b"\n", b"") + b"\n"), max_size=30),
    st.lists(st.integers(0, 30), max_size=4, unique=True),
    st.integers(1, 7),
)
def test_lines_are_left_out_by_number(lines: list[bytes], cuts: list[int], size: int) -> None:
    cuts.sort()
    ranges = list(zip(cuts[::2], cuts[1::2], strict=False))
    blobs = [b"".join(lines[at : at + size]) for at in range(0, len(lines), size)]

    kept = b"".join(without(blobs, ranges))

    skipped = {n for first, behind in ranges for n in range(first, behind)}
    assert kept == b"".join(line for n, line in enumerate(lines) if n not in skipped)


@pytest.mark.parametrize("identifier", ["text", "rawbytes"])
def test_an_empty_input_has_no_records(tmp_path: Path, identifier: str) -> None:
    path = tmp_path / "stdin"
    path.write_bytes(b"")

    assert len(RecordIndex(str(path), identifier)) == 0
