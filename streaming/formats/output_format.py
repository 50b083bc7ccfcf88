"""Output formats: the records of a task become the bytes of its part file.

A writer is given a function that makes a file by name (so it knows nothing of directories or file
systems) and takes either text that is already in its final form, the fast path, or records as
(key, value) payloads. What it has written is complete only after `close`; `abandon` lets go of
the file without finishing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import BinaryIO

from mrstream.cluster.errors import UserError
from mrstream.streaming.classes import ROW_OUTPUTS, canonical
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.codec import Codec, codec_by_class
from mrstream.streaming.formats.writable import WritableType

_MAPRED = "org.apache.hadoop.mapred."
FLUSH_BYTES = 1024 * 1024


class OutputFormat(Enum):
    """What part files look like; the value is the class that Hadoop would name."""

    TEXT = _MAPRED + "TextOutputFormat"
    SEQUENCE_FILE = _MAPRED + "SequenceFileOutputFormat"
    SEQUENCE_FILE_AS_BINARY = _MAPRED + "SequenceFileAsBinaryOutputFormat"
    MAP_FILE = _MAPRED + "MapFileOutputFormat"
    MULTIPLE_SEQUENCE_FILE = _MAPRED + "lib.MultipleSequenceFileOutputFormat"
    MULTIPLE_TEXT = _MAPRED + "lib.MultipleTextOutputFormat"
    NULL = _MAPRED + "lib.NullOutputFormat"
    PARQUET = "parquet"
    AVRO = "avro"
    ARROW = "arrow"
    CSV = "csv"

    @staticmethod
    def by_class_name(name: str) -> OutputFormat | None:
        """Find a format by any of its Java names; LazyOutputFormat is none, it wraps one."""
        full = canonical(name, "outputformat")
        return next((known for known in OutputFormat if known.value == full), None)

    @property
    def is_rows(self) -> bool:
        """Whether it takes JSON lines and makes records with a schema of them."""
        return self.value in ROW_OUTPUTS

    @property
    def is_sequence_file(self) -> bool:
        return self in _SEQUENCE_FILES

    @property
    def extras(self) -> tuple[str, ...]:
        """The optional parts of mrstream without which it cannot be written."""
        return ("records",) if self.is_rows and self is not OutputFormat.CSV else ()


_SEQUENCE_FILES = frozenset(
    {
        OutputFormat.SEQUENCE_FILE,
        OutputFormat.SEQUENCE_FILE_AS_BINARY,
        OutputFormat.MAP_FILE,
        OutputFormat.MULTIPLE_SEQUENCE_FILE,
    }
)


class UnknownOutputFormat(UserError):
    """The output format is a Java class that is not built in."""


class OutputWriter:
    """One part file. `wants_records`: it cannot take formatted text, only records; with
    `wants_lines` also whole lines, just as a command wrote them."""

    wants_records = False
    wants_lines = False

    def __init__(self) -> None:
        self.bytes_written = 0
        self.records_written = 0
        self.rejected = 0

    def write(self, text: bytes, records: int = 0) -> None:
        """Take whole lines in their final form; `records` of them, for the count."""
        raise NotImplementedError

    def write_records(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Finish the file: when this returns, all of it is with the file system."""

    def abandon(self) -> None:
        """Let go of the file of a failed attempt without finishing it."""


