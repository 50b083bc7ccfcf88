"""Frames: bytes in, whole messages out. Sans-IO; the grammar is in docs/formats/frames.md.

A frame is a 13-byte header (body length u32, kind u8, number u64, little-endian) and a body. The
decoder never holds more than one frame of at most `body_bytes_max` bytes: a longer length is
refused as soon as the header is there, before any of the body is stored.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any

from mrstream.cluster.errors import Speechless
from mrstream.cluster.wire.messages import pack_into

HEADER = struct.Struct("<IBQ")
HEADER_BYTES = HEADER.size
UNPROVEN_BYTES_MAX = 1024
BODY_BYTES_MAX = 32 * 1024 * 1024
PROTOCOL_VERSION = 1


class Kind(IntEnum):
    HANDSHAKE = 1
    CALL = 2
    REPLY = 3
    ERROR = 4
    PUSH = 5


KIND_MAX = max(Kind)
_EMPTY_HEADER = bytes(HEADER_BYTES)

Frame = tuple[int, int, bytes]
"""(kind, number, body)."""


def encode_frame(kind: int, number: int, message: Any) -> bytearray:
    frame = bytearray(_EMPTY_HEADER)
    pack_into(message, frame, HEADER_BYTES)
    HEADER.pack_into(frame, 0, len(frame) - HEADER_BYTES, kind, number)
    return frame


def parse_header(
    header: bytes | bytearray | memoryview, body_bytes_max: int
) -> tuple[int, int, int]:
    """Return (body length, kind, number) of a header, or raise `Speechless`."""
    length, kind, number = HEADER.unpack_from(header)
    if not 1 <= kind <= KIND_MAX:
        raise Speechless(f"a frame is of kind {kind}; kinds are 1 to {int(KIND_MAX)}")
    if length > body_bytes_max:
        raise Speechless(
            f"a frame announces {length:,} bytes; at most {body_bytes_max:,} may come here"
        )
    return length, kind, number


class FrameDecoder:
    """Cuts a stream into frames; feed it whatever arrives."""

    def __init__(self, body_bytes_max: int = UNPROVEN_BYTES_MAX) -> None:
        self.body_bytes_max = body_bytes_max
        self._held = bytearray()
        self._needed = HEADER_BYTES

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Return the frames that these bytes complete; raise `Speechless` for a bad header.

        Frames that were complete before the bad header are lost with it: the connection ends.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return []
            data = bytes(self._held)
            self._held = bytearray()
        return self._cut(bytes(data) if type(data) is not bytes else data)

    def _cut(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        start, end = 0, len(data)
        self._needed = HEADER_BYTES
        while end - start >= HEADER_BYTES:
            length, kind, number = HEADER.unpack_from(data, start)
            if length > self.body_bytes_max or not 1 <= kind <= KIND_MAX:
                parse_header(data[start : start + HEADER_BYTES], self.body_bytes_max)
            body_at = start + HEADER_BYTES
            if end - body_at < length:
                self._needed = HEADER_BYTES + length
                break
            start = body_at + length
            frames.append((kind, number, data[body_at:start]))
        if start < end:
            self._held = bytearray(data[start:])
        return frames

    @property
    def held_bytes(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return len(self._held)
