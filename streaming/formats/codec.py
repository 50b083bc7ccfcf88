"""Hadoop's compression codecs, by class name and by file suffix.

Each codec gives a decompressor and a compressor that are fed blobs and give blobs; concatenated
streams are one stream. gzip, zlib (`.deflate`), bzip2 and zstd are the formats that everybody
knows; lz4 and snappy are in Hadoop's own framing (docs/formats/block-codecs.md). No file is
opened here; the libraries are imported when first needed.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, cast

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.streaming.formats.text_lines import gathered

_PACKAGE = "org.apache.hadoop.io.compress."
# io.compression.codec.{lz4,snappy}.buffersize of Hadoop.
BLOCK_BYTES = 256 * 1024
# What a lz4 or snappy block may say that it holds before we call it damaged rather than try to
# allocate it.
BLOCK_BYTES_MAX = 1 << 30
# How much plain text is made at a time.
PLAIN_BYTES = 1 << 20
# zstd has no limit on what one call gives; from this much it can be 32 MB at the very most.
_ZSTD_FEED_BYTES = 1 << 10


class CodecCorrupt(Corrupt):
    """Compressed bytes that do not decompress."""


class UnknownCodec(UserError):
    """A codec class that is not built in."""


class Decompressor(Protocol):
    """Fed compressed bytes, gives plain ones; a kilobyte that says "a gigabyte of zeros" is no
    reason to hold a gigabyte.
    """

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return what `data` completes, in bounded pieces; to be used up before the next call."""

    def finish(self) -> None:
        """Say that no more comes; raises `CodecCorrupt` if the stream is cut off."""


class Compressor(Protocol):
    """Fed plain bytes, gives compressed ones."""

    def feed(self, data: bytes) -> bytes:
        """Return what is ready."""

    def finish(self) -> bytes:
        """Return the rest, the stream's end included."""


class Codec:
    """One compression format: its Java class, its suffix, and whether a file may be read from the
    middle."""

    def __init__(
        self,
        class_name: str,
        suffix: str,
        decompressor: Callable[[], Decompressor],
        compressor: Callable[[], Compressor],
        *,
        is_splittable: bool = False,
    ) -> None:
        self.class_name = _PACKAGE + class_name
        self.suffix = suffix
        self.is_splittable = is_splittable
        self.decompressor = decompressor
        self.compressor = compressor

    def compress(self, data: bytes) -> bytes:
        compressor = self.compressor()
        return compressor.feed(data) + compressor.finish()

    def decompress(self, data: bytes) -> bytes:
        """Decompress one buffer that holds a whole stream."""
        decompressor = self.decompressor()
        plain = b"".join(decompressor.feed(data))
        decompressor.finish()
        return plain

    def decompressed(self, blobs: Iterable[bytes], name: str = "") -> Iterator[bytes]:
        """Decompress a stream of blobs; an error names `name`."""
        decompressor = self.decompressor()
        try:
            yield from gathered(plain for blob in blobs for plain in decompressor.feed(blob))
            decompressor.finish()
        except CodecCorrupt as error:
            raise CodecCorrupt(f"{name}: {error}" if name else str(error)) from None


def codec_by_suffix(path: str) -> Codec | None:
    """Return the codec that a file's name asks for; only the suffix counts, in any case."""
    dot = path.rfind(".")
    return _BY_SUFFIX.get(path[dot:].lower()) if dot > path.rfind("/") else None


def codec_by_class(class_name: str) -> Codec:
    """Return the codec of a Java class name, full or simple."""
    codec = _BY_CLASS.get(class_name) or _BY_CLASS.get(_PACKAGE + class_name)
    if codec is None:
        raise UnknownCodec(f"Compression codec {class_name} was not found.")
    return codec


