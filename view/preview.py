"""What a file begins with, in plain bytes and in lines, whatever it is compressed with.

Takes the first bytes as they are stored; makes few more than are shown, however many they stand
for. Never reads a file.
"""

from __future__ import annotations

from mrstream.streaming.formats.codec import CodecCorrupt, codec_by_suffix

PREVIEW_BYTES = 64 * 1024
PREVIEW_LINES = 200
FEED_BYTES = 64
"""Fed at a time to a decompressor: this much zstd is 2 MiB at the very most."""


def plain_head(path: str, data: bytes) -> bytes:
    """Return the first plain bytes of a file that begins with `data`, and never make many more."""
    codec = codec_by_suffix(path)
    if codec is None:
        return data[:PREVIEW_BYTES]
    decompressor, plain = codec.decompressor(), bytearray()
    for start in range(0, len(data), FEED_BYTES):
        for piece in decompressor.feed(data[start : start + FEED_BYTES]):
            plain += piece[:PREVIEW_BYTES]
            if len(plain) >= PREVIEW_BYTES:
                return bytes(plain[:PREVIEW_BYTES])
    return bytes(plain)


def preview_text(path: str, data: bytes) -> str:
    """Return the first lines of a file that begins with `data`."""
    try:
        lines = plain_head(path, data).split(b"\n")[:PREVIEW_LINES]
    except CodecCorrupt as error:
        return f"{path} cannot be decompressed: {error}"
    return b"\n".join(lines).decode("utf-8", "replace")
