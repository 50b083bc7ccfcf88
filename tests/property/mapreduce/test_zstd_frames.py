"""For all seekable zstd files and all split sizes: every line is in exactly one split."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.cluster.errors import Corrupt
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.split_plan import Split, plan_splits
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming.conf.jobconf import JobConf
from tests.support import row_files
from tests.support.examples import examples

_texts = st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r\n", b"line\n"]), max_size=8).map(
    b"".join
)


def seekable(plain: list[bytes], *, checksums: bool = False) -> bytes:
    """A file of these frames, with its table, as the format's specification has it."""
    compressor = zstandard.ZstdCompressor()
    frames = [compressor.compress(text) for text in plain]
    entries = b"".join(
        struct.pack("<II", len(frame), len(text)) + bytes(4 * checksums)
        for frame, text in zip(frames, plain, strict=True)
    )
    footer = struct.pack("<IBI", len(frames), 0x80 * checksums, 0x8F92EAB1)
    head = struct.pack("<II", 0x184D2A5E, len(entries) + len(footer))
    return b"".join([*frames, head, entries, footer])


def lines(path: Path, cuts: list[float]) -> list[bytes]:
    found: list[bytes] = []
    for index, piece in enumerate(row_files.pieces_of(path, cuts)):
        split = Split(index, "TEXT", (piece,))
        found += b"".join(SplitReader(split, JobConf({}), RoutedFiles("file:///"))).splitlines()
    return found


@settings(max_examples=examples(70), deadline=None)
@given(st.lists(_texts, max_size=6), st.booleans(), row_files.borders)
def test_every_line_is_in_exactly_one_split(
    plain: list[bytes], checksums: bool, cuts: list[float]
) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "f.zst"
        path.write_bytes(seekable(plain, checksums=checksums))

        assert lines(path, cuts) == b"".join(plain).splitlines()


def test_only_a_file_with_a_table_is_cut(tmp_path: Path) -> None:
    texts = [b"%05d\n" % n * 200 for n in range(20)]
    (tmp_path / "table.zst").write_bytes(seekable(texts))
    (tmp_path / "plain.zst").write_bytes(zstandard.ZstdCompressor().compress(b"".join(texts)) * 9)
    conf = JobConf({"fs.local.block.size": "100"})

    counts = [
        len(plan_splits(conf, [str(tmp_path / name)], RoutedFiles("file:///")).splits)
        for name in ("table.zst", "plain.zst")
    ]

    assert counts[0] > 3 and counts[1] == 1


@settings(max_examples=examples(35), deadline=None)
@given(st.data())
def test_a_damaged_file_is_one_line_or_lines(data: st.DataObject) -> None:
    good = bytearray(seekable([b"one\ntwo\n", b"three\n" * 50, b"four"]))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "damaged.zst"
        path.write_bytes(good[: data.draw(st.integers(0, len(good)))])
        try:
            lines(path, [0.4])
        except Corrupt as error:
            assert "\n" not in str(error) and "damaged.zst" in str(error)


def test_a_table_that_lies_is_refused(tmp_path: Path) -> None:
    data = bytearray(seekable([b"one\n" * 100, b"two\n" * 100]))
    data[-9 - 16] ^= 1  # the length of the first frame
    (tmp_path / "f.zst").write_bytes(data)

    with pytest.raises(Corrupt, match="its table says"):
        lines(tmp_path / "f.zst", [0.5])
