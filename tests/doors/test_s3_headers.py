"""Heads of S3 requests that are missing, wrong or odd; and links that are good for a time."""

from __future__ import annotations

import datetime
import http.client
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import client, endpoint, refusal
from tests.doors.test_s3_breadth import fresh
from tests.doors.test_s3_objects import body, refused

Change = Callable[[dict[str, str]], None]


def put(name: str, value: str) -> Change:
    """A header is there, with this value."""

    def change(headers: Any) -> None:
        del headers[name]
        headers[name] = value

    return change


def drop(name: str) -> Change:
    """A header is not there."""

    def change(headers: Any) -> None:
        del headers[name]

    return change


@contextmanager
def changed(s3: Any, operation: str, when: str, change: Change) -> Iterator[None]:
    """Requests for an operation have their heads changed before or after they are signed."""
    event = f"{when}.s3.{operation}"

    def apply(request: Any = None, **_: Any) -> None:
        change(request.headers)

    s3.meta.events.register_last(event, apply)
    try:
        yield
    finally:
        s3.meta.events.unregister(event, apply)


def outcome(call: Callable[..., Any], **arguments: Any) -> tuple[int, str]:
    """The status and, of a refusal, the code."""
    try:
        return call(**arguments)["ResponseMetadata"]["HTTPStatusCode"], ""
    except ClientError as error:
        return refusal(error)


@pytest.fixture
def own(doors: GatewayCluster, key: Secret) -> Any:
    """A client whose requests may be changed; without sums of its own."""
    return client(doors, key, request_checksum_calculation="when_required")


BEFORE: list[tuple[Change, int, str]] = [
    (put("Content-MD5", "YWJyYWNhZGFicmE="), 400, "InvalidDigest"),
    (put("Content-MD5", "rL0Y20xC+Fzt72VPzMSk2A=="), 400, "BadDigest"),
    (put("Content-MD5", ""), 400, "InvalidDigest"),
    (put("Expect", "200"), 200, ""),
    (put("Expect", ""), 200, ""),
    (put("Content-Type", "text/plain"), 200, ""),
    (put("Content-Type", ""), 200, ""),
    (drop("Content-Type"), 200, ""),
    (put("User-Agent", ""), 200, ""),
    (put("x-amz-meta-a", "b" * 3000), 400, "MetadataTooLarge"),
    (put("x-amz-checksum-sha256", "bad"), 400, "BadDigest"),
    (put("x-amz-checksum-crc32", "AAAAAA=="), 400, "BadDigest"),
    (put("x-amz-checksum-crc9", "AAAAAA=="), 400, "InvalidRequest"),
    (put("x-amz-sdk-checksum-algorithm", "CRC9"), 400, "InvalidRequest"),
]


def test_heads_of_put_as_they_are_signed(own: Any, bucket: str) -> None:
    for number, (change, status, code) in enumerate(BEFORE):
        put_k = {"Bucket": bucket, "Key": f"k{number}", "Body": b"bar"}
        with changed(own, "PutObject", "before-sign", change):
            assert outcome(own.put_object, **put_k) == (status, code), number
        there = outcome(own.head_object, Bucket=bucket, Key=f"k{number}")[0]
        assert there == (200 if status == 200 else 404)


AFTER: list[tuple[Change, int]] = [
    (put("Authorization", ""), 403),
    (drop("Authorization"), 403),
    (put("Authorization", "AWS HAHAHA"), 400),
    (put("Authorization", "AWS4-HMAC-SHA256 Credential=HAHAHA"), 400),
    (put("Content-Length", ""), 400),
    (put("Content-Length", "-1"), 400),
    (put("X-Amz-Date", ""), 403),
    (put("X-Amz-Date", "20300101T000000Z"), 400),
    (put("X-Amz-Content-SHA256", "0" * 64), 403),
    (drop("X-Amz-Content-SHA256"), 400),
]


def test_heads_that_were_changed_after_they_were_signed(own: Any, bucket: str) -> None:
    for number, (change, status) in enumerate(AFTER):
        with changed(own, "PutObject", "before-send", change):
            found = outcome(own.put_object, Bucket=bucket, Key="k", Body=b"bar")
        assert found[0] == status, (number, found)
        with changed(own, "CreateBucket", "before-send", change):
            found = outcome(own.create_bucket, Bucket=fresh())
        assert found[0] == status, (number, found)
    assert own.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@contextmanager
