"""The bytes of a chunk's checksum file and redo record (docs/formats/chunk.md).

Takes and gives bytes; shared by whoever writes chunks and whoever verifies them, the client's
short-circuit reader included. Never does any IO.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from crc32c import crc32c

from mrstream.dfs.chunk import BLOCK_BYTES
from mrstream.dfs.errors import ChunkCorrupt

Bytes: TypeAlias = bytes | bytearray | memoryview

SLOT_BYTES = 512
SLOT_COUNT = 2
TABLE_AT_BYTES = SLOT_BYTES * SLOT_COUNT
ENTRY_BYTES = 4
FORMAT = 1

_SLOT_MAGIC = b"MRSCHUNK"
_SLOT = struct.Struct("<8sHHIQQQQQII")
_REDO_MAGIC = b"MRSREDO1"
_REDO = struct.Struct("<8sQQQQ")
_CRC = struct.Struct("<I")
_SEED = struct.Struct("<QQ")
REDO_HEADER_BYTES = _REDO.size + _CRC.size
_ZERO_BLOCK = bytes(BLOCK_BYTES)
ERASED_SLOT = b"ERASED\0\0" * (SLOT_BYTES // 8)
"""In place of a slot whose change a power cut undid."""


class FormatError(ValueError):
    """The bytes are not what the format says; the message says in which way."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What a chunk is at one moment: the header of the checksum file."""

    handle: int
    version: int
    sequence: int
    length: int
    tail_crc: int
    boot: int
    round: int = 0
    appends: int = 0
    """So many entries has the log of appends, in the place of that round."""

    @property
    def tail_index(self) -> int:
        """The block of the last byte; 0 for an empty chunk."""
        return tail_index(self.length)

    def says_the_same(self, other: Slot) -> bool:
        """Do both vouch for the same bytes at the same version?"""
        return (self.version, self.length, self.tail_crc, self.round, self.appends) == (
            other.version,
            other.length,
            other.tail_crc,
            other.round,
            other.appends,
        )

    @property
    def place_bytes(self) -> int:
        """Where in the file this slot is written: slots take turns by their sequence."""
        return (self.sequence % SLOT_COUNT) * SLOT_BYTES


@dataclass(frozen=True, slots=True)
class Extension:
    """What an append changes: entries from `first_index` on, and the checksum of the new tail."""

    first_index: int
    entries: list[int]
    length: int
    tail_crc: int


@dataclass(frozen=True, slots=True)
class Redo:
    """Whole blocks that replace those from `first_block` on, and the slot that will say so."""

    handle: int
    sequence: int
    first_block: int
    images: Bytes


def tail_index(length: int) -> int:
    """The index of the block that holds the last of `length` bytes; 0 for none."""
    return max(0, length - 1) // BLOCK_BYTES


def id_mask(handle: int, block_index: int) -> int:
    """What binds a checksum to its chunk and its place in it."""
    return int(crc32c(_SEED.pack(handle, block_index)))


def id_masks(handle: int, first_index: int, count: int) -> list[int]:
    """The masks of consecutive blocks."""
    stop = first_index + count
    if stop > len(_index_masks):
        _index_masks.extend(
            id_mask(0, index) ^ id_mask(0, 0) for index in range(len(_index_masks), stop)
        )
    # A CRC is linear: what the index does to the mask is the same for every handle.
    of_handle = id_mask(handle, 0)
    return [of_handle ^ mask for mask in _index_masks[first_index:stop]]


_index_masks: list[int] = []
"""By block index; as long as the longest chunk that was read so far."""


def block_crc(handle: int, block_index: int, data: Bytes) -> int:
    """The stored checksum of a block that holds `data`."""
    return int(crc32c(data)) ^ id_mask(handle, block_index)


def extend_crc(handle: int, block_index: int, stored: int, data: Bytes) -> int:
    """The stored checksum of a block after `data` is appended to it (GFS §5.2: no re-reading)."""
    mask = id_mask(handle, block_index)
    return int(crc32c(data, stored ^ mask)) ^ mask


def empty_crc(handle: int, block_index: int) -> int:
    """The stored checksum of a block without bytes, from which `extend_crc` goes on."""
    return id_mask(handle, block_index)


def extend(handle: int, length: int, tail_crc: int, data: Bytes) -> Extension:
    """Say what appending `data` to a chunk of `length` bytes does to its checksums."""
    view = memoryview(data)
    index = tail_index(length)
    first_index = index
    fill = length - index * BLOCK_BYTES
    crc = tail_crc if length else empty_crc(handle, 0)
    entries = []
    position = 0
    while position < len(view):
        if fill == BLOCK_BYTES:
            entries.append(crc)
            index += 1
            fill = 0
            crc = empty_crc(handle, index)
        piece = view[position : position + BLOCK_BYTES - fill]
        crc = extend_crc(handle, index, crc, piece)
        position += len(piece)
        fill += len(piece)
    return Extension(first_index, entries, length + len(view), crc)


