"""Which input formats there are, by the Java names that scripts give, and what each means for
keys and splits.

Pure: no file is opened here. `split_plan` cuts files after these rules and `split_reader` reads
the pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from mrstream.cluster.errors import UserError
from mrstream.streaming import classes
from mrstream.streaming.classes import canonical
from mrstream.streaming.formats.codec import codec_by_suffix

# SequenceFile.SYNC_INTERVAL of Hadoop 3: a smaller piece could not hold a sync mark.
SEQUENCE_FILE_SPLIT_BYTES_MIN = 102_400

_OLD = "org.apache.hadoop.mapred."
_STREAMING = "org.apache.hadoop.streaming."


class InputFormat(Enum):
    """How a file is cut and what its records are; the value is the class that Hadoop would name."""

    TEXT = _OLD + "TextInputFormat"
    KEY_VALUE_TEXT = _OLD + "KeyValueTextInputFormat"
    NLINE = _OLD + "lib.NLineInputFormat"
    COMBINE_TEXT = _OLD + "lib.CombineTextInputFormat"
    SEQUENCE_FILE = _OLD + "SequenceFileInputFormat"
    SEQUENCE_FILE_AS_TEXT = _OLD + "SequenceFileAsTextInputFormat"
    SEQUENCE_FILE_AS_BINARY = _OLD + "SequenceFileAsBinaryInputFormat"
    SEQUENCE_FILE_FILTER = classes.SEQUENCE_FILE_FILTER
    COMBINE_SEQUENCE_FILE = _OLD + "lib.CombineSequenceFileInputFormat"
    FIXED_LENGTH = _OLD + "FixedLengthInputFormat"
    AUTO = _STREAMING + "AutoInputFormat"
    STREAM = _STREAMING + "StreamInputFormat"
    AVRO_AS_TEXT = classes.AVRO_AS_TEXT_INPUT
    PARQUET = "parquet"
    AVRO = "avro"
    ARROW = "arrow"
    CSV = "csv"
    WARC = "warc"
    PROTO = "proto"
    PROGRAM = "program"
    RECORD_APPEND = classes.RECORD_APPEND_INPUT
    SAW = classes.SAW
    DELIMITED = classes.DELIMITED_INPUT

    @staticmethod
    def by_class_name(name: str) -> InputFormat | None:
        """Find a format by its full old name, its new-API name or its simple name."""
        full = canonical(name, "inputformat")
        return InputFormat(full.partition(":")[0]) if full else None

    @property
    def is_sequence_file(self) -> bool:
        """Whether every input file must be a sequence file."""
        return self in _SEQUENCE_FILES

    @property
    def split_bytes_min(self) -> int:
        """The smallest piece that this format lets a file be cut into."""
        return SEQUENCE_FILE_SPLIT_BYTES_MIN if self.is_sequence_file else 1

    def may_split(self, path: str) -> bool:
        """Whether the file may be cut: always but for text in a codec that starts only at its
        start."""
        if self.is_sequence_file or self in _CUT_ANYWHERE:
            return True
        if self is InputFormat.RECORD_APPEND:
            return False  # a record and its duplicate, anywhere behind it, are one
        if self is InputFormat.DELIMITED:
            return False  # nothing in the data says where a record begins
        codec = codec_by_suffix(path)
        if self is InputFormat.FIXED_LENGTH:
            return codec is None
        if self is InputFormat.WARC:
            return codec is None or path.endswith(".gz")
        if self.is_rows:
            return self is InputFormat.CSV and codec is None
        return codec is None or codec.is_splittable

    @property
    def takes_delimiter(self) -> bool:
        """Whether its records may end at a delimiter of the job's: those that TextInputFormat
        reads."""
        return self in _READ_AS_TEXT

    def ignores_key(self, explicit: bool | None) -> bool:
        """Whether a text mapper gets the value alone (spec 3.4): by default only
        TextInputFormat's, and that of the formats whose records become lines."""
        return self is InputFormat.TEXT or self.is_rows if explicit is None else explicit

    @property
    def is_rows(self) -> bool:
        """Whether its records become lines by a format of our own."""
        return self.value in classes.ROW_INPUTS

    @property
    def extras(self) -> tuple[str, ...]:
        """The optional parts of mrstream without which it cannot be read."""
        return ("records",) if self in _NEED_RECORDS else ()


_SEQUENCE_FILES = frozenset(
    {
        InputFormat.SEQUENCE_FILE,
        InputFormat.SEQUENCE_FILE_AS_TEXT,
        InputFormat.SEQUENCE_FILE_AS_BINARY,
        InputFormat.SEQUENCE_FILE_FILTER,
        InputFormat.COMBINE_SEQUENCE_FILE,
        InputFormat.SAW,  # shards, whose states a map makes lines of
    }
)
# These find their own borders from any place inside, whatever the file is called.
_CUT_ANYWHERE = frozenset(
    {InputFormat.PARQUET, InputFormat.AVRO, InputFormat.AVRO_AS_TEXT, InputFormat.ARROW}
)
_NEED_RECORDS = _CUT_ANYWHERE | {InputFormat.PROTO}
FILTERED = frozenset({InputFormat.PARQUET, InputFormat.ARROW, InputFormat.AVRO})
"""Those that read only the rows that a filter lets pass."""
_READ_AS_TEXT = frozenset({InputFormat.TEXT, InputFormat.COMBINE_TEXT, InputFormat.AUTO})


class MissingReaderProperty(UserError):
    """`-inputreader` lacks a setting without which its reader cannot work."""


class XmlMarks:
    """The begin and end marks of StreamXmlRecordReader and how it looks for them (spec 3.6)."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.begin = _required(options, "begin")
        self.end = _required(options, "end")
        self.record_bytes_max = _number(options, "maxrec", 50_000)
        self.lookahead_bytes = _number(options, "lookahead", 2 * self.record_bytes_max)
        self.slow_match = options.get("slowmatch", "").strip().lower() == "true"

    @property
    def window_bytes(self) -> int:
        """How far slow matching looks ahead for one mark."""
        return max(self.lookahead_bytes, self.record_bytes_max)


def stream_reader_is_lines(record_reader_class: str | None) -> bool:
    """Whether StreamInputFormat is plain KeyValueText: no reader was named, or a line
    reader."""
    return not record_reader_class or "LineRecordReader" in record_reader_class


def _required(options: Mapping[str, str], name: str) -> str:
    value = options.get(name)
    if value is None:
        raise MissingReaderProperty(
            f"JobConf: missing required property: stream.recordreader.{name}"
        )
    return value


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise MissingReaderProperty(
            f"-inputreader: {name} is {text!r}; it must be a whole number of bytes"
        ) from None
