"""What the master tells a chunkserver to do: versions, leases, copies, clones, deletions.

Takes one command; gives the replica as it is afterwards (version, length), or raises why not.
Blocking; called from worker threads. Its owner sees to it that commands of one chunk come one after
the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from mrstream.cluster.clock import Clock
from mrstream.cluster.errors import ClusterError, Corrupt, HostUnreachable, Unavailable
from mrstream.cluster.wire.network import BulkStream
from mrstream.dfs.chunks import scrub
from mrstream.dfs.chunks.append_log import Appended, inherited, unpack_table
from mrstream.dfs.chunks.chunk_service import ChunkService
from mrstream.dfs.chunks.replica import Replica
from mrstream.dfs.errors import ChunkCorrupt, NoReplica, NoSuchChunk, StaleReplica
from mrstream.dfs.protocol import (
    AppendsBefore,
    CloneChunk,
    Command,
    CopyChunk,
    CreateChunk,
    DeleteChunk,
    GrantLease,
    Piece,
    ReadChunk,
    ServerAddress,
    SetVersion,
    TruncateChunk,
    VerifyChunk,
)
from mrstream.dfs.transfer.bulk_pool import BulkPool

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Throttle:
    """How fast clones may be while clients use the disks; `wait` returns when it may go on."""

    bytes_per_s: int
    is_busy: Callable[[], bool]
    wait: Callable[[float], None]

    def took(self, size: int, seconds: float) -> None:
        """Wait until `size` bytes, which took that long, are within the pace."""
        if self.bytes_per_s > 0 and self.is_busy():
            self.wait(max(0.0, size / self.bytes_per_s - seconds))


class CommandRunner:
    """Carries out commands on a service's chunks."""

    def __init__(
        self, service: ChunkService, pool: BulkPool, clock: Clock, throttle: Throttle
    ) -> None:
        self._service = service
        self._store = service.store
        self._order = service.order
        self._pool = pool
        self._clock = clock
        self.throttle = throttle
        self._touched: dict[int, None] = {}

    def take_touched(self) -> list[int]:
        """The chunks with which something was done since the last call, for those who watch."""
        touched, self._touched = self._touched, {}
        return list(touched)

    def run(self, command: Command, since_s: float) -> tuple[int, int]:
        """Do it; return version and length of the replica, (0, 0) where there is none now.

        `since_s` is when the news was sent that it rests on: a lease counts from then.
        """
        self._touched[int(command.handle)] = None  # type: ignore[attr-defined]  # all have one
        match command:
            case CreateChunk():
                return self._create(command, since_s)
            case SetVersion():
                return self._set_version(command)
            case GrantLease():
                return self._grant(command, since_s)
            case TruncateChunk():
                return self._truncate(command)
            case CopyChunk():
                with self._service.lock_of(command.source):
                    self._store.get(command.source, command.source_version)
                    replica = self._store.copy(
                        command.source, command.handle, command.version, command.length_bytes
                    )
                return replica.version, replica.length
            case CloneChunk():
                return self._clone(command)
            case DeleteChunk():
                return self.delete(command.handle, command.version)
            case VerifyChunk():
                scrub.verify(self._store, command.handle)
                return self._state(command.handle)
        raise AssertionError(f"not a command of ours: {command!r}")

    def delete(self, handle: int, version: int) -> tuple[int, int]:
        """Delete a replica unless it is newer than the master thinks."""
        with self._service.lock_of(handle):
            try:
                replica = self._store.get(handle)
            except (NoSuchChunk, ChunkCorrupt):
                replica = None
            if replica is not None and replica.version > version:
                raise StaleReplica(
                    f"chunk {handle:016x}: the replica here has version {replica.version}, "
                    f"deletion was for {version} at most"
                )
            self._store.remove(handle)
            self._order.given_up(handle)
        self._service.forget(handle)
        log.info("deleted handle=%016x version_max=%d", handle, version)
        return 0, 0

    def _state(self, handle: int) -> tuple[int, int]:
        replica = self._store.get(handle)
        return replica.version, replica.length

    def _create(self, command: CreateChunk, since_s: float) -> tuple[int, int]:
        appended = self._appended_before(command.before)
        with self._service.lock_of(command.handle):
            replica = self._store.create(command.handle, command.version, appended)
            if command.lease_s > 0:
                self._order.granted(
                    command.handle, command.version, since_s + command.lease_s, since_s
                )
        return replica.version, replica.length

    def _appended_before(self, before: AppendsBefore | None) -> list[Appended]:
        """The table of appends of the chunk before, from whoever has it."""
        if before is None:
            return []
        reasons = []
        ask = ReadChunk(before.handle, before.version, before.length_bytes, 0, appends=True)
        for source in before.sources:
            try:
                with self._pool.connect(self._pool.address_of(source)) as stream:
                    stream.send(ask)
                    return inherited(unpack_table(stream.receive(Piece).appends))
            except EOFError:
                reasons.append(f"{source.server}: closed before it answered")
            except (Unavailable, Corrupt) as error:
                reasons.append(f"{source.server}: {error}")
        raise NoReplica(
            f"chunk {before.handle:016x}: nobody says who appended to it: {'; '.join(reasons)}"
        )

    def _set_version(self, command: SetVersion) -> tuple[int, int]:
        # Whoever holds the lock is in a mutation; after it no earlier mutation can begin.
        with self._service.lock_of(command.handle):
            replica = self._store.get(command.handle)
            if not command.from_version <= replica.version <= command.version:
                raise StaleReplica(
                    f"chunk {command.handle:016x}: the replica here has version {replica.version}, "
                    f"expected {command.from_version} to {command.version}"
                )
            if replica.length < command.cut_to:
                raise StaleReplica(
                    f"chunk {command.handle:016x}: the replica here ends at {replica.length}, "
                    f"{command.cut_to} bytes were agreed on"
                )
            self._order.given_up(command.handle)
            if replica.version != command.version:
                with self._store.guarded(replica.disk, replica):
                    if command.cut_to >= 0:
                        replica.truncate(command.cut_to)
                    replica.set_version(command.version)
            return replica.version, replica.length

    def _grant(self, command: GrantLease, since_s: float) -> tuple[int, int]:
        with self._service.lock_of(command.handle):
            replica = self._store.get(command.handle, command.version)
            self._order.granted(command.handle, command.version, since_s + command.lease_s, since_s)
            return replica.version, replica.length

    def _truncate(self, command: TruncateChunk) -> tuple[int, int]:
        with self._service.lock_of(command.handle):
            replica = self._store.get(command.handle, command.version)
            with self._store.guarded(replica.disk, replica):
                replica.truncate(command.length_bytes)
            return replica.version, replica.length

    # --- clones

    def _clone(self, command: CloneChunk) -> tuple[int, int]:
        """Pull the chunk from the first source that can give it whole (GFS-62)."""
        replica = self._here(command)
        if replica is not None:
            return replica.version, replica.length
        self._store.roomiest(command.length_bytes)
        reasons = []
        for source in command.sources:
            try:
                incoming = self._pull(command, source)
            except (Unavailable, Corrupt) as error:
                reasons.append(f"{source.server}: {error}")
                continue
            with self._service.lock_of(command.handle):
                self._order.given_up(command.handle)
                self._store.settle(incoming)
            log.info("cloned handle=%016x from=%s", command.handle, source.server)
            return incoming.version, incoming.length
        raise NoReplica(f"chunk {command.handle:016x} could not be cloned: {'; '.join(reasons)}")

    def _here(self, command: CloneChunk) -> Replica | None:
        """A good replica that is here already, if this command is a repeat."""
        try:
            replica = self._store.get(command.handle)
        except (NoSuchChunk, ChunkCorrupt):
            return None
        is_same = replica.version == command.version
        return replica if is_same and replica.length >= command.length_bytes else None

    def _pull(self, command: CloneChunk, source: ServerAddress) -> Replica:
        """Return the chunk as that server has it, not settled yet."""
        handle, version, length_bytes = command.handle, command.version, command.length_bytes
        with self._pool.connect(self._pool.address_of(source)) as stream:
            stream.send(ReadChunk(handle, version, 0, length_bytes, appends=True))
            piece, data = _piece(stream, handle, source)
            incoming = self._store.receive(
                handle, version, length_bytes, unpack_table(piece.appends)
            )
            try:
                self._fill(command, source, stream, incoming, piece, data)
            except (Unavailable, Corrupt):
                incoming.remove()
                raise
        return incoming

    def _fill(
        self,
        command: CloneChunk,
        source: ServerAddress,
        stream: BulkStream,
        incoming: Replica,
        piece: Piece,
        data: bytearray,
    ) -> None:
        offset = 0
        began_s = self._clock.now_s()
        while True:
            self._store.write(incoming, offset, [memoryview(data)])
            offset += piece.count
            if not command.urgent:
                self.throttle.took(piece.count, self._clock.now_s() - began_s)
            if piece.last:
                break
            began_s = self._clock.now_s()
            piece, data = _piece(stream, command.handle, source)
        if offset != command.length_bytes:
            raise NoReplica(
                f"{source.server} has {offset} bytes of chunk {command.handle:016x}, "
                f"{command.length_bytes} are wanted"
            )


def _piece(stream: BulkStream, handle: int, source: ServerAddress) -> tuple[Piece, bytearray]:
    """The next bytes of a chunk that is being cloned."""
    try:
        piece: Piece = stream.receive(Piece)
    except EOFError as error:
        raise HostUnreachable(f"{source.server} closed in mid-clone") from error
    data = stream.receive_bytes(piece.count)
    if crc32c(data) != piece.crc:
        raise ChunkCorrupt(
            f"chunk {handle:016x}: bytes were damaged on their way from {source.server}"
        )
    return piece, data


def describe(error: ClusterError) -> str:
    """An error as `CommandDone` carries it."""
    return f"{type(error).__name__}: {error}"
