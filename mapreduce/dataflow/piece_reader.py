"""Used by stage 2: one piece of a file, read as text, as a sequence file or as XML records.

Takes an open file and a range; gives blobs for a map command's stdin, or records. Decompresses by
the file's suffix. Never looks at another piece.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from mrstream.mapreduce.dataflow import kernel
from mrstream.mapreduce.dataflow.files import Files
from mrstream.mapreduce.dataflow.record_form import LineForm, LineInput
from mrstream.mapreduce.dataflow.split_plan import READ_BYTES, Piece
from mrstream.streaming.conf.jobconf import LINE_BYTES_MAX, JobConf
from mrstream.streaming.formats.codec import Codec, CodecCorrupt, codec_by_suffix
from mrstream.streaming.formats.input_format import InputFormat, XmlMarks, stream_reader_is_lines
from mrstream.streaming.formats.text_lines import (
    BYTE_ORDER_MARK,
    LineCounter,
    RecordBytes,
    records,
    to_lines,
)
from mrstream.streaming.formats.writable import LONG, TEXT, WritableType

# The modules of rarer formats are imported where they are needed: a small text job starts faster.

Record = tuple[bytes, bytes]
# A record that begins in a split may end behind it: how much is read at a time to find its end.
TAIL_BYTES = 64 * 1024
BZIP2_HEADER_BYTES = 4


class PieceReader(Protocol):
    """One piece of a split, read in one of two ways."""

    key_type: WritableType
    value_type: WritableType

    @property
    def records(self) -> int:
        """Records given so far."""
        ...

    def blobs(self) -> Iterator[bytes]:
        """Give the bytes for a command's stdin."""
        ...

    def pairs(self) -> Iterator[Record]:
        """Give the records as payloads."""
        ...

    def position(self) -> int:
        """The byte of the file up to which records were given out."""
        ...


