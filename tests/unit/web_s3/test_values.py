"""XML, names of buckets and keys, sums, conditions, sizes of parts, facts: values only."""

from __future__ import annotations

import contextlib
import hashlib
import xml.etree.ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.dfs.chunk import FileId
from mrstream.dfs.metadata.paths import join_path, split_path
from mrstream.dfs.protocol import FileStatus
from mrstream.web.s3 import checksums, facts
from mrstream.web.s3.conditions import is_unchanged, matches
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.multipart import _copied_range
from mrstream.web.s3.names import is_bucket_name, key_fault
from mrstream.web.s3.uploads import part_chunk_bytes
from mrstream.web.s3.xml import DEPTH_MAX, NotXml, document, element, parse

MIB = 1 << 20


# --- XML


def test_a_document_is_read_without_its_namespaces() -> None:
    data = (
        b'<?xml version="1.0"?><Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        b"<Object><Key>a&amp;b</Key></Object><Object><Key> c </Key></Object></Delete>"
    )
    found = parse(data, "Delete")
    assert [each.value("Key") for each in found.all("Object")] == ["a&b", "c"]
    key = found.all("Object")[1].find("Key")
    assert key is not None and key.text == " c "


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<Delete>",
        b"<Other/>",
        b"<!DOCTYPE Delete><Delete/>",
        b'<!DOCTYPE d [<!ENTITY a "b">]><Delete>&a;</Delete>',
        b'<!DOCTYPE d SYSTEM "file:///etc/passwd"><Delete/>',
        b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><Delete>&x;</Delete>',
        b"<?php x?><Delete/>",
        b"<Delete>&undefined;</Delete>",
        b"<Delete/><Delete/>",
        b'<?xml version="1.0" encoding="nonsense"?><Delete/>',
        b"<Delete>" + b"<a>" * DEPTH_MAX + b"</a>" * DEPTH_MAX + b"</Delete>",
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_plain_document_is_refused(data: bytes) -> None:
    with pytest.raises(NotXml):
        parse(data, "Delete")


@given(st.binary(max_size=200), st.text(max_size=60))
def test_whatever_comes_is_read_or_refused(data: bytes, text: str) -> None:
    for each in (data, text.encode("utf-8", "replace"), b"<Delete>" + data + b"</Delete>"):
        with contextlib.suppress(NotXml):
            parse(each, "Delete")


