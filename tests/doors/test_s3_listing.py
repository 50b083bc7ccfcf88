"""Listing keys through S3: order, prefixes, delimiters, pages, encodings (doors §5.2)."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.doors.gateway_cluster import GatewayCluster
from tests.doors.s3_clients import refusal
from tests.doors.test_s3_objects import refused

KEYS = ["a-b", "a/b", "a/c/d", "a0", "ab", "b/ä", "b/+ %", "c\n", "quux/thud", "quux/x", "zz"]


@pytest.fixture
def full(s3: Any, bucket: str) -> str:
    """A bucket with keys in it."""
    for key in KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


def names(answer: dict[str, Any]) -> list[str]:
    return [each["Key"] for each in answer.get("Contents", [])]


def prefixes(answer: dict[str, Any]) -> list[str]:
    return [each["Prefix"] for each in answer.get("CommonPrefixes", [])]


def expected(prefix: str = "", delimiter: str = "", after: str = "") -> tuple[list[str], list[str]]:
    """What S3 says should be listed, by its definition."""
    keys, common = [], []
    for key in sorted(KEYS, key=str.encode):
        if not key.startswith(prefix) or key <= after:
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        if at < 0:
            keys.append(key)
        elif (found := key[: at + len(delimiter)]) not in common and found != after:
            common.append(found)
    return keys, common


@pytest.mark.parametrize("call", ["list_objects", "list_objects_v2"])
def test_keys_are_listed_by_prefix_and_delimiter(s3: Any, full: str, call: str) -> None:
    ask = getattr(s3, call)
    for prefix in ("", "a", "a/", "b/", "q", "quux/th", "none", "a/c/d", "zz/"):
        for delimiter in ("", "/", "u", "-", "th", "\n"):
            got = ask(Bucket=full, Prefix=prefix, Delimiter=delimiter)
            assert (names(got), prefixes(got)) == expected(prefix, delimiter), (prefix, delimiter)
            assert not got["IsTruncated"]


@pytest.mark.parametrize("delimiter", ["", "/", "u"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pages_of_every_size_give_all_once_and_in_order(
    s3: Any, full: str, delimiter: str, size: int
) -> None:
    for call in ("list_objects", "list_objects_v2"):
        found: list[str] = []
        common: list[str] = []
        pages = s3.get_paginator(call).paginate(
            Bucket=full, Delimiter=delimiter, PaginationConfig={"PageSize": size}
        )
        for page in pages:
            assert len(names(page)) + len(prefixes(page)) <= size
            found += names(page)
            common += prefixes(page)
        assert (found, common) == expected("", delimiter), call


def test_a_listing_begins_after_a_key(s3: Any, full: str) -> None:
    for after in ("", "a", "a/", "a/b", "a/zzz", "quux/thud", "quux/", "zz", "zzz"):
        got = s3.list_objects_v2(Bucket=full, StartAfter=after)
        assert names(got) == expected(after=after)[0], after
        got = s3.list_objects(Bucket=full, Marker=after, Delimiter="/")
        keys = [key for key in expected("", "/")[0] if key > after]
        common = [
            each
            for each in expected("", "/")[1]
            if each != after and any(key > after for key in KEYS if key.startswith(each))
        ]
        assert (names(got), prefixes(got)) == (keys, common), after


def test_what_a_listing_tells_of_keys(s3: Any, full: str) -> None:
    for call in (s3.list_objects, s3.list_objects_v2):
        for each in call(Bucket=full)["Contents"]:
            head = s3.head_object(Bucket=full, Key=each["Key"])
            assert each["ETag"] == head["ETag"] and each["Size"] == head["ContentLength"]
            assert each["LastModified"] == head["LastModified"]
            assert each["StorageClass"] == "STANDARD"
    got = s3.list_objects_v2(Bucket=full, FetchOwner=True)
    assert got["Contents"][0]["Owner"]["ID"] == "ann" and got["KeyCount"] == len(KEYS)
    versions = s3.list_object_versions(Bucket=full)["Versions"]
    assert [(each["Key"], each["VersionId"], each["IsLatest"]) for each in versions] == [
        (key, "null", True) for key in sorted(KEYS, key=str.encode)
    ]


def test_a_listing_keeps_its_limits_and_refuses_nonsense(s3: Any, full: str) -> None:
    none = s3.list_objects_v2(Bucket=full, MaxKeys=0)
    assert (none["KeyCount"], none["IsTruncated"]) == (0, False)
    assert s3.list_objects_v2(Bucket=full, MaxKeys=5000)["MaxKeys"] == 1000
    refused(404, "NoSuchBucket", s3.list_objects_v2, Bucket="no-bucket-here")
    for token in ("nonsense", "AAAAAAAAAAAAAAAAAAAAAAAA"):
        with pytest.raises(ClientError) as caught:
            s3.list_objects_v2(Bucket=full, ContinuationToken=token)
        assert refusal(caught.value) == (400, "InvalidArgument")
    first = s3.list_objects_v2(Bucket=full, MaxKeys=1)["NextContinuationToken"]
    s3.create_bucket(Bucket="another-bucket")
    with pytest.raises(ClientError) as caught:
        s3.list_objects_v2(Bucket="another-bucket", ContinuationToken=first)
    assert refusal(caught.value) == (400, "InvalidArgument"), "a token is of one bucket"


def test_directories_that_only_the_file_system_has_are_prefixes_and_no_keys(
    s3: Any, bucket: str, doors: GatewayCluster
) -> None:
    dfs = doors.client()
    dfs.make_directory(f"/{bucket}/made/below", parents=True)

    got = s3.list_objects_v2(Bucket=bucket, Delimiter="/")

    assert (names(got), prefixes(got)) == ([], ["made/"])
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    s3.delete_bucket(Bucket=bucket)


def test_page_by_page_through_prefixes(s3: Any, bucket: str) -> None:
    """Every step of a walk: what is shown, whether there is more, where it goes on."""
    for key in ("asdf", "boo/bar", "boo/baz/xyzzy", "cquux/thud", "cquux/bla"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    walks: dict[tuple[str, int], list[tuple[list[str], list[str]]]] = {
        ("", 1): [(["asdf"], []), ([], ["boo/"]), ([], ["cquux/"])],
        ("", 2): [(["asdf"], ["boo/"]), ([], ["cquux/"])],
        ("boo/", 1): [(["boo/bar"], []), ([], ["boo/baz/"])],
        ("boo/", 2): [(["boo/bar"], ["boo/baz/"])],
    }
    for (prefix, size), steps in walks.items():
        marker, token = "", {}
        for number, (keys, common) in enumerate(steps):
            last = number == len(steps) - 1
            asked = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/", "MaxKeys": size}
            first = s3.list_objects(Marker=marker, **asked)
            second = s3.list_objects_v2(**asked, **token)
            for got in (first, second):
                assert (names(got), prefixes(got)) == (keys, common), (prefix, size, number)
                assert got["IsTruncated"] == (not last)
            assert first.get("NextMarker") == (None if last else (common or keys)[-1])
            assert second["KeyCount"] == len(keys) + len(common)
            if not last:
                marker = first["NextMarker"]
                token = {"ContinuationToken": second["NextContinuationToken"]}


def test_what_was_asked_is_told_again(s3: Any, bucket: str) -> None:
    for key in ("bar", "baz", "foo", "quxx"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    v1, v2 = s3.list_objects, s3.list_objects_v2
    assert v1(Bucket=bucket)["Marker"] == "" and v1(Bucket=bucket)["MaxKeys"] == 1000
    for odd in ("\n", "\x07", "%", " "):
        got = v1(Bucket=bucket, Prefix=odd, Delimiter=odd, Marker=odd)
        # What XML cannot say is told encoded; boto3 leaves a prefix so.
        assert got["Prefix"] == {"\x07": "%07"}.get(odd, odd)
        assert (got["Delimiter"], got["Marker"]) == (odd, odd)
        got = v2(Bucket=bucket, Delimiter=odd, StartAfter=odd)
        assert (got["StartAfter"], got["KeyCount"]) == (odd, 4)
    assert "Delimiter" not in v1(Bucket=bucket, Delimiter="")
    got = v2(Bucket=bucket, ContinuationToken="")
    assert got["ContinuationToken"] == "" and got["KeyCount"] == 4
    token = v2(Bucket=bucket, StartAfter="bar", MaxKeys=1)["NextContinuationToken"]
    got = v2(Bucket=bucket, StartAfter="bar", ContinuationToken=token)
    assert (got["StartAfter"], got["ContinuationToken"]) == ("bar", token)
    assert names(got) == ["foo", "quxx"] and not got["IsTruncated"]
    assert "Owner" not in v2(Bucket=bucket)["Contents"][0]
    refused(400, "InvalidArgument", v1, Bucket=bucket, EncodingType="base64")


def test_keys_are_told_in_the_encoding_that_was_asked_for(s3: Any, bucket: str) -> None:
    for key in ("foo+1/bar", "foo/bar/xyzzy", "quux ab/thud", "asdf+b"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    for call in (s3.list_objects, s3.list_objects_v2):
        got = call(Bucket=bucket, Delimiter="/", EncodingType="url")
        assert got["EncodingType"] == "url" and names(got) == ["asdf%2Bb"]
        assert prefixes(got) == ["foo%2B1/", "foo/", "quux%20ab/"]


def test_words_of_a_list_that_mean_nothing_are_refused(s3: Any, full: str) -> None:
    def asked(words: str) -> tuple[int, str] | None:
        def add(request: Any, **_: Any) -> None:
            request.url += f"&{words}"

        s3.meta.events.register("before-sign.s3.ListObjects", add)
        try:
            s3.list_objects(Bucket=full)
            return None
        except ClientError as error:
            return refusal(error)
        finally:
            s3.meta.events.unregister("before-sign.s3.ListObjects", add)

    assert asked("max-keys=blah") == (400, "InvalidArgument")
    assert asked("max-keys=-1") == (400, "InvalidArgument")
    assert asked("allow-unordered=true") is None, "in order is one of the orders"
    assert asked("allow-unordered=true&delimiter=/") == (400, "InvalidArgument")
