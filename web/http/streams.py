"""The dfs for handlers on a loop: its blocking client in threads, within a budget of memory.

    files = Files(connect, Budget(1 << 30), figures)
    status = await files.ask("ann", lambda client: client.stat("/a"))
    reading = await files.open("ann", "/a")            → stream_reply(reading.take(0, size), size)
    status = await files.store("ann", request, lambda client: create_hidden(client, "/a"))

Bytes cross between thread and loop half a megabyte at a time (uploads: a megabyte), the next one on
its way while one is sent or written. What is stored is there, whole, when `store` returns; whatever
ends it before leaves nothing (G1). A file that is replaced while it is read ends the stream, so
that no answer has bytes of two (G2).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from mrstream.cluster.errors import ClusterError, Corrupt
from mrstream.dfs.chunk import FileId
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import DfsWriter
from mrstream.dfs.protocol import NO_FILE, FileStatus, Located
from mrstream.web.http.budget import Budget, Share
from mrstream.web.http.figures import Figures
from mrstream.web.http.head import Refused
from mrstream.web.http.request import Request

T = TypeVar("T")

PIECE_BYTES = 1 << 20
SLICE_BYTES = 512 << 10
"""What a reader hands over at a time."""
SMALL_BYTES = 256 << 10
"""What is fetched in one go."""
READER_BYTES = 5 << 19
"""What a client reads that takes nothing: a megabyte in the memory of the replica that is read, a
slice that is being sent and one ahead of it, and a fifth more for the socket and its encryption."""
SMALL_READER_BYTES = 3 * SMALL_BYTES
"""Of a fetch: in the memory of the replica, as the body of the answer, and at the socket."""
WRITER_BYTES = 12 << 20
BODY_BYTES = 9 << 17
"""Of a body before its first megabyte is there, with what a growing array has to spare: many may be
slow, and hold no writer's share."""
BODIES_SHARE = 4
"""A fourth of the memory of streams is for those."""
CALLS_MAX = 64
"""To the master, under way at a time; more wait."""
STREAM_THREADS = 64
CLIENTS_MAX = 64
CLIENT_IDLE_S = 300.0


@dataclass(slots=True)
class _Known:
    client: DfsClient
    in_use: int = 0
    since_s: float = field(default_factory=time.monotonic)


class Clients:
    """One dfs client for each user in use; those that nobody uses are closed after a while."""

    def __init__(self, connect: Callable[[str], DfsClient]) -> None:
        self._connect = connect
        self._known: dict[str, _Known] = {}

    def take(self, user: str) -> DfsClient:
        """Return the user's client, held until `give`."""
        known = self._known.get(user)
        if known is None:
            if len(self._known) >= CLIENTS_MAX and not self._close_idle(0.0):
                raise Refused(503, "too many users at a time", [("Retry-After", "5")])
            known = self._known[user] = _Known(self._connect(user))
        known.in_use += 1
        return known.client

    def give(self, user: str) -> None:
        """Hold it no more."""
        known = self._known[user]
        known.in_use -= 1
        known.since_s = time.monotonic()

    def tidy(self) -> None:
        """Close those that nobody has used for a while."""
        self._close_idle(CLIENT_IDLE_S)

    def close(self) -> None:
        for known in self._known.values():
            known.client.close()
        self._known.clear()

    def _close_idle(self, idle_s: float) -> bool:
        before_s = time.monotonic() - idle_s
        idle = [
            user
            for user, known in self._known.items()
            if not known.in_use and known.since_s <= before_s
        ]
        for user in idle:
            self._known.pop(user).client.close()
        return bool(idle)


class Watched(Protocol):
    """A body that is looked at on its way to a file."""

    def pieces(self) -> AsyncIterator[bytes]:
        """The bytes to be stored."""

    def update(self, data: bytearray) -> None:
        """Look at bytes, all of them in order; in a thread."""

    def ending(self, writer: DfsWriter) -> None:
        """All were written: refuse them, or say what comes with the close; in a thread."""


