"""S3 as other people's suites use it: several users, buckets that are swept by versions, words
that clients say out of habit, and the rules that only such suites ask.

How to point a suite at a gateway is in docs/guide/doors.md, with what it finds missing.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from botocore import UNSIGNED
from botocore.exceptions import ClientError

from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB, client, endpoint, refusal
from tests.doors.test_s3_objects import body, refused

FIVE = 5 * MIB


@pytest.fixture(scope="module")
def users(doors: GatewayCluster) -> dict[str, Any]:
    """The three that suites are configured with, each with a key of their own."""
    names = ("main", "alt", "tenant")
    return {name: client(doors, doors.key(f"suite-{name}", "--user", name)) for name in names}


@pytest.fixture
def anybody(doors: GatewayCluster, key: Secret) -> Any:
    """A client that signs nothing."""
    return client(doors, key, signature_version=UNSIGNED)


def sweep(s3: Any, prefix: str) -> None:
    """Take away every bucket of a prefix with all versions, as a suite does before and after."""
    for bucket in s3.list_buckets()["Buckets"]:
        name = bucket["Name"]
        if not name.startswith(prefix):
            continue
        for batch in _versions(s3, name):
            done = s3.delete_objects(
                Bucket=name,
                Delete={"Objects": batch, "Quiet": True},
                BypassGovernanceRetention=True,
            )
            assert "Errors" not in done, done["Errors"]
        s3.delete_bucket(Bucket=name)


def _versions(s3: Any, bucket: str) -> Iterator[list[dict[str, str]]]:
    """Keys and versions, a few a page, by markers that are empty at first."""
    markers = {"KeyMarker": "", "VersionIdMarker": ""}
    while True:
        page = s3.list_object_versions(Bucket=bucket, MaxKeys=2, **markers)
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        if found:
            yield [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found]
        if not page["IsTruncated"]:
            return
        names = (("KeyMarker", "NextKeyMarker"), ("VersionIdMarker", "NextVersionIdMarker"))
        markers = {marker: page[next] for marker, next in names}


def test_the_buckets_of_three_users_are_swept(users: dict[str, Any]) -> None:
    prefix = f"suite-{uuid.uuid4().hex[:8]}-"
    for number, s3 in enumerate(users.values(), 1):
        bucket = f"{prefix}{number}"
        s3.create_bucket(Bucket=bucket)
        for each in ("a", "b/c", "d/", " ", "e%2F+"):
            s3.put_object(Bucket=bucket, Key=each, Body=b"")
        upload = s3.create_multipart_upload(Bucket=bucket, Key="open")["UploadId"]
        s3.upload_part(Bucket=bucket, Key="open", UploadId=upload, PartNumber=1, Body=b"x")
    main = users["main"]
    listed = main.list_object_versions(Bucket=f"{prefix}1")["Versions"]
    assert [(each["Key"], each["VersionId"], each["IsLatest"]) for each in listed] == [
        (name, "null", True) for name in (" ", "a", "b/c", "d/", "e%2F+")
    ]
    assert {each["Owner"]["ID"] for each in listed} == {"main"}
    main.delete_object(
        Bucket=f"{prefix}1", Key="a", VersionId="null", BypassGovernanceRetention=True
    )
    refused(404, "NoSuchKey", main.get_object, Bucket=f"{prefix}1", Key="a")
    other = {"Bucket": f"{prefix}1", "Key": "b/c", "VersionId": "3sL4kqtJlcpXroDTDmJ"}
    refused(404, "NoSuchVersion", main.delete_object, **other)

    for s3 in users.values():
        sweep(s3, prefix)

    assert not [b for b in main.list_buckets()["Buckets"] if b["Name"].startswith(prefix)]


def test_uploads_name_the_users_who_began_them(users: dict[str, Any], bucket: str) -> None:
    ids = {
        name: users[name].create_multipart_upload(Bucket=bucket, Key=f"of-{name}")["UploadId"]
        for name in ("alt", "main")
    }
    for s3 in users.values():
        found = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
        told = [(u["Key"], u["UploadId"], u["Initiator"]["ID"], u["Owner"]["ID"]) for u in found]
        assert told == [(f"of-{name}", ids[name], name, name) for name in ("alt", "main")]


def test_an_acl_said_out_of_habit_stores_and_grants_nothing(
    s3: Any, anybody: Any, bucket: str
) -> None:
    """Many clients say one with everything they store; that the world reads it is not done."""
    open_bucket = f"acl-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=open_bucket, ACL="public-read")
    s3.put_object(Bucket=open_bucket, Key="k", Body=b"x", ACL="public-read")
    s3.copy_object(
        Bucket=bucket, Key="copy", CopySource=f"{open_bucket}/k", ACL="authenticated-read"
    )
    assert body(s3, open_bucket, "k") == b"x" and body(s3, bucket, "copy") == b"x"
    for call, more in (
        (anybody.get_object, {"Key": "k"}),
        (anybody.list_objects_v2, {}),
        (anybody.put_object, {"Key": "k", "Body": b"y"}),
    ):
        refused(403, "AccessDenied", call, Bucket=open_bucket, **more)
    refused(403, "AccessDenied", anybody.list_buckets)
    for told in (
        s3.get_bucket_acl(Bucket=open_bucket),
        s3.get_object_acl(Bucket=open_bucket, Key="k"),
    ):
        assert [(g["Grantee"]["ID"], g["Permission"]) for g in told["Grants"]] == [
            (told["Owner"]["ID"], "FULL_CONTROL")
        ]
    s3.put_object_acl(Bucket=open_bucket, Key="k", ACL="private")
    s3.put_bucket_acl(Bucket=open_bucket, ACL="private")
    for call, more in ((s3.put_object_acl, {"Key": "k"}), (s3.put_bucket_acl, {})):
        refused(501, "NotImplemented", call, Bucket=open_bucket, ACL="public-read", **more)
    refused(404, "NoSuchKey", s3.put_object_acl, Bucket=open_bucket, Key="none", ACL="private")
    wrong = {"Bucket": bucket, "Key": "l", "Body": b"", "ACL": "public-ready"}
    refused(400, "InvalidArgument", s3.put_object, **wrong)


def test_no_page_of_another_site_gets_in(doors: GatewayCluster, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
    asks = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "GET"}
    with doors.session(None) as session:
        for address in (url, f"{endpoint(doors)}/{bucket}/k", f"{endpoint(doors)}/none"):
            assert session.options(address).status_code == 400
            answer = session.options(address, headers=asks)
            assert (answer.status_code, "AccessForbidden" in answer.text) == (403, True)
            assert not [name for name in answer.headers if name.lower().startswith("access-")]
        answer = session.get(url, headers={"Origin": asks["Origin"]})
        assert answer.content == b"x"
        assert not [name for name in answer.headers if name.lower().startswith("access-")]


def test_what_must_not_be_there_may_be_named_by_its_etag(s3: Any, bucket: str) -> None:
    put, k = s3.put_object, {"Bucket": bucket, "Key": "k"}
    etag = put(Body=b"1", IfNoneMatch='"0"', **k)["ETag"]
    refused(412, "PreconditionFailed", put, Body=b"2", IfNoneMatch=etag, **k)
    refused(412, "PreconditionFailed", put, Body=b"2", IfNoneMatch=etag.strip('"'), **k)
    refused(412, "PreconditionFailed", put, Body=b"2", IfNoneMatch="*", **k)
    assert body(s3, bucket, "k") == b"1"
    put(Body=b"2", IfNoneMatch="badetag", **k)
    assert body(s3, bucket, "k") == b"2"
    refused(412, "PreconditionFailed", put, Body=b"3", IfMatch=etag, **k)
    refused(501, "NotImplemented", put, Body=b"3", IfMatch=etag, IfNoneMatch="*", **k)


def test_an_upload_is_completed_only_if_what_is_there_is_as_asked(s3: Any, bucket: str) -> None:
    def complete(*, data: bytes, **conditions: str) -> Any:
        id = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
        named = {"Bucket": bucket, "Key": "k", "UploadId": id}
        etag = s3.upload_part(PartNumber=1, Body=data, **named)["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        return s3.complete_multipart_upload(MultipartUpload=parts, **named, **conditions)

    refused(404, "NoSuchKey", complete, data=b"0", IfMatch="*")
    etag = complete(data=b"1", IfNoneMatch="*")["ETag"]
    refused(412, "PreconditionFailed", complete, data=b"2", IfNoneMatch="*")
    refused(412, "PreconditionFailed", complete, data=b"2", IfNoneMatch=etag)
    refused(412, "PreconditionFailed", complete, data=b"2", IfMatch='"bad"')
    assert body(s3, bucket, "k") == b"1"
    complete(data=b"3", IfMatch=etag)
    assert body(s3, bucket, "k") == b"3"


def test_what_is_not_there_is_no_delete_marker(s3: Any, bucket: str) -> None:
    for call in (s3.head_object, s3.get_object):
        with pytest.raises(ClientError) as caught:
            call(Bucket=bucket, Key="gone")
        headers = caught.value.response["ResponseMetadata"]["HTTPHeaders"]
        assert headers["x-amz-delete-marker"] == "false"
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    refused(404, "NoSuchKey", s3.get_object_torrent, Bucket=bucket, Key="k")


def test_the_coding_of_the_way_is_none_of_the_object(s3: Any, bucket: str) -> None:
    for said, kept in (
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate, gzip"),
        ("gzip, aws-chunked", "gzip"),
        ("aws-chunked, gzip", "gzip"),
        ("aws-chunked", None),
        ("aws-chunked, aws-chunked", None),
    ):
        for data in ({}, {"Body": b"x"}):
            s3.put_object(Bucket=bucket, Key="k", ContentEncoding=said, **data)
            head = s3.head_object(Bucket=bucket, Key="k")
            assert (head.get("ContentEncoding"), head["ContentLength"]) == (kept, len(data))


@pytest.mark.parametrize("algorithm", ["SHA256", "CRC64NVME"])
def test_a_sum_that_cannot_be_is_a_wrong_one(s3: Any, bucket: str, algorithm: str) -> None:
    name = f"Checksum{algorithm}"
    k = {"Bucket": bucket, "Key": "k", "Body": b"A" * 1024, "ChecksumAlgorithm": algorithm}
    told = s3.put_object(**k)[name]
    assert s3.put_object(**k, **{name: told})[name] == told
    assert name not in s3.head_object(Bucket=bucket, Key="k")
    assert s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")[name] == told
    refused(400, "BadDigest", s3.put_object, **k, **{name: "bad"})


def test_the_sums_of_parts_are_told_with_them(s3: Any, bucket: str) -> None:
    """Also if Complete did not repeat them: each was checked when it came."""
    began = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="SHA256")
    named = {"Bucket": bucket, "Key": "k", "UploadId": began["UploadId"]}
    data = [b"a" * FIVE, b"b" * FIVE, b"c"]
    parts = []
    for number, each in enumerate(data, 1):
        sent = s3.upload_part(PartNumber=number, Body=each, ChecksumAlgorithm="SHA256", **named)
        parts.append({"PartNumber": number, "ETag": sent["ETag"].strip('"')})
    done = s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **named)

    wanted = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=wanted)

    assert found["Checksum"]["ChecksumSHA256"] == done["ChecksumSHA256"]
    assert found["ETag"] == done["ETag"].strip('"') and found["StorageClass"] == "STANDARD"
    assert found["ObjectSize"] == 2 * FIVE + 1 and "VersionId" not in found
    sums = [base64.b64encode(hashlib.sha256(each).digest()).decode() for each in data]
    assert [each["ChecksumSHA256"] for each in found["ObjectParts"]["Parts"]] == sums


def test_a_link_may_say_whose_the_object_is(doors: GatewayCluster, s3: Any, bucket: str) -> None:
    url = s3.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "k", "ACL": "private"})
    with doors.session(None) as session:
        assert session.put(url, b"x").status_code == 403, "what was signed has to come"
        assert session.put(url, b"hello", headers={"x-amz-acl": "private"}).status_code == 200
    assert body(s3, bucket, "k") == b"hello"


def test_strangers_and_old_keys_of_a_host_shut_nobody_out(
    doors: GatewayCluster, s3: Any, anybody: Any, bucket: str
) -> None:
    """Whatever is refused comes from one address here: those with good keys go on."""
    wrong = client(doors, Secret("badauth", "x"), retries={"max_attempts": 0})
    codes = set()
    for _ in range(21):
        with pytest.raises(ClientError) as caught:
            wrong.list_buckets()
        codes.add(refusal(caught.value)[0])
    for _ in range(21):
        refused(403, "AccessDenied", anybody.list_buckets)
    assert codes == {403, 429}
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert body(s3, bucket, "k") == b"x"


def test_a_head_that_waits_is_refused_before_its_body(doors: GatewayCluster, bucket: str) -> None:
    """Expect: 100-continue without a signature."""
    with doors.session(None) as session:
        headers = {"Expect": "100-continue", "Content-Length": "123"}
        request = requests.Request("PUT", f"{endpoint(doors)}/{bucket}/k", headers=headers)
        assert session.send(request.prepare()).status_code == 403
