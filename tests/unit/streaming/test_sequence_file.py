"""streaming/formats/sequence_file.py, codec.py and xml_records.py: what lies in files."""

from __future__ import annotations

import gzip
import io
import zlib

import pytest

from mrstream.streaming.formats.codec import (
    GZIP_CODEC,
    CodecCorrupt,
    UnknownCodec,
    codec_by_class,
    codec_by_suffix,
)
from mrstream.streaming.formats.input_format import MissingReaderProperty, XmlMarks
from mrstream.streaming.formats.sequence_file import (
    SequenceFileCorrupt,
    SequenceFileReader,
    sequence_file_writer,
)
from mrstream.streaming.formats.writable import BYTES, LONG, TEXT
from mrstream.streaming.formats.xml_records import XmlRecords

RECORDS = [(b"a", b"1"), (b"b", b""), ("é".encode(), b"x" * 300)]


def written(compression: str, codec: str | None = None) -> bytes:
    """A sequence file of Text and Text."""
    out = io.BytesIO()
    writer = sequence_file_writer(
        out.write, TEXT, TEXT, compression, codec_by_class(codec) if codec else None
    )
    for key, value in RECORDS:
        writer.append(key, value)
    writer.close()
    return out.getvalue()


def test_the_header_is_hadoops() -> None:
    """Spec 3.7: SEQ, 6, two class names, two flags, no metadata, 16 bytes of sync."""
    file = written("NONE")

    text = b"\x19org.apache.hadoop.io.Text"
    assert file.startswith(b"SEQ\x06" + text + text + b"\0\0" + b"\0\0\0\0")
    record_at = 4 + 2 * len(text) + 2 + 4 + 16
    assert file[record_at : record_at + 12] == b"\0\0\0\x04\0\0\0\x02\x01a\x011"


@pytest.mark.parametrize("compression", ["NONE", "RECORD", "BLOCK"])
@pytest.mark.parametrize("codec", [None, "GzipCodec", "BZip2Codec", "SnappyCodec", "Lz4Codec"])
def test_a_file_reads_back(compression: str, codec: str | None) -> None:
    """Spec 8.4: types NONE, RECORD and BLOCK, with any codec."""
    reader = SequenceFileReader(io.BytesIO(written(compression, codec)))

    assert list(reader) == RECORDS
    assert (reader.key_type, reader.value_type) == (TEXT, TEXT)


def test_a_file_may_be_read_as_text_or_as_raw_bytes() -> None:
    """Spec 3.7: SequenceFileAsText gives toString of both, AsBinary their serialised bytes."""
    out = io.BytesIO()
    writer = sequence_file_writer(out.write, LONG, BYTES)
    writer.append((7).to_bytes(8, "big"), b"\0\xff")

    as_text = SequenceFileReader(io.BytesIO(out.getvalue()), as_text=True)
    raw = SequenceFileReader(io.BytesIO(out.getvalue()), raw=True)

    assert list(as_text) == [(b"7", b"00 ff")]
    assert as_text.key_type is TEXT
    assert list(raw) == [((7).to_bytes(8, "big"), b"\0\0\0\x02\0\xff")]
    assert raw.value_type is BYTES


@pytest.mark.parametrize("compression", ["NONE", "RECORD", "BLOCK"])
def test_a_file_that_is_cut_off_is_corrupt(compression: str) -> None:
    """Half a record is never given as a whole one."""
    with pytest.raises((SequenceFileCorrupt, CodecCorrupt)):
        list(SequenceFileReader(io.BytesIO(written(compression)[:-3])))


def test_what_is_no_sequence_file_is_refused() -> None:
    """The message shows what is there instead."""
    with pytest.raises(SequenceFileCorrupt, match="not a SequenceFile: it begins with 68 65"):
        SequenceFileReader(io.BytesIO(b"hello world"))


