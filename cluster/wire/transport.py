"""What both ends of a control connection do: gather frames to write, and mind the write buffer."""

from __future__ import annotations

import asyncio
from typing import cast

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.addresses import tune
from mrstream.cluster.wire.frames import FrameDecoder
from mrstream.cluster.wire.handshake import refusal

WRITE_BUFFER_BYTES_MAX = 4 * 1024 * 1024
LARGE_FRAME_BYTES = 16 * 1024


class Wire(asyncio.Protocol):
    """One end of a connection; everything queued in one turn of the loop leaves in one write."""

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._decoder = FrameDecoder()
        """Has half a frame, if any."""
        self._out: list[bytes | bytearray] = []
        """Frames of this turn of the loop, in order; what is queued behind the end goes nowhere."""
        self._flush_due = False
        """They leave at the end of the turn: asked for once."""
        self.connected = False
        """From the beginning of the connection to its end, whoever ends it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            tune(sock)
        self.connected = True

    def _send(self, frame: bytes | bytearray) -> None:
        """Queue a frame; a large one leaves at once."""
        self._out.append(frame)
        if len(frame) > LARGE_FRAME_BYTES:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        out = self._out
        if out and self.connected:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    def _refuse(self, error: ClusterError) -> None:
        """Say why, then end the connection."""
        self._send(refusal(error))
        self._flush()
        self.transport.close()
