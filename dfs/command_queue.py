"""The master's commands on their way through a chunkserver: each chunk's one after the other.

Takes commands from the loop, has them carried out by threads, and hands each outcome on. A command
that comes again gets the outcome of the first time; one whose master was deposed while it waited is
refused (F2). Clones have threads of their own, so that they hold up nothing else. Knows nothing of
connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

from mrstream.cluster.errors import ClusterError, DiskFailed
from mrstream.dfs.chunk import (
    ChunkHandle,
    ChunkVersion,
    epoch_of_command,
    unasked_command_id,
)
from mrstream.dfs.chunks.allegiance import Allegiance
from mrstream.dfs.chunks.commands import CommandRunner, describe
from mrstream.dfs.protocol import CloneChunk, Command, DeleteChunk

log = logging.getLogger(__name__)

COMMAND_THREADS = 16
CLONE_THREADS = 4
OUTCOMES_KEPT = 10_000


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
        allegiance: Allegiance,
        tell: Callable[[Outcome], None],
        on_disk_failed: Callable[[DiskFailed], None],
        fail: Callable[[BaseException, str], NoReturn],
    ) -> None:
        """`tell` is called on the loop."""
        self._runner = runner
        self._allegiance = allegiance
        self._tell = tell
        self._on_disk_failed = on_disk_failed
        self._fail = fail
        self._threads = ThreadPoolExecutor(COMMAND_THREADS, thread_name_prefix="command")
        self._clones = ThreadPoolExecutor(CLONE_THREADS, thread_name_prefix="clone")
        self._following: dict[int, deque[tuple[Command, float]]] = {}
        """For each chunk with a command underway, those that come after it."""
        self._outcomes: OrderedDict[int, Outcome] = OrderedDict()
        self._short: dict[int, int] = {}
        """The chunks with a command underway that is not a clone, and its epoch."""
        self._awaited: list[asyncio.Future[None]] = []

    def put(self, command: Command, since_s: float) -> None:
        """Carry it out after those of its chunk that came before."""
        handle = int(command.handle)  # type: ignore[attr-defined]  # all of them name their chunk
        following = self._following.get(handle)
        if following is not None:
            following.append((command, since_s))
            return
        self._following[handle] = deque()
        self._begin(handle, command, since_s)

    def collect(self, handle: ChunkHandle, version: ChunkVersion, epoch: int) -> None:
        """Delete what a master called garbage, unless something else is to be done with that chunk
        first."""
        if handle not in self._following:
            self.put(DeleteChunk(unasked_command_id(epoch), handle, version, "garbage"), 0.0)

    async def settled(self, epoch: int) -> None:
        """Return when nothing is being done that a master before this epoch asked for, so that what
        is told to the new one stays true. Clones may go on: they only add a replica."""
        while any(other < epoch for other in self._short.values()):
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append(ended)
            await ended

    def _begin(self, handle: int, command: Command, since_s: float) -> None:
        loop = asyncio.get_running_loop()
        known = self._outcomes.get(command.command_id)
        if known is not None:
            loop.call_soon(self._ended, handle, known)
            return
        is_clone = isinstance(command, CloneChunk)
        if not is_clone:
            self._short[handle] = epoch_of_command(command.command_id)
        threads = self._clones if is_clone else self._threads
        # A plain call back into the loop: a future for each would cost as much as the command.
        threads.submit(self._run, loop, handle, command, since_s)

    def _run(
        self, loop: asyncio.AbstractEventLoop, handle: int, command: Command, since_s: float
    ) -> None:
        """In a thread: carry out, and have the loop go on."""
        try:
            outcome = self._outcome(command, since_s)
        except DiskFailed as failed:
            self._on_disk_failed(failed)
            return
        except Exception as bug:
            self._fail(bug, "command")
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is to be told
            loop.call_soon_threadsafe(self._ended, handle, outcome)

    def _outcome(self, command: Command, since_s: float) -> Outcome:
        version, length, error = 0, 0, ""
        try:
            self._allegiance.check(epoch_of_command(command.command_id), type(command).__name__)
            version, length = self._runner.run(command, since_s)
        except DiskFailed:
            raise
        except ClusterError as refused:
            error = describe(refused)
            log.info("command %s refused: %s", type(command).__name__, error)
        return Outcome(command.command_id, version, length, error)

    def _ended(self, handle: int, outcome: Outcome) -> None:
        self._short.pop(handle, None)
        if outcome.command_id != unasked_command_id(epoch_of_command(outcome.command_id)):
            self._outcomes[outcome.command_id] = outcome
            if len(self._outcomes) > OUTCOMES_KEPT:
                self._outcomes.popitem(last=False)
            self._tell(outcome)
        following = self._following[handle]
        if following:
            self._begin(handle, *following.popleft())
        else:
            del self._following[handle]
        awaited, self._awaited = self._awaited, []
        for one in awaited:
            one.set_result(None)