class CountedFile:
    """A file that counts what is read of it; seekable if the file below is."""

    def __init__(self, files: Files, url: str) -> None:
        self.url = url
        self._file: BinaryIO = files.open(url)
        self.count = 0

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(count)
        self.count += len(data)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        return self._file.seek(position, whence)

    def blobs_from(self, start: int, end: int | None = None) -> Iterator[bytes]:
        """Give the file from `start` on, in blobs; behind `end` in small ones, for the last
        record."""
        self.seek(start)
        position = start
        while True:
            beyond = end is not None and position >= end
            wanted = TAIL_BYTES if beyond else min(READ_BYTES, (end or sys.maxsize) - position)
            blob = self.read(wanted)
            if not blob:
                return
            position += len(blob)
            yield blob

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> CountedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_piece(kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> PieceReader:
    """Open a piece for reading; AutoInputFormat looks at its first bytes."""
    if kind is InputFormat.AUTO:
        is_sequence_file = file.read(3) == b"SEQ"
        file.seek(0)
        kind = InputFormat.SEQUENCE_FILE if is_sequence_file else InputFormat.AUTO
    if kind.is_sequence_file:
        return _SequenceFilePiece(kind, piece, conf, file)
    if kind is InputFormat.STREAM:
        if not stream_reader_is_lines(conf.record_reader_class):
            return _XmlPiece(piece, conf, file)
        kind = InputFormat.KEY_VALUE_TEXT
    return _TextPiece(kind, piece, conf, file)


class _TextPiece:
    """Lines, or records with a delimiter of the job's own."""

    def __init__(self, kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        self._conf = conf
        self._kind = kind
        self._is_key_value = kind is InputFormat.KEY_VALUE_TEXT
        self.key_type = TEXT if self._is_key_value else LONG
        self.value_type = TEXT
        self._delimiter = conf.record_delimiter if kind.takes_delimiter else None
        self._counter = LineCounter(kernel.count_lines)
        self._bytes = _record_bytes(piece, file, self._delimiter)
        # Java casts the separator's first character to a byte, so é cuts at 0xE9.
        first = conf.key_value_input_separator.decode("utf-8", "surrogateescape")[0]
        self._key_end = ord(first) & 0xFF
        limit = conf.line_bytes_max
        self._line_bytes_max = limit if 0 < limit < LINE_BYTES_MAX else 0
        self._at_file_start = piece.start == 0

    @property
    def records(self) -> int:
        return self._counter.records

    def position(self) -> int:
        return self._bytes.position

    def blobs(self) -> Iterator[bytes]:
        form = self._line_form()
        if form is LineForm.LINE and not self._line_bytes_max:
            return to_lines(
                self._bytes, self._counter, self._delimiter, strip_mark=self._at_file_start
            )
        # The kernel writes offsets and keys, but it knows line ends only.
        if form is not None and self._delimiter is None:
            return self._kernel_blobs(form)
        return self._written_pairs()

    def pairs(self) -> Iterator[Record]:
        if self._is_key_value:
            return self._key_value_pairs()
        return ((offset.to_bytes(8, "big"), line) for offset, line in self._lines())

    def _line_form(self) -> LineForm | None:
        """How each line is written for the command; None: not as a line of text."""
        match self._conf.map_input_identifier:
            case "keyonlytext":
                return LineForm.KEY if self._is_key_value else LineForm.OFFSET
            case "text":
                if self._kind.ignores_key(self._conf.map_input_ignore_key):
                    return LineForm.VALUE if self._is_key_value else LineForm.LINE
                return LineForm.KEY_VALUE if self._is_key_value else LineForm.OFFSET_LINE
        return None

    def _kernel_blobs(self, form: LineForm) -> Iterator[bytes]:
        blobs = iter(self._bytes)
        first = next(blobs, b"")
        feeder = kernel.line_feeder(
            LineInput(
                form=form,
                start=self._bytes.first,
                separator=self._conf.map_input_separator,
                key_end=self._key_end,
                line_bytes_max=self._line_bytes_max,
                strip_bom=self._at_file_start,
            )
        )
        blob = first
        while blob:
            written = feeder.feed(blob)
            self._counter.records = feeder.records
            if written:
                yield written
            blob = next(blobs, b"")
        written = feeder.finish()
        self._counter.records = feeder.records
        if written:
            yield written

    def _written_pairs(self) -> Iterator[bytes]:
        from mrstream.streaming.formats.record_io import record_writer

        write = record_writer(
            self._conf.map_input_identifier,
            self.key_type,
            self.value_type,
            self._conf.map_input_separator,
            ignore_key=self._kind.ignores_key(self._conf.map_input_ignore_key),
        )
        return gathered(write(key, value) for key, value in self.pairs())

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Give (offset, line), without lines that are too long and without a byte order mark."""
        limit = self._line_bytes_max or LINE_BYTES_MAX
        blobs = iter(self._bytes)
        first = next(blobs, b"")
        for offset, line, length in records(
            _chain(first, blobs), self._bytes.first, self._delimiter
        ):
            if offset == 0 and line.startswith(BYTE_ORDER_MARK):
                line, length = line[len(BYTE_ORDER_MARK) :], length - len(BYTE_ORDER_MARK)
                if not length:
                    return  # a mark alone is no record
            if length >= limit:
                continue
            self._counter.records += 1
            yield offset, line

    def _key_value_pairs(self) -> Iterator[Record]:
        separator = bytes([self._key_end])
        for _, line in self._lines():
            key, _, value = line.partition(separator)
            yield key, value


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """Put back a blob that was taken to learn where the records begin."""
    if first:
        yield first
    yield from rest


def gathered(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces into blobs of about 1 MiB."""
    held: list[bytes] = []
    held_bytes = 0
    for part in parts:
        held.append(part)
        held_bytes += len(part)
        if held_bytes >= READ_BYTES:
            yield b"".join(held)
            held, held_bytes = [], 0
    if held:
        yield b"".join(held)


def _record_bytes(piece: Piece, file: CountedFile, delimiter: bytes | None) -> RecordBytes:
    """The bytes of a piece's records: plain, decompressed whole, or of the bzip2 blocks that lie
    in it."""
    codec = codec_by_suffix(piece.url)
    end = piece.start + piece.length
    if codec is None:
        return RecordBytes(file.blobs_from(piece.start, end), piece.start, end, delimiter)
    if not codec.is_splittable or _is_whole(piece, file):
        return RecordBytes(_decompressed(codec, file), 0, None, delimiter)
    return _Bzip2RecordBytes(file, piece.start, end, delimiter)


def _is_whole(piece: Piece, file: CountedFile) -> bool:
    if piece.start > 0:
        return False
    length = file.seek(0, 2)
    file.seek(0)
    return piece.length >= length


def _decompressed(codec: Codec, file: CountedFile) -> Iterator[bytes]:
    return codec.decompressed(file.blobs_from(0), file.url)


class _Bzip2RecordBytes(RecordBytes):
    """The records of the bzip2 blocks that begin in a piece.

    Positions are those of Hadoop: the piece's start plus the plain bytes since. The border lies
    between two blocks, and is known only when the first block behind it is met.
    """

    def __init__(self, file: CountedFile, start: int, end: int, delimiter: bytes | None) -> None:
        self._compressed_end = end
        self._url = file.url
        super().__init__(self._plain(file, start), start, None, delimiter)

    def _plain(self, file: CountedFile, start: int) -> Iterator[bytes]:
        from mrstream.streaming.formats.bzip2_blocks import blocks as bzip2_blocks

        plain_end = start
        try:
            for block_at, plain in bzip2_blocks(file.blobs_from(start), start):
                if block_at <= BZIP2_HEADER_BYTES:
                    # The file's first block is read from byte 0, wherever the next piece begins.
                    if start > 0:
                        continue
                elif block_at >= self._compressed_end and self._end is None:
                    if plain_end == start:
                        return  # no block begins in the piece: it owns no record
                    self._end = plain_end
                plain_end += len(plain)
                yield plain
        except CodecCorrupt as error:
            raise CodecCorrupt(f"{self._url}: {error}") from None


class _RecordPiece:
    """A reader whose records come one by one anyway."""

    key_type: WritableType
    value_type: WritableType
    records = 0

    def __init__(self, conf: JobConf, ignore_key: bool) -> None:
        self._conf = conf
        self._ignore_key = ignore_key

    def blobs(self) -> Iterator[bytes]:
        from mrstream.streaming.formats.record_io import record_writer

        write = record_writer(
            self._conf.map_input_identifier,
            self.key_type,
            self.value_type,
            self._conf.map_input_separator,
            ignore_key=self._ignore_key,
        )
        return gathered(write(key, value) for key, value in self.pairs())

    def pairs(self) -> Iterator[Record]:
        raise NotImplementedError


class _SequenceFilePiece(_RecordPiece):
    """Sequence files, their records as they are, as text or as raw bytes."""

    def __init__(self, kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        from mrstream.streaming.formats.sequence_file import SequenceFileReader

        super().__init__(conf, kind.ignores_key(conf.map_input_ignore_key))
        self._reader = SequenceFileReader(
            file,  # type: ignore[arg-type]  # it reads and seeks, which is all that is asked
            piece.start,
            piece.start + piece.length,
            raw=kind is InputFormat.SEQUENCE_FILE_AS_BINARY,
            as_text=kind is InputFormat.SEQUENCE_FILE_AS_TEXT,
        )
        self.key_type, self.value_type = self._reader.key_type, self._reader.value_type

    def pairs(self) -> Iterator[Record]:
        for record in self._reader:
            self.records += 1
            yield record

    def position(self) -> int:
        return self._reader.position


class _XmlPiece(_RecordPiece):
    """StreamXmlRecordReader: the record is the key, the value is empty."""

    key_type = TEXT
    value_type = TEXT

    def __init__(self, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        from mrstream.streaming.formats.xml_records import XmlRecords

        super().__init__(conf, InputFormat.STREAM.ignores_key(conf.map_input_ignore_key))
        file.seek(piece.start)
        self._reader = XmlRecords(
            file,  # type: ignore[arg-type]  # it reads, which is all that is asked
            piece.start,
            piece.start + piece.length,
            XmlMarks(conf.record_reader_options),
        )

    def pairs(self) -> Iterator[Record]:
        for _, record in self._reader:
            self.records += 1
            yield record, b""

    def position(self) -> int:
        return self._reader.position
