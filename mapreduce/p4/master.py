"""The master's shell: sockets, the clock, directories and files around `brain/master`.

Takes one event, lets the brain decide, does the commands in order; what takes long (merging,
copying) runs in one thread, and its end is an event. Listens on localhost only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
from collections.abc import Callable
from typing import assert_never

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.cluster.tasks import Tasks
from mrstream.mapreduce.p4 import grouping
from mrstream.mapreduce.p4.brain import layout
from mrstream.mapreduce.p4.brain.events import (
    Command,
    DeliveryFailed,
    End,
    Event,
    Forget,
    Grouped,
    InputListed,
    ListInput,
    MakeDirectories,
    MergeAndCut,
    PlaceResults,
    ResultsPlaced,
    Say,
    Send,
    TimePassed,
)
from mrstream.mapreduce.p4.brain.layout import Edition
from mrstream.mapreduce.p4.brain.master import MasterBrain
from mrstream.mapreduce.p4.brain.messages import (
    Heartbeat,
    Shutdown,
    decode_heartbeat,
    decode_to_master,
    encode,
)
from mrstream.mapreduce.p4.brain.workers import SILENCE_S_MAX
from mrstream.mapreduce.p4.output_file import copy_whole
from mrstream.mapreduce.p4.room import Stop, Stopped, with_room
from mrstream.mapreduce.p4.transport import Door, Ear, Inbox, Outbox, bound

TICK_S = 0.25
FAREWELL_S_MAX = 2.0
_log = logging.getLogger(__name__)


class MasterOptions(msgspec.Struct, frozen=True):
    """What a user may choose."""

    port: int
    outstanding_per_worker: int = 0
    edition: Edition = layout.DEFAULT
    round_robin_by_key: bool = False
    wipes_anything: bool = False


class Master:
    """One master, from its start to its end."""

    def __init__(self, options: MasterOptions) -> None:
        self._options = options
        self._edition = options.edition
        self._brain = MasterBrain(
            outstanding_max=options.outstanding_per_worker, edition=options.edition
        )
        self._outboxes: dict[int, Outbox] = {}
        self._over = asyncio.Event()
        self._stop = Stop()
        self._work = Tasks(asyncio.get_running_loop(), self._fail)
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Serve until a shutdown, from the wire or by a signal."""
        door = Door(Inbox("a message", decode_to_master, self._handle))
        door.listen(self._options.port)
        loop = asyncio.get_running_loop()
        ear = bound(socket.SOCK_DGRAM, self._options.port - 1)
        # Only now: a second master on the same port must not take away the files of the first.
        prepare(self._edition.root, wipes_anything=self._options.wipes_anything)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._handle, Shutdown())
        heartbeats = Inbox("a datagram", decode_heartbeat, self._handle)
        transport, _ = await loop.create_datagram_endpoint(lambda: Ear(heartbeats), sock=ear)
        serving = [asyncio.create_task(door.serve()), asyncio.create_task(self._tick())]
        _log.info(
            "listening on localhost, TCP port %d and UDP port %d; this protocol has no "
            "authentication: whoever can connect here runs programs as you",
            self._options.port, self._options.port - 1,
        )  # fmt: skip
        try:
            over = asyncio.create_task(self._over.wait())
            await asyncio.wait([over, *serving], return_when=asyncio.FIRST_COMPLETED)
            for task in serving:
                if task.done() and (error := task.exception()) is not None:
                    self._fail(error)
        finally:
            self._stop.set()
            for task in serving:
                task.cancel()
            transport.close()
            door.close()
        await self._farewell()
        if self._failure is not None:
            raise self._failure

    async def _farewell(self) -> None:
        """Wait until the workers have heard of the end, as long as they may need for it."""
        told = [asyncio.create_task(outbox.flushed()) for outbox in self._outboxes.values()]
        if told:
            await asyncio.wait(told, timeout=FAREWELL_S_MAX)
        await self._work.over()

    # --- events

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._handle(TimePassed())

    def _handle(self, event: Event) -> None:
        if not isinstance(event, TimePassed | Heartbeat):
            _log.debug("event %s", event)
        try:
            for command in self._brain.handle(event, asyncio.get_running_loop().time()):
                if not isinstance(command, Say):
                    _log.debug("command %s", command)
                self._do(command)
        except Exception as error:
            self._fail(error)

    # --- commands

    def _do(self, command: Command) -> None:
        match command:
            case MakeDirectories(job_id=job_id):
                self._make_directories(job_id)
            case ListInput(job_id=job_id, directory=directory):
                self._work_on(lambda: self._listed(job_id, directory))
            case Send():
                self._send(command)
            case Forget(pid=pid):
                if outbox := self._outboxes.pop(pid, None):
                    outbox.cancel()
            case MergeAndCut():
                self._work_on(lambda: self._grouped(command))
            case PlaceResults():
                self._work_on(lambda: self._placed(command))
            case Say(text=text):
                _log.info("%s", text)
            case End():
                self._over.set()
            case _:
                assert_never(command)

    def _make_directories(self, job_id: int) -> None:
        try:
            for name in layout.FOLDERS:
                os.makedirs(self._edition.folder(job_id, name), exist_ok=True)
        except OSError as error:
            _log.error("job %d cannot have its directories, and will fail: %s", job_id, error)

    def _send(self, command: Send) -> None:
        outbox = self._outboxes.get(command.pid)
        if outbox is None:
            outbox = self._outboxes[command.pid] = Outbox(
                command.host,
                command.port,
                SILENCE_S_MAX,
                lambda: self._handle(DeliveryFailed(command.pid)),
            )
        outbox.put(encode(command.message))

    def _work_on(self, work: Callable[[], Event]) -> None:
        """Do what takes long, in a thread; its answer is an event."""

        async def answer() -> None:
            try:
                event = await asyncio.to_thread(work)
            except Stopped:
                return
            self._handle(event)

        self._work.start(answer())

    def _fail(self, error: BaseException) -> None:
        """Stop, since this is a bug: `run` raises it."""
        self._failure = self._failure or error
        self._over.set()

    # --- work, in a thread

    def _listed(self, job_id: int, directory: str) -> InputListed:
        try:
            return InputListed(job_id, input_files(directory))
        except (OSError, UserError) as error:
            return InputListed(job_id, error=f"{directory} cannot be read: {error}")

    def _grouped(self, command: MergeAndCut) -> Grouped:
        cut = grouping.deal_files if self._options.round_robin_by_key else grouping.cut_files
        try:
            with_room(
                f"job {command.job_id}, merging",
                lambda: cut(command.sources, command.targets, self._stop.check),
                self._stop.pause,
            )
        except OSError as error:
            return Grouped(command.job_id, f"merging failed: {error}")
        return Grouped(command.job_id)

    def _placed(self, command: PlaceResults) -> ResultsPlaced:
        try:
            with_room(
                f"job {command.job_id}, results", lambda: self._copy(command), self._stop.pause
            )
        except OSError as error:
            return ResultsPlaced(
                command.job_id, f"{command.directory} cannot take the results: {error}"
            )
        return ResultsPlaced(command.job_id)

    def _copy(self, command: PlaceResults) -> None:
        os.makedirs(command.directory, exist_ok=True)
        for source, name in zip(command.sources, command.names, strict=True):
            self._stop.check()
            copy_whole(source, os.path.join(command.directory, name))


