"""Lines and other delimited records out of a stream of bytes, without touching them one by one.

A line ends at LF, CR LF or a lone CR (spec 4.1); with a delimiter of the job's own, a record ends
there instead. What a piece of a file owns follows one rule: with f(x) = the position after the
first record end that begins at or after x, and f(0) = 0, a piece from `start` to `end` owns the
bytes from f(start) to f(end). Neighbours agree on f, so every record is in exactly one piece,
wherever the borders fall.

`RecordBytes` applies the rule; `to_lines` turns what it gives into `RECORD\\n` blobs and counts
them; `records` gives the records with their offsets. All three take blobs of any size and hold no
more than one record.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

_LINE_END = re.compile(rb"\r\n|\r|\n")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class RecordBytes:
    """The bytes of the records that one piece owns, cut out of a stream that begins at `start`.

    `blobs` is the file (decompressed, if it was compressed) from position `start` on; `position`
    is where the bytes that were given out so far end, and `first` where they began.
    """

    def __init__(
        self, blobs: Iterable[bytes], start: int, end: int | None, delimiter: bytes | None = None
    ) -> None:
        self._blobs = iter(blobs)
        self._end = end
        self._delimiter = delimiter
        # How many bytes of a record end may lie on the other side of a seam.
        self._seam = 1 if delimiter is None else len(delimiter) - 1
        self._before = b""
        self.position = start
        self.first = start

    def __iter__(self) -> Iterator[bytes]:
        blobs = self._blobs
        if self.position > 0:
            rest = self._after_record_end(blobs)
            self.first = self.position
            if rest:
                blobs = itertools.chain([rest], blobs)
        if self._end is not None and self.position > self._end:
            yield from self._past_border(blobs)
            return
        for blob in blobs:
            if self._end is not None and self.position + len(blob) >= self._end:
                yield from self._to_border(blob, self._end - self.position, blobs)
                return
            self.position += len(blob)
            yield blob

    def _after_record_end(self, blobs: Iterator[bytes]) -> bytes:
        """Skip to after the first record end; gives what of its blob follows."""
        blob = b""
        for more in blobs:
            blob += more
            cut = self._record_end(blob, 0)
            if cut is not None:
                self._before = blob[max(0, cut - self._seam) : cut]
                self.position += cut
                return blob[cut:]
            keep = self._overlap(blob)
            self.position += len(blob) - keep
            blob = blob[len(blob) - keep :]
        # The stream ended; a CR that waited for its LF ends the last record, anything else had no
        # end.
        self.position += len(blob)
        return b""

    def _past_border(self, blobs: Iterator[bytes]) -> Iterator[bytes]:
        """The first record begins after the piece's end: its record end straddles the border, or
        reaches beyond.

        A line end that straddles is one for the neighbour too, so the line is its. Of a longer
        delimiter the neighbour sees half, which is none: it starts after the next one, and what
        lies before is ours.
        """
        assert self._end is not None
        over = self.position - self._end
        if self._delimiter is None or over > self._seam:
            return
        # Search from the border itself; the bytes before `position` are a delimiter's, not ours
        # to give again.
        seen = self._before[len(self._before) - over :]
        self.position -= over
        for blob in self._to_border(seen, 0, blobs):
            ours, over = blob[over:], max(0, over - len(blob))
            if ours:
                yield ours

    def _to_border(self, blob: bytes, search: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        """Give the bytes up to the first record end that begins at or after `search` in `blob`."""
        while True:
            cut = self._record_end(blob, search)
            if cut is not None:
                self.position += cut
                yield blob[:cut]
                return
            keep = min(self._overlap(blob), max(0, len(blob) - search))
            given = len(blob) - keep
            if given:
                self.position += given
                yield blob[:given]
                blob = blob[given:]
                search = max(0, search - given)
            more = next(blobs, None)
            if more is None:
                self.position += len(blob)
                if blob:
                    yield blob
                return
            blob += more

    def _record_end(self, blob: bytes, start: int) -> int | None:
        """Index after the first record end that begins at or after `start`, None if more bytes
        must tell."""
        if self._delimiter is not None:
            found = blob.find(self._delimiter, start)
            return None if found < 0 else found + len(self._delimiter)
        match = _LINE_END.search(blob, start)
        if match is None or (match.end() == len(blob) and blob.endswith(b"\r")):
            return None
        return match.end()

    def _overlap(self, blob: bytes) -> int:
        """How many last bytes may be the beginning of a record end."""
        if self._delimiter is None:
            return 1 if blob.endswith(b"\r") else 0
        return min(self._seam, len(blob))


def count_line_feeds(blob: bytes) -> int:
    """Count the line feeds of a blob."""
    return blob.count(b"\n")


class LineCounter:
    """How many records have passed; whoever has a faster way to count line feeds lends it."""

    __slots__ = ("count", "records")

    def __init__(self, count: Callable[[bytes], int] = count_line_feeds) -> None:
        self.records = 0
        self.count = count


def to_lines(
    blobs: Iterable[bytes],
    counter: LineCounter,
    delimiter: bytes | None = None,
    *,
    strip_mark: bool = False,
) -> Iterator[bytes]:
    """Rewrite records to end in LF each, the last one too, and count them.

    `strip_mark` drops a byte order mark at the very beginning; a mark alone is no record.
    """
    blobs = iter(blobs)
    if strip_mark:
        start = _at_least(len(BYTE_ORDER_MARK), blobs).removeprefix(BYTE_ORDER_MARK)
        blobs = itertools.chain([start], blobs)
    if delimiter is None:
        yield from _lf_lines(blobs, counter)
    else:
        yield from _delimited_lines(blobs, delimiter, counter)


def _at_least(count: int, blobs: Iterator[bytes]) -> bytes:
    """Join blobs until there are `count` bytes or no more."""
    start = b""
    for blob in blobs:
        start += blob
        if len(start) >= count:
            break
    return start


def _lf_lines(blobs: Iterable[bytes], counter: LineCounter) -> Iterator[bytes]:
    """CR LF and CR become LF. Memory scans at the speed of the machine; text without CR is not
    copied."""
    after_cr = in_record = False
    for blob in blobs:
        if after_cr and blob:
            # The CR was given out as LF already; its own LF must not count again.
            if blob.startswith(b"\n"):
                blob = blob[1:]
            after_cr = False
        if b"\r" in blob:
            after_cr = blob.endswith(b"\r")
            blob = blob.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if blob:
            counter.records += counter.count(blob)
            in_record = not blob.endswith(b"\n")
            yield blob
    if in_record:
        counter.records += 1
        yield b"\n"


def _delimited_lines(
    blobs: Iterable[bytes], delimiter: bytes, counter: LineCounter
) -> Iterator[bytes]:
    held = b""
    in_record = False
    for more in blobs:
        parts = (held + more).split(delimiter)
        tail = parts.pop()
        # No delimiter can begin before the last len-1 bytes of the tail, so the rest may go.
        keep = min(len(delimiter) - 1, len(tail))
        held = tail[len(tail) - keep :]
        counter.records += len(parts)
        in_record = len(tail) > keep or (in_record and not parts)
        parts.append(tail[: len(tail) - keep])
        blob = b"\n".join(parts)
        if blob:
            yield blob
    if held or in_record:
        counter.records += 1
        yield held + b"\n"


def records(
    blobs: Iterable[bytes], offset: int, delimiter: bytes | None = None
) -> Iterator[tuple[int, bytes, int]]:
    """Give (offset, record, its length with its end) for each record; `offset` is where the blobs
    begin."""
    if delimiter is not None:
        yield from _delimited_records(blobs, offset, delimiter)
        return
    splitter = LineSplitter()
    for blob in blobs:
        for line in splitter.feed(blob):
            yield offset, line.rstrip(b"\r\n"), len(line)
            offset += len(line)
    for line in splitter.finish():
        yield offset, line.rstrip(b"\r\n"), len(line)


class LineSplitter:
    """Cuts blobs into lines, their ends still on; a long line is not copied at each blob."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Give the lines that `data` completes."""
        blob = self._tail + data
        # A CR at the very end may be half of CR LF.
        self._tail = b"\r" if blob.endswith(b"\r") else b""
        lines = (blob[:-1] if self._tail else blob).splitlines(keepends=True)
        if not lines:
            return []
        last = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        if self._held and lines:
            lines[0] = b"".join([*self._held, lines[0]])
            self._held.clear()
        if last:
            self._held.append(last)
        return lines

    def finish(self) -> list[bytes]:
        """Say that no more comes: give the last line, if there is one without an end."""
        rest = b"".join([*self._held, self._tail])
        self._held, self._tail = [], b""
        return [rest] if rest else []


def _delimited_records(
    blobs: Iterable[bytes], offset: int, delimiter: bytes
) -> Iterator[tuple[int, bytes, int]]:
    held: list[bytes] = []
    tail = b""
    for more in blobs:
        parts = (tail + more).split(delimiter)
        rest = parts.pop()
        if held and parts:
            parts[0] = b"".join([*held, parts[0]])
            held.clear()
        for record in parts:
            length = len(record) + len(delimiter)
            yield offset, record, length
            offset += length
        keep = min(len(delimiter) - 1, len(rest))
        tail = rest[len(rest) - keep :]
        if len(rest) > keep:
            held.append(rest[: len(rest) - keep])
    last = b"".join([*held, tail])
    if last:
        yield offset, last, len(last)


def line_lengths(blobs: Iterable[bytes]) -> Iterator[int]:
    """Give the length of each line, its end included."""
    for _, _, length in records(blobs, 0):
        yield length