def connected(doors: GatewayCluster) -> Iterator[http.client.HTTPSConnection]:
    context = ssl.create_default_context(cafile=doors.authority)
    place = urlsplit(endpoint(doors)).netloc
    connection = http.client.HTTPSConnection(place, context=context, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def test_an_object_whose_length_is_not_told_is_refused(
    doors: GatewayCluster, s3: Any, bucket: str
) -> None:
    link = urlsplit(s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "k"}))
    with connected(doors) as connection:
        connection.putrequest("PUT", f"{link.path}?{link.query}")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        connection.send(b"3\r\nbar\r\n0\r\n\r\n")
        answer = connection.getresponse()
        assert answer.status == 411 and b"MissingContentLength" in answer.read()
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="k")


def test_an_object_that_tells_its_length_may_come_in_chunks(own: Any, bucket: str) -> None:
    """Chunks of HTTP around those of Amazon's."""
    chunked = put("Transfer-Encoding", "chunked")
    named = {"Bucket": bucket, "Key": "k", "ChecksumAlgorithm": "CRC32"}
    with changed(own, "PutObject", "before-sign", chunked):
        assert outcome(own.put_object, Body=b"bar", **named) == (200, "")
    assert body(own, bucket, "k") == b"bar"


def test_a_client_that_waits_is_told_to_go_on_only_if_it_may(
    doors: GatewayCluster, s3: Any, bucket: str
) -> None:
    link = urlsplit(s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "k"}))
    for target, first in ((f"{link.path}?{link.query}", b"100"), (link.path, b"403")):
        with connected(doors) as connection:
            connection.putrequest("PUT", target)
            connection.putheader("Expect", "100-continue")
            connection.putheader("Content-Length", "3")
            connection.endheaders()
            assert connection.sock is not None
            assert connection.sock.recv(4096).split()[1] == first


@pytest.mark.parametrize("text", ["Hello World\xe9", "\u4e2d\u6587"])
def test_signs_beyond_ascii_in_metadata(
    own: Any, doors: GatewayCluster, bucket: str, text: str
) -> None:
    """A client gets the bytes that it sent."""
    with changed(own, "PutObject", "before-sign", put("x-amz-meta-meta1", text)):
        own.put_object(Bucket=bucket, Key="k", Body=b"bar")
    link = urlsplit(
        own.generate_presigned_url("head_object", Params={"Bucket": bucket, "Key": "k"})
    )
    with connected(doors) as connection:
        connection.request("HEAD", f"{link.path}?{link.query}")
        told = connection.getresponse().headers["x-amz-meta-meta1"]
    assert told.encode("latin-1").decode() == text


# --- links


def link_to(
    doors: GatewayCluster, key: Secret, method: str, path: str, expires_s: int, age_s: int = 0
) -> str:
    """A link of any age for any time: by boto3's older signer, which refuses none."""
    at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age_s)
    request = AWSRequest(method, endpoint(doors) + path)
    signer = S3SigV4QueryAuth(Credentials(key.id, key.secret), "s3", "x-1", expires=expires_s)
    with mock.patch("botocore.auth.get_current_datetime", lambda *_, **__: at):
        signer.add_auth(request)
    url: str = request.url
    return url


def test_a_link_opens_for_its_time_and_no_link_is_for_ever(
    doors: GatewayCluster, key: Secret, s3: Any, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    path = f"/{bucket}/k"
    with doors.session(None) as session:
        for expires_s in (0, -7, -1000, 604_801, 609_901):
            assert session.get(link_to(doors, key, "GET", path, expires_s)).status_code == 403
            wrong = link_to(doors, key, "PUT", path, expires_s)
            assert session.put(wrong, data=b"y").status_code == 403
        assert session.get(link_to(doors, key, "GET", path, 604_800)).content == b"x"
        assert session.get(link_to(doors, key, "GET", path, 200, age_s=100)).content == b"x"
        late = session.get(link_to(doors, key, "GET", path, 50, age_s=100))
        assert late.status_code == 403 and "expired" in late.text
    assert body(s3, bucket, "k") == b"x"


def test_a_link_says_how_its_answer_is_told(doors: GatewayCluster, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    link = s3.generate_presigned_url(
        "get_object",
        Params={
            "Bucket": bucket,
            "Key": "k",
            "ResponseCacheControl": "no-cache",
            "ResponseContentDisposition": "bla",
            "ResponseContentEncoding": "aaa",
            "ResponseContentLanguage": "esperanto",
            "ResponseContentType": "foo/bar",
            "ResponseExpires": "123",
        },
    )
    with doors.session(None) as session:
        told = session.get(link, stream=True).headers
    assert (told["Content-Type"], told["Content-Disposition"]) == ("foo/bar", "bla")
    assert (told["Content-Language"], told["Content-Encoding"]) == ("esperanto", "aaa")
    assert told["Cache-Control"] == "no-cache" and "1970" in told["Expires"]
