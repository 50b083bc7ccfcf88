"""S3 to the breadth at which other people's suites ask: each case a rule that clients lean on.

Lists are in test_s3_listing.py, parts in test_s3_multipart.py, what is signed and how in
test_s3_headers.py. What is left out is in docs/guide/doors.md, with reasons.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB, client, refusal
from tests.doors.test_s3_objects import body, refused

HOUR = datetime.timedelta(hours=1)


def fresh(prefix: str = "fresh") -> str:
    """A bucket's name that nobody has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


# --- buckets


def test_buckets_have_the_names_that_s3_allows(s3: Any) -> None:
    for name in ("aaa", "0-digit", "9.b", "foo.bar", "foo-bar", "a" * 60, "b" * 63):
        s3.create_bucket(Bucket=name)
        assert s3.list_objects_v2(Bucket=name)["KeyCount"] == 0
        s3.delete_bucket(Bucket=name)


def test_names_that_no_bucket_has(doors: GatewayCluster, key: Secret) -> None:
    """boto3 refuses some by itself: its own check is taken out."""
    s3 = client(doors, key)
    s3.meta.events.unregister("before-parameter-build.s3", _validator(s3))
    for name in (
        "a", "aa", "e" * 64, "_foo", "foo_bar", "alpha!soup", "foo-", "-foo", "foo..bar",
        "foo.-bar", "foo-.bar", ".foo", "foo.", "Foo", "192.168.5.123",
    ):  # fmt: skip
        refused(400, "InvalidBucketName", s3.create_bucket, Bucket=name)


def _validator(s3: Any) -> Callable[..., None]:
    from botocore.handlers import validate_bucket_name

    check: Callable[..., None] = validate_bucket_name
    return check


def test_a_bucket_made_again_is_as_it_was(doors: GatewayCluster, key: Secret, s3: Any) -> None:
    """As in us-east-1: told of a place, it is a conflict; by somebody else, always."""
    name = fresh()
    s3.create_bucket(Bucket=name)
    for each in ("one", "two"):
        s3.put_object(Bucket=name, Key=each, Body=b"x")

    s3.create_bucket(Bucket=name)

    found = [each["Key"] for each in s3.list_objects_v2(Bucket=name)["Contents"]]
    assert found == ["one", "two"]
    place = {"LocationConstraint": "eu-west-1"}
    again = {"Bucket": name, "CreateBucketConfiguration": place}
    refused(409, "BucketAlreadyOwnedByYou", s3.create_bucket, **again)
    other = client(doors, doors.key("breadth-bob", "--user", "bob"))
    refused(409, "BucketAlreadyExists", other.create_bucket, Bucket=name)


def test_a_bucket_tells_the_place_it_was_made_for(s3: Any) -> None:
    name = fresh()
    place = {"LocationConstraint": "lab-1"}
    s3.create_bucket(Bucket=name, CreateBucketConfiguration=place)
    assert s3.get_bucket_location(Bucket=name)["LocationConstraint"] == "lab-1"
    s3.delete_bucket(Bucket=name)


def test_who_a_bucket_belongs_to_is_checked_where_it_is_told(s3: Any, bucket: str) -> None:
    right, wrong = {"ExpectedBucketOwner": "ann"}, {"ExpectedBucketOwner": "123456789012"}
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", **right)
    assert s3.list_objects(Bucket=bucket, **right)["Contents"][0]["Key"] == "k"
    for call, more in (
        (s3.list_objects, {}),
        (s3.list_objects_v2, {}),
        (s3.put_object, {"Key": "k", "Body": b"y"}),
        (s3.get_object, {"Key": "k"}),
        (s3.delete_object, {"Key": "k"}),
        (s3.create_multipart_upload, {"Key": "k"}),
        (s3.copy_object, {"Key": "l", "CopySource": f"{bucket}/k"}),
        (s3.delete_bucket, {}),
    ):
        refused(403, "AccessDenied", call, Bucket=bucket, **more, **wrong)
    copied = {"Key": "l", "CopySource": f"{bucket}/k", "ExpectedSourceBucketOwner": "nobody"}
    refused(403, "AccessDenied", s3.copy_object, Bucket=bucket, **copied)
    assert body(s3, bucket, "k") == b"x"


