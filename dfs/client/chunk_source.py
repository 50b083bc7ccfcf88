"""One replica as bytes to read: over the network in pieces, or straight from its local files.

Takes a located chunk and one of its servers; gives verified bytes from an offset on. Raises
`Unavailable` or `Corrupt` when this replica cannot go on: the reader then takes another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from crc32c import crc32c

from mrstream.cluster.errors import ClusterError, HostUnreachable, Unavailable
from mrstream.cluster.wire.addresses import wait_readable
from mrstream.cluster.wire.network import BulkStream
from mrstream.dfs.chunk import BLOCK_BYTES
from mrstream.dfs.client.hedge import SLOW_S
from mrstream.dfs.errors import ChunkCorrupt
from mrstream.dfs.protocol import (
    LocatedChunk,
    OpenReplica,
    Piece,
    ReadChunk,
    ReplicaFiles,
    ServerAddress,
)
from mrstream.dfs.transfer import chunk_format as fmt
from mrstream.dfs.transfer.bulk_pool import BulkPool

_LOCAL_PIECE_BYTES = 512 << 10
"""What is verified should still be in the core's own cache."""


class ChunkSource(Protocol):
    """Bytes of one replica, in order."""

    position: int
    """The offset in the chunk of the next byte that `next_piece` gives."""

    def next_piece(self) -> memoryview:
        """Return the next bytes (a megabyte or less), empty at the end of what was asked for."""

    def close(self) -> None: ...


class RemoteSource:
    """A replica read through its chunkserver. The server sends ahead as far as the connection
    holds: that is the read-ahead."""

    def __init__(
        self, pool: BulkPool, server: ServerAddress, chunk: LocatedChunk, start: int, stop: int
    ) -> None:
        self._pool = pool
        self._address = pool.address_of(server)
        self.server = server
        self._chunk = chunk
        self.position = start
        self.stop = stop
        self._is_done = start >= stop
        """All came that was asked for, or it was closed: nothing more does."""
        self._buffer = bytearray(0)
        """What `next_piece` gives lies here, until it is called again."""
        self._stream: BulkStream | None = None
        """None: done. Given back only when the last piece has come, so that it is in step."""
        if not self._is_done:
            self._first = self._begin(ReadChunk(chunk.handle, chunk.version, start, stop - start))

    @property
    def is_ready(self) -> bool:
        """Whether `next_piece` has something to begin with; else its descriptor will tell."""
        return self._stream is None or self._first is not None or self._stream.has_bytes

    @property
    def patience_s(self) -> float:
        return self._stream.timeout_s if self._stream is not None else 0.0

    def fileno(self) -> int:
        """Return the descriptor that is readable once the server has sent something."""
        assert self._stream is not None, "a source without a stream is ready"
        return self._stream.sock.fileno()

    def next_piece(self) -> memoryview:
        if self._is_done or self._stream is None:
            return memoryview(b"")
        stream, piece = self._stream, self._first
        try:
            if piece is None:
                piece = stream.receive(Piece)
            self._first = None
            if len(self._buffer) < piece.count:
                self._buffer = bytearray(piece.count)
            view = memoryview(self._buffer)[: piece.count]
            stream.receive_into(view)
        except EOFError as error:
            self.close()
            raise HostUnreachable(f"{self._address}: closed in mid-read") from error
        except ClusterError:
            self.close()
            raise
        if crc32c(view) != piece.crc:
            self.close()
            raise ChunkCorrupt(
                f"chunk {self._chunk.handle:016x}: bytes at {self.position} were damaged on their "
                f"way from {self.server.server}"
            )
        self.position += piece.count
        if piece.last:
            self._is_done = True
            self._stream = None
            self._pool.give_back(self._address, stream)
        return view

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._is_done = True

    def _begin(self, request: ReadChunk) -> Piece | None:
        """Ask; over a stream that lay idle wait for the first answer, since it may be dead."""
        stream = self._pool.idle(self._address)
        if stream is not None:
            try:
                stream.send(request)
                if not wait_readable(stream.sock, SLOW_S):
                    self._stream = stream  # slow, not dead: the reader may ask another beside it
                    return None
                piece: Piece = stream.receive(Piece)
            except (EOFError, HostUnreachable):
                stream.close()
            except ClusterError:
                self._pool.give_back(self._address, stream)
                raise
            else:
                self._stream = stream
                return piece
        self._stream = self._pool.connect(self._address)
        try:
            self._stream.send(request)
        except ClusterError:
            self.close()
            raise
        return None


