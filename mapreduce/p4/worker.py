"""The worker's shell: sockets, heartbeats and one thread for tasks, around `brain/worker`.

Listens before it registers (R5), so that an acknowledgement sent at once is never refused. Ends
with all that it started when it is told to, when it is interrupted, and when its master is gone: a
new one on the same port would not know it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from typing import assert_never

import msgspec

from mrstream.cluster.errors import Unavailable
from mrstream.cluster.tasks import Tasks
from mrstream.mapreduce.p4.brain.messages import (
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
from mrstream.mapreduce.p4.brain.workers import HEARTBEAT_S, SILENCE_S_MAX
from mrstream.mapreduce.p4.execution import Execution
from mrstream.mapreduce.p4.room import Stopped
from mrstream.mapreduce.p4.transport import LOCALHOST, Door, Inbox, Outbox, bound, send_once
from mrstream.mapreduce.program import children

MASTER_LATE_S_MAX = 60.0
"""A master that takes no messages may have to be started yet."""
_log = logging.getLogger(__name__)


class NoMaster(Unavailable):
    """Nothing listens on the master's ports, and has not for some time."""


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
        self._tasks = Tasks(asyncio.get_running_loop(), self._fail)
        self._outbox: Outbox | None = None

    async def run(self) -> None:
        """Serve until a shutdown, from the wire or by a signal; NoMaster if there is none."""
        children.become_subreaper()
        loop = asyncio.get_running_loop()
        door = Door(Inbox("a message", decode_to_worker, self._handle))
        door.listen(self._options.port)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._handle, Shutdown())
        self._tasks.start(door.serve())
        self._outbox = Outbox(
            LOCALHOST,
            self._options.master_port,
            MASTER_LATE_S_MAX,
            lambda: self._without_master(MASTER_LATE_S_MAX),
        )
        self._outbox.put(encode(Register("localhost", self._options.port, self._pid)))
        _log.info("listening on localhost, TCP port %d, as %d", self._options.port, self._pid)
        try:
            await self._over.wait()
        finally:
            door.close()
            self._outbox.cancel()
            self._execution.stop()
            self._tasks.cancel()
            # What left its process group came back to us.
            await asyncio.to_thread(children.kill_descendants, self._pid)
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BaseException) -> None:
        """Stop; `run` raises it."""
        self._failure = self._failure or error
        self._over.set()

    def _without_master(self, waited_s: float) -> None:
        self._fail(
            NoMaster(
                f"no master has listened on port {self._options.master_port} for "
                f"{waited_s:.0f} s; the worker ends"
            )
        )

    # --- events

    def _handle(self, event: Event) -> None:
        _log.debug("event %s", event)
        try:
            for command in self._brain.handle(event, asyncio.get_running_loop().time()):
                _log.debug("command %s", command)
                self._do(command)
        except Exception as error:
            self._fail(error)

    # --- commands

    def _do(self, command: Command) -> None:
        match command:
            case Beat():
                self._tasks.start(self._beat())
            case Run():
                self._tasks.start(self._run(command))
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
        data = encode(Heartbeat(self._pid))
        refusals = Refusals()
        next_s = loop.time()
        with bound(socket.SOCK_DGRAM, 0) as sender:
            sender.connect((LOCALHOST, self._options.master_port - 1))
            while True:
                try:
                    await loop.sock_sendall(sender, data)
                except OSError:
                    # Nobody has the master's UDP port. Perhaps it never listens there.
                    if refusals.refused(loop.time()) > SILENCE_S_MAX:
                        if not await self._has_master():
                            self._without_master(SILENCE_S_MAX)
                            return
                        refusals = Refusals()  # ask as rarely as may be: what we ask with is odd
                else:
                    refusals.sent()
                next_s = max(next_s + HEARTBEAT_S, loop.time())
                await asyncio.sleep(next_s - loop.time())

    async def _has_master(self) -> bool:
        try:
            await send_once(LOCALHOST, self._options.master_port, b"")
        except (OSError, TimeoutError):
            return False
        return True


class Refusals:
    """For how long datagrams have been refused.

    The system tells of a refusal when the next datagram is sent, and does not send that one: every
    other one of those that nobody takes looks as if it had been taken. Two in a row were.
    """

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._sent = 0

    def sent(self) -> None:
        """Note that the system took one."""
        self._sent += 1
        if self._sent > 1:
            self._since_s = None

    def refused(self, now_s: float) -> float:
        """Note a refusal; give the seconds since the first of these."""
        self._sent = 0
        self._since_s = now_s if self._since_s is None else self._since_s
        return now_s - self._since_s
