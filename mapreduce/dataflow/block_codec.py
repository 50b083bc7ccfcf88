"""Used by stages 5 and 8: how a segment's block is packed.

Takes a block and gives a smaller one, and back. Knows five codecs by the names of their
libraries; a codec's library is loaded when it is first used. Never frames anything.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec


class BlockCodec(msgspec.Struct, frozen=True):
    """A way to pack a block; `number` is its byte in the segment format."""

    number: int
    name: str
    compress: Callable[[bytes | memoryview], bytes | memoryview]
    decompress: Callable[[bytes | memoryview, int], bytes | memoryview]


def _library(name: str) -> Any:
    return importlib.import_module(name)


def _zstd_decompress(data: bytes | memoryview, raw_bytes: int) -> bytes:
    plain: bytes = (
        _library("zstandard").ZstdDecompressor().decompress(data, max_output_size=raw_bytes)
    )
    return plain


NONE = BlockCodec(0, "none", lambda data: data, lambda data, _: data)
_CODECS = (
    NONE,
    BlockCodec(
        1,
        "zlib",
        lambda data: bytes(_library("isal.isal_zlib").compress(data, 1)),
        lambda data, raw_bytes: bytes(
            _library("isal.isal_zlib").decompress(data, bufsize=max(1, raw_bytes))
        ),
    ),
    BlockCodec(
        2,
        "lz4",
        lambda data: bytes(_library("lz4.block").compress(data, store_size=False)),
        lambda data, raw_bytes: bytes(
            _library("lz4.block").decompress(data, uncompressed_size=raw_bytes)
        ),
    ),
    BlockCodec(
        3,
        "zstd",
        lambda data: bytes(_library("zstandard").ZstdCompressor(level=1).compress(data)),
        _zstd_decompress,
    ),
    BlockCodec(
        4,
        "snappy",
        lambda data: bytes(_library("cramjam").snappy.compress_raw(data)),
        lambda data, _: bytes(_library("cramjam").snappy.decompress_raw(data)),
    ),
    BlockCodec(
        5,
        "bzip2",
        lambda data: bytes(_library("bz2").compress(data)),
        lambda data, _: bytes(_library("bz2").decompress(data)),
    ),
)
_BY_NAME = {codec.name: codec for codec in _CODECS}


def by_name(name: str) -> BlockCodec:
    """Return the codec of that name: none, zlib, lz4, zstd, snappy or bzip2."""
    codec = _BY_NAME.get(name)
    assert codec is not None, f"block codec {name!r} is none of {', '.join(_BY_NAME)}"
    return codec


def by_number(number: int) -> BlockCodec:
    """Return the codec of that number; ValueError if there is none."""
    if number >= len(_CODECS):
        raise ValueError(f"codec number {number}; at most {len(_CODECS) - 1} are known")
    return _CODECS[number]
