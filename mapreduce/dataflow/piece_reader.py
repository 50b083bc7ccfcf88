"""Used by stage 2: one piece of a file, read as text, as a sequence file or as XML records.

Takes an open file and a range; gives blobs for a map command's stdin, or records. Decompresses by
the file's suffix. Never looks at another piece.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from mrstream.cluster.closing import Closing
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
    gathered,
    records,
    to_lines,
)
from mrstream.streaming.formats.writable import BYTES, LONG, TEXT, WritableType

if TYPE_CHECKING:
    from mrstream.streaming.formats.row_file import RowReader

# The modules of rarer formats are imported where they are needed: a small text job starts faster.

Record = tuple[bytes, bytes]
# A record that begins in a split may end behind it: how much is read at a time to find its end.
TAIL_BYTES = 64 * 1024
BZIP2_HEADER_BYTES = 4
# A record has at most a quarter of a chunk (GFS §3.3): this is enough for chunks of 256 MiB.
APPENDED_BYTES_MAX = 1 << 26


class PieceReader(Protocol):
    """One piece of a split, read in one of two ways."""

    key_type: WritableType
    value_type: WritableType

    @property
    def records(self) -> int:
        """Records given so far."""

    def blobs(self) -> Iterator[bytes]:
        """Return the bytes for a command's stdin."""

    def pairs(self) -> Iterator[Record]:
        """Return the records as payloads."""

    def position(self) -> int:
        """The byte of the file up to which records were given out."""


