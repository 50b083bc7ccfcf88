"""Sequence files, version 6: records of two Writables, plain, or with values or whole blocks
compressed.

The layout is in docs/formats/sequence-file.md. The reader takes an open file and a range and
gives the records that belong to it: the runs between sync marks whose mark begins in the range.
The writer is given a function that takes bytes. Neither knows where files live.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

from mrstream.cluster.errors import Corrupt
from mrstream.streaming.formats.codec import DEFAULT_CODEC, Codec, codec_by_class
from mrstream.streaming.formats.writable import (
    BYTES,
    TEXT,
    WritableCorrupt,
    WritableType,
    read_vlong,
    writable_type,
    write_vlong,
)

MAGIC = b"SEQ"
VERSION = 6
VERSION_MIN = 4
SYNC_BYTES = 16
SYNC_ESCAPE = b"\xff\xff\xff\xff"
# Hadoop 3 puts a sync mark at every 100 KB, and closes a block at 1 MB.
SYNC_INTERVAL_BYTES = 102_400
BLOCK_BYTES = 1_000_000
_READ_BYTES = 1024 * 1024
# No Hadoop writes a larger record; a length above it is damage, not a reason to allocate.
_RECORD_BYTES_MAX = 2**31 - 1


class SequenceFileCorrupt(Corrupt):
    """The file is not a sequence file, or ends inside a record."""


class _Input:
    """Exact reads with a position, over a file that may give less than asked."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""
        self._index = 0
        self.position = 0
        self.bytes_read = 0

    def seek(self, position: int) -> None:
        self._file.seek(position)
        self._buffer, self._index, self.position = b"", 0, position

    def more(self) -> bool:
        """Whether there is another byte."""
        return self._index < len(self._buffer) or self._fill()

    def take(self, count: int) -> bytes:
        """Return exactly `count` bytes."""
        end = self._index + count
        if end <= len(self._buffer):
            data = self._buffer[self._index : end]
            self._index = end
        else:
            data = self._take_more(count)
        self.position += count
        return data

    def _take_more(self, count: int) -> bytes:
        parts: list[bytes] = []
        missing = count
        while missing:
            if not self.more():
                raise SequenceFileCorrupt(
                    f"cut off: {missing} more bytes expected after byte {self.position}"
                )
            part = self._buffer[self._index : self._index + missing]
            self._index += len(part)
            missing -= len(part)
            parts.append(part)
        return b"".join(parts)

    def take_vlong(self) -> int:
        first = self.take(1)
        size = _vlong_size(first[0])
        return read_vlong(first + self.take(size - 1) if size > 1 else first, 0)[0]

    def take_int(self) -> int:
        value: int = struct.unpack(">i", self.take(4))[0]
        return value

    def find(self, needle: bytes) -> bool:
        """Move to just after the next `needle`; False if the file ends before one."""
        held = b""
        while self.more():
            chunk = held + self._buffer[self._index :]
            found = chunk.find(needle)
            if found >= 0:
                self.seek(self.position - len(held) + found + len(needle))
                return True
            self.position += len(self._buffer) - self._index
            self._index = len(self._buffer)
            held = chunk[-(len(needle) - 1) :]
        return False

    def _fill(self) -> bool:
        self._buffer, self._index = self._file.read(_READ_BYTES), 0
        self.bytes_read += len(self._buffer)
        return bool(self._buffer)


def _vlong_size(first: int) -> int:
    if first <= 127 or first >= 144:
        return 1
    return 1 + (144 - first if first >= 136 else 136 - first)


