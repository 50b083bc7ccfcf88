"""The master's commands on their way through a chunkserver: each chunk's one after the other.

Takes commands from the loop, has them carried out by threads, and hands each outcome on. A command
that comes again gets the outcome of the first time. Clones have threads of their own, so that they
hold up nothing else. Knows nothing of connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

from cluster.errors import ClusterError, DiskFailed, Unavailable
from dfs.chunk import ChunkHandle, ChunkVersion
from dfs.chunks.commands import CommandRunner, describe
from dfs.protocol import CloneChunk, Command, DeleteChunk

log = logging.getLogger(__name__)

COMMAND_THREADS = 16
CLONE_THREADS = 4
OUTCOMES_KEPT = 10_000
NO_ANSWER = -1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command: the replica as it is now, or what went wrong."""

    command_id: int
    version: int
    length_bytes: int
    error: str


class CommandQueue:
    """Runs on one loop; `put` and `collect` are called from it."""

    def __init__(
        self,
        runner: CommandRunner,
        tell: Callable[[Outcome], Awaitable[None]],
        on_disk_failed: Callable[[DiskFailed], None],
        fail: Callable[[BaseException, str], NoReturn],
    ) -> None:
        self._runner = runner
        self._tell = tell
        self._on_disk_failed = on_disk_failed
        self._fail = fail
        self._threads = ThreadPoolExecutor(COMMAND_THREADS, thread_name_prefix="command")
        self._clones = ThreadPoolExecutor(CLONE_THREADS, thread_name_prefix="clone")
        self._last: dict[int, asyncio.Task[None]] = {}
        self._outcomes: OrderedDict[int, Outcome] = OrderedDict()

    def put(self, command: Command, read_at_s: float) -> None:
        """Carry it out after those of its chunk that came before."""
        handle = int(command.handle)  # type: ignore[attr-defined]  # all of them name their chunk
        task = asyncio.ensure_future(self._carry_out(command, read_at_s, self._last.get(handle)))
        self._last[handle] = task
        task.add_done_callback(lambda done: self._finished(handle, done))

    def collect(self, handle: ChunkHandle, version: ChunkVersion) -> None:
        """Delete garbage, unless something else is to be done with that chunk first."""
        if handle not in self._last:
            self.put(DeleteChunk(NO_ANSWER, handle, version, "garbage"), 0.0)

    def _finished(self, handle: int, task: asyncio.Task[None]) -> None:
        if self._last.get(handle) is task:
            del self._last[handle]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Unavailable):
            self._fail(error, "command")

    async def _carry_out(
        self, command: Command, read_at_s: float, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        if command.command_id == NO_ANSWER:
            await self._run(command, read_at_s)
            return
        outcome = self._outcomes.get(command.command_id)
        if outcome is None:
            outcome = await self._run(command, read_at_s)
            self._outcomes[command.command_id] = outcome
            if len(self._outcomes) > OUTCOMES_KEPT:
                self._outcomes.popitem(last=False)
        await self._tell(outcome)

    async def _run(self, command: Command, read_at_s: float) -> Outcome:
        threads = self._clones if isinstance(command, CloneChunk) else self._threads
        loop = asyncio.get_running_loop()
        version, length, error = 0, 0, ""
        try:
            version, length = await loop.run_in_executor(
                threads, self._runner.run, command, read_at_s
            )
        except DiskFailed as failed:
            self._on_disk_failed(failed)
            raise
        except ClusterError as refused:
            error = describe(refused)
            log.info("command %s refused: %s", type(command).__name__, error)
        return Outcome(command.command_id, version, length, error)
