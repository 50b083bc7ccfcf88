"""Opening files for writing, finding primaries, closing; and closing for those who died (GFS §3).

A file has at most one exclusive writer, known by its epoch; or, without one, any number of clients
that share it (overwrites and record appends). Whoever's request has to wait for chunkservers is
parked, and handled again from the start when the wait is over, so every function here may run more
than once for one request and looks at the state as it is. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mrstream.dfs.chunk import NO_HANDLE, ChunkHandle, ChunkVersion, Epoch, FileId, ServerId
from mrstream.dfs.errors import (
    BadRequest,
    FileBusy,
    NoServers,
    SpaceQuotaExceeded,
    WriterFenced,
)
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.entries import UNKNOWN, Done
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.grants import Grants
from mrstream.dfs.metadata.listing import Listing
from mrstream.dfs.metadata.paths import join_path, split_path
from mrstream.dfs.metadata.repair import Repair
from mrstream.dfs.metadata.seals import Seals
from mrstream.dfs.metadata.snapshots import Snapshots
from mrstream.dfs.metadata.taking import Taking, Takings
from mrstream.dfs.metadata.underway import Tables, Underways
from mrstream.dfs.metadata.writers import Writers
from mrstream.dfs.protocol import (
    AbandonFile,
    AllocateChunk,
    AppendTarget,
    ChunkGrant,
    CloseFile,
    ConfirmLength,
    CreateFile,
    FileStatus,
    FindLease,
    OpenAppend,
    OpenFile,
)


@dataclass(frozen=True)
class Parts:
    """The other parts of the brain that writing needs."""

    changes: Changes
    listing: Listing
    underways: Underways
    grants: Grants
    seals: Seals
    repair: Repair
    writers: Writers
    snapshots: Snapshots
    takings: Takings


class Writing:
    """Everything about files that change."""

    def __init__(self, tables: Tables, parts: Parts) -> None:
        self._t = tables
        self._nodes = tables.space.nodes
        self._changes = parts.changes
        self._listing = parts.listing
        self._underways = parts.underways
        self._grants = parts.grants
        self._seals = parts.seals
        self._repair = parts.repair
        self._writers = parts.writers
        self._snapshots = parts.snapshots
        self._takings = parts.takings

    # --- opening

    def create(self, called: Called, ask: CreateFile) -> None:
        t = self._t
        done = t.space.requests.get(called.request_id)
        if done is None:
            file_id = self._changes.create(ask, t.outbox.wall_s, called.request_id)
        else:
            file_id = self._still_written(done, ask.path)  # the answer to the first try was lost
        epoch = t.space.writer_epoch(t.space.row_of(file_id))
        self._writers.alive(epoch)
        t.story.tell(f"created by {ask.client}, epoch {epoch}", file_id=file_id)
        if ask.first_chunk and not self._nodes.chunk_count[t.space.row_of(file_id)]:
            try:
                work = self._grants.create(file_id, ask.near)
            except (NoServers, SpaceQuotaExceeded):
                pass  # the writer hears of it when it needs a chunk
            else:
                work.then.append(lambda _: self._reply_open(called.call, file_id, epoch))
                return
        self._reply_open(called.call, file_id, epoch)

    def _still_written(self, done: Done, path: str) -> FileId:
        """The file that a request, now repeated, opened, if its epoch is in force."""
        row = self._nodes.row_of(done.file_id)
        writer = None if row is None else self._t.space.writers.get(row)
        if writer is None or done.answer not in (writer.epoch, UNKNOWN):
            raise WriterFenced(f"{path}: was closed, taken over or replaced since it was opened")
        return done.file_id

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
        done = t.space.requests.get(called.request_id)
        if done is not None:
            file_id = self._still_written(done, ask.path)
            epoch = t.space.writer_epoch(t.space.row_of(file_id))
            self._reply_open(called.call, file_id, epoch)
            return
        row = self._changes.existing_file(split_path(ask.path))
        if row in t.space.writers:
            self._writers.check_not_busy(row, force=False)
            self._writers.take_over(row)
            self._writers.wait_for_close(row, called)
            return
        if self._writers.seal_open_chunks(row, called):
            return
        file_id, epoch = self._nodes.id_of(row), Epoch(t.space.next_epoch)
        t.outbox.emit(
            op.FileOpened(
                file_id, epoch, ask.client, t.outbox.wall_s, called.request_id, ask.fence,
                ask.more_fences,
            )
        )  # fmt: skip
        self._writers.alive(epoch)
        t.story.tell(f"opened for appending by {ask.client}, epoch {epoch}", file_id=file_id)
        t.outbox.reply(called.call, OpenFile(self._status(row), epoch))

    # --- chunks

    def allocate(self, called: Called, ask: AllocateChunk) -> None:
        t = self._t
        row = self._writers.row_of(ask.file_id, ask.epoch)
        if self._snapshots.must_wait(row, called):
            return
        work = self._underways.creating(ask.file_id)
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
            and self._underways.confirmed_bytes(last) == 0
            and self._underways.of(last) is None
        )

    def find_lease(self, called: Called, ask: FindLease) -> None:
        if ask.epoch:
            row = self._writers.row_of(ask.file_id, ask.epoch)
        else:
            row = self._changes.existing_file(split_path(ask.path))
            self._check_shared(row)
            if self._t.space.is_serialised(row):
                raise BadRequest(
                    f"{self._path(row)}: appends are serialised there, so that what is in the file "
                    "stays; open it for writing to change it"
                )
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
        if not self._snapshots.must_wait(row, called):
            if ask.epoch:
                self._check_growth(row, ask.index)
            self._lease(called, row, ask.index, ask.version, ask.failed)

    def _check_growth(self, row: int, index: int) -> None:
        """The last chunk may grow from now on, if the quotas allow that."""
        if index == self._nodes.chunk_count[row] - 1:
            self._t.space.quotas.check_growth(row)

    def append_target(self, called: Called, ask: AppendTarget) -> None:
        t = self._t
        row = self._changes.existing_file(split_path(ask.path))
        self._check_shared(row)
        if t.space.is_serialised(row) and not ask.once:
            raise BadRequest(
                f"{self._path(row)}: appends are serialised there, and this client is of a version "
                "that cannot say whose an append is; update it"
            )
        if self._snapshots.must_wait(row, called):
            return
        file_id = self._nodes.id_of(row)
        work = self._underways.creating(file_id)
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
            # Its length must be certain before anything comes after it. If it is not full after
            # all, the request is handled again as if its client knew of no full chunk.
            again = msgspec.structs.replace(ask, full=NO_HANDLE)
            self._seals.seal_and_park(last, Called(called.call, again, called.request_id))
        elif not t.chunks.is_unsealed(last) and t.chunks.length(last) >= size:
            self._grants.create(file_id, ask.near).parked.append(called)
        else:
            self._check_growth(row, count - 1)
            version = ask.version if ask.handle in (NO_HANDLE, last) else ChunkVersion(0)
            self._lease(called, row, count - 1, version, ask.failed)

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
        if version > t.chunks.granted(handle):
            # It is the version of a chunk that was here before: sealed while empty it was taken
            # off, and this one came in its place. Any grant of this one is news to the client.
            version = ChunkVersion(0)
        work = self._underways.of(handle)
        if work is not None:
            work.parked.append(called)
            return
        failed = self._failed_since(handle, version, failed)
        if self._repair.must_wait(handle, failed):
            self._repair.wait_for_clone(handle, called)
            return
        grant = self._grant_in_force(row, index, version)
        if grant is not None:
            self._writers.told_of_lease(handle, grant.version, called.request)
            t.outbox.reply(called.call, grant)
        elif t.chunks.references(handle) > 1:
            file_id = self._nodes.id_of(row)
            self._grants.copy(file_id, index, handle).parked.append(called)
        elif t.space.is_serialised(row) and t.chunks.is_unsealed(handle):
            # What some replicas may have more than others goes: they agree on a length first.
            self._seals.seal_and_park(handle, called, failed)
        else:
            file_id = self._nodes.id_of(row)
            self._grants.grant(file_id, index, handle, failed).parked.append(called)

    def _failed_since(
        self, handle: ChunkHandle, version: ChunkVersion, failed: Sequence[ServerId]
    ) -> list[ServerId]:
        """Of those that failed a client at a version: without the ones that have taken a later one.
        They answer, and one of them may be what the last clone was made of; whoever fails the
        client again, it names again."""
        chunks = self._t.chunks
        if not failed or chunks.version(handle) <= version:
            return list(failed)
        good = {self._t.servers.at(index).id for index in chunks.good(handle)}
        return [server for server in failed if server not in good]

    def _grant_in_force(self, row: int, index: int, above: ChunkVersion) -> ChunkGrant | None:
        """The grant that the lease in force allows, if all of its replicas are still good."""
        t = self._t
        handle = self._nodes.chunk_at(row, index)
        lease = t.leases.in_force(handle, t.outbox.now_s)
        if lease is None or not lease.confirmed or lease.version <= above:
            return None
        if lease.serialised != t.space.is_serialised(row):
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
            lease.serialised,
        )

    # --- closing

    def confirm_length(self, called: Called, ask: ConfirmLength) -> None:
        t = self._t
        if called.request_id not in t.space.requests:
            row = self._writers.row_of(ask.file_id, ask.epoch)
            self._check_length(row, ask.length_bytes)
            if ask.length_bytes != self._nodes.length[row]:
                t.outbox.emit(
                    op.LengthConfirmed(
                        ask.file_id, ask.length_bytes, t.outbox.wall_s, called.request_id
                    )
                )
        t.outbox.reply(called.call, None)

    def close(self, called: Called, ask: CloseFile) -> None:
        t = self._t
        done = t.space.requests.get(called.request_id)
        if done is not None:
            path = ask.rename_to or f"file {ask.file_id:x}"
            t.outbox.reply(called.call, self._listing.closed(done, path, ask.length_bytes))
            return
        row = self._nodes.row_of(ask.file_id)
        is_closed = (
            row is not None
            and row not in t.space.writers
            and self._nodes.length[row] == ask.length_bytes
        )
        if row is None or not is_closed:
            row = self._writers.row_of(ask.file_id, ask.epoch)
            self._check_length(row, ask.length_bytes)
            if self._must_wait(row, called):
                return
        # Else the master closed it for its silent writer, just so, and it gets its name now.
        finished = self._finishing(row, ask)
        if not is_closed:
            self._end(row, ask, called.request_id)
        self._finish(row, ask, finished, called.request_id if is_closed else op.NO_REQUEST)
        t.outbox.reply(called.call, self._status(row))

    def _must_wait(self, row: int, called: Called) -> bool:
        """Park the request while something is done to the last chunk."""
        count = self._nodes.chunk_count[row]
        work = self._underways.of(self._nodes.chunk_at(row, count - 1)) if count else None
        if work is not None:
            work.parked.append(called)
        return work is not None

    def _end(self, row: int, ask: CloseFile, request: op.RequestId) -> None:
        """The epoch is over; the file has this length."""
        t = self._t
        count = self._nodes.chunk_count[row]
        if count and ask.length_bytes == (count - 1) * t.space.chunk_bytes(row):
            last = self._nodes.chunk_at(row, count - 1)
            t.outbox.emit(op.ChunkDropped(ask.file_id, last))
        t.outbox.emit(
            op.FileClosed(ask.file_id, ask.epoch, ask.length_bytes, t.outbox.wall_s, request)
        )
        self._writers.ended(ask.epoch)
        t.story.tell(f"closed with {ask.length_bytes} bytes", file_id=ask.file_id)

    def _finishing(self, row: int, ask: CloseFile) -> Taking | None:
        """What comes with closing, None if the file keeps its path; raises if it cannot be."""
        takings = self._takings
        if ask.attributes:
            takings.check_attributes(ask.rename_to or self._path(row), ask.attributes)
        if not ask.rename_to:
            takings.check_alone(ask)
            return None
        at_s = self._t.outbox.wall_s
        return takings.decide([row], ask.rename_to, ask, ask.length_bytes, at_s)

    def _finish(
        self, row: int, ask: CloseFile, taking: Taking | None, request: op.RequestId
    ) -> None:
        """Give the file its path and attributes."""
        outbox = self._t.outbox
        if taking is not None and taking.target != self._nodes.path_of(row):
            path = self._path(row)
            self._takings.make_room(row, taking, outbox.wall_s)
            outbox.emit(op.Renamed(path, join_path(taking.target), outbox.wall_s, request))
        if ask.attributes:
            changed: dict[str, bytes | None] = dict(ask.attributes)
            outbox.emit(op.AttributesSet(ask.file_id, changed, outbox.wall_s))

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
        t = self._t
        if called.request_id not in t.space.requests:
            row = self._writers.row_of(ask.file_id, ask.epoch)
            if t.space.writers[row].is_first:
                t.outbox.emit(op.Removed(self._path(row), t.outbox.wall_s, called.request_id))
            else:
                # It was there before: closed as for a writer that died, it keeps what it had.
                self._writers.take_over(row, called.request_id, "gave it up")
        t.outbox.reply(called.call, None)

    # --- small things

    def _status(self, row: int) -> FileStatus:
        return self._listing.status(row, self._path(row))

    def _path(self, row: int) -> str:
        return join_path(self._nodes.path_of(row))
