"""The control plane: small messages between daemons and clients, many at once.

`Server` answers requests on an asyncio loop (uvloop where it is there); `Channel` asks from one;
`Connection` (cluster/connection.py) asks from blocking code; bytes in bulk go another way
(cluster/bulk.py). Every connection begins with the handshake, before which frames are at most 1 KB,
must come within 5 s, and only so many connections may be waiting. Writes are gathered: one system
call answers all the requests that one read brought.

A handler is `(request, peer) -> reply`, or it returns an awaitable of the reply. It may raise a
`ClusterError`, which crosses the wire; anything else that it raises is a bug, and `on_bug` hears of
it: a daemon stops then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from cluster.addresses import (
    CONNECT_S_MAX,
    LISTEN_BACKLOG,
    address_of,
    join_address,
    listen_socket,
    split_address,
    tune,
    unix_path,
    unreachable,
)
from cluster.bulk import BulkServer, BulkStream, bulk_connect
from cluster.connection import Connection
from cluster.errors import (
    CallTimedOut,
    ClusterError,
    DaemonFault,
    HostUnreachable,
    Overloaded,
    Speechless,
    UnknownRequest,
)
from cluster.frames import BODY_BYTES_MAX, FrameDecoder, Kind, encode_frame
from cluster.handshake import (
    HANDSHAKE_S_MAX,
    ClientHandshake,
    Identity,
    PeerIdentity,
    ServerHandshake,
    new_client_id,
    refusal,
)
from cluster.messages import ErrorReply, Message, Request, decoder_of, union_of, unpack
from cluster.replies import PendingReply, ReplyCache, RequestId

__all__ = [
    "BulkServer",
    "BulkStream",
    "Channel",
    "Connection",
    "Handler",
    "Identity",
    "Peer",
    "Server",
    "bulk_connect",
    "new_event_loop",
]

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 8192
UNPROVEN_MAX: Final = 256
IN_FLIGHT_MAX: Final = 1024
WRITE_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024

Handler = Callable[[Any, "Peer"], Any]
Observer = Callable[["Peer", Request, float, ClusterError | None], None]
"""Called after each answer with (peer, request, seconds it took, error or None)."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of the fastest kind at hand."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return cast(asyncio.AbstractEventLoop, uvloop.new_event_loop())


class _Wire(asyncio.Protocol):
    """What both ends of a connection do: gather frames to write, and mind the write buffer."""

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._decoder = FrameDecoder()
        self._out: list[bytes | bytearray] = []
        self._flush_due = False
        self.connected = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        sock = transport.get_extra_info("socket")
        if sock is not None and transport.get_extra_info("sslcontext") is None:
            tune(sock)
        self.connected = True

    def _send(self, frame: bytes | bytearray) -> None:
        """Queue a frame; everything queued in one turn of the loop leaves in one write."""
        self._out.append(frame)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        out = self._out
        if out and self.connected:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    def _refuse(self, error: ClusterError) -> None:
        """Say why, then end the connection."""
        self._send(refusal(error))
        self._flush()
        self.transport.close()


