"""Passing pushed bytes on to the next server of the chain while they arrive (GFS §3.2).

Takes a buffer that fills up; sends what is new in it to the next server. A next server that fails
does not stop the bytes from arriving here: the failure is told at the end. Used by the chunkserver
for its successor and by the client for the first of the chain.
"""

from __future__ import annotations

from mrstream.cluster.errors import CallTimedOut, ClusterError, HostUnreachable
from mrstream.cluster.wire.network import BulkStream
from mrstream.dfs.errors import ReplicaFailed
from mrstream.dfs.protocol import Done, PushData
from mrstream.dfs.transfer.bulk_pool import BulkPool

FORWARD_BYTES = 256 * 1024
HOP_S = 1.0
"""So much longer than the next server each one waits, for every server behind that: so the one that
is next to a silent server is the first to say so, and nobody is blamed in its place."""


class Forward:
    """One push on its way to `request.chain[0]` and, through it, to the rest."""

    def __init__(self, pool: BulkPool, request: PushData, data: memoryview) -> None:
        self._pool = pool
        self._next = request.chain[0]
        self._address = pool.address_of(self._next)
        self._request = PushData(
            request.data_id, request.length_bytes, request.chain[1:], request.crc
        )
        self._data = data
        self._sent = 0
        self._failure: ClusterError | None = None
        self._stream = pool.idle(self._address)
        self._was_idle = self._stream is not None
        self._begin()

    def pass_on(self, end: int) -> None:
        """The first `end` bytes are there: send those that were not sent yet."""
        if self._failure is not None or self._stream is None:
            return
        try:
            self._stream.send_bytes(self._data[self._sent : end])
        except HostUnreachable as error:
            self._again(error, end)
        else:
            self._sent = end

    def finish(self) -> None:
        """Wait until the chain has everything; raise ReplicaFailed, naming who has not."""
        if self._failure is None:
            self._await_done()
        if self._failure is not None:
            servers = self._failure.details.get("servers") or [self._next.server]
            raise ReplicaFailed(
                f"push to {self._next.server} failed: {self._failure}", servers=list(servers)
            ) from self._failure

    def close(self) -> None:
        """Give up: the bytes did not arrive here either."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _begin(self) -> None:
        try:
            if self._stream is None:
                self._stream = self._pool.connect(self._address)
            self._stream.settimeout(self._pool.timeout_s + HOP_S * len(self._request.chain))
            self._stream.send(self._request)
        except HostUnreachable as error:
            self._again(error, 0)
        except ClusterError as error:
            self._failure = error

    def _again(self, error: ClusterError, end: int) -> None:
        """That a stream ended which had lain idle is no proof against the server: try a new one,
        once. Silence is one."""
        self.close()
        if isinstance(error, CallTimedOut):
            self._pool.forget(self._address)
        if not self._was_idle or isinstance(error, CallTimedOut):
            self._failure = error
            return
        self._was_idle = False
        self._sent = 0
        self._begin()
        if end:
            self.pass_on(end)

    def _await_done(self) -> None:
        stream = self._stream
        assert stream is not None
        try:
            self._receive(stream)
        except HostUnreachable as error:
            self._again(error, self._request.length_bytes)
            if self._failure is None and self._stream is not None:
                try:
                    self._receive(self._stream)
                except HostUnreachable as second:
                    self._failure = second
                    self.close()

    def _receive(self, stream: BulkStream) -> None:
        try:
            stream.receive(Done)
        except EOFError as error:
            raise HostUnreachable(f"{self._address}: closed in mid-push") from error
        except HostUnreachable:
            raise
        except ClusterError as error:
            self._failure = error
        self._pool.give_back(self._address, stream)
        self._stream = None