def encode_slot(slot: Slot) -> bytes:
    """Return the 512 bytes of a slot."""
    body = _SLOT.pack(
        _SLOT_MAGIC,
        FORMAT,
        slot.round,
        BLOCK_BYTES,
        slot.handle,
        slot.version,
        slot.sequence,
        slot.length,
        slot.boot,
        slot.tail_crc,
        slot.appends,
    )
    return (body + _CRC.pack(crc32c(body))).ljust(SLOT_BYTES, b"\0")


def decode_slot(data: Bytes) -> Slot:
    """Return the slot, or raise FormatError if it is torn, damaged or of another format."""
    if len(data) < _SLOT.size + _CRC.size:
        raise FormatError(f"slot has {len(data)} bytes, expected {SLOT_BYTES}")
    body = bytes(data[: _SLOT.size])
    (crc,) = _CRC.unpack_from(data, _SLOT.size)
    if crc != crc32c(body):
        raise FormatError(f"slot has crc {crc:#010x}, expected {crc32c(body):#010x}")
    fields = _SLOT.unpack(body)
    magic, form, round_, block_bytes, handle, version, sequence, length, boot = fields[:9]
    tail_crc, appends = fields[9:]
    if magic != _SLOT_MAGIC:
        raise FormatError(f"slot begins with {magic!r}, expected {_SLOT_MAGIC!r}")
    if form != FORMAT or block_bytes != BLOCK_BYTES:
        raise FormatError(
            f"slot has format {form} with blocks of {block_bytes}, "
            f"this version reads format {FORMAT} with blocks of {BLOCK_BYTES}"
        )
    return Slot(handle, version, sequence, length, tail_crc, boot, round_, appends)


def decode_slots(data: Bytes, handle: int) -> list[Slot]:
    """Return the valid slots of a checksum file for `handle`, the newest first.

    A slot that belongs to another chunk is not valid here: the file is swapped or misdirected.
    """
    slots = []
    for start in range(0, TABLE_AT_BYTES, SLOT_BYTES):
        try:
            slot = decode_slot(data[start : start + SLOT_BYTES])
        except FormatError:
            continue
        if slot.handle == handle and slot.place_bytes == start:
            slots.append(slot)
    return sorted(slots, key=lambda slot: slot.sequence, reverse=True)


def other_place(data: Bytes, slot: Slot) -> bytes:
    """The bytes where the other slot than this one goes; empty if none was ever written."""
    place = SLOT_BYTES - slot.place_bytes
    found = bytes(data[place : place + SLOT_BYTES])
    return found if any(found) else b""


def encode_table(entries: list[int]) -> bytes:
    return struct.pack(f"<{len(entries)}I", *entries)


def decode_table(data: Bytes) -> tuple[int, ...]:
    """Return the whole entries in `data`."""
    count = len(data) // ENTRY_BYTES
    return struct.unpack_from(f"<{count}I", data)


def entry_at_bytes(block_index: int) -> int:
    """Where the entry of a block is in the checksum file."""
    return TABLE_AT_BYTES + block_index * ENTRY_BYTES


def encode_redo_header(redo: Redo) -> bytes:
    """Return the bytes that go before the images of a redo record."""
    body = _REDO.pack(_REDO_MAGIC, redo.handle, redo.sequence, redo.first_block, len(redo.images))
    return body + _CRC.pack(crc32c(redo.images, crc32c(body)))


def decode_redo(data: Bytes, handle: int) -> Redo:
    """Return the redo record, or raise FormatError if it is torn or not of this chunk."""
    if len(data) < REDO_HEADER_BYTES:
        raise FormatError(f"redo record has {len(data)} bytes, header takes {REDO_HEADER_BYTES}")
    magic, owner, sequence, first_block, length = _REDO.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _REDO.size)
    images = memoryview(data)[REDO_HEADER_BYTES : REDO_HEADER_BYTES + length]
    if magic != _REDO_MAGIC or owner != handle or len(images) != length:
        raise FormatError(f"redo record of chunk {owner:016x} is cut short or not of {handle:016x}")
    if crc32c(images, crc32c(data[: _REDO.size])) != crc:
        raise FormatError(f"redo record of chunk {handle:016x} fails its checksum")
    return Redo(handle, sequence, first_block, images)


def zeros(size: int) -> memoryview:
    """Return `size` zero bytes, at most a block."""
    return memoryview(_ZERO_BLOCK)[:size]


def check_blocks(handle: int, first: int, view: memoryview, entries: Sequence[int]) -> None:
    """Compare blocks from `first` on with their stored checksums; raise ChunkCorrupt."""
    start = 0
    # This runs for every block that anybody reads: nothing is looked up or called that need not.
    for stored, mask in zip(entries, id_masks(handle, first, len(entries)), strict=True):
        if crc32c(view[start : start + BLOCK_BYTES]) ^ mask != stored:
            number = start // BLOCK_BYTES
            found = block_crc(handle, first + number, view[start : start + BLOCK_BYTES])
            raise ChunkCorrupt(
                f"chunk {handle:016x}: block {first + number} has crc {found:#010x}, "
                f"expected {stored:#010x}",
                handle=handle,
                block=first + number,
            )
        start += BLOCK_BYTES
