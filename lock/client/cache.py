"""What a client keeps of nodes: contents, numbers, names, and that there is none (Chubby §2.7).

An entry is put here only if no invalidation of it came while it was being read; it is thrown away
when told, never updated. While the session is in jeopardy nothing is kept and nothing is given.
Never does any IO.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

ENTRIES_MAX = 5_000
BYTES_MAX = 16 * 1024 * 1024


class Reading:
    """A read that is under way: what it brings may be kept unless `is_void`."""

    __slots__ = ("is_void", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.is_void = False


class Cache:
    """Entries by key: a path, or a path with a slash at its end for the names in a directory."""

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._readings: dict[str, dict[int, Reading]] = {}
        self.is_on = True
        self.hits = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Any | None:
        """What is known of the key; None: ask the cell."""
        entry = self._entries.get(key) if self.is_on else None
        if entry is None:
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def begin(self, key: str) -> Reading:
        """The cell is being asked about this key."""
        reading = Reading(key)
        reading.is_void = not self.is_on
        self._readings.setdefault(key, {})[id(reading)] = reading
        return reading

    def end(self, reading: Reading, value: Any = None, size_bytes: int = 0) -> None:
        """The answer is here; without a value, or if it was invalidated since, it is not kept."""
        of_key = self._readings[reading.key]
        del of_key[id(reading)]
        if not of_key:
            del self._readings[reading.key]
        if value is None or reading.is_void or not self.is_on:
            return
        self._drop(reading.key)
        self._entries[reading.key] = (value, size_bytes)
        self._bytes += size_bytes
        while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
            self._drop(next(iter(self._entries)))

    def invalidate(self, key: str) -> None:
        """The cell is about to change it."""
        self._drop(key)
        for reading in self._readings.get(key, {}).values():
            reading.is_void = True

    def empty(self) -> None:
        """Nothing here can be relied on any more, nor what is being read."""
        self._entries.clear()
        self._bytes = 0
        for of_key in self._readings.values():
            for reading in of_key.values():
                reading.is_void = True

    def switch(self, is_on: bool) -> None:
        """Begin or cease to keep anything."""
        self.empty()
        self.is_on = is_on

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[1]
