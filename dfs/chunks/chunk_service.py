"""What a chunkserver does for clients and other chunkservers: push, write, append, read.

Takes requests from bulk connections, each in a thread of its own; gives verified bytes and
acknowledgements. Mutations of one chunk go one after the other, under its lock: the primary
resolves each at all replicas before it begins the next (B3). Knows nothing of the master, whose
word comes through `MutationOrder` and `ChunkStore`.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from mrstream.cluster.clock import Clock
from mrstream.cluster.errors import (
    ClusterError,
    DiskFailed,
    HostUnreachable,
    Overloaded,
    Unavailable,
)
from mrstream.cluster.wire.messages import Request, union_of
from mrstream.cluster.wire.network import BulkStream
from mrstream.dfs.chunk import (
    BLOCK_BYTES,
    CHUNK_BYTES_MAX,
    RECORD_FRACTION_OF_CHUNK,
    ChunkHandle,
    ChunkVersion,
    ServerId,
)
from mrstream.dfs.chunks.append_log import PADDING, Appended, pack_table
from mrstream.dfs.chunks.chunk_store import NOT_THE_DISKS, ChunkStore
from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.chunks.push_buffer import PushBuffer
from mrstream.dfs.chunks.replica import Replica
from mrstream.dfs.errors import (
    BadRequest,
    ChunkCorrupt,
    ChunkFull,
    DataNotPushed,
    RecordTooLarge,
    ReplicaFailed,
    StaleReplica,
)
from mrstream.dfs.protocol import (
    AppendMark,
    AppendRecord,
    ApplyMutation,
    ChecksumChunk,
    Checksums,
    ChunkLength,
    Done,
    Number,
    OpenReplica,
    Piece,
    PushData,
    ReadChunk,
    ReplicaFiles,
    ServerAddress,
    WriteChunk,
)
from mrstream.dfs.transfer.bulk_pool import BulkPool
from mrstream.dfs.transfer.forward import FORWARD_BYTES, Forward

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
NO_PUSH = (b"no data has this id", ReplicaFailed())
REQUESTS = union_of(
    [PushData, WriteChunk, AppendRecord, ApplyMutation, ReadChunk, ChunkLength, ChecksumChunk,
     OpenReplica]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request over a bulk connection, for the diagnostic log (GFS §5.3)."""

    role: str
    host: str
    address: str
    request_id: tuple[int, int]

    @staticmethod
    def of(stream: BulkStream, number: int) -> Caller:
        """The other side of a connection, with the number of its request."""
        peer = stream.peer
        return Caller(peer.role, peer.host, stream.address, (peer.client_id, number))


@dataclass(frozen=True, slots=True)
class _Silence:
    """A mutation for which a replica was waited in vain."""

    version: int
    at_s: float
    error: Unavailable


Observe = Callable[[Caller, Request, float, ClusterError | None], None]
"""Called after each answer with (caller, request, seconds it took, error or None)."""


