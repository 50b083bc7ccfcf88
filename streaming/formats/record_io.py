"""Records to and from commands, for each of the four identifiers of `-io`: text, rawbytes,
typedbytes, keyonlytext.

`record_writer` writes (key, value) payloads of any Writable type for a command's stdin;
`record_cutter` cuts a command's stdout into payloads; `record_types` says of which types those
are. These are the general forms, one record at a time; where a job is plain text the kernel does
the same on whole blobs. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

from mrstream.cluster.errors import UserError
from mrstream.streaming.formats.text_lines import LineSplitter
from mrstream.streaming.formats.typed_bytes import TypedBytesCutter
from mrstream.streaming.formats.writable import BYTES, NULL, TEXT, TYPED_BYTES, WritableType
from mrstream.streaming.records.key_value import KeyValueRule, split

Record = tuple[bytes, bytes]


class BadRawBytes(UserError):
    """A command wrote bytes that are no rawbytes records."""


def record_types(identifier: str) -> tuple[WritableType, WritableType]:
    """The types of keys and values that a command's output has."""
    return _TYPES[identifier]


_TYPES = {
    "text": (TEXT, TEXT),
    "keyonlytext": (TEXT, NULL),
    "rawbytes": (BYTES, BYTES),
    "typedbytes": (TYPED_BYTES, TYPED_BYTES),
}


def record_writer(
    identifier: str,
    key_type: WritableType,
    value_type: WritableType,
    separator: bytes = b"\t",
    *,
    ignore_key: bool = False,
) -> Callable[[bytes, bytes], bytes]:
    """Return the function that writes one record for a command's stdin; only text can leave the key
    out."""
    key_text, value_text = key_type.command_text, value_type.command_text
    if identifier == "typedbytes":
        typed_key, typed_value = key_type.to_typed_bytes, value_type.to_typed_bytes
        return lambda key, value: typed_key(key) + typed_value(value)
    if identifier == "rawbytes":
        raw_key, raw_value = _sized(key_type), _sized(value_type)
        return lambda key, value: raw_key(key) + raw_value(value)
    if identifier == "keyonlytext":
        return lambda key, _: key_text(key) + b"\n"
    if ignore_key:
        return lambda _, value: value_text(value) + b"\n"
    return lambda key, value: key_text(key) + separator + value_text(value) + b"\n"


def _sized(kind: WritableType) -> Callable[[bytes], bytes]:
    """rawbytes: BytesWritable (and TypedBytesWritable, which is one) as it is, others as they
    serialise."""
    if kind in (BYTES, TYPED_BYTES):
        return lambda payload: struct.pack(">i", len(payload)) + payload

    def write(payload: bytes) -> bytes:
        serialised = kind.serialise(payload)
        return struct.pack(">i", len(serialised)) + serialised

    return write


class RecordCutter(Protocol):
    """Fed a command's stdout, gives its records."""

    def feed(self, data: bytes) -> list[Record]:
        """Return the records that `data` completes."""

    def finish(self) -> list[Record]:
        """Say that no more comes; give the last record, if it needed no end."""


def record_cutter(identifier: str, rule: KeyValueRule) -> RecordCutter:
    """Return the cutter for an identifier; `rule` cuts the lines of text."""
    if identifier == "typedbytes":
        return TypedBytesCutter()
    if identifier == "rawbytes":
        return _RawBytesCutter()
    if identifier == "keyonlytext":
        return _LineCutter(lambda line: (line, b""))
    return _LineCutter(lambda line: split(line, rule))


class _LineCutter:
    """Lines, each cut into key and value."""

    def __init__(self, cut: Callable[[bytes], Record]) -> None:
        self._cut = cut
        self._splitter = LineSplitter()

    def feed(self, data: bytes) -> list[Record]:
        return [self._cut(line.rstrip(b"\r\n")) for line in self._splitter.feed(data)]

    def finish(self) -> list[Record]:
        return [self._cut(line.rstrip(b"\r\n")) for line in self._splitter.finish()]


class _RawBytesCutter:
    """int32 length and bytes, for the key and for the value."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Record]:
        self._held += data
        found: list[Record] = []
        start = 0
        while (key_end := self._end(start)) is not None and (end := self._end(key_end)) is not None:
            found.append(
                (bytes(self._held[start + 4 : key_end]), bytes(self._held[key_end + 4 : end]))
            )
            start = end
        del self._held[:start]
        return found

    def finish(self) -> list[Record]:
        if self._held:
            raise BadRawBytes(
                f"the output ends inside a record: {len(self._held)} bytes of it are there"
            )
        return []

    def _end(self, start: int) -> int | None:
        if len(self._held) < start + 4:
            return None
        (length,) = struct.unpack_from(">i", self._held, start)
        if length < 0:
            raise BadRawBytes(f"a rawbytes record says that it has {length} bytes")
        end: int = start + 4 + length
        return end if end <= len(self._held) else None
