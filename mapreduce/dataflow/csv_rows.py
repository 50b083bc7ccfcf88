"""Used by stage 2: the CSV records that begin in a piece, as lines.

Where the first of them begins is found by reading the file from its start, if that is near, or
judged from the bytes around (`streaming.formats.csv_border`). A judgement is checked by the map of
the piece before, which comes upon the border knowing where its own records end; the first map knows
from the start, so if all maps succeed every border was right.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import msgspec

from mrstream.mapreduce.dataflow import kernel
from mrstream.mapreduce.dataflow.record_form import CsvForm, CsvInput
from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.formats.codec import Codec, codec_by_suffix
from mrstream.streaming.formats.csv_border import record_start
from mrstream.streaming.formats.row_file import BadRowSetting, RecordFileCorrupt, Source

# A border up to here is found by reading from the start: that takes a moment, and is certain.
EXACT_BYTES = 64 << 20
WINDOW_BYTES = 64 << 10
WINDOW_BYTES_MAX = 16 << 20
READ_BYTES = 1 << 20
_TAIL_BYTES = 64 << 10
_CHECKED_BYTES = 64 << 10
_FORMS = {"json": CsvForm.OBJECTS, "tsv": CsvForm.TABS}


def _check_utf8(data: bytes) -> None:
    """`UnicodeDecodeError` if it is none. The text itself is not wanted: of small parts it takes
    no new memory, which costs more than the look at every byte."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        part = view[at : at + _CHECKED_BYTES]
        at += codecs.utf_8_decode(part, "strict", at + len(part) == len(view))[1]