class SequenceFileReader:
    """The records of one range of a sequence file, as (key payload, value payload).

    With `raw` keys and values stay serialised (SequenceFileAsBinaryInputFormat); with `as_text`
    both are what toString gives (SequenceFileAsTextInputFormat).
    """

    def __init__(
        self,
        file: BinaryIO,
        start: int = 0,
        end: int | None = None,
        *,
        raw: bool = False,
        as_text: bool = False,
    ) -> None:
        self._input = _Input(file)
        self._start = start
        self._end = end
        self._file_types = self._read_header()
        self.key_type, self.value_type = self._file_types
        self._raw = raw
        self._as_text = as_text
        if raw:
            self.key_type = self.value_type = BYTES
        elif as_text:
            self.key_type = self.value_type = TEXT

    @property
    def position(self) -> int:
        """The byte after the last record that was given."""
        return self._input.position

    @property
    def bytes_read(self) -> int:
        """Bytes taken from the file, read-ahead included."""
        return self._input.bytes_read

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        convert_key, convert_value = map(self._converter, self._file_types)
        records = self._blocks() if self._is_block else self._records()
        for key, value in records:
            yield convert_key(key), convert_value(value)

    def _converter(self, kind: WritableType) -> Callable[[bytes], bytes]:
        if self._raw:
            return lambda serialised: serialised
        if self._as_text:
            return lambda serialised: kind.to_string(kind.parse(serialised))
        return kind.parse

    def _read_header(self) -> tuple[WritableType, WritableType]:
        """Read the header; return the types of keys and values."""
        magic = self._input.take(4)
        if magic[:3] != MAGIC:
            raise SequenceFileCorrupt(f"not a SequenceFile: it begins with {magic.hex(' ')}")
        version = magic[3]
        if not VERSION_MIN <= version <= VERSION:
            raise SequenceFileCorrupt(
                f"SequenceFile version {version}; versions {VERSION_MIN} to {VERSION} are known"
            )
        types = writable_type(self._class_name()), writable_type(self._class_name())
        compressed = self._input.take(1) != b"\0"
        self._is_block = self._input.take(1) != b"\0"
        self._codec: Codec | None = None
        if compressed:
            self._codec = codec_by_class(self._class_name()) if version >= 5 else DEFAULT_CODEC
        self.metadata: dict[str, str] = {}
        if version >= 6:
            for _ in range(self._input.take_int()):
                key = self._class_name()
                self.metadata[key] = self._class_name()
        self._sync = self._input.take(SYNC_BYTES)
        self._header_end = self._input.position
        return types

    def _class_name(self) -> str:
        length = self._input.take_vlong()
        if not 0 <= length <= 65_535:
            raise SequenceFileCorrupt(f"a name in the header has length {length}")
        return self._input.take(length).decode("utf-8", "replace")

    def _begin(self) -> bool:
        """Go to the first run of the range; False if there is none."""
        if self._start == 0:
            return True
        self._input.seek(max(self._start, self._header_end) + len(SYNC_ESCAPE))
        if not self._input.find(self._sync):
            return False
        # Back to the mark itself: the loop that reads decides whether it is still ours.
        self._input.seek(self._input.position - SYNC_BYTES - len(SYNC_ESCAPE))
        return True

    def _next_length(self) -> int | None:
        """Read up to the next record's length; None at the end of the file or of the range."""
        while self._input.more():
            mark_at = self._input.position
            length = self._input.take_int()
            if length != -1:
                return length
            if self._end is not None and mark_at >= self._end:
                return None
            self._check_sync()
        return None

    def _check_sync(self) -> None:
        if self._input.take(SYNC_BYTES) != self._sync:
            raise SequenceFileCorrupt(
                f"File is corrupt! No sync mark at byte {self._input.position - SYNC_BYTES}"
            )

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        if not self._begin():
            return
        codec = self._codec
        while (length := self._next_length()) is not None:
            key_length = self._input.take_int()
            if not 0 <= key_length <= length <= _RECORD_BYTES_MAX:
                raise SequenceFileCorrupt(
                    f"a record of {length} bytes, its key of {key_length}, before byte "
                    f"{self._input.position}"
                )
            record = self._input.take(length)
            value = record[key_length:]
            yield record[:key_length], codec.decompress(value) if codec else value

    def _blocks(self) -> Iterator[tuple[bytes, bytes]]:
        if not self._begin():
            return
        while self._input.more():
            mark_at = self._input.position
            if self._end is not None and mark_at >= self._end:
                return
            if self._input.take(len(SYNC_ESCAPE)) != SYNC_ESCAPE:
                raise SequenceFileCorrupt(f"no block begins at byte {mark_at}")
            self._check_sync()
            count = self._input.take_vlong()
            key_lengths, keys, value_lengths, values = (self._buffer() for _ in range(4))
            yield from zip(
                _sliced(keys, key_lengths, count),
                _sliced(values, value_lengths, count),
                strict=True,
            )

    def _buffer(self) -> bytes:
        data = self._input.take(self._input.take_vlong())
        return self._codec.decompress(data) if self._codec else data


