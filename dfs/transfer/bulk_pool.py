"""Bulk connections to chunkservers, kept and used again (GFS §2.5).

Safe for many threads: a stream is lent to one at a time. A stream that lay idle may have been
closed by a server that was restarted meanwhile; a request over it is then repeated once over a new
one, so only requests whose repeat is harmless may go through `call`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from mrstream.cluster.errors import ClusterError, HostUnreachable, Speechless
from mrstream.cluster.wire.addresses import CONNECT_S_MAX, join_address
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import BulkStream, Identity, bulk_connect
from mrstream.dfs.protocol import ServerAddress

IDLE_S_MAX = 20.0
IDLE_PER_ADDRESS_MAX = 64
CHUNKSERVER_ROLE = "dfs.chunkserver"


class BulkPool:
    def __init__(
        self,
        identity: Identity,
        *,
        timeout_s: float,
        connect_s_max: float = CONNECT_S_MAX,
        is_here: Callable[[ServerAddress], bool] = lambda server: False,
    ) -> None:
        """`is_here` says of a server whether it is on the same host as we."""
        self._identity = identity
        self._is_here = is_here
        self.timeout_s = timeout_s
        self._connect_s_max = connect_s_max
        self._lock = threading.Lock()
        """Guards `_idle`; never held while a stream is used."""
        self._idle: dict[str, list[tuple[BulkStream, float]]] = {}
        """Streams that are in step and nobody's, each with the moment since when; the last is taken
        first. One that is in use is in no list."""
        self._pid = os.getpid()
        """Whose streams they are: a child that was forked off forgets them."""

    def address_of(self, server: ServerAddress) -> str:
        """Where to reach a server: through its Unix socket, at a third of the cost, if it is on
        this host and lets this user in."""
        path = server.local_socket
        if path and self._is_here(server) and os.access(path, os.W_OK):
            return f"unix:{path}"
        return join_address(server.host, server.bulk_port)

    def call(self, address: str, request: Request) -> Any:
        """Send a request without raw bytes and return its reply."""
        stream = self.idle(address)
        if stream is not None:
            with contextlib.suppress(EOFError, HostUnreachable):  # it was closed while it lay idle
                return self._ask(address, stream, request)
        try:
            return self._ask(address, self.connect(address), request)
        except EOFError as error:
            raise HostUnreachable(f"{address}: closed before it answered") from error

    def _ask(self, address: str, stream: BulkStream, request: Request) -> Any:
        try:
            stream.send(request)
            return self._reply(address, stream, request)
        except (EOFError, HostUnreachable, Speechless):
            stream.close()
            raise

    def connect(self, address: str) -> BulkStream:
        """Open a new stream; the caller closes it or gives it back."""
        return bulk_connect(
            address,
            self._identity,
            role=CHUNKSERVER_ROLE,
            connect_s_max=self._connect_s_max,
            timeout_s=self.timeout_s,
        )

    def give_back(self, address: str, stream: BulkStream) -> None:
        """Keep a stream that is in step for the next who needs one."""
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if len(idle) < IDLE_PER_ADDRESS_MAX:
                idle.append((stream, time.monotonic()))
                return
        stream.close()

    def close(self) -> None:
        """Close all that are idle."""
        with self._lock:
            streams = [stream for idle in self._idle.values() for stream, _ in idle]
            self._idle.clear()
        for stream in streams:
            stream.close()

    def _reply(self, address: str, stream: BulkStream, request: Request) -> Any:
        try:
            reply = stream.receive(request.reply)
        except (HostUnreachable, Speechless):
            raise
        except ClusterError:
            # The server's own word: the stream is in step.
            self.give_back(address, stream)
            raise
        self.give_back(address, stream)
        return reply

    def idle(self, address: str) -> BulkStream | None:
        """Take a stream that lay idle, if there is one; it may turn out to be dead."""
        if self._pid != os.getpid():
            # After a fork the streams are the parent's; using them would mix two conversations.
            self._idle, self._pid, self._lock = {}, os.getpid(), threading.Lock()
        too_old_s = time.monotonic() - IDLE_S_MAX
        while True:
            with self._lock:
                idle = self._idle.get(address)
                if not idle:
                    return None
                stream, since_s = idle.pop()
            if since_s >= too_old_s:
                stream.settimeout(self.timeout_s)
                return stream
            stream.close()
