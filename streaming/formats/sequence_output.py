"""Output formats whose part files are sequence files: as they are, of bytes that are serialised
already, named after the input, or with an index beside them (a map file).

Takes records as payloads of known types. The classes in a file's header are those that the job
declared, and each record's are checked against them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import BinaryIO

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.streaming.classes import INTEGER_WRITABLES
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.codec import codec_by_class
from mrstream.streaming.formats.output_format import FLUSH_BYTES, FileWriter, OutputFormat
from mrstream.streaming.formats.sequence_file import SequenceFileWriter, sequence_file_writer
from mrstream.streaming.formats.writable import (
    BYTES,
    LONG,
    TYPED_BYTES,
    WritableType,
    writable_type,
)
from mrstream.streaming.records.comparator import BYTE_ORDER, LongOrder, compare

Record = tuple[bytes, bytes]
Types = tuple[WritableType, WritableType]


class WrongClass(UserError):
    """A record is not of the class that the job declared for its output."""


class KeyOutOfOrder(UserError):
    """A map file takes keys in order only."""


def open_sequence_output(
    kind: OutputFormat,
    conf: JobConf,
    create: Callable[[str], BinaryIO],
    name: str,
    given: Types,
    *,
    lazy: bool,
) -> SequenceFileOutput:
    """Open the part file of a task, whose records are of the types `given`."""
    if kind is OutputFormat.MAP_FILE:
        return MapFileOutput(conf, create, name, given, lazy=lazy)
    if kind is OutputFormat.SEQUENCE_FILE_AS_BINARY:
        return BinaryOutput(conf, lambda: create(name), given, lazy=lazy)
    return SequenceFileOutput(conf, lambda: create(name), given, lazy=lazy)


class SequenceFileOutput(FileWriter):
    """SequenceFileOutputFormat: the classes are those that the job declared, and are checked."""

    wants_records = True

    def __init__(
        self, conf: JobConf, create: Callable[[], BinaryIO], given: Types, *, lazy: bool
    ) -> None:
        super().__init__(create, None, lazy=lazy)
        codec = codec_by_class(conf.output_codec_class) if conf.output_compress else None
        self._codec = codec
        self._compression = conf.output_compression_type.upper() if codec else "NONE"
        if self._compression not in ("NONE", "RECORD", "BLOCK"):
            raise UserError(
                f"the output compression type is {conf.output_compression_type!r}; "
                "it must be NONE, RECORD or BLOCK"
            )
        self._given = given
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._writer: SequenceFileWriter | None = None
        self._declared = self._types_of(conf)
        if not lazy:
            self._begin()

    def write(self, text: bytes, records: int = 0) -> None:
        raise AssertionError("a sequence file takes records, not text")

    def write_records(self, records: Iterable[Record]) -> None:
        for key, value in records:
            self._check()
            self._begin().append(key, value)
            self.records_written += 1

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._flush()
        super().close()

    def _types_of(self, conf: JobConf) -> Types:
        return writable_type(conf.output_key_class), writable_type(conf.output_value_class)

    def _begin(self) -> SequenceFileWriter:
        if self._writer is None:
            self._writer = sequence_file_writer(
                self._hold, *self._declared, self._compression, self._codec
            )
        return self._writer

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._put_plain(b"".join(self._held))
        self._held, self._held_bytes = [], 0

    def _check(self) -> None:
        for word, given, declared in zip(
            ("key", "value"), self._given, self._declared, strict=True
        ):
            if given.class_name != declared.class_name:
                raise WrongClass(
                    f"wrong {word} class: {given.class_name} is not class {declared.class_name}"
                )


class BinaryOutput(SequenceFileOutput):
    """SequenceFileAsBinaryOutputFormat: keys and values come as bytes that the job has serialised
    itself, under any class names that it likes."""

    def _types_of(self, conf: JobConf) -> Types:
        key, value = (
            msgspec.structs.replace(writable_type(name), serialise=bytes)
            for name in conf.binary_output_classes
        )
        return key, value

    def _check(self) -> None:
        for given in self._given:
            if given not in (BYTES, TYPED_BYTES):
                raise WrongClass(
                    f"class {given.class_name} cannot be cast to class {BYTES.class_name}"
                )


class MapFileOutput(SequenceFileOutput):
    """MapFileOutputFormat: a directory with the records in `data`, and in `index` every so many-th
    key with its place there."""

    def __init__(
        self,
        conf: JobConf,
        create: Callable[[str], BinaryIO],
        name: str,
        given: Types,
        *,
        lazy: bool,
    ) -> None:
        self._interval = conf.map_file_interval
        self._index: _Index | None = None
        self._create_index = lambda: create(f"{name}/index")
        self._last_key: bytes | None = None
        self._indexed_records = self._indexed_at = -1
        super().__init__(conf, lambda: create(f"{name}/data"), given, lazy=lazy)
        is_number = self._declared[0].class_name in INTEGER_WRITABLES
        self._order = LongOrder() if is_number else BYTE_ORDER

    def write_records(self, records: Iterable[Record]) -> None:
        for key, value in records:
            self._check_order(key)
            self._check()
            writer = self._begin()
            self._enter(key, writer.position)
            writer.append(key, value)
            self.records_written += 1

    def close(self) -> None:
        super().close()
        if self._index is not None:
            self._index.close()
            self.bytes_written += self._index.bytes_written

    def abandon(self) -> None:
        super().abandon()
        if self._index is not None:
            self._index.abandon()

    def _begin(self) -> SequenceFileWriter:
        if self._index is None:
            self._index = _Index(self._create_index, self._declared[0])
        return super()._begin()

    def _enter(self, key: bytes, position: int) -> None:
        """Put a key into the index if it is its turn: once only for a place, for the records of a
        compressed block begin at one."""
        due = self._indexed_records < 0 or (
            self.records_written >= self._indexed_records + self._interval
        )
        if due and position > self._indexed_at:
            assert self._index is not None, "it is made before the first record"
            self._index.append(key, position)
            self._indexed_records, self._indexed_at = self.records_written, position

    def _check_order(self, key: bytes) -> None:
        before, self._last_key = self._last_key, key
        if before is not None and compare(self._order, before, key) > 0:
            text = self._given[0].to_string
            raise KeyOutOfOrder(
                f"key out of order: {text(key).decode()} after {text(before).decode()}"
            )


class _Index(FileWriter):
    """The index of a map file: keys and places, in compressed blocks."""

    def __init__(self, create: Callable[[], BinaryIO], key_type: WritableType) -> None:
        super().__init__(create, None, lazy=False)
        self._writer = sequence_file_writer(self._put_plain, key_type, LONG, "BLOCK")

    def append(self, key: bytes, position: int) -> None:
        self._writer.append(key, struct.pack(">q", position))

    def close(self) -> None:
        self._writer.close()
        super().close()
