"""Between settings and kernel: which record shapes and wire forms a job's settings ask for.

Takes a JobConf and Writable types; gives the plain data that `dataflow` works with. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from mrstream.mapreduce.dataflow import block_codec
from mrstream.mapreduce.dataflow.block_codec import BlockCodec
from mrstream.mapreduce.dataflow.record_form import (
    KEY_ONLY_RECORDS,
    RAW_RECORDS,
    TYPED_RECORDS,
    Cut,
    RecordShape,
    Serial,
    Side,
    WireForm,
    text_records,
)
from mrstream.streaming import classes
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.codec import codec_by_class
from mrstream.streaming.formats.record_io import record_writer
from mrstream.streaming.formats.writable import WritableType, writable_type
from mrstream.streaming.records.key_value import KeyValueRule

_SERIALS = {
    classes.TEXT: Serial.TEXT,
    classes.BYTES_WRITABLE: Serial.BYTES,
    classes.TYPED_BYTES_WRITABLE: Serial.BYTES,
    classes.NULL_WRITABLE: Serial.NULL,
    classes.LONG_WRITABLE: Serial.LONG,
}
_SIDES: dict[str, dict[str, Side]] = {
    "text": {
        classes.TEXT: Side.PLAIN,
        classes.BYTES_WRITABLE: Side.PLAIN,
        classes.TYPED_BYTES_WRITABLE: Side.PLAIN,
        classes.LONG_WRITABLE: Side.DECIMAL,
    },
    "rawbytes": {
        classes.TEXT: Side.SIZED_TEXT,
        classes.BYTES_WRITABLE: Side.SIZED,
        classes.TYPED_BYTES_WRITABLE: Side.SIZED,
        classes.LONG_WRITABLE: Side.SIZED,
    },
    "typedbytes": {
        classes.TEXT: Side.TYPED_STRING,
        classes.BYTES_WRITABLE: Side.TYPED_BYTES,
        classes.TYPED_BYTES_WRITABLE: Side.PLAIN,
        classes.LONG_WRITABLE: Side.TYPED_LONG,
    },
}
_SIDES["keyonlytext"] = _SIDES["text"]


def map_output_types(conf: JobConf) -> tuple[WritableType, WritableType]:
    """Return the types of intermediate keys and values."""
    return writable_type(conf.map_output_key_class), writable_type(conf.map_output_value_class)


def output_shape(identifier: str, rule: KeyValueRule) -> RecordShape:
    """Return how the output of a command is cut."""
    match identifier:
        case "rawbytes":
            return RAW_RECORDS
        case "typedbytes":
            return TYPED_RECORDS
        case "keyonlytext":
            return KEY_ONLY_RECORDS
    return text_records(rule)


def framed_shape(key_type: WritableType, value_type: WritableType) -> RecordShape:
    """Return the shape of records of these types that come one by one, from a built-in."""
    return RecordShape(Cut.FRAMED, key_serial=_serial(key_type), value_serial=_serial(value_type))


def _serial(kind: WritableType) -> Serial:
    # What has no serial of its own is counted as the bytes that it is.
    return _SERIALS.get(kind.class_name, Serial.LONG)


def command_form(
    identifier: str, separator: bytes, key_type: WritableType, value_type: WritableType
) -> WireForm | None:
    """Return the form in which a command reads records; None if the kernel has none for them."""
    sides = _SIDES[identifier]
    key = sides.get(key_type.class_name)
    if key is None:
        return None
    if identifier == "keyonlytext":
        return WireForm(key, b"", Side.NOTHING, b"\n")
    if value_type.is_null:
        # Java prints a null value in words; the binary forms have no word for it.
        if identifier != "text":
            return None
        return WireForm(key, separator + b"(null)", Side.NOTHING, b"\n")
    value = sides.get(value_type.class_name)
    if value is None:
        return None
    if identifier == "text":
        return WireForm(key, separator, value, b"\n")
    return WireForm(key, b"", value, b"")


def reduce_input_writer(
    conf: JobConf, key_type: WritableType, value_type: WritableType
) -> Callable[[bytes, bytes], bytes]:
    """Return the function that writes one record for a reduce command, whatever its types."""
    return record_writer(
        conf.reduce_input_identifier, key_type, value_type, conf.reduce_input_separator
    )


_BLOCK_CODECS = {
    ".gz": "zlib",
    ".deflate": "zlib",
    ".lz4": "lz4",
    ".zst": "zstd",
    ".snappy": "snappy",
    ".bz2": "bzip2",
}


def segment_codec(conf: JobConf) -> BlockCodec:
    """Return how intermediate data is packed: as asked, else not at all."""
    if not conf.map_output_compress:
        return block_codec.NONE
    return block_codec.by_name(_BLOCK_CODECS[codec_by_class(conf.map_output_codec_class).suffix])
