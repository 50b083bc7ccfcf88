"""Reading a replica's bytes together with the proof that they are right (B2).

Takes the two files of a replica and the slot that vouches for them; gives bytes whose every block
agrees with its checksum, or raises ChunkCorrupt. Never changes anything.
"""

from __future__ import annotations

from collections.abc import Callable

from mrstream.cluster.disk import Disk, opened
from mrstream.dfs.chunk import BLOCK_BYTES
from mrstream.dfs.chunks.append_log import STORED_BYTES as APPEND_BYTES
from mrstream.dfs.chunks.append_log import Appended, decode_entries, place_bytes
from mrstream.dfs.errors import ChunkCorrupt
from mrstream.dfs.transfer import chunk_format as fmt
from mrstream.dfs.transfer.chunk_format import Slot

PathOf = Callable[[str], str]
"""`data` or `sums` → the path of that file on the disk."""


def read_verified(
    disk: Disk, path_of: PathOf, slot: Slot, offset: int, size: int, buffer: bytearray | None
) -> memoryview:
    """Return the bytes of the range that exist; in `buffer` if that is large enough."""
    end = min(offset + size, slot.length)
    if offset >= end:
        return memoryview(b"")
    first = offset // BLOCK_BYTES
    last = (end - 1) // BLOCK_BYTES
    start = first * BLOCK_BYTES
    stop = min((last + 1) * BLOCK_BYTES, slot.length)
    if buffer is None or len(buffer) < stop - start:
        buffer = bytearray(stop - start)
    view = memoryview(buffer)[: stop - start]
    try:
        with opened(disk, path_of("data")) as data:
            count = data.read_into(view, start)
        entries = _entries(disk, path_of("sums"), slot, first, last)
    except FileNotFoundError as error:
        raise ChunkCorrupt(
            f"chunk {slot.handle:016x}: {error.filename} is gone", handle=slot.handle
        ) from None
    if count < len(view):
        raise ChunkCorrupt(
            f"chunk {slot.handle:016x}: the data file ends at {start + count}, "
            f"expected {slot.length} bytes",
            handle=slot.handle,
        )
    fmt.check_blocks(slot.handle, first, view, entries)
    return view[offset - start : end - start]


def read_appends(disk: Disk, path_of: PathOf, slot: Slot) -> list[Appended]:
    """Return the log of appends that the slot vouches for."""
    if not slot.appends:
        return []
    try:
        with opened(disk, path_of("sums")) as sums:
            stored = sums.read(slot.appends * APPEND_BYTES, place_bytes(slot.round, 0))
    except FileNotFoundError as error:
        raise ChunkCorrupt(
            f"chunk {slot.handle:016x}: {error.filename} is gone", handle=slot.handle
        ) from None
    return decode_entries(slot.handle, slot.round, slot.appends, stored)


def _entries(disk: Disk, path: str, slot: Slot, first: int, last: int) -> list[int]:
    """The stored checksums of blocks `first` to `last`, the tail's from the slot."""
    stop = min(last + 1, slot.tail_index)
    entries: list[int] = []
    if first < stop:
        with opened(disk, path) as sums:
            table = sums.read((stop - first) * fmt.ENTRY_BYTES, fmt.entry_at_bytes(first))
        entries.extend(fmt.decode_table(table))
        if len(entries) < stop - first:
            raise ChunkCorrupt(
                f"chunk {slot.handle:016x}: the checksum file has no entry for block "
                f"{first + len(entries)}",
                handle=slot.handle,
            )
    if last == slot.tail_index:
        entries.append(slot.tail_crc)
    return entries
