"""For all bytes and all split sizes: every line is in exactly one split (spec 3.2)."""

from __future__ import annotations

import bz2
import itertools
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.split_plan import Piece, Split, plan_splits
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.text_lines import LineCounter, RecordBytes, records, to_lines
from tests.support.examples import examples

_bytes = st.lists(st.sampled_from([b"a", b"b", b"\r", b"\n", b"\r\n", b"\0", b"\xff", b";"])).map(
    b"".join
)
_borders = st.lists(st.floats(0, 1), max_size=5)
_delimiters = st.one_of(
    st.sampled_from([b";", b"ab", b"a\nb", b"aab"]),
    st.text("ab;\r\n", min_size=1, max_size=4).map(str.encode),
)


def lines_of(data: bytes) -> list[bytes]:
    """The oracle: what Python calls lines of bytes is what spec 4.1 calls lines."""
    return [line.rstrip(b"\r\n") for line in data.splitlines(keepends=True)]


def records_of(data: bytes, delimiter: bytes) -> list[bytes]:
    """The oracle for a delimiter of the job's own: an empty rest is no record."""
    parts = data.split(delimiter)
    return parts if parts[-1] else parts[:-1]


def overlaps_itself(delimiter: bytes) -> bool:
    """Whether one can begin within another: `;;` can, in `;;;`."""
    return any(delimiter[:n] == delimiter[-n:] for n in range(1, len(delimiter)))


def hadoop_records(data: bytes, start: int, end: int, delimiter: bytes) -> list[bytes]:
    """What LineRecordReader gives for a split: records that begin up to its end, and one more if
    the end lies within a delimiter, for the next split will not know it."""
    position, need_one_more = 0, False
    if start > 0:
        skipped = data.find(delimiter, start)
        if skipped < 0:
            return []
        position = skipped + len(delimiter)
        need_one_more = skipped < end < position
    found: list[bytes] = []
    while position < len(data) and (position <= end or need_one_more):
        record, mark, _ = data[position:].partition(delimiter)
        found.append(record)
        if need_one_more or not mark:
            break
        at = position + len(record)
        position = at + len(delimiter)
        need_one_more = at < end < position
    return found


def edges_of(borders: list[float], length: int) -> list[tuple[int, int]]:
    """Ranges that cover a file, none of them empty."""
    edges = sorted({0, length, *(int(border * length) for border in borders)})
    return list(itertools.pairwise(edges))


def blobs(data: bytes, size: int) -> list[bytes]:
    """Bytes as a file gives them: in reads of some size."""
    return [data[at : at + size] for at in range(0, len(data), size)]


@settings(max_examples=examples(70), deadline=None)
@given(
    data=_bytes,
    borders=_borders,
    size=st.integers(1, 9),
    delimiter=st.one_of(st.none(), _delimiters.filter(lambda one: not overlaps_itself(one))),
)
def test_every_record_is_in_exactly_one_piece(
    data: bytes, borders: list[float], size: int, delimiter: bytes | None
) -> None:
    """Spec 3.2: a line that starts at p belongs to the piece with start < p <= end."""
    expected = lines_of(data) if delimiter is None else records_of(data, delimiter)

    written, found, count = b"", [], 0
    for start, end in edges_of(borders, len(data)):
        counter = LineCounter()
        owned = RecordBytes(blobs(data[start:], size), start, end, delimiter)
        written += b"".join(to_lines(owned, counter, delimiter))
        count += counter.records
        owned = RecordBytes(blobs(data[start:], size), start, end, delimiter)
        mine = b"".join(owned)
        for offset, record, length in records(blobs(mine, size), owned.first, delimiter):
            assert data[offset : offset + len(record)] == record
            assert length >= len(record)
            found.append(record)

    assert written == b"".join(record + b"\n" for record in expected)
    assert found == expected
    assert count == len(expected)


@settings(max_examples=examples(70), deadline=None)
@given(data=_bytes, borders=_borders, size=st.integers(1, 9), delimiter=_delimiters)
def test_a_piece_has_the_records_that_hadoop_gives_it(
    data: bytes, borders: list[float], size: int, delimiter: bytes
) -> None:
    """Spec 3.2: also where the delimiter overlaps itself, and Hadoop's splits do not agree."""
    for start, end in edges_of(borders, len(data)):
        owned = RecordBytes(blobs(data[start:], size), start, end, delimiter)
        written = b"".join(to_lines(owned, LineCounter(), delimiter))

        expected = hadoop_records(data, start, end, delimiter)
        assert written == b"".join(record + b"\n" for record in expected)


@settings(max_examples=examples(25), deadline=None)
@given(data=_bytes, block=st.integers(1, 40), maps=st.integers(1, 5))
def test_planned_splits_together_read_every_line_once(data: bytes, block: int, maps: int) -> None:
    """Spec 3.2, end to end: plan, open and read, through real files."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "f").write_bytes(data)
        conf = JobConf({"fs.local.block.size": str(block), "mapreduce.job.maps": str(maps)})
        files = RoutedFiles("file:///", directory)

        plan = plan_splits(conf, ["f"], files)
        by_start = sorted(plan.splits, key=lambda split: split.pieces[0].start)
        readers = [SplitReader(split, conf, files) for split in by_start]
        text = b"".join(b"".join(reader) for reader in readers)

    assert text == b"".join(line + b"\n" for line in lines_of(data))
    assert sum(reader.records for reader in readers) == len(lines_of(data))
    assert [split.index for split in plan.splits] == list(range(len(plan.splits)))
    assert sum(split.length for split in plan.splits) == len(data)


@settings(max_examples=examples(15), deadline=None)
@given(
    line=st.sampled_from(
        [b"x" * 900 + b"%d", b"%d\r", b"%d" + b"\n" * 3, b"%d" + b"long" * 20_000]
    ),
    borders=_borders,
)
def test_splits_of_one_bzip2_file_together_read_every_line_once(
    line: bytes, borders: list[float]
) -> None:
    """Spec 3.3: lines may begin in one block and end in another, or span several."""
    plain = b"\n".join(line.replace(b"%d", b"%d" % number) for number in range(120))
    compressed = bz2.compress(plain, 1)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "f.bz2").write_bytes(compressed)
        files = RoutedFiles("file:///", directory)
        url = files.qualify("f.bz2")

        text, count = b"", 0
        for start, end in edges_of(borders, len(compressed)):
            split = Split(0, "TEXT", (Piece(url, start, end - start),))
            reader = SplitReader(split, JobConf({}), files)
            text += b"".join(reader)
            count += reader.records

    assert text == b"".join(one + b"\n" for one in lines_of(plain))
    assert count == len(lines_of(plain))
