"""The Writable types that streaming jobs meet: how each lies in a file, prints, and turns into
typed bytes.

A record's key or value travels as its *payload*: the content bytes of Text, BytesWritable and
TypedBytesWritable (without their length), the serialised form of every other type. So sorting and
hashing see what Hadoop's comparators see. Pure; classes that are not built in still pass through,
opaque, as Hadoop passes them to typed bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgspec

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.streaming.java.java_number import format_double, format_float
from mrstream.streaming.java.java_text import clean_text

IO_PACKAGE = "org.apache.hadoop.io."
# Hadoop sends what these hold as a typed vector or map; other classes it sends as they are.
_CONTAINERS = frozenset(
    IO_PACKAGE + name for name in ("ArrayWritable", "MapWritable", "SortedMapWritable")
)


class WritableCorrupt(Corrupt):
    """Bytes that are not what their class name says."""


class UnknownWritable(UserError):
    """A class whose values we can carry but not print."""


def write_vlong(value: int) -> bytes:
    """Serialise a whole number as WritableUtils.writeVLong does: one byte for -112..127."""
    if -112 <= value <= 127:
        return struct.pack(">b", value)
    marker = -112
    if value < 0:
        value, marker = ~value, -120
    size = (value.bit_length() + 7) // 8
    return struct.pack(">b", marker - size) + value.to_bytes(size, "big")


def read_vlong(data: bytes | memoryview, start: int) -> tuple[int, int]:
    """Read a variable-length number; return it and the index after it."""
    if start >= len(data):
        raise WritableCorrupt(f"a number is cut off at byte {start}")
    first = data[start]
    if first <= 127 or first >= 144:
        return (first if first <= 127 else first - 256), start + 1
    size = 144 - first if first >= 136 else 136 - first
    end = start + 1 + size
    if end > len(data):
        raise WritableCorrupt(f"a number of {size} bytes is cut off at byte {start}")
    value = int.from_bytes(data[start + 1 : end], "big")
    return (value if first >= 136 else ~value), end


class WritableType(msgspec.Struct, frozen=True):
    """One Java class: all that streaming does with its values."""

    class_name: str
    # Typed-bytes code of the payload, None for types sent as an opaque Writable.
    serialise: Callable[[bytes], bytes]
    parse: Callable[[bytes], bytes]
    to_string: Callable[[bytes], bytes]
    to_typed_bytes: Callable[[bytes], bytes]
    # Text and BytesWritable go to a text command as they are, others as `to_string`.
    raw_to_command: bool = False
    # TextOutputFormat writes Text as it is.
    raw_to_file: bool = False
    # NullWritable: TextOutputFormat leaves it out, with its separator.
    is_null: bool = False

    def command_text(self, payload: bytes) -> bytes:
        """What a command with text input sees."""
        return payload if self.raw_to_command else self.to_string(payload)

    def file_text(self, payload: bytes) -> bytes:
        """What TextOutputFormat writes."""
        return payload if self.raw_to_file else self.to_string(payload)


def writable_type(class_name: str) -> WritableType:
    """Return the type of a Java class name; one we do not know is carried without being
    understood."""
    return _TYPES.get(class_name) or _opaque(class_name)


def is_known(class_name: str) -> bool:
    """Whether values of the class can be printed here."""
    return class_name in _TYPES


def _identity(payload: bytes) -> bytes:
    return payload


def _with_int_length(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def _without_int_length(serialised: bytes) -> bytes:
    if len(serialised) < 4:
        raise WritableCorrupt(f"BytesWritable of {len(serialised)} bytes has no length")
    (length,) = struct.unpack_from(">i", serialised)
    if length < 0 or length + 4 > len(serialised):
        raise WritableCorrupt(f"BytesWritable says {length} bytes, {len(serialised) - 4} are there")
    return serialised[4 : 4 + length]


def _with_vint_length(payload: bytes) -> bytes:
    return write_vlong(len(payload)) + payload


def _without_vint_length(serialised: bytes) -> bytes:
    length, start = read_vlong(serialised, 0)
    if length < 0 or start + length > len(serialised):
        raise WritableCorrupt(f"Text says {length} bytes, {len(serialised) - start} are there")
    return serialised[start : start + length]


def _fixed(layout: str) -> Callable[[bytes], bytes]:
    size = struct.calcsize(layout)

    def parse(serialised: bytes) -> bytes:
        if len(serialised) < size:
            raise WritableCorrupt(f"{size} bytes expected, {len(serialised)} found")
        return serialised[:size]

    return parse


def _unpack(layout: str, payload: bytes) -> int | float | bool:
    value: int | float | bool = struct.unpack(layout, payload)[0]
    return value


def _number_to_string(layout: str) -> Callable[[bytes], bytes]:
    return lambda payload: b"%d" % _unpack(layout, payload)


def _hex_pairs(payload: bytes) -> bytes:
    return payload.hex(" ").encode()


def _bool_to_string(payload: bytes) -> bytes:
    return b"false" if payload == b"\0" else b"true"


def _coded(code: int) -> Callable[[bytes], bytes]:
    prefix = bytes([code])
    return lambda payload: prefix + payload


def _counted(code: int) -> Callable[[bytes], bytes]:
    prefix = bytes([code])
    return lambda payload: prefix + struct.pack(">i", len(payload)) + payload


def _text_to_typed_bytes(payload: bytes) -> bytes:
    text = clean_text(payload)
    return b"\x07" + struct.pack(">i", len(text)) + text


def _typed_bytes_to_string(payload: bytes) -> bytes:
    from mrstream.streaming.formats.typed_bytes import (
        to_text,  # it prints what we serialise: each needs the other
    )

    return to_text(payload)


def _vlong_to_string(payload: bytes) -> bytes:
    return b"%d" % read_vlong(payload, 0)[0]


def _vlong_to_typed_bytes(code: int, layout: str) -> Callable[[bytes], bytes]:
    return lambda payload: bytes([code]) + struct.pack(layout, read_vlong(payload, 0)[0])


def _writable_to_typed_bytes(class_name: str) -> Callable[[bytes], bytes]:
    """Type 50: the class name and the serialised object."""
    name = class_name.encode()
    head = struct.pack(">i", len(name)) + name

    def convert(payload: bytes) -> bytes:
        return b"\x32" + struct.pack(">i", len(head) + len(payload)) + head + payload

    return convert


def _opaque(class_name: str) -> WritableType:
    is_container = class_name in _CONTAINERS
    ways = "-io rawbytes" if is_container else "-io typedbytes or rawbytes"

    def refuse(payload: bytes) -> bytes:
        raise UnknownWritable(
            f"{class_name} is a Java class that mrstream cannot take apart; read it with {ways}, "
            "or convert the file to Text"
        )

    typed = refuse if is_container else _writable_to_typed_bytes(class_name)
    return WritableType(class_name, _identity, _identity, refuse, typed)


def _simple(
    name: str, layout: str, code: int | None, to_string: Callable[[bytes], bytes]
) -> WritableType:
    class_name = IO_PACKAGE + name
    typed = _writable_to_typed_bytes(class_name) if code is None else _coded(code)
    return WritableType(class_name, _identity, _fixed(layout), to_string, typed)


TEXT = WritableType(
    IO_PACKAGE + "Text",
    _with_vint_length,
    _without_vint_length,
    clean_text,
    _text_to_typed_bytes,
    raw_to_command=True,
    raw_to_file=True,
)
BYTES = WritableType(
    IO_PACKAGE + "BytesWritable",
    _with_int_length,
    _without_int_length,
    _hex_pairs,
    _counted(0),
    raw_to_command=True,
)
TYPED_BYTES = WritableType(
    "org.apache.hadoop.typedbytes.TypedBytesWritable",
    _with_int_length,
    _without_int_length,
    _typed_bytes_to_string,
    _identity,
    raw_to_command=True,
)
LONG = _simple("LongWritable", ">q", 4, _number_to_string(">q"))
INT = _simple("IntWritable", ">i", 3, _number_to_string(">i"))
NULL = WritableType(
    IO_PACKAGE + "NullWritable",
    _identity,
    lambda _: b"",
    lambda _: b"(null)",
    _writable_to_typed_bytes(IO_PACKAGE + "NullWritable"),
    is_null=True,
)

_TYPES = {
    known.class_name: known
    for known in (
        TEXT,
        BYTES,
        TYPED_BYTES,
        LONG,
        INT,
        NULL,
        _simple("ByteWritable", ">b", 1, _number_to_string(">b")),
        _simple("ShortWritable", ">h", None, _number_to_string(">h")),
        _simple("BooleanWritable", ">?", 2, _bool_to_string),
        _simple("FloatWritable", ">f", 5, lambda p: format_float(_unpack(">f", p)).encode()),
        _simple("DoubleWritable", ">d", 6, lambda p: format_double(_unpack(">d", p)).encode()),
        WritableType(
            IO_PACKAGE + "VIntWritable",
            _identity,
            lambda data: data[: read_vlong(data, 0)[1]],
            _vlong_to_string,
            _vlong_to_typed_bytes(3, ">i"),
        ),
        WritableType(
            IO_PACKAGE + "VLongWritable",
            _identity,
            lambda data: data[: read_vlong(data, 0)[1]],
            _vlong_to_string,
            _vlong_to_typed_bytes(4, ">q"),
        ),
    )
}
