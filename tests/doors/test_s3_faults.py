"""A gateway that dies in the middle of storing: no half object, and what was there stays (G1)."""

from __future__ import annotations

import http.client
import os
import ssl
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from mrstream.cluster.config.config import GATEWAY
from tests.cluster.local import wait_for
from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB, client
from tests.doors.test_s3_objects import body, refused

FIVE = 5 * MIB


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayCluster]:
    """A cluster of this file's own: its first gateway dies again and again."""
    with GatewayCluster(tmp_path_factory.mktemp("mortal")) as running:
        yield running


@pytest.fixture(scope="module")
def mortal_key(mortal: GatewayCluster) -> Secret:
    return mortal.key("all")


@pytest.fixture
def steady(mortal: GatewayCluster, mortal_key: Secret) -> Any:
    """A client of the gateway that lives."""
    return client(mortal, mortal_key, "h2")


def die_while(mortal: GatewayCluster, key: Secret, operation: str, **named: Any) -> None:
    """Kill the gateway when most of a body was sent, by a link for this operation."""
    asked = client(mortal, key)
    place = urlsplit(asked.generate_presigned_url(operation, Params=named))
    context = ssl.create_default_context(cafile=mortal.authority)
    connection = http.client.HTTPSConnection(place.netloc, context=context, timeout=60)
    connection.putrequest("PUT", f"{place.path}?{place.query}")
    connection.putheader("Content-Length", str(9 * MIB))
    connection.endheaders()
    connection.send(os.urandom(8 * MIB))
    wait_for(lambda: unfinished(mortal, key) or None, 60, "bytes to be written")
    mortal.kill(GATEWAY, "h1")
    with pytest.raises(OSError):
        connection.send(bytes(MIB))
        connection.getresponse()
    connection.close()
    mortal.start(GATEWAY, "h1")


def unfinished(mortal: GatewayCluster, key: Secret) -> bool:
    """Does the gateway hold a stream to a file?"""
    host = mortal.config.host("h1").address
    with mortal.session(key) as session:
        text = session.get(f"https://{host}:{mortal.port()}/metrics", timeout=60).text
    return 'mrstream_gateway_streams{direction="in"} 1.0' in text


def test_a_gateway_that_dies_in_a_put_leaves_what_was_there(
    mortal: GatewayCluster, mortal_key: Secret, steady: Any
) -> None:
    steady.create_bucket(Bucket="in-a-put")
    steady.put_object(Bucket="in-a-put", Key="k", Body=b"before")

    for named in ("k", "new"):
        die_while(mortal, mortal_key, "put_object", Bucket="in-a-put", Key=named)

    assert body(steady, "in-a-put", "k") == b"before"
    refused(404, "NoSuchKey", steady.get_object, Bucket="in-a-put", Key="new")
    listed = steady.list_objects_v2(Bucket="in-a-put")["Contents"]
    assert [each["Key"] for each in listed] == ["k"]
    steady.put_object(Bucket="in-a-put", Key="k", Body=b"after")
    assert body(steady, "in-a-put", "k") == b"after"


def test_a_gateway_that_dies_in_a_part_costs_that_part(
    mortal: GatewayCluster, mortal_key: Secret, steady: Any
) -> None:
    steady.create_bucket(Bucket="in-a-part")
    named = {"Bucket": "in-a-part", "Key": "k"}
    id = steady.create_multipart_upload(**named)["UploadId"]
    first = steady.upload_part(UploadId=id, PartNumber=1, Body=b"1" * FIVE, **named)
    kept = steady.upload_part(UploadId=id, PartNumber=2, Body=b"2" * 10, **named)

    die_while(mortal, mortal_key, "upload_part", UploadId=id, PartNumber=2, **named)

    parts = steady.list_parts(UploadId=id, **named)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in parts] == [(1, FIVE), (2, 10)]
    listed = [
        {"PartNumber": 1, "ETag": first["ETag"]},
        {"PartNumber": 2, "ETag": kept["ETag"]},
    ]
    steady.complete_multipart_upload(UploadId=id, MultipartUpload={"Parts": listed}, **named)
    assert body(steady, "in-a-part", "k") == b"1" * FIVE + b"2" * 10


def test_a_gateway_that_dies_in_complete_has_done_it_or_not(
    mortal: GatewayCluster, mortal_key: Secret, steady: Any
) -> None:
    """Asked again, at another gateway, it is done once; at no moment is there half an object."""
    steady.create_bucket(Bucket="in-complete")
    for number in range(2):
        named = {"Bucket": "in-complete", "Key": f"k{number}"}
        steady.put_object(Body=b"before", **named)
        id = steady.create_multipart_upload(**named)["UploadId"]
        # Of odd length: put together by bytes, which takes a while.
        data = [bytes([65 + number]) * (FIVE + number), b"end"]
        parts = [
            {"PartNumber": n, "ETag": steady.upload_part(
                UploadId=id, PartNumber=n, Body=part, **named)["ETag"]}
            for n, part in enumerate(data, 1)
        ]  # fmt: skip
        finishing = {"UploadId": id, "MultipartUpload": {"Parts": parts}, **named}
        once = client(mortal, mortal_key, retries={"max_attempts": 0, "mode": "standard"})
        started = threading.Event()

        def finish(asked: Any = once, what: Any = finishing, begun: Any = started) -> None:
            begun.set()
            try:
                asked.complete_multipart_upload(**what)
            except (BotoCoreError, ClientError):
                return

        thread = threading.Thread(target=finish)
        thread.start()
        started.wait(60)
        # Somewhere in it: the point differs from run to run and must not matter.
        threading.Event().wait(0.03 * number)
        mortal.kill(GATEWAY, "h1")
        thread.join(120)
        found = body(steady, "in-complete", f"k{number}")
        assert found in (b"before", b"".join(data))
        steady.complete_multipart_upload(**finishing)
        assert body(steady, "in-complete", f"k{number}") == b"".join(data)
        mortal.start(GATEWAY, "h1")
        wait_for(
            lambda: not steady.list_multipart_uploads(Bucket="in-complete").get("Uploads") or None,
            60,
            "the upload to be over",
        )
