"""Memory that streams may hold, shared in the order of asking."""

from __future__ import annotations

import asyncio
from collections import deque

from mrstream.web.http.head import Refused

WAIT_S_MAX = 20.0


class Budget:
    """So many bytes; whoever finds too few waits its turn, with its body unread."""

    def __init__(self, total_bytes: int, wait_s_max: float = WAIT_S_MAX) -> None:
        self._free_bytes = total_bytes
        self._wait_s_max = wait_s_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free_bytes(self) -> int:
        """What nobody holds."""
        return self._free_bytes

    async def take(self, size: int) -> None:
        """Hold so many bytes until `give`; 503 if none become free in time."""
        if not self._waiting and self._free_bytes >= size:
            self._free_bytes -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._wait_s_max):
                await turn
        except TimeoutError:
            self._leave(entry)
            raise Refused(
                503, "too many streams at a time; slow down", [("Retry-After", "5")], close=True
            ) from None
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    def give(self, size: int) -> None:
        """Hold them no more."""
        self._free_bytes += size
        while self._waiting and self._waiting[0][0] <= self._free_bytes:
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._free_bytes -= wanted
                turn.set_result(None)

    def _leave(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
        elif entry[1].done() and not entry[1].cancelled():
            self.give(entry[0])  # it came at the last moment
        self.give(0)


class Share:
    """What one stream holds of a budget; it may grow, and is given back at once."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held_bytes = 0

    async def grow(self, size: int) -> None:
        """Hold so many bytes in all; 503 if the rest does not become free in time."""
        if size > self._held_bytes:
            await self._budget.take(size - self._held_bytes)
            self._held_bytes = size

    def end(self) -> None:
        """Hold nothing more."""
        held_bytes, self._held_bytes = self._held_bytes, 0
        self._budget.give(held_bytes)
