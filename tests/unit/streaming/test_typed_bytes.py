"""typed_bytes, writable, record_io: keys and values in binary and in print."""

from __future__ import annotations

import struct

import pytest

from mrstream.streaming.formats.record_io import (
    BadRawBytes,
    record_cutter,
    record_types,
    record_writer,
)
from mrstream.streaming.formats.typed_bytes import (
    BadTypedBytes,
    Opaque,
    TypedBytesCutter,
    encode,
    to_text,
)
from mrstream.streaming.formats.writable import (
    BYTES,
    LONG,
    NULL,
    TEXT,
    TYPED_BYTES,
    UnknownWritable,
    WritableCorrupt,
    writable_type,
)
from mrstream.streaming.records.key_value import KeyValueRule

IO = "org.apache.hadoop.io."


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x00\x00\x00\x00\x03\x01\xab\x7f", "01ab7f"),
        (b"\x01\xff", "-1"),
        (b"\x02\x01", "true"),
        (b"\x02\x00", "false"),
        (encode(-7), "-7"),
        (encode(1 << 40), "1099511627776"),
        (b"\x05" + struct.pack(">f", 0.1), "0.1"),
        (encode(0.1), "0.1"),
        (encode("hé"), "hé"),
        (encode((1, "x")), "[1, x]"),
        (encode([1, 2]), "[1, 2]"),
        (encode(()), "[]"),
        (encode({"b": 2, "a": 1}), "{a=1, b=2}"),
        (encode({10: "x", 9: "y"}), "{9=y, 10=x}"),
        (encode(Opaque(b"\x01\x02", 77)), "0102"),
        (encode([[1], {"k": (True,)}]), "[[1], {k=[true]}]"),
    ],
)
def test_typed_bytes_print_as_in_java(data: bytes, text: str) -> None:
    """Spec 9, as in the golden case tb_all_types."""
    assert to_text(data) == text.encode()


@pytest.mark.parametrize("data", [b"\x0b", b"\x31\x00", b"\xc9", b"\x00\xff\xff\xff\xff"])
def test_what_is_no_typed_bytes_is_refused(data: bytes) -> None:
    """Spec 9: anything else is an "unknown type"; a negative length is nonsense."""
    with pytest.raises(BadTypedBytes):
        TypedBytesCutter().feed(data + b"\0" * 10)


def test_a_marker_where_a_key_should_be_ends_the_data() -> None:
    """Spec 9: EOF, or 255, at a record start."""
    cutter = TypedBytesCutter()

    found = cutter.feed(encode("k") + encode(1) + b"\xff" + b"anything at all")

    assert found == [(encode("k"), encode(1))]
    assert cutter.finish() == []


def test_typed_bytes_that_end_inside_a_record_are_an_error() -> None:
    """A key without a value is a program that died, not an end of data."""
    cutter = TypedBytesCutter()
    cutter.feed(encode("k"))

    with pytest.raises(BadTypedBytes, match="inside a record"):
        cutter.finish()


def test_nesting_has_a_limit() -> None:
    """A bad program must not end the worker with a stack overflow."""
    with pytest.raises(BadTypedBytes, match="nested deeper"):
        TypedBytesCutter().feed(b"\x09" * 5000)


@pytest.mark.parametrize(
    ("name", "payload", "text", "typed"),
    [
        ("Text", "é".encode(), "é".encode(), encode("é")),
        ("BytesWritable", b"\0\xff", b"00 ff", encode(b"\0\xff")),
        ("LongWritable", struct.pack(">q", 9), b"9", b"\x04" + struct.pack(">q", 9)),
        ("IntWritable", struct.pack(">i", -9), b"-9", encode(-9)),
        ("VIntWritable", b"\x8f\x82", b"130", encode(130)),
        ("VLongWritable", b"\x8f\x82", b"130", b"\x04" + struct.pack(">q", 130)),
        ("BooleanWritable", b"\x01", b"true", b"\x02\x01"),
        ("ByteWritable", b"\xff", b"-1", b"\x01\xff"),
        ("FloatWritable", struct.pack(">f", 1.5), b"1.5", b"\x05" + struct.pack(">f", 1.5)),
        ("DoubleWritable", struct.pack(">d", 1e-5), b"1.0E-5", encode(1e-5)),
    ],
)
def test_a_writable_prints_and_turns_into_typed_bytes(
    name: str, payload: bytes, text: bytes, typed: bytes
) -> None:
    """Spec 9: Text becomes 7, LongWritable and VLong 4, IntWritable and VInt 3, and so on."""
    kind = writable_type(IO + name)

    assert kind.parse(kind.serialise(payload)) == payload
    assert kind.to_string(payload) == text
    assert kind.to_typed_bytes(payload) == typed