@given(st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs"])))
def test_what_is_written_means_what_was_said(text: str) -> None:
    if any(sign in text for sign in "\x7f\ufffe\uffff"):
        return
    whole = document("R", element("K", text))
    found = xml.etree.ElementTree.fromstring(whole.encode())
    assert found[0].text == (text or None)
    assert parse(whole.encode(), "R").children[0].text == text


# --- names


def test_a_bucket_has_a_name_as_s3_allows_it() -> None:
    for good in ("abc", "a-b.c1", "x" * 63, "1st"):
        assert is_bucket_name(good)
    for bad in ("", "ab", "x" * 64, ".trash", "a..b", "Abc", "a_b", "1.2.3.4", "-ab", "ab.", "ä12"):
        assert not is_bucket_name(bad)


@given(st.text(min_size=1, max_size=40))
def test_a_key_that_is_taken_is_one_path_and_no_other_key_is_the_same(key: str) -> None:
    if key_fault(key):
        return
    path = f"/bucket/{key}"
    assert join_path(split_path(path)) == path.removesuffix("/")


@pytest.mark.parametrize(
    "key", ["/a", "a//b", "a/./b", ".", "..", "a/..", "x" * 256, "a\0", ".mrstream-1/x", "/"]
)
def test_keys_that_no_path_can_say(key: str) -> None:
    assert key_fault(key)


# --- sums


def test_sums_of_parts_are_those_of_the_whole() -> None:
    data = [b"first" * 1000, b"", b"second" * 77, b"x"]
    for algorithm in ("crc32", "crc32c", "crc64nvme"):
        parts = []
        for part in data:
            sums = checksums.Sums([algorithm])
            sums.update(part)
            parts.append((sums.checksum(algorithm).value, len(part)))
        whole = checksums.Sums([algorithm])
        whole.update(b"".join(data))
        made = checksums.of_parts(algorithm, checksums.FULL_OBJECT, parts)
        assert made == whole.checksum(algorithm)


def test_the_etag_of_parts() -> None:
    md5s = [hashlib.md5(data).digest() for data in (b"a", b"b")]
    assert checksums.etag_of_parts(md5s) == hashlib.md5(b"".join(md5s)).hexdigest() + "-2"


@pytest.mark.parametrize(
    "headers",
    [
        [("x-amz-checksum-md5", "AAAA")],
        [("x-amz-checksum-crc32", "AAAA")],
        [("x-amz-checksum-crc32", "ä")],
        [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32c", "AAAAAA==")],
    ],
)
def test_sums_that_are_none_are_refused(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(S3Error):
        checksums.given_sums(headers)


# --- conditions, ranges, sizes


def test_etags_match_in_every_spelling() -> None:
    for value in ('"abc"', "abc", "*", 'W/"abc"', '"x", "abc"'):
        assert matches(value, "abc")
    assert not matches('"ab"', "abc") and not matches("", "abc")


def test_a_time_that_is_none_is_no_condition() -> None:
    asked = {"if-modified-since": "yesterday", "if-unmodified-since": "never"}
    assert not is_unchanged(lambda name: asked.get(name, ""), "", "e", 5.0)


@given(st.text(max_size=30), st.integers(0, 1000))
def test_a_range_to_copy_is_within_the_source_or_refused(wanted: str, size: int) -> None:
    for text in (wanted, f"bytes={wanted}", f"bytes={len(wanted)}-{size}"):
        try:
            start, count = _copied_range(text, size)
        except S3Error:
            continue
        assert start >= 0 and start + count <= size


def test_the_chunk_size_of_a_part_is_one_that_it_fills() -> None:
    """What clients send: boto3 8 MiB, rclone 5, s3fs 50, s3a 64, others 16, 100, 128."""
    default = 64 * MIB
    sizes = {8: 8, 5: 5, 50: 50, 16: 16, 100: 50, 24: 8, 15: 5, 40: 40}
    for part_mib, chunk_mib in sizes.items():
        assert part_chunk_bytes(part_mib * MIB, default) == chunk_mib * MIB
    for part in (64 * MIB, 128 * MIB, 8 * MIB + 1, 3, 0):
        assert part_chunk_bytes(part, default) == 0
    assert part_chunk_bytes(8 * MIB, MIB) == 0, "the cluster's own size first"


# --- facts


def status(length: int, modified_at_s: float = 5.0) -> FileStatus:
    return FileStatus(
        "/b/k", False, length, 1, MIB, modified_at_s, 0.0, "me", "me", 0o644, FileId(77), 1
    )


def test_facts_come_back_as_they_were_packed() -> None:
    sum = checksums.Checksum("crc32", "AAAAAA==-2", checksums.COMPOSITE)
    told = facts.Facts("0" * 32 + "-2", {"x-amz-meta-a": "ä"}, sum, "ab", ((8, 1), (3, 1)))
    assert facts.facts_of(status(11), told.packed(11)) == told
    assert list(told.part_sizes()) == [8, 3]


def test_facts_of_other_bytes_are_not_told() -> None:
    """Somebody appended: the MD5 and the sums are of what was there before."""
    told = facts.Facts("0" * 32, {"content-type": "a"}, checksums.Checksum("crc32", "AAAAAA=="))
    found = facts.facts_of(status(12), told.packed(11))
    assert found.etag.endswith("-0") and found.checksum is None
    assert found.head == {"content-type": "a"}
    assert found.etag != facts.facts_of(status(12, 6.0), {}).etag


def test_what_is_kept_of_headers() -> None:
    kept = facts.head_of(
        [("Content-Encoding", "aws-chunked, gzip"), ("Content-Type", "a"), ("Host", "h"),
         ("x-amz-meta-A", ""), ("Content-Language", "")]
    )  # fmt: skip
    assert kept == {"content-encoding": "gzip", "content-type": "a", "x-amz-meta-a": ""}
    with pytest.raises(S3Error, match="at most 2048"):
        facts.head_of([("x-amz-meta-a", "x" * 2048)])
    with pytest.raises(S3Error, match="too many"):
        facts.head_of([("content-type", "x" * 4000)])
