"""Reads chunks that nobody reads, so that rot is found while there are other copies (GFS §5.2).

Takes a store and a pace; gives one piece of work at a time. Never sleeps and starts no thread: its
owner calls `step` when the disks are idle, and waits as long as it says.
"""

from __future__ import annotations

import bisect

from dfs.chunks.chunk_store import ChunkStore
from dfs.errors import ChunkCorrupt, NoSuchChunk

_STEP_BYTES = 1 << 20


class Scrubber:
    """Goes round all replicas in the order of their handles, a megabyte at a time."""

    def __init__(self, store: ChunkStore, bytes_per_s: int) -> None:
        self._store = store
        self.bytes_per_s = bytes_per_s
        self._handle = -1
        self._offset = 0
        self.is_round_over = False
        self.rounds_count = 0
        self.found_count = 0

    def step(self) -> float:
        """Verify the next piece; return how many seconds to wait before the one after it."""
        handles = self._store.handles()
        self.is_round_over = False
        at = bisect.bisect_left(handles, self._handle)
        if at == len(handles):
            self._handle, self._offset = -1, 0
            self.is_round_over = True
            self.rounds_count += 1
            return 0.0
        if handles[at] != self._handle:
            self._handle, self._offset = handles[at], 0
        try:
            replica = self._store.get(self._handle)
            size = len(self._store.read(replica, self._offset, _STEP_BYTES))
        except ChunkCorrupt:
            # The store has it on its list now; the next heartbeat tells the master.
            self.found_count += 1
            size = 0
        except NoSuchChunk:
            size = 0
        self._offset += size
        if size < _STEP_BYTES:
            self._handle, self._offset = self._handle + 1, 0
        return size / self.bytes_per_s


def verify(store: ChunkStore, handle: int) -> None:
    """Check every block of a replica now; raises ChunkCorrupt if one is bad."""
    replica = store.get(handle)
    for offset in range(0, replica.length, _STEP_BYTES):
        store.read(replica, offset, _STEP_BYTES)
