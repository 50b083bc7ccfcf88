"""Frames on the pipe or socket between an attempt and whoever started it: a length, then a body.

One form for all that is said there, in both directions: reports, news of map output, further
orders. Takes and gives bytes; knows nothing of what they say.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from mrstream.cluster.errors import Speechless

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Of one body; the `Done` of a map with a million partitions has some 30 MB."""
_LENGTH = struct.Struct("<I")


def framed(body: bytes) -> bytes:
    """Return a body as it goes through the pipe."""
    return _LENGTH.pack(len(body)) + body


class Cutter:
    """Cuts the bytes of a pipe into bodies."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take some bytes; give the bodies that are complete. `Speechless` if the bytes announce
        more than anybody here says: then nobody knows where the next body would begin."""
        pending = self._pending
        pending += data
        start = 0
        while len(pending) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(pending, start)
            if length > FRAME_BYTES_MAX:
                raise Speechless(
                    f"an attempt announces {length:,} bytes; at most {FRAME_BYTES_MAX:,} may come"
                )
            end = start + _LENGTH.size + length
            if len(pending) < end:
                break
            yield bytes(pending[start + _LENGTH.size : end])
            start = end
        del pending[:start]


def receive(source: socket.socket) -> bytes:
    """Wait for one body; nothing if the other side is gone, in the middle of one too."""
    head = source.recv(_LENGTH.size, socket.MSG_WAITALL)
    if len(head) < _LENGTH.size:
        return b""
    (length,) = _LENGTH.unpack(head)
    body = source.recv(length, socket.MSG_WAITALL)
    return body if len(body) == length else b""
