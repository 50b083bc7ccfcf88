"""Reads chunks that nobody reads, so that rot is found while there are other copies (GFS §5.2).

Takes a store and a time for a round; gives one piece of work at a time. Never sleeps and starts no
thread: its owner calls `step` when the disks are idle, and waits as long as it says.
"""

from __future__ import annotations

from mrstream.dfs.chunks.chunk_store import ChunkStore
from mrstream.dfs.errors import ChunkCorrupt, NoSuchChunk

_STEP_BYTES = 1 << 20
BYTES_PER_S_MIN = 1 << 20
PAUSE_S_MAX = 60.0


class Scrubber:
    """Goes round all replicas in the order of their handles, a megabyte at a time, so that a round
    takes about `round_s`; a store of little data is gone through faster."""

    def __init__(self, store: ChunkStore, round_s: float) -> None:
        self._store = store
        self._round_s = round_s
        self._bytes_per_s = float(BYTES_PER_S_MIN)
        self._left: list[int] = []
        self._offset = 0
        self.rounds_count = 0

    def step(self) -> float:
        """Verify the next piece; return how many seconds to wait before the one after it."""
        if not self._left:
            return self._begin_round()
        handle = self._left[-1]
        size = 0
        try:
            size = len(self._store.read(self._store.get(handle), self._offset, _STEP_BYTES))
        except ChunkCorrupt:
            pass  # the store has it on its list now; the next heartbeat tells the master
        except NoSuchChunk:
            pass  # deleted since the round began
        self._offset += size
        if size < _STEP_BYTES:
            self._left.pop()
            self._offset = 0
        if not self._left:
            self.rounds_count += 1
        return size / self._bytes_per_s

    def _begin_round(self) -> float:
        reports = self._store.reports()
        self._left = [report.handle for report in reversed(reports)]
        total_bytes = sum(report.length_bytes for report in reports)
        self._bytes_per_s = max(float(BYTES_PER_S_MIN), total_bytes / self._round_s)
        # With little to read, a round a minute is as good as one after the other.
        return min(PAUSE_S_MAX, self._round_s)


def verify(store: ChunkStore, handle: int) -> None:
    """Check every block of a replica now; raises ChunkCorrupt if one is bad."""
    replica = store.get(handle)
    with store.guarded(replica.disk, replica):
        replica.appended(replica.length)
    for offset in range(0, replica.length, _STEP_BYTES):
        store.read(replica, offset, _STEP_BYTES)
