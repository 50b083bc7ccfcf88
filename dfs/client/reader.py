"""Reading files: chunk by chunk, from the nearest good replica (GFS §2.4).

Takes a path and byte ranges; gives bytes. Locations are asked for several chunks at a time and
kept for a bounded time; a replica that fails in the middle of a read, or is slow, is replaced by
another from the next byte on. No file data is kept but what was read ahead of the caller (GFS-09).
"""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mrstream.cluster.errors import Corrupt, HostUnreachable, Unavailable
from mrstream.dfs.chunk import BLOCK_BYTES, FileId
from mrstream.dfs.client.chunk_source import ChunkSource, LocalSource, RemoteSource
from mrstream.dfs.client.hedge import quickest
from mrstream.dfs.client.topology import nearest_first
from mrstream.dfs.errors import FileReplaced, IsADirectory, NoReplica
from mrstream.dfs.protocol import (
    NO_FILE,
    ChunkLength,
    FileStatus,
    Located,
    LocatedChunk,
    ReportReplica,
    ServerAddress,
)

if TYPE_CHECKING:
    from mrstream.dfs.client.client import DfsClient

log = logging.getLogger(__name__)

LOCATIONS_S_MAX = 60.0
LOCATE_COUNT = 8


class Locations:
    """What the master said about one file's chunks, for a bounded time (GFS-08)."""

    def __init__(
        self, client: DfsClient, path: str, file_id: FileId, located: Located | None = None
    ) -> None:
        self._client = client
        self._path = path
        self._file_id = file_id
        """Which file it is; `NO_FILE` until the master first says, and then for ever (G2)."""
        self._chunks: dict[int, tuple[LocatedChunk, float]] = {}
        """By index, each with the moment until which it is believed."""
        self.status: FileStatus
        """The file as the master last described it."""
        if located is None:
            self._fetch(0)
        else:
            self._take(located)

    def get(self, index: int) -> LocatedChunk | None:
        """The chunk at `index`, or None beyond the end of the file."""
        entry = self._chunks.get(index)
        if entry is None or entry[1] < time.monotonic():
            self._fetch(index)
            entry = self._chunks.get(index)
        return entry[0] if entry else None

    def forget(self, index: int) -> None:
        """Ask again next time."""
        self._chunks.pop(index, None)

    def clear(self) -> None:
        """Ask again about all of it."""
        self._chunks.clear()

    def _fetch(self, index: int) -> None:
        self._take(self._client.locate(self._path, index, LOCATE_COUNT, self._file_id))

    def _take(self, located: Located) -> None:
        if located.status.is_directory:
            raise IsADirectory(f"{self._path} is a directory")
        self.status = located.status
        # G2: from now on it is this file, whatever gets the path.
        self._file_id = self._file_id or self.status.file_id
        if self._file_id != self.status.file_id:
            raise FileReplaced(f"{self._path}: was replaced by another file since it was opened")
        until_s = time.monotonic() + LOCATIONS_S_MAX
        for chunk in located.chunks:
            self._chunks[chunk.index] = (chunk, until_s)


