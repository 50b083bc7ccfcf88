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
    (put("x-amz-checksum-sha256", "bad"), 400, "InvalidRequest"),
    (put("x-amz-checksum-crc32", "AAAAAA=="), 400, "BadDigest"),
    (put("x-amz-checksum-crc9", "AAAAAA=="), 400, "InvalidRequest"),
    (put("x-amz-sdk-checksum-algorithm", "CRC9"), 400, "InvalidRequest"),
]


@pytest.mark.parametrize("number", range(len(BEFORE)))
def test_heads_of_put_as_they_are_signed(own: Any, bucket: str, number: int) -> None:
    change, status, code = BEFORE[number]
    with changed(own, "PutObject", "before-sign", change):
        assert outcome(own.put_object, Bucket=bucket, Key="k", Body=b"bar") == (status, code)
    if status == 200:
        assert body(own, bucket, "k") == b"bar"
    else:
        refused(404, "NoSuchKey", own.get_object, Bucket=bucket, Key="k")


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


@pytest.mark.parametrize("number", range(len(AFTER)))
@pytest.mark.parametrize("operation", ["PutObject", "CreateBucket"])
def test_heads_that_were_changed_after_they_were_signed(
    own: Any, bucket: str, number: int, operation: str
) -> None:
    change, status = AFTER[number]
    with changed(own, operation, "before-send", change):
        if operation == "PutObject":
            found = outcome(own.put_object, Bucket=bucket, Key="k", Body=b"bar")
        else:
            found = outcome(own.create_bucket, Bucket=fresh())
    assert found[0] == status, found
    refused(404, "NoSuchKey", own.get_object, Bucket=bucket, Key="k")


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


def test_an_object_that_tells_its_length_may_come_in_chunks(s3: Any, bucket: str) -> None:
    """A stream of boto3's: chunks of HTTP around those of Amazon's."""

    class Stream:
        def __init__(self) -> None:
            self._left = [b"bar", b"baz"]

        def read(self, size: int = -1) -> bytes:
            return self._left.pop(0) if self._left else b""

        def tell(self) -> int:
            return 0

        def seek(self, *_: int) -> None:
            self._left = [b"bar", b"baz"]

    def chunked(request: Any, **_: Any) -> None:
        request.headers["Transfer-Encoding"] = "chunked"

    s3.meta.events.register("before-sign.s3.PutObject", chunked)
    try:
        s3.put_object(Bucket=bucket, Key="k", Body=Stream(), ContentLength=6)
    finally:
        s3.meta.events.unregister("before-sign.s3.PutObject", chunked)
    assert body(s3, bucket, "k") == b"barbaz"


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


def test_signs_beyond_ascii_in_metadata(own: Any, s3: Any, bucket: str) -> None:
    """boto3 signs the UTF-8 of a header and sends its Latin-1; others send the UTF-8."""
    with changed(own, "PutObject", "before-sign", put("x-amz-meta-meta1", "Hello World\xe9")):
        own.put_object(Bucket=bucket, Key="k", Body=b"bar")
    assert s3.get_object(Bucket=bucket, Key="k")["Metadata"]["meta1"] == "Hello World\xe9"


# --- links


@pytest.mark.parametrize("expires_s", [0, -7, -1000, 604_801, 609_901])
def test_a_link_for_no_time_or_for_too_long_opens_nothing(
    doors: GatewayCluster, s3: Any, bucket: str, expires_s: int
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    named = {"Bucket": bucket, "Key": "k"}
    with doors.session(None) as session:
        for operation, ask in (("get_object", session.get), ("put_object", session.put)):
            link = s3.generate_presigned_url(operation, Params=named, ExpiresIn=expires_s)
            assert ask(link).status_code == 403
        link = s3.generate_presigned_url("get_object", Params=named, ExpiresIn=604_800)
        assert session.get(link).content == b"x"
    assert body(s3, bucket, "k") == b"x"


def test_a_link_that_has_expired(doors: GatewayCluster, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=100)
    with mock.patch("botocore.auth.get_current_datetime", lambda *_, **__: past):
        link = s3.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": "k"}, ExpiresIn=50
        )
    with doors.session(None) as session:
        answer = session.get(link)
    assert answer.status_code == 403 and "expired" in answer.text


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