class _ZlibDecompressor:
    """gzip or zlib streams, one after the other; bytes after the last that start no stream are an
    error."""

    def __init__(self, window_bits: int, name: str, magic: bytes) -> None:
        from isal import isal_zlib  # several times faster than the zlib of Python, same format

        # isal 1.8 loses bytes that follow a zlib stream; with gzip it does not.
        library: Any = isal_zlib if window_bits > 15 else zlib
        self._new: Callable[[], Any] = lambda: library.decompressobj(window_bits)
        self._failure = cast(type[Exception], library.error)
        self._name = name
        self._magic = magic
        self._stream: Any = None
        self._head = b""
        self._any = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None:
                data = self._begin(data)
                continue
            try:
                plain = self._stream.decompress(data, PLAIN_BYTES)
            except self._failure as error:
                raise CodecCorrupt(f"damaged {self._name} stream: {error}") from None
            if self._stream.eof:
                data, self._stream = self._stream.unused_data, None
            else:
                data = self._stream.unconsumed_tail
            yield plain

    def _begin(self, data: bytes) -> bytes:
        self._head += data
        if len(self._head) < len(self._magic):
            return b""
        head, self._head = self._head, b""
        if not head.startswith(self._magic):
            if self._any and not head.strip(b"\0"):
                return b""  # tape-style zero padding after the last member, as gzip itself allows
            raise CodecCorrupt(f"not a {self._name} file: it begins with {head[:4].hex(' ')}")
        self._any = True
        self._stream = self._new()
        return head

    def finish(self) -> None:
        if self._stream is not None:
            raise CodecCorrupt(
                f"the {self._name} stream is cut off: Unexpected end of input stream"
            )
        if self._head.strip(b"\0"):
            raise CodecCorrupt(f"not a {self._name} file: {len(self._head)} bytes are no header")


class _StreamCompressor:
    """What a library compresses as one stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def feed(self, data: bytes) -> bytes:
        return bytes(self._stream.compress(data))

    def finish(self) -> bytes:
        return bytes(self._stream.flush())


def _zlib_compressor(window_bits: int) -> Compressor:
    from isal import isal_zlib

    return _StreamCompressor(isal_zlib.compressobj(2, isal_zlib.DEFLATED, window_bits))


class _Bzip2Decompressor:
    """Streams one after the other; what follows the last and begins none is no data, as `bzip2`
    and Hadoop have it."""

    def __init__(self) -> None:
        self._stream: bz2.BZ2Decompressor | None = None
        self._begun = self._ended = False
        self._held = b""
        """Behind a stream: bytes that may be the beginning of the next."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        data, self._held = self._held + data, b""
        while data or (self._stream is not None and not self._stream.needs_input):
            if self._stream is None:
                if self._begun and not self._begins(data):
                    return
                self._stream, self._begun = bz2.BZ2Decompressor(), True
            try:
                plain = self._stream.decompress(data, PLAIN_BYTES)
            except OSError as error:
                raise CodecCorrupt(f"damaged bzip2 stream: {error}") from None
            data = b""
            if self._stream.eof:
                data, self._stream = self._stream.unused_data, None
            yield plain

    def _begins(self, data: bytes) -> bool:
        """Whether another stream begins here; what is too short to tell is held."""
        if len(data) > 3 and not self._ended:
            self._ended = not (data.startswith(b"BZh") and data[3] in b"123456789")
            return not self._ended
        self._held = data
        return False

    def finish(self) -> None:
        if self._stream is not None:
            raise CodecCorrupt("the bzip2 stream is cut off")


def _bzip2_compressor() -> Compressor:
    return _StreamCompressor(bz2.BZ2Compressor(9))


class _ZstdDecompressor:
    def __init__(self) -> None:
        import zstandard

        self._new: Callable[[], Any] = lambda: zstandard.ZstdDecompressor().decompressobj()
        self._failure = cast(type[Exception], zstandard.ZstdError)
        self._stream: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_FEED_BYTES):
            part = data[start : start + _ZSTD_FEED_BYTES]
            while part:
                if self._stream is None:
                    self._stream = self._new()
                try:
                    plain = self._stream.decompress(part)
                except self._failure as error:
                    raise CodecCorrupt(f"damaged zstd stream: {error}") from None
                part = b""
                if self._stream.eof:
                    part, self._stream = self._stream.unused_data, None
                yield plain

    def finish(self) -> None:
        if self._stream is not None:
            raise CodecCorrupt("the zstd stream is cut off")


def _zstd_compressor() -> Compressor:
    import zstandard

    return _StreamCompressor(zstandard.ZstdCompressor(level=3).compressobj())