class Peer(_Wire):
    """A connected client as the server sees it.

    `role`, `host` and `client_id` are proven by the handshake. `request_id` is that of the request
    whose handler has just been called; it is good until that handler first awaits.
    """

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._server = server
        self._handshake: ServerHandshake | None = ServerHandshake(server.identity)
        self._deadline: asyncio.TimerHandle | None = None
        self._running: dict[int, asyncio.Future[Any]] = {}
        self._write_paused = False
        self._read_paused = False
        self.identity = PeerIdentity("", "", 0)
        self.address = ""
        self.request_id: RequestId = (0, 0)
        self.context: Any = None
        """Whatever the daemon wants to keep with this connection."""

    @property
    def role(self) -> str:
        return self.identity.role

    @property
    def host(self) -> str:
        return self.identity.host

    @property
    def client_id(self) -> int:
        return self.identity.client_id

    def push(self, message: Message) -> None:
        """Send a one-way message; it is dropped if the connection has ended."""
        if self.connected:
            self._send(encode_frame(Kind.PUSH, 0, message))

    def close(self) -> None:
        """End the connection once what was queued is sent."""
        if self.connected:
            self._flush()
            self.transport.close()

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        self.address = join_address(name[0], name[1]) if isinstance(name, tuple) else "unix"
        full = self._server._admit(self)
        if full is not None:
            self._refuse(full)
            return
        self._deadline = self._loop.call_later(HANDSHAKE_S_MAX, self._too_late)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, body in self._decoder.feed(data):
                if self._handshake is not None:
                    self._shake((kind, number, body), self._handshake)
                elif kind == Kind.CALL:
                    self._called(number, body)
                else:
                    raise Speechless(f"a client sent a frame of kind {kind}")
                if not self.connected:
                    return
        except ClusterError as error:
            self._server._refused(self, error)
            self._refuse(error)
            self.connected = False
            return
        if self._out:
            self._flush_now()

    def connection_lost(self, error: Exception | None) -> None:
        self.connected = False
        if self._deadline is not None:
            self._deadline.cancel()
        for running in list(self._running.values()):
            running.cancel()
        self._server._gone(self)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._mind_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._mind_reading()

    # --- ours

    def _flush_now(self) -> None:
        # The call_soon that _send arranged finds nothing left to do.
        out = self._out
        self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    def _mind_reading(self) -> None:
        """Stop reading from a client that does not read its answers, or asks too much at once."""
        pause = self._write_paused or len(self._running) >= IN_FLIGHT_MAX
        if pause == self._read_paused or not self.connected:
            return
        self._read_paused = pause
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _shake(self, frame: tuple[int, int, bytes], handshake: ServerHandshake) -> None:
        self._send(handshake.feed(frame))
        if handshake.done:
            self._handshake = None
            self._decoder.body_bytes_max = self._server.body_bytes_max
            if self._deadline is not None:
                self._deadline.cancel()
            self.identity = handshake.peer
            self._server._welcomed(self)

    def _too_late(self) -> None:
        error = Speechless(f"no handshake within {HANDSHAKE_S_MAX:g} s")
        self._server._refused(self, error)
        self._refuse(error)

    def _called(self, number: int, body: bytes) -> None:
        server = self._server
        try:
            request: Request = server._decode(body)
        except msgspec.DecodeError as error:
            self._send_error(number, server._unknown(body, error))
            return
        self.request_id = request_id = (self.identity.client_id, number)
        if request.mutates:
            known = server.replies.find(request_id)
            if known is not None:
                if isinstance(known, PendingReply):
                    known.waiting.append(self)
                else:
                    self._send(known)
                return
            server.replies.begin(request_id)
        began_s = time.perf_counter() if server.observe is not None else 0.0
        try:
            result = server._handlers[type(request)](request, self)
        except ClusterError as error:
            self._failed(request, request_id, began_s, error)
        except Exception as bug:
            self._bug(request, request_id, began_s, bug)
        else:
            if isinstance(result, Awaitable):
                self._await(request, request_id, began_s, result)
            else:
                self._answered(request, request_id, began_s, result)

    def _await(
        self, request: Request, request_id: RequestId, began_s: float, result: Awaitable[Any]
    ) -> None:
        future = asyncio.ensure_future(result)
        if not request.mutates:
            # What only reads is dropped with its connection; what changes things is seen through.
            self._running[request_id[1]] = future
            if len(self._running) >= IN_FLIGHT_MAX:
                self._mind_reading()
        future.add_done_callback(partial(self._awaited, request, request_id, began_s))

    def _awaited(
        self,
        request: Request,
        request_id: RequestId,
        began_s: float,
        future: asyncio.Future[Any],
    ) -> None:
        if self._running.pop(request_id[1], None) is not None and self._read_paused:
            self._mind_reading()
        if future.cancelled():
            error = DaemonFault(f"{type(request).__name__} was given up: the server is stopping")
            self._failed(request, request_id, began_s, error)
            return
        raised = future.exception()
        if raised is None:
            self._answered(request, request_id, began_s, future.result())
        elif isinstance(raised, ClusterError):
            self._failed(request, request_id, began_s, raised)
        else:
            self._bug(request, request_id, began_s, raised)

    def _answered(
        self, request: Request, request_id: RequestId, began_s: float, result: Any
    ) -> None:
        frame = encode_frame(Kind.REPLY, request_id[1], result)
        self._send(frame)
        server = self._server
        if request.mutates:
            for waiting in server.replies.finish(request_id, bytes(frame)):
                cast(Peer, waiting)._send(frame)
        if server.observe is not None:
            server.observe(self, request, time.perf_counter() - began_s, None)

    def _failed(
        self, request: Request, request_id: RequestId, began_s: float, error: ClusterError
    ) -> None:
        # A refused request changed nothing, so its repeat may be tried afresh.
        self._send_error(request_id[1], error)
        if request.mutates:
            for waiting in self._server.replies.forget(request_id):
                cast(Peer, waiting)._send_error(request_id[1], error)
        if self._server.observe is not None:
            self._server.observe(self, request, time.perf_counter() - began_s, error)

    def _bug(
        self, request: Request, request_id: RequestId, began_s: float, bug: BaseException
    ) -> None:
        name = type(request).__name__
        fault = DaemonFault(f"{self._server.identity.role} failed at {name}: {bug!r}")
        self._failed(request, request_id, began_s, fault)
        self._flush()
        self._server._bug(bug, name)

    def _send_error(self, number: int, error: ClusterError) -> None:
        self._send(encode_frame(Kind.ERROR, number, ErrorReply.of(error)))


