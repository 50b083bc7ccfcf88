"""The attempts that run on a worker: processes from its zygote, each with a socket to talk over.

Takes orders as bytes; gives what an attempt says to a listener, and how its process ended. To
cancel is to kill. Never decides what runs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from mapreduce.attempt_report import Decoder, Done, Failed, Message, Progress
from mapreduce.scheduler.ids import JobId, TaskKind, parse_attempt_id
from mapreduce.zygote import Ended, Zygote

LAST_WORDS_S_MAX: Final = 2.0
"""After its end an attempt's socket is read for so long: something it left may hold it open."""


class RunningAttempt(asyncio.Protocol):
    """One attempt on this worker, from its order to the acknowledgement of its end."""

    def __init__(
        self, attempt_id: str, listener: Callable[[RunningAttempt, Message], None]
    ) -> None:
        task_id = parse_attempt_id(attempt_id).task_id
        self.attempt_id = attempt_id
        self.job_id: JobId = task_id.job_id
        self.is_map = task_id.kind is TaskKind.MAP
        self.token = 0
        self.segment_path = ""
        self.output_directory = ""
        self.progress: Progress | None = None
        self.is_progress_new = False
        self.outcome: Done | Failed | None = None
        self.kill_reason: str | None = None
        self.has_shuffled = False
        self.said_bytes = 0
        self.commit: asyncio.Future[bool] | None = None
        """While it waits for the right to commit: true for granted, false for killed."""
        self.greeting: Callable[[], bytes] | None = None
        """Gives what the attempt is told first, once it can be told anything."""
        self.closed = asyncio.get_running_loop().create_future()
        self._listener = listener
        self._decoder = Decoder()
        self._transport: Any = None

    @property
    def is_connected(self) -> bool:
        """Whether news would reach it."""
        return self._transport is not None and not self.closed.done()

    def write(self, data: bytes) -> None:
        """Send news to the attempt; dropped if it has ended."""
        if self.is_connected:
            self._transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self.greeting is not None:
            self.write(self.greeting())

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            self._listener(self, message)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


class AttemptPool:
    """Starts attempts through the zygote and hears of their ends on the loop."""

    def __init__(
        self,
        zygote: Zygote,
        loop: asyncio.AbstractEventLoop,
        fail: Callable[[BaseException, str], Any],
    ) -> None:
        self._zygote = zygote
        self._loop = loop
        self._fail = fail
        self._ended: dict[int, asyncio.Future[Ended]] = {}

    def open(self) -> None:
        """Begin to hear of ends."""
        self._loop.add_reader(self._zygote.fileno(), self._hear)

    def close(self) -> None:
        """Kill every attempt and all that came from it; blocks until they are gone."""
        self._loop.remove_reader(self._zygote.fileno())
        self._zygote.close()

    async def run(self, attempt: RunningAttempt, order: bytes) -> Ended:
        """Run an attempt to its end; what it says goes to its listener before this returns."""
        attempt.token, descriptor = self._zygote.start(order, attempt.attempt_id, two_way=True)
        ended = self._ended[attempt.token] = self._loop.create_future()
        ours = socket.socket(fileno=descriptor)
        ours.setblocking(False)
        transport, _ = await self._loop.create_unix_connection(lambda: attempt, sock=ours)
        if attempt.kill_reason is not None:
            self.kill(attempt)
        how: Ended = await ended
        await asyncio.wait([attempt.closed], timeout=LAST_WORDS_S_MAX)
        transport.close()
        return how

    def kill(self, attempt: RunningAttempt) -> None:
        """End an attempt's process, if it has one (any more)."""
        if attempt.token in self._ended:
            self._zygote.kill(attempt.token)

    def _hear(self) -> None:
        try:
            ended = self._zygote.ended()
        except EOFError as error:
            self._fail(error, "zygote")
            return
        waiting = self._ended.pop(ended.token, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(ended)