def _sliced(buffer: bytes, lengths: bytes, count: int) -> Iterator[bytes]:
    """Cut a block's buffer into its records by their lengths."""
    at = start = 0
    for _ in range(count):
        length, at = read_vlong(lengths, at)
        if length < 0 or start + length > len(buffer):
            raise WritableCorrupt(f"a block's record of {length} bytes runs past its buffer")
        yield buffer[start : start + length]
        start += length


class SequenceFileWriter:
    """Takes records, writes a sequence file, which stays open. What both kinds share: the header,
    the position and the sync marks."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        key_type: WritableType,
        value_type: WritableType,
        codec: Codec | None,
        *,
        is_block: bool,
    ) -> None:
        self._write = write
        self._serialise_key = key_type.serialise
        self._serialise_value = value_type.serialise
        self._codec = codec
        self.position = 0
        """How many bytes were written."""
        self._mark = os.urandom(SYNC_BYTES)
        self._synced_at = 0
        parts = [MAGIC, bytes([VERSION]), _name(key_type.class_name), _name(value_type.class_name)]
        parts.append(bytes([codec is not None, is_block]))
        if codec is not None:
            parts.append(_name(codec.class_name))
        self._put(b"".join([*parts, struct.pack(">i", 0), self._mark]))

    def append(self, key: bytes, value: bytes) -> None:
        """Add one record of two payloads."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is still held."""

    def _put(self, data: bytes) -> None:
        self._write(data)
        self.position += len(data)

    def _sync(self) -> None:
        self._put(SYNC_ESCAPE + self._mark)
        self._synced_at = self.position


def _name(text: str) -> bytes:
    encoded = text.encode()
    return write_vlong(len(encoded)) + encoded


class _RecordWriter(SequenceFileWriter):
    """Plain records, or records with compressed values; nothing is held back."""

    def append(self, key: bytes, value: bytes) -> None:
        if self.position >= self._synced_at + SYNC_INTERVAL_BYTES:
            self._sync()
        key_bytes, value_bytes = self._serialise_key(key), self._serialise_value(value)
        if self._codec is not None:
            value_bytes = self._codec.compress(value_bytes)
        lengths = struct.pack(">ii", len(key_bytes) + len(value_bytes), len(key_bytes))
        self._put(lengths + key_bytes + value_bytes)


class _BlockWriter(SequenceFileWriter):
    """Records gathered into blocks of about a megabyte, each of four compressed buffers."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        key_type: WritableType,
        value_type: WritableType,
        codec: Codec,
    ) -> None:
        super().__init__(write, key_type, value_type, codec, is_block=True)
        self._compress = codec.compress
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._held_bytes = 0

    def append(self, key: bytes, value: bytes) -> None:
        self._keys.append(self._serialise_key(key))
        self._values.append(self._serialise_value(value))
        self._held_bytes += len(self._keys[-1]) + len(self._values[-1])
        if self._held_bytes >= BLOCK_BYTES:
            self.close()

    def close(self) -> None:
        if not self._keys:
            return
        self._sync()
        self._put(write_vlong(len(self._keys)))
        for side in (self._keys, self._values):
            for buffer in (b"".join(write_vlong(len(item)) for item in side), b"".join(side)):
                compressed = self._compress(buffer)
                self._put(write_vlong(len(compressed)) + compressed)
        self._keys, self._values, self._held_bytes = [], [], 0


def sequence_file_writer(
    write: Callable[[bytes], object],
    key_type: WritableType,
    value_type: WritableType,
    compression: str = "NONE",
    codec: Codec | None = None,
) -> SequenceFileWriter:
    """Begin a sequence file: `compression` is NONE, RECORD or BLOCK."""
    if compression == "BLOCK":
        return _BlockWriter(write, key_type, value_type, codec or DEFAULT_CODEC)
    codec = None if compression == "NONE" else codec or DEFAULT_CODEC
    return _RecordWriter(write, key_type, value_type, codec, is_block=False)