class CountedFile(Closing):
    """A file that counts what is read of it; seekable if the file below is."""

    def __init__(self, files: Files, url: str, version: str = "") -> None:
        self.url = url
        self._file: BinaryIO = files.open(url, version=version)
        self.count = 0

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(count)
        self.count += len(data)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        return self._file.seek(position, whence)

    def blobs_from(self, start: int, end: int | None = None) -> Iterator[bytes]:
        """Yield the file from `start` on, in blobs; behind `end` in small ones, for the last
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


def open_piece(kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> PieceReader:
    """Open a piece for reading; AutoInputFormat looks at its first bytes."""
    if kind is InputFormat.AUTO:
        is_sequence_file = file.read(3) == b"SEQ"
        file.seek(0)
        kind = InputFormat.SEQUENCE_FILE if is_sequence_file else InputFormat.AUTO
    if kind is InputFormat.FIXED_LENGTH:
        return _FixedLengthPiece(kind, piece, conf, file)
    if kind.is_sequence_file:
        return _SequenceFilePiece(kind, piece, conf, file)
    if kind is InputFormat.AVRO_AS_TEXT:
        return _AvroTextPiece(kind, piece, conf, file)
    if kind is InputFormat.WARC:
        return _WarcPiece(kind, piece, conf, file)
    if kind.is_rows:
        return _RowPiece(kind, piece, conf, file)
    if kind is InputFormat.DELIMITED:
        return _DelimitedPiece(piece, conf, file)
    if kind is InputFormat.RECORD_APPEND:
        return _AppendedPiece(conf, file)
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
        """Yield (offset, line), without lines that are too long and without a byte order mark."""
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


def _record_bytes(piece: Piece, file: CountedFile, delimiter: bytes | None) -> RecordBytes:
    """The bytes of a piece's records: plain, decompressed whole, or of the bzip2 blocks that lie
    in it."""
    codec = codec_by_suffix(piece.url)
    end = piece.start + piece.length
    if codec is None:
        return RecordBytes(file.blobs_from(piece.start, end), piece.start, end, delimiter)
    if _is_whole(piece, file) or (not codec.is_splittable and codec.suffix != ".zst"):
        return RecordBytes(_decompressed(codec, file), 0, None, delimiter)
    if codec.suffix == ".zst":
        return _of_frames(codec, piece, file, delimiter)
    return _Bzip2RecordBytes(file, piece.start, end, delimiter)


def _of_frames(
    codec: Codec, piece: Piece, file: CountedFile, delimiter: bytes | None
) -> RecordBytes:
    """The records of the frames that begin in a piece of a seekable zstd file."""
    from mrstream.streaming.formats.zstd_frames import seek_table

    try:
        table = seek_table(file)
    except CodecCorrupt as error:
        raise CodecCorrupt(f"{file.url}: {error}") from None
    if table is None:  # as a piece of any other file that cannot be cut: all of it
        file.seek(0)
        return RecordBytes(_decompressed(codec, file), 0, None, delimiter)
    at, start, end = table.plain_range(piece.start, piece.start + piece.length)
    packed = file.blobs_from(at, table.end) if at < table.end else iter(())
    blobs = _first_bytes(packed, table.end - at)
    return RecordBytes(codec.decompressed(blobs, file.url), start, end, delimiter)


def _first_bytes(blobs: Iterator[bytes], count: int) -> Iterator[bytes]:
    for blob in blobs:
        if count <= 0:
            return
        yield blob[:count]
        count -= len(blob)


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
    _reader: Any
    """What cuts them; all have a `position`."""

    def __init__(self, kind: InputFormat, conf: JobConf) -> None:
        self._conf = conf
        self._ignore_key = kind.ignores_key(conf.map_input_ignore_key)

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

    def position(self) -> int:
        return int(self._reader.position)


class _SequenceFilePiece(_RecordPiece):
    """Sequence files, their records as they are, as text or as raw bytes."""

    def __init__(self, kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        from mrstream.streaming.formats.sequence_file import SequenceFileReader

        super().__init__(kind, conf)
        self._reader = SequenceFileReader(
            file,  # type: ignore[arg-type]  # it reads and seeks, which is all that is asked
            piece.start,
            piece.start + piece.length,
            raw=kind is InputFormat.SEQUENCE_FILE_AS_BINARY,
            as_text=kind is InputFormat.SEQUENCE_FILE_AS_TEXT,
        )
        self.key_type, self.value_type = self._reader.key_type, self._reader.value_type
        self._accepts: Callable[[bytes], bool] | None = None
        if kind is InputFormat.SEQUENCE_FILE_FILTER:
            from mrstream.streaming.formats.key_filter import key_filter

            self._accepts = key_filter(conf, self.key_type)

    def pairs(self) -> Iterator[Record]:
        for record in self._reader:
            if self._accepts is None or self._accepts(record[0]):
                self.records += 1
                yield record


class _FixedLengthPiece(_RecordPiece):
    """Records of one length; the key is where a record begins."""

    key_type = LONG
    value_type = BYTES

    def __init__(self, kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        from mrstream.streaming.formats.fixed_length import FixedLengthRecords

        super().__init__(kind, conf)
        codec = codec_by_suffix(piece.url)
        self._file, self._codec = file, codec
        end = None if codec else piece.start + piece.length
        self._reader = FixedLengthRecords(conf.record_bytes, piece.start, end)

    def pairs(self) -> Iterator[Record]:
        first, end = self._reader.range
        if self._codec is not None:
            blobs = _decompressed(self._codec, self._file)
        else:
            assert end is not None, "the end of a plain file's piece is known"
            blobs = _first_bytes(self._file.blobs_from(first, end), end - first)
        for offset, record in self._reader.cut(blobs):
            self.records += 1
            yield offset.to_bytes(8, "big"), record


class _RowPiece(_RecordPiece):
    """Records of another format as lines; the key is a record's number in the piece."""

    key_type = LONG
    value_type = TEXT

    def __init__(self, kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        super().__init__(kind, conf)
        end = piece.start + piece.length
        self._reader: RowReader
        if kind is InputFormat.CSV:
            from mrstream.mapreduce.dataflow.csv_rows import CsvRows

            self._reader = CsvRows(file, piece.start, end, conf)
        else:
            from mrstream.streaming.formats.rows import open_rows

            self._reader = open_rows(kind, file, piece.start, end, conf)

    def blobs(self) -> Iterator[bytes]:
        if not self._ignore_key or self._conf.map_input_identifier != "text":
            yield from super().blobs()
            return
        for blob in self._reader.lines():
            self.records = self._reader.records
            yield blob
        self.records = self._reader.records

    def pairs(self) -> Iterator[Record]:
        for blob in self._reader.lines():
            for line in blob.split(b"\n")[:-1]:
                number = self.records
                self.records += 1
                yield number.to_bytes(8, "big"), line


class _AvroTextPiece(_RecordPiece):
    """AvroAsTextInputFormat: a datum's text is the key, the value is empty."""

    key_type = TEXT
    value_type = TEXT

    def __init__(self, kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        from mrstream.streaming.formats.avro_rows import AvroRows

        super().__init__(kind, conf)
        end = piece.start + piece.length
        self._reader = AvroRows(file, piece.start, end, as_java=True)

    def pairs(self) -> Iterator[Record]:
        for line in self._reader.each():
            self.records += 1
            yield line.removesuffix(b"\t\n"), b""


class _WarcPiece(_RecordPiece):
    """WARC records: the target URI is the key, headers and payload are the value, as base64 where
    programs read lines."""

    key_type = TEXT

    def __init__(self, kind: InputFormat, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        from mrstream.streaming.formats.warc_records import WarcRecords

        super().__init__(kind, conf)
        self.value_type = warc_value_type(conf)
        exact = conf.input_borders == "exact"
        self._reader = WarcRecords(file, piece.start, piece.start + piece.length, exact=exact)

    def pairs(self) -> Iterator[Record]:
        import base64

        as_text = self.value_type is TEXT
        for uri, record in self._reader:
            self.records += 1
            yield uri, base64.b64encode(record) if as_text else record


def warc_value_type(conf: JobConf) -> WritableType:
    """Text where programs read lines, else bytes."""
    return TEXT if conf.map_input_identifier in ("text", "keyonlytext") else BYTES


class _AppendedPiece(_RecordPiece):
    """Records of record append: the key is where one was found, the value what was appended."""

    key_type = LONG
    value_type = BYTES

    def __init__(self, conf: JobConf, file: CountedFile) -> None:
        super().__init__(InputFormat.RECORD_APPEND, conf)
        self._file = file
        self._position = 0

    def pairs(self) -> Iterator[Record]:
        from mrstream.dfs.client.records import RecordCutter

        cutter = RecordCutter(APPENDED_BYTES_MAX)
        found = (record for blob in self._file.blobs_from(0) for record in cutter.feed(blob))
        for record in itertools.chain(found, cutter.finish()):
            self.records += 1
            self._position = record.offset + len(record.payload)
            yield record.offset.to_bytes(8, "big"), record.payload

    def position(self) -> int:
        return self._position


class _DelimitedPiece(_RecordPiece):
    """Records behind their lengths: the key is where one begins, the value its bytes."""

    key_type = LONG
    value_type = BYTES

    def __init__(self, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        from mrstream.streaming.formats.delimited import DelimitedRecords

        super().__init__(InputFormat.DELIMITED, conf)
        codec = codec_by_suffix(piece.url)
        blobs = file.blobs_from(0) if codec is None else _decompressed(codec, file)
        self._reader = DelimitedRecords(blobs, piece.url)

    def pairs(self) -> Iterator[Record]:
        for record in self._reader:
            self.records += 1
            yield self._reader.position.to_bytes(8, "big"), record


class _XmlPiece(_RecordPiece):
    """StreamXmlRecordReader: the record is the key, the value is empty."""

    key_type = TEXT
    value_type = TEXT

    def __init__(self, piece: Piece, conf: JobConf, file: CountedFile) -> None:
        from mrstream.streaming.formats.xml_records import XmlRecords

        super().__init__(InputFormat.STREAM, conf)
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