def open_output(
    conf: JobConf,
    create: Callable[[str], BinaryIO],
    partition: int,
    *,
    key_type: WritableType,
    value_type: WritableType,
    input_url: str | None = None,
) -> OutputWriter:
    """Open the part file of a task: `create(name)` makes it.

    The types are those of the records that will come; `input_url` is the file that a map-only
    job's map reads.
    """
    kind = OutputFormat.by_class_name(conf.output_format_class)
    if kind is None:
        raise UnknownOutputFormat(f"-outputformat : class not found : {conf.output_format_class}")
    name = f"part-{partition:05d}"
    codec = codec_by_class(conf.output_codec_class) if conf.output_compress else None
    if kind is OutputFormat.NULL:
        return _NullWriter()
    if kind.is_rows:
        from mrstream.streaming.formats.row_sinks import open_row_output

        return open_row_output(kind, conf, create, name)
    lazy = conf.lazy_output
    if kind in (OutputFormat.MULTIPLE_TEXT, OutputFormat.MULTIPLE_SEQUENCE_FILE):
        # Its file is named by the first record, so without one there is no file.
        name, lazy = input_file_name(input_url, conf.trailing_legs) or name, True
    if kind.is_sequence_file:
        from mrstream.streaming.formats.sequence_output import (
            open_sequence_output,  # text jobs start without it
        )

        return open_sequence_output(kind, conf, create, name, (key_type, value_type), lazy=lazy)
    name += codec.suffix if codec else ""
    return _TextWriter(
        lambda: create(name), codec, conf.output_separator, key_type, value_type, lazy=lazy
    )


def input_file_name(input_url: str | None, trailing_legs: int) -> str | None:
    """The last components of the input file's path, as MultipleTextOutputFormat names output
    after them."""
    if input_url is None or trailing_legs <= 0:
        return None
    path = input_url.split("://", 1)[-1].split(":", 1)[-1]
    return "/".join(part for part in path.split("/")[-trailing_legs:] if part)


class _NullWriter(OutputWriter):
    """Counts, and keeps nothing."""

    def write(self, text: bytes, records: int = 0) -> None:
        self.records_written += records

    def write_records(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        for _ in records:
            self.records_written += 1


class FileWriter(OutputWriter):
    """A file that is made at once, or with the first record if `lazy`; compressed on the way if
    asked."""

    def __init__(self, create: Callable[[], BinaryIO], codec: Codec | None, *, lazy: bool) -> None:
        super().__init__()
        self._create = create
        self._compressor = codec.compressor() if codec else None
        self._file: BinaryIO | None = None if lazy else create()

    def _put(self, data: bytes) -> None:
        if self._compressor is not None:
            data = self._compressor.feed(data)
        self._put_plain(data)

    def _put_plain(self, data: bytes) -> None:
        if self._file is None:
            self._file = self._create()
        if data:
            self._file.write(data)
            self.bytes_written += len(data)

    def close(self) -> None:
        if self._file is None:
            return
        if self._compressor is not None:
            self._put_plain(self._compressor.finish())
            self._compressor = None
        self._file.close()

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()


class _TextWriter(FileWriter):
    """TextOutputFormat: `KEY separator VALUE LF` (spec 4.4)."""

    def __init__(
        self,
        create: Callable[[], BinaryIO],
        codec: Codec | None,
        separator: bytes,
        key_type: WritableType,
        value_type: WritableType,
        *,
        lazy: bool,
    ) -> None:
        super().__init__(create, codec, lazy=lazy)
        self._format = text_formatter(separator, key_type, value_type)

    def write(self, text: bytes, records: int = 0) -> None:
        if text or records:  # a record of two nulls is counted, and is no text
            self._put(text)
            self.records_written += records

    def write_records(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        held: list[bytes] = []
        held_bytes = 0
        for key, value in records:
            line = self._format(key, value)
            held.append(line)
            held_bytes += len(line)
            if held_bytes >= FLUSH_BYTES:
                self.write(b"".join(held), len(held))
                held, held_bytes = [], 0
        self.write(b"".join(held), len(held))


def text_formatter(
    separator: bytes, key_type: WritableType, value_type: WritableType
) -> Callable[[bytes, bytes], bytes]:
    """Return the function that writes one record as TextOutputFormat does."""
    key_text, value_text = key_type.file_text, value_type.file_text
    if key_type.is_null and value_type.is_null:
        return lambda _key, _value: b""  # Hadoop writes not even the line end
    if key_type.is_null:
        return lambda _, value: value_text(value) + b"\n"
    if value_type.is_null:
        return lambda key, _: key_text(key) + b"\n"
    return lambda key, value: key_text(key) + separator + value_text(value) + b"\n"
