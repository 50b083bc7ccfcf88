"""The loops of a task: blocks of lines in, a user's function on each record, blocks of lines out.

Lines are cut and values decoded many at a time, by C wherever Python offers it: a function costs
its own time and little more. What a function gave is written at the latest when a slice of input
that takes about SLICE_S is done, so that a slow function shows signs of life. Takes the functions
and two file descriptors; never knows how they got here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter, methodcaller
from typing import Any, Protocol

from mrstream.api import reporter
from mrstream.api.codecs import LINE_END, TAB, Codec, is_pair
from mrstream.api.layout import Layout

READ_BYTES = 1 << 18
SLICE_S = 0.25
RECORDS_MAX = 20_000
"""As many records of a function are held before they are written, whatever it goes on to give."""
TELL_EVERY_S = 1.0

Function = Callable[..., Iterable[Any] | None]


class Sink(Protocol):
    """Takes the records of functions."""

    def take(self, records: Iterable[Any] | None) -> None:
        """Take what a function returned: nothing, a sequence or a generator."""

    def flush(self) -> None:
        """Let go of what is held."""


class Output:
    """Records on their way out."""

    def __init__(self, descriptor: int, lines: Callable[[Sequence[Any]], bytes]) -> None:
        self._descriptor = descriptor
        self._lines = lines
        self._records: list[Any] = []
        self._told_at_s = time.monotonic()

    def take(self, records: Iterable[Any] | None) -> None:
        """Take what a function returned: nothing, a sequence or a generator."""
        if records is None:
            return
        held = self._records
        more = iter(records)
        held.extend(islice(more, RECORDS_MAX))
        while len(held) >= RECORDS_MAX:
            self.flush()
            held.extend(islice(more, RECORDS_MAX))

    def flush(self) -> None:
        """Write what is held."""
        if self._records:
            view = memoryview(self._lines(self._records))
            self._records.clear()
            while view:
                view = view[os.write(self._descriptor, view) :]
        now_s = time.monotonic()
        if now_s - self._told_at_s >= TELL_EVERY_S:
            self._told_at_s = now_s
            reporter.tell()


class Place:
    """Which record a function is at: for the report, if it fails."""

    record: Any = None


def blocks(descriptor: int) -> Iterator[bytes]:
    """Yield the input in blocks of whole lines, each without its last line end."""
    rest = b""
    while data := os.read(descriptor, READ_BYTES):
        head, end, tail = data.rpartition(LINE_END)
        if end:
            yield rest + head
            rest = tail
        else:
            rest += data
    if rest:
        yield rest


def records_of(
    source: Iterable[bytes], reads: Codec | None, errors: str
) -> Iterator[Sequence[Any]]:
    """Yield what a mapper is called with, block by block: lines of text, or tuples of arguments."""
    for block in source:
        if reads is None:
            yield block.decode("utf-8", errors).split("\n")
        else:
            records = map(reads.record, block.split(LINE_END))
            yield [each if is_pair(each) else (each, None) for each in records]


def run_map(function: Function, source: Iterable[Sequence[Any]], out: Sink, place: Place) -> None:
    """Call a mapper for each record."""
    size = 1
    for records in source:
        at = 0
        while at < len(records):
            began_s = time.monotonic()
            _map_slice(function, records[at : at + size], out, place)
            out.flush()
            at += size
            took_s = time.monotonic() - began_s
            size = min(size * 2, RECORDS_MAX) if took_s < SLICE_S else max(1, size // 2)


def _map_slice(function: Function, records: Sequence[Any], out: Sink, place: Place) -> None:
    take = out.take
    record: Any = None
    try:
        if type(records[0]) is tuple:
            for record in records:
                take(function(*record))
        else:
            for record in records:
                take(function(record))
    except BaseException:
        place.record = record
        raise


def run_reduce(
    function: Function, source: Iterable[bytes], layout: Layout, out: Sink, place: Place
) -> None:
    """Call a reducer or combiner for each key, with an iterator over its values."""
    decode = layout.codec.decode
    lines = chain.from_iterable(map(methodcaller("split", LINE_END), source))
    records = map(methodcaller("partition", TAB), lines)
    value_of = itemgetter(2)
    size, calls, began_s = 1, 0, time.monotonic()
    for key, group in groupby(records, key=layout.key_of()):
        place.record = key
        out.take(function(decode(key), map(decode, map(value_of, group))))
        calls += 1
        if calls >= size:
            out.flush()
            now_s = time.monotonic()
            size = min(size * 2, RECORDS_MAX) if now_s - began_s < SLICE_S else max(1, size // 2)
            calls, began_s = 0, now_s
    place.record = None
    out.flush()
