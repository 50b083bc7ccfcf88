"""Bytes in bulk: blocking sockets, and a thread a connection, so that a slow disk stalls nobody."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable

from mrstream.cluster.errors import ClusterError, HostUnreachable, Overloaded, Speechless
from mrstream.cluster.wire.addresses import (
    CONNECT_S_MAX,
    address_of,
    connect_socket,
    listen_socket,
    tune,
    unix_path,
)
from mrstream.cluster.wire.bulk_stream import BulkStream
from mrstream.cluster.wire.connection import client_handshake
from mrstream.cluster.wire.handshake import HANDSHAKE_S_MAX, ServerHandshake, refusal
from mrstream.cluster.wire.identity import Identity, new_client_id

__all__ = ["BulkServer", "BulkStream", "bulk_connect"]

log = logging.getLogger(__name__)

BULK_CONNECTIONS_MAX = 512
UNPROVEN_MAX = 128
BULK_IDLE_S_MAX = 60.0


def bulk_connect(
    address: str,
    identity: Identity,
    *,
    role: str = "",
    connect_s_max: float = CONNECT_S_MAX,
    timeout_s: float = BULK_IDLE_S_MAX,
) -> BulkStream:
    """Connect to a bulk server of that role; `timeout_s` limits each send and each receive, those
    of the greeting too: a host that hangs takes connections, and says nothing."""
    sock, peer, decoder = client_handshake(
        connect_socket(address, connect_s_max),
        address,
        identity,
        role,
        new_client_id(),
        min(HANDSHAKE_S_MAX, timeout_s),
    )
    if decoder.held_bytes:
        sock.close()
        raise Speechless(f"{address}: a bulk server speaks only when it is asked, this one did not")
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
        self._open: dict[threading.Thread, socket.socket] = {}
        """Every connection, by the thread that serves it; it takes its own out, and closes it."""
        self._unproven: dict[threading.Thread, None] = {}
        """Those of `_open` that have not shown that they hold the secret, oldest first."""
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
        for _, sock in still_open:
            with contextlib.suppress(OSError):  # its thread has just ended it
                sock.shutdown(socket.SHUT_RDWR)
        for thread, _ in still_open:
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
            thread = threading.Thread(target=self._run, args=(sock,), daemon=True)
            with self._lock:
                if len(self._unproven) >= UNPROVEN_MAX:
                    self._turn_out_oldest()
                self._open[thread] = sock
                self._unproven[thread] = None
            thread.start()

    def _turn_out_oldest(self) -> None:
        """Who holds the secret has proved it in milliseconds: a stranger that dawdles makes room
        for the next, so that any number of them shuts nobody out."""
        oldest = next(iter(self._unproven))
        del self._unproven[oldest]
        with contextlib.suppress(OSError):  # its thread has just ended it
            self._open[oldest].shutdown(socket.SHUT_RDWR)

    def _welcome(self) -> None:
        """Count the connection of this thread among the proven ones, if there is room."""
        with self._lock:
            self._unproven.pop(threading.current_thread(), None)
            most = self._connections_max
            if len(self._open) - len(self._unproven) > most:
                raise Overloaded(f"{most} bulk connections are open, the most allowed")

    def _run(self, sock: socket.socket) -> None:
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
            # What is closed is what `_prove` goes on with: TLS takes the descriptor of the socket
            # that it wraps, whose own close does nothing then.
            with self._lock:
                self._unproven.pop(threading.current_thread(), None)
                self._open.pop(threading.current_thread()).close()

    def _serve_one(self, stream: BulkStream) -> None:
        try:
            self._serve(stream)
        except EOFError:
            return
        except ClusterError as error:
            if stream.is_idle:
                # Kept open for a request that did not come: nobody is at fault, or waits.
                log.debug("ended idle bulk peer=%s", stream.address)
                return
            log.warning("ended bulk peer=%s reason=%s", stream.address, error)
            with contextlib.suppress(HostUnreachable):  # it hears of it by the close
                stream.send_error(error)

    def _prove(self, sock: socket.socket) -> BulkStream | None:
        address = _peer_name(sock)
        until_s = time.monotonic() + HANDSHAKE_S_MAX
        try:
            tune(sock)
            sock.settimeout(HANDSHAKE_S_MAX)
            tls = self._identity.tls
            if tls is not None and sock.family != socket.AF_UNIX:
                sock = tls.server.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                with self._lock:
                    self._open[threading.current_thread()] = sock
                sock.do_handshake()
            handshake = ServerHandshake(self._identity)
            stream = BulkStream(sock, address, handshake.peer, HANDSHAKE_S_MAX)
            while not handshake.done:
                answer = stream.prove_with(handshake, until_s)
                if handshake.done:
                    self._welcome()
                stream.send_bytes(answer)
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
