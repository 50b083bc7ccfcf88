"""For all inputs: codecs, sequence files and typed bytes give back what was put in."""

from __future__ import annotations

import bz2
import io
import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.streaming.formats import typed_bytes
from mrstream.streaming.formats.bzip2_blocks import blocks
from mrstream.streaming.formats.codec import codec_by_class, codec_by_suffix
from mrstream.streaming.formats.fixed_length import BadRecordLength, FixedLengthRecords
from mrstream.streaming.formats.sequence_file import SequenceFileReader, sequence_file_writer
from mrstream.streaming.formats.writable import BYTES, LONG, TEXT, read_vlong, write_vlong
from mrstream.streaming.java.java_number import format_double, format_float
from tests.support.examples import examples

CODECS = [
    "GzipCodec",
    "BZip2Codec",
    "DefaultCodec",
    "DeflateCodec",
    "Lz4Codec",
    "SnappyCodec",
    "ZStandardCodec",
]


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut bytes into blobs of the given sizes, and the rest."""
    blobs = []
    for size in sizes:
        blobs.append(data[:size])
        data = data[size:]
    return [*blobs, data]


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=examples(25), deadline=None)
@given(parts=st.lists(st.binary(max_size=500), max_size=4), sizes=st.lists(st.integers(0, 50)))
def test_a_codec_gives_back_concatenated_streams_however_they_are_cut(
    name: str, parts: list[bytes], sizes: list[int]
) -> None:
    """Spec 3.3: concatenated members are one stream; a file is read in blobs of any size."""
    codec = codec_by_class(name)
    compressed = b"".join(codec.compress(part) for part in parts)

    plain = b"".join(codec.decompressed(cut(compressed, sizes)))

    assert plain == b"".join(parts)


@settings(max_examples=examples(30), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    level=st.integers(1, 2),
    borders=st.lists(st.floats(0, 1), max_size=4),
)
def test_every_bzip2_block_is_found_from_exactly_one_piece(
    seed: int, level: int, borders: list[float]
) -> None:
    """Spec 3.3: bzip2 is splittable; a block belongs to the piece in which its mark begins."""
    plain = struct.pack(">Q", seed) * 40_000 + bytes(range(256)) * 400
    file = bz2.compress(plain, level) + bz2.compress(b"second stream", 9)
    edges = [0, *sorted(int(border * len(file)) for border in borders), len(file)]

    found = []
    for start, end in itertools.pairwise(edges):
        for position, block in blocks([file[start:]], start):
            if position >= end:
                break
            found.append(block)

    assert b"".join(found) == plain + b"second stream"


@pytest.mark.parametrize("compression", ["NONE", "RECORD", "BLOCK"])
@settings(max_examples=examples(25), deadline=None)
@given(
    records=st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=30),
    repeat=st.sampled_from([1, 1, 200]),
    borders=st.lists(st.floats(0, 1), max_size=4),
)
def test_every_record_of_a_sequence_file_is_in_exactly_one_piece(
    compression: str,
    records: list[tuple[bytes, bytes]],
    repeat: int,
    borders: list[float],
) -> None:
    """Spec 3.7: pieces are read from sync mark to sync mark, wherever their borders fall."""
    records = records * repeat
    if repeat > 1:
        records = [(key, value * 20) for key, value in records]
    out = io.BytesIO()
    writer = sequence_file_writer(out.write, TEXT, BYTES, compression)
    for key, value in records:
        writer.append(key, value)
    writer.close()
    length = len(out.getvalue())
    edges = [0, *sorted(int(border * length) for border in borders), length]

    found: list[tuple[bytes, bytes]] = []
    for start, end in itertools.pairwise(edges):
        if start == end and length:
            continue
        out.seek(0)
        found += SequenceFileReader(out, start, end)

    assert found == records


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_vlong_reads_back(value: int) -> None:
    """WritableUtils.writeVLong: one to nine bytes."""
    data = write_vlong(value)

    assert read_vlong(data, 0) == (value, len(data))
    assert len(data) <= 9


_scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.binary(max_size=20).map(typed_bytes.Opaque)
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_values)
def test_typed_bytes_read_back(value: object) -> None:
    """Spec 9: every type but the vector, which reads as a list."""
    data = typed_bytes.encode(value)

    assert typed_bytes.decode(data) == value
    assert typed_bytes.object_end(data + b"rest") == len(data)


@given(
    pairs=st.lists(st.tuples(_values, _values), max_size=8),
    sizes=st.lists(st.integers(0, 20), max_size=30),
)
def test_typed_bytes_are_cut_into_pairs_however_they_arrive(
    pairs: list[tuple[object, object]], sizes: list[int]
) -> None:
    """Spec 9: a record is KEY VALUE; nothing marks where it ends but its types."""
    encoded = [(typed_bytes.encode(key), typed_bytes.encode(value)) for key, value in pairs]
    cutter = typed_bytes.TypedBytesCutter()

    found = []
    for blob in cut(b"".join(key + value for key, value in encoded), sizes):
        found += cutter.feed(blob)
    found += cutter.finish()

    assert found == encoded


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_double_reads_back(value: float) -> None:
    """Spec 6.3: the shortest decimal that is this double, in Java's notation."""
    text = format_double(value)

    assert float(text) == value
    assert "." in text and "e" not in text and "+" not in text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_printed_float_reads_back(value: float) -> None:
    """Float.toString: digits enough for 32 bits, and no more."""
    text = format_float(value)

    assert struct.pack(">f", float(text)) == struct.pack(">f", value)
    assert len(text.lstrip("-").split("E")[0]) <= 12