@pytest.mark.parametrize(
    ("path", "suffix"),
    [
        ("file:/d/a.gz", ".gz"),
        ("a.b.bz2", ".bz2"),
        ("x.deflate", ".deflate"),
        ("x.zst", ".zst"),
        ("dir.gz/plain", None),
        ("a.GZ", ".gz"),
        ("gz", None),
    ],
)
def test_only_the_suffix_chooses_a_codec(path: str, suffix: str | None) -> None:
    """Spec 3.3."""
    codec = codec_by_suffix(path)

    assert (codec.suffix if codec else None) == suffix


def test_an_unknown_codec_is_named_as_hadoop_names_it() -> None:
    """Spec 8.4, the golden case out_codec_missing."""
    with pytest.raises(UnknownCodec, match=r"^Compression codec no\.such\.Codec was not found\.$"):
        codec_by_class("no.such.Codec")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"plain text", "not a gzip file"),
        (gzip.compress(b"x" * 1000)[:-4], "cut off"),
        (gzip.compress(b"x") + b"junk", "not a gzip file"),
        (gzip.compress(b"x" * 1000)[:10] + b"\xff" * 30, "damaged gzip stream"),
    ],
    ids=["plain", "cut", "trailing", "damaged"],
)
def test_a_broken_gzip_file_says_what_is_wrong_and_where(data: bytes, message: str) -> None:
    """Spec 3.3: it fails the task (`not a gzip file`)."""
    with pytest.raises(CodecCorrupt, match=f"file:/a.gz: .*{message}"):
        list(GZIP_CODEC.decompressed([data], "file:/a.gz"))


def test_compressed_output_is_what_other_tools_read() -> None:
    """Spec 2: .gz is gzip, .deflate is a zlib stream."""
    assert gzip.decompress(GZIP_CODEC.compress(b"text")) == b"text"
    assert zlib.decompress(codec_by_class("DefaultCodec").compress(b"text")) == b"text"


def xml(data: bytes, start: int = 0, end: int | None = None, **options: str) -> list[bytes]:
    """The records of a range."""
    marks = XmlMarks({"begin": "<r>", "end": "</r>", **options})
    file = io.BytesIO(data[start:])
    return [record for _, record in XmlRecords(file, start, end or len(data), marks)]


GOLDEN = b"junk<r>\n<a>1</a>\n</r>between <r>two</r>\n<r><![CDATA[ </r> ]]>x</r><r>last</r> tail"


def test_xml_records_run_from_mark_to_mark() -> None:
    """Spec 3.6, the golden cases in_xml and in_xml_slow."""
    assert xml(GOLDEN) == [
        b"<r>\n<a>1</a>\n</r>",
        b"<r>two</r>",
        b"<r><![CDATA[ </r>",
        b"<r>last</r>",
    ]
    assert xml(GOLDEN, slowmatch="true") == [b"<r>last</r>"]


@pytest.mark.parametrize("border", range(1, len(GOLDEN)))
def test_an_xml_record_belongs_to_the_split_of_its_begin_mark(border: int) -> None:
    """Spec 3.6."""
    data = b"<r>1</r>--<r>2</r>  <r>33</r>"[: len(GOLDEN)]
    border = min(border, len(data) - 1)

    found = xml(data, 0, border) + xml(data, border)

    assert found == [b"<r>1</r>", b"<r>2</r>", b"<r>33</r>"]


def test_fast_matching_does_not_back_up_after_a_partial_match() -> None:
    """Spec 3.6: `<<r>` hides its mark, since the second `<` was used up by the failure."""
    assert xml(b"<<r>1</r><r>2</r>") == [b"<r>2</r>"]


def test_an_xml_record_may_be_larger_than_a_read() -> None:
    """Records of any size, across reads of any size."""
    record = b"<r>" + b"<x" * 1_500_000 + b"</r>"

    assert xml(b" " * 1_100_000 + record + b"<r></r>") == [record, b"<r></r>"]


def test_an_xml_reader_needs_both_marks() -> None:
    """Spec 3.6, in Hadoop's words."""
    with pytest.raises(
        MissingReaderProperty,
        match=r"^JobConf: missing required property: stream\.recordreader\.end$",
    ):
        XmlMarks({"begin": "<r>"})