class Files:
    """The dfs as handlers use it."""

    def __init__(
        self, connect: Callable[[str], DfsClient], budget: Budget, figures: Figures
    ) -> None:
        self._clients = Clients(connect)
        self._budget = budget
        self._bodies = budget.split_off(budget.free_bytes // BODIES_SHARE)
        """Of uploads whose first megabyte is not there yet, so that many slow ones keep nobody
        from reading, nor those that do send."""
        self._figures = figures
        self._calls = concurrent.futures.ThreadPoolExecutor(CALLS_MAX, "door-call")
        self._streams = concurrent.futures.ThreadPoolExecutor(STREAM_THREADS, "door-stream")

    async def ask(self, user: str, work: Callable[[DfsClient], T]) -> T:
        """Do something short with the user's client, in a thread."""
        client = self._clients.take(user)
        try:
            return await asyncio.wrap_future(self._calls.submit(work, client))
        finally:
            self._clients.give(user)

    async def work(self, user: str, work: Callable[[DfsClient], T]) -> T:
        """Do something long with the user's client, that moves bytes."""
        await self._budget.take(WRITER_BYTES)
        try:
            client = self._clients.take(user)
            try:
                return await asyncio.wrap_future(self._streams.submit(work, client))
            finally:
                self._clients.give(user)
        finally:
            self._budget.give(WRITER_BYTES)

    async def open(
        self, user: str, path: str, file_id: FileId = NO_FILE, located: Located | None = None
    ) -> Reading:
        """Open a file for reading (that very file, if an id is given; `located` if the master was
        asked for it already); close it by `aclose`, or by sending what `take` gives."""
        await self._budget.take(READER_BYTES)
        client = None
        try:
            client = self._clients.take(user)
            reader, size = await asyncio.wrap_future(
                self._streams.submit(_opened, client, path, file_id, located)
            )
        except BaseException:
            if client is not None:
                self._clients.give(user)
            self._budget.give(READER_BYTES)
            raise
        self._figures.reading += 1
        return Reading(reader, size, self._streams, lambda: self._read(user))

    async def fetch(
        self, user: str, path: str, located: Located, start: int, count: int
    ) -> tuple[bytes, Callable[[], None]]:
        """Return a few bytes of the file that was located, in one go: a stream costs a small file
        more than its bytes do. They are held until the second value is called, when they are
        sent."""
        share = Share()
        await share.move(self._budget, SMALL_READER_BYTES)
        try:
            client = self._clients.take(user)
            try:
                data = await asyncio.wrap_future(
                    self._calls.submit(_fetched, client, path, located, start, count)
                )
            finally:
                self._clients.give(user)
        except BaseException:
            share.end()
            raise
        return data, share.end

    def _read(self, user: str) -> None:
        self._figures.reading -= 1
        self._clients.give(user)
        self._budget.give(READER_BYTES)

    async def store(
        self,
        user: str,
        request: Request,
        begin: Callable[[DfsClient], DfsWriter],
        watched: Watched | None = None,
    ) -> FileStatus:
        """Write a request's body into the file that `begin` opens; return what is there then.

        `begin` comes before the client is told to send its body: what it refuses costs no upload.
        """
        share = Share()
        await share.move(self._bodies, BODY_BYTES)
        client = None
        try:
            client = self._clients.take(user)
            self._figures.writing += 1
            writer = await asyncio.wrap_future(self._streams.submit(begin, client))
            return await self._fill(request, writer, watched, share)
        finally:
            if client is not None:
                self._figures.writing -= 1
                self._clients.give(user)
            share.end()

    async def _fill(
        self, request: Request, writer: DfsWriter, watched: Watched | None, share: Share
    ) -> FileStatus:
        pieces = request.pieces() if watched is None else watched.pieces()
        underway: list[concurrent.futures.Future[object]] = []
        gathered = bytearray()
        try:
            async for piece in pieces:
                gathered += piece
                if len(gathered) >= PIECE_BYTES:
                    await share.move(self._budget, WRITER_BYTES)
                    await _all(underway)
                    underway = [self._streams.submit(writer.write, gathered)]
                    if watched is not None:
                        # Beside the writing: a sum takes as long as the disk does.
                        underway.append(self._streams.submit(watched.update, gathered))
                    gathered = bytearray()
            await _all(underway)
            underway = [self._streams.submit(_end, writer, gathered, watched)]
            await _all(underway)
        except BaseException:
            # The thread that still writes comes first: a writer is not for two at once.
            given_up = self._streams.submit(_give_up, writer, underway)
            with contextlib.suppress(ClusterError):
                await asyncio.shield(asyncio.wrap_future(given_up))
            raise
        return writer.status

    def tidy(self) -> None:
        """Let go of what nobody uses."""
        self._clients.tidy()

    def close(self) -> None:
        """Close everything; streams under way fail."""
        self._clients.close()
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._streams.shutdown(wait=False, cancel_futures=True)


def _opened(
    client: DfsClient, path: str, file_id: FileId, located: Located | None
) -> tuple[DfsReader, int]:
    reader = DfsReader(client, path, file_id, located)
    try:
        return reader, reader.size
    except BaseException:
        reader.close()
        raise


def _fetched(client: DfsClient, path: str, located: Located, start: int, count: int) -> bytes:
    with DfsReader(client, path, located.status.file_id, located) as reader:
        data = b"".join(bytes(piece) for piece in reader.pieces(start, count))
    if len(data) != count:
        raise Corrupt(f"{path}: {len(data)} bytes of {count} were there")
    return data


async def _all(underway: list[concurrent.futures.Future[object]]) -> None:
    for each in underway:
        await asyncio.wrap_future(each)


def _end(writer: DfsWriter, rest: bytearray, watched: Watched | None) -> None:
    writer.write(rest)
    if watched is not None:
        watched.update(rest)
        watched.ending(writer)
    writer.close()


def _give_up(writer: DfsWriter, underway: list[concurrent.futures.Future[object]]) -> None:
    concurrent.futures.wait(underway)
    writer.abandon()


class Reading:
    """A file open for reading, and (after `take`) the pieces of a range of it."""

    def __init__(
        self,
        reader: DfsReader,
        size: int,
        threads: concurrent.futures.Executor,
        over: Callable[[], None],
    ) -> None:
        self._reader = reader
        self.size = size
        """What can be read now; of a file that is being written, so far."""
        self._threads = threads
        self._over: Callable[[], None] | None = over
        self._pieces: Iterator[memoryview] = iter(())
        self._rest = memoryview(b"")
        """Of the reader's own memory, which its next piece overwrites."""
        self._next: concurrent.futures.Future[bytes] | None = None

    @property
    def status(self) -> FileStatus:
        return self._reader.status

    def take(self, start: int, length: int) -> Reading:
        """Choose a range; iterate over this, or send it, once."""
        self._pieces = self._reader.pieces(start, length)
        return self

    def __aiter__(self) -> Reading:
        return self

    async def __anext__(self) -> bytes:
        if self._over is None:
            raise StopAsyncIteration
        if self._next is None:
            self._next = self._threads.submit(self._piece)
        piece = await asyncio.wrap_future(self._next)
        if not piece:
            raise StopAsyncIteration
        self._next = self._threads.submit(self._piece)
        return piece

    def _piece(self) -> bytes:
        # A copy: the reader fills the same memory again while this piece is still being sent.
        if not self._rest:
            self._rest = next(self._pieces, self._rest)
        piece, self._rest = self._rest[:SLICE_BYTES], self._rest[SLICE_BYTES:]
        return bytes(piece)

    async def aclose(self) -> None:
        """Close the file; may be called again."""
        over, self._over = self._over, None
        if over is None:
            return
        try:
            closing = self._threads.submit(self._close, self._next)
            await asyncio.shield(asyncio.wrap_future(closing))
        finally:
            over()

    def _close(self, underway: concurrent.futures.Future[bytes] | None) -> None:
        if underway is not None:
            concurrent.futures.wait([underway])
        self._reader.close()