class CsvRows:
    """The records that begin in [start, end) of a file."""

    def __init__(
        self, source: Source, start: int, end: int, conf: JobConf, *, exact_bytes: int = EXACT_BYTES
    ) -> None:
        self.records = 0
        self._source = source
        self._url = source.url
        self._exact_bytes = exact_bytes if conf.input_borders == "auto" else 1 << 62
        self._dialect = conf.csv_dialect
        self._codec: Codec | None = codec_by_suffix(source.url)
        self._size = source.seek(0, 2)
        self._start, self._end = start, end
        self._conf = conf
        self.position = start
        """Behind the last record that was given, about."""
        self._body = 0
        """Where the records begin, behind a mark and the header."""

    def lines(self) -> Iterator[bytes]:
        """Yield blobs of whole lines."""
        names = self._read_header()
        if self._codec is not None:
            yield from self._read(self._input(names, 0, None), self._skipped(self._body))
            return
        first = max(self._body, self._first_record(self._start)[0])
        if first >= self._end:
            reached = first
        else:
            given = self._input(names, first, self._end)
            yield from self._read(given, self._blobs(first, self._end))
            reached = self.position
        self._check_border(reached)

    # --- records

    def _read(self, given: CsvInput, blobs: Iterator[bytes]) -> Iterator[bytes]:
        reader = kernel.csv_reader(given)
        try:
            for blob in blobs:
                lines = reader.feed(blob)
                self.position = reader.position
                if lines:
                    yield self._text(lines)
                    self.records = reader.records
                if reader.done:
                    return
            lines = reader.finish()
        except ValueError as error:
            raise RecordFileCorrupt(f"{self._url}: {error}") from None
        self.position = self._size if self._codec is None else reader.position
        if lines:
            yield self._text(lines)
        self.records = reader.records

    def _text(self, lines: bytes) -> bytes:
        encoding = self._dialect.encoding
        try:
            if encoding != "utf-8":
                return lines.decode(encoding).encode()
            if not lines.isascii():
                _check_utf8(lines)
        except UnicodeDecodeError as error:
            wrong = bytes(error.object[error.start : error.end])
            raise RecordFileCorrupt(
                f"{self._url}: before byte {self.position}: {wrong!r} is no {encoding}; "
                f"say what it is with -D {setting_name('csv_encoding')}=latin-1"
            ) from None
        return lines

    def _input(self, names: list[str] | None, start: int, end: int | None) -> CsvInput:
        wanted = self._conf.input_columns
        plain = self._plain(start, end)
        if names is None:
            if wanted:
                raise BadRowSetting(f"{self._url}: without a header columns have no names")
            form = CsvForm.TABS if self._conf.input_lines == "tsv" else CsvForm.ARRAYS
            return msgspec.structs.replace(plain, form=form)
        for column in wanted:
            if column not in names:
                raise BadRowSetting(
                    f"{self._url} has no column {column!r}; it has {', '.join(names[:20])}"
                )
        columns = wanted or tuple(names)
        encoding = self._dialect.encoding
        written = (msgspec.json.encode(name).decode() + ":" for name in columns)
        return msgspec.structs.replace(
            plain,
            form=_FORMS[self._conf.input_lines],
            fields_max=len(names),
            names=tuple(
                ("," * bool(place) + name).encode(encoding) for place, name in enumerate(written)
            ),
            columns=tuple(names.index(column) for column in columns),
        )

    def _plain(self, start: int, end: int | None) -> CsvInput:
        quote = self._dialect.quote
        return CsvInput(
            CsvForm.NOTHING,
            self._dialect.delimiter[0],
            -1 if quote is None else quote[0],
            start,
            end,
        )

    # --- the header

    def _read_header(self) -> list[str] | None:
        """Return the names of the columns, and learn where the records begin."""
        blobs = self._skipped(0)
        head = next(blobs, b"")
        mark = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
        self._body = mark
        if not self._dialect.has_header:
            return None
        head = head[mark:]
        while head and not head.strip(b"\r\n"):  # nothing but empty lines so far
            self._body += len(head)
            head = next(blobs, b"")
        blank = len(head) - len(head.lstrip(b"\r\n"))
        begin = self._body + blank
        reader = kernel.csv_reader(
            msgspec.structs.replace(self._plain(begin, begin + 1), form=CsvForm.ARRAYS)
        )
        try:
            line = reader.feed(head[blank:])
            while not reader.done and (more := next(blobs, b"")):
                line += reader.feed(more)
            line += reader.finish()
        except ValueError as error:
            raise RecordFileCorrupt(f"{self._url}: the header: {error}") from None
        self._body = reader.position
        return self._names(line) if line else []

    def _names(self, line: bytes) -> list[str]:
        try:
            text = line.decode(self._dialect.encoding)
        except UnicodeDecodeError:
            raise RecordFileCorrupt(
                f"{self._url}: the header is no {self._dialect.encoding}; say what it is with "
                f"-D {setting_name('csv_encoding')}=latin-1"
            ) from None
        names: list[str] = msgspec.json.decode(text, type=list[str])
        twice = {name for name in names if names.count(name) > 1} if len(names) < 10_000 else set()
        if twice:
            raise RecordFileCorrupt(f"{self._url}: the header has {sorted(twice)[0]!r} twice")
        return names

    # --- borders

    def _first_record(self, at: int) -> tuple[int, bool]:
        """Return where the first record at or behind `at` begins, and whether that is judged
        only."""
        if at <= self._body:
            return self._body, False
        if at >= self._size:
            return self._size, False
        if at > self._exact_bytes:
            judged = self._judged(at)
            if judged is not None:
                return judged, True
        reader = kernel.csv_reader(self._plain(self._body, at))
        try:
            for blob in self._blobs(self._body, at):
                reader.feed(blob)
                if reader.done:
                    return reader.position, False
        except ValueError as error:
            raise RecordFileCorrupt(f"{self._url}: {error}") from None
        return self._size, False

    def _judged(self, at: int) -> int | None:
        window_bytes = WINDOW_BYTES
        while window_bytes <= WINDOW_BYTES_MAX:
            data = self._window(at - 1, window_bytes)
            at_end = at - 1 + len(data) >= self._size
            start = record_start(data, self._dialect, at_end=at_end)
            if start is not None:
                return at - 1 + start
            if at_end:
                return None
            window_bytes *= 8
        return None

    def _check_border(self, reached: int) -> None:
        if self._end >= self._size:
            return
        border, is_judged = self._first_record(self._end)
        if is_judged and max(self._body, border) != reached:
            raise RecordFileCorrupt(
                f"{self._url}: the record across byte {self._end} ends at byte {reached}, and was "
                f"taken to end at {border}: its quotes are unusual; run the job with "
                f"-D {setting_name('input_borders')}=exact"
            )

    # --- bytes

    def _blobs(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the file from `start` on, in small blobs behind `end`."""
        self._source.seek(start)
        position = start
        while blob := self._source.read(_TAIL_BYTES if position >= end else READ_BYTES):
            position += len(blob)
            yield blob

    def _window(self, start: int, count: int) -> bytes:
        self._source.seek(start)
        parts: list[bytes] = []
        while count > 0 and (part := self._source.read(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _skipped(self, count: int) -> Iterator[bytes]:
        """Yield the plain text from its byte `count` on."""
        blobs = self._blobs(0, self._size)
        if self._codec is not None:
            blobs = self._codec.decompressed(blobs, self._url)
        for blob in blobs:
            if len(blob) > count:
                yield blob[count:]
            count = max(0, count - len(blob))