class Server:
    """Answers requests; one per daemon."""

    def __init__(
        self,
        handlers: Mapping[type[Any], Handler],
        identity: Identity,
        *,
        connections_max: int = CONNECTIONS_MAX,
        body_bytes_max: int = BODY_BYTES_MAX,
        observe: Observer | None = None,
        on_bug: Callable[[BaseException, str], None] | None = None,
        on_connect: Callable[[Peer], None] | None = None,
        on_disconnect: Callable[[Peer], None] | None = None,
    ) -> None:
        names = [kind.__name__ for kind in handlers]
        assert len(names) == len(set(names)), f"two requests of one name: {sorted(names)}"
        self.identity = identity
        self.replies = ReplyCache()
        self.observe = observe
        self.body_bytes_max = body_bytes_max
        self.address = ""
        self._handlers = dict(handlers)
        self._decode = decoder_of(union_of(list(handlers))).decode
        self._connections_max = connections_max
        self._on_bug = on_bug
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._peers: dict[Peer, None] = {}
        self._unproven: dict[Peer, None] = {}
        self._listener: asyncio.Server | None = None

    async def start(self, address: str) -> str:
        """Listen there (port 0: any free one) and return the address in use."""
        loop = asyncio.get_running_loop()
        sock = listen_socket(address)
        self.address = address_of(sock)
        tls = self.identity.tls
        context = tls.server if tls is not None and unix_path(address) is None else None
        make = partial(Peer, self, loop)
        if unix_path(address) is not None:
            self._listener = await loop.create_unix_server(make, sock=sock)
        else:
            self._listener = await loop.create_server(
                make, sock=sock, ssl=context, backlog=LISTEN_BACKLOG
            )
        return self.address

    async def close(self) -> None:
        """Stop listening and end every connection, after what was queued has been written."""
        if self._listener is not None:
            self._listener.close()
        for peer in [*self._peers, *self._unproven]:
            peer.close()
        await asyncio.sleep(0)

    @property
    def peers(self) -> list[Peer]:
        """The clients that are connected and proven."""
        return list(self._peers)

    # --- for Peer

    def _admit(self, peer: Peer) -> Overloaded | None:
        if len(self._unproven) >= UNPROVEN_MAX:
            return Overloaded(f"{UNPROVEN_MAX} connections already wait for their handshake")
        if len(self._peers) >= self._connections_max:
            return Overloaded(f"{self._connections_max} clients are connected, the most allowed")
        self._unproven[peer] = None
        return None

    def _welcomed(self, peer: Peer) -> None:
        self._unproven.pop(peer, None)
        self._peers[peer] = None
        if self._on_connect is not None:
            self._on_connect(peer)

    def _gone(self, peer: Peer) -> None:
        self._unproven.pop(peer, None)
        if self._peers.pop(peer, peer) is None and self._on_disconnect is not None:
            self._on_disconnect(peer)

    def _refused(self, peer: Peer, error: ClusterError) -> None:
        log.warning("refused peer=%s reason=%s", peer.address, error)

    def _unknown(self, body: bytes, error: msgspec.DecodeError) -> UnknownRequest:
        try:
            said = msgspec.msgpack.decode(body)
            name = said[0] if isinstance(said, list) and said else said
        except msgspec.DecodeError:
            name = "not MessagePack"
        return UnknownRequest(
            f"{self.identity.role} cannot read request {str(name)[:80]!r}: {error}"
        )

    def _bug(self, bug: BaseException, where: str) -> None:
        if self._on_bug is not None:
            self._on_bug(bug, where)
            return
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": f"bug in {where}", "exception": bug})


