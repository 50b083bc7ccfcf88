"""Stage 3: a split on its way through the map program.

`mapreduce.program` runs the command, and a built-in mapper is fed records instead: what is left for
this stage is the way back. Takes a split's reader; gives its blobs, and remembers which bytes of
which file the command was given last, for the report if it fails. Knows nothing of jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from mrstream.mapreduce.program.flow import Flow, InputRange
from mrstream.mapreduce.program.pump import Blob


class Source(Protocol):
    """What a reader of a split shows while it is read."""

    def __iter__(self) -> Iterator[Blob]: ...

    def position(self) -> tuple[str, int]:
        """Return the file and the offset behind the last byte that was given."""


class Trail:
    """Where the command's input came from: maps bytes of its stdin back to bytes of files.

    Only the last few blobs are remembered; nobody asks for older ones, since a pipe holds less.
    """

    _BLOBS_MAX = 64

    def __init__(self, source: Source, start: tuple[str, int]) -> None:
        self._source = source
        self._marks: deque[tuple[int, str, int]] = deque(maxlen=self._BLOBS_MAX)
        self._marks.append((0, *start))
        self._given_bytes = 0

    def __iter__(self) -> Iterator[Blob]:
        for blob in self._source:
            self._given_bytes += len(blob)
            self._marks.append((self._given_bytes, *self._source.position()))
            yield blob

    def at(self, stdin_bytes: int) -> tuple[str, int]:
        """Return file and offset of a byte of the command's input, rounded down if need be."""
        before = self._marks[0]
        for mark in self._marks:
            if mark[0] >= stdin_bytes:
                return _between(before, mark, stdin_bytes)
            before = mark
        return before[1], before[2]

    def range(self, flow: Flow, end: int) -> InputRange:
        """Return how far the command got, in bytes of the file that it was given last."""
        source, given_to = self.at(flow.given_bytes)
        read_source, read_to = self.at(flow.read_bytes)
        start = self._marks[0][2] if self._marks[0][1] == source else 0
        if read_source != source:
            read_to = start  # it was still busy with a file before this one
        return InputRange(source, start, read_to, given_to, max(end, given_to))


def _between(
    before: tuple[int, str, int], mark: tuple[int, str, int], stdin_bytes: int
) -> tuple[str, int]:
    """Interpolate inside a blob if its bytes are the file's own, else take its start."""
    (from_bytes, from_source, from_offset), (to_bytes, source, offset) = before, mark
    if stdin_bytes == to_bytes:
        return source, offset
    if source == from_source and to_bytes - from_bytes == offset - from_offset:
        return source, from_offset + stdin_bytes - from_bytes
    return from_source, from_offset
