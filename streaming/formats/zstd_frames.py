"""The seekable form of zstd: many frames, and at the end a table of where each begins.

The table lies in a frame that other readers skip, so such a file is plain zstd to everybody else.
Gives where the frames are, in the file and in the plain text; decompresses nothing.
"""

from __future__ import annotations

import struct
from typing import Protocol

import msgspec

from mrstream.streaming.formats.codec import CodecCorrupt

_SKIPPABLE_MAGIC = 0x184D2A5E
_SEEKABLE_MAGIC = 0x8F92EAB1
_FOOTER = struct.Struct("<IBI")
_HAS_CHECKSUMS = 0x80
_FRAMES_MAX = 1 << 27


class Source(Protocol):
    """A file that can be read at a place."""

    def read(self, count: int = -1, /) -> bytes: ...

    def seek(self, position: int, whence: int = 0, /) -> int: ...


class Frame(msgspec.Struct, frozen=True):
    """One frame: where it begins, in the file and in the plain text."""

    at: int
    plain_at: int


class SeekTable(msgspec.Struct, frozen=True):
    """All frames that hold anything, in order; `end` and `plain_end` are where the last ends."""

    frames: tuple[Frame, ...]
    end: int
    plain_end: int

    def plain_range(self, start: int, end: int) -> tuple[int, int, int]:
        """Return what belongs to a range of the file, the frames that begin in it: the first of
        them in the file, and their first and last byte in the plain text."""
        first = next((frame for frame in self.frames if frame.at >= start), None)
        if first is None or first.at >= end:
            return self.end, self.plain_end, self.plain_end
        behind = next((frame.plain_at for frame in self.frames if frame.at >= end), self.plain_end)
        return first.at, first.plain_at, behind


def seek_table(source: Source) -> SeekTable | None:
    """Return the table of a seekable file, None for any other; `CodecCorrupt` if it is damaged."""
    size = source.seek(0, 2)
    if size < _FOOTER.size + 8:
        return None
    count, descriptor, magic = _FOOTER.unpack(_read(source, size - _FOOTER.size, _FOOTER.size))
    if magic != _SEEKABLE_MAGIC:
        return None
    entry_bytes = 12 if descriptor & _HAS_CHECKSUMS else 8
    table_bytes = count * entry_bytes + _FOOTER.size
    start = size - table_bytes - 8
    if count > _FRAMES_MAX or start < 0:
        raise CodecCorrupt(f"its table says {count} frames, for which the file is too short")
    frame_magic, frame_bytes = struct.unpack("<II", _read(source, start, 8))
    if frame_magic != _SKIPPABLE_MAGIC or frame_bytes != table_bytes:
        raise CodecCorrupt("its table of frames does not begin where its end says")
    data = _read(source, start + 8, count * entry_bytes)
    frames = []
    at = plain_at = 0
    for offset in range(0, len(data), entry_bytes):
        packed, plain = struct.unpack_from("<II", data, offset)
        if plain:  # a frame without text would begin where the next does
            frames.append(Frame(at, plain_at))
        at += packed
        plain_at += plain
    if at != start:
        raise CodecCorrupt(f"its table says {at} bytes of frames, and there are {start}")
    return SeekTable(tuple(frames), at, plain_at)


def _read(source: Source, position: int, count: int) -> bytes:
    source.seek(position)
    parts: list[bytes] = []
    while count > 0 and (part := source.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