def input_files(directory: str) -> tuple[str, ...]:
    """Return the files of a directory as `cat DIRECTORY/*` would read them: none that is hidden, no
    directory, in the order of their names."""
    with os.scandir(directory) as entries:
        names = [e.name for e in entries if e.is_file() and not e.name.startswith(".")]
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"the name {os.fsencode(name)!r} is not UTF-8, and no message can hold it"
            ) from None
    return tuple(f"{directory.rstrip('/')}/{name}" for name in sorted(names))


def prepare(root: str, *, wipes_anything: bool) -> None:
    """Remove what a master before us left, and make the directory anew (P4-01).

    One that holds anything else is not removed unless the user said so: `var` and `tmp` are names
    that other things have too.
    """
    path = os.path.abspath(root)
    if os.path.lexists(path):
        if os.path.dirname(path) == "/" or os.path.islink(path) or os.path.ismount(path):
            raise UserError(f"{path} is not removed: start the master in a directory of its own")
        strange = [] if wipes_anything else sorted(n for n in os.listdir(path) if not _is_job(n))
        if strange:
            raise UserError(
                f"{path} is not removed: it holds {strange[0]!r}, which no master made; start the "
                "master elsewhere, or say --wipe"
            )
        shutil.rmtree(path)
    os.mkdir(path)


def _is_job(name: str) -> bool:
    return name.startswith("job-") and name[4:].isdigit()
