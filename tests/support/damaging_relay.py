"""A wire that flips one bit: a relay of TCP connections on this machine, for tests of checksums."""

from __future__ import annotations

import contextlib
import socket
import threading

PIECE_BYTES = 64 * 1024


class DamagingRelay:
    """Passes connections on to a port, and flips one bit of what goes one way, once."""

    def __init__(self, port: int, *, towards_server: bool, at_byte: int) -> None:
        """Damage the byte at this place of a connection that is long enough to have it."""
        self._target = ("127.0.0.1", port)
        self._towards_server = towards_server
        self._at_byte = at_byte
        self._lock = threading.Lock()
        self.damaged = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections and the listener."""
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            for source, sink, is_damaged in (
                (near, far, self._towards_server),
                (far, near, not self._towards_server),
            ):
                threading.Thread(
                    target=self._pass_on, args=(source, sink, is_damaged), daemon=True
                ).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_damaged: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(PIECE_BYTES)):
                at = self._at_byte - passed
                if is_damaged and 0 <= at < len(data) and self._may_damage():
                    data[at] ^= 0x10
                passed += len(data)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _may_damage(self) -> bool:
        with self._lock:
            self.damaged += 1
            return self.damaged == 1
