"""The end of a log in memory, so that what was just written need not be read to be sent."""

from __future__ import annotations

from collections import deque

BYTES_MAX = 16 * 1024 * 1024
MESSAGE_BYTES_MAX = 8 * 1024 * 1024


class Tail:
    """The records after `before`, oldest first; older ones go when it grows too large."""

    def __init__(self, before: int) -> None:
        self.before = before
        self._records: deque[bytes] = deque()
        self._bytes = 0

    def add(self, first: int, records: tuple[bytes, ...]) -> None:
        assert first == self.before + len(self._records) + 1, "the log has no holes"
        self._records.extend(records)
        self._bytes += sum(map(len, records))
        while self._bytes > BYTES_MAX and len(self._records) > 1:
            self._bytes -= len(self._records.popleft())
            self.before += 1

    def cut(self, after: int) -> None:
        """The log now ends with record `after`."""
        while self._records and self.before + len(self._records) > after:
            self._bytes -= len(self._records.pop())
        if not self._records:
            self.before = after

    def get(self, first: int, last: int) -> tuple[bytes, ...]:
        """Return records `first` to `last`, or the first of them that fit into a message."""
        assert first > self.before
        start = first - self.before - 1
        end = min(last - self.before, len(self._records))
        held = 0
        records: list[bytes] = []
        for at in range(start, end):
            held += len(self._records[at])
            if records and held > MESSAGE_BYTES_MAX:
                break
            records.append(self._records[at])
        return tuple(records)
