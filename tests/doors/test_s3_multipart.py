"""Objects that come in parts, through S3 (doors §5.4)."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import zlib
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig

from mrstream.dfs.protocol import Stat
from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB
from tests.doors.test_s3_breadth import Slowly, unread
from tests.doors.test_s3_objects import body, refused

FIVE = 5 * MIB


def begun(s3: Any, bucket: str, key: str = "k", **options: Any) -> str:
    id: str = s3.create_multipart_upload(Bucket=bucket, Key=key, **options)["UploadId"]
    return id


def send(
    s3: Any, bucket: str, id: str, number: int, data: bytes, key: str = "k", **options: Any
) -> dict[str, Any]:
    """One part; what Complete has to say of it."""
    named = {"Bucket": bucket, "Key": key, "UploadId": id, "PartNumber": number, **options}
    done = s3.upload_part(Body=data, **named)
    kept = {name: value for name, value in done.items() if name.startswith("Checksum")}
    kept.pop("ChecksumType", None)
    return {"PartNumber": number, "ETag": done["ETag"], **kept}


def finish(s3: Any, bucket: str, id: str, parts: list[dict[str, Any]], **options: Any) -> Any:
    options = {"Key": "k", **options}
    listed = {"Parts": parts}
    return s3.complete_multipart_upload(
        Bucket=bucket, UploadId=id, MultipartUpload=listed, **options
    )


def test_parts_become_an_object_and_no_byte_moves(
    s3: Any, bucket: str, doors: GatewayCluster
) -> None:
    """The chunks of the object are those that the parts were written to."""
    one, two = os.urandom(8 * MIB), os.urandom(3 * MIB + 11)
    id = begun(s3, bucket, Metadata={"m": "1"}, ContentType="text/x")
    parts = [send(s3, bucket, id, 1, one), send(s3, bucket, id, 2, two)]
    dfs = doors.client()
    written = [
        chunk.handle
        for number in (1, 2)
        for chunk in dfs.locate(f"/{bucket}/.mrstream-uploads/{id}/{number:05}", 0, 64).chunks
    ]
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0

    done = finish(s3, bucket, id, parts)

    md5s = hashlib.md5(one).digest() + hashlib.md5(two).digest()
    assert done["ETag"] == f'"{hashlib.md5(md5s).hexdigest()}-2"'
    assert [chunk.handle for chunk in dfs.locate(f"/{bucket}/k", 0, 64).chunks] == written
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == one + two and got["Metadata"] == {"m": "1"}
    assert got["ContentType"] == "text/x" and got["ETag"] == done["ETag"]
    first = s3.get_object(Bucket=bucket, Key="k", PartNumber=1)
    assert first["Body"].read() == one and first["PartsCount"] == 2
    assert body(s3, bucket, "k", PartNumber=2) == two
    refused(400, "InvalidPart", s3.get_object, Bucket=bucket, Key="k", PartNumber=3)
    asked = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectParts"])
    assert asked["ObjectParts"]["TotalPartsCount"] == 2
    assert [each.path for each in dfs.list(f"/{bucket}")] == [f"/{bucket}/k"]
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


def test_parts_that_do_not_fill_chunks_are_put_together_by_bytes(s3: Any, bucket: str) -> None:
    data = [os.urandom(FIVE + 1), os.urandom(FIVE + 4097), os.urandom(5)]
    id = begun(s3, bucket)
    parts = [send(s3, bucket, id, 10 * n + 1, part) for n, part in enumerate(data)]
    finish(s3, bucket, id, parts)
    assert body(s3, bucket, "k") == b"".join(data)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


@pytest.mark.parametrize("size", [0, 100, FIVE, 17 * MIB + 3])
def test_boto3_sends_files_in_its_own_way(s3: Any, bucket: str, size: int) -> None:
    data = os.urandom(size)
    config = TransferConfig(multipart_threshold=FIVE, multipart_chunksize=FIVE)
    s3.upload_fileobj(io.BytesIO(data), bucket, "k", Config=config)
    got = io.BytesIO()
    s3.download_fileobj(bucket, "k", got, Config=config)
    assert got.getvalue() == data


def test_a_part_sent_again_counts_as_it_was_sent_last(s3: Any, bucket: str) -> None:
    id = begun(s3, bucket)
    old = send(s3, bucket, id, 1, b"old")
    new = send(s3, bucket, id, 1, b"new")
    refused(
        400, "InvalidPart", s3.complete_multipart_upload, Bucket=bucket, Key="k", UploadId=id,
        MultipartUpload={"Parts": [old]},
    )  # fmt: skip
    finish(s3, bucket, id, [new])
    assert body(s3, bucket, "k") == b"new"


def test_complete_asked_again_answers_again(s3: Any, bucket: str) -> None:
    """The first answer may have been lost."""
    id = begun(s3, bucket)
    parts = [send(s3, bucket, id, 1, b"x")]
    first = finish(s3, bucket, id, parts)["ETag"]
    assert finish(s3, bucket, id, parts)["ETag"] == first
    s3.put_object(Bucket=bucket, Key="k", Body=b"other")
    finishing = {"Key": "k", "UploadId": id, "MultipartUpload": {"Parts": parts}}
    refused(404, "NoSuchUpload", s3.complete_multipart_upload, Bucket=bucket, **finishing)
    assert body(s3, bucket, "k") == b"other"


def test_what_cannot_be_completed_is_refused_and_stays(s3: Any, bucket: str) -> None:
    id = begun(s3, bucket)
    small, last = send(s3, bucket, id, 1, b"small"), send(s3, bucket, id, 2, b"last")
    complete = s3.complete_multipart_upload

    def attempt(status: int, code: str, parts: list[dict[str, Any]], **options: Any) -> None:
        named = {"Key": "k", "UploadId": id, **options}
        refused(status, code, complete, Bucket=bucket, MultipartUpload={"Parts": parts}, **named)

    attempt(400, "EntityTooSmall", [small, last])
    attempt(400, "InvalidPartOrder", [last, small])
    attempt(400, "InvalidPart", [{**small, "ETag": '"0"'}])
    attempt(400, "InvalidPart", [{**small, "PartNumber": 3}])
    attempt(400, "MalformedXML", [])
    attempt(404, "NoSuchUpload", [small], UploadId="nothing")
    attempt(404, "NoSuchUpload", [small], UploadId="0" * 32)
    attempt(404, "NoSuchUpload", [small], Key="another")
    attempt(400, "InvalidRequest", [small], MpuObjectSize=99)
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="k")
    s3.put_object(Bucket=bucket, Key="k", Body=b"there")
    attempt(412, "PreconditionFailed", [small], IfNoneMatch="*")
    finish(s3, bucket, id, [small])
    assert body(s3, bucket, "k") == b"small"


def test_abort_leaves_nothing(s3: Any, bucket: str, doors: GatewayCluster) -> None:
    id = begun(s3, bucket)
    send(s3, bucket, id, 1, b"x")
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=id)
    named = {"Bucket": bucket, "Key": "k", "UploadId": id}
    refused(404, "NoSuchUpload", s3.abort_multipart_upload, **named)
    refused(404, "NoSuchUpload", s3.list_parts, **named)
    refused(404, "NoSuchUpload", s3.upload_part, PartNumber=1, Body=b"x", **named)
    refused(400, "InvalidArgument", s3.upload_part, PartNumber=0, Body=b"x", **named)
    refused(400, "InvalidArgument", s3.upload_part, PartNumber=10_001, Body=b"x", **named)
    assert doors.client().call(Stat(f"/{bucket}")).is_directory
    s3.delete_bucket(Bucket=bucket)


def test_parts_and_uploads_are_listed_in_pages(s3: Any, bucket: str) -> None:
    ids = [begun(s3, bucket, key) for key in ("a/1", "a/2", "b", "b")]
    for number in (1, 2, 5):
        send(s3, bucket, ids[2], number, b"%d" % number, key="b")

    pages = s3.get_paginator("list_parts").paginate(
        Bucket=bucket, Key="b", UploadId=ids[2], PaginationConfig={"PageSize": 2}
    )
    parts = [part for page in pages for part in page["Parts"]]
    assert [(part["PartNumber"], part["Size"]) for part in parts] == [(1, 1), (2, 1), (5, 1)]
    assert parts[0]["ETag"] == f'"{hashlib.md5(b"1").hexdigest()}"'
    for size in (1, 3, 10):
        pages = s3.get_paginator("list_multipart_uploads").paginate(
            Bucket=bucket, PaginationConfig={"PageSize": size}
        )
        found = [(each["Key"], each["UploadId"]) for page in pages for each in page["Uploads"]]
        assert found == list(zip(("a/1", "a/2", "b", "b"), ids, strict=True))
    grouped = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert [each["Prefix"] for each in grouped["CommonPrefixes"]] == ["a/"]
    assert [each["Key"] for each in grouped["Uploads"]] == ["b", "b"]
    only = s3.list_multipart_uploads(Bucket=bucket, Prefix="a/2")["Uploads"]
    assert [each["UploadId"] for each in only] == [ids[1]]


def test_parts_are_copied_from_objects(s3: Any, bucket: str) -> None:
    data = os.urandom(6 * MIB + 5)
    s3.put_object(Bucket=bucket, Key="from", Body=data)
    id = begun(s3, bucket)
    to = {"Bucket": bucket, "Key": "k", "UploadId": id, "CopySource": f"{bucket}/from"}

    one = s3.upload_part_copy(PartNumber=1, **to)["CopyPartResult"]
    two = s3.upload_part_copy(PartNumber=2, CopySourceRange="bytes=7-1000", **to)
    refused(400, "InvalidArgument", s3.upload_part_copy, PartNumber=3, CopySourceRange="5-9", **to)
    refused(
        416, "InvalidRange", s3.upload_part_copy, PartNumber=3,
        CopySourceRange=f"bytes=0-{len(data)}", **to,
    )  # fmt: skip
    parts = [
        {"PartNumber": 1, "ETag": one["ETag"]},
        {"PartNumber": 2, "ETag": two["CopyPartResult"]["ETag"]},
    ]
    finish(s3, bucket, id, parts)

    assert body(s3, bucket, "k") == data + data[7:1001]


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256"])
def test_the_sum_of_the_parts_sums(s3: Any, bucket: str, algorithm: str) -> None:
    id = begun(s3, bucket, ChecksumAlgorithm=algorithm)
    data = [b"a" * FIVE, b"b" * 10]
    parts = [
        send(s3, bucket, id, n, part, ChecksumAlgorithm=algorithm) for n, part in enumerate(data, 1)
    ]
    wrong = [parts[0], {**parts[1], f"Checksum{algorithm}": parts[0][f"Checksum{algorithm}"]}]
    refused(
        400, "InvalidPart", s3.complete_multipart_upload, Bucket=bucket, Key="k", UploadId=id,
        MultipartUpload={"Parts": wrong},
    )  # fmt: skip

    done = finish(s3, bucket, id, parts)

    assert done["ChecksumType"] == "COMPOSITE" and done[f"Checksum{algorithm}"].endswith("-2")
    if algorithm == "SHA256":
        sums = b"".join(hashlib.sha256(part).digest() for part in data)
        whole = base64.b64encode(hashlib.sha256(sums).digest()).decode()
        assert done["ChecksumSHA256"] == f"{whole}-2"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_the_sum_of_all_bytes_from_those_of_the_parts(s3: Any, bucket: str, algorithm: str) -> None:
    data = [os.urandom(FIVE), os.urandom(FIVE + 1), os.urandom(10)]
    plain = s3.put_object(
        Bucket=bucket, Key="whole", Body=b"".join(data), ChecksumAlgorithm=algorithm
    )
    id = begun(s3, bucket, ChecksumAlgorithm=algorithm, ChecksumType="FULL_OBJECT")
    parts = [
        send(s3, bucket, id, n, part, ChecksumAlgorithm=algorithm) for n, part in enumerate(data, 1)
    ]

    done = finish(s3, bucket, id, parts)

    assert done[f"Checksum{algorithm}"] == plain[f"Checksum{algorithm}"]
    if algorithm == "CRC32":
        right = zlib.crc32(b"".join(data)).to_bytes(4, "big")
        assert base64.b64decode(done["ChecksumCRC32"]) == right
    assert body(s3, bucket, "k") == b"".join(data), "boto3 compares it"


def test_the_parts_of_an_object_are_told_in_pages(s3: Any, bucket: str) -> None:
    id = begun(s3, bucket)
    parts = [send(s3, bucket, id, n, b"%d" % n * FIVE) for n in (1, 2)]
    parts.append(send(s3, bucket, id, 3, b"3"))
    finish(s3, bucket, id, parts)
    asked = {"Bucket": bucket, "Key": "k", "ObjectAttributes": ["ObjectParts", "ObjectSize"]}

    whole = s3.get_object_attributes(**asked)
    first = s3.get_object_attributes(MaxParts=1, **asked)["ObjectParts"]
    rest = s3.get_object_attributes(PartNumberMarker=1, **asked)["ObjectParts"]

    told = whole["ObjectParts"]
    assert whole["ObjectSize"] == 2 * FIVE + 1 and told["TotalPartsCount"] == 3
    assert [(each["PartNumber"], each["Size"]) for each in told["Parts"]] == [
        (1, FIVE), (2, FIVE), (3, 1),
    ]  # fmt: skip
    assert not told["IsTruncated"] and first["IsTruncated"] and not rest["IsTruncated"]
    assert first["NextPartNumberMarker"] == 1 and [p["PartNumber"] for p in first["Parts"]] == [1]
    assert [p["PartNumber"] for p in rest["Parts"]] == [2, 3]
    head = s3.head_object(Bucket=bucket, Key="k", PartNumber=3)
    assert (head["ContentLength"], head["PartsCount"]) == (1, 3)
    s3.put_object(Bucket=bucket, Key="plain", Body=b"x")
    head = s3.head_object(Bucket=bucket, Key="plain", PartNumber=1)
    assert head["ContentLength"] == 1 and "PartsCount" not in head
    refused(400, "InvalidPart", s3.get_object, Bucket=bucket, Key="plain", PartNumber=2)
    assert "ObjectParts" not in s3.get_object_attributes(**{**asked, "Key": "plain"})


def test_sums_that_complete_tells_have_to_be_those_of_the_parts(s3: Any, bucket: str) -> None:
    id = begun(s3, bucket, ChecksumAlgorithm="SHA256")
    part = send(s3, bucket, id, 1, b"x", ChecksumAlgorithm="SHA256")
    complete = s3.complete_multipart_upload
    named = {"Bucket": bucket, "Key": "k", "UploadId": id}
    bare = {"PartNumber": 1, "ETag": part["ETag"]}
    other = base64.b64encode(bytes(32)).decode()
    right = {"MultipartUpload": {"Parts": [part]}, **named}
    wrong = {"MultipartUpload": {"Parts": [{**bare, "ChecksumSHA256": other}]}, **named}
    refused(400, "InvalidPart", complete, **wrong)
    refused(400, "BadDigest", complete, ChecksumSHA256="bad", **right)
    bare_too = {"MultipartUpload": {"Parts": [bare]}, **named}
    refused(400, "BadDigest", complete, ChecksumSHA256="bad", **bare_too)
    refused(400, "BadDigest", complete, ChecksumSHA256=f"{other}-1", **right)
    done = complete(**right)
    assert done["ChecksumSHA256"].endswith("-1")


def test_a_part_that_begins_first_and_ends_last_counts(
    s3: Any, doors: GatewayCluster, key: Secret, bucket: str
) -> None:
    plain = unread(doors, key)
    id = begun(plain, bucket)
    named = {"Bucket": bucket, "Key": "k", "UploadId": id, "PartNumber": 1}
    slow = Slowly(b"A", 2 * MIB, lambda: s3.upload_part(Body=b"B", **named) and None)
    done = plain.upload_part(Body=slow, **named)
    finish(plain, bucket, id, [{"PartNumber": 1, "ETag": done["ETag"]}])
    assert body(s3, bucket, "k") == b"A" * 2 * MIB


def test_ranges_of_parts_that_are_copied(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="?versionId", Body=b"12345")
    id = begun(s3, bucket)
    source = {"Bucket": bucket, "Key": "?versionId"}
    to = {"Bucket": bucket, "Key": "k", "UploadId": id, "PartNumber": 1, "CopySource": source}
    for wrong in ("0-2", "bytes=0", "bytes=hello-world", "bytes=0-bar", "bytes=hello-",
                  "bytes=0-2,3-4", "bytes=3-1"):  # fmt: skip
        refused(400, "InvalidArgument", s3.upload_part_copy, CopySourceRange=wrong, **to)
    refused(416, "InvalidRange", s3.upload_part_copy, CopySourceRange="bytes=0-21", **to)
    missing = {**to, "CopySource": {"Bucket": bucket, "Key": "none"}}
    refused(404, "NoSuchKey", s3.upload_part_copy, **missing)
    for condition in ({"CopySourceIfMatch": '"0"'}, {"CopySourceIfNoneMatch": "*"}):
        refused(412, "PreconditionFailed", s3.upload_part_copy, **to, **condition)
    done = s3.upload_part_copy(CopySourceRange="bytes=1-1", **to)["CopyPartResult"]
    finish(s3, bucket, id, [{"PartNumber": 1, "ETag": done["ETag"]}])
    assert body(s3, bucket, "k") == b"2"
