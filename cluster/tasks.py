"""Work beside a loop, or beside whoever asks for it: nobody waits for it, none of it is forgotten,
and a bug in it is heard of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """What somebody has begun on a loop and has not ended yet."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_bug: Callable[[BaseException], None]
    ) -> None:
        """`on_bug` is told what a task raised: nobody else would be."""
        self._loop = loop
        self._on_bug = on_bug
        self._running: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something; from the loop's own thread."""
        task = self._loop.create_task(work)
        self._running[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._on_bug(bug)

    async def over(self) -> None:
        """Wait until all that was begun so far has ended."""
        if self._running:
            await asyncio.wait(list(self._running))

    def cancel(self) -> None:
        """Have all of it end where it waits."""
        for task in list(self._running):
            task.cancel()


def beside(work: Callable[[], T]) -> Future[T]:
    """Begin something in a thread of its own that does not keep the process alive, unlike one of a
    pool: whoever ends meanwhile has no use for the answer."""
    ending: Future[T] = Future()

    def run() -> None:
        try:
            ending.set_result(work())
        except BaseException as error:
            ending.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ending