class ChunkService:
    """Serves one store. `serve` is run by a thread for each connection."""

    def __init__(
        self,
        me: ServerId,
        store: ChunkStore,
        order: MutationOrder,
        buffer: PushBuffer,
        pool: BulkPool,
        clock: Clock,
        on_disk_failed: Callable[[DiskFailed], None],
        observe: Observe | None = None,
    ) -> None:
        self._me = me
        self.store = store
        self.order = order
        self._buffer = buffer
        self._pool = pool
        self._clock = clock
        self._on_disk_failed = on_disk_failed
        self._observe = observe
        self._guard = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}
        self._changed: dict[int, None] = {}
        self._agreed: dict[int, tuple[int, int]] = {}
        self._silent: dict[int, _Silence] = {}
        """As primary: the last mutation of a chunk for which somebody was waited in vain."""
        self.served_at_s = float("-inf")
        self.counters: dict[str, float] = {}

    def lock_of(self, handle: int) -> threading.Lock:
        """The lock under which a chunk's order, version and bytes change."""
        with self._guard:
            return self._locks.setdefault(handle, threading.Lock())

    def forget(self, handle: int) -> None:
        with self._guard:
            self._locks.pop(handle, None)
            self._changed.pop(handle, None)
            self._agreed.pop(handle, None)
            self._silent.pop(handle, None)

    def take_changed(self) -> list[int]:
        """The chunks that were mutated since the last call."""
        with self._guard:
            changed, self._changed = list(self._changed), {}
        return changed

    def serve(self, stream: BulkStream) -> None:
        """Answer requests until the other side closes."""
        buffer = bytearray(0)
        number = 0
        failed_push = NO_PUSH
        while True:
            request = stream.receive(REQUESTS)
            number += 1
            began_s = self.served_at_s = self._clock.now_s()
            self._count(type(request).__name__, 1)
            refusal: ClusterError | None = None
            try:
                if isinstance(request, ReadChunk):
                    buffer = buffer or bytearray(PIECE_BYTES + 2 * BLOCK_BYTES)
                    self._read(stream, request, buffer)
                elif isinstance(request, WriteChunk) and failed_push[0] == request.data_id:
                    # It was sent right behind its bytes, before anybody knew: whoever does not have
                    # them cannot write them, and is not waited for once more.
                    raise failed_push[1]
                else:
                    self._answer(stream, request)
            except DiskFailed as error:
                # Nothing is acknowledged from here on, this request neither.
                self._on_disk_failed(error)
                raise
            except HostUnreachable:
                raise
            except ClusterError as error:
                refusal = error
                stream.send_error(error)
            failed_push = NO_PUSH
            if isinstance(request, PushData) and isinstance(refusal, ReplicaFailed):
                failed_push = request.data_id, refusal
            if self._observe is not None:
                took_s = self._clock.now_s() - began_s
                self._observe(Caller.of(stream, number), request, took_s, refusal)

    def _answer(self, stream: BulkStream, request: Request) -> None:
        match request:
            case PushData():
                self._push(stream, request)
            case OpenReplica():
                self._open(stream, request)
            case WriteChunk():
                self.write(request)
                stream.send(Done())
            case AppendRecord():
                stream.send(Number(self.append(request)))
            case ApplyMutation():
                self.apply(request)
                stream.send(Done())
            case ChunkLength():
                stream.send(Number(self.agreed_length(request.handle, request.version)))
            case ChecksumChunk():
                stream.send(Checksums(self._checksums(request)))

    # --- reading

    def _current(self, handle: int, version: int) -> Replica:
        """The replica, if its version is at least the one asked for."""
        replica = self.store.get(handle)
        if replica.version < version:
            raise StaleReplica(
                f"chunk {handle:016x}: the replica here has version {replica.version}, "
                f"the request wants {version}"
            )
        return replica

    def agreed_length(self, handle: int, version: int) -> int:
        """The replica's length; where appends are serialised, without what may be here alone."""
        replica = self._current(handle, version)
        with self.store.guarded(replica.disk, replica):
            length = replica.agreed
        at_version, agreed = self._agreed.get(handle, (0, 0))
        return max(length, agreed) if at_version == replica.version else length

    def _read(self, stream: BulkStream, request: ReadChunk, buffer: bytearray) -> None:
        replica = self._current(request.handle, request.version)
        if request.offset < 0 or request.length_bytes < 0:
            raise BadRequest(f"read of {request.length_bytes} bytes at {request.offset}")
        appends = b""
        if request.appends:
            with self.store.guarded(replica.disk, replica):
                appends = pack_table(replica.appended(request.offset + request.length_bytes))
        offset, left = request.offset, request.length_bytes
        while True:
            # Pieces after the first begin at block borders, so that no block is read twice.
            size = min(left, PIECE_BYTES - offset % BLOCK_BYTES)
            view = self.store.read(replica, offset, size, buffer)
            left -= len(view)
            offset += len(view)
            is_last = left == 0 or len(view) < size or offset >= replica.length
            stream.send(Piece(len(view), crc32c(view), replica.length, is_last, appends), view)
            appends = b""
            self._count("bytes_read", len(view))
            if is_last:
                return

    def _open(self, stream: BulkStream, request: OpenReplica) -> None:
        if not stream.address.startswith("unix"):
            raise BadRequest("descriptors can be passed over the Unix socket only")
        replica = self._current(request.handle, request.version)
        slot = replica.slot
        try:
            data, sums = replica.open_files()
        except OSError as error:
            if error.errno in NOT_THE_DISKS:
                raise Overloaded(f"chunk {request.handle:016x}: {error}") from error
            self.store.distrust(replica, f"chunk {request.handle:016x}: {error}")
            raise ChunkCorrupt(f"chunk {request.handle:016x}: {error}") from error
        try:
            files = ReplicaFiles(ChunkVersion(slot.version), slot.length, slot.tail_crc)
            stream.send(files)
            stream.send_descriptors([data.fileno(), sums.fileno()])
        finally:
            data.close()
            sums.close()

    def _checksums(self, request: ChecksumChunk) -> bytes:
        replica = self._current(request.handle, request.version)
        packed = bytearray()
        for offset in range(0, request.length_bytes, PIECE_BYTES):
            size = min(PIECE_BYTES, request.length_bytes - offset)
            view = self.store.read(replica, offset, size)
            for start in range(0, len(view), BLOCK_BYTES):
                packed += struct.pack("<I", crc32c(view[start : start + BLOCK_BYTES]))
        return bytes(packed)

    # --- pushing

    def _push(self, stream: BulkStream, request: PushData) -> None:
        """Take the bytes and pass them on as they arrive (GFS §3.2)."""
        try:
            data = self._buffer.begin(request.length_bytes)
        except ClusterError:
            _skip(stream, request.length_bytes)
            raise
        kept = False
        chain = Forward(self._pool, request, memoryview(data)) if request.chain else None
        try:
            view = memoryview(data)
            if chain is None:
                stream.receive_into(view)
            else:
                _receive_and_pass_on(stream, view, chain)
            if crc32c(data) != request.crc:
                # Damaged on its way: whoever sent it has it still, and sends it again.
                raise DataNotPushed(
                    f"push {request.data_id.hex()} arrived with crc {crc32c(data):#010x}, "
                    f"expected {request.crc:#010x}"
                )
            self._buffer.keep(request.data_id, data)
            kept = True
        finally:
            if not kept:
                self._buffer.drop(data)
            if chain is not None and not kept:
                chain.close()
        if chain is not None:
            chain.finish()
        self._count("bytes_pushed", request.length_bytes)
        stream.send(Done())

    # --- mutations

    def write(self, request: WriteChunk) -> None:
        """As primary: apply pushed data here and at all replicas (GFS §3.1 steps 4 to 7)."""
        if not 0 <= request.offset <= CHUNK_BYTES_MAX - request.length_bytes:
            raise BadRequest(
                f"write of {request.length_bytes} bytes at {request.offset} of a chunk"
            )
        came_at_s = self._clock.now_s()
        with self.lock_of(request.handle):
            self._check_heard(request.handle, request.version, came_at_s)
            self._mutate(
                request.replicas,
                handle=request.handle,
                version=request.version,
                offset=request.offset,
                length_bytes=request.length_bytes,
                data_id=request.data_id,
                durable=request.durable,
            )
        self._buffer.forget(request.data_id)

    def append(self, request: AppendRecord) -> int:
        """As primary: append pushed data at an offset of our choice (GFS §3.3); return it."""
        size_max = request.chunk_bytes // RECORD_FRACTION_OF_CHUNK
        if request.length_bytes > size_max:
            raise RecordTooLarge(
                f"a record of {request.length_bytes} bytes; a fourth of a chunk, {size_max}, is "
                "the limit"
            )
        if request.appender != PADDING:
            return self._append_once(request)
        came_at_s = self._clock.now_s()
        with self.lock_of(request.handle):
            self._check_heard(request.handle, request.version, came_at_s)
            offset = self.store.get(request.handle, request.version).length
            room = request.chunk_bytes - offset
            handle, version = request.handle, request.version
            if request.length_bytes > room:
                if room:
                    self._mutate(
                        request.replicas,
                        handle=handle,
                        version=version,
                        offset=offset,
                        length_bytes=room,
                        data_id=b"",
                        gap_allowed=True,
                    )
                raise ChunkFull(f"chunk {handle:016x} has {room} bytes left; it is padded now")
            self._mutate(
                request.replicas,
                handle=handle,
                version=version,
                offset=offset,
                length_bytes=request.length_bytes,
                data_id=request.data_id,
                gap_allowed=True,
            )
        self._buffer.forget(request.data_id)
        return offset

    def _append_once(self, request: AppendRecord) -> int:
        """As primary of a chunk whose appends are serialised: return where in the file the bytes
        are, from now on or since they were appended before."""
        handle, version, size = request.handle, request.version, request.length_bytes
        with self.lock_of(handle):
            replica = self.store.get(handle, version)
            with self.store.guarded(replica.disk, replica):
                last = replica.last_append_of(request.appender)
            if last is not None and last.number >= request.number:
                return self._appended_before(request, last)
            offset = replica.length
            room = request.chunk_bytes - offset
            at = request.index * request.chunk_bytes + offset
            if size <= room:
                mark = AppendMark(request.appender, request.number, at)
                self._mutate_exactly(request, offset, size, request.data_id, mark)
            elif room:
                self._mutate_exactly(request, offset, room, b"", AppendMark(PADDING, 0, at))
        if size > room:
            raise ChunkFull(f"chunk {handle:016x} has {room} bytes left; it is padded now")
        self._buffer.forget(request.data_id)
        return at

    def _appended_before(self, request: AppendRecord, last: Appended) -> int:
        """Where the bytes of a repeated append are. If they are in this chunk they may still be
        here alone: the lease says that they are not, for it ends with an append that failed."""
        if last.number > request.number or last.length_bytes != request.length_bytes:
            raise BadRequest(
                f"append {request.number} of {request.length_bytes} bytes comes after append "
                f"{last.number} of {last.length_bytes} of the same appender; it can be repeated "
                "only as it was, before the next one"
            )
        self.order.check(request.handle, request.version, self._clock.now_s())
        return last.at

    def _mutate_exactly(
        self, request: AppendRecord, offset: int, size: int, data_id: bytes, mark: AppendMark
    ) -> None:
        """Have all replicas append, or this version ends: what some have more than others is then
        this append's bytes, and nothing comes after them."""
        handle, version = request.handle, request.version
        if data_id and size:
            self._buffer.get(data_id, size)
        self.order.check(handle, version, self._clock.now_s())
        try:
            self._mutate(
                request.replicas,
                handle=handle,
                version=version,
                offset=offset,
                length_bytes=size,
                data_id=data_id,
                mark=mark,
            )
        except ClusterError as error:
            self.order.ended(handle, version)
            if isinstance(error, DataNotPushed):
                raise ReplicaFailed(str(error), servers=[]) from error
            raise
        with self._guard:
            self._agreed[handle] = (version, offset + size)

    def apply(self, request: ApplyMutation) -> None:
        """As secondary: apply a mutation that the primary has numbered."""
        with self.lock_of(request.handle):
            replica = self.store.get(request.handle, request.version)
            if self.order.accept(request.handle, request.version, request.serial):
                self._apply(replica, request)
                self.order.applied(request.handle, request.version, request.serial)
        if request.data_id:
            self._buffer.forget(request.data_id)

    def _apply(self, replica: Replica, mutation: ApplyMutation) -> None:
        if mutation.offset > replica.length and not mutation.gap_allowed:
            # What was written before, and not yet synced, is gone from here: a power cut.
            raise StaleReplica(
                f"chunk {mutation.handle:016x}: the replica here ends at {replica.length}, "
                f"the mutation begins at {mutation.offset}"
            )
        mark = mutation.mark
        if mark is not None and mutation.offset != replica.length:
            raise StaleReplica(
                f"chunk {mutation.handle:016x}: the replica here ends at {replica.length}, "
                f"the append begins at {mutation.offset}"
            )
        pieces = []
        if mutation.data_id and mutation.length_bytes:
            pieces = [memoryview(self._buffer.get(mutation.data_id, mutation.length_bytes))]
        if mark is not None:
            end = mutation.offset + mutation.length_bytes
            size = mutation.length_bytes
            entry = Appended(mark.appender, mark.number, mark.at, size, end)
            self.store.append(replica, pieces, entry)
        elif mutation.data_id or not mutation.length_bytes:
            self.store.write(replica, mutation.offset, pieces, durable=mutation.durable)
        else:
            with self.store.guarded(replica.disk, replica):
                replica.pad(mutation.offset + mutation.length_bytes)
        with self._guard:
            self._changed[replica.handle] = None
        self._count("bytes_written", mutation.length_bytes)

    def _mutate(
        self,
        replicas: tuple[ServerAddress, ...],
        *,
        handle: int,
        version: int,
        offset: int,
        length_bytes: int,
        data_id: bytes,
        durable: bool = True,
        gap_allowed: bool = False,
        mark: AppendMark | None = None,
    ) -> None:
        """As primary, under the chunk's lock: number a mutation and have all replicas apply it."""
        replica = self.store.get(handle, version)
        if data_id and length_bytes:
            self._buffer.get(data_id, length_bytes)
        serial = self.order.assign(handle, version, self._clock.now_s())
        mutation = ApplyMutation(
            ChunkHandle(handle),
            ChunkVersion(version),
            serial,
            offset,
            length_bytes,
            data_id,
            durable,
            gap_allowed,
            mark,
        )
        others = [one for one in replicas if one.server != self._me]
        calls = [_Call(self._pool, one, mutation) for one in others]
        for call in calls:
            call.start()
        failures: dict[str, ClusterError] = {}
        try:
            self._apply(replica, mutation)
            self.order.applied(handle, version, serial)
        except DiskFailed:
            raise
        except ClusterError as error:
            failures[self._me] = error
        finally:
            for call in calls:
                call.join()
        for call in calls:
            if call.error is not None:
                failures[call.server] = call.error
        if failures:
            refusal = _mutation_error(handle, failures)
            if any(isinstance(failure, HostUnreachable) for failure in failures.values()):
                self._silent[handle] = _Silence(version, self._clock.now_s(), refusal)
            raise refusal

    def _check_heard(self, handle: int, version: int, came_at_s: float) -> None:
        """As primary, under the chunk's lock: whoever waited for it while another mutation of the
        version waited in vain for a replica is told the same. One after the other they would hold
        the lock for as long each, and the master's next version, which ends that, with them."""
        silence = self._silent.get(handle)
        if silence is not None and silence.version == version and came_at_s <= silence.at_s:
            raise silence.error

    def _count(self, name: str, amount: float) -> None:
        with self._guard:
            self.counters[name] = self.counters.get(name, 0) + amount


