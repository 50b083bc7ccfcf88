"""Lines and other delimited records out of a stream of bytes, without touching them one by one.

A line ends at LF, CR LF or a lone CR (spec 4.1); with a delimiter of the job's own, a record ends
there instead. What a piece of a file owns follows one rule: with f(x) = the position after the
first record end that begins at or after x, and f(0) = 0, a piece from `start` to `end` owns the
bytes from f(start) to f(end). Neighbours agree on f, so every record is in exactly one piece,
wherever the borders fall. A delimiter that overlaps itself is the exception, on Hadoop too: which
of the `;;` in `;;;` is a record end depends on where one begins to read, so a piece that begins
within such a run may see other records than its neighbour (spec 3.2).

`RecordBytes` applies the rule; `to_lines` turns what it gives into `RECORD\\n` blobs and counts
them; `records` gives the records with their offsets. All three take blobs of any size and hold no
more than one record.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOB_BYTES = 1 << 20


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
        self.position = start
        self.first = start

    def __iter__(self) -> Iterator[bytes]:
        if self._delimiter is not None:
            yield from self._delimited(self._delimiter)
            return
        blobs = self._blobs
        if self.position > 0:
            rest = self._after_line_end(blobs)
            self.first = self.position
            if rest is None:
                return
            blobs = itertools.chain([rest], blobs) if rest else blobs
        if self._end is not None and self.position > self._end:
            return  # the line end straddles the border, or lies beyond: the line is the neighbour's
        for blob in blobs:
            if self._end is not None and self.position + len(blob) >= self._end:
                yield from self._to_border(blob, self._end - self.position, blobs)
                return
            self.position += len(blob)
            yield blob

    def _delimited(self, delimiter: bytes) -> Iterator[bytes]:
        """Yield what lies behind the first delimiter, up to the first one that begins at or after
        the border.

        Delimiters are found one after the other from where the piece begins, as its records will
        be: near the border alone, one that overlaps itself might be found a byte too late.
        """
        blobs = self._blobs
        if self.position > 0:
            rest = self._after_delimiter(delimiter)
            self.first = self.position
            if rest is None or self._is_beyond(self.position - len(delimiter)):
                return
            blobs = itertools.chain([rest], blobs)
        held = b""  # may be the beginning of a delimiter
        for more in blobs:
            blob = held + more
            at = 0
            if not self._is_beyond(self.position + len(blob) - 1):
                at = len(blob) - len(blob.split(delimiter)[-1])
            while (found := blob.find(delimiter, at)) >= 0:
                at = found + len(delimiter)
                if self._is_beyond(self.position + found):
                    self.position += at
                    yield blob[:at]
                    return
            given = len(blob) - min(len(delimiter) - 1, len(blob) - at)
            self.position += given
            yield blob[:given]
            held = blob[given:]
        self.position += len(held)
        yield held

    def _after_delimiter(self, delimiter: bytes) -> bytes | None:
        """Skip to after the first delimiter; return what of its blob follows, None if none begins
        in this piece."""
        blob = b""
        for more in self._blobs:
            blob += more
            found = blob.find(delimiter)
            if found >= 0:
                self.position += found + len(delimiter)
                return blob[found + len(delimiter) :]
            skipped = len(blob) - min(len(delimiter) - 1, len(blob))
            self.position += skipped
            if self._is_beyond(self.position):
                return None
            blob = blob[skipped:]
        self.position += len(blob)
        return None

    def _is_beyond(self, position: int) -> bool:
        """Whether a byte lies at or behind the border."""
        return self._end is not None and position >= self._end

    def _after_line_end(self, blobs: Iterator[bytes]) -> bytes | None:
        """Skip to after the first line end; return what of its blob follows.

        None: no line end begins in this piece, so that it owns nothing. To look further would be
        to read a line that is longer than a piece once for each of its pieces.
        """
        blob = b""
        for more in blobs:
            blob += more
            cut = _line_end(blob, 0)
            if cut is not None:
                self.position += cut
                return blob[cut:]
            keep = blob.endswith(b"\r")
            self.position += len(blob) - keep
            if self._is_beyond(self.position):
                return None
            blob = blob[len(blob) - keep :]
        # The stream ended; a CR that waited for its LF ends the last record, anything else had no
        # end.
        self.position += len(blob)
        return b""

    def _to_border(self, blob: bytes, search: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the bytes up to the first line end that begins at or after `search` in `blob`."""
        while True:
            cut = _line_end(blob, search)
            if cut is not None:
                self.position += cut
                yield blob[:cut]
                return
            given = len(blob) - (blob.endswith(b"\r") and search < len(blob))
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


def _line_end(blob: bytes, start: int) -> int | None:
    """Index after the first line end that begins at or after `start`, None if more bytes must
    tell."""
    feed = blob.find(b"\n", start)
    carriage = blob.find(b"\r", start, feed if feed >= 0 else len(blob))
    if carriage < 0:
        return feed + 1 if feed >= 0 else None
    if carriage + 1 == len(blob):
        return None
    return carriage + 1 + (feed == carriage + 1)


def count_line_feeds(blob: bytes) -> int:
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
    """Yield (offset, record, its length with its end) for each record; `offset` is where the blobs
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
    """Yield the length of each line, its end included."""
    for _, _, length in records(blobs, 0):
        yield length


def gathered(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces into blobs of about 1 MiB."""
    held: list[bytes] = []
    held_bytes = 0
    for part in parts:
        held.append(part)
        held_bytes += len(part)
        if held_bytes >= BLOB_BYTES:
            yield b"".join(held)
            held, held_bytes = [], 0
    if held_bytes:
        yield b"".join(held)
