"""WARC, WET and WAT files: the records of the members that begin in a range.

In a `.warc.gz` every record is a gzip member of its own, so a reader may begin at any of them; in a
plain file it begins where a record's first line stands. Both can also stand inside a payload (an
archive of archives), so a start that was only found by looking is checked by whoever reads the
range before, as with CSV: it comes there knowing where its own members end.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator, Iterator

from mrstream.streaming.formats.codec import codec_by_suffix
from mrstream.streaming.formats.row_file import RecordFileCorrupt, Source, WholeReads

RECORD_BYTES_MAX = 1 << 30
HEADER_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 18
_MEMBER = b"\x1f\x8b\x08"
_FIRST_LINE = re.compile(rb"WARC/\d\.\d+\r?\n")
_FIRST_LINE_BYTES = 16
_HEADER_END = re.compile(rb"\r?\n\r?\n")


class RecordParser:
    """Fed plain bytes, gives records as (target URI, headers and payload)."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = 1

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records that `data` completes; ValueError if it holds none."""
        self._held += data
        while len(self._held) >= self._needed and (found := self._next()) is not None:
            yield found

    def finish(self) -> None:
        """Say that no more comes: what is left must be nothing."""
        if self._held.strip(b"\r\n"):
            raise ValueError(f"a record is cut off after {len(self._held)} bytes")

    @property
    def left(self) -> int:
        """How many bytes are held behind the last record that was given."""
        return len(self._held)

    def _next(self) -> tuple[bytes, bytes] | None:
        skipped = len(self._held) - len(self._held.lstrip(b"\r\n"))
        del self._held[:skipped]
        self._needed = 1
        if not self._held:
            return None
        head = bytes(self._held[:_FIRST_LINE_BYTES])
        if not _FIRST_LINE.match(head):
            if len(head) < _FIRST_LINE_BYTES and b"\n" not in head:
                self._needed = len(head) + 1
                return None
            raise ValueError(f"a record begins with {head!r}, and not with WARC/1.0")
        end = _HEADER_END.search(self._held, 0, HEADER_BYTES_MAX)
        if end is None:
            if len(self._held) >= HEADER_BYTES_MAX:
                raise ValueError(
                    f"the headers of a record are longer than {HEADER_BYTES_MAX} bytes"
                )
            self._needed = len(self._held) + 1
            return None
        uri, length = _fields(bytes(self._held[: end.start()]))
        if len(self._held) < end.end() + length:
            self._needed = end.end() + length
            return None
        record = bytes(self._held[: end.end() + length])
        del self._held[: len(record)]
        return uri, record


def _fields(headers: bytes) -> tuple[bytes, int]:
    """Return the target URI, empty if there is none, and the length of the payload."""
    uri, length = b"", -1
    for line in re.sub(rb"\r?\n[ \t]+", b" ", headers).splitlines()[1:]:
        name, _, value = line.partition(b":")
        match name.strip().lower():
            case b"warc-target-uri":
                uri = value.strip().removeprefix(b"<").removesuffix(b">")
            case b"content-length" if value.strip().isdigit() and len(value) < 20:
                length = int(value)
    if not 0 <= length <= RECORD_BYTES_MAX:
        raise ValueError(f"a record has no Content-Length, or one above {RECORD_BYTES_MAX} bytes")
    return uri, length


class WarcRecords:
    """The records of [start, end) of a file; iterate it once."""

    def __init__(self, source: Source, start: int, end: int, *, exact: bool = False) -> None:
        self._file = WholeReads(source)
        self._url = source.url
        self._codec = codec_by_suffix(source.url)
        self._is_gzip = source.url.endswith(".gz")
        self._start, self._end = start, end
        self._exact = exact
        self.position = start

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        try:
            if self._codec is not None and not self._is_gzip:
                yield from self._whole()
                return
            yield from self._range()
        except (ValueError, zlib.error) as error:
            raise RecordFileCorrupt(f"{self._url}: near byte {self.position}: {error}") from None

    def _range(self) -> Iterator[tuple[bytes, bytes]]:
        unit = self._first(self._start)
        while unit < min(self._end, self._file.size):
            self.position = unit
            unit = yield from self._unit(unit)
        if self._end < self._file.size and not self._exact:
            judged = self._first(self._end)
            if judged != unit:
                raise RecordFileCorrupt(
                    f"{self._url}: the record across byte {self._end} ends at byte {unit}, and was "
                    f"taken to end at {judged}: it holds another archive; run the job with "
                    "-D mrstream.input.borders=exact"
                )

    def _unit(self, at: int) -> Generator[tuple[bytes, bytes], None, int]:
        """Yield the records of the member, or the record, at a byte; return where the next is."""
        return self._member(at) if self._is_gzip else self._record(at)

    def _whole(self) -> Iterator[tuple[bytes, bytes]]:
        assert self._codec is not None
        parser = RecordParser()
        blobs = iter(lambda: self._file.read(_READ_BYTES), b"")
        for plain in self._codec.decompressed(blobs, self._url):
            yield from parser.feed(plain)
        parser.finish()

    # --- units

    def _member(self, at: int) -> Generator[tuple[bytes, bytes], None, int]:
        parser, member = RecordParser(), zlib.decompressobj(31)
        self._file.seek(at)
        position = at
        while not member.eof:
            data = self._file.read(_READ_BYTES)
            if not data:
                raise ValueError("the gzip member is cut off")
            position += len(data)
            while data and not member.eof:
                yield from parser.feed(member.decompress(data, _READ_BYTES))
                data = member.unconsumed_tail
        parser.finish()
        position -= len(member.unused_data)
        return self._behind_padding(position)

    def _behind_padding(self, position: int) -> int:
        """Zero bytes behind the last member are nothing."""
        self._file.seek(position)
        head = self._file.read(len(_MEMBER))
        if head and not head.strip(b"\0"):
            return self._file.size
        return position

    def _record(self, at: int) -> Generator[tuple[bytes, bytes], None, int]:
        parser = RecordParser()
        self._file.seek(at)
        position, given = at, None
        while given is None:
            data = self._file.read(_READ_BYTES)
            if not data:
                parser.finish()
                return self._file.size
            position += len(data)
            given = next(parser.feed(data), None)
        yield given
        # The bytes that were read ahead are read again: what counts is where the record ends.
        end = position - parser.left
        return self._behind_line_ends(end)

    def _behind_line_ends(self, position: int) -> int:
        while True:
            self._file.seek(position)
            data = self._file.read(64)
            stripped = data.lstrip(b"\r\n")
            position += len(data) - len(stripped)
            if stripped or not data:
                return position

    # --- where to begin

    def _first(self, at: int) -> int:
        """Return where the first unit at or behind a byte begins."""
        if at <= 0:
            return 0 if self._is_gzip else self._behind_line_ends(0)
        if self._exact:
            unit = self._first(0)
            while unit < min(at, self._file.size):
                walk = self._unit(unit)
                try:
                    while True:
                        next(walk)
                except StopIteration as stop:
                    unit = stop.value
            return unit
        return self._searched(at)

    def _searched(self, at: int) -> int:
        mark = _MEMBER if self._is_gzip else b"WARC/"
        position, held = at, b""
        self._file.seek(at)
        while True:
            found = held.find(mark)
            if found >= 0:
                if self._begins(position + found):
                    return position + found
                position, held = position + found + 1, held[found + 1 :]
                continue
            keep = min(len(held), len(mark) - 1)
            position += len(held) - keep
            self._file.seek(position + keep)
            more = self._file.read(_READ_BYTES)
            if not more:
                return self._file.size
            held = held[len(held) - keep :] + more

    def _begins(self, at: int) -> bool:
        """Whether a record begins at this byte, as far as one can see."""
        if self._is_gzip:
            self._file.seek(at)
            try:
                head = zlib.decompressobj(31).decompress(self._file.read(4096), _FIRST_LINE_BYTES)
            except zlib.error:
                return False
            return _FIRST_LINE.match(head.lstrip(b"\r\n")) is not None
        self._file.seek(max(0, at - 2))
        head = self._file.read(2 + _FIRST_LINE_BYTES)
        return head.startswith(b"\r\n") and _FIRST_LINE.match(head[2:]) is not None
