"""The asyncio client of the control plane: any number of calls in flight over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mrstream.cluster.errors import CallTimedOut, ClusterError, HostUnreachable, Speechless
from mrstream.cluster.wire.addresses import CONNECT_S_MAX, split_address, unix_path, unreachable
from mrstream.cluster.wire.frames import BODY_BYTES_MAX, Frame, Kind, encode_frame
from mrstream.cluster.wire.handshake import ClientHandshake
from mrstream.cluster.wire.identity import Identity, PeerIdentity, new_client_id
from mrstream.cluster.wire.messages import ErrorReply, Message, Request, reader_of, union_of, unpack
from mrstream.cluster.wire.transport import Wire


class Channel(Wire):
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
        """None once both sides have proven the secret; until then no other frame counts."""
        self._ready: asyncio.Future[None] = loop.create_future()
        """Done, or failed, when the handshake is over."""
        self._pending: dict[int, tuple[asyncio.Future[Any], Any]] = {}
        """Calls in flight by number, each with what its reply is read as; nobody waits for another
        of the same number. Empty from the end of the connection on."""
        self._number = 0
        """Of the last request that was given none."""
        self._is_abandoned = False
        """`connect` gave up: a connection that is made later is ended at once."""
        self._on_push = on_push
        self._read_push = reader_of(union_of(list(push_types))) if push_types else None
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
        except BaseException as error:
            channel._abandon()
            # TimeoutError is an OSError; of ValueError see `connect_socket`.
            if isinstance(error, ClusterError) or not isinstance(error, OSError | ValueError):
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
        known = self._pending.get(number)
        assert known is None or known[0].done(), f"request {number} is in flight already"
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

    def _abandon(self) -> None:
        """Nobody waits for this connection any more, and nothing more is said. A loop may have
        ended the transport by itself, if the time was over just when it was made, and uvloop then
        raises at every write."""
        self._is_abandoned = True
        if self.connected:
            self.transport.abort()
        self._ready.cancel()
        self._end(HostUnreachable(f"{self.address}: the connection was given up"))

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._handshake is not None
        if self._is_abandoned:
            self.connected = False
            self.transport.abort()
        else:
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
            self._end(Speechless(f"{self.address}: a message that cannot be read: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        reason = f"connection lost ({error})" if error else "the server closed the connection"
        self._end(HostUnreachable(f"{self.address}: {reason}"))

    # --- ours

    def _shake(self, frame: Frame, handshake: ClientHandshake) -> None:
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
        if future.done():
            return
        try:
            future.set_result(unpack(body, kind))
        except msgspec.DecodeError as error:
            # Only this call is lost with its reply: frames are still cut where they should be.
            text = f"{self.address}: a reply that cannot be read: {error}"
            future.set_exception(Speechless(text))

    def _refused(self, number: int, body: bytes) -> None:
        error: ClusterError = unpack(body, ErrorReply).error()
        if number == 0:
            raise error
        pending = self._pending.pop(number, None)
        if pending is not None and not pending[0].done():
            pending[0].set_exception(error)

    def _pushed(self, body: bytes) -> None:
        """Under TLS more may come after `close`, until the transport has closed: who pushes counts
        on it that an order dies with its connection."""
        if self.connected and self._read_push is not None and self._on_push is not None:
            self._on_push(self._read_push(body))

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
