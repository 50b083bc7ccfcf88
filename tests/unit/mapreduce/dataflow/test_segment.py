"""The segment file: what is written is read back, and a change of any bit is found."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from crc32c import crc32c

from mrstream.cluster.errors import NewerFormat
from mrstream.mapreduce.dataflow import block_codec, kernel, segment
from mrstream.mapreduce.dataflow.segment import Block, SegmentCorrupt
from mrstream.mapreduce.dataflow.sort_buffer import SortBuffer, SortPlan

CODECS = ["none", "zlib", "lz4", "zstd", "snappy", "bzip2"]


def write(path: Path, codec: str = "none") -> list[Block]:
    """Write three partitions, the middle one empty, the last with two blocks."""
    blocks = [
        Block(0, 2, 13, kernel.encode_records([(b"a", b"1"), (b"b", b"")])),
        Block(2, 1, 9, kernel.encode_records([(b"k", b"v" * 300)])),
        Block(2, 1, 9, kernel.encode_records([(b"z", b"")])),
    ]
    writer = segment.Writer(str(path), 3, block_codec.by_name(codec))
    for block in blocks:
        writer.append(block)
    writer.finish()
    return blocks


def read_all(path: Path) -> list[list[bytes]]:
    with segment.Reader(str(path)) as reader:
        return [list(reader.run(p)) for p in range(reader.partitions)]


@pytest.mark.parametrize("codec", CODECS)
def test_blocks_come_back_as_they_were_written(tmp_path: Path, codec: str) -> None:
    """docs/formats/segment.md, with every codec."""
    blocks = write(tmp_path / "s", codec)

    runs = read_all(tmp_path / "s")

    assert runs == [[blocks[0].payload], [], [blocks[1].payload, blocks[2].payload]]


def test_the_example_of_the_format_page_is_what_is_written(tmp_path: Path) -> None:
    """docs/formats/segment.md, "Example"."""
    path = tmp_path / "s"
    buffer = SortBuffer(SortPlan(1), 4096)
    assert buffer.add(b"a", b"1") and buffer.add(b"b", b"")
    writer = segment.Writer(str(path), 1)
    for block in buffer.runs():
        writer.append(block)

    entries = writer.finish()

    assert entries == (segment.PartitionEntry(12, 39, 2, 7, 11),)
    data = path.read_bytes()
    assert len(data) == 111
    assert data[:4] == b"MRSG"
    assert data[44:51] == bytes.fromhex("01016131010062")
    assert data[-4:] == b"MRSI"


def test_a_header_with_something_in_its_zeros_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    write(path)
    good = path.read_bytes()
    head = good[:5] + b"\0\1\0"

    path.write_bytes(head + crc32c(head).to_bytes(4, "little") + good[12:])

    with pytest.raises(SegmentCorrupt, match="is none"):
        read_all(path)


@pytest.mark.parametrize("codec", CODECS)
def test_a_flipped_bit_is_always_found(tmp_path: Path, codec: str) -> None:
    """Every byte of the file is under a checksum."""
    path = tmp_path / "s"
    write(path, codec)
    good = path.read_bytes()

    for position in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            path.write_bytes(bad)
            with pytest.raises(SegmentCorrupt):
                read_all(path)


def test_a_file_that_was_not_finished_is_refused(tmp_path: Path) -> None:
    """At every length but the full one."""
    path = tmp_path / "s"
    write(path)
    good = path.read_bytes()

    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(SegmentCorrupt):
            read_all(path)


def test_a_newer_version_is_refused_by_its_number(tmp_path: Path) -> None:
    """A version byte from the first day."""
    path = tmp_path / "s"
    write(path)
    data = bytearray(path.read_bytes())
    data[4] = 2
    data[8:12] = kernel.crc32c(bytes(data[:8])).to_bytes(4, "little")
    path.write_bytes(data)

    with pytest.raises(NewerFormat, match="version 2"):
        segment.Reader(str(path))


def test_a_partition_that_came_from_elsewhere_is_verified(tmp_path: Path) -> None:
    """The receiver needs the bytes, the partition and the number of records, nothing else."""
    path = tmp_path / "s"
    blocks = write(path)
    with segment.Reader(str(path)) as reader:
        entry = reader.entries[2]
    data = path.read_bytes()[entry.offset : entry.offset + entry.length]

    def run(data: bytes, partition: int = 2, records: int = 2) -> list[bytes]:
        rest = [data]

        def read(size: int) -> bytes:
            # As a socket does: less than was asked for.
            part, rest[0] = rest[0][: min(size, 7)], rest[0][min(size, 7) :]
            return part

        return list(segment.blocks_of(read, entry.length, partition, records, "host h2, map 4"))

    assert run(data) == [blocks[1].payload, blocks[2].payload]
    with pytest.raises(SegmentCorrupt, match=r"host h2, map 4.*end .* too early"):
        run(data[:-1])
    with pytest.raises(SegmentCorrupt, match="of partition 2"):
        run(data, partition=1)
    with pytest.raises(SegmentCorrupt, match="1 records missing"):
        run(data, records=3)


def test_partitions_are_written_in_order(tmp_path: Path) -> None:
    """The index names one range a partition."""
    writer = segment.Writer(str(tmp_path / "s"), 3)
    writer.append(Block(1, 1, 9, b"\x01\x00a"))

    with pytest.raises(AssertionError):
        writer.append(Block(0, 1, 9, b"\x01\x00a"))
    writer.abort()


def test_a_reader_of_a_bad_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """A worker lives long."""
    path = tmp_path / "s"
    path.write_bytes(b"x" * 100)
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(SegmentCorrupt):
        segment.Reader(str(path))

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("length", [0, 1, 7, 8, 63, 4096, 24_576, 24_577, 1_000_003])
def test_the_kernel_sums_as_the_package_of_the_dfs_does(length: int) -> None:
    """CRC32C is there twice: in C for segments, as a package for chunks and journals."""
    data = random.Random(length).randbytes(length)
    half = length // 2

    assert kernel.crc32c(data) == crc32c(data)
    assert kernel.crc32c(data[half:], kernel.crc32c(data[:half])) == crc32c(data)