class _Call(threading.Thread):
    """One secondary being asked to apply a mutation, beside the primary's own work."""

    def __init__(self, pool: BulkPool, secondary: ServerAddress, mutation: ApplyMutation) -> None:
        super().__init__(name=f"apply-{secondary.server}", daemon=True)
        self.server = secondary.server
        self.error: ClusterError | None = None
        self._pool = pool
        self._address = pool.address_of(secondary)
        self._mutation = mutation

    def run(self) -> None:
        try:
            self._pool.call(self._address, self._mutation)
        except ClusterError as error:
            self.error = error


def _mutation_error(handle: int, failures: dict[str, ClusterError]) -> Unavailable:
    reasons = "; ".join(f"{server}: {error}" for server, error in sorted(failures.items()))
    if all(isinstance(error, DataNotPushed) for error in failures.values()):
        return DataNotPushed(f"chunk {handle:016x}: {reasons}")
    return ReplicaFailed(
        f"chunk {handle:016x}: mutation failed at {reasons}",
        servers=sorted(s for s, e in failures.items() if not isinstance(e, DataNotPushed)),
    )


def _receive_and_pass_on(stream: BulkStream, view: memoryview, chain: Forward) -> None:
    """What has come goes on at once: on a slow link every hop that waited for more would add that
    wait to the whole chain's."""
    end = 0
    while end < len(view):
        end += stream.receive_some(view[end : end + FORWARD_BYTES])
        chain.pass_on(end)


def _skip(stream: BulkStream, count: int) -> None:
    """Read over bytes that there is no room for, so that the answer is in step."""
    scratch = bytearray(min(count, PIECE_BYTES))
    while count > 0:
        piece = memoryview(scratch)[: min(count, len(scratch))]
        stream.receive_into(piece)
        count -= len(piece)
