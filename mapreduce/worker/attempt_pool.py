"""The attempts that run on a worker: processes from its zygote, each with a socket to talk over.

Takes orders as bytes; gives what an attempt says to a listener, and how its process ended. A
process that has done a map well may wait for another of its job, so that a thousand small maps are
not a thousand forks. To cancel is to kill. Never decides what runs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from mrstream.cluster.errors import Speechless
from mrstream.mapreduce.attempt.attempt_report import (
    AttemptNews,
    Decoder,
    Done,
    Failed,
    Failure,
    Message,
    Ready,
)
from mrstream.mapreduce.attempt.pipe_frames import framed
from mrstream.mapreduce.attempt.zygote import Ended, Zygote
from mrstream.mapreduce.scheduler.ids import JobId, TaskKind, parse_attempt_id

log = logging.getLogger(__name__)

LAST_WORDS_S_MAX = 2.0
"""After its end an attempt's socket is read for so long: something it left may hold it open."""
WAIT_S_MAX = 2.0
"""A process that waits for another order of its job for longer than this is let go."""


class RunningAttempt:
    """One attempt on this worker, from its order to the acknowledgement of its end."""

    def __init__(
        self, attempt_id: str, listener: Callable[[RunningAttempt, Message], None]
    ) -> None:
        task_id = parse_attempt_id(attempt_id).task_id
        self.attempt_id = attempt_id
        self.job_id: JobId = task_id.job_id
        self.is_map = task_id.kind is TaskKind.MAP
        self.segment_path = ""
        self.output_directory = ""
        self.news: AttemptNews | None = None
        """What it told last, until a heartbeat tells it."""
        self.outcome: Done | Failed | None = None
        self.kill_reason: str | None = None
        self.has_shuffled = False
        self.said_bytes = 0
        self.commit: asyncio.Future[int | None] | None = None
        """While it waits for the right to commit: the epoch of who gave it; None: it is killed."""
        self.greeting: Callable[[], bytes] | None = None
        """Gives what the attempt is told first, once it can be told anything."""
        self.process: AttemptSocket | None = None
        """What runs it, while that is so."""
        self._listener = listener

    def write(self, data: bytes) -> None:
        """Send news to the attempt; dropped if it has ended."""
        if self.process is not None:
            self.process.write(data)

    def heard(self, message: Message) -> None:
        self._listener(self, message)


class AttemptSocket(asyncio.Protocol):
    """The connection to a process that runs one attempt after another.

    One that says what cannot be read is killed, and its attempt has failed: nobody knows any more
    where the next message would begin.
    """

    def __init__(self, token: int, ended: asyncio.Future[Ended], kill: Callable[[], None]) -> None:
        self.token = token
        self.ended = ended
        self._kill = kill
        self._is_garbled = False
        self.is_ready: asyncio.Future[None] = ended.get_loop().create_future()
        """Done when the process waits for another order."""
        self.closed: asyncio.Future[None] = ended.get_loop().create_future()
        self._attempt: RunningAttempt | None = None
        self._decoder = Decoder()
        self._transport: Any = None

    def take(self, attempt: RunningAttempt) -> None:
        """From now on what the process says is said by this attempt."""
        self.is_ready = self.ended.get_loop().create_future()
        self._attempt = attempt
        attempt.process = self

    def release(self) -> None:
        """The attempt is over; nothing done to it concerns the process any more."""
        if self._attempt is not None:
            self._attempt.process = None
            self._attempt = None

    def write(self, data: bytes) -> None:
        """Send something to the process; dropped if it has ended."""
        if self._transport is not None and not self.closed.done():
            self._transport.write(data)

    def close(self) -> None:
        """Let go of the process: one that waits for an order ends."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._attempt is not None and self._attempt.greeting is not None:
            self.write(self._attempt.greeting())

    def data_received(self, data: bytes) -> None:
        if self._is_garbled:
            return
        try:
            for message in self._decoder.feed(data):
                self._hear(message)
        except Speechless as error:
            self._is_garbled = True
            name = "" if self._attempt is None else self._attempt.attempt_id
            log.warning("killed attempt=%s reason=%s", name, error)
            self._hear(Failed(Failure(str(error))))
            self._kill()

    def _hear(self, message: Message) -> None:
        if isinstance(message, Ready):
            if not self.is_ready.done():
                self.is_ready.set_result(None)
        elif self._attempt is not None:
            self._attempt.heard(message)

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
        self._waiting: dict[JobId, list[AttemptSocket]] = {}

    def open(self) -> None:
        """Begin to hear of ends."""
        self._loop.add_reader(self._zygote.fileno(), self._hear)

    def close(self) -> None:
        """Kill every attempt and all that came from it; blocks until they are gone."""
        self._loop.remove_reader(self._zygote.fileno())
        self._zygote.close()

    async def run(self, attempt: RunningAttempt, order: bytes) -> Ended | None:
        """Run an attempt to its end; what it says goes to its listener before this returns.

        Gives how its process ended, or None if that waits for another.
        """
        process = self._waiting_process(attempt.job_id) if attempt.is_map else None
        if process is not None:
            process.take(attempt)
            process.write(framed(order))
        else:
            process = await self._fork(attempt, order)
        if attempt.kill_reason is not None:
            self.kill(attempt)
        over: list[asyncio.Future[Any]] = [process.ended, process.is_ready]
        await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        if process.ended.done() or attempt.kill_reason is not None:
            return await self._end_of(process)
        process.release()
        self._keep(attempt.job_id, process)
        return None

    def kill(self, attempt: RunningAttempt) -> None:
        """End an attempt's process, if it has one (any more)."""
        if attempt.process is not None:
            self._kill(attempt.process.token)

    def _kill(self, token: int) -> None:
        if token in self._ended:
            self._zygote.kill(token)

    def forget(self, job_id: JobId) -> None:
        """Let the processes go that wait for orders of a job."""
        for process in self._waiting.pop(job_id, ()):
            process.close()

    async def _fork(self, attempt: RunningAttempt, order: bytes) -> AttemptSocket:
        token, descriptor = self._zygote.start(order, attempt.attempt_id)
        ended = self._ended[token] = self._loop.create_future()
        process = AttemptSocket(token, ended, partial(self._kill, token))
        process.take(attempt)
        ours = socket.socket(fileno=descriptor)
        ours.setblocking(False)
        await self._loop.create_unix_connection(lambda: process, sock=ours)
        return process

    async def _end_of(self, process: AttemptSocket) -> Ended:
        how = await process.ended
        await asyncio.wait([process.closed], timeout=LAST_WORDS_S_MAX)
        process.release()
        process.close()
        return how

    def _keep(self, job_id: JobId, process: AttemptSocket) -> None:
        self._waiting.setdefault(job_id, []).append(process)
        self._loop.call_later(WAIT_S_MAX, self._let_go, job_id, process, process.is_ready)

    def _let_go(
        self, job_id: JobId, process: AttemptSocket, waits_since: asyncio.Future[None]
    ) -> None:
        waiting = self._waiting.get(job_id, [])
        if process in waiting and process.is_ready is waits_since:
            waiting.remove(process)
            process.close()
            if not waiting:
                del self._waiting[job_id]

    def _waiting_process(self, job_id: JobId) -> AttemptSocket | None:
        waiting = self._waiting.get(job_id, [])
        while waiting:
            process = waiting.pop()
            if not process.closed.done() and not process.ended.done():
                return process
        return None

    def _hear(self) -> None:
        try:
            ended = self._zygote.ended()
        except EOFError as error:
            self._fail(error, "zygote")
            return
        waiting = self._ended.pop(ended.token, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(ended)