class DfsReader(io.RawIOBase):
    """A file open for reading. Not for two threads at once; `pread` opens no second stream.

    It is one file to the end: if its path is given to another it is read on while it is known
    (renamed, or in the trash), and then raises FileReplaced.
    """

    def __init__(
        self,
        client: DfsClient,
        path: str,
        file_id: FileId = NO_FILE,
        located: Located | None = None,
    ) -> None:
        """With `file_id` it is that file, whatever has the path by now; `located` is what the
        master said of it just now, if somebody asked already."""
        super().__init__()
        self._client = client
        self.path = path
        self._locations = Locations(client, path, file_id, located)
        self._position = 0
        """Where the next `read` begins; `pread` and `pieces` leave it alone."""
        self._source: ChunkSource | None = None
        """The replica being read: its next byte is the one right behind those held."""
        self._source_chunk: LocatedChunk
        self._server: ServerAddress
        """Of the source: whom to distrust if it fails."""
        self._held = memoryview(b"")
        """Verified bytes that were asked for together with others; the source's own memory, so
        they are good until it gives the next."""
        self._held_at = 0
        """Where in the file they begin."""
        self._bad: set[tuple[int, str]] = set()
        """Chunk and server of replicas that failed since the master was last asked for places."""
        self._last_end = 0
        """Behind the last byte that was given: who goes on there reads in order."""
        self.local_bytes = 0
        """How many bytes came from this host's own replicas (GFS-13)."""

    # --- as a file

    @property
    def status(self) -> FileStatus:
        return self._locations.status

    @property
    def size(self) -> int:
        """The length; of a file that is being written, what its replicas hold now."""
        status = self._locations.status
        if not status.is_open:
            return status.length_bytes
        for attempt in self._client.retry.attempts():
            try:
                return self._open_length()
            except Unavailable as error:
                self._locations.clear()
                attempt.failed(error)
        raise AssertionError("attempts do not end")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}.get(whence)
        if base is None:
            base = self.size
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}, before the beginning of {self.path}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        piece = self._some(self._position, len(view))
        view[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def pread(self, offset: int, size: int) -> bytes:
        """Return the bytes of a range, fewer only at the end of the file."""
        parts = []
        while size > 0:
            piece = self._some(offset, size)
            if not piece:
                break
            parts.append(bytes(piece))
            offset += len(piece)
            size -= len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pieces(self, offset: int = 0, size: int = 1 << 62) -> Iterator[memoryview]:
        """Yield the bytes of a range in pieces of up to a megabyte, without copying them; each is
        good until the next."""
        while size > 0:
            piece = self._some(offset, size)
            if not piece:
                return
            yield piece
            offset += len(piece)
            size -= len(piece)

    def close(self) -> None:
        self._drop_source()
        super().close()

    # --- pieces

    def _some(self, offset: int, size: int) -> memoryview:
        """Return at least one byte from `offset`, at most `size`; none at the end of the file."""
        skip = offset - self._held_at
        if not 0 <= skip < len(self._held):
            if size <= 0 or not self._fill(offset, size):
                return memoryview(b"")
            skip = offset - self._held_at
        piece = self._held[skip : skip + size]
        self._last_end = offset + len(piece)
        return piece

    def _fill(self, offset: int, size: int) -> bool:
        """Hold bytes from `offset` on; False at the end of the file."""
        chunk_bytes = self._locations.status.chunk_bytes
        index, start = divmod(offset, chunk_bytes)
        if not self._continues(index, start):
            self._drop_source()
        elif self._go_on(offset):
            return True
        for attempt in self._client.retry.attempts():
            try:
                return self._fill_once(index, start, offset, size)
            except Unavailable as error:
                self._drop_source()
                self._locations.forget(index)
                self._bad = {bad for bad in self._bad if bad[0] != index}
                attempt.failed(error)
        raise AssertionError("attempts do not end")

    def _go_on(self, offset: int) -> bool:
        """Hold the next bytes of the replica being read, if it has any: nothing else to decide."""
        assert self._source is not None
        try:
            piece = self._next_piece(self._source)
        except (Unavailable, Corrupt) as error:
            chunk, server = self._source_chunk, self._server
            self._drop_source()
            self._distrust(chunk, server, error)
            return False
        if not piece:
            # All that was asked of it has come; whether there is more, the chunk's length says.
            self._drop_source()
            return False
        self._hold(piece, offset)
        return True

    def _hold(self, piece: memoryview, offset: int) -> None:
        end = offset % self._locations.status.chunk_bytes + len(piece)
        assert self._source is None or self._source.position == end, (self._source.position, end)
        self._held, self._held_at = piece, offset
        if isinstance(self._source, LocalSource):
            self.local_bytes += len(piece)

    def _fill_once(self, index: int, start: int, offset: int, size: int) -> bool:
        chunk = self._locations.get(index)
        if chunk is None:
            return False
        length = self._length_of(chunk)
        if start >= length:
            self._locations.forget(index)  # a writer may add to it: look again next time
            return False
        while True:
            if self._source is None:
                self._source = self._open(chunk, start, length, size)
                self._source_chunk = chunk
            try:
                piece = self._next_piece(self._source)
            except (Unavailable, Corrupt) as error:
                self._drop_source()
                self._distrust(chunk, self._server, error)
                continue
            if piece:
                self._hold(piece, offset)
                return True
            self._drop_source()
            if not chunk.is_open:
                # It ended before its length: this replica is behind (GFS-30).
                name = self._server.server
                self._distrust(chunk, self._server, NoReplica(f"{name} ended at {start}"))
            else:
                return False

    def _next_piece(self, source: ChunkSource) -> memoryview:
        """Take the next bytes, from another replica if this one is slow."""
        if isinstance(source, RemoteSource):
            winner = quickest(source, self._elsewhere(source))
            if winner is not source:
                log.info("%s is slow: %s goes on", source.server.server, winner.server.server)
                self._bad.add((self._source_chunk.index, source.server.server))
                self._source, self._server = winner, winner.server
                source = winner
        return source.next_piece()

    def _elsewhere(self, source: RemoteSource) -> Iterator[RemoteSource]:
        """Open the other replicas where this one stands, one after the other."""
        client, chunk = self._client, self._source_chunk
        for server in nearest_first(client.place, chunk.replicas, client.chance):
            is_bad = (chunk.index, server.server) in self._bad
            if is_bad or server.server == source.server.server:
                continue
            try:
                yield RemoteSource(client.pool, server, chunk, source.position, source.stop)
            except (Unavailable, Corrupt) as error:
                self._distrust(chunk, server, error)

    def _continues(self, index: int, start: int) -> bool:
        source = self._source
        return source is not None and self._source_chunk.index == index and source.position == start

    def _drop_source(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None
        self._held = memoryview(b"")

    # --- replicas

    def _open(self, chunk: LocatedChunk, start: int, length: int, size: int) -> ChunkSource:
        """Begin to read a chunk at the nearest replica that has not failed.

        A reader that goes on where it ended gets the rest of the chunk sent ahead; one that
        jumps about gets whole checksum blocks around what it asked for (GFS-83).
        """
        is_sequential = chunk.index * self.status.chunk_bytes + start == self._last_end
        stop = length
        if not is_sequential:
            stop = min(length, -(-(start + size) // BLOCK_BYTES) * BLOCK_BYTES)
        last_error: Unavailable | Corrupt | None = None
        for server in nearest_first(self._client.place, chunk.replicas, self._client.chance):
            if (chunk.index, server.server) in self._bad:
                continue
            self._server = server
            try:
                return self._open_at(server, chunk, start, stop)
            except (Unavailable, Corrupt) as error:
                last_error = error
                self._distrust(chunk, server, error)
        raise self._no_replica(chunk, last_error)

    def _no_replica(self, chunk: LocatedChunk, last_error: Exception | None) -> NoReplica:
        name = f"{self.path}: chunk {chunk.index} ({chunk.handle:016x})"
        if not chunk.replicas:
            where = (
                f"it may be on a chunkserver that is down: {', '.join(chunk.silent)}"
                if chunk.silent
                else f"all chunkservers are up; corrupt replicas: {chunk.corrupt_replicas}"
            )
            return NoReplica(f"{name} has no good replica that can be reached; {where}")
        return NoReplica(
            f"{name}: none of its {len(chunk.replicas)} replicas could be read; last: {last_error}"
        )

    def _open_at(
        self, server: ServerAddress, chunk: LocatedChunk, start: int, stop: int
    ) -> ChunkSource:
        local_key = (chunk.index, f"{server.server} local")
        if self._is_local_first(server, local_key) and os.path.exists(server.local_socket):
            try:
                return LocalSource(self._client.pool, server, chunk, start, stop)
            except (Unavailable, Corrupt, OSError) as error:
                log.info("short-circuit read of %016x failed: %s", chunk.handle, error)
                self._bad.add(local_key)
        return RemoteSource(self._client.pool, server, chunk, start, stop)

    def _distrust(
        self, chunk: LocatedChunk, server: ServerAddress, error: Unavailable | Corrupt
    ) -> None:
        """Read on elsewhere; where bytes were bad, let the master have the server judge them."""
        log.info("replica of %016x at %s failed: %s", chunk.handle, server.server, error)
        local_key = (chunk.index, f"{server.server} local")
        if isinstance(error, Corrupt) and self._is_local_first(server, local_key):
            self._bad.add(local_key)
            return
        self._bad.add((chunk.index, server.server))
        if isinstance(error, Corrupt):
            report = ReportReplica(chunk.handle, chunk.version, server.server, str(error))
            try:
                self._client.call_once(report)
            except HostUnreachable as unheard:
                log.info("report of %016x was not heard: %s", chunk.handle, unheard)

    def _is_local_first(self, server: ServerAddress, local_key: tuple[int, str]) -> bool:
        is_local = self._client.place.distance(server) == 0 and bool(server.local_socket)
        return is_local and local_key not in self._bad

    # --- lengths

    def _length_of(self, chunk: LocatedChunk) -> int:
        if not chunk.is_open:
            return chunk.length_bytes
        last_error: Unavailable | Corrupt | None = None
        if not chunk.replicas:
            raise self._no_replica(chunk, None)
        lengths = []
        for server in nearest_first(self._client.place, chunk.replicas, self._client.chance):
            request = ChunkLength(chunk.handle, chunk.version)
            try:
                address = self._client.pool.address_of(server)
                lengths.append(int(self._client.pool.call(address, request).value))
            except (Unavailable, Corrupt) as error:
                last_error = error
                continue
            if not chunk.serialised:
                return lengths[0]
        if lengths:
            # Each says what it knows that all have: the primary knows most.
            return max(chunk.length_bytes, *lengths)
        raise NoReplica(
            f"{self.path}: no replica of chunk {chunk.index} says how long it is: {last_error}"
        )

    def _open_length(self) -> int:
        status = self._locations.status
        index = max(0, status.chunk_count - 1)
        while True:
            self._locations.forget(index + 1)
            if self._locations.get(index + 1) is None:
                break
            index += 1
        chunk = self._locations.get(index)
        if chunk is None:
            return 0
        return index * status.chunk_bytes + self._length_of(chunk)
