"""What a replica holds after a stop of any kind (docs/formats/chunk.md, "Recovery").

Takes its files as they are found; gives the slot that is in force, and an overwrite that is still
to be finished. Every acknowledged byte is in what it gives. Changes nothing but a header that a
power cut left without its data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrstream.cluster.disk import Disk, opened
from mrstream.dfs.chunk import BLOCK_BYTES
from mrstream.dfs.chunks.replica_files import path_of, sync
from mrstream.dfs.chunks.verified import read_appends, read_verified
from mrstream.dfs.errors import ChunkCorrupt, NoSuchChunk
from mrstream.dfs.transfer import chunk_format as fmt
from mrstream.dfs.transfer.chunk_format import FormatError, Redo, Slot


@dataclass(frozen=True, slots=True)
class Recovered:
    """The slot in force; whether it may be in the cache only; an overwrite to be applied again."""

    slot: Slot
    is_doubtful: bool = False
    redo: Redo | None = None


def recover(disk: Disk, handle: int) -> Recovered:
    """Find out; raise ChunkCorrupt if nothing can be trusted, NoSuchChunk if the files are those
    of a creation that a power cut undid by half."""
    size = _size_of(disk, path_of(handle, "data"))
    header = _header(disk, handle, size)
    slots = fmt.decode_slots(header, handle)
    if not slots:
        if not size and not any(header):
            raise NoSuchChunk(f"chunk {handle:016x}: two empty files, nothing else")
        raise ChunkCorrupt(
            f"chunk {handle:016x}: the checksum file on {disk.name} has no valid header of this "
            "chunk"
        )
    redo = _redo(disk, handle, slots[0])
    # Without data there is nothing to redo: a deletion, or a creation, was undone by half.
    if redo is not None and size is not None:
        return Recovered(slots[0], redo=redo)
    found = _in_force(disk, slots, fmt.other_place(header, slots[0]))
    length = found.slot.length
    if size is None and length == 0:
        raise NoSuchChunk(f"chunk {handle:016x}: a header without data, never written to")
    if size is None or size < length:
        raise ChunkCorrupt(
            f"chunk {handle:016x}: the data file on {disk.name} "
            + ("is gone" if size is None else f"has {size} bytes, expected {length}")
        )
    return found


def _header(disk: Disk, handle: int, data_bytes: int | None) -> bytes:
    try:
        with opened(disk, path_of(handle, "sums")) as sums:
            return sums.read(fmt.TABLE_AT_BYTES, 0)
    except FileNotFoundError:
        if not data_bytes:
            raise NoSuchChunk(f"chunk {handle:016x}: an empty file, nothing else") from None
        raise ChunkCorrupt(f"chunk {handle:016x}: no checksum file on {disk.name}") from None


def _redo(disk: Disk, handle: int, newest: Slot) -> Redo | None:
    """The redo record that the last process left, unless it is torn or was applied long ago."""
    path = path_of(handle, "redo")
    if not disk.exists(path):
        return None
    with opened(disk, path) as file:
        record = file.read(file.size(), 0)
    try:
        redo = fmt.decode_redo(record, handle)
    except FormatError:
        redo = None
    if redo is None or redo.sequence < newest.sequence:
        disk.remove(path)
        return None
    return redo


def _in_force(disk: Disk, slots: Sequence[Slot], other: bytes) -> Recovered:
    newest = slots[0]
    if newest.boot != disk.boot_id():
        return Recovered(_trusted(disk, slots, was_synced=bool(other)))
    if len(slots) == 1 and other not in (b"", fmt.ERASED_SLOT):
        # The same boot: a header cannot be torn, so the damaged one has rotted, and it may have
        # been the newer.
        raise ChunkCorrupt(f"chunk {newest.handle:016x}: a header on {disk.name} is damaged")
    # The last process may have ended before it synced: it is in the cache, no more.
    return Recovered(newest, is_doubtful=True)


def _trusted(disk: Disk, slots: Sequence[Slot], *, was_synced: bool) -> Slot:
    """After a power cut: the newest slot whose change is whole on disk."""
    newest = slots[0]
    if len(slots) == 1:
        # The other slot is torn: it was being written, so this one was synced before. Unless there
        # has never been another: then nothing here was ever synced.
        if was_synced or _holds(disk, newest, 0):
            return newest
        raise NoSuchChunk(f"chunk {newest.handle:016x}: a first write that was cut short")
    older = slots[1]
    first_block = min(older.tail_index, newest.tail_index)
    if newest.says_the_same(older) or _holds(disk, newest, first_block):
        return newest
    if not _holds(disk, older, older.tail_index):
        raise ChunkCorrupt(
            f"chunk {newest.handle:016x}: neither header on {disk.name} agrees with the data"
        )
    # The newer one must not come back when a later change is cut short in its turn.
    with opened(disk, path_of(newest.handle, "sums"), write=True) as sums:
        sums.write(fmt.ERASED_SLOT, newest.place_bytes)
        sync(disk, sums)
    return older


def _holds(disk: Disk, slot: Slot, first_block: int) -> bool:
    """Do the blocks from `first_block` to the tail, and the log of appends, agree with the slot?"""
    start = first_block * BLOCK_BYTES

    def path(suffix: str) -> str:
        return path_of(slot.handle, suffix)

    try:
        read_appends(disk, path, slot)
        if start < slot.length:
            read_verified(disk, path, slot, start, slot.length - start, None)
    except ChunkCorrupt:
        return False
    return True


def _size_of(disk: Disk, path: str) -> int | None:
    """The length of a file, None if there is none."""
    try:
        with opened(disk, path) as file:
            return file.size()
    except FileNotFoundError:
        return None