def test_long_writables_keep_their_eight_bytes() -> None:
    """The payload of a LongWritable is what Hadoop's comparator sees."""
    payload = struct.pack(">q", -5)

    assert LONG.parse(LONG.serialise(payload)) == payload
    assert LONG.to_string(payload) == b"-5"


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"B", b"BZh", b"BZh0", b"\0" * 9, b"junk"]),
    st.data(),
)
def test_what_follows_the_last_bzip2_stream_is_no_data(
    plain: bytes, behind: bytes, data: st.DataObject
) -> None:
    """As `bzip2 -d` has it, wherever the blobs are cut."""
    file = bz2.compress(plain) + bz2.compress(b"second") + behind
    cut = data.draw(st.integers(0, len(file)))
    codec = codec_by_suffix("x.BZ2")
    assert codec is not None

    assert b"".join(codec.decompressed(iter([file[:cut], file[cut:]]), "x")) == plain + b"second"


@given(
    st.integers(1, 9),
    st.integers(0, 12),
    st.lists(st.integers(0, 108), max_size=4),
    st.integers(1, 7),
)
def test_every_record_of_one_length_is_in_one_split(
    size: int, records: int, cuts: list[int], blob_bytes: int
) -> None:
    """FixedLengthInputFormat: the one in which it begins, wherever the file is cut."""
    data = bytes(range(size * records))
    borders = sorted({0, len(data), *(at for at in cuts if at < len(data))})
    found = []
    for start, end in itertools.pairwise(borders):
        reader = FixedLengthRecords(size, start, end)
        first, last = reader.range
        mine = data[first:last]
        blobs = [mine[at : at + blob_bytes] for at in range(0, len(mine), blob_bytes)]
        found += [(offset, record) for offset, record in reader.cut(blobs)]
        assert all(start <= offset < end for offset, _ in found[-len(mine) // size :] if mine)

    assert found == [(at, data[at : at + size]) for at in range(0, len(data), size)]


def test_a_file_that_ends_inside_a_record_of_one_length_is_refused() -> None:
    with pytest.raises(BadRecordLength, match=r"Partial record\(length = 1\)"):
        list(FixedLengthRecords(4, 0, 5).cut([b"aaaab"]))