def test_what_is_asked_of_a_bucket_that_is_not_there(s3: Any) -> None:
    no = {"Bucket": fresh()}
    missing = (404, "NoSuchBucket")
    refused(*missing, s3.list_objects, **no)
    refused(*missing, s3.list_objects_v2, **no)
    refused(*missing, s3.list_multipart_uploads, **no)
    refused(*missing, s3.delete_bucket, **no)
    refused(404, "404", s3.head_bucket, **no)
    refused(404, "404", s3.head_object, Key="k", **no)
    refused(*missing, s3.get_object, Key="k", **no)
    refused(*missing, s3.put_object, Key="k", Body=b"x", **no)
    refused(*missing, s3.put_object, Key="k/", **no)
    refused(*missing, s3.delete_object, Key="k", **no)
    refused(*missing, s3.delete_objects, Delete={"Objects": [{"Key": "k"}]}, **no)
    refused(*missing, s3.create_multipart_upload, Key="k", **no)
    refused(*missing, s3.get_bucket_location, **no)


def test_an_error_names_its_request(s3: Any, bucket: str) -> None:
    seen: list[bytes] = []

    def look(http_response: Any, **_: Any) -> None:
        seen.append(http_response.content)

    s3.meta.events.register("after-call.s3.GetObject", look)
    try:
        with pytest.raises(ClientError) as caught:
            s3.get_object(Bucket=bucket, Key="none")
    finally:
        s3.meta.events.unregister("after-call.s3.GetObject", look)
    headers = caught.value.response["ResponseMetadata"]["HTTPHeaders"]
    found = re.search(b"<RequestId>(.*)</RequestId>", seen[0])
    assert found is not None and found[1].decode() == headers["x-amz-request-id"]


def test_extensions_of_other_servers_are_not_taken_for_a_put(s3: Any, bucket: str) -> None:
    """`?append` replaces nothing here by accident."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"there")

    def append(request: Any, **_: Any) -> None:
        request.url += "?append&position=5"

    s3.meta.events.register("before-sign.s3.PutObject", append)
    try:
        refused(501, "NotImplemented", s3.put_object, Bucket=bucket, Key="k", Body=b"more")
    finally:
        s3.meta.events.unregister("before-sign.s3.PutObject", append)
    assert body(s3, bucket, "k") == b"there"


# --- objects


def test_keys_of_all_signs(s3: Any, bucket: str) -> None:
    keys = [" ", '"', "$", "%", "&", "'", "<", ">", "_", "_ ", "_ _", "__", "?versionId", "#", "+",
            "\xae\x8a-", "a=b;c,d", "\U0001f600", "[x]", "a\\b", "~", "%2F"]  # fmt: skip
    for each in keys:
        s3.put_object(Bucket=bucket, Key=each, Body=each.encode())

    listed = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]]

    assert listed == sorted(keys, key=str.encode)
    for each in keys:
        assert body(s3, bucket, each) == each.encode()
        s3.copy_object(Bucket=bucket, Key="copied", CopySource={"Bucket": bucket, "Key": each})
        assert body(s3, bucket, "copied") == each.encode()
    done = s3.delete_objects(
        Bucket=bucket, Delete={"Objects": [{"Key": each} for each in [*keys, "copied"]]}
    )
    assert "Errors" not in done and s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_metadata_come_and_go_with_their_object(s3: Any, bucket: str) -> None:
    def told(**options: Any) -> dict[str, str]:
        s3.put_object(Bucket=bucket, Key="k", Body=b"x", **options)
        found: dict[str, str] = s3.get_object(Bucket=bucket, Key="k")["Metadata"]
        assert found == s3.head_object(Bucket=bucket, Key="k")["Metadata"]
        return found

    assert told(Metadata={"meta1": "mymeta"}) == {"meta1": "mymeta"}
    assert told(Metadata={"meta1": ""}) == {"meta1": ""}
    assert told(Metadata={"UPPER": "Value"}) == {"upper": "Value"}
    assert told() == {}, "an object that is replaced leaves nothing"


def test_the_life_of_an_object(s3: Any, bucket: str) -> None:
    for text in (b"first", b"soon gone", b""):
        s3.put_object(Bucket=bucket, Key="k", Body=text)
        assert body(s3, bucket, "k") == text
        assert s3.head_object(Bucket=bucket, Key="k")["ContentLength"] == len(text)
    s3.delete_object(Bucket=bucket, Key="k")
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="k")


def test_a_star_asks_for_any_object_when_storing(s3: Any, bucket: str) -> None:
    put = s3.put_object
    refused(404, "NoSuchKey", put, Bucket=bucket, Key="k", Body=b"1", IfMatch="*")
    put(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")
    put(Bucket=bucket, Key="k", Body=b"2", IfMatch="*")
    assert body(s3, bucket, "k") == b"2"


def test_an_object_is_deleted_only_if_it_is_as_asked(s3: Any, bucket: str) -> None:
    delete = s3.delete_object
    k = {"Bucket": bucket, "Key": "k"}
    for each in ({"IfMatch": "*"}, {"IfMatch": '"0"'}, {"IfMatchSize": 9}):
        delete(**each, **k)  # what is not there is deleted already, whoever asks once more
    etag = s3.put_object(Body=b"one", **k)["ETag"]
    at = s3.head_object(**k)["LastModified"]
    refused(412, "PreconditionFailed", delete, IfMatch='"0"', **k)
    refused(412, "PreconditionFailed", delete, IfMatchSize=9, **k)
    refused(412, "PreconditionFailed", delete, IfMatchLastModifiedTime=at - HOUR, **k)
    assert body(s3, bucket, "k") == b"one"
    delete(IfMatch=etag, IfMatchSize=3, IfMatchLastModifiedTime=at, **k)
    refused(404, "NoSuchKey", s3.get_object, **k)
    s3.put_object(Body=b"two", **k)
    delete(IfMatch="*", **k)
    refused(404, "NoSuchKey", s3.get_object, **k)


def test_of_many_objects_those_are_deleted_that_are_as_asked(s3: Any, bucket: str) -> None:
    etags = {}
    for each in ("a", "b", "c", "d"):
        etags[each] = s3.put_object(Bucket=bucket, Key=each, Body=each.encode())["ETag"]
    done = s3.delete_objects(
        Bucket=bucket,
        Delete={
            "Objects": [
                {"Key": "a", "ETag": etags["a"]},
                {"Key": "b", "ETag": etags["a"]},
                {"Key": "c", "Size": 1},
                {"Key": "d", "Size": 2},
                {"Key": "e", "ETag": etags["a"]},
            ]
        },
    )
    assert sorted(each["Key"] for each in done["Deleted"]) == ["a", "c", "e"]
    errors = sorted((each["Key"], each["Code"]) for each in done["Errors"])
    assert errors == [("b", "PreconditionFailed"), ("d", "PreconditionFailed")]


def test_a_delete_under_a_condition_takes_that_very_object(
    doors: GatewayCluster, key: Secret, s3: Any, bucket: str
) -> None:
    """Of a delete and a put that race, the put's object is never what the delete takes."""
    other = client(doors, key, "h2")
    for number in range(10):
        old = s3.put_object(Bucket=bucket, Key="k", Body=b"old")["ETag"]
        gate = threading.Barrier(2)

        def delete(old: str = old, gate: threading.Barrier = gate) -> str:
            gate.wait(60)
            try:
                other.delete_object(Bucket=bucket, Key="k", IfMatch=old)
            except ClientError as error:
                return refusal(error)[1]
            return "deleted"

        with ThreadPoolExecutor(1) as pool:
            deleting = pool.submit(delete)
            gate.wait(60)
            s3.put_object(Bucket=bucket, Key="k", Body=b"new %d" % number)
            assert deleting.result(60) in ("deleted", "PreconditionFailed")
        assert body(s3, bucket, "k") == b"new %d" % number


