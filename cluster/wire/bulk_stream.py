"""One bulk connection: messages in frames, and raw runs of bytes between them.

After any message come as many raw bytes as the two sides agree on in it. Errors cross as messages
do. Over a `unix:` address file descriptors can be passed too.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from mrstream.cluster.closing import Closing
from mrstream.cluster.errors import ClusterError, HostUnreachable, Speechless
from mrstream.cluster.wire.addresses import BULK_BUFFER_BYTES, limit_waits, unreachable
from mrstream.cluster.wire.frames import (
    HEADER_BYTES,
    UNPROVEN_BYTES_MAX,
    Kind,
    encode_frame,
    parse_header,
)
from mrstream.cluster.wire.handshake import ServerHandshake
from mrstream.cluster.wire.identity import PeerIdentity
from mrstream.cluster.wire.messages import ErrorReply, Message, unpack
from mrstream.cluster.wire.tls_io import TlsIo

BULK_MESSAGE_BYTES_MAX = 4 * 1024 * 1024
_BUFFERED_BYTES = 64 * 1024
_DESCRIPTORS_MAX = 8

T = TypeVar("T")


class BulkStream(Closing):
    """One bulk connection, already proven. Not for two threads at once, save that one may send
    while another receives."""

    def __init__(
        self, sock: socket.socket, address: str, peer: PeerIdentity, timeout_s: float
    ) -> None:
        self.sock = sock
        self._timeout_s = timeout_s
        self._tls = TlsIo(sock) if isinstance(sock, ssl.SSLSocket) else None
        if self._tls is None:
            limit_waits(sock, timeout_s)
        self.address = address
        self.peer = peer
        self._is_unix = sock.family == socket.AF_UNIX
        self._held = memoryview(b"")
        """Received and not yet taken: of what comes next."""
        self._descriptors: list[int] = []
        """Open files that came with what was received; closed here unless somebody takes them."""
        self.is_idle = False
        """The last thing waited for was a message of which nothing has come."""

    def settimeout(self, timeout_s: float) -> None:
        """Change how long one send or receive may take."""
        if self._tls is None and timeout_s != self._timeout_s:
            limit_waits(self.sock, timeout_s)
        self._timeout_s = timeout_s

    # --- sending

    def send(self, message: Message, *runs: bytes | bytearray | memoryview) -> None:
        """Send a message, and right after it these raw bytes."""
        frame = encode_frame(Kind.CALL, 0, message)
        if runs and self._tls is None:
            self._send_vector([memoryview(frame), *[memoryview(run).cast("B") for run in runs]])
            return
        self.send_bytes(frame)
        for run in runs:
            self.send_bytes(run)

    def send_bytes(self, run: bytes | bytearray | memoryview) -> None:
        try:
            if self._tls is not None:
                self._tls.send_all(run, self._timeout_s)
            else:
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
                if self._tls is not None:
                    run = os.pread(descriptor, min(left, BULK_BUFFER_BYTES), offset)
                    self.send_bytes(run)
                    sent = len(run)
                else:
                    sent = os.sendfile(self.sock.fileno(), descriptor, offset, left)
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
        try:
            message = unpack(body, ErrorReply if frame_kind == Kind.ERROR else kind)
        except msgspec.DecodeError as error:
            raise Speechless(f"{self.address}: a message that cannot be read: {error}") from None
        if frame_kind == Kind.ERROR:
            raise message.error()
        return message

    @property
    def timeout_s(self) -> float:
        """How long one send or receive may take."""
        return self._timeout_s

    @property
    def has_bytes(self) -> bool:
        """Whether something was received that nobody has taken: then the socket may be silent."""
        is_deciphered = isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0
        return bool(self._held) or is_deciphered

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

    def prove_with(self, handshake: ServerHandshake, until_s: float) -> bytes | bytearray:
        """Hear one message of a stranger, all of it before that moment, and return our answer."""
        header = self._exactly(HEADER_BYTES, until_s=until_s)
        length, kind, number = parse_header(header, UNPROVEN_BYTES_MAX)
        body = self._exactly(length, until_s=until_s)
        return handshake.feed((kind, number, bytes(body)))

    def _exactly(
        self, count: int, at_border: bool = False, until_s: float | None = None
    ) -> memoryview:
        """Return `count` bytes, reading ahead where that saves a call."""
        if len(self._held) >= count:
            run, self._held = self._held[:count], self._held[count:]
            return run
        run_bytes = bytearray(count)
        view = memoryview(run_bytes)
        taken = len(self._held)
        view[:taken] = self._held
        self._held = memoryview(b"")
        self.is_idle = at_border and taken == 0
        while taken < count:
            if until_s is not None:
                # A limit on each read alone lets a byte now and then go on for hours.
                self.settimeout(max(0.001, until_s - time.monotonic()))
            ahead = self._read_ahead()
            self.is_idle = False
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
                data = (
                    self.sock.recv(_BUFFERED_BYTES)
                    if self._tls is None
                    else self._tls.receive(_BUFFERED_BYTES, self._timeout_s)
                )
        except OSError as error:
            raise unreachable(self.address, error) from error
        return memoryview(data)

    def _receive_some(self, view: memoryview) -> int:
        try:
            count = (
                self.sock.recv_into(view)
                if self._tls is None
                else self._tls.receive_into(view, self._timeout_s)
            )
        except OSError as error:
            raise unreachable(self.address, error) from error
        if count == 0:
            raise HostUnreachable(f"{self.address}: closed in the middle of its bytes")
        return count
