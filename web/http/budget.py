"""Memory that streams may hold, shared in the order of asking."""

from __future__ import annotations

import asyncio
from collections import deque

from mrstream.web.http.head import Refused

WAIT_S_MAX = 20.0


class Budget:
    """So many bytes; whoever finds too few waits its turn, with its body unread."""

    def __init__(self, total_bytes: int, wait_s_max: float = WAIT_S_MAX) -> None:
        self.free_bytes = total_bytes
        """What nobody holds."""
        self._wait_s_max = wait_s_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def split_off(self, size: int) -> Budget:
        """Make a budget of its own out of bytes that nobody holds."""
        assert size <= self.free_bytes, "there is no more"
        self.free_bytes -= size
        return Budget(size, self._wait_s_max)

    async def take(self, size: int) -> None:
        """Hold so many bytes until `give`; 503 if none become free in time."""
        if not self._waiting and self.free_bytes >= size:
            self.free_bytes -= size
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
        self.free_bytes += size
        while self._waiting and self._waiting[0][0] <= self.free_bytes:
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self.free_bytes -= wanted
                turn.set_result(None)

    def _leave(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
        elif entry[1].done() and not entry[1].cancelled():
            self.give(entry[0])  # it came at the last moment
        self.give(0)


class Share:
    """What one stream holds, of one budget at a time; given back at once.

    Who has a share of the one may wait for one of the other, never the other way round: else all
    could hold what all wait for.
    """

    def __init__(self) -> None:
        self._held: tuple[Budget, int] | None = None

    async def move(self, budget: Budget, size: int) -> None:
        """Hold so many bytes of that budget, and then nothing of another; 503 if they do not become
        free in time."""
        if self._held is None or self._held[0] is not budget:
            await budget.take(size)
            self.end()
            self._held = (budget, size)

    def end(self) -> None:
        if self._held is not None:
            budget, size = self._held
            self._held = None
            budget.give(size)