def test_an_unknown_writable_travels_but_does_not_print() -> None:
    """Spec 9: others are type 50, class name and serialised object."""
    kind = writable_type("com.acme.Point")

    assert kind.to_typed_bytes(b"xy") == (
        b"\x32" + struct.pack(">i", 4 + 14 + 2) + struct.pack(">i", 14) + b"com.acme.Point" + b"xy"
    )
    with pytest.raises(UnknownWritable, match=r"com\.acme\.Point"):
        kind.to_string(b"xy")


def test_a_container_is_refused_as_typed_bytes() -> None:
    """Spec 9: Hadoop sends a MapWritable as a typed map; sent as it lies, it would be misread."""
    kind = writable_type(IO + "MapWritable")

    with pytest.raises(UnknownWritable, match=r"MapWritable is a Java class .* -io rawbytes"):
        kind.to_typed_bytes(b"xy")


@pytest.mark.parametrize("kind", [TEXT, BYTES, LONG])
def test_a_writable_that_is_cut_off_is_corrupt(kind: object) -> None:
    """Bytes that are not what their class says are named, not guessed at."""
    assert kind in (TEXT, BYTES, LONG)
    with pytest.raises(WritableCorrupt):
        kind.parse(b"\x00\x00\x01" if kind is not TEXT else b"\x05ab")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("identifier", "ignore_key", "wire"),
    [
        ("text", False, b"7\tline\n"),
        ("text", True, b"line\n"),
        ("keyonlytext", False, b"7\n"),
        ("rawbytes", True, b"\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\x05\x04line"),
        ("typedbytes", True, b"\x04\0\0\0\0\0\0\0\x07\x07\0\0\0\x04line"),
    ],
)
def test_a_record_is_written_for_a_command(identifier: str, ignore_key: bool, wire: bytes) -> None:
    """Spec 9: only text can leave the key out; rawbytes sends other Writables serialised."""
    write = record_writer(identifier, LONG, TEXT, b"\t", ignore_key=ignore_key)

    assert write(struct.pack(">q", 7), b"line") == wire


def test_null_prints_as_java_prints_it() -> None:
    """NullWritable.toString: what a text reducer sees behind a keyonlytext mapper."""
    assert record_writer("text", TEXT, NULL)(b"k", b"") == b"k\t(null)\n"


@pytest.mark.parametrize(
    ("identifier", "data", "records"),
    [
        ("text", b"k\tv\r\nplain\rlast", [(b"k", b"v"), (b"plain", b""), (b"last", b"")]),
        ("keyonlytext", b"k\tv\n", [(b"k\tv", b"")]),
        ("rawbytes", b"\0\0\0\x01k\0\0\0\0", [(b"k", b"")]),
        ("typedbytes", encode("k") + encode(1), [(encode("k"), encode(1))]),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_output_is_cut_into_records_however_it_arrives(
    identifier: str, data: bytes, records: list[tuple[bytes, bytes]], size: int
) -> None:
    """Spec 4.1, 4.2 and 9."""
    cutter = record_cutter(identifier, KeyValueRule())

    found = []
    for start in range(0, len(data), size):
        found += cutter.feed(data[start : start + size])
    found += cutter.finish()

    assert found == records


def test_rawbytes_that_end_inside_a_record_are_an_error() -> None:
    """Spec 9: end of file only at a record start ends the data."""
    cutter = record_cutter("rawbytes", KeyValueRule())
    cutter.feed(b"\0\0\0\x05ab")

    with pytest.raises(BadRawBytes, match="inside a record"):
        cutter.finish()


def test_each_identifier_has_its_types() -> None:
    """Spec 9."""
    assert record_types("keyonlytext") == (TEXT, NULL)
    assert record_types("typedbytes") == (TYPED_BYTES, TYPED_BYTES)
