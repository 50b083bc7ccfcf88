"""A dfs in this process, below its real client: the real brain of a master, and chunkservers that
keep bytes in memory. For tests of what works over a `DfsClient`, with answers that are lost, a
master that is away and a process that dies in the middle.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from mrstream.cluster.errors import HostUnreachable
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import create
from mrstream.dfs.protocol import (
    Done,
    Piece,
    PushData,
    ReadChunk,
    ServerAddress,
    WriteChunk,
)
from tests.support.dfs_model import Model

PIECE_BYTES = 1000


class Died(BaseException):
    """The process ends here; nothing that catches errors sees it."""


class DfsHere:
    """`before` sees each request, to the master or for a piece, and may raise instead of its being
    done; `after` sees what was done, and may lose the answer."""

    def __init__(self) -> None:
        self.model = Model()
        self.model.wall_s = time.time()
        self.asked: list[Request] = []
        self.before: Callable[[Request], None] = lambda request: None
        self.after: Callable[[Request], None] = lambda request: None
        self._lock = threading.Lock()
        """Writers send in threads of their own; the brain has one."""
        self.bytes: dict[int, bytearray] = {}
        """By chunk, the same at all its replicas."""
        self.pushed: dict[bytes, bytearray] = {}
        """By its id, what a write is to follow for."""
        self._clients = 0

    def client(self, patience_s: float = 20.0) -> DfsClient:
        """One more process's."""
        self._clients += 1
        retry = RetryPolicy(total_s=patience_s, first_s=0.001, longest_s=0.01)
        client = DfsClient("127.0.0.1:1", Identity("c", b"s" * 32, "", ""), retry=retry)
        client._connection = _Connection(self, self._clients)  # type: ignore[assignment]
        client.pool = _Pool(self)  # type: ignore[assignment]
        return client

    def once(self, kind: type[Request], raises: BaseException) -> Callable[[Request], None]:
        """For `before` or `after`: the next request of a kind ends so."""
        left = [raises]

        def look(request: Request) -> None:
            if isinstance(request, kind) and left:
                raise left.pop()

        return look

    def dies_at(self, kind: type[Request], number: int = 1) -> None:
        """The process ends when it asks for the so manieth of a kind: from there on nothing of it
        comes here, whatever it clears up on its way."""
        left = [number]

        def look(request: Request) -> None:
            left[0] -= isinstance(request, kind) and left[0] > 0
            if left[0] == 0:
                raise Died

        self.before = look

    def lives(self) -> None:
        """Another process has its place."""
        self.before = self.after = lambda request: None

    def put(self, path: str, data: bytes) -> None:
        client = self.client()
        client.make_directory(path.rpartition("/")[0] or "/", parents=True)
        with create(client, path, overwrite=True) as file:
            file.write(data)
        self.asked.clear()

    def get(self, path: str) -> bytes:
        with DfsReader(self.client(), path) as file:
            return b"".join(bytes(piece) for piece in file.pieces())

    def count(self, kind: type[Request]) -> int:
        return sum(isinstance(request, kind) for request in self.asked)

    def do(self, request: Request, work: Callable[[], Any]) -> Any:
        self.asked.append(request)
        self.before(request)
        with self._lock:
            answer = work()
        self.after(request)
        return answer


class _Connection:
    """To the master."""

    def __init__(self, dfs: DfsHere, client_id: int) -> None:
        self._dfs = dfs
        self._client_id = client_id
        self._number = 0
        self.finding = Finding({"h1": "127.0.0.1:1"})

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def call(self, request: Request, timeout_s: float, number: int = 0, **more: Any) -> Any:
        request_id = (self._client_id, number) if number else (0, 0)
        return self._dfs.do(request, lambda: self._dfs.model.call(request, request_id))

    def close(self) -> None:
        pass


class _Pool:
    """To the chunkservers."""

    timeout_s = 1.0

    def __init__(self, dfs: DfsHere) -> None:
        self._dfs = dfs

    def address_of(self, server: ServerAddress) -> str:
        return server.server

    def idle(self, address: str) -> None:
        return None

    def connect(self, address: str) -> _Stream:
        return _Stream(self._dfs)

    def call(self, address: str, request: Request) -> Any:
        stream = self.connect(address)
        stream.send(request)
        return stream.receive(Done)

    def give_back(self, address: str, stream: _Stream) -> None:
        pass

    def close(self) -> None:
        pass


class _Stream:
    """One bulk connection: each request is answered in order, when its answer is received."""

    has_bytes = True
    timeout_s = 1.0

    def __init__(self, dfs: DfsHere) -> None:
        self._dfs = dfs
        self._asked: list[Request] = []
        self._pushed = bytearray()
        self._piece = b""
        self._position = 0

    def settimeout(self, seconds: float) -> None:
        """Nobody is waited for here: what is lost is lost at once."""

    def send(self, request: Request, data: memoryview | None = None) -> None:
        if isinstance(request, PushData):
            self._pushed = self._dfs.pushed[request.data_id] = bytearray(data or b"")
        self._asked.append(request)

    def send_bytes(self, data: memoryview) -> None:
        self._pushed += data

    def receive(self, kind: type) -> Any:
        request = self._asked[0]
        if isinstance(request, ReadChunk):
            return self._dfs.do(request, lambda: self._next_piece(request))
        self._asked.pop(0)
        if isinstance(request, WriteChunk):
            return self._dfs.do(request, lambda: self._write(request))
        assert isinstance(request, PushData), request
        return Done()

    def receive_into(self, view: memoryview) -> None:
        view[:] = self._piece

    def close(self) -> None:
        pass

    def _write(self, request: WriteChunk) -> Done:
        data = self._dfs.pushed.pop(request.data_id, b"")
        held = self._dfs.bytes.setdefault(request.handle, bytearray())
        held[request.offset : request.offset + len(data)] = data
        for server in request.replicas:
            replica = self._dfs.model.servers[server.server].chunks.get(request.handle)
            if replica is None:
                raise HostUnreachable(f"{server.server} has no chunk {request.handle}")
            replica.length = max(replica.length, len(held))
        return Done()

    def _next_piece(self, request: ReadChunk) -> Piece:
        held = self._dfs.bytes[request.handle]
        start = request.offset + self._position
        stop = min(request.offset + request.length_bytes, len(held))
        self._piece = bytes(held[start : min(stop, start + PIECE_BYTES)])
        self._position += len(self._piece)
        is_last = start + len(self._piece) >= stop
        if is_last:
            self._asked.pop(0)
        return Piece(len(self._piece), crc32c(self._piece), len(held), is_last)
