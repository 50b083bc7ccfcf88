"""Typed bytes: a type byte and a payload, the binary form of keys and values between Hadoop and
commands (spec 9).

Finds where an object ends, prints it as Java would, and makes and reads objects for tools and
tests. Keys and values travel as their raw bytes, type byte included; nothing here is needed to
sort or hash them. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.streaming.java.java_number import format_double, format_float
from mrstream.streaming.java.java_text import decode_text

BYTES, BYTE, BOOL, INT, LONG, FLOAT, DOUBLE, STRING, VECTOR, LIST, MAP = range(11)
MARKER = 255
_FIXED = {BYTE: 1, BOOL: 1, INT: 4, LONG: 8, FLOAT: 4, DOUBLE: 8}
_LAYOUTS = {BYTE: ">b", INT: ">i", LONG: ">q", FLOAT: ">f", DOUBLE: ">d"}
# Java's own stack ends at a few thousand; a program that nests deeper is broken.
DEPTH_MAX = 200


class BadTypedBytes(UserError):
    """A command wrote bytes that are no typed bytes."""


class Opaque(msgspec.Struct, frozen=True):
    """Bytes (code 0) or an application's own type (50 to 200)."""

    data: bytes
    code: int = BYTES


class _Incomplete(Exception):
    """The object goes on after the bytes at hand."""


def object_end(data: bytes, start: int = 0) -> int | None:
    """Return the index after the object that begins at `start`, None if it is not all there."""
    try:
        return _end(data, start, 0)
    except _Incomplete:
        return None


def to_text(data: bytes) -> bytes:
    """Print one object as Java's toString does: hex for bytes, `[1, x]`, `{a=1, b=2}` with keys
    sorted."""
    value, _ = _decode(data, 0, 0)
    return _java_string(value).encode("utf-8", "surrogatepass")


def decode(data: bytes) -> object:
    """Return one object as a Python value: int, bool, float, str, list, dict or `Opaque`."""
    return _decode(data, 0, 0)[0]


def encode(value: object) -> bytes:
    """Make the typed bytes of a Python value; whole numbers take int or long, whichever fits."""
    match value:
        case bool():
            return bytes([BOOL, value])
        case int() if -(2**31) <= value < 2**31:
            return struct.pack(">Bi", INT, value)
        case int():
            return struct.pack(">Bq", LONG, value)
        case float():
            return struct.pack(">Bd", DOUBLE, value)
        case str():
            encoded = value.encode()
            return struct.pack(">Bi", STRING, len(encoded)) + encoded
        case bytes():
            return struct.pack(">Bi", BYTES, len(value)) + value
        case Opaque():
            return struct.pack(">Bi", value.code, len(value.data)) + value.data
        case tuple():
            return struct.pack(">Bi", VECTOR, len(value)) + b"".join(map(encode, value))
        case list():
            return bytes([LIST]) + b"".join(map(encode, value)) + bytes([MARKER])
        case dict():
            pairs = b"".join(encode(k) + encode(v) for k, v in value.items())
            return struct.pack(">Bi", MAP, len(value)) + pairs
    raise TypeError(f"{type(value).__name__} has no typed bytes")


class TypedBytesCutter:
    """Cuts a command's output into (key, value) objects; fed blobs of any size."""

    def __init__(self) -> None:
        self._held = b""
        self._wanted = 0
        self._ended = False

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the records that `data` completes."""
        self._held += data
        if self._ended or len(self._held) < self._wanted:
            return []
        found: list[tuple[bytes, bytes]] = []
        start = 0
        while start < len(self._held):
            if self._held[start] == MARKER:
                # A marker where a key should be ends the data, whatever follows.
                self._ended = True
                self._held = b""
                return found
            key_end = object_end(self._held, start)
            end = None if key_end is None else object_end(self._held, key_end)
            if key_end is None or end is None:
                break
            found.append((self._held[start:key_end], self._held[key_end:end]))
            start = end
        self._held = self._held[start:]
        # A record larger than a blob is not scanned again until as much has come as was there.
        self._wanted = 2 * len(self._held) if len(self._held) > 65_536 else 0
        return found

    def finish(self) -> list[tuple[bytes, bytes]]:
        """Say that no more comes: give what is left; raises `BadTypedBytes` inside a record."""
        self._wanted = 0
        found = self.feed(b"")
        if self._held:
            raise BadTypedBytes(
                f"the output ends inside a record: {len(self._held)} bytes of it are there"
            )
        return found


def read_pairs(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) objects of a file."""
    cutter = TypedBytesCutter()
    while blob := file.read(1024 * 1024):
        yield from cutter.feed(blob)
    yield from cutter.finish()


