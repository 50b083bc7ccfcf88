"""Stage 2: a split becomes the bytes that a map command reads, or the records that a built-in
mapper takes.

Opens the pieces of the split one after the other through `Files`, decompresses them by suffix,
and gives blobs of about 1 MiB in the form that the command expects. Plain text is never touched
record by record in Python: whole blobs are scanned, and where a line needs its offset or its key
the kernel writes it. Never runs a command, never sorts.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrstream.mapreduce.dataflow.files import Files
from mrstream.mapreduce.dataflow.piece_reader import (
    CountedFile,
    PieceReader,
    Record,
    open_piece,
    warc_value_type,
)
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.text_lines import gathered
from mrstream.streaming.formats.writable import BYTES, LONG, TEXT, WritableType


class SplitReader:
    """One split. Iterate it for blobs in the map command's wire form, or use `records_iter`;
    once, not both.

    While that goes on, `records` counts what was given, `bytes_read` what was taken from files,
    and `position` names the file and the byte reached, for failure reports and progress.
    """

    def __init__(self, split: Split, conf: JobConf, files: Files) -> None:
        self._split = split
        self._conf = conf
        self._files = files
        self._done_records = 0
        self._piece_index = 0
        self._position = (split.pieces[0].url, split.pieces[0].start) if split.pieces else ("", 0)
        self._piece: PieceReader | None = None
        self._file: CountedFile | None = None
        self._done_bytes = 0
        self.key_type, self.value_type = record_types_of(split, conf, files)

    @property
    def records(self) -> int:
        """Records given so far."""
        return self._done_records + (self._piece.records if self._piece else 0)

    @property
    def bytes_read(self) -> int:
        """Bytes taken from the files so far, compressed ones as they lie there."""
        return self._done_bytes + (self._file.count if self._file else 0)

    def position(self) -> tuple[str, int]:
        """(file, byte): up to where records were given out; for compressed files a byte of the
        plain text."""
        if self._piece is not None:
            self._position = self._split.pieces[self._piece_index].url, self._piece.position()
        return self._position

    def progress(self) -> float:
        """The share of the split that was read, 0 to 1."""
        return min(1.0, self.bytes_read / self._split.length) if self._split.length else 1.0

    def __iter__(self) -> Iterator[bytes]:
        blobs = (blob for reader in self._pieces() for blob in reader.blobs())
        # Ten thousand small files are not ten thousand small writes to the command.
        yield from blobs if len(self._split.pieces) == 1 else gathered(blobs)

    def records_iter(self) -> Iterator[Record]:
        """Yield (key, value) payloads; their types are `key_type` and `value_type`."""
        for reader in self._pieces():
            yield from reader.pairs()

    def close(self) -> None:
        """Close the file that is open, if any."""
        if self._file is not None:
            self._done_bytes += self._file.count
            self._file.close()
            self._file = None

    def _pieces(self) -> Iterator[PieceReader]:
        for index, piece in enumerate(self._split.pieces):
            self._piece_index = index
            self._file = CountedFile(self._files, piece.url, piece.version)
            self._piece = open_piece(self._split.input_format, piece, self._conf, self._file)
            yield self._piece
            self.position()
            self._done_records += self._piece.records
            self._piece = None
            self.close()


def record_types_of(split: Split, conf: JobConf, files: Files) -> tuple[WritableType, WritableType]:
    """The types of the keys and values that `records_iter` gives; a sequence file's are in its
    header."""
    kind = split.input_format
    if kind in (InputFormat.KEY_VALUE_TEXT, InputFormat.STREAM, InputFormat.AVRO_AS_TEXT):
        return TEXT, TEXT
    if kind is InputFormat.WARC:
        return TEXT, warc_value_type(conf)
    if kind in (InputFormat.RECORD_APPEND, InputFormat.FIXED_LENGTH, InputFormat.DELIMITED):
        return LONG, BYTES
    may_be_sequence_file = kind.is_sequence_file or kind is InputFormat.AUTO
    if not may_be_sequence_file or not split.pieces:
        return LONG, TEXT
    piece = split.pieces[0]
    with CountedFile(files, piece.url, piece.version) as file:
        reader = open_piece(kind, piece, conf, file)
        return reader.key_type, reader.value_type
