"""Opening files for writing, finding primaries, closing; and closing for those who died (GFS §3).

A file has at most one exclusive writer, known by its epoch; or, without one, any number of clients
that share it (overwrites and record appends). Whoever's request has to wait for chunkservers is
parked, and handled again from the start when the wait is over, so every function here may run more
than once for one request and looks at the state as it is. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dfs.chunk import NO_HANDLE, ChunkHandle, ChunkVersion, Epoch, FileId, ServerId
from dfs.errors import BadRequest, FileBusy, NoServers, WriterFenced
from dfs.metadata import operations as op
from dfs.metadata.changes import Changes
from dfs.metadata.chunk_table import REFERENCES_MAX
from dfs.metadata.events import Called
from dfs.metadata.grants import Grants, Tables
from dfs.metadata.listing import Listing
from dfs.metadata.nodes import FILE
from dfs.metadata.paths import join_path, split_path
from dfs.metadata.repair import Repair
from dfs.protocol import (
    AbandonFile,
    AllocateChunk,
    AppendTarget,
    ChunkGrant,
    CloseFile,
    ConfirmLength,
    CreateFile,
    FileStatus,
    FindLease,
    KeepAlive,
    OpenAppend,
    OpenFile,
    RecoverFile,
    Snapshot,
)

SEAL_RETRY_S = 2.0


class Writing:
    """Everything about files that change."""

    def __init__(
        self, tables: Tables, changes: Changes, listing: Listing, grants: Grants, repair: Repair
    ) -> None:
        self._t = tables
        self._nodes = tables.space.nodes
        self._changes = changes
        self._listing = listing
        self._grants = grants
        self._repair = repair
        self._heard_at_s: dict[Epoch, float] = {}
        self._waiting: dict[FileId, list[Called]] = {}
        self._freezing: dict[int, tuple[int, list[Called]]] = {}
        """Snapshots that wait for seals: the row of each source, and who must wait for it."""
        self._seal_at_s: dict[ChunkHandle, float] = {}

    # --- opening

    def create(self, called: Called, ask: CreateFile) -> None:
        t = self._t
        done = t.space.requests.get(called.request_id)
        row = None if done is None else self._nodes.row_of(done)
        if done is not None and row is not None and row in t.space.writers:
            file_id = done  # the answer to the first try was lost
        else:
            file_id = self._changes.create(ask, t.outbox.wall_s, called.request_id)
        epoch = t.space.writer_epoch(t.space.row_of(file_id))
        self._heard_at_s[epoch] = t.outbox.now_s
        t.story.tell(f"created by {ask.client}, epoch {epoch}", file_id=file_id)
        if ask.first_chunk and not self._nodes.chunk_count[t.space.row_of(file_id)]:
            try:
                work = self._grants.create(file_id, ask.near)
            except NoServers:
                pass  # the writer hears of it when it needs a chunk
            else:
                work.then.append(lambda _: self._reply_open(called.call, file_id, epoch))
                return
        self._reply_open(called.call, file_id, epoch)

    def _reply_open(self, call: int, file_id: FileId, epoch: Epoch) -> None:
        row = self._nodes.row_of(file_id)
        if row is None or self._t.space.writer_epoch(row) != epoch:
            self._t.outbox.refuse(call, WriterFenced("the file was replaced meanwhile"))
            return
        count = self._nodes.chunk_count[row]
        grant = None if not count else self._grant_in_force(row, count - 1, ChunkVersion(0))
        self._t.outbox.reply(call, OpenFile(self._status(row), epoch, grant))

    def open_append(self, called: Called, ask: OpenAppend) -> None:
        t = self._t
        row = self._changes.existing_file(split_path(ask.path))
        writer = t.space.writers.get(row)
        done = t.space.requests.get(called.request_id)
        if writer is not None and done == self._nodes.id_of(row) and writer.client == ask.client:
            self._reply_open(called.call, done, writer.epoch)
            return
        if writer is not None:
            self._check_not_busy(row, force=False)
            self._recover(row)
            self._wait_for_close(row, called)
            return
        if self._seal_open_chunks(row, called):
            return
        file_id, epoch = self._nodes.id_of(row), Epoch(t.space.next_epoch)
        t.outbox.emit(op.FileOpened(file_id, epoch, ask.client, t.outbox.wall_s, called.request_id))
        self._heard_at_s[epoch] = t.outbox.now_s
        t.story.tell(f"opened for appending by {ask.client}, epoch {epoch}", file_id=file_id)
        t.outbox.reply(called.call, OpenFile(self._status(row), epoch))

    def _check_not_busy(self, row: int, force: bool) -> None:
        writer = self._t.space.writers[row]
        silent_s = self._t.outbox.now_s - self._heard(writer.epoch)
        limit_s = self._t.settings.writer_silence_s_max
        if writer.client and not force and silent_s <= limit_s:
            raise FileBusy(
                f"{self._path(row)}: being written by {writer.client}, heard of {silent_s:.0f} s "
                f"ago; it can be taken over after {limit_s:.0f} s of silence"
            )

    def _heard(self, epoch: Epoch) -> float:
        return self._heard_at_s.setdefault(epoch, self._t.outbox.now_s)

    def keep_alive(self, called: Called, ask: KeepAlive) -> None:
        fenced = [epoch for epoch in ask.epochs if epoch not in self._t.space.epochs]
        for epoch in ask.epochs:
            if epoch in self._t.space.epochs:
                self._heard_at_s[epoch] = self._t.outbox.now_s
        self._t.outbox.reply(called.call, tuple(fenced))

    # --- chunks

    def allocate(self, called: Called, ask: AllocateChunk) -> None:
        t = self._t
        row = self._row_of_writer(ask.file_id, ask.epoch)
        if self._is_frozen(row, called):
            return
        work = self._grants.creating(ask.file_id)
        if work is not None:
            work.parked.append(called)
            return
        count = self._nodes.chunk_count[row]
        if ask.abandon and count and self._may_abandon(row, count, ask):
            t.outbox.emit(op.ChunkDropped(ask.file_id, ask.abandon))
            t.leases.end(ask.abandon)
            t.story.tell("abandoned: no byte of it was acknowledged", handle=ask.abandon)
            count -= 1
        if ask.index == count:
            self._grants.create(ask.file_id, ask.near, ask.failed).parked.append(called)
        elif ask.index == count - 1:
            self._lease(called, row, ask.index, ChunkVersion(0), ())
        else:
            raise BadRequest(
                f"{self._path(row)}: chunk {ask.index} was asked for; the file has {count}"
            )

    def _may_abandon(self, row: int, count: int, ask: AllocateChunk) -> bool:
        last = self._nodes.chunk_at(row, count - 1)
        return (
            last == ask.abandon
            and self._t.chunks.is_unsealed(last)
            and self._grants.confirmed_bytes(last) == 0
            and self._grants.underway(last) is None
        )

    def find_lease(self, called: Called, ask: FindLease) -> None:
        if ask.epoch:
            row = self._row_of_writer(ask.file_id, ask.epoch)
        else:
            row = self._changes.existing_file(split_path(ask.path))
            self._check_shared(row)
        count = self._nodes.chunk_count[row]
        if ask.epoch and ask.index == count:
            # The chunk was sealed while empty, and so taken off; the writer gets a fresh one.
            again = AllocateChunk(ask.file_id, ask.epoch, ask.index, failed=ask.failed)
            self.allocate(called, again)
            return
        if not 0 <= ask.index < count:
            raise BadRequest(
                f"{self._path(row)}: chunk {ask.index} was asked for; the file has {count}"
            )
        if not self._is_frozen(row, called):
            self._lease(called, row, ask.index, ask.version, ask.failed)

    def append_target(self, called: Called, ask: AppendTarget) -> None:
        t = self._t
        row = self._changes.existing_file(split_path(ask.path))
        self._check_shared(row)
        if self._is_frozen(row, called):
            return
        file_id = self._nodes.id_of(row)
        work = self._grants.creating(file_id)
        if work is not None:
            work.parked.append(called)
            return
        count = self._nodes.chunk_count[row]
        if count == 0:
            self._grants.create(file_id, ask.near).parked.append(called)
            return
        last = self._nodes.chunk_at(row, count - 1)
        size = t.space.chunk_bytes(row)
        if last == ask.full and t.chunks.is_unsealed(last):
            # Its length must be certain before anything comes after it. Should it turn out not to
            # be full, the request goes on as one that knows of no full chunk.
            again = msgspec.structs.replace(ask, full=NO_HANDLE)
            self._seal_and_park(last, Called(called.call, again, called.request_id))
        elif not t.chunks.is_unsealed(last) and t.chunks.length(last) >= size:
            self._grants.create(file_id, ask.near).parked.append(called)
        else:
            self._lease(called, row, count - 1, ask.version, ask.failed)

    def _check_shared(self, row: int) -> None:
        writer = self._t.space.writers.get(row)
        if writer is not None:
            raise FileBusy(
                f"{self._path(row)}: has an exclusive writer ({writer.client or 'being closed'})"
            )

    def _lease(
        self,
        called: Called,
        row: int,
        index: int,
        version: ChunkVersion,
        failed: Sequence[ServerId],
    ) -> None:
        """Reply with a grant above the version that failed the client, making one if need be."""
        t = self._t
        handle = self._nodes.chunk_at(row, index)
        work = self._grants.underway(handle)
        if work is not None:
            work.parked.append(called)
            return
        if self._repair.must_wait(handle):
            self._repair.wait_for_clone(handle, called)
            return
        grant = self._grant_in_force(row, index, version)
        if grant is not None:
            t.outbox.reply(called.call, grant)
        elif t.chunks.references(handle) > 1:
            file_id = self._nodes.id_of(row)
            self._grants.copy(file_id, index, handle).parked.append(called)
        else:
            file_id = self._nodes.id_of(row)
            self._grants.grant(file_id, index, handle, failed).parked.append(called)

    def _grant_in_force(self, row: int, index: int, above: ChunkVersion) -> ChunkGrant | None:
        """The grant that the lease in force allows, if all of its replicas are still good."""
        t = self._t
        handle = self._nodes.chunk_at(row, index)
        lease = t.leases.in_force(handle, t.outbox.now_s)
        if lease is None or not lease.confirmed or lease.version <= above:
            return None
        if not t.chunks.is_unsealed(handle) or lease.version != t.chunks.granted(handle):
            return None
        good = t.chunks.good(handle)
        primary = t.servers.at(lease.primary)
        if frozenset(good) != lease.replicas or not primary.is_connected:
            return None
        return ChunkGrant(
            index,
            handle,
            lease.version,
            primary.id,
            t.servers.addresses(good),
            lease.ends_at_s - t.outbox.now_s,
            t.space.chunk_bytes(row),
        )

    # --- closing

    def _row_of_writer(self, file_id: FileId, epoch: Epoch) -> int:
        row = self._nodes.row_of(file_id)
        if row is None or self._nodes.kind[row] != FILE:
            raise WriterFenced(f"file {file_id:x} was deleted or replaced while it was written")
        if self._t.space.writer_epoch(row) != epoch:
            raise WriterFenced(
                f"{self._path(row)}: epoch {epoch} is over; the file was closed or taken over"
            )
        self._heard_at_s[epoch] = self._t.outbox.now_s
        return row

    def confirm_length(self, called: Called, ask: ConfirmLength) -> None:
        row = self._row_of_writer(ask.file_id, ask.epoch)
        self._check_length(row, ask.length_bytes)
        if ask.length_bytes != self._nodes.length[row]:
            wall_s = self._t.outbox.wall_s
            self._t.outbox.emit(op.LengthConfirmed(ask.file_id, ask.length_bytes, wall_s))
        self._t.outbox.reply(called.call, None)

    def close(self, called: Called, ask: CloseFile) -> None:
        t = self._t
        row = self._nodes.row_of(ask.file_id)
        if (
            row is not None
            and row not in t.space.writers
            and self._nodes.length[row] == ask.length_bytes
        ):
            t.outbox.reply(called.call, self._status(row))  # a repeat: it is closed, just so
            return
        row = self._row_of_writer(ask.file_id, ask.epoch)
        self._check_length(row, ask.length_bytes)
        count = self._nodes.chunk_count[row]
        last = self._nodes.chunk_at(row, count - 1) if count else None
        if last is not None and (work := self._grants.underway(last)) is not None:
            work.parked.append(called)
            return
        if last is not None and ask.length_bytes == (count - 1) * t.space.chunk_bytes(row):
            t.outbox.emit(op.ChunkDropped(ask.file_id, last))
        t.outbox.emit(op.FileClosed(ask.file_id, ask.epoch, ask.length_bytes, t.outbox.wall_s))
        self._heard_at_s.pop(ask.epoch, None)
        t.story.tell(f"closed with {ask.length_bytes} bytes", file_id=ask.file_id)
        t.outbox.reply(called.call, self._status(row))

    def _check_length(self, row: int, length_bytes: int) -> None:
        count, size = self._nodes.chunk_count[row], self._t.space.chunk_bytes(row)
        least = max((count - 1) * size, self._nodes.length[row])
        if count == 0:
            least = 0
        last = self._nodes.chunk_at(row, count - 1) if count else None
        if last is not None and not self._t.chunks.is_unsealed(last):
            # Sealed meanwhile, perhaps with bytes that were never acknowledged.
            least = (count - 1) * size
        if not least <= length_bytes <= count * size:
            raise BadRequest(
                f"{self._path(row)}: length {length_bytes} does not fit its {count} chunks of "
                f"{size} bytes, {self._nodes.length[row]} of them confirmed"
            )

    def abandon(self, called: Called, ask: AbandonFile) -> None:
        row = self._row_of_writer(ask.file_id, ask.epoch)
        self._t.outbox.emit(op.Removed(self._path(row), self._t.outbox.wall_s))
        self._t.outbox.reply(called.call, None)

    # --- closing for others

    def recover(self, called: Called, ask: RecoverFile) -> None:
        row = self._changes.existing_file(split_path(ask.path))
        if row in self._t.space.writers:
            self._check_not_busy(row, ask.force)
            self._recover(row)
            if row in self._t.space.writers:
                self._wait_for_close(row, called)
                return
        elif self._seal_open_chunks(row, called):
            return
        self._t.outbox.reply(called.call, self._status(row))

    def _recover(self, row: int) -> None:
        """Fence the writer of a file and close it at the length that all replicas agree on."""
        t = self._t
        writer = t.space.writers[row]
        file_id = self._nodes.id_of(row)
        if writer.client:
            epoch = Epoch(t.space.next_epoch)
            t.outbox.emit(op.FileOpened(file_id, epoch, "", t.outbox.wall_s))
            self._heard_at_s.pop(writer.epoch, None)
            t.story.tell(f"{writer.client} is silent; closing it, epoch {epoch}", file_id=file_id)
        self._close_when_sealed(file_id)

    def _close_when_sealed(self, file_id: FileId) -> None:
        t = self._t
        row = self._nodes.row_of(file_id)
        if row is None or row not in t.space.writers or t.space.writers[row].client:
            self._wake(file_id)
            return
        count = self._nodes.chunk_count[row]
        last = self._nodes.chunk_at(row, count - 1) if count else None
        if self._grants.creating(file_id) is not None:
            return
        if last is not None and t.chunks.is_unsealed(last):
            if self._never_written(last):
                t.outbox.emit(op.ChunkDropped(file_id, last))
            elif self._grants.underway(last) is None and self._is_time_to_seal(last):
                self._grants.seal(last, lambda ok: self._close_when_sealed(file_id) if ok else None)
                return
            else:
                return
        epoch = t.space.writers[row].epoch
        length_bytes = self._nodes.length[row]
        t.outbox.emit(op.FileClosed(file_id, epoch, length_bytes, t.outbox.wall_s))
        t.story.tell(f"closed for its writer with {length_bytes} bytes", file_id=file_id)
        self._wake(file_id)

    def _never_written(self, handle: ChunkHandle) -> bool:
        """Certainly no server has a byte of this chunk: all are here, and none has it."""
        t = self._t
        return (
            not t.chunks.good(handle)
            and not t.chunks.odd(handle)
            and self._grants.confirmed_bytes(handle) == 0
            and all(server.is_up and server.has_reported for server in t.servers.all())
        )

    def _is_time_to_seal(self, handle: ChunkHandle) -> bool:
        """Not in every tick: its servers may be away for long."""
        now_s = self._t.outbox.now_s
        if self._seal_at_s.get(handle, 0.0) > now_s:
            return False
        self._seal_at_s[handle] = now_s + SEAL_RETRY_S
        return True

    def _wait_for_close(self, row: int, called: Called) -> None:
        if row in self._t.space.writers:
            self._waiting.setdefault(self._nodes.id_of(row), []).append(called)
        else:
            self._t.outbox.again.append(called)

    def _wake(self, file_id: FileId) -> None:
        self._t.outbox.again += self._waiting.pop(file_id, [])

    def _seal_open_chunks(self, row: int, called: Called) -> bool:
        """Seal what shared writers left open; true if the request must wait for that."""
        waits = False
        for handle in self._nodes.chunks(row):
            if ChunkHandle(handle) in self._t.chunks.unsealed:
                if not waits:
                    self._seal_and_park(ChunkHandle(handle), called)
                waits = True
        return waits

    def _seal_and_park(self, handle: ChunkHandle, called: Called) -> None:
        if self._grants.underway(handle) is None:
            self._grants.seal(handle)
        work = self._grants.underway(handle)
        if work is None:
            raise self._grants.no_replica(handle)
        work.parked.append(called)

    # --- snapshots

    def snapshot(self, called: Called, ask: Snapshot) -> None:
        """First end all leases below the source, then log, then share the chunks (GFS §3.4)."""
        t = self._t
        if called.request_id in t.space.requests:
            t.outbox.reply(called.call, None)
            return
        try:
            row = self._changes.check_snapshot(ask)
            if self._freeze(row, called):
                return
            self._changes.snapshot(ask, t.outbox.wall_s, called.request_id)
        except Exception:
            self._thaw(called.call)
            raise
        self._thaw(called.call)
        t.outbox.reply(called.call, None)

    def _freeze(self, row: int, called: Called) -> bool:
        """Seal everything open below; true while that goes on. No new lease meanwhile."""
        t = self._t
        open_handles: list[ChunkHandle] = []
        for node in self._nodes.walk(row):
            if self._nodes.kind[node] != FILE:
                continue
            if (work := self._grants.creating(self._nodes.id_of(node))) is not None:
                open_handles.append(work.handle)
            for handle in map(ChunkHandle, self._nodes.chunks(node)):
                if t.chunks.references(handle) >= REFERENCES_MAX:
                    raise BadRequest(
                        f"{self._path(node)}: has {REFERENCES_MAX} snapshots, the most"
                    )
                if handle in t.chunks.unsealed or self._grants.underway(handle) is not None:
                    open_handles.append(handle)
        if not open_handles:
            return False
        self._freezing.setdefault(called.call, (row, []))
        for handle in open_handles:
            if self._grants.underway(handle) is None:
                self._grants.seal(handle)
        work = self._grants.underway(open_handles[0])
        if work is None and open_handles[0] in t.chunks.unsealed:
            raise self._grants.no_replica(open_handles[0])
        if work is None:
            t.outbox.again.append(called)
        else:
            work.then.append(lambda _: t.outbox.again.append(called))
        return True

    def _thaw(self, call: int) -> None:
        _, waiting = self._freezing.pop(call, (0, []))
        self._t.outbox.again += waiting

    def _is_frozen(self, row: int, called: Called) -> bool:
        for source, waiting in self._freezing.values():
            if self._nodes.is_within(row, source):
                waiting.append(called)
                return True
        return False

    def given_up(self, called: Called) -> None:
        """The request waited too long and has been refused."""
        self._thaw(called.call)

    # --- time

    def tick(self) -> None:
        """Close files of silent writers; seal chunks that nobody changes any more."""
        t = self._t
        now_s = t.outbox.now_s
        for row, writer in list(t.space.writers.items()):
            if not writer.client:
                self._close_when_sealed(self._nodes.id_of(row))
            elif now_s - self._heard(writer.epoch) > t.settings.writer_silence_s_max:
                self._recover(row)
        if now_s < t.started_at_s + t.settings.dead_after_s:
            return  # leases from before may be in force at servers that have yet to report
        for handle in list(t.chunks.unsealed):
            row, _ = t.chunks.owner(handle)
            if row in t.space.writers or t.leases.in_force(handle, now_s) is not None:
                continue
            if self._grants.underway(handle) is None and self._is_time_to_seal(handle):
                if self._never_written(handle):
                    t.outbox.emit(op.ChunkDropped(self._nodes.id_of(row), handle))
                else:
                    self._grants.seal(handle)
        for handle in [h for h in self._seal_at_s if h not in t.chunks.unsealed]:
            del self._seal_at_s[handle]

    # --- small things

    def _status(self, row: int) -> FileStatus:
        return self._listing.status(row, self._path(row))

    def _path(self, row: int) -> str:
        return join_path(self._nodes.path_of(row))
