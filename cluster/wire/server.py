"""The server of the control plane: answers requests on an asyncio loop, each client at its pace.

Before the handshake frames are at most 1 KB and must come within 5 s, and only so many connections
may be waiting. A client that does not read its answers, or has too many questions open, is not read
from until it does. Whatever a client sends ends its own connection at most, with a line in the log.
A handler is `(request, peer) -> reply`, or it returns an awaitable of the reply. It may raise a
`ClusterError`, which crosses the wire; anything else that it raises is a bug, and `on_bug` hears of
it: a daemon stops then.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import CoroutineType
from typing import Any, cast

import msgspec

from mrstream.cluster.errors import (
    ClusterError,
    DaemonFault,
    Overloaded,
    Speechless,
    Unavailable,
    UnknownRequest,
)
from mrstream.cluster.wire.addresses import (
    LISTEN_BACKLOG,
    address_of,
    join_address,
    listen_socket,
    unix_path,
)
from mrstream.cluster.wire.frames import BODY_BYTES_MAX, Frame, Kind, encode_frame
from mrstream.cluster.wire.handshake import HANDSHAKE_S_MAX, ServerHandshake
from mrstream.cluster.wire.identity import Identity, PeerIdentity
from mrstream.cluster.wire.messages import ErrorReply, Message, Request, reader_of, union_of, unpack
from mrstream.cluster.wire.replies import PendingReply, ReplyCache, RequestId
from mrstream.cluster.wire.transport import Wire

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 8192
UNPROVEN_MAX = 256
IN_FLIGHT_MAX = 1024

Handler = Callable[[Any, "Peer"], Any]
"""Returns the answer, or a future or coroutine of it."""
LATER = (asyncio.Future, CoroutineType)
"""What a handler returns whose answer comes later. Not `Awaitable`: to ask an abstract class costs
twice as much, with every question."""
Observer = Callable[["Peer", Request, float, ClusterError | None], None]
"""Called after each answer with (peer, request, seconds it took, error or None)."""


class _Named(msgspec.Struct, array_like=True):
    """The name of any message, whatever follows it."""

    name: str


class Peer(Wire):
    """A connected client as the server sees it.

    `role`, `host` and `client_id` are proven by the handshake. `request_id` is that of the request
    whose handler has just been called; it is good until that handler first awaits.
    """

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._server = server
        self._handshake: ServerHandshake | None = ServerHandshake(server.identity, server.epoch)
        """None once the client has proven the secret; until then nothing else is heard."""
        self._deadline: asyncio.TimerHandle | None = None
        """By when that must be."""
        self._running: dict[int, asyncio.Future[Any]] = {}
        """Handlers that have not ended, by request number."""
        self._write_paused = False
        """The client does not read its answers: then it is not read from either."""
        self._read_paused = False
        """Nothing is taken from the socket at the moment."""
        self._backlog: list[Frame] = []
        """Frames that came and are not handled yet, in order; what comes is put behind them."""
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
            self._turn_out(full)
            return
        self._deadline = self._loop.call_later(HANDSHAKE_S_MAX, self._too_late)

    def data_received(self, data: bytes) -> None:
        if not self.connected:
            return  # it was turned out; under TLS more may come until the transport has closed
        try:
            frames = self._decoder.feed(data)
        except ClusterError as error:
            self._turn_out(error)
            return
        if self._backlog:
            self._backlog += frames
        else:
            self._take(frames)

    def connection_lost(self, error: Exception | None) -> None:
        self.connected = False
        if isinstance(error, ssl.SSLError):
            log.warning("ended peer=%s reason=%s", self.address, error)
        if self._deadline is not None:
            self._deadline.cancel()
        for running in list(self._running.values()):
            running.cancel()
        self._server._gone(self)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._loop.call_soon(self._go_on)

    # --- ours

    def _take(self, frames: list[Frame]) -> None:
        """Handle frames until the client must wait: it does not read its answers, or asks too much
        at once. What is left over is kept, and nothing more is read, until that has passed."""
        for at, (kind, number, body) in enumerate(frames):
            if self._write_paused or len(self._running) >= IN_FLIGHT_MAX:
                self._backlog = frames[at:]
                break
            if self._handshake is not None:
                self._shake((kind, number, body), self._handshake)
            elif kind == Kind.CALL:
                self._called(number, body)
            else:
                self._turn_out(Speechless(f"a client sent a frame of kind {kind}"))
            if not self.connected:
                return
        self._flush()
        self._mind_reading()

    def _turn_out(self, error: ClusterError) -> None:
        self._server._refused(self, error)
        self._refuse(error)
        self.connected = False

    def _mind_reading(self) -> None:
        pause = self._write_paused or len(self._running) >= IN_FLIGHT_MAX or bool(self._backlog)
        if pause != self._read_paused and self.connected:
            self._read_paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _go_on(self) -> None:
        """Take up what was left over, now that the reason to wait may be gone."""
        backlog, self._backlog = self._backlog, []
        if self.connected:
            self._take(backlog)

    def _shake(self, frame: Frame, handshake: ServerHandshake) -> None:
        try:
            self._send(handshake.feed(frame))
        except ClusterError as error:
            self._turn_out(error)
            return
        if handshake.done:
            self._handshake = None
            self._decoder.body_bytes_max = self._server.body_bytes_max
            if self._deadline is not None:
                self._deadline.cancel()
            self.identity = handshake.peer
            self._server._welcomed(self)

    def _too_late(self) -> None:
        if self.connected:
            self._turn_out(Speechless(f"no handshake within {HANDSHAKE_S_MAX:g} s"))

    def _called(self, number: int, body: bytes) -> None:
        server = self._server
        try:
            request: Request = server._read(body)
        except msgspec.DecodeError as error:
            unknown = server._unknown(body, error)
            log.warning("refused request of peer=%s reason=%s", self.address, unknown)
            self._send(encode_frame(Kind.ERROR, number, ErrorReply.of(unknown)))
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
            if isinstance(result, LATER):
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
        future.add_done_callback(partial(self._awaited, request, request_id, began_s))

    def _awaited(
        self,
        request: Request,
        request_id: RequestId,
        began_s: float,
        future: asyncio.Future[Any],
    ) -> None:
        if self._running.pop(request_id[1], None) is not None and self._read_paused:
            self._loop.call_soon(self._go_on)
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
        frame = encode_frame(Kind.ERROR, request_id[1], ErrorReply.of(error))
        self._send(frame)
        if request.mutates:
            replies = self._server.replies
            if isinstance(error, Unavailable):
                # It changed nothing, and whoever repeats it wants it tried afresh.
                others = replies.forget(request_id)
            else:
                # Whoever hears this goes on. A copy of the request may still come, over a
                # connection that was given up: it must not be carried out after that (F5).
                others = replies.finish(request_id, bytes(frame))
            for waiting in others:
                cast(Peer, waiting)._send(frame)
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
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        """`epoch` is asked at each welcome: that of a master's own lead."""
        names = [kind.__name__ for kind in handlers]
        assert len(names) == len(set(names)), f"two requests of one name: {sorted(names)}"
        self.identity = identity
        self.epoch = epoch
        self.replies = ReplyCache()
        self.observe = observe
        self.body_bytes_max = body_bytes_max
        self.address = ""
        self._handlers = dict(handlers)
        self._read = reader_of(union_of(list(handlers)))
        self._connections_max = connections_max
        self._on_bug = on_bug
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._peers: dict[Peer, None] = {}
        """Connections whose clients have proven that they hold the secret."""
        self._unproven: dict[Peer, None] = {}
        """Those that have not yet, oldest first; none is in both."""
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
                make,
                sock=sock,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S_MAX,
                backlog=LISTEN_BACKLOG,
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
            # Who holds the secret has proved it in milliseconds: strangers that dawdle make room.
            oldest = next(iter(self._unproven))
            oldest._turn_out(Overloaded(f"{UNPROVEN_MAX} connections wait for their handshake"))
            self._unproven.pop(oldest, None)
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
            name = unpack(body, _Named).name
        except msgspec.DecodeError:
            name = "without a name"
        return UnknownRequest(f"{self.identity.role} cannot read request {name[:80]!r}: {error}")

    def _bug(self, bug: BaseException, where: str) -> None:
        if self._on_bug is not None:
            self._on_bug(bug, where)
            return
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": f"bug in {where}", "exception": bug})
