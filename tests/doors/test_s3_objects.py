"""Objects and buckets through S3, with boto3 (doors §5); to the breadth of the usual suites."""

from __future__ import annotations

import base64
import datetime
import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB, client, refusal


def refused(status: int, code: str, call: Callable[..., Any], **arguments: Any) -> None:
    """The call fails so."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert refusal(caught.value) == (status, code)


def body(s3: Any, bucket: str, key: str, **arguments: Any) -> bytes:
    data: bytes = s3.get_object(Bucket=bucket, Key=key, **arguments)["Body"].read()
    return data


# --- buckets


def test_buckets_are_made_listed_and_deleted(s3: Any, doors: GatewayCluster) -> None:
    s3.create_bucket(Bucket="first-bucket")
    s3.create_bucket(
        Bucket="other.bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )

    names = [each["Name"] for each in s3.list_buckets()["Buckets"]]
    assert {"first-bucket", "other.bucket"} <= set(names) and names == sorted(names)
    assert s3.head_bucket(Bucket="first-bucket")["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert s3.get_bucket_location(Bucket="first-bucket")["LocationConstraint"] is None
    s3.put_object(Bucket="first-bucket", Key="a/b", Body=b"x")
    refused(409, "BucketNotEmpty", s3.delete_bucket, Bucket="first-bucket")
    s3.delete_object(Bucket="first-bucket", Key="a/b")
    s3.create_multipart_upload(Bucket="first-bucket", Key="never")
    s3.delete_bucket(Bucket="first-bucket")
    s3.delete_bucket(Bucket="other.bucket")
    refused(404, "404", s3.head_bucket, Bucket="first-bucket")
    refused(404, "NoSuchBucket", s3.delete_bucket, Bucket="first-bucket")
    refused(404, "NoSuchBucket", s3.put_object, Bucket="first-bucket", Key="k", Body=b"x")
    assert not doors.client().find_keys("/", "first-bucket").entries


def test_a_list_of_buckets_comes_in_pages(s3: Any) -> None:
    for number in range(3):
        s3.create_bucket(Bucket=f"paged-{number}")

    first = s3.list_buckets(Prefix="paged-", MaxBuckets=2)
    rest = s3.list_buckets(Prefix="paged-", ContinuationToken=first["ContinuationToken"])

    assert [each["Name"] for each in first["Buckets"]] == ["paged-0", "paged-1"]
    assert [each["Name"] for each in rest["Buckets"]] == ["paged-2"]


@pytest.mark.parametrize("name", ["UPPER", "a_b", "-ab", "ab-", "a..b", "192.168.5.4"])
def test_what_no_bucket_can_be_called_is_refused(s3: Any, name: str) -> None:
    refused(400, "InvalidBucketName", s3.create_bucket, Bucket=name)


def test_what_there_is_not_is_told_truthfully(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")

    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    grants = s3.get_bucket_acl(Bucket=bucket)["Grants"]
    assert [(each["Grantee"]["ID"], each["Permission"]) for each in grants] == [
        ("ann", "FULL_CONTROL")
    ]
    assert s3.get_object_acl(Bucket=bucket, Key="k")["Owner"]["ID"] == "ann"
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket=bucket)
    for code, call in {
        "NoSuchBucketPolicy": s3.get_bucket_policy,
        "NoSuchCORSConfiguration": s3.get_bucket_cors,
        "NoSuchLifecycleConfiguration": s3.get_bucket_lifecycle_configuration,
        "NoSuchTagSet": s3.get_bucket_tagging,
        "NoSuchWebsiteConfiguration": s3.get_bucket_website,
        "ObjectLockConfigurationNotFoundError": s3.get_object_lock_configuration,
        "ServerSideEncryptionConfigurationNotFoundError": s3.get_bucket_encryption,
        "NoSuchPublicAccessBlockConfiguration": s3.get_public_access_block,
        "OwnershipControlsNotFoundError": s3.get_bucket_ownership_controls,
    }.items():
        refused(404, code, call, Bucket=bucket)


def test_what_is_not_done_is_refused_by_its_name(s3: Any, bucket: str) -> None:
    put, no = s3.put_object, "NotImplemented"
    on = {"Status": "Enabled"}
    refused(501, no, s3.put_bucket_versioning, Bucket=bucket, VersioningConfiguration=on)
    refused(501, no, s3.put_bucket_acl, Bucket=bucket, ACL="public-read")
    refused(501, no, s3.put_bucket_policy, Bucket=bucket, Policy="{}")
    refused(501, no, put, Bucket=bucket, Key="k", Body=b"x", GrantRead="id=bob")
    refused(501, no, put, Bucket=bucket, Key="k", Body=b"x", Tagging="a=b")
    refused(501, no, put, Bucket=bucket, Key="k", Body=b"x", ServerSideEncryption="AES256")
    refused(400, "InvalidStorageClass", put, Bucket=bucket, Key="k", StorageClass="GLACIER")
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="k")
    put(Bucket=bucket, Key="k", Body=b"x", ACL="private")
    refused(404, "NoSuchVersion", s3.get_object, Bucket=bucket, Key="k", VersionId="abc")


# --- objects


@pytest.mark.parametrize("size", [0, 1, 65_536, 3 * MIB + 7])
def test_an_object_comes_back_as_it_was_stored(s3: Any, bucket: str, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]

    stored = s3.put_object(
        Bucket=bucket,
        Key="dir/näme +%41 x",
        Body=data,
        ContentType="text/csv",
        ContentDisposition='attachment; filename="x"',
        ContentLanguage="de",
        CacheControl="max-age=5",
        ContentEncoding="gzip",
        Expires=datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC),
        Metadata={"colour": "blue", "dotted.name_x": "1"},
    )
    got = s3.get_object(Bucket=bucket, Key="dir/näme +%41 x")
    head = s3.head_object(Bucket=bucket, Key="dir/näme +%41 x")

    assert stored["ETag"] == f'"{hashlib.md5(data).hexdigest()}"'
    assert got["Body"].read() == data
    for answer in (got, head):
        assert answer["ContentLength"] == size and answer["ETag"] == stored["ETag"]
        assert answer["ContentType"] == "text/csv" and answer["ContentLanguage"] == "de"
        assert answer["ContentDisposition"] == 'attachment; filename="x"'
        assert answer["CacheControl"] == "max-age=5" and answer["ContentEncoding"] == "gzip"
        assert answer["ExpiresString"] == "Tue, 01 Jan 2030 00:00:00 GMT"
        assert answer["Metadata"] == {"colour": "blue", "dotted.name_x": "1"}


def test_an_object_says_nothing_that_nobody_said(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["ContentType"] == "binary/octet-stream" and got["Metadata"] == {}
    assert not {"CacheControl", "ContentEncoding", "ContentDisposition"} & set(got)


def test_an_object_is_a_file_for_every_other_door(
    s3: Any, bucket: str, doors: GatewayCluster
) -> None:
    s3.put_object(Bucket=bucket, Key="in/a.csv", Body=b"1,2\n")
    put = doors.mrstream("dfs", "-put", "-", f"/{bucket}/in/b.csv", input=b"3,4\n")
    assert put.returncode == 0, put.stderr

    assert doors.mrstream("dfs", "-cat", f"/{bucket}/in/a.csv").stdout == b"1,2\n"
    assert body(s3, bucket, "in/b.csv") == b"3,4\n"
    first = s3.head_object(Bucket=bucket, Key="in/b.csv")["ETag"]
    assert first.endswith('-0"'), "nobody takes it for an MD5"
    assert first == s3.list_objects_v2(Bucket=bucket, Prefix="in/b")["Contents"][0]["ETag"]
    added = doors.mrstream("dfs", "-appendToFile", "-", f"/{bucket}/in/a.csv", input=b"5,6\n")
    assert added.returncode == 0, added.stderr
    assert body(s3, bucket, "in/a.csv") == b"1,2\n5,6\n"
    assert s3.head_object(Bucket=bucket, Key="in/a.csv")["ETag"].endswith('-0"')


def test_the_last_writer_has_the_key_and_the_one_before_is_in_the_trash(
    s3: Any, bucket: str, doors: GatewayCluster
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"one", Metadata={"a": "1"})
    s3.put_object(Bucket=bucket, Key="k", Body=b"two")
    assert body(s3, bucket, "k") == b"two"
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {}
    trash = doors.client().trash(f"/{bucket}")
    assert [entry.original_path for entry in trash] == [f"/{bucket}/k"]


@pytest.mark.parametrize("named", ["a//b", "/a", "x" * 256, ".mrstream-uploads/x"])
def test_a_key_that_no_path_can_say_is_refused_and_is_not_there(
    s3: Any, bucket: str, named: str
) -> None:
    refused(400, "InvalidArgument", s3.put_object, Bucket=bucket, Key=named, Body=b"x")
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key=named)
    s3.delete_object(Bucket=bucket, Key=named)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_key_is_too_long_at_1025_bytes(s3: Any, bucket: str) -> None:
    long = "/".join(["n" * 204] * 5)
    s3.put_object(Bucket=bucket, Key=long, Body=b"x")
    assert len(long) == 1024 and body(s3, bucket, long) == b"x"
    refused(400, "KeyTooLongError", s3.put_object, Bucket=bucket, Key=long + "n", Body=b"x")


def test_an_object_and_a_directory_of_one_name_exclude_each_other(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"x")
    s3.put_object(Bucket=bucket, Key="f", Body=b"x")
    refused(409, "ObjectIsDirectory", s3.put_object, Bucket=bucket, Key="a", Body=b"x")
    refused(409, "ObjectParentIsFile", s3.put_object, Bucket=bucket, Key="f/g", Body=b"x")
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="a")
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="f/g")
    s3.delete_object(Bucket=bucket, Key="a")
    assert body(s3, bucket, "a/b") == b"x"


def test_a_key_that_ends_with_a_slash_is_a_mark_on_a_directory(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="x/y/", Metadata={"m": "1"})
    s3.put_object(Bucket=bucket, Key="x/y/f", Body=b"1")

    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [
        "x/y/",
        "x/y/f",
    ]
    assert s3.head_object(Bucket=bucket, Key="x/y/")["Metadata"] == {"m": "1"}
    assert body(s3, bucket, "x/y/") == b""
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="x/")
    refused(400, "InvalidArgument", s3.put_object, Bucket=bucket, Key="z/", Body=b"1" * 1025)
    assert s3.put_object(Bucket=bucket, Key="z/", Body=b"asdf/")["ETag"] == (
        f'"{hashlib.md5(b"asdf/").hexdigest()}"'
    )
    assert body(s3, bucket, "z/") == b"asdf/" and body(s3, bucket, "z/", Range="bytes=1-2") == b"sd"
    told = s3.list_objects_v2(Bucket=bucket, Prefix="z")["Contents"][0]
    head = s3.head_object(Bucket=bucket, Key="z/")
    assert (told["Size"], told["ETag"]) == (5, head["ETag"]) and head["ContentLength"] == 5
    s3.delete_object(Bucket=bucket, Key="z/")
    s3.delete_object(Bucket=bucket, Key="x/y/")
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["x/y/f"]
    s3.delete_object(Bucket=bucket, Key="x/y/f")
    left = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert left["KeyCount"] == 0, "no ghost of a directory"


# --- ranges and conditions


def test_a_range_gives_these_bytes_or_is_refused(s3: Any, bucket: str) -> None:
    data = bytes(range(256)) * 40
    s3.put_object(Bucket=bucket, Key="k", Body=data)
    get = s3.get_object

    for wanted, expected in {
        "bytes=0-0": data[:1],
        "bytes=5-9": data[5:10],
        "bytes=10000-": data[10_000:],
        "bytes=-7": data[-7:],
        "bytes=-99999": data,
        "bytes=10000-99999": data[10_000:],
    }.items():
        got = get(Bucket=bucket, Key="k", Range=wanted)
        assert got["Body"].read() == expected, wanted
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    got = get(Bucket=bucket, Key="k", Range="bytes=5-9")
    assert got["ContentRange"] == f"bytes 5-9/{len(data)}"
    refused(416, "InvalidRange", get, Bucket=bucket, Key="k", Range="bytes=10240-10250")
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    refused(416, "InvalidRange", get, Bucket=bucket, Key="empty", Range="bytes=0-1")


def test_an_object_is_read_only_if_it_is_as_asked(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"x")["ETag"]
    at = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    hour = datetime.timedelta(hours=1)
    get = s3.get_object

    def ask(**conditions: Any) -> int:
        try:
            answer = get(Bucket=bucket, Key="k", **conditions)
        except ClientError as error:
            return refusal(error)[0]
        status: int = answer["ResponseMetadata"]["HTTPStatusCode"]
        return status

    assert ask(IfMatch=etag) == 200 and ask(IfMatch='"other"') == 412
    assert ask(IfNoneMatch=etag) == 304 and ask(IfNoneMatch='"other"') == 200
    assert ask(IfModifiedSince=at - hour) == 200 and ask(IfModifiedSince=at) == 304
    assert ask(IfUnmodifiedSince=at) == 200 and ask(IfUnmodifiedSince=at - hour) == 412
    assert ask(IfMatch=etag, IfUnmodifiedSince=at - hour) == 200
    assert ask(IfNoneMatch='"other"', IfModifiedSince=at + hour) == 200


def test_an_object_is_stored_only_if_what_is_there_is_as_asked(s3: Any, bucket: str) -> None:
    put = s3.put_object
    first = put(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    again = {"Bucket": bucket, "Key": "k", "Body": b"2"}
    refused(412, "PreconditionFailed", put, IfNoneMatch="*", **again)
    refused(412, "PreconditionFailed", put, IfMatch='"0"', **again)
    refused(404, "NoSuchKey", put, Bucket=bucket, Key="none", Body=b"2", IfMatch=first)
    assert body(s3, bucket, "k") == b"1"

    put(IfMatch=first, **again)

    assert body(s3, bucket, "k") == b"2"


def test_of_many_who_store_a_key_that_must_be_new_one_does(
    doors: GatewayCluster, key: Secret, s3: Any, bucket: str
) -> None:
    """The condition is decided at the close, by the master, for all gateways."""
    from concurrent.futures import ThreadPoolExecutor

    clients = [client(doors, key, host) for host in ("h1", "h2")] * 4

    def store(number: int) -> str:
        try:
            text = b"%d" % number
            clients[number].put_object(Bucket=bucket, Key="k", Body=text, IfNoneMatch="*")
        except ClientError as error:
            return refusal(error)[1]
        return f"stored {number}"

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(store, range(8)))

    assert found[:7] == ["PreconditionFailed"] * 7
    assert body(s3, bucket, "k").decode() == found[7].removeprefix("stored ")


def test_answers_are_told_otherwise_by_the_query(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ContentType="text/plain")
    got = s3.get_object(
        Bucket=bucket,
        Key="k",
        ResponseContentType="text/html",
        ResponseCacheControl="no-cache",
        ResponseContentDisposition="inline",
    )
    assert (got["ContentType"], got["CacheControl"]) == ("text/html", "no-cache")
    assert got["ContentDisposition"] == "inline"
    refused(
        400, "InvalidArgument", s3.get_object, Bucket=bucket, Key="k",
        ResponseContentType="a\r\nX-Evil: 1",
    )  # fmt: skip


def test_too_much_metadata_is_refused_before_the_body(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"a": "v" * 2040})
    many = {"a": "v" * 2048}
    refused(
        400, "MetadataTooLarge", s3.put_object, Bucket=bucket, Key="l", Body=b"x", Metadata=many
    )


# --- sums


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_every_checksum_is_checked_kept_and_told(s3: Any, bucket: str, algorithm: str) -> None:
    stored = s3.put_object(Bucket=bucket, Key="k", Body=b"hello", ChecksumAlgorithm=algorithm)
    value = stored[f"Checksum{algorithm}"]

    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head[f"Checksum{algorithm}"] == value and head["ChecksumType"] == "FULL_OBJECT"
    assert body(s3, bucket, "k") == b"hello", "boto3 compares it"
    asked = ["Checksum", "ETag", "ObjectSize"]
    told = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=asked)
    assert told["Checksum"][f"Checksum{algorithm}"] == value and told["ObjectSize"] == 5
    wrong = {f"Checksum{algorithm}": value}
    refused(400, "BadDigest", s3.put_object, Bucket=bucket, Key="k", Body=b"other", **wrong)
    assert body(s3, bucket, "k") == b"hello", "what was there stays"


def test_the_sums_are_those_of_everybody_else(s3: Any, bucket: str) -> None:
    data = b"123456789"
    stored = s3.put_object(Bucket=bucket, Key="k", Body=data)
    crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    assert stored["ChecksumCRC32"] == crc
    sha = s3.put_object(Bucket=bucket, Key="k", Body=data, ChecksumAlgorithm="SHA256")
    assert sha["ChecksumSHA256"] == base64.b64encode(hashlib.sha256(data).digest()).decode()
    nvme = s3.put_object(Bucket=bucket, Key="k", Body=data, ChecksumAlgorithm="CRC64NVME")
    assert base64.b64decode(nvme["ChecksumCRC64NVME"]).hex() == "ae8b14860a799888"


def test_bytes_that_are_not_those_of_content_md5_are_refused(s3: Any, bucket: str) -> None:
    right = base64.b64encode(hashlib.md5(b"x").digest()).decode()
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ContentMD5=right)
    refused(400, "BadDigest", s3.put_object, Bucket=bucket, Key="k", Body=b"y", ContentMD5=right)
    refused(400, "InvalidDigest", s3.put_object, Bucket=bucket, Key="k", Body=b"y", ContentMD5="x")


def test_a_client_that_sends_no_checksums_is_served_too(
    doors: GatewayCluster, key: Secret, bucket: str
) -> None:
    plain = client(
        doors,
        key,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path", "payload_signing_enabled": True},
    )
    plain.put_object(Bucket=bucket, Key="k", Body=b"hello")
    assert body(plain, bucket, "k") == b"hello"
    assert "ChecksumCRC32" not in plain.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")


# --- copying and deleting


def test_a_copy_moves_no_byte_and_keeps_what_is_told(
    s3: Any, bucket: str, doors: GatewayCluster
) -> None:
    data = bytes(3 * MIB)
    first = s3.put_object(
        Bucket=bucket, Key="a", Body=data, Metadata={"m": "1"}, ContentType="text/x"
    )

    copied = s3.copy_object(Bucket=bucket, Key="new/ä b", CopySource=f"{bucket}/a")
    replaced = s3.copy_object(
        Bucket=bucket, Key="other", CopySource={"Bucket": bucket, "Key": "new/ä b"},
        MetadataDirective="REPLACE", Metadata={"n": "2"},
    )  # fmt: skip

    assert copied["CopyObjectResult"]["ETag"] == first["ETag"]
    head = s3.head_object(Bucket=bucket, Key="new/ä b")
    assert head["Metadata"] == {"m": "1"} and head["ContentType"] == "text/x"
    assert replaced["CopyObjectResult"]["ETag"] == first["ETag"]
    other = s3.head_object(Bucket=bucket, Key="other")
    assert other["Metadata"] == {"n": "2"} and other["ContentType"] == "binary/octet-stream"
    dfs = doors.client()
    handles = [
        [chunk.handle for chunk in dfs.locate(f"/{bucket}/{name}").chunks]
        for name in ("a", "new/ä b", "other")
    ]
    assert handles[0] == handles[1] == handles[2], "the same chunks"
    assert body(s3, bucket, "other") == data


def test_a_copy_to_itself_changes_what_is_told(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="a", Body=b"x", Metadata={"m": "1"})["ETag"]
    source = f"{bucket}/a"
    refused(400, "InvalidRequest", s3.copy_object, Bucket=bucket, Key="a", CopySource=source)
    s3.copy_object(
        Bucket=bucket, Key="a", CopySource=source, MetadataDirective="REPLACE", Metadata={"n": "2"}
    )
    head = s3.head_object(Bucket=bucket, Key="a")
    assert (head["Metadata"], head["ETag"]) == ({"n": "2"}, etag)


def test_conditions_and_faults_of_copying(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="a", Body=b"x")["ETag"]
    copy = s3.copy_object
    to = {"Bucket": bucket, "Key": "b", "CopySource": f"{bucket}/a"}
    refused(412, "PreconditionFailed", copy, CopySourceIfMatch='"no"', **to)
    refused(412, "PreconditionFailed", copy, CopySourceIfNoneMatch=etag, **to)
    refused(404, "NoSuchKey", copy, Bucket=bucket, Key="b", CopySource=f"{bucket}/none")
    refused(404, "NoSuchBucket", copy, Bucket=bucket, Key="b", CopySource="no-bucket-here/a")
    refused(404, "NoSuchBucket", copy, Bucket="no-bucket-here", Key="b", CopySource=f"{bucket}/a")
    copy(CopySourceIfMatch=etag, **to)
    refused(412, "PreconditionFailed", copy, IfNoneMatch="*", **to)
    found = copy(Bucket=bucket, Key="c", CopySource=f"{bucket}/a", ChecksumAlgorithm="SHA256")
    right = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
    assert found["CopyObjectResult"]["ChecksumSHA256"] == right


def test_deleting_is_done_once_and_again(s3: Any, bucket: str, doors: GatewayCluster) -> None:
    s3.put_object(Bucket=bucket, Key="a/b/c", Body=b"x")
    for _ in range(2):
        done = s3.delete_object(Bucket=bucket, Key="a/b/c")
        assert done["ResponseMetadata"]["HTTPStatusCode"] == 204
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="a/b/c")
    assert [each.path for each in doors.client().list(f"/{bucket}")] == []
    assert doors.mrstream("dfs", "-undelete", f"/{bucket}/a/b/c").returncode == 0
    assert body(s3, bucket, "a/b/c") == b"x"


def test_many_are_deleted_at_a_time(s3: Any, bucket: str) -> None:
    keys = [f"d{n % 3}/k{n}" for n in range(30)] + ["e/", "e/f", 'q<&>"q']
    for each in keys:
        s3.put_object(Bucket=bucket, Key=each, Body=b"")
    named = [{"Key": each} for each in [*keys, "none", "a//b"]]

    done = s3.delete_objects(Bucket=bucket, Delete={"Objects": named})
    quiet = s3.delete_objects(Bucket=bucket, Delete={"Objects": named, "Quiet": True})

    assert sorted(each["Key"] for each in done["Deleted"]) == sorted([*keys, "none", "a//b"])
    assert "Deleted" not in quiet and "Errors" not in quiet
    assert s3.list_objects_v2(Bucket=bucket, Delimiter="/")["KeyCount"] == 0
    too_many = [{"Key": str(n)} for n in range(1001)]
    refused(400, "MalformedXML", s3.delete_objects, Bucket=bucket, Delete={"Objects": too_many})
