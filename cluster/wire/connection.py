"""A blocking client of one server, for libraries and commands.

Any number of threads may call at once over the one socket: whoever waits reads for all. It
connects when first used, and again after the connection was lost (with the same client id, so that
a repeated request is recognised); it never repeats a call by itself. After a fork the child gets a
connection and a client id of its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from mrstream.cluster.closing import Closing
from mrstream.cluster.errors import CallTimedOut, ClusterError, HostUnreachable, Speechless
from mrstream.cluster.wire.addresses import CONNECT_S_MAX, connect_socket, unix_path, unreachable
from mrstream.cluster.wire.frames import BODY_BYTES_MAX, FrameDecoder, Kind, encode_frame
from mrstream.cluster.wire.handshake import HANDSHAKE_S_MAX, ClientHandshake
from mrstream.cluster.wire.identity import Identity, PeerIdentity, new_client_id
from mrstream.cluster.wire.messages import ErrorReply, Message, Request, reader_of, union_of, unpack
from mrstream.cluster.wire.tls_io import TlsIo

CALL_S_MAX = 30.0
_READ_BYTES = 256 * 1024


def client_handshake(
    sock: socket.socket,
    address: str,
    identity: Identity,
    role: str,
    client_id: int,
    timeout_s: float = HANDSHAKE_S_MAX,
) -> tuple[socket.socket, PeerIdentity, FrameDecoder]:
    """Prove both sides over a connected blocking socket; return the socket to go on with (wrapped
    where the cluster uses TLS), the server's identity, and the decoder with what else arrived."""
    try:
        sock.settimeout(timeout_s)
        if identity.tls is not None and unix_path(address) is None:
            sock = identity.tls.client.wrap_socket(sock)
        handshake = ClientHandshake(identity, role, client_id)
        decoder = FrameDecoder()
        sock.sendall(handshake.start())
        while not handshake.done:
            data = sock.recv(4096)
            if not data:
                raise HostUnreachable(f"{address}: closed during the handshake")
            for frame in decoder.feed(data):
                answer = handshake.feed(frame)
                decoder.body_bytes_max = BODY_BYTES_MAX
                if answer is not None:
                    sock.sendall(answer)
    except ClusterError as error:
        sock.close()
        if not error.message.startswith(address):
            error.message = f"{address}: {error.message}"
        raise
    except (OSError, ssl.SSLError) as error:
        sock.close()
        raise unreachable(address, error) from error
    return sock, handshake.peer, decoder


class _Waiter:
    """A call that waits for its reply, or for its turn to read for all; `_state` guards it."""

    __slots__ = ("_asleep", "_sleep", "body", "error")

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.error: ClusterError | None = None
        """Set once, by what comes first: the reply, or the end of the connection."""
        self._sleep = threading.Lock()
        self._sleep.acquire()
        """Held, but from a `wake` to the next `sleep`."""
        self._asleep = True
        """Is it held? So that it is released once, however often anybody wakes."""

    @property
    def is_answered(self) -> bool:
        return self.body is not None or self.error is not None

    def end(self, body: bytes | None, error: ClusterError | None) -> None:
        """It is over; one that was over before stays as it was."""
        if not self.is_answered:
            self.body, self.error = body, error
        self.wake()

    def wake(self) -> None:
        """Let `sleep` return, the one under way or the next."""
        if self._asleep:
            self._asleep = False
            self._sleep.release()

    def sleep(self, seconds: float) -> None:
        """Wait for `wake`; called without `_state`."""
        if self._sleep.acquire(timeout=seconds):
            self._asleep = True