class _BlockDecompressor:
    """Hadoop's framing: int32 plain length, then (int32 length, bytes) until that much is
    decompressed."""

    def __init__(self, name: str, decompress: Callable[[bytes, int], bytes]) -> None:
        self._name = name
        self._decompress = decompress
        self._held = bytearray()
        self._left_in_block = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._held += data
        start = 0
        while len(self._held) - start >= 4:
            (length,) = struct.unpack_from(">i", self._held, start)
            if not 0 <= length <= BLOCK_BYTES_MAX:
                raise CodecCorrupt(f"damaged {self._name} stream: a block says {length} bytes")
            if self._left_in_block == 0:
                self._left_in_block = length
                start += 4
                continue
            if len(self._held) - start - 4 < length:
                break
            yield self._chunk(bytes(self._held[start + 4 : start + 4 + length]))
            start += 4 + length
        del self._held[:start]

    def _chunk(self, compressed: bytes) -> bytes:
        try:
            plain = self._decompress(compressed, self._left_in_block)
        except (
            Exception
        ) as error:  # each library has its own class, and one wraps any panic of its core
            raise CodecCorrupt(f"damaged {self._name} block: {error}") from None
        if not 0 < len(plain) <= self._left_in_block:
            raise CodecCorrupt(
                f"damaged {self._name} block: {len(plain)} bytes, {self._left_in_block} were left"
            )
        self._left_in_block -= len(plain)
        return plain

    def finish(self) -> None:
        if self._held or self._left_in_block:
            raise CodecCorrupt(f"the {self._name} stream is cut off")


class _BlockCompressor:
    def __init__(self, compress: Callable[[bytes], bytes]) -> None:
        self._compress = compress
        self._held = bytearray()

    def feed(self, data: bytes) -> bytes:
        self._held += data
        whole = len(self._held) - len(self._held) % BLOCK_BYTES
        ready = bytes(self._held[:whole])
        del self._held[:whole]
        return b"".join(
            self._block(ready[start : start + BLOCK_BYTES])
            for start in range(0, whole, BLOCK_BYTES)
        )

    def finish(self) -> bytes:
        last = bytes(self._held)
        self._held.clear()
        return self._block(last) if last else b""

    def _block(self, plain: bytes) -> bytes:
        compressed = self._compress(plain)
        return struct.pack(">ii", len(plain), len(compressed)) + compressed


def _lz4_decompress(data: bytes, plain_bytes_max: int) -> bytes:
    import lz4.block

    return bytes(lz4.block.decompress(data, uncompressed_size=plain_bytes_max))


def _lz4_compress(data: bytes) -> bytes:
    import lz4.block

    return bytes(lz4.block.compress(data, store_size=False))


def _snappy_decompress(data: bytes, plain_bytes_max: int) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.decompress_raw(data))


def _snappy_compress(data: bytes) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))


def _deflate(class_name: str) -> Codec:
    return Codec(
        class_name,
        ".deflate",
        lambda: _ZlibDecompressor(15, "zlib", b"\x78"),
        lambda: _zlib_compressor(15),
    )


DEFAULT_CODEC = _deflate("DefaultCodec")
GZIP_CODEC = Codec(
    "GzipCodec",
    ".gz",
    lambda: _ZlibDecompressor(31, "gzip", b"\x1f\x8b"),
    lambda: _zlib_compressor(31),
)
BZIP2_CODEC = Codec("BZip2Codec", ".bz2", _Bzip2Decompressor, _bzip2_compressor, is_splittable=True)
_CODECS = (
    GZIP_CODEC,
    BZIP2_CODEC,
    _deflate("DeflateCodec"),
    DEFAULT_CODEC,
    Codec(
        "Lz4Codec",
        ".lz4",
        lambda: _BlockDecompressor("lz4", _lz4_decompress),
        lambda: _BlockCompressor(_lz4_compress),
    ),
    Codec(
        "SnappyCodec",
        ".snappy",
        lambda: _BlockDecompressor("snappy", _snappy_decompress),
        lambda: _BlockCompressor(_snappy_compress),
    ),
    Codec("ZStandardCodec", ".zst", _ZstdDecompressor, _zstd_compressor),
)
_BY_SUFFIX = {codec.suffix: codec for codec in _CODECS}
_BY_CLASS = {codec.class_name: codec for codec in _CODECS}
