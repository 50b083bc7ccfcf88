"""Avro container files as lines: the blocks behind the sync marks that begin in a range.

The framing (header, blocks, marks) is read here, so that a range knows where it begins and ends;
what is inside the blocks is fastavro's.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fastavro

from mrstream.streaming.formats.avro_text import java_text, without_logical_types
from mrstream.streaming.formats.row_dicts import ENCODER, line_writer
from mrstream.streaming.formats.row_file import (
    RecordFileCorrupt,
    Source,
    WholeReads,
    decoded,
    guarded,
)
from mrstream.streaming.formats.row_filter import Condition
from mrstream.streaming.formats.text_lines import gathered

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
# Blocks are decoded together up to this much, for each time the schema is read anew.
GROUP_BYTES = 1 << 20
BLOCK_BYTES_MAX = 1 << 30
_SCAN_BYTES = 1 << 18
_HEADER_BYTES_MAX = 64 << 20


class Container:
    """The framing of one file: its header, and its blocks as they lie there."""

    def __init__(self, file: WholeReads) -> None:
        self._file = file
        if file.read(4) != MAGIC:
            raise self._bad("it is no Avro file: its first bytes are not Obj 1")
        self.metadata = self._read_metadata()
        self.sync = self._take(SYNC_BYTES)
        self.first = file.tell()
        file.seek(0)
        self.header = self._take(self.first)

    def blocks(self, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield (position, records, bytes) of the blocks whose mark in front lies in the range."""
        position = self._behind_mark(max(start, self.first - SYNC_BYTES))
        while position is not None and position - SYNC_BYTES < end and position < self._file.size:
            self._file.seek(position)
            records, size = self._number(), self._number()
            if records < 0 or not 0 <= size <= BLOCK_BYTES_MAX:
                raise self._bad(
                    f"the block at byte {position} says {records} records, {size} bytes"
                )
            body_at = self._file.tell()
            block_end = body_at + size + SYNC_BYTES
            self._file.seek(position)
            block = self._take(block_end - position)
            if block[-SYNC_BYTES:] != self.sync:
                raise self._bad(f"the block at byte {position} does not end with the sync mark")
            yield position, records, block
            position = block_end

    def _behind_mark(self, start: int) -> int | None:
        """Where the first block behind `start` begins: behind the first mark there."""
        at, held = start, b""
        self._file.seek(start)
        while True:
            found = held.find(self.sync)
            if found >= 0:
                return at + found + SYNC_BYTES
            keep = min(len(held), SYNC_BYTES - 1)
            at += len(held) - keep
            more = self._file.read(_SCAN_BYTES)
            if not more:
                return None
            held = held[len(held) - keep :] + more

    def _read_metadata(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        while count := self._number():
            if count < 0:
                count = -count
                self._number()
            for _ in range(count):
                name = self._take(self._length()).decode("utf-8", "replace")
                found[name] = self._take(self._length())
                if self._file.tell() > _HEADER_BYTES_MAX:
                    raise self._bad("its header is longer than 64 MiB")
        return found

    def _length(self) -> int:
        length = self._number()
        if not 0 <= length <= _HEADER_BYTES_MAX:
            raise self._bad(f"its header says that a value has {length} bytes")
        return length

    def _number(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise self._bad(f"a number at byte {self._file.tell()} has no end")

    def _take(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise self._bad(f"it is cut off at byte {self._file.tell()}")
        return data

    def _bad(self, why: str) -> RecordFileCorrupt:
        return RecordFileCorrupt(f"{self._file.url}: {why}")


class AvroRows:
    """The records of the blocks of [start, end), as JSON or as columns between tabs."""

    def __init__(
        self,
        source: Source,
        start: int,
        end: int,
        *,
        columns: Sequence[str] = (),
        where: Sequence[Condition] = (),
        form: str = "json",
        as_java: bool = False,
    ) -> None:
        self.records = 0
        self._url = source.url
        self._range = (start, end)
        self.position = start
        """Where the block begins that is being read."""
        self._container = decoded(self._url, lambda: Container(WholeReads(source)))
        schema = decoded(self._url, self._schema)
        self._header = self._container.header
        if as_java:
            self._header = _header(self._container, without_logical_types(schema))
            self._write: Callable[[Any], bytes | None] = lambda one: java_text(one, schema)
        elif isinstance(schema, dict) and schema.get("type") == "record":
            names = [field["name"] for field in schema["fields"]]
            self._write = line_writer(self._url, names, columns, where, form)
        else:
            self._write = lambda one: ENCODER.encode(one) + b"\n"

    def lines(self) -> Iterator[bytes]:
        return gathered(self.each())

    def each(self) -> Iterator[bytes]:
        for datum in guarded(self._url, self._data()):
            line = decoded(self._url, lambda datum=datum: self._write(datum))  # type: ignore[misc]
            if line is not None:
                self.records += 1
                yield line

    def _schema(self) -> Any:
        schema = json.loads(self._container.metadata["avro.schema"])
        fastavro.parse_schema(schema)  # what is wrong with it is found here, not where it is used
        return schema

    def _data(self) -> Iterator[Any]:
        held: list[bytes] = []
        held_bytes = records = 0
        for position, count, block in self._container.blocks(*self._range):
            self.position = position
            held.append(block)
            held_bytes += len(block)
            records += count
            if held_bytes >= GROUP_BYTES:
                yield from self._decoded(held, records)
                held, held_bytes, records = [], 0, 0
        yield from self._decoded(held, records)

    def _decoded(self, blocks: list[bytes], records: int) -> Iterator[Any]:
        given = 0
        if blocks:
            for datum in fastavro.reader(io.BytesIO(b"".join([self._header, *blocks]))):
                given += 1
                yield datum
        if given != records:
            raise RecordFileCorrupt(
                f"{self._url}: blocks near byte {self.position} hold {given} records, "
                f"and say {records}"
            )


def _header(container: Container, schema: Any) -> bytes:
    """Return the header with another schema."""
    metadata = container.metadata | {"avro.schema": json.dumps(schema).encode()}
    parts = [MAGIC, _varint(len(metadata))]
    for name, value in metadata.items():
        parts += [_varint(len(name.encode())), name.encode(), _varint(len(value)), value]
    return b"".join([*parts, b"\0", container.sync])


def _varint(number: int) -> bytes:
    value, out = number << 1, bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