class Connection(Closing):
    """`call` sends a request and returns its reply; safe to use from many threads."""

    def __init__(
        self,
        address: str,
        identity: Identity,
        *,
        role: str = "",
        client_id: int | None = None,
        on_push: Callable[[Any], None] | None = None,
        push_types: Sequence[type[Message]] = (),
        connect_s_max: float = CONNECT_S_MAX,
        on_peer: Callable[[PeerIdentity], None] | None = None,
    ) -> None:
        """`on_peer` sees who has proven to be there, at each connect; what it raises ends it."""
        self.address = address
        self.client_id = new_client_id() if client_id is None else client_id
        self.peer = PeerIdentity("", "", 0)
        self._identity = identity
        self._role = role
        self._connect_s_max = connect_s_max
        self._on_peer = on_peer
        self._on_push = on_push
        self._read_push = reader_of(union_of(list(push_types))) if push_types else None
        self._fresh()

    def _fresh(self) -> None:
        self._pid = os.getpid()
        """Whose connection it is: a child that was forked off makes one of its own."""
        self._sock: socket.socket | None = None
        """None: there is none, or it was lost. Set and cleared under `_state`; whoever clears it
        tells all who wait."""
        self._tls: TlsIo | None = None
        """Of `_sock`, with TLS."""
        self._decoder = FrameDecoder(BODY_BYTES_MAX)
        """Has half a frame of `_sock`; fed by the thread that reads."""
        self._number = 0
        """Of the last request; never goes back, also over new connections, so that a repeat is
        known by its number."""
        self._waiters: dict[int, _Waiter] = {}
        """The calls in flight by number; a reply without one comes too late, and is dropped."""
        self._reading = False
        """One of the waiting threads reads for all. It hands over when it has its own answer: while
        anybody waits, somebody reads or has been woken to."""
        self._send_lock = threading.Lock()
        """Frames go out one at a time; never taken while `_state` is held."""
        self._state = threading.Lock()
        """Guards all of the above, for moments; nobody waits for the network with it."""

    @property
    def is_open(self) -> bool:
        """Is there a connection, as far as anybody has noticed?"""
        return self._sock is not None and self._pid == os.getpid()

    def next_number(self) -> int:
        """Return a request number to give to `call`, for a request that may have to be repeated."""
        self._check_fork()
        with self._state:
            self._number += 1
            return self._number

    def call(
        self,
        request: Request,
        timeout_s: float = CALL_S_MAX,
        number: int | None = None,
        look: Callable[[], None] | None = None,
        look_s: float = CALL_S_MAX,
    ) -> Any:
        """Return the reply, or raise what the server raised, `HostUnreachable` or
        `CallTimedOut`. To repeat a call that may have been carried out, give its number again.
        `look` is called whenever `look_s` have passed without an answer; what it raises ends the
        call."""
        self._check_fork()
        deadline_s = time.monotonic() + timeout_s
        if number is None:
            number = self.next_number()
        sock = self._connected()
        with self._waiting(number) as waiter:
            self._send(sock, encode_frame(Kind.CALL, number, request), timeout_s)
            look_at_s = time.monotonic() + look_s
            while look is not None and not self._wait_until(waiter, min(look_at_s, deadline_s)):
                if time.monotonic() >= deadline_s:
                    break
                look()
                look_at_s = time.monotonic() + look_s
            self._wait(waiter, deadline_s, type(request).__name__, timeout_s)
        if waiter.error is not None:
            raise waiter.error
        assert waiter.body is not None
        try:
            return unpack(waiter.body, request.reply)
        except msgspec.DecodeError as error:
            name = type(request).__name__
            raise Speechless(
                f"{self.address}: the reply to {name} cannot be read: {error}"
            ) from None

    def listen(self, timeout_s: float) -> None:
        """Take what the server pushes for so long, without a call of our own."""
        self._check_fork()
        self._connected()
        with self._waiting(-self.next_number()) as waiter:
            try:
                self._wait(waiter, time.monotonic() + timeout_s, "", timeout_s)
            except CallTimedOut:
                return

    def close(self) -> None:
        """End the connection; calls in flight raise `HostUnreachable`. It may be used again."""
        self._check_fork()
        sock = self._sock
        if sock is not None:
            self._drop(sock, HostUnreachable(f"{self.address}: the connection was closed here"))

    def abort(self) -> None:
        """As `close`, and nothing that is still on its way is sent: over a network that was cut it
        would arrive when that is whole again, long after its caller went on."""
        self._check_fork()
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._drop(sock, HostUnreachable(f"{self.address}: the connection was given up here"))

    # --- the socket

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            inherited = self._sock
            self._fresh()
            self.client_id = new_client_id()
            if inherited is not None:
                inherited.close()  # the parent's end stays open: close() here ends our copy only

    def _connected(self) -> socket.socket:
        with self._send_lock:
            if self._sock is not None:
                return self._sock
            sock, peer, decoder = client_handshake(
                connect_socket(self.address, self._connect_s_max),
                self.address,
                self._identity,
                self._role,
                self.client_id,
            )
            if self._on_peer is not None:
                try:
                    self._on_peer(peer)
                except ClusterError:
                    sock.close()
                    raise
            with self._state:
                self._sock, self.peer, self._decoder = sock, peer, decoder
                self._tls = TlsIo(sock) if isinstance(sock, ssl.SSLSocket) else None
            return sock

    def _send(self, sock: socket.socket, frame: bytearray, timeout_s: float) -> None:
        try:
            with self._send_lock:
                if self._tls is not None:
                    self._tls.send_all(frame, timeout_s)
                else:
                    sock.settimeout(timeout_s)
                    sock.sendall(frame)
        except OSError as error:
            lost = unreachable(self.address, error)
            self._drop(sock, lost)
            raise lost from error

    @contextlib.contextmanager
    def _waiting(self, number: int) -> Iterator[_Waiter]:
        waiter = _Waiter()
        with self._state:
            assert number not in self._waiters, f"request {number} is in flight already"
            self._waiters[number] = waiter
        try:
            yield waiter
        finally:
            with self._state:
                self._waiters.pop(number, None)
                if not self._reading:
                    # Of those who still wait one is enough to read: waking all costs a change of
                    # thread for each of them, at every reply.
                    for other in self._waiters.values():
                        if not other.is_answered:
                            other.wake()
                            break

    def _wait(self, waiter: _Waiter, deadline_s: float, name: str, timeout_s: float) -> None:
        if not self._wait_until(waiter, deadline_s):
            raise CallTimedOut(f"{self.address}: no answer to {name} in {timeout_s:g} s")

    def _wait_until(self, waiter: _Waiter, deadline_s: float) -> bool:
        """Whether there is an answer by then."""
        while True:
            with self._state:
                if waiter.is_answered:
                    return True
                left_s = deadline_s - time.monotonic()
                if left_s <= 0.0:
                    return False
                sock = self._sock
                if sock is None:
                    raise HostUnreachable(f"{self.address}: the connection was lost")
                sleeps = self._reading
                self._reading = True
            if sleeps:
                waiter.sleep(left_s)
                continue
            try:
                self._read_once(sock, left_s)
            finally:
                with self._state:
                    self._reading = False

    def _read_once(self, sock: socket.socket, timeout_s: float) -> None:
        """Read what has come and hand it to whoever waits for it."""
        try:
            data = self._receive(sock, timeout_s)
        except TimeoutError:
            return
        except OSError as error:
            self._drop(sock, unreachable(self.address, error))
            return
        if not data:
            self._drop(sock, HostUnreachable(f"{self.address}: the server closed the connection"))
            return
        try:
            frames = self._decoder.feed(data)
            for kind, number, body in frames:
                self._take(kind, number, body)
        except (ClusterError, msgspec.DecodeError) as error:
            self._drop(sock, Speechless(f"{self.address}: {error}"))

    def _receive(self, sock: socket.socket, timeout_s: float) -> bytes:
        if self._tls is not None:
            return self._tls.receive(_READ_BYTES, timeout_s)
        sock.settimeout(timeout_s)
        return sock.recv(_READ_BYTES)

    def _take(self, kind: int, number: int, body: bytes) -> None:
        if kind == Kind.PUSH:
            if self._on_push is not None and self._read_push is not None:
                self._on_push(self._read_push(body))
            return
        error = unpack(body, ErrorReply).error() if kind == Kind.ERROR else None
        if error is not None and number == 0:
            raise error
        with self._state:
            waiter = self._waiters.get(number)
            if waiter is not None:
                waiter.end(body, error)

    def _drop(self, sock: socket.socket, error: ClusterError) -> None:
        with self._state:
            if self._sock is sock:
                self._sock = None
                for waiter in self._waiters.values():
                    waiter.end(None, error)
        # Wakes a thread that reads; its descriptor is closed with the object.
        with contextlib.suppress(OSError):  # it was not connected any more
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
