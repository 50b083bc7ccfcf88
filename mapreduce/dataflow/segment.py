"""Between stages 5 and 8: the file of one map's output (docs/formats/segment.md).

`Writer` takes blocks of framed records, partition by partition, and gives a file with an
index; `Reader` gives them back, verified. `blocks_of` verifies a partition that came from
elsewhere. Never sorts, and never looks into a record.

D1: within a partition a segment is in comparator order. The kernel asserts it where it
makes a block and again where it reads one: `sort_buffer` and `merger` are the only makers.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import msgspec

from mrstream.cluster.closing import Closing
from mrstream.cluster.errors import Corrupt, NewerFormat
from mrstream.mapreduce.dataflow import block_codec
from mrstream.mapreduce.dataflow.block_codec import BlockCodec
from mrstream.mapreduce.dataflow.kernel import crc32c

MAGIC = b"MRSG"
FOOTER_MAGIC = b"MRSI"
VERSION = 1

_HEADER = struct.Struct("<4sB3sI")
_BLOCK = struct.Struct("<IIIB3sQQ")
_ENTRY = struct.Struct("<QQQQQ")
_FOOTER = struct.Struct("<QII4s")
_ZEROS = b"\0\0\0"
# A length that fails its CRC is found only after the read: this bounds what one bad length costs.
_READ_BYTES_MAX = 1 << 34
# For headers and small blocks; of a large one no more than this is copied.
_BUFFER_BYTES = 1 << 13


Raw = bytes | memoryview
"""Bytes as they come: a view where they lie in memory already."""


class SegmentCorrupt(Corrupt):
    """A segment's bytes are not what its writer wrote: fetch again, or run its map again."""


class PartitionEntry(msgspec.Struct, frozen=True):
    """Where a partition lies in the file, and how much it is."""

    offset: int
    length: int
    records: int
    raw_bytes: int
    hadoop_bytes: int


class Block(msgspec.Struct, frozen=True):
    """Whole framed records of one partition, in order."""

    partition: int
    records: int
    hadoop_bytes: int
    payload: Raw


class Writer:
    """Writes a segment: append blocks in partition order, then `finish`.

    The file is whole only after `finish`; what was left by a writer that did not get there is
    refused by every reader, for it has no footer.
    """

    def __init__(self, path: str, partitions: int, codec: BlockCodec = block_codec.NONE) -> None:
        self._partitions = partitions
        self._codec = codec
        self._entries: list[PartitionEntry] = []
        # Open until `finish` or `abort`, whichever method comes.
        self._file: IO[bytes] = open(path, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        head = MAGIC + bytes([VERSION]) + _ZEROS
        self._file.write(head + struct.pack("<I", crc32c(head)))
        self._offset = self._start = _HEADER.size
        self._partition = 0
        self._records = self._raw_bytes = self._hadoop_bytes = 0

    def append(self, block: Block) -> None:
        """Write a block; its partition is the last one's or a later one."""
        assert self._partition <= block.partition < self._partitions, (
            f"partition {block.partition} behind {self._partition} of {self._partitions}"
        )
        while self._partition < block.partition:
            self._close_partition()
        payload = self._codec.compress(block.payload)
        head = _BLOCK.pack(
            0,
            block.partition,
            block.records,
            self._codec.number,
            _ZEROS,
            len(payload),
            len(block.payload),
        )[4:]
        self._file.write(struct.pack("<I", crc32c(payload, crc32c(head))) + head)
        self._file.write(payload)
        self._offset += _BLOCK.size + len(payload)
        self._records += block.records
        self._raw_bytes += len(block.payload)
        self._hadoop_bytes += block.hadoop_bytes

    def finish(self) -> tuple[PartitionEntry, ...]:
        """Write the index and close the file; return where each partition lies."""
        while self._partition < self._partitions:
            self._close_partition()
        index = b"".join(
            _ENTRY.pack(e.offset, e.length, e.records, e.raw_bytes, e.hadoop_bytes)
            for e in self._entries
        )
        tail = struct.pack("<QI", self._offset, self._partitions)
        self._file.write(index + tail)
        self._file.write(struct.pack("<I", crc32c(tail, crc32c(index))) + FOOTER_MAGIC)
        self._file.close()
        return tuple(self._entries)

    def abort(self) -> None:
        """Close the file as it is: no reader will take it."""
        self._file.close()

    def _close_partition(self) -> None:
        length = self._offset - self._start
        self._entries.append(
            PartitionEntry(
                self._start,
                length,
                self._records,
                self._raw_bytes,
                # Packed by Hadoop it would be as large as it packs here, more or less.
                self._hadoop_bytes if self._codec is block_codec.NONE else length,
            )
        )
        self._start = self._offset
        self._records = self._raw_bytes = self._hadoop_bytes = 0
        self._partition += 1


class Reader(Closing):
    """Reads a segment file: its index at once, its blocks as they are asked for."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.entries = _read_index(self._fd, path)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def partitions(self) -> int:
        return len(self.entries)

    def run(self, partition: int) -> Iterator[Raw]:
        """Return the verified raw blocks of a partition, in order."""
        entry = self.entries[partition]
        position = entry.offset

        def read(size: int) -> bytes:
            nonlocal position
            data = os.pread(self._fd, size, position)
            position += len(data)
            return data

        return blocks_of(read, entry.length, partition, entry.records, self.path)

    def close(self) -> None:
        """Close the file; runs that are still open fail."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def blocks_of(
    read: Callable[[int], Raw], length: int, partition: int, records: int, source: str
) -> Iterator[Raw]:
    """Yield the verified raw blocks of a partition's `length` bytes; `read` gives up to n of them.

    `source` (a path, or host and map) goes into the message of what is found corrupt.
    """
    left = length
    while left > 0:
        what = f"segment {source}, partition {partition}, {left} bytes before its end"
        # Nothing here may keep a block: it can be as large as the largest record.
        taken, block_records, block = _read_block(read, left, partition, what)
        left -= taken
        records -= block_records
        yield block
        del block
    if records != 0:
        raise SegmentCorrupt(
            f"segment {source}, partition {partition}: {abs(records)} records "
            f"{'missing' if records > 0 else 'too many'}"
        )


