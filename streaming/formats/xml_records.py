"""StreamXmlRecordReader: records from a begin mark to an end mark, out of bytes that need not be
XML (spec 3.6).

Fast matching searches bytes and, after a partial match that fails, goes on behind the byte that
failed, without backing up. Slow matching takes the marks as regular expressions, looks at one
window at a time and keeps out of CDATA sections once it has seen one end. Both are Hadoop's,
oddities included. Takes an open file, gives records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import BinaryIO

from mrstream.streaming.formats.input_format import XmlMarks
from mrstream.streaming.java.java_regex import java_in_bytes

_READ_BYTES = 1024 * 1024


class XmlRecords:
    """The records whose begin mark starts in [start, end) of a file that is opened at `start`."""

    def __init__(self, file: BinaryIO, start: int, end: int, marks: XmlMarks) -> None:
        self._window = _Window(file, start)
        self._end = end
        self._search: _FastSearch | _SlowSearch
        self._search = _SlowSearch(marks) if marks.slow_match else _FastSearch(marks)

    @property
    def position(self) -> int:
        """Where the next search begins."""
        return self._window.position

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield (position, record) of each record."""
        # Hadoop looks for the first begin mark once when it opens the file and again for the
        # record; for slow matching the first look decides what is known about CDATA.
        if not self._search.skip_to_begin(self._window):
            return
        while self._window.position < self._end and self._search.skip_to_begin(self._window):
            begin = self._window.position
            if begin >= self._end:
                return
            record = self._search.take_through_end(self._window)
            if record is None:
                return
            yield begin, record


class _Window:
    """A stretch of the file in memory that grows at its end and is consumed at its front."""

    def __init__(self, file: BinaryIO, position: int) -> None:
        self._file = file
        self.position = position
        self.data = b""

    def fill(self, count: int) -> bool:
        """Have `count` bytes at hand; False if the file ends before."""
        if len(self.data) >= count:
            return True
        parts = [self.data]
        held = len(self.data)
        while held < count:
            more = self._file.read(max(_READ_BYTES, count - held))
            if not more:
                break
            parts.append(more)
            held += len(more)
        self.data = b"".join(parts)
        return held >= count

    def consume(self, count: int) -> bytes:
        taken, self.data = self.data[:count], self.data[count:]
        self.position += count
        return taken


class _FastSearch:
    """Plain bytes."""

    def __init__(self, marks: XmlMarks) -> None:
        self._begin = marks.begin.encode("utf-8", "surrogateescape")
        self._end = marks.end.encode("utf-8", "surrogateescape")

    def skip_to_begin(self, window: _Window) -> bool:
        found = self._find(window, self._begin, keep=False)
        if found is not None:
            window.consume(found)
        return found is not None

    def take_through_end(self, window: _Window) -> bytes | None:
        found = self._find(window, self._end, keep=True)
        return None if found is None else window.consume(found + len(self._end))

    def _find(self, window: _Window, mark: bytes, *, keep: bool) -> int | None:
        """Index of the mark in the window; without `keep`, bytes that were passed may be
        dropped."""
        at = 0
        while True:
            found = window.data.find(mark[:1], at)
            if found < 0:
                at = len(window.data)
                if not keep:
                    window.consume(at)
                    at = 0
                if not window.fill(at + 1):
                    return None
                continue
            window.fill(found + len(mark))
            matched = _common_prefix(window.data, found, mark)
            if matched == len(mark):
                return found
            # The byte that did not fit is gone too: a mark that begins there is missed, as in
            # Hadoop.
            at = found + matched + 1


def _common_prefix(data: bytes, at: int, mark: bytes) -> int:
    for count, byte in enumerate(mark):
        if at + count >= len(data) or data[at + count] != byte:
            return count
    return len(mark)


class _Cdata(Enum):
    """What a slow search knows about where it is."""

    UNKNOWN = auto()
    OUTSIDE = auto()
    INSIDE = auto()
    ACCEPTED = auto()


class _SlowSearch:
    """Regular expressions in a window, outside of CDATA as far as that is known."""

    def __init__(self, marks: XmlMarks) -> None:
        self._begin = self._pattern(marks.begin)
        self._end = self._pattern(marks.end)
        self._window_bytes = marks.window_bytes
        self._synchronised = False

    def skip_to_begin(self, window: _Window) -> bool:
        found = self._find(window, self._begin)
        if found is not None:
            window.consume(found[0])
        return found is not None

    def take_through_end(self, window: _Window) -> bytes | None:
        found = self._find(window, self._end)
        return None if found is None else window.consume(found[1])

    @staticmethod
    def _pattern(mark: str) -> re.Pattern[bytes]:
        return re.compile(rb"(CDATA\[)|(\]\]>)|(" + java_in_bytes(mark) + b")")

    def _find(self, window: _Window, pattern: re.Pattern[bytes]) -> tuple[int, int] | None:
        """The first mark that counts, as (begin, end) in the window."""
        window.fill(self._window_bytes)
        text = window.data[: self._window_bytes]
        if not text:
            return None
        first: tuple[int, int] | None = None
        state = _Cdata.OUTSIDE if self._synchronised else _Cdata.UNKNOWN
        at = 0
        while state is not _Cdata.ACCEPTED and (match := pattern.search(text, at)):
            if match.group(1) is not None:
                state = _Cdata.INSIDE
            elif match.group(2) is not None:
                # What looked like a mark before this was inside the section that ends here.
                first, state = None, _Cdata.OUTSIDE
            else:
                first = first or match.span()
                if state is _Cdata.OUTSIDE:
                    state = _Cdata.ACCEPTED
            at = max(match.end(), at + 1)
        if state is not _Cdata.UNKNOWN:
            self._synchronised = True
        return first if state in (_Cdata.ACCEPTED, _Cdata.UNKNOWN) else None