class Channel(_Wire):
    """An asyncio client of one server. It does not reconnect: make a new one, with the same
    `client_id` and request numbers where a repeat must be recognised."""

    def __init__(
        self,
        address: str,
        handshake: ClientHandshake,
        loop: asyncio.AbstractEventLoop,
        on_push: Callable[[Any], None] | None,
        push_types: Sequence[type[Message]],
    ) -> None:
        super().__init__(loop)
        self.address = address
        self.client_id = 0
        self._handshake: ClientHandshake | None = handshake
        self._ready: asyncio.Future[None] = loop.create_future()
        self._pending: dict[int, tuple[asyncio.Future[Any], Any]] = {}
        self._number = 0
        self._on_push = on_push
        self._decode_push = decoder_of(union_of(list(push_types))).decode if push_types else None
        self.peer = PeerIdentity("", "", 0)
        self.closed: asyncio.Future[ClusterError] = loop.create_future()
        """Done, with the reason, once the connection has ended."""

    @staticmethod
    async def connect(
        address: str,
        identity: Identity,
        *,
        role: str = "",
        client_id: int | None = None,
        on_push: Callable[[Any], None] | None = None,
        push_types: Sequence[type[Message]] = (),
        timeout_s: float = CONNECT_S_MAX,
    ) -> Channel:
        """Connect to the server of that role ("" for any) and prove ourselves; else raise
        `HostUnreachable`, `NotTrusted` or `WrongCluster`."""
        loop = asyncio.get_running_loop()
        client_id = new_client_id() if client_id is None else client_id
        handshake = ClientHandshake(identity, role, client_id)
        channel = Channel(address, handshake, loop, on_push, push_types)
        channel.client_id = client_id
        try:
            async with asyncio.timeout(timeout_s):
                await channel._open(identity)
                await channel._ready
        except (OSError, TimeoutError) as error:
            channel.close()
            if isinstance(error, ClusterError):
                raise
            if isinstance(error, TimeoutError) and not str(error):
                raise HostUnreachable(f"{address}: no answer within {timeout_s:g} s") from None
            raise unreachable(address, error) from None
        return channel

    async def _open(self, identity: Identity) -> None:
        path = unix_path(self.address)
        if path is not None:
            await self._loop.create_unix_connection(lambda: self, path)
            return
        host, port = split_address(self.address)
        tls = identity.tls
        await self._loop.create_connection(
            lambda: self,
            host,
            port,
            ssl=None if tls is None else tls.client,
            server_hostname=None if tls is None else "",
        )

    def next_number(self) -> int:
        """Return a request number to give to `call`, for a request that may have to be repeated."""
        self._number += 1
        return self._number

    def call(
        self, request: Request, timeout_s: float | None = None, number: int | None = None
    ) -> asyncio.Future[Any]:
        """Send the request at once; the future gives the reply or raises the server's error."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.connected:
            future.set_exception(self._ended())
            return future
        if number is None:
            self._number = number = self._number + 1
        self._pending[number] = (future, request.reply)
        self._send(encode_frame(Kind.CALL, number, request))
        if timeout_s is not None:
            name = type(request).__name__
            timer = self._loop.call_later(timeout_s, self._timed_out, number, name, timeout_s)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    def close(self) -> None:
        """End the connection; calls in flight raise `HostUnreachable`."""
        if self.connected:
            self._flush()
            self.transport.close()
            self._end(HostUnreachable(f"{self.address}: the connection was closed here"))

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._handshake is not None
        self._send(self._handshake.start())

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, body in self._decoder.feed(data):
                if self._handshake is not None:
                    self._shake((kind, number, body), self._handshake)
                elif kind == Kind.REPLY:
                    self._replied(number, body)
                elif kind == Kind.ERROR:
                    self._refused(number, body)
                elif kind == Kind.PUSH:
                    self._pushed(body)
                else:
                    raise Speechless(f"a server sent a frame of kind {kind}")
        except ClusterError as error:
            self.transport.close()
            self._end(error)
        except msgspec.DecodeError as error:
            self.transport.close()
            self._end(Speechless(f"{self.address}: a reply that cannot be read: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        reason = f"connection lost ({error})" if error else "the server closed the connection"
        self._end(HostUnreachable(f"{self.address}: {reason}"))

    # --- ours

    def _shake(self, frame: tuple[int, int, bytes], handshake: ClientHandshake) -> None:
        answer = handshake.feed(frame)
        self._decoder.body_bytes_max = BODY_BYTES_MAX
        if answer is not None:
            self._send(answer)
        if handshake.done:
            self._handshake = None
            self.peer = handshake.peer
            if not self._ready.done():
                self._ready.set_result(None)

    def _replied(self, number: int, body: bytes) -> None:
        pending = self._pending.pop(number, None)
        if pending is None:
            return  # the caller gave up waiting
        future, kind = pending
        if not future.done():
            future.set_result(unpack(body, kind))

    def _refused(self, number: int, body: bytes) -> None:
        error: ClusterError = unpack(body, ErrorReply).error()
        if number == 0:
            raise error
        pending = self._pending.pop(number, None)
        if pending is not None and not pending[0].done():
            pending[0].set_exception(error)

    def _pushed(self, body: bytes) -> None:
        if self._decode_push is not None and self._on_push is not None:
            self._on_push(self._decode_push(body))

    def _timed_out(self, number: int, name: str, timeout_s: float) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None and not pending[0].done():
            text = f"{self.address}: no answer to {name} within {timeout_s:g} s"
            pending[0].set_exception(CallTimedOut(text))

    def _ended(self) -> ClusterError:
        if self.closed.done():
            return self.closed.result()
        return HostUnreachable(f"{self.address}: not connected")

    def _end(self, error: ClusterError) -> None:
        self.connected = False
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(error)
        if not self._ready.done():
            self._ready.set_exception(error)
        if not self.closed.done():
            self.closed.set_result(error)