def _read_block(
    read: Callable[[int], Raw], left: int, partition: int, what: str
) -> tuple[int, int, Raw]:
    """Return (bytes read, records, raw block) of the next block, verified."""
    head = _read_exactly(read, min(left, _BLOCK.size), what)
    if len(head) < _BLOCK.size:
        raise SegmentCorrupt(f"{what}: a block header needs {_BLOCK.size} bytes")
    crc, of_partition, records, codec, zeros, stored, raw = _BLOCK.unpack(head)
    if stored > left - _BLOCK.size:
        raise SegmentCorrupt(f"{what}: a block of {stored} bytes, but only {left} are left")
    payload = _read_exactly(read, stored, what)
    found = crc32c(payload, crc32c(head[4:]))
    if found != crc:
        raise SegmentCorrupt(f"{what}: block has crc {found:#010x}, expected {crc:#010x}")
    if of_partition != partition or zeros != _ZEROS:
        raise SegmentCorrupt(f"{what}: block is of partition {of_partition}")
    return _BLOCK.size + stored, records, _unpack(codec, payload, raw, what)


def _unpack(codec: int, payload: Raw, raw_bytes: int, what: str) -> Raw:
    try:
        block = block_codec.by_number(codec).decompress(payload, raw_bytes)
    except Exception as error:  # each codec has its own exceptions for one meaning: bad bytes
        raise SegmentCorrupt(f"{what}: codec {codec} cannot unpack the block: {error}") from error
    if len(block) != raw_bytes:
        raise SegmentCorrupt(f"{what}: block has {len(block)} bytes, expected {raw_bytes}")
    return block


def _read_exactly(read: Callable[[int], Raw], size: int, what: str) -> Raw:
    if size > _READ_BYTES_MAX:
        raise SegmentCorrupt(f"{what}: a block of {size} bytes; at most {_READ_BYTES_MAX} exist")
    data = read(size)
    if len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing > 0 and data:
        data = read(missing)
        parts.append(data)
        missing -= len(data)
    if missing > 0:
        raise SegmentCorrupt(f"{what}: the bytes end {missing} too early")
    return b"".join(parts)


def _read_index(fd: int, path: str) -> Sequence[PartitionEntry]:
    size = os.fstat(fd).st_size
    if size < _HEADER.size + _FOOTER.size:
        raise SegmentCorrupt(f"segment {path}: {size} bytes are too few for any segment")
    _check_header(os.pread(fd, _HEADER.size, 0), path)
    footer = os.pread(fd, _FOOTER.size, size - _FOOTER.size)
    index_offset, partitions, crc, magic = _FOOTER.unpack(footer)
    if magic != FOOTER_MAGIC:
        raise SegmentCorrupt(f"segment {path}: ends with {magic!r}, expected {FOOTER_MAGIC!r}")
    index_bytes = partitions * _ENTRY.size
    if index_offset + index_bytes + _FOOTER.size != size:
        raise SegmentCorrupt(
            f"segment {path}: index of {partitions} partitions at {index_offset} "
            f"does not end at {size - _FOOTER.size}"
        )
    index = os.pread(fd, index_bytes, index_offset)
    found = crc32c(footer[:12], crc32c(index))
    if found != crc:
        raise SegmentCorrupt(f"segment {path}: index has crc {found:#010x}, expected {crc:#010x}")
    return tuple(PartitionEntry(*fields) for fields in _ENTRY.iter_unpack(index))


def _check_header(header: bytes, path: str) -> None:
    magic, version, _, crc = _HEADER.unpack(header)
    found = crc32c(header[:8])
    if magic != MAGIC or found != crc:
        raise SegmentCorrupt(f"segment {path}: header {header.hex()} is none, or fails its crc")
    if version != VERSION:
        raise NewerFormat(f"segment {path}: version {version}; this mrstream reads {VERSION}")
