"""The worker's shell: sockets, heartbeats and one thread for tasks, around `brain/worker`.

Listens before it registers (R5), so that an acknowledgement sent at once is never refused. Ends
with all that it started when it is told to, when it is interrupted, and when there has been no
master for a minute.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Coroutine
from typing import assert_never

import msgspec

from mrstream.cluster.errors import Unavailable
from mrstream.mapreduce.p4.brain.messages import (
    BadMessage,
    Heartbeat,
    Register,
    Shutdown,
    decode_to_worker,
    encode,
)
from mrstream.mapreduce.p4.brain.worker import (
    Beat,
    Command,
    Event,
    Run,
    Stop,
    TaskEnded,
    Tell,
    Warn,
    WorkerBrain,
)
from mrstream.mapreduce.p4.brain.workers import HEARTBEAT_S
from mrstream.mapreduce.p4.execution import Execution, Stopped
from mrstream.mapreduce.p4.transport import LOCALHOST, Door, Ignored, Outbox, bound, send_once
from mrstream.mapreduce.program import children

MASTER_GONE_S_MAX = 60.0
_log = logging.getLogger(__name__)


class NoMaster(Unavailable):
    """Nothing listens on the master's port, and has not for a minute."""


class WorkerOptions(msgspec.Struct, frozen=True):
    """What a user may choose."""

    master_port: int
    port: int
    reduce_status_is_literal: bool = False


class Worker:
    """One worker, from its start to its end."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._pid = os.getpid()
        self._brain = WorkerBrain(
            self._pid, reduce_status_is_literal=options.reduce_status_is_literal
        )
        self._execution = Execution()
        self._over = asyncio.Event()
        self._failure: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: Outbox | None = None
        self._ignored = Ignored("a message")

    async def run(self) -> None:
        """Serve until a shutdown, from the wire or by a signal; NoMaster if there is none."""
        children.become_subreaper()
        loop = asyncio.get_running_loop()
        door = Door(_is_whole, self._take)
        door.listen(self._options.port)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._handle, Shutdown())
        self._spawn(door.serve())
        self._outbox = Outbox(
            LOCALHOST, self._options.master_port, MASTER_GONE_S_MAX, self._without_master
        )
        self._outbox.put(encode(Register("localhost", self._options.port, self._pid)))
        _log.info("listening on localhost, TCP port %d, as %d", self._options.port, self._pid)
        try:
            await self._over.wait()
        finally:
            door.close()
            self._outbox.cancel()
            self._execution.stop()
            for task in self._tasks:
                task.cancel()
            # What left its process group came back to us.
            await asyncio.to_thread(children.kill_descendants, self._pid)
        if self._failure is not None:
            raise self._failure

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop; `run` raises it."""
        self._failure = self._failure or error
        self._over.set()

    def _without_master(self) -> None:
        self._fail(
            NoMaster(
                f"no master has listened on port {self._options.master_port} for "
                f"{MASTER_GONE_S_MAX:.0f} s; the worker ends"
            )
        )

    # ---- events ----------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        try:
            event = decode_to_worker(data)
        except BadMessage as error:
            self._ignored.say(data, error)
            return
        self._handle(event)

    def _handle(self, event: Event) -> None:
        _log.debug("event %s", event)
        try:
            for command in self._brain.handle(event, asyncio.get_running_loop().time()):
                _log.debug("command %s", command)
                self._do(command)
        except Exception as error:
            self._fail(error)

    # ---- commands --------------------------------------------------------------------------

    def _do(self, command: Command) -> None:
        match command:
            case Beat():
                self._spawn(self._beat())
            case Run():
                self._spawn(self._run(command))
            case Tell(status=status):
                assert self._outbox is not None, "it was made before the first task came"
                self._outbox.put(encode(status))
            case Warn(text=text):
                _log.warning("%s", text)
            case Stop():
                self._over.set()
            case _:
                assert_never(command)

    async def _run(self, command: Run) -> None:
        try:
            await asyncio.to_thread(self._execution.run, command.order, command.outputs)
        except Stopped:
            return
        self._handle(TaskEnded())

    async def _beat(self) -> None:
        """Send a heartbeat every two seconds; end with a master that is gone (P4-04)."""
        loop = asyncio.get_running_loop()
        target = (LOCALHOST, self._options.master_port - 1)
        data = encode(Heartbeat(self._pid))
        next_s = heard_s = loop.time()
        with bound(socket.SOCK_DGRAM, 0) as sender:
            sender.connect(target)
            while True:
                try:
                    await loop.sock_sendall(sender, data)
                except OSError:
                    # Nobody has the master's UDP port. Perhaps it never listens there.
                    if loop.time() - heard_s > MASTER_GONE_S_MAX and not await self._has_master():
                        self._without_master()
                        return
                else:
                    heard_s = loop.time()
                next_s = max(next_s + HEARTBEAT_S, loop.time())
                await asyncio.sleep(next_s - loop.time())

    async def _has_master(self) -> bool:
        try:
            await send_once(LOCALHOST, self._options.master_port, b"")
        except (OSError, TimeoutError):
            return False
        return True


def _is_whole(data: bytes) -> bool:
    try:
        decode_to_worker(data)
    except BadMessage:
        return False
    return True