def _need(data: bytes, start: int, count: int) -> int:
    """Return the index after `count` bytes, if they are there."""
    if count < 0:
        raise BadTypedBytes(f"a typed bytes object has length {count}")
    if start + count > len(data):
        raise _Incomplete
    return start + count


def _count(data: bytes, start: int) -> int:
    _need(data, start, 4)
    value: int = struct.unpack_from(">i", data, start)[0]
    if value < 0:
        raise BadTypedBytes(f"a typed bytes object has length {value}")
    return value


def _end(data: bytes, start: int, depth: int) -> int:
    _need(data, start, 1)
    code = data[start]
    start += 1
    if code in _FIXED:
        return _need(data, start, _FIXED[code])
    if code in (BYTES, STRING) or 50 <= code <= 200:
        return _need(data, start + 4, _count(data, start))
    if depth > DEPTH_MAX:
        raise BadTypedBytes(f"typed bytes nested deeper than {DEPTH_MAX}")
    if code in (VECTOR, MAP):
        count = _count(data, start) * (2 if code == MAP else 1)
        start += 4
        for _ in range(count):
            start = _end(data, start, depth + 1)
        return start
    if code == LIST:
        while data[_need(data, start, 1) - 1] != MARKER:
            start = _end(data, start, depth + 1)
        return start + 1
    raise BadTypedBytes(f"unknown type {code}")


def _decode(data: bytes, start: int, depth: int) -> tuple[object, int]:
    try:
        end = _end(data, start, depth)
    except _Incomplete:
        raise BadTypedBytes(f"typed bytes cut off after {len(data)} bytes") from None
    code = data[start]
    if code == BOOL:
        return data[start + 1] != 0, end
    if code in _LAYOUTS:
        (number,) = struct.unpack_from(_LAYOUTS[code], data, start + 1)
        return (_Float32(number) if code == FLOAT else number), end
    if code == STRING:
        return decode_text(data[start + 5 : end]), end
    if code == VECTOR:
        return _decode_items(data, start + 5, _count(data, start + 1), depth), end
    if code == LIST:
        items: list[object] = []
        start += 1
        while data[start] != MARKER:
            item, start = _decode(data, start, depth + 1)
            items.append(item)
        return items, end
    if code == MAP:
        flat = _decode_items(data, start + 5, 2 * _count(data, start + 1), depth)
        return _sorted_map(flat), end
    return Opaque(data[start + 5 : end], code), end


class _Float32(float):
    """A float that prints with a float's digits."""


def _decode_items(data: bytes, start: int, count: int, depth: int) -> list[object]:
    items: list[object] = []
    for _ in range(count):
        item, start = _decode(data, start, depth + 1)
        items.append(item)
    return items


def _sorted_map(flat: list[object]) -> dict[object, object]:
    """Pair keys and values up in the order of Java's TreeMap; keys that cannot be hashed go by
    their text."""
    pairs: dict[object, object] = {}
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        pairs[_java_string(key) if isinstance(key, list | dict) else key] = value
    return dict(sorted(pairs.items(), key=lambda pair: _order(pair[0])))


def _order(key: object) -> tuple[int, float, bytes]:
    if isinstance(key, int | float):
        return 0, key, b""
    if isinstance(key, Opaque):
        return 1, 0, key.data
    return 2, 0, str(key).encode("utf-16-be", "surrogatepass")


def _java_string(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case _Float32():
            return format_float(value)
        case float():
            return format_double(value)
        case list():
            return "[" + ", ".join(map(_java_string, value)) + "]"
        case dict():
            pairs = (f"{_java_string(k)}={_java_string(v)}" for k, v in value.items())
            return "{" + ", ".join(pairs) + "}"
        case Opaque():
            return value.data.hex()
    return str(value)