def test_copies_from_bucket_to_bucket(s3: Any, bucket: str) -> None:
    other = fresh()
    s3.create_bucket(Bucket=other)
    s3.put_object(Bucket=bucket, Key="empty", Body=b"", ContentType="audio/ogg")
    s3.put_object(Bucket=bucket, Key="k", Body=b"foo", Metadata={"a": "1", "b": "2"})
    s3.copy_object(Bucket=other, Key="empty", CopySource=f"/{bucket}/empty")
    s3.copy_object(Bucket=other, Key="k", CopySource={"Bucket": bucket, "Key": "k"})
    assert s3.head_object(Bucket=other, Key="empty")["ContentType"] == "audio/ogg"
    assert s3.head_object(Bucket=other, Key="empty")["ContentLength"] == 0
    assert body(s3, other, "k") == b"foo"
    assert s3.head_object(Bucket=other, Key="k")["Metadata"] == {"a": "1", "b": "2"}
    kind = {"ContentType": "text/html", "MetadataDirective": "REPLACE"}
    s3.copy_object(Bucket=other, Key="k", CopySource=f"{bucket}/k", Metadata={"c": "3"}, **kind)
    head = s3.head_object(Bucket=other, Key="k")
    assert (head["Metadata"], head["ContentType"]) == ({"c": "3"}, "text/html")


