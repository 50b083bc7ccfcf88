"""Who writes which file, whether they live, and closing files for those who do not (fault gate 15).

A writer is fenced by a new epoch; then the last chunk is sealed, at the length that all replicas
agree on, and the file is closed. Chunks of shared files are sealed when nobody has a lease on them
any more, or when somebody may write to them by a lease that a fence has outdated. Never does any
IO.
"""

from __future__ import annotations

from mrstream.cluster.wire.messages import Request
from mrstream.dfs.chunk import (
    NO_FENCE,
    ChunkHandle,
    ChunkVersion,
    Epoch,
    Fence,
    FileId,
    fences_of,
)
from mrstream.dfs.errors import FileBusy, NoSuchFile, WriterFenced
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.leases import Lease
from mrstream.dfs.metadata.life import Replica
from mrstream.dfs.metadata.listing import Listing
from mrstream.dfs.metadata.nodes import FILE
from mrstream.dfs.metadata.paths import is_hidden, join_path, split_path
from mrstream.dfs.metadata.seals import Seals
from mrstream.dfs.metadata.underway import Tables, Underways
from mrstream.dfs.protocol import FileStatus, KeepAlive, RecoverFile

SEAL_RETRY_S = 2.0


class Writers:
    """The life and death of writers."""

    def __init__(
        self,
        tables: Tables,
        changes: Changes,
        listing: Listing,
        underways: Underways,
        seals: Seals,
    ) -> None:
        self._t = tables
        self._nodes = tables.space.nodes
        self._changes = changes
        self._listing = listing
        self._underways = underways
        self._seals = seals
        self._heard_at_s: dict[Epoch, float] = {}
        self._waiting: dict[FileId, list[Called]] = {}
        self._seal_at_s: dict[ChunkHandle, float] = {}
        self._told: dict[ChunkHandle, tuple[ChunkVersion, dict[str, int]]] = {}
        """The version of the lease that clients were told of, and the lowest generation of each
        fence under which they asked: chunkservers know no fences."""
        self._outdated: dict[ChunkHandle, ChunkVersion] = {}
        """Leases that are to end by a seal before their time."""

    def alive(self, epoch: Epoch) -> None:
        """The writer has been heard of just now."""
        self._heard_at_s[epoch] = self._t.outbox.now_s

    def ended(self, epoch: Epoch) -> None:
        """The epoch is over."""
        self._heard_at_s.pop(epoch, None)

    def check_not_busy(self, row: int, force: bool) -> None:
        """Refuse while the file's writer is alive."""
        writer = self._t.space.writers[row]
        silent_s = self._t.outbox.now_s - self.heard_at_s(writer.epoch)
        limit_s = self._t.settings.writer_silence_s_max
        if writer.client and not force and silent_s <= limit_s:
            raise FileBusy(
                f"{self._path(row)}: being written by {writer.client}, heard of {silent_s:.0f} s "
                f"ago; it can be taken over after {limit_s:.0f} s of silence"
            )

    def heard_at_s(self, epoch: Epoch) -> float:
        """When a writer was last heard of; one from before a restart: now."""
        return self._heard_at_s.setdefault(epoch, self._t.outbox.now_s)

    def keep_alive(self, called: Called, ask: KeepAlive) -> None:
        fenced = [epoch for epoch in ask.epochs if epoch not in self._t.space.epochs]
        for epoch in ask.epochs:
            if epoch in self._t.space.epochs:
                self._heard_at_s[epoch] = self._t.outbox.now_s
        self._t.outbox.reply(called.call, tuple(fenced))

    def row_of(self, file_id: FileId, epoch: Epoch) -> int:
        """The file that this epoch writes; WriterFenced if it is over. The writer lives."""
        row = self._nodes.row_of(file_id)
        if row is None or self._nodes.kind[row] != FILE:
            raise WriterFenced(f"file {file_id:x} was deleted or replaced while it was written")
        if self._t.space.writer_epoch(row) != epoch:
            raise WriterFenced(
                f"{self._path(row)}: epoch {epoch} is over; the file was closed or taken over"
            )
        self._heard_at_s[epoch] = self._t.outbox.now_s
        return row

    # --- closing for others

    def recover(self, called: Called, ask: RecoverFile) -> None:
        t = self._t
        row = self._changes.existing_file(split_path(ask.path))
        writer, is_repeat = t.space.writers.get(row), called.request_id in t.space.requests
        if writer is not None and (not is_repeat or not writer.client):
            file_id = self._nodes.id_of(row)
            self.check_not_busy(row, ask.force)
            self.take_over(row, called.request_id)
            if self._nodes.row_of(file_id) is None:
                raise NoSuchFile(f"{ask.path}: was not to be seen unfinished, and is gone now")
            if row in t.space.writers:
                self.wait_for_close(row, called)
                return
        elif writer is None and self.seal_open_chunks(row, called):
            return
        t.outbox.reply(called.call, self._status(row))

    def take_over(
        self, row: int, request: op.RequestId = op.NO_REQUEST, why: str = "is silent"
    ) -> None:
        """Fence the writer of a file and close it at the length that all replicas agree on; what
        was to appear only when it is complete, and never will be, goes."""
        t = self._t
        writer = t.space.writers[row]
        file_id = self._nodes.id_of(row)
        if writer.is_first and is_hidden(self._nodes.name[row]):
            self._heard_at_s.pop(writer.epoch, None)
            t.outbox.emit(op.Removed(self._path(row), t.outbox.wall_s, request))
            self._wake(file_id)
            return
        if writer.client:
            epoch = Epoch(t.space.next_epoch)
            t.outbox.emit(op.FileOpened(file_id, epoch, "", t.outbox.wall_s, request))
            self._heard_at_s.pop(writer.epoch, None)
            t.story.tell(f"{writer.client} {why}; closing it, epoch {epoch}", file_id=file_id)
        self._close_when_sealed(file_id)

    def take_over_fenced(self, fence: Fence) -> None:
        """Take over what was opened under an older generation of a fence, whatever else it was
        opened under."""
        name, generation = fence
        for row, writer in list(self._t.space.writers.items()):
            is_older = any(own == name and seen < generation for own, seen in writer.fences)
            if is_older and writer.client:
                self.take_over(row, why=f"is fenced off by {name}, generation {generation}")
        self._end_leases_under(fence)

    def told_of_lease(self, handle: ChunkHandle, version: ChunkVersion, request: Request) -> None:
        """Whoever made this request may write to a chunk from now on, without asking again."""
        fences = fences_of(getattr(request, "fence", NO_FENCE), getattr(request, "more_fences", ()))
        known, under = self._told.get(handle, (version, {}))
        if known != version:
            under = {}
        for name, generation in fences:
            under[name] = min(generation, under.get(name, generation))
        if fences:
            self._told[handle] = (version, under)

    def _end_leases_under(self, fence: Fence) -> None:
        """A file that many write to has no writer to be taken over: end the leases that an older
        generation may have, since they are extended for as long as they are used."""
        t = self._t
        for handle in list(t.chunks.unsealed):
            row, _ = t.chunks.owner(handle)
            lease = t.leases.in_force(handle, t.outbox.now_s)
            if row in t.space.writers or lease is None or not self._is_outdated(lease, fence):
                continue
            self._outdated[handle] = lease.version
            if self._underways.of(handle) is None:
                self._seals.seal(handle)  # if that fails, ticks go on with it

    def _is_outdated(self, lease: Lease, fence: Fence) -> bool:
        """Was somebody told of it under an older generation? Of one that a server brought along
        from another master nobody knows to whom it was told."""
        if not lease.confirmed:
            return self._underways.of(lease.handle) is None
        name, generation = fence
        version, under = self._told.get(lease.handle, (lease.version, {}))
        return version == lease.version and under.get(name, generation) < generation

    def _close_when_sealed(self, file_id: FileId) -> None:
        t = self._t
        row = self._nodes.row_of(file_id)
        if row is None or row not in t.space.writers or t.space.writers[row].client:
            self._wake(file_id)
            return
        count = self._nodes.chunk_count[row]
        last = self._nodes.chunk_at(row, count - 1) if count else None
        if self._underways.creating(file_id) is not None:
            return
        if last is not None and t.chunks.is_unsealed(last):
            if self._never_written(last):
                t.outbox.emit(op.ChunkDropped(file_id, last))
            elif self._underways.of(last) is None and self._is_time_to_seal(last):
                self._seals.seal(last, lambda ok: self._close_when_sealed(file_id) if ok else None)
                return
            else:
                return
        epoch = t.space.writers[row].epoch
        length_bytes = self._nodes.length[row]
        t.outbox.emit(op.FileClosed(file_id, epoch, length_bytes, t.outbox.wall_s))
        t.story.tell(f"closed for its writer with {length_bytes} bytes", file_id=file_id)
        self._wake(file_id)

    def _never_written(self, handle: ChunkHandle) -> bool:
        """Certainly no server has a byte of this chunk: all are here, and none has more of it than
        files without a header, as a power cut leaves them before the first write is durable."""
        t = self._t
        return (
            not t.chunks.good(handle)
            and all(
                replica.state is Replica.CORRUPT and replica.version == 0
                for replica in t.chunks.odd(handle).values()
            )
            and self._underways.confirmed_bytes(handle) == 0
            and all(server.is_up and server.has_reported for server in t.servers.all())
        )

    def _is_time_to_seal(self, handle: ChunkHandle) -> bool:
        """Not in every tick: its servers may be away for long."""
        now_s = self._t.outbox.now_s
        if self._seal_at_s.get(handle, 0.0) > now_s:
            return False
        self._seal_at_s[handle] = now_s + SEAL_RETRY_S
        return True

    def wait_for_close(self, row: int, called: Called) -> None:
        """Park a request until the file has no writer."""
        if row in self._t.space.writers:
            self._waiting.setdefault(self._nodes.id_of(row), []).append(called)
        else:
            self._t.outbox.again.append(called)

    def _wake(self, file_id: FileId) -> None:
        self._t.outbox.again += self._waiting.pop(file_id, [])

    def seal_open_chunks(self, row: int, called: Called) -> bool:
        """Seal what shared writers left open; true if the request must wait for that."""
        waits = False
        for handle in self._nodes.chunks(row):
            if ChunkHandle(handle) in self._t.chunks.unsealed:
                if not waits:
                    self._seals.seal_and_park(ChunkHandle(handle), called)
                waits = True
        return waits

    # --- time

    def forgive(self, late_s: float) -> None:
        """The master itself was stopped for so long: that silence is not the writers'."""
        now_s = self._t.outbox.now_s
        for epoch, heard_at_s in self._heard_at_s.items():
            self._heard_at_s[epoch] = min(now_s, heard_at_s + late_s)

    def tick(self) -> None:
        """Close files of silent writers; seal chunks that nobody changes any more."""
        t = self._t
        now_s = t.outbox.now_s
        for row, writer in list(t.space.writers.items()):
            if not writer.client:
                self._close_when_sealed(self._nodes.id_of(row))
            elif now_s - self.heard_at_s(writer.epoch) > t.settings.writer_silence_s_max:
                self.take_over(row)
        if now_s < t.started_at_s + t.settings.dead_after_s:
            return  # leases from before may be in force at servers that have yet to report
        for handle in list(t.chunks.unsealed):
            row, _ = t.chunks.owner(handle)
            lease = t.leases.in_force(handle, now_s)
            is_over = lease is None or self._outdated.get(handle) == lease.version
            if row in t.space.writers or not is_over:
                continue
            if self._underways.of(handle) is None and self._is_time_to_seal(handle):
                if self._never_written(handle):
                    t.outbox.emit(op.ChunkDropped(self._nodes.id_of(row), handle))
                else:
                    self._seals.seal(handle)
        for table in (self._seal_at_s, self._told, self._outdated):
            for handle in [h for h in table if h not in t.chunks.unsealed]:
                del table[handle]

    # --- small things

    def _status(self, row: int) -> FileStatus:
        return self._listing.status(row, self._path(row))

    def _path(self, row: int) -> str:
        return join_path(self._nodes.path_of(row))
