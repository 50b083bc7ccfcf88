"""bzip2 from the middle: the compressed blocks of a file, each decompressed on its own.

A bzip2 block begins with a 48-bit mark at any bit position, so a file can be cut between blocks.
A block belongs to the piece of the file in which the byte lies where its mark begins. `blocks`
finds them from a byte position on, wraps each into a stream of its own and decompresses it; it
never needs what came before. Takes a stream of bytes, opens no file.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterable, Iterator

from mrstream.streaming.formats.codec import CodecCorrupt

_BLOCK_MARK = 0x314159265359
_STREAM_END_MARK = 0x177245385090
_MARK_BITS = 48
# A block holds at most 900 kB, which takes at most a little more compressed; past this it cannot
# be one block.
_BLOCK_BYTES_MAX = 2 * 1024 * 1024


def _needles(mark: int) -> list[tuple[int, bytes]]:
    """For each bit shift, the five whole bytes after the first one, as they lie in the file."""
    return [(shift, (mark >> shift & 0xFFFFFFFFFF).to_bytes(5, "big")) for shift in range(8)]


_NEEDLES = [
    (mark, shift, needle)
    for mark in (_BLOCK_MARK, _STREAM_END_MARK)
    for shift, needle in _needles(mark)
]


def blocks(blobs: Iterable[bytes], start: int) -> Iterator[tuple[int, bytes]]:
    """Yield (byte position of its mark, plain bytes) for each block from `start` on.

    `blobs` is the compressed file from byte `start` on.
    """
    source = iter(blobs)
    buffer = b""
    base = start
    at_end = False
    begin: int | None = None  # bit index in `buffer` of the mark of the block that is open
    search = 0  # bit index from which the next mark is looked for
    while True:
        found = _next_mark(buffer, search)
        if found is None:
            if at_end:
                if begin is not None:
                    raise CodecCorrupt("the bzip2 stream is cut off")
                return
            # A mark may lie across the seam: look at its last bytes again.
            search = max(search, (len(buffer) - 7) * 8)
            drop = (search if begin is None else begin) // 8
            buffer, base = buffer[drop:], base + drop
            search -= drop * 8
            begin = None if begin is None else begin - drop * 8
            if begin is not None and len(buffer) > _BLOCK_BYTES_MAX:
                raise CodecCorrupt("damaged bzip2 stream: a block without end")
            more = next(source, b"")
            at_end = not more
            buffer += more
            continue
        mark, bit = found
        if begin is not None:
            yield base + begin // 8, _decompress(buffer, begin, bit)
        begin = bit if mark == _BLOCK_MARK else None
        search = bit + _MARK_BITS


def _next_mark(buffer: bytes, search_bit: int) -> tuple[int, int] | None:
    """Find the first mark at or after a bit position: (mark, its bit)."""
    best: tuple[int, int] | None = None
    for mark, shift, needle in _NEEDLES:
        bit = _find(buffer, mark, shift, needle, search_bit, best[1] if best else None)
        if bit is not None:
            best = (mark, bit)
    return best


def _find(
    buffer: bytes, mark: int, shift: int, needle: bytes, search_bit: int, before: int | None
) -> int | None:
    """Find a mark whose first bit is bit `shift` of some byte, at or after `search_bit` and
    before `before`."""
    limit = len(buffer) if before is None else min(len(buffer), before // 8 + 8)
    middle = buffer.find(needle, search_bit // 8 + 1, limit)
    while middle >= 0:
        bit = (middle - 1) * 8 + shift
        if before is not None and bit >= before:
            return None
        if bit >= search_bit and _bits(buffer, bit, _MARK_BITS) == mark:
            return bit
        middle = buffer.find(needle, middle + 1, limit)
    return None


def _bits(buffer: bytes, bit: int, count: int) -> int | None:
    end = (bit + count + 7) // 8
    if end > len(buffer):
        return None
    value = int.from_bytes(buffer[bit // 8 : end], "big")
    return (value >> (end * 8 - bit - count)) & ((1 << count) - 1)


def _decompress(buffer: bytes, begin: int, end: int) -> bytes:
    """Decompress the block in bits [begin, end): give it a header and an end of its own."""
    crc = _bits(buffer, begin + _MARK_BITS, 32)
    body = _bits(buffer, begin, end - begin)
    assert crc is not None and body is not None, "the caller holds the whole block"
    bits = end - begin
    # A stream of one block has that block's checksum.
    stream = (((body << _MARK_BITS) | _STREAM_END_MARK) << 32) | crc
    bits += _MARK_BITS + 32
    padding = -bits % 8
    packed = (stream << padding).to_bytes((bits + padding) // 8, "big")
    try:
        return bz2.decompress(b"BZh9" + packed)
    except (OSError, ValueError) as error:
        raise CodecCorrupt(f"damaged bzip2 block: {error}") from None
