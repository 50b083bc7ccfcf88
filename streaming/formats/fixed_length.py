"""FixedLengthInputFormat: a file is records of so many bytes, one behind the other.

A record belongs to the split in which it begins. Pure: takes blobs, gives records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mrstream.cluster.errors import UserError


class BadRecordLength(UserError):
    """The length of records is not set, or the file does not end with one."""


class FixedLengthRecords:
    """Cuts the records that begin in [start, end); `end` None means all of the rest."""

    def __init__(self, record_bytes: int, start: int, end: int | None) -> None:
        if record_bytes <= 0:
            raise BadRecordLength(
                f"Fixed record length {record_bytes} is invalid.  "
                "It should be set to a value greater than zero"
            )
        self._record_bytes = record_bytes
        self.position = -(-start // record_bytes) * record_bytes
        self._end = None if end is None else -(-end // record_bytes) * record_bytes

    @property
    def range(self) -> tuple[int, int | None]:
        """Which bytes of the file the records are: up to the end of the last, if that is known."""
        return self.position, self._end

    def cut(self, blobs: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, record) of the bytes of `range`."""
        size = self._record_bytes
        held = b""
        for blob in blobs:
            held += blob
            whole = len(held) - len(held) % size
            for at in range(0, whole, size):
                offset = self.position
                self.position += size
                yield offset, held[at : at + size]
            held = held[whole:]
        if held:
            raise BadRecordLength(
                f"Partial record(length = {len(held)}) found at the end of split."
            )
