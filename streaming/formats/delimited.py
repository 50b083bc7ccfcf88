"""Records behind their lengths: a varint, then so many bytes, again and again, as protocol buffers'
`writeDelimitedTo` writes them.

There is nothing in the data to begin at, so a file is never cut. What the bytes mean is others'.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrstream.streaming.formats.row_file import RecordFileCorrupt

RECORD_BYTES_MAX = 1 << 30
_LENGTH_BYTES_MAX = 10


class DelimitedRecords:
    """The records of a file, given its bytes in order."""

    def __init__(self, blobs: Iterator[bytes], url: str) -> None:
        self._blobs = blobs
        self._url = url
        self.position = 0
        """Where the record that was given last begins, in the plain bytes; at the end, the end."""

    def __iter__(self) -> Iterator[bytes]:
        held = bytearray()
        for blob in self._blobs:
            held += blob
            start = 0
            while (found := self._length(held, start)) is not None:
                body, length = found
                if len(held) < body + length:
                    break
                yield bytes(held[body : body + length])
                self.position += body + length - start
                start = body + length
            del held[:start]
        if held:
            raise RecordFileCorrupt(
                f"{self._url}: the message at byte {self.position} is cut off after "
                f"{len(held)} bytes"
            )

    def _length(self, held: bytearray, start: int) -> tuple[int, int] | None:
        """Return where the body begins and its length; None: not all of that is there."""
        value = 0
        for place in range(_LENGTH_BYTES_MAX):
            if start + place >= len(held):
                return None
            byte = held[start + place]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80 and value <= RECORD_BYTES_MAX:
                return start + place + 1, value
            if byte < 0x80:
                break
        raise RecordFileCorrupt(
            f"{self._url}: at byte {self.position} stands no length of a message"
        )
