"""One replica of a chunk: two files of one disk, read and changed as docs/formats/chunk.md says.

Takes byte ranges; gives verified bytes. A change returns when it is on disk (B1), a read gives
nothing that its checksum does not cover (B2). Changes of one replica go one after the other;
reads go beside them. Knows nothing of leases, of other replicas or of the network.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mrstream.cluster.disk import Disk, DiskFile, opened
from mrstream.cluster.errors import DiskFailed
from mrstream.dfs.chunk import BLOCK_BYTES
from mrstream.dfs.chunks.append_log import (
    PADDING,
    Appended,
    AppendLog,
    Step,
    encode_entries,
    place_bytes,
)
from mrstream.dfs.chunks.recovery import recover
from mrstream.dfs.chunks.replica_files import (
    INCOMING,
    directory_of,
    incoming_path_of,
    make_directory,
    path_of,
    remove_files,
    sync,
    sync_directory,
)
from mrstream.dfs.chunks.verified import read_appends, read_verified
from mrstream.dfs.errors import ChunkCorrupt
from mrstream.dfs.transfer import chunk_format as fmt
from mrstream.dfs.transfer.chunk_format import Bytes, Slot

WRITE_OUT_BYTES = 16 << 20
"""How much of a long write the disk is handed at a time before the sync: asking it is not free."""


class Replica:
    """A chunk on a disk. `slot` is what is acknowledged of it; it is replaced, never changed."""

    def __init__(self, disk: Disk, handle: int, slot: Slot, *, incoming: bool = False) -> None:
        self.disk = disk
        self.handle = handle
        self.slot = slot
        """What is so now; replaced under the lock, read without it."""
        self._incoming = incoming
        """It lies aside, and a restart forgets it; false from `settle` on."""
        self._is_named = True
        """Are its names durable? Else the next sync sees to it."""
        self._is_synced = True
        """Is everything that `_slot` says on disk?"""
        self._is_doubtful = False
        """A recovery believed what may only have been in the cache: it is synced before anything
        rests on it."""
        self._kept_slot = slot
        """The last that is known to be on disk; its place is not written over by the next."""
        self._log = None if slot.appends else AppendLog(handle, slot.round)
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        return self.slot.version

    @property
    def length(self) -> int:
        return self.slot.length

    # --- making and finding

    @classmethod
    def create(
        cls,
        disk: Disk,
        handle: int,
        version: int,
        *,
        incoming: bool = False,
        appended: Sequence[Appended] = (),
    ) -> Replica:
        """Make an empty replica; the first change, not this, makes its names durable.

        An `incoming` one lies aside, is forgotten by a restart, and counts from `settle` on. Its
        log of appends begins with those `appended` before it was made.
        """
        slot = Slot(handle, version, 1, 0, 0, disk.boot_id(), 0, len(appended))
        replica = cls(disk, handle, slot, incoming=incoming)
        replica._log = AppendLog(handle, 0, appended, is_clean=True)
        directory = INCOMING if incoming else directory_of(handle)
        make_directory(disk, directory)
        # `create` empties what a deletion cut short may have left.
        with opened(disk, replica._path("data"), create=True):
            pass
        with opened(disk, replica._path("sums"), create=True) as sums:
            if appended:
                sums.write(encode_entries(handle, Step(0, 0, appended)), place_bytes(0, 0))
            sums.write(fmt.encode_slot(slot), slot.place_bytes)
        replica._is_named = False
        return replica

    def settle(self) -> None:
        """Make a complete incoming replica count, in place of any other of its chunk here."""
        with self._lock:
            assert self._incoming, f"chunk {self.handle:016x} has settled already"
            make_directory(self.disk, directory_of(self.handle))
            with self._both_files() as (data, sums):
                self._sync_files(data, sums)
                sync(self.disk, sums)
            self.disk.remove(path_of(self.handle, "redo"))
            for suffix in ("data", "sums"):
                self.disk.rename(
                    incoming_path_of(self.handle, suffix), path_of(self.handle, suffix)
                )
            self._incoming = False
            self._is_named = False
            self._sync_names()

    def _path(self, suffix: str) -> str:
        return (incoming_path_of if self._incoming else path_of)(self.handle, suffix)

    @classmethod
    def recover(cls, disk: Disk, handle: int) -> Replica:
        """Find out what a replica holds after a stop of any kind; raise ChunkCorrupt if nothing
        can be trusted, NoSuchChunk if its files are those of a creation that a power cut undid by
        half. Every acknowledged byte is in what it gives."""
        found = recover(disk, handle)
        replica = cls(disk, handle, found.slot)
        if found.redo is not None:
            replica._apply(found.redo.first_block, found.redo.images)
            disk.remove(replica._path("redo"))
        # A process that ended before its first sync had not synced the names of the files either.
        replica._is_doubtful, replica._is_named = found.is_doubtful, not found.is_doubtful
        return replica

    # --- reading

    def read(self, offset: int, size: int, buffer: bytearray | None = None) -> memoryview:
        """Return the bytes of the range that exist, verified; raise ChunkCorrupt if any is bad.

        `buffer`, if given and large enough, holds the result until its next use.
        """
        try:
            return self._read_verified(self.slot, offset, size, buffer)
        except ChunkCorrupt:
            # An overwrite may have been under way: judge only what stands still.
            with self._lock:
                return self._read_verified(self.slot, offset, size, buffer)

    def _read_verified(
        self, slot: Slot, offset: int, size: int, buffer: bytearray | None = None
    ) -> memoryview:
        return read_verified(self.disk, self._path, slot, offset, size, buffer)

    def open_files(self) -> tuple[DiskFile, DiskFile]:
        """Return the data and the checksum file, open for reading; the caller closes them."""
        data = self.disk.open(self._path("data"))
        try:
            return data, self.disk.open(self._path("sums"))
        except OSError:
            data.close()
            raise

    # --- appends

    def last_append_of(self, appender: int) -> Appended | None:
        """What that appender appended last; ChunkCorrupt if the log cannot be trusted."""
        with self._lock:
            return self._appends().last_of(appender)

    def appended(self, length: int) -> list[Appended]:
        """The appends that count in the first `length` bytes, one for each appender."""
        with self._lock:
            return self._appends().table(length)

    @property
    def agreed(self) -> int:
        """So far all replicas have these bytes for certain: a serialised append begins only when
        the one before it is everywhere."""
        with self._lock:
            newest = self._appends().newest
            length = self.slot.length
            is_last = newest is not None and newest.end == length and length > 0
            return length - newest.length_bytes if newest is not None and is_last else length

    def append(self, pieces: Sequence[Bytes], entry: Appended) -> int:
        """Put the pieces at the end, zeros for `PADDING`, and note whose they are: both, or
        neither, are there after a stop of any kind. Return the new length."""
        with self._lock:
            offset = self.slot.length
            if entry.appender == PADDING:
                offset += entry.length_bytes
            log = self._appends()
            try:
                self._append(offset, pieces, durable=True, step=log.next(entry))
            except OSError:
                log.soil()
                raise
            return self.slot.length

    def _appends(self) -> AppendLog:
        if self._log is None:
            entries = read_appends(self.disk, self._path, self.slot)
            self._log = AppendLog(self.handle, self.slot.round, entries)
        return self._log

    # --- changing

    def write(self, offset: int, pieces: Sequence[Bytes], *, durable: bool = True) -> int:
        """Put the pieces, one after the other, at `offset`; return the new length.

        A gap after the present end becomes zeros. If `durable`, this and all before it is on
        disk when it returns. On an error before the sync nothing acknowledged has changed.
        """
        size = sum(len(piece) for piece in pieces)
        with self._lock:
            # What replaces bytes and what adds some go apart, so that an overwrite, once its
            # redo record is on disk, cannot end for want of space.
            old_bytes = max(0, min(size, self.slot.length - offset))
            if old_bytes:
                self._overwrite(offset, _cut(pieces, 0, old_bytes), old_bytes)
            if old_bytes < size:
                self._append(offset + old_bytes, _cut(pieces, old_bytes, size), durable)
            elif durable and (self._is_doubtful or not self._is_synced):
                self._sync_all()
            return self.slot.length

    def pad(self, length: int) -> int:
        """Make the chunk at least `length` bytes long with zeros; return its length."""
        with self._lock:
            if self.slot.length < length:
                self._append(length, (), durable=True)
            return self.slot.length

    def set_version(self, version: int) -> None:
        """Remember the version of a new lease; on disk, with all before it, when it returns."""
        with self._lock:
            slot = self.slot
            self._commit_slot(self._following(slot.length, slot.tail_crc, version))

    def truncate(self, length: int) -> None:
        """Forget the bytes from `length` on, which no client was told are there."""
        with self._lock:
            slot = self.slot
            if length < slot.length:
                tail_crc = self._crc_of_prefix(slot, length)
                log = self._appends()
                count = log.kept(length)
                following = self._following(length, tail_crc, slot.version)
                self._commit_slot(replace(following, appends=count))
                log.cut(count)

    def remove(self) -> None:
        """Delete the files; their names are gone from the disk when it returns."""
        with self._lock:
            if self._incoming:
                for suffix in ("redo", "sums", "data"):
                    self.disk.remove(self._path(suffix))
            else:
                remove_files(self.disk, self.handle)

    def _crc_of_prefix(self, slot: Slot, length: int) -> int:
        if length == 0:
            return 0
        index = fmt.tail_index(length)
        start = index * BLOCK_BYTES
        block = self._read_verified(slot, start, length - start, None)
        return fmt.block_crc(self.handle, index, block)

    def _following(self, length: int, tail_crc: int, version: int) -> Slot:
        """The slot that comes next: never in the place of the last one that is on disk."""
        if self._is_doubtful:
            self._sync_all()
        slot = Slot(
            self.handle,
            version,
            self.slot.sequence + 1,
            length,
            tail_crc,
            self.disk.boot_id(),
            self.slot.round,
            self.slot.appends,
        )
        if slot.place_bytes == self._kept_slot.place_bytes:
            slot = replace(slot, sequence=slot.sequence + 1)
        return slot

    def _append(
        self, offset: int, pieces: Sequence[Bytes], durable: bool, step: Step | None = None
    ) -> None:
        slot = self.slot
        with self._both_files() as (data, sums):
            first_index = slot.tail_index
            entries: list[int] = []
            length, tail_crc = slot.length, slot.tail_crc
            gap = offset - length
            if gap:
                # Bytes of an append that was cut short may lie behind the length.
                data.truncate(length)
                data.truncate(offset)
            for piece in [*_zero_pieces(gap, length), *pieces]:
                longer = fmt.extend(self.handle, length, tail_crc, piece)
                entries.extend(longer.entries)
                length, tail_crc = longer.length, longer.tail_crc
            position = offset
            for piece in pieces:
                data.write(piece, position)
                position += len(piece)
            following = self._following(length, tail_crc, slot.version)
            if step is not None:
                sums.write(encode_entries(self.handle, step), place_bytes(step.round, step.first))
                following = replace(following, round=step.round, appends=step.stop)
            self._commit(data, sums, following, first_index, entries, durable)
            if step is not None:
                self._appends().take(step)
            written_out = position - position % WRITE_OUT_BYTES
            if not durable and written_out > offset:
                data.begin_writing_out(written_out - WRITE_OUT_BYTES, WRITE_OUT_BYTES)

    def _overwrite(self, offset: int, pieces: Sequence[Bytes], size: int) -> None:
        if self._is_doubtful or not self._is_synced:
            self._sync_all()
        slot = self.slot
        end = offset + size
        first_block = offset // BLOCK_BYTES
        start = first_block * BLOCK_BYTES
        stop = min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, slot.length)
        images = bytearray(stop - start)
        # GFS §5.2: a block that is changed in part is verified first, or its new checksum
        # would cover up old damage in the rest.
        images[: offset - start] = self._read_verified(slot, start, offset - start, None)
        images[end - start :] = self._read_verified(slot, end, stop - end, None)
        position = offset - start
        for piece in pieces:
            images[position : position + len(piece)] = piece
            position += len(piece)
        following = self._following(slot.length, slot.tail_crc, slot.version)
        redo = fmt.Redo(self.handle, following.sequence, first_block, images)
        path = self._path("redo")
        try:
            with opened(self.disk, path, create=True) as file:
                file.write(fmt.encode_redo_header(redo), 0)
                file.write(images, fmt.REDO_HEADER_BYTES)
                sync(self.disk, file)
        except OSError:
            self.disk.remove(path)
            raise
        sync_directory(self.disk, self._directory)
        # From here on the overwrite will happen, now or at the next start.
        try:
            self._apply(first_block, images)
        except OSError as error:
            raise DiskFailed(
                f"chunk {self.handle:016x}: an overwrite on {self.disk.name} broke off: {error}"
            ) from error
        self.disk.remove(path)

    def _apply(self, first_block: int, images: Bytes) -> None:
        """Put whole blocks in place; doing it again gives the same."""
        slot = self.slot
        start = first_block * BLOCK_BYTES
        length = slot.length
        view = memoryview(images)
        assert start + len(view) <= length, "a redo record replaces bytes, it adds none"
        crcs = [
            fmt.block_crc(self.handle, first_block + number, view[at : at + BLOCK_BYTES])
            for number, at in enumerate(range(0, len(view), BLOCK_BYTES))
        ]
        tail_crc = slot.tail_crc
        if first_block + len(crcs) - 1 == fmt.tail_index(length):
            tail_crc = crcs.pop()
        with self._both_files() as (data, sums):
            data.write(view, start)
            following = self._following(length, tail_crc, slot.version)
            self._commit(data, sums, following, first_block, crcs, True)

    def _commit(
        self,
        data: DiskFile,
        sums: DiskFile,
        slot: Slot,
        first_index: int,
        entries: list[int],
        durable: bool,
    ) -> None:
        if entries:
            sums.write(fmt.encode_table(entries), fmt.entry_at_bytes(first_index))
        sums.write(fmt.encode_slot(slot), slot.place_bytes)
        self.slot = slot
        # Nobody is told of an incoming replica before it settles, and settling syncs.
        if durable and not self._incoming:
            self._sync_files(data, sums)
        else:
            self._is_synced = False

    def _sync_files(self, data: DiskFile, sums: DiskFile) -> None:
        """Make what was written so far durable, then say so in the other slot too.

        That needs no sync of its own: it only spares a recovery from reading what it says, and
        from taking rot in it for a change that was cut short.
        """
        sync(self.disk, data)
        sync(self.disk, sums)
        self._sync_names()
        self._kept_slot = self.slot
        self._is_synced = True
        self._is_doubtful = False
        slot = self.slot
        again = self._following(slot.length, slot.tail_crc, slot.version)
        sums.write(fmt.encode_slot(again), again.place_bytes)
        self.slot = again

    def _commit_slot(self, slot: Slot) -> None:
        with self._both_files() as (data, sums):
            self._commit(data, sums, slot, 0, [], True)

    def _sync_all(self) -> None:
        """Make what was written so far durable."""
        if not self._incoming:
            with self._both_files() as (data, sums):
                self._sync_files(data, sums)

    def _sync_names(self) -> None:
        if not self._is_named:
            sync_directory(self.disk, self._directory)
            self._is_named = True

    @property
    def _directory(self) -> str:
        return INCOMING if self._incoming else directory_of(self.handle)

    @contextlib.contextmanager
    def _both_files(self) -> Iterator[tuple[DiskFile, DiskFile]]:
        with opened(self.disk, self._path("data"), write=True) as data:
            with opened(self.disk, self._path("sums"), write=True) as sums:
                yield data, sums


def _cut(pieces: Sequence[Bytes], start: int, stop: int) -> list[Bytes]:
    """The bytes `start` to `stop` of the pieces, in pieces."""
    parts: list[Bytes] = []
    position = 0
    for piece in pieces:
        begin, end = max(start - position, 0), min(stop - position, len(piece))
        if begin < end:
            parts.append(memoryview(piece)[begin:end])
        position += len(piece)
    return parts


def _zero_pieces(size: int, length: int) -> Iterator[memoryview]:
    """`size` zeros in pieces that end at block borders of a chunk of `length` bytes."""
    while size > 0:
        piece = fmt.zeros(min(size, BLOCK_BYTES - length % BLOCK_BYTES))
        yield piece
        size -= len(piece)
        length += len(piece)
