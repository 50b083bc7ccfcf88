"""Reading and writing one encrypted socket from two threads at once.

An SSL object is not for two threads, and a thread that waits within it would keep the other out for
as long: two ends that both wait to send would wait for ever. So the socket does not block; the lock
is held for single steps, and all waiting is done outside it.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from mrstream.cluster.wire.addresses import wait_readable, wait_writable

T = TypeVar("T")


class TlsIo:
    """Send and receive on an encrypted socket; a limit of None waits for ever."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._lock = threading.Lock()

    def send_all(self, data: bytes | bytearray | memoryview, limit_s: float | None) -> None:
        """Send all of it; `TimeoutError` if nothing could be sent for so long."""
        view = memoryview(data).cast("B")
        while view:
            sent = self._step(lambda view=view: self._sock.send(view), limit_s)  # type: ignore[misc]
            view = view[sent:]

    def receive(self, count: int, limit_s: float | None) -> bytes:
        """Return at least a byte, or none at the end; `TimeoutError` if nothing came."""
        return self._step(lambda: self._sock.recv(count), limit_s)

    def receive_into(self, view: memoryview, limit_s: float | None) -> int:
        """As `receive`, into a buffer; return how many bytes came."""
        return self._step(lambda: self._sock.recv_into(view), limit_s)

    def _step(self, step: Callable[[], T], limit_s: float | None) -> T:
        deadline_s = None if limit_s is None else time.monotonic() + limit_s
        while True:
            with self._lock:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    wait = wait_readable
                except ssl.SSLWantWriteError:
                    wait = wait_writable
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if (left_s is not None and left_s <= 0) or not wait(self._sock, left_s):
                raise TimeoutError(f"nothing moved for {limit_s:g} s")
