"""Stage 3: run the map program over a split.

Takes a split's reader and a way to start the command; gives the command's output, blob by blob, and
judges how it ended (spec 8.2). A built-in mapper is fed records instead and gives records.
Remembers which bytes of which file the command was given last, for the report if it fails. Knows
nothing of jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from mapreduce.attempt_report import InputRange
from mapreduce.dataflow.pump import Blob, Flow, RunningCommand
from mapreduce.errors import CommandFailed


class Start(Protocol):
    """Starts a command on this input; with `drain`, input that it leaves is still taken in."""

    def __call__(self, feed: Iterable[Blob], *, drain: bool = False) -> RunningCommand: ...


class Source(Protocol):
    """What a reader of a split shows while it is read."""

    def __iter__(self) -> Iterator[Blob]: ...

    def position(self) -> tuple[str, int]:
        """Give the file and the offset behind the last byte that was given."""


class ExitRule(msgspec.Struct, frozen=True):
    """When a program's end is a failure."""

    nonzero_is_failure: bool = True
    skip_after_records: int | None = None
    """A broken pipe is fine once it wrote so many records; None: it never is."""


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
        """Give file and offset of a byte of the command's input, rounded down if need be."""
        before = self._marks[0]
        for mark in self._marks:
            if mark[0] >= stdin_bytes:
                return _between(before, mark, stdin_bytes)
            before = mark
        return before[1], before[2]

    def range(self, flow: Flow, end: int) -> InputRange:
        """Give how far the command got, in bytes of the file that it was given last."""
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


def run_command(
    start: Start,
    feed: Iterable[Blob],
    collect: Callable[[memoryview], None],
    rule: ExitRule,
    records_written: Callable[[], int],
) -> None:
    """Feed a command and collect what it writes; CommandFailed if it ends badly."""
    running = start(feed, drain=rule.skip_after_records is not None)
    try:
        for blob in running.output():
            collect(blob)
        exit_code = running.finish()
    except BaseException:
        running.abandon()
        raise
    judge(exit_code, running.flow, rule, records_written)


def judge(
    exit_code: int, flow: Flow, rule: ExitRule, records_written: Callable[[], int] = lambda: 0
) -> None:
    """Raise CommandFailed if this end is a failure (spec 8.2)."""
    if exit_code != 0 and rule.nonzero_is_failure:
        raise CommandFailed(
            f"PipeMapRed.waitOutputThreads(): subprocess failed with code {exit_code}",
            exit_code=exit_code,
        )
    if flow.breaks_the_pipe and (
        rule.skip_after_records is None or records_written() < rule.skip_after_records
    ):
        raise CommandFailed(
            "Broken pipe: the program stopped reading with at least "
            f"{flow.given_bytes - flow.read_bytes + flow.left_bytes} bytes of input left "
            "(let it read to the end, or set stream.minRecWrittenToEnableSkip_)",
            exit_code=exit_code,
        )