def test_conditions_of_copying_hold_and_fail_as_they_are_told(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    at = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    to = {"Bucket": bucket, "Key": "l", "CopySource": f"{bucket}/k"}
    for holds in (
        {"CopySourceIfMatch": etag},
        {"CopySourceIfNoneMatch": '"other"'},
        {"CopySourceIfModifiedSince": at - HOUR},
        {"CopySourceIfUnmodifiedSince": at + HOUR},
    ):
        s3.copy_object(**to, **holds)
    for fails in (
        {"CopySourceIfMatch": '"other"'},
        {"CopySourceIfNoneMatch": etag},
        {"CopySourceIfModifiedSince": at},
        {"CopySourceIfUnmodifiedSince": at - HOUR},
    ):
        refused(412, "PreconditionFailed", s3.copy_object, **to, **fails)


# --- writers and readers at a time


class Slowly:
    """A body of one letter that does something when it was half read."""

    def __init__(self, letter: bytes, size: int, midway: Callable[[], None]) -> None:
        self._left, self._letter, self._half, self._midway = size, letter, size // 2, midway

    def read(self, size: int = -1) -> bytes:
        if self._left <= self._half:
            midway, self._midway = self._midway, lambda: None
            midway()
        count = min(self._left, self._half if size < 0 else min(size, self._half))
        self._left -= count
        return self._letter * count

    def seek(self, *_: int) -> None:
        """Whoever signs wants to; nothing is read before it is sent."""

    def tell(self) -> int:
        return 0

    def __len__(self) -> int:
        return self._left


def unread(doors: GatewayCluster, key: Secret) -> Any:
    """A client that does not read a body before it sends it: neither for a sum nor to sign it."""
    return client(
        doors,
        key,
        request_checksum_calculation="when_required",
        s3={"addressing_style": "path", "payload_signing_enabled": False},
    )


@pytest.fixture
def plain(doors: GatewayCluster, key: Secret) -> Any:
    """A client that sends a body as it comes."""
    return unread(doors, key)


@pytest.mark.parametrize("size", [MIB, 8 * MIB])
def test_what_is_read_while_it_is_replaced_is_one_of_both(
    plain: Any, s3: Any, bucket: str, size: int
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"A" * size)
    got = s3.get_object(Bucket=bucket, Key="k")["Body"]
    begun = got.read(1000)
    seen: list[bytes] = []
    slow = Slowly(b"B", size, lambda: seen.append(body(s3, bucket, "k")))

    plain.put_object(Bucket=bucket, Key="k", Body=slow)

    assert begun + got.read() == b"A" * size, "a reader goes on in what it began"
    assert seen == [b"A" * size], "nothing is seen before the end"
    assert body(s3, bucket, "k") == b"B" * size


def test_of_two_writers_the_last_to_end_has_the_key(plain: Any, s3: Any, bucket: str) -> None:
    def between() -> None:
        s3.put_object(Bucket=bucket, Key="k", Body=b"B" * MIB)

    plain.put_object(Bucket=bucket, Key="k", Body=Slowly(b"A", MIB, between))
    assert body(s3, bucket, "k") == b"A" * MIB


def test_of_two_writers_under_one_condition_one_stores(plain: Any, s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"A")["ETag"]

    def between() -> None:
        s3.put_object(Bucket=bucket, Key="k", Body=b"C", IfMatch=etag)

    slow = {"Bucket": bucket, "Key": "k", "Body": Slowly(b"B", MIB, between), "IfMatch": etag}
    refused(412, "PreconditionFailed", plain.put_object, **slow)
    assert body(s3, bucket, "k") == b"C"


@pytest.mark.parametrize("key_", ["k", "deep/er/k"])
def test_a_bucket_that_is_deleted_meanwhile_stays_deleted(
    plain: Any, s3: Any, doors: GatewayCluster, key_: str
) -> None:
    name = fresh()
    s3.create_bucket(Bucket=name)
    slow = Slowly(b"A", 2 * MIB, lambda: s3.delete_bucket(Bucket=name) and None)
    refused(404, "NoSuchBucket", plain.put_object, Bucket=name, Key=key_, Body=slow)
    refused(404, "404", s3.head_bucket, Bucket=name)
    assert not [each for each in doors.client().list("/") if name in each.path]


def test_a_range_of_a_large_object(s3: Any, bucket: str) -> None:
    data = hashlib.sha256(b"seed").digest() * (8 * MIB // 32)
    s3.put_object(Bucket=bucket, Key="k", Body=data)
    got = s3.get_object(Bucket=bucket, Key="k", Range="bytes=3145728-5242880")
    assert got["Body"].read() == data[3145728:5242881]
    assert got["ContentRange"] == f"bytes 3145728-5242880/{len(data)}"
