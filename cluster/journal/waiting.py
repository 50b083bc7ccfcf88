"""Who waits on a loop for records to become durable, in the order of their sequences."""

from __future__ import annotations

import asyncio
from collections import deque

from mrstream.cluster.errors import DiskFailed


class Waiting:
    """Futures of one loop; used there only."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, asyncio.Future[None]]] = deque()

    def add(self, sequence: int, future: asyncio.Future[None]) -> None:
        """Let a future wait for a sequence that is not durable yet."""
        self._held.append((sequence, future))

    def release(self, durable: int, failure: DiskFailed | None) -> None:
        """Records up to `durable` are; after a `failure` no others will be."""
        held = self._held
        while held and (held[0][0] <= durable or failure is not None):
            sequence, future = held.popleft()
            if future.done():
                continue
            if sequence <= durable:
                future.set_result(None)
            elif failure is not None:
                future.set_exception(failure)
