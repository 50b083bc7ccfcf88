"""One JSON object a TCP connection, one a datagram: how the course's peers carry messages.

`Door` listens on localhost and hands over whole messages in the order in which their connections
came; `Outbox` sends in order, each message by one write and an immediate close (R4), and tries
again while nobody listens. Whatever a stranger sends, or does not send, costs it its connection and
nothing else: bytes, connections and seconds are limited here. Never decides anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.p4.brain.messages import MESSAGE_BYTES_MAX, BadMessage

T = TypeVar("T")
LOCALHOST = "127.0.0.1"
BACKLOG = 1024
CONNECTIONS_MAX = 64
"""At once; others wait in the backlog. With the limit of a message this bounds our memory."""
MESSAGE_S_MAX = 10.0
IN_ORDER_S_MAX = 1.0
"""A connection that came earlier, and whose message is not whole, holds up later ones so long."""
DECODE_TRIES_MAX = 64
"""A peer that sends byte by byte must not make us read all it sent at each of them."""
IGNORED_SAID_MAX = 16
_READ_BYTES = 1 << 16
_CONNECT_S_MAX = 2.0
_AGAIN_S = 0.1
_log = logging.getLogger(__name__)


class Inbox(Generic[T]):
    """Makes messages of bytes. Says what it ignores, ever more rarely: a flood of rubbish must not
    become one of lines."""

    def __init__(
        self, what: str, decode: Callable[[bytes], T], take: Callable[[T], object]
    ) -> None:
        """`take` gets each message, and does not raise."""
        self._what = what
        self._decode = decode
        self._take = take
        self._ignored = 0

    def is_whole(self, data: bytes) -> bool:
        """Whether bytes are a complete message."""
        try:
            self._decode(data)
        except BadMessage:
            return False
        return True

    def put(self, data: bytes) -> None:
        """Hand over what came, if it is a message."""
        try:
            message = self._decode(data)
        except BadMessage as error:
            self._ignore(data, error)
        else:
            self._take(message)

    def _ignore(self, data: bytes, why: Exception) -> None:
        self._ignored += 1
        if self._ignored <= IGNORED_SAID_MAX or self._ignored & (self._ignored - 1) == 0:
            _log.warning(
                "%s is ignored (%d bytes, number %d): %s", self._what, len(data), self._ignored, why
            )


class Door:
    """A TCP port of localhost, from which messages come."""

    def __init__(self, inbox: Inbox[Any]) -> None:
        self._inbox = inbox
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)
        self._last: asyncio.Future[None] | None = None
        self._listener: socket.socket | None = None

    def listen(self, port: int) -> None:
        """Take the port; UserError if it cannot be had."""
        self._listener = bound(socket.SOCK_STREAM, port)
        self._listener.listen(BACKLOG)

    async def serve(self) -> None:
        """Accept connections, until cancelled."""
        assert self._listener is not None, "listen first"
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as receiving:
            while True:
                await self._room.acquire()
                try:
                    connection, _ = await loop.sock_accept(self._listener)
                except OSError:
                    # Out of descriptors, or it was reset before we came: the next may do better.
                    self._room.release()
                    await asyncio.sleep(_AGAIN_S)
                    continue
                before, self._last = self._last, loop.create_future()
                receiving.create_task(self._receive(connection, before, self._last))

    async def _receive(
        self,
        connection: socket.socket,
        before: asyncio.Future[None] | None,
        done: asyncio.Future[None],
    ) -> None:
        try:
            with connection:
                data = await self._read(connection)
            if before is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(before), IN_ORDER_S_MAX)
            if data:
                self._inbox.put(data)
        finally:
            self._room.release()
            if not done.done():
                done.set_result(None)

    async def _read(self, connection: socket.socket) -> bytes:
        """Read to the end of the stream, or of the object, whichever comes first (R4)."""
        loop = asyncio.get_running_loop()
        data = bytearray()
        tries = 0
        try:
            async with asyncio.timeout(MESSAGE_S_MAX):
                while len(data) <= MESSAGE_BYTES_MAX:
                    part = await loop.sock_recv(connection, _READ_BYTES)
                    if not part:
                        return bytes(data)
                    data += part
                    if part.rstrip().endswith(b"}") and tries < DECODE_TRIES_MAX:
                        tries += 1
                        if self._inbox.is_whole(bytes(data)):
                            return bytes(data)
        except (TimeoutError, OSError):
            pass  # what came until now is judged as any other bytes are
        return bytes(data[: MESSAGE_BYTES_MAX + 1])

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()


class Ear(asyncio.DatagramProtocol):
    """A UDP port of localhost, from which datagrams come."""

    def __init__(self, inbox: Inbox[Any]) -> None:
        self._inbox = inbox

    def datagram_received(self, data: bytes, _: object) -> None:
        self._inbox.put(data)


class Outbox:
    """Messages on their way to one peer, in order."""

    def __init__(self, host: str, port: int, give_up_s: float, on_failure: Callable[[], None]):
        """After `give_up_s` without anybody who listens, `on_failure` is called once."""
        self._addresses = _loopback_of(host)
        self._port = port
        self._give_up_s = give_up_s
        self._on_failure = on_failure
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    def put(self, data: bytes) -> None:
        """Send this behind all that was put before."""
        self._queue.put_nowait(data)

    def cancel(self) -> None:
        """Drop what was not delivered."""
        self._task.cancel()

    async def flushed(self) -> None:
        """Wait until all is delivered."""
        await self._queue.join()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data = await self._queue.get()
            until_s = loop.time() + self._give_up_s
            while not await self._deliver(data):
                if loop.time() >= until_s:
                    self._on_failure()
                    return
                await asyncio.sleep(_AGAIN_S)
            self._queue.task_done()

    async def _deliver(self, data: bytes) -> bool:
        for address in self._addresses:
            try:
                await send_once(address, self._port, data)
                return True
            except (OSError, TimeoutError):
                continue
        return False


async def send_once(address: str, port: int, data: bytes) -> None:
    """Connect, send all, close; OSError or TimeoutError if nobody takes it."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        async with asyncio.timeout(_CONNECT_S_MAX):
            await loop.sock_connect(connection, (address, port))
            await loop.sock_sendall(connection, data)


def bound(kind: socket.SocketKind, port: int) -> socket.socket:
    """Take a port of localhost; UserError if it cannot be had."""
    taken = socket.socket(socket.AF_INET, kind)
    taken.setblocking(False)
    if kind == socket.SOCK_STREAM:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((LOCALHOST, port))
    except OSError as error:
        taken.close()
        name = "TCP" if kind == socket.SOCK_STREAM else "UDP"
        raise UserError(
            f"{name} port {port} of localhost cannot be had ({error.strerror}); end what uses it, "
            "or choose another"
        ) from None
    return taken


def _loopback_of(host: str) -> list[str]:
    """Return the addresses of this machine's loopback at which a peer may be.

    A worker names its host as it likes, and everything runs on one machine: a name that leads
    elsewhere must not make us connect there.
    """
    found = [LOCALHOST]
    try:
        for *_, address in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM):
            if ipaddress.ip_address(address[0]).is_loopback and address[0] not in found:
                found.insert(0, str(address[0]))
    except (OSError, UnicodeError):
        return found
    return found
