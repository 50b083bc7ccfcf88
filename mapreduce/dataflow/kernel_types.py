"""Used by `kernel`: what its objects can do, whether they are C or Python.

Only type checkers and readers need this module. The numbers are there to be read.
"""

from __future__ import annotations

from typing import Protocol


class Collector(Protocol):
    """Cuts bytes into records, keeps them in bounded memory, and gives them back sorted.

    Order: partition, then key, then emission. After `sort`, `next_blob` gives them
    until `partition` is -1; `reset` then makes room for the next ones.
    """

    records_total: int
    """Records taken since the beginning."""
    bytes_total: int
    """Their size as Hadoop counts it (spec 8.1, Map output bytes)."""
    records: int
    """Records in memory now."""
    partition: int
    """The partition of the next blob; -1 at the end."""

    def feed(self, data: bytes | bytearray | memoryview, start: int = 0) -> int:
        """Take data[start:]; return up to where. Less than all means full: sort, empty, reset."""

    def add(self, key: bytes, value: bytes) -> bool:
        """Take one record; False means full."""

    def finish(self) -> bool:
        """The data has ended: take a last line without end; False means full."""

    def sort(self) -> None:
        """Sort what is in memory; nothing can be taken until `reset`."""

    def next_blob(self, buffer: bytearray) -> tuple[int, int, int]:
        """Fill `buffer` with as many whole records of `partition` as fit; return (records,
        Hadoop's bytes for them, bytes). No records: the next one alone needs so many bytes."""

    def reset(self) -> None:
        """Forget the records; an unfinished last line is kept."""


class MergeTree(Protocol):
    """Merges sorted runs of framed records; equal keys come in the order of the runs."""

    records: int
    """Records given so far."""
    groups: int
    """Different whole keys among them."""
    largest_group: tuple[bytes, int]
    """The key with the most records so far, and how many."""
    hadoop_bytes: int
    """What Hadoop would have stored for them, lengths included."""

    def supply(self, run: int, block: bytes | memoryview | None) -> None:
        """Give the next block of a run; None ends it."""

    def step(self, size_bytes: int) -> tuple[int, int, bytes | None]:
        """Return (run that needs a block or -1, records, blob or None); (-1, 0, None) is the end.

        A blob holds whole records, but for one larger than a blob: that may come in pieces,
        and is counted with its last one.

        Raises ValueError where a run is not in order (D1).
        """


class LineFeeder(Protocol):
    """Cuts the bytes of a split into lines and writes them for a map command."""

    records: int
    """Lines given so far."""
    done: bool
    """The next line belongs to the next split: no more data is needed."""
    position: int
    """Offset behind the last byte looked at."""

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return what the command reads next."""

    def finish(self) -> bytes:
        """The data has ended: return the last line, if it had no end."""


class CsvReader(LineFeeder, Protocol):
    """Cuts the bytes of a split into CSV records, as lines are cut; when it is done, `position` is
    where the next record begins."""


class LineRewriter(Protocol):
    """Turns a command's lines into those of an output file."""

    records: int
    """Lines given so far."""

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the lines that are complete now."""

    def finish(self) -> bytes:
        """The data has ended: return the last line, if it had no end."""