class LocalSource:
    """A replica on this host, read from its own files (short-circuit).

    The chunkserver has checked the version and passed the descriptors; every block is verified
    here. What fails here is no verdict: the caller reads it through the server, which judges.
    """

    def __init__(
        self, pool: BulkPool, server: ServerAddress, chunk: LocatedChunk, start: int, stop: int
    ) -> None:
        self._handle = chunk.handle
        self.position = start
        self._files, self._data, self._sums = _open_files(pool, server, chunk)
        self._stop = min(stop, self._files.length_bytes)
        self._buffer = bytearray(0)
        """What `next_piece` gives lies here, until it is called again."""
        self._table: tuple[int, ...] = ()
        """Checksums of blocks as they were when they were read; the tail's is in `_files`."""
        self._table_first = 0
        """The block that they begin with."""

    def next_piece(self) -> memoryview:
        if self.position >= self._stop:
            return memoryview(b"")
        first = self.position // BLOCK_BYTES
        start = first * BLOCK_BYTES
        # Checksums cover whole blocks, and the tail up to the replica's length.
        wanted = -(-self._stop // BLOCK_BYTES) * BLOCK_BYTES
        end = min(wanted, start + _LOCAL_PIECE_BYTES, self._files.length_bytes)
        if len(self._buffer) < end - start:
            self._buffer = bytearray(end - start)
        view = memoryview(self._buffer)[: end - start]
        if os.preadv(self._data, [view], start) != len(view):
            raise ChunkCorrupt(f"chunk {self._handle:016x}: the local data file is short")
        fmt.check_blocks(self._handle, first, view, self._entries(first, (end - 1) // BLOCK_BYTES))
        result = view[self.position - start : min(end, self._stop) - start]
        self.position += len(result)
        return result

    def close(self) -> None:
        for descriptor in (self._data, self._sums):
            if descriptor >= 0:
                os.close(descriptor)
        self._data = self._sums = -1
        self._stop = 0

    def _entries(self, first: int, last: int) -> Sequence[int]:
        """The stored checksums of blocks `first` to `last`, the tail's from the header."""
        tail = fmt.tail_index(self._files.length_bytes)
        stop = min(last + 1, tail)
        table_stop = self._table_first + len(self._table)
        if first < stop and not self._table_first <= first < stop <= table_stop:
            self._read_table(first, min(tail, -(-self._stop // BLOCK_BYTES)))
        at = first - self._table_first
        entries = self._table[at : at + stop - first] if first < stop else ()
        if last == tail:
            entries = (*entries, self._files.tail_crc)
        if len(entries) < last + 1 - first:
            raise ChunkCorrupt(f"chunk {self._handle:016x}: the local checksum file is short")
        return entries

    def _read_table(self, first: int, stop: int) -> None:
        """Read the checksums of all that is left to read: 4 KB for a whole chunk."""
        size = (stop - first) * fmt.ENTRY_BYTES
        self._table = fmt.decode_table(os.pread(self._sums, size, fmt.entry_at_bytes(first)))
        self._table_first = first


def _open_files(
    pool: BulkPool, server: ServerAddress, chunk: LocatedChunk
) -> tuple[ReplicaFiles, int, int]:
    address = f"unix:{server.local_socket}"
    request = OpenReplica(chunk.handle, chunk.version)
    stream = pool.idle(address)
    if stream is not None:
        try:
            return _ask_files(pool, address, stream, request)
        except (EOFError, HostUnreachable):
            stream.close()
    stream = pool.connect(address)
    try:
        return _ask_files(pool, address, stream, request)
    except EOFError as error:
        raise HostUnreachable(f"{address}: closed before it answered") from error


def _ask_files(
    pool: BulkPool, address: str, stream: BulkStream, request: OpenReplica
) -> tuple[ReplicaFiles, int, int]:
    try:
        stream.send(request)
        files: ReplicaFiles = stream.receive(ReplicaFiles)
        data, sums = stream.receive_descriptors(2)
    except (Unavailable, EOFError, ChunkCorrupt):
        stream.close()
        raise
    pool.give_back(address, stream)
    return files, data, sums
