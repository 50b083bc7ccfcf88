"""Bytes in bulk: blocking sockets, a thread a connection, messages with raw runs of bytes between.

A `BulkStream` carries the same frames as the control plane, and after any message as many raw
bytes as the two sides agree on in it. Errors cross as messages do. Over a `unix:` address file
descriptors can be passed too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from cluster.addresses import (
    BULK_BUFFER_BYTES,
    CONNECT_S_MAX,
    address_of,
    connect_socket,
    listen_socket,
    tune,
    unix_path,
    unreachable,
    wait_readable,
    wait_writable,
)
from cluster.connection import client_handshake
from cluster.errors import ClusterError, HostUnreachable, Overloaded, Speechless
from cluster.frames import (
    HEADER_BYTES,
    UNPROVEN_BYTES_MAX,
    Kind,
    encode_frame,
    parse_header,
)
from cluster.handshake import (
    HANDSHAKE_S_MAX,
    Identity,
    PeerIdentity,
    ServerHandshake,
    new_client_id,
    refusal,
)
from cluster.messages import ErrorReply, Message, unpack

log = logging.getLogger(__name__)

BULK_MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
BULK_CONNECTIONS_MAX: Final = 512
BULK_IDLE_S_MAX: Final = 60.0
_BUFFERED_BYTES: Final = 64 * 1024
_DESCRIPTORS_MAX: Final = 8

T = TypeVar("T")


class BulkStream:
    """One bulk connection, already proven. Not for two threads at once, save that one may send
    while another receives."""

    def __init__(
        self, sock: socket.socket, address: str, peer: PeerIdentity, timeout_s: float
    ) -> None:
        sock.settimeout(timeout_s)
        self.sock = sock
        self.address = address
        self.peer = peer
        self._is_unix = sock.family == socket.AF_UNIX
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._held = memoryview(b"")
        self._descriptors: list[int] = []
        # An SSL object is not for two threads at once, though a stream is; a plain socket is.
        self._lock: contextlib.AbstractContextManager[object] = (
            threading.Lock() if self._is_tls else contextlib.nullcontext()
        )

    def __enter__(self) -> BulkStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def settimeout(self, timeout_s: float) -> None:
        """Change how long one send or receive may take."""
        self.sock.settimeout(timeout_s)

    # --- sending

    def send(self, message: Message, *runs: bytes | bytearray | memoryview) -> None:
        """Send a message, and right after it these raw bytes."""
        frame = encode_frame(Kind.CALL, 0, message)
        if runs and not self._is_tls:
            self._send_vector([memoryview(frame), *[memoryview(run).cast("B") for run in runs]])
            return
        self.send_bytes(frame)
        for run in runs:
            self.send_bytes(run)

    def send_bytes(self, run: bytes | bytearray | memoryview) -> None:
        """Send raw bytes."""
        try:
            with self._lock:
                self.sock.sendall(run)
        except OSError as error:
            raise unreachable(self.address, error) from error

    def send_error(self, error: ClusterError) -> None:
        """Send an error, which the other side's `receive` raises."""
        self.send_bytes(encode_frame(Kind.ERROR, 0, ErrorReply.of(error)))

    def send_file(self, descriptor: int, offset: int, count: int) -> None:
        """Send that many bytes of a file (sendfile, where the connection is not encrypted)."""
        left = count
        try:
            while left > 0:
                if self._is_tls:
                    run = os.pread(descriptor, min(left, BULK_BUFFER_BYTES), offset)
                    self.send_bytes(run)
                    sent = len(run)
                else:
                    sent = self._sendfile_some(descriptor, offset, left)
                if sent == 0:
                    raise HostUnreachable(
                        f"the file ends {left:,} bytes before the {count:,} that were promised"
                    )
                offset += sent
                left -= sent
        except OSError as error:
            raise unreachable(self.address, error) from error

    def send_descriptors(self, descriptors: Sequence[int]) -> None:
        """Pass open files to the other side of a Unix socket."""
        assert self._is_unix and 0 < len(descriptors) <= _DESCRIPTORS_MAX
        try:
            socket.send_fds(self.sock, [b"F"], list(descriptors))
        except OSError as error:
            raise unreachable(self.address, error) from error

    # --- receiving

    def receive(self, kind: type[T] | Any) -> Any:
        """Return the next message, which must be of that type (or union); raises the error that
        the other side sent, or `EOFError` when it has closed between two messages."""
        header = self._exactly(HEADER_BYTES, at_border=True)
        length, frame_kind, _ = parse_header(header, BULK_MESSAGE_BYTES_MAX)
        body = self._exactly(length)
        if frame_kind == Kind.ERROR:
            raise unpack(body, ErrorReply).error()
        try:
            return unpack(body, kind)
        except msgspec.DecodeError as error:
            raise Speechless(f"{self.address}: a message that cannot be read: {error}") from None

    def receive_into(self, buffer: bytearray | memoryview) -> None:
        """Fill the whole buffer with raw bytes."""
        view = memoryview(buffer).cast("B")
        taken = min(len(self._held), len(view))
        view[:taken] = self._held[:taken]
        self._held = self._held[taken:]
        while taken < len(view):
            taken += self._receive_some(view[taken:])

    def receive_some(self, buffer: bytearray | memoryview) -> int:
        """Put at least one raw byte into the buffer, as many as are there; return how many."""
        view = memoryview(buffer).cast("B")
        if self._held:
            taken = min(len(self._held), len(view))
            view[:taken] = self._held[:taken]
            self._held = self._held[taken:]
            return taken
        return self._receive_some(view)

    def receive_bytes(self, count: int) -> bytearray:
        """Return that many raw bytes."""
        run = bytearray(count)
        self.receive_into(run)
        return run

    def receive_descriptors(self, count: int) -> list[int]:
        """Return the open files that the other side passed; the caller closes them."""
        assert self._is_unix
        mark = self._exactly(1)
        taken, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        if bytes(mark) != b"F" or len(taken) != count:
            for descriptor in taken:
                os.close(descriptor)
            raise Speechless(f"expected {count} file descriptors, got {len(taken)}")
        return taken

    def close(self) -> None:
        """End the connection at once."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        with contextlib.suppress(OSError):  # it was not connected any more
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    # --- below

    def _send_vector(self, parts: list[memoryview]) -> None:
        try:
            while parts:
                sent = self.sock.sendmsg(parts)
                while parts and sent >= len(parts[0]):
                    sent -= len(parts[0])
                    del parts[0]
                if parts and sent:
                    parts[0] = parts[0][sent:]
        except OSError as error:
            raise unreachable(self.address, error) from error

    def _sendfile_some(self, descriptor: int, offset: int, count: int) -> int:
        while True:
            try:
                return os.sendfile(self.sock.fileno(), descriptor, offset, count)
            except BlockingIOError:
                if not wait_writable(self.sock, self.sock.gettimeout()):
                    raise TimeoutError("nothing could be sent any more") from None

    def _exactly(self, count: int, at_border: bool = False) -> memoryview:
        """Return `count` bytes, reading ahead where that saves a call."""
        if len(self._held) >= count:
            run, self._held = self._held[:count], self._held[count:]
            return run
        run_bytes = bytearray(count)
        view = memoryview(run_bytes)
        taken = len(self._held)
        view[:taken] = self._held
        self._held = memoryview(b"")
        while taken < count:
            ahead = self._read_ahead()
            if not ahead:
                if at_border and taken == 0:
                    raise EOFError(f"{self.address} closed the connection")
                raise HostUnreachable(f"{self.address}: closed in the middle of a message")
            part = ahead[: count - taken]
            view[taken : taken + len(part)] = part
            taken += len(part)
            self._held = ahead[len(part) :]
        return view

    def _read_ahead(self) -> memoryview:
        try:
            if self._is_unix:
                data, descriptors, _, _ = socket.recv_fds(
                    self.sock, _BUFFERED_BYTES, _DESCRIPTORS_MAX
                )
                self._descriptors += descriptors
            else:
                with self._readable():
                    data = self.sock.recv(_BUFFERED_BYTES)
        except OSError as error:
            raise unreachable(self.address, error) from error
        return memoryview(data)

    def _readable(self) -> contextlib.AbstractContextManager[object]:
        """Wait (outside the lock) until an encrypted stream has something to read."""
        if isinstance(self.sock, ssl.SSLSocket) and not self.sock.pending():
            timeout_s = self.sock.gettimeout()
            if not wait_readable(self.sock, timeout_s):
                raise TimeoutError(f"nothing came for {timeout_s:g} s")
        return self._lock

    def _receive_some(self, view: memoryview) -> int:
        try:
            with self._readable():
                count = self.sock.recv_into(view)
        except OSError as error:
            raise unreachable(self.address, error) from error
        if count == 0:
            raise HostUnreachable(f"{self.address}: closed in the middle of its bytes")
        return count


def bulk_connect(
    address: str,
    identity: Identity,
    *,
    role: str = "",
    connect_s_max: float = CONNECT_S_MAX,
    timeout_s: float = BULK_IDLE_S_MAX,
) -> BulkStream:
    """Connect to a bulk server of that role; `timeout_s` limits each send and each receive."""
    sock, peer, decoder = client_handshake(
        connect_socket(address, connect_s_max), address, identity, role, new_client_id()
    )
    assert decoder.held_bytes == 0, "a bulk server speaks only when it is asked"
    return BulkStream(sock, address, peer, timeout_s)


class BulkServer:
    """Accepts bulk connections; `serve(stream)` runs in a thread of its own for each.

    `serve` loops over `stream.receive` until `EOFError`, which ends it quietly, as does any
    `Unavailable`; a `ClusterError` that it raises is sent to the other side, and the connection
    ends. Anything else is a bug: `on_bug` hears of it.
    """

    def __init__(
        self,
        serve: Callable[[BulkStream], None],
        identity: Identity,
        *,
        connections_max: int = BULK_CONNECTIONS_MAX,
        timeout_s: float = BULK_IDLE_S_MAX,
        on_bug: Callable[[BaseException, str], None] | None = None,
    ) -> None:
        self.address = ""
        self._serve = serve
        self._identity = identity
        self._connections_max = connections_max
        self._timeout_s = timeout_s
        self._on_bug = on_bug
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None

    def start(self, address: str) -> str:
        """Listen there (port 0: any free one) and return the address in use."""
        self._listener = listen_socket(address)
        self.address = address_of(self._listener)
        self._acceptor = threading.Thread(
            target=self._accept, args=(self._listener,), name=f"accept-{self.address}", daemon=True
        )
        self._acceptor.start()
        return self.address

    def close(self) -> None:
        """Stop listening, end every connection, and wait until their threads have ended."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        # Wakes accept(); a system that refuses it on a listening socket needs close() alone.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        with self._lock:
            still_open = list(self._open.items())
        for sock, _ in still_open:
            with contextlib.suppress(OSError):  # its thread has just ended it
                sock.shutdown(socket.SHUT_RDWR)
        for _, thread in still_open:
            if thread is not threading.current_thread():
                thread.join(5.0)
        path = unix_path(self.address)
        if path is not None and os.path.exists(path):
            os.unlink(path)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return len(self._open)

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if self._listener is not listener:
                    return
                # Out of descriptors, or the client was gone before we took it: others may follow.
                log.warning("accept failed at %s: %s", self.address, error)
                threading.Event().wait(0.05)
                continue
            with self._lock:
                full = len(self._open) >= self._connections_max
                if not full:
                    thread = threading.Thread(target=self._run, args=(sock,), daemon=True)
                    self._open[sock] = thread
            if full:
                self._turn_away(sock)
            else:
                thread.start()

    def _turn_away(self, sock: socket.socket) -> None:
        most = self._connections_max
        try:
            sock.settimeout(1.0)
            sock.sendall(refusal(Overloaded(f"{most} bulk connections are open, the most allowed")))
        except OSError:
            pass  # it hears of it by the close
        sock.close()

    def _run(self, sock: socket.socket) -> None:
        plain = sock
        try:
            stream = self._prove(sock)
            if stream is not None:
                with stream:
                    self._serve_one(stream)
        except Exception as bug:
            if self._on_bug is None:
                raise
            self._on_bug(bug, f"bulk connection of {self.address}")
        finally:
            with self._lock:
                self._open.pop(plain, None)
            plain.close()

    def _serve_one(self, stream: BulkStream) -> None:
        try:
            self._serve(stream)
        except EOFError:
            return
        except ClusterError as error:
            try:
                stream.send_error(error)
            except HostUnreachable:
                log.info("bulk peer=%s ended: %s", stream.address, error)

    def _prove(self, sock: socket.socket) -> BulkStream | None:
        tune(sock)
        sock.settimeout(HANDSHAKE_S_MAX)
        address = _peer_name(sock)
        try:
            tls = self._identity.tls
            if tls is not None and sock.family != socket.AF_UNIX:
                sock = tls.server.wrap_socket(sock, server_side=True)
            handshake = ServerHandshake(self._identity)
            stream = BulkStream(sock, address, handshake.peer, HANDSHAKE_S_MAX)
            while not handshake.done:
                header = stream._exactly(HEADER_BYTES)
                length, kind, number = parse_header(header, UNPROVEN_BYTES_MAX)
                stream.send_bytes(handshake.feed((kind, number, bytes(stream._exactly(length)))))
        except (ClusterError, OSError) as error:
            log.warning("refused bulk peer=%s reason=%s", address, error)
            if isinstance(error, ClusterError) and not isinstance(error, HostUnreachable):
                self._say(sock, error)
            return None
        stream.peer = handshake.peer
        stream.settimeout(self._timeout_s)
        return stream

    def _say(self, sock: socket.socket, error: ClusterError) -> None:
        with contextlib.suppress(OSError):  # a stranger that does not listen either
            sock.sendall(refusal(error))


def _peer_name(sock: socket.socket) -> str:
    if sock.family == socket.AF_UNIX:
        return "unix"
    try:
        name = sock.getpeername()
    except OSError:
        return "gone"
    return f"{name[0]}:{name[1]}"
