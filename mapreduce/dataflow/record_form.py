"""Used by stages 4, 5, 8 and 9: the forms in which records come and go.

Plain data. A `RecordShape` says how a command's bytes are cut into records and how
large Hadoop would have counted them; a `WireForm` says how records are written for
a command. Never touches a record itself: that is the kernel's work.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from mrstream.streaming.records.key_value import KeyValueRule

TAB_RULE = KeyValueRule()
BLOCK_BYTES = 256 * 1024  # of a segment's block, unless one record is larger
RECORD_OVERHEAD_BYTES = 32  # what the kernel's index and the sort's scratch take for a record


class Cut(IntEnum):
    """How a stream of bytes is cut into records; the numbers are known to the C kernel."""

    LINES = 0  # a line, cut into key and value by a KeyValueRule
    KEY_LINES = 1  # a line that is all key; there is no value
    RAW_BYTES = 2  # int32 length and bytes, twice
    TYPED_BYTES = 3  # two typed objects, kept with their type bytes
    FRAMED = 4  # our own: varint key length, varint value length, key, value


class Serial(IntEnum):
    """How Hadoop would store one side of a record: this decides its byte counters (spec 8.1)."""

    TEXT = 0
    BYTES = 1
    NULL = 2
    LONG = 3


class Side(IntEnum):
    """How one side of a record is written; the numbers are known to the C kernel."""

    PLAIN = 0  # its bytes
    NOTHING = 1
    SIZED = 2  # int32 length, bytes
    SIZED_TEXT = 3  # int32 length of what follows, vint length, bytes
    TYPED_STRING = 4  # 7, int32 length, bytes, with U+FFFD for what is no UTF-8
    TYPED_BYTES = 5  # 0, int32 length, bytes
    TYPED_LONG = 6  # 4, the eight bytes
    DECIMAL = 7  # the eight bytes of an integer, in decimal digits


class RecordShape(msgspec.Struct, frozen=True):
    """How a command's output is cut into records, and how Hadoop would count them."""

    cut: Cut = Cut.LINES
    rule: KeyValueRule = TAB_RULE
    key_serial: Serial = Serial.TEXT
    value_serial: Serial = Serial.TEXT


def text_records(rule: KeyValueRule) -> RecordShape:
    """Lines with a key and a value (`text`)."""
    return RecordShape(Cut.LINES, rule)


TEXT_RECORDS = RecordShape()
KEY_ONLY_RECORDS = RecordShape(Cut.KEY_LINES, value_serial=Serial.NULL)
RAW_RECORDS = RecordShape(Cut.RAW_BYTES, key_serial=Serial.BYTES, value_serial=Serial.BYTES)
TYPED_RECORDS = RecordShape(Cut.TYPED_BYTES, key_serial=Serial.BYTES, value_serial=Serial.BYTES)
FRAMED_RECORDS = RecordShape(Cut.FRAMED)


class WireForm(msgspec.Struct, frozen=True):
    """How a record is written: key side, separator, value side, end; or as our own frame."""

    key: Side = Side.PLAIN
    separator: bytes = b"\t"
    value: Side = Side.PLAIN
    end: bytes = b"\n"
    framed: bool = False


FRAMED_FORM = WireForm(framed=True)
"""Frames of a segment's blocks: what intermediate merges and built-in reducers read."""


def text_form(separator: bytes) -> WireForm:
    """`KEY separator VALUE\\n` (`text`)."""
    return WireForm(separator=separator)


class LineForm(IntEnum):
    """What a map command reads of each line of its input (spec 3.4, 3.5)."""

    LINE = 0  # LINE
    OFFSET_LINE = 1  # OFFSET separator LINE
    KEY_VALUE = 2  # KEY separator VALUE, the line cut at the first `key_end` byte
    VALUE = 3  # the part behind that byte
    OFFSET = 4  # OFFSET alone
    KEY = 5  # the part before that byte


class CsvForm(IntEnum):
    """What a map command reads of each CSV record; the numbers are known to the C kernel."""

    OBJECTS = 0  # a JSON object
    ARRAYS = 1  # a JSON array
    TABS = 2  # fields between tabs
    NOTHING = 3  # nothing: only where records begin is of interest


class CsvInput(msgspec.Struct, frozen=True):
    """Which CSV records of a file a map command reads, and how they are written for it.

    Takes bytes from `start` on, where a record begins, and gives every record that begins before
    `end` (None: all of them). `columns` are the fields to write, in this order (None: all);
    `names` stand before each of them in an object, comma, quotes and colon included.
    """

    form: CsvForm = CsvForm.ARRAYS
    delimiter: int = 0x2C
    quote: int = 0x22  # -1: there are none
    start: int = 0
    end: int | None = None
    fields_max: int = 0  # a record with more is refused; 0: none is
    bytes_max: int = 256 << 20
    names: tuple[bytes, ...] = ()
    columns: tuple[int, ...] | None = None


class LineInput(msgspec.Struct, frozen=True):
    """Which lines of a file a map command reads, and how they are written for it.

    Takes bytes from `start` on and gives every line that begins at or before `end`
    (None: all of them). With `skip_first` the line at `start` belongs to the split
    before. A line of `line_bytes_max` bytes or more, its end counted, is dropped.
    """

    form: LineForm = LineForm.LINE
    start: int = 0
    end: int | None = None
    skip_first: bool = False
    separator: bytes = b"\t"
    key_end: int = 9
    line_bytes_max: int = 0  # 0: no limit
    strip_bom: bool = False
