"""What is shown of a file before anyone downloads it (view/preview.py)."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc

import pytest
import zstandard

from mrstream.view.preview import PREVIEW_BYTES, plain_head, preview_text

PLAIN_BYTES = 128 << 20


@pytest.fixture(scope="module")
def nothing_much() -> bytes:
    return bytes(PLAIN_BYTES)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".bz2", bz2.compress),
        (".gz", lambda data: gzip.compress(data, 1)),
        (".zst", lambda data: zstandard.ZstdCompressor(level=1).compress(data)),
    ],
)
def test_a_preview_stops_after_its_plain_bytes(
    suffix: str, pack: object, nothing_much: bytes
) -> None:
    """112 bytes of bzip2 can be 128 MiB: none of that may be held for a page of text."""
    assert callable(pack)
    packed = pack(nothing_much)[:PREVIEW_BYTES]

    tracemalloc.start()
    shown = plain_head("/a" + suffix, packed)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert shown == bytes(PREVIEW_BYTES)
    assert most_bytes < 8 << 20


def test_a_short_compressed_file_is_shown_whole() -> None:
    assert plain_head("/a.gz", gzip.compress(b"one\ntwo\n")) == b"one\ntwo\n"


def test_a_plain_file_is_shown_as_it_is() -> None:
    assert plain_head("/a.txt", b"one\ntwo\n") == b"one\ntwo\n"


def test_what_cannot_be_decompressed_is_said_in_words() -> None:
    assert "cannot be decompressed" in preview_text("/a.gz", b"no gzip at all")


def test_a_preview_has_a_limited_number_of_lines() -> None:
    assert preview_text("/a", b"x\n" * 1000).count("\n") == 199
