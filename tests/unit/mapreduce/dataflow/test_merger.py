"""Runs into one stream: any number of them, in passes, ties in the order of the maps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.mapreduce.dataflow import kernel, merger
from mrstream.mapreduce.dataflow.record_form import FRAMED_FORM, Side, WireForm, text_form
from mrstream.mapreduce.dataflow.segment import SegmentCorrupt
from mrstream.streaming.records.comparator import BYTE_ORDER


def runs_of(lists: list[list[tuple[bytes, bytes]]]) -> list[merger.Run]:
    def run(records: list[tuple[bytes, bytes]]) -> merger.Run:
        return lambda: iter([kernel.encode_records(records)] if records else [])

    return [run(records) for records in lists]


@pytest.mark.parametrize("runs", [0, 1, 2, 7, 64, 65, 200])
@pytest.mark.parametrize("width_max", [2, 3, 10, 64])
def test_equal_keys_come_by_map_number_then_emission(
    tmp_path: Path, runs: int, width_max: int
) -> None:
    """Early merges join only runs of adjacent maps, so passes change nothing."""
    lists = [[(b"k%d" % (i // 3), b"%d.%d" % (run, i)) for i in range(9)] for run in range(runs)]

    merged = merger.merge(
        runs_of(lists), BYTE_ORDER, FRAMED_FORM, width_max=width_max, scratch=str(tmp_path)
    )
    records = [r for _, blob in merged.blobs() for r in kernel.decode_records(blob)]

    expected = sorted((r for records in lists for r in records), key=lambda record: record[0])
    assert records == expected
    assert (merged.records, merged.groups) == (9 * runs, 3 if runs else 0)
    assert os.listdir(tmp_path) == []


def test_a_pass_joins_no_more_runs_than_it_must(tmp_path: Path) -> None:
    """11 runs at width 10: two are joined, nine are read once."""
    opened = []

    def run(number: int) -> merger.Run:
        def open_run() -> Iterator[bytes]:
            opened.append(number)
            return iter([kernel.encode_records([(b"%02d" % number, b"")])])

        return open_run

    merged = merger.merge(
        [run(i) for i in range(11)],
        BYTE_ORDER,
        text_form(b"\t"),
        width_max=10,
        scratch=str(tmp_path),
    )
    assert opened == [0, 1]
    text = b"".join(blob for _, blob in merged.blobs())

    assert text == b"".join(b"%02d\t\n" % i for i in range(11))
    assert opened == list(range(11))


def test_the_key_to_blame_is_known(tmp_path: Path) -> None:
    """For the closing report: which key has the most records."""
    lists = [[(b"a", b""), (b"b", b"")], [(b"b", b""), (b"b", b""), (b"c", b"")]]
    merged = merger.merge(runs_of(lists), BYTE_ORDER, FRAMED_FORM, scratch=str(tmp_path))

    list(merged.blobs())

    assert merged.largest_group == (b"b", 3)


def test_records_are_written_as_the_command_reads_them(tmp_path: Path) -> None:
    """Spec 4.3, 9: text, key-only text, raw bytes."""
    lists = [[(b"a", b"1"), (b"b", b"")]]

    def text(form: merger.WireForm) -> bytes:
        merged = merger.merge(runs_of(lists), BYTE_ORDER, form, scratch=str(tmp_path))
        return b"".join(blob for _, blob in merged.blobs())

    assert text(text_form(b"::")) == b"a::1\nb::\n"
    assert text(WireForm(separator=b"", value=Side.NOTHING)) == b"a\nb\n"
    assert (
        text(WireForm(Side.SIZED, b"", Side.SIZED, b"")) == b"\0\0\0\1a\0\0\0\x011\0\0\0\1b\0\0\0\0"
    )


def test_a_run_that_is_not_in_order_is_corrupt(tmp_path: Path) -> None:
    """D1 is asserted on read."""
    merged = merger.merge(
        runs_of([[(b"b", b""), (b"a", b"")]]), BYTE_ORDER, FRAMED_FORM, scratch=str(tmp_path)
    )

    with pytest.raises(SegmentCorrupt, match="D1"):
        list(merged.blobs())


def test_a_block_that_ends_inside_a_record_is_corrupt(tmp_path: Path) -> None:
    """Whatever its checksum says."""
    merged = merger.merge(
        [lambda: iter([b"\x05\x05ab"])], BYTE_ORDER, FRAMED_FORM, scratch=str(tmp_path)
    )

    with pytest.raises(SegmentCorrupt, match=r"inside (a|the) record"):
        list(merged.blobs())


def test_blobs_are_about_as_large_as_asked_and_hold_whole_records(tmp_path: Path) -> None:
    """One write to a pipe each."""
    records = [(b"%05d" % i, b"x" * (i % 50)) for i in range(1000)] + [(b"z", b"y" * 5000)]
    merged = merger.merge(runs_of([records]), BYTE_ORDER, text_form(b"\t"), scratch=str(tmp_path))

    blobs = list(merged.blobs(1000))

    assert all(blob.endswith(b"\n") for _, blob in blobs)
    assert all(800 < len(blob) <= 1000 for _, blob in blobs[:-2])
    assert len(blobs[-1][1]) == 5003
    assert sum(count for count, _ in blobs) == 1001


def test_a_record_larger_than_a_blob_comes_whole_or_in_pieces_but_is_counted_once(
    tmp_path: Path,
) -> None:
    """A 100 MB line is not copied to be given to a reducer."""
    records = [(b"a", b"1"), (b"k" * 200_000, b"v" * 300_000), (b"z", b"2")]
    merged = merger.merge(runs_of([records]), BYTE_ORDER, text_form(b"\t"), scratch=str(tmp_path))

    blobs = list(merged.blobs(1 << 16))

    expected = b"".join(key + b"\t" + value + b"\n" for key, value in records)
    assert b"".join(blob for _, blob in blobs) == expected
    assert (sum(count for count, _ in blobs), merged.records, merged.groups) == (3, 3, 3)
    if kernel.IS_NATIVE:
        assert max(len(blob) for _, blob in blobs) == 1 << 16
