"""Who may do what through S3: signatures, presigned links, keys' paths and rights (doors §2)."""

from __future__ import annotations

import base64
import datetime
import json
import os
import subprocess
import zlib
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.cluster.local import wait_for
from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB, client, endpoint, refusal, signed_stream
from tests.doors.test_s3_objects import body, refused


def test_nobody_comes_in_without_a_key(
    doors: GatewayCluster, key: Secret, bucket: str, s3: Any
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    with doors.session(None) as session:
        for method in ("GET", "PUT", "DELETE", "HEAD"):
            answer = session.request(method, f"{endpoint(doors)}/{bucket}/k")
            assert answer.status_code == 403, method
        answer = session.get(f"{endpoint(doors)}/{bucket}/k")
        assert "<Code>AccessDenied</Code>" in answer.text
        assert answer.headers["x-amz-request-id"] in answer.text
        assert session.options(f"{endpoint(doors)}/{bucket}/k").status_code == 400
    with doors.session(key) as session:  # Basic, which the other port takes
        assert session.get(f"{endpoint(doors)}/{bucket}/k").status_code == 400
    wrong = client(doors, Secret(key.id, "x" * 40))
    refused(403, "SignatureDoesNotMatch", wrong.list_buckets)
    unknown = client(doors, Secret("MR" + "A" * 18, key.secret))
    refused(403, "InvalidAccessKeyId", unknown.list_buckets)
    assert body(s3, bucket, "k") == b"x"


def test_a_key_reaches_its_paths_and_nothing_else(
    doors: GatewayCluster, s3: Any, bucket: str
) -> None:
    for name in ("in/a", "inner", "out/b"):
        s3.put_object(Bucket=bucket, Key=name, Body=b"x")
    narrow = client(doors, doors.key(f"n-{bucket[:12]}", "--path", f"/{bucket}/in"))

    assert body(narrow, bucket, "in/a") == b"x"
    narrow.put_object(Bucket=bucket, Key="in/new/c", Body=b"y")
    listed = narrow.list_objects_v2(Bucket=bucket, Prefix="in/")
    assert [each["Key"] for each in listed["Contents"]] == ["in/a", "in/new/c"]
    assert [each["Name"] for each in narrow.list_buckets()["Buckets"]] == [bucket]
    narrow.head_bucket(Bucket=bucket)
    no = (403, "AccessDenied")
    refused(*no, narrow.get_object, Bucket=bucket, Key="inner")
    refused(*no, narrow.put_object, Bucket=bucket, Key="out/b", Body=b"z")
    refused(*no, narrow.delete_object, Bucket=bucket, Key="out/b")
    refused(*no, narrow.list_objects_v2, Bucket=bucket)
    refused(*no, narrow.list_objects_v2, Bucket=bucket, Prefix="in")
    refused(*no, narrow.list_objects_v2, Bucket=bucket, Prefix="out/")
    refused(*no, narrow.list_multipart_uploads, Bucket=bucket)
    refused(*no, narrow.copy_object, Bucket=bucket, Key="in/x", CopySource=f"{bucket}/out/b")
    refused(*no, narrow.copy_object, Bucket=bucket, Key="out/x", CopySource=f"{bucket}/in/a")
    refused(*no, narrow.create_multipart_upload, Bucket=bucket, Key="out/x")
    refused(*no, narrow.delete_bucket, Bucket=bucket)
    refused(*no, narrow.create_bucket, Bucket="another-one")
    deleted = narrow.delete_objects(
        Bucket=bucket, Delete={"Objects": [{"Key": "in/a"}, {"Key": "out/b"}]}
    )
    assert [each["Key"] for each in deleted["Deleted"]] == ["in/a"]
    assert [(each["Key"], each["Code"]) for each in deleted["Errors"]] == [("out/b", no[1])]
    assert body(s3, bucket, "out/b") == b"x"
    other = begun_elsewhere = s3.create_multipart_upload(Bucket=bucket, Key="out/m")["UploadId"]
    named = {"Bucket": bucket, "Key": "in/m", "UploadId": other}
    refused(404, "NoSuchUpload", narrow.upload_part, PartNumber=1, Body=b"x", **named)
    assert begun_elsewhere == s3.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["UploadId"]


def test_a_key_that_may_only_read_changes_nothing(
    doors: GatewayCluster, s3: Any, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    reader = client(doors, doors.key("s3-reader", "--read-only"))
    assert body(reader, bucket, "k") == b"x"
    no = (403, "AccessDenied")
    refused(*no, reader.put_object, Bucket=bucket, Key="k", Body=b"y")
    refused(*no, reader.delete_object, Bucket=bucket, Key="k")
    refused(*no, reader.create_bucket, Bucket="readers-own")
    refused(*no, reader.copy_object, Bucket=bucket, Key="l", CopySource=f"{bucket}/k")
    refused(*no, reader.create_multipart_upload, Bucket=bucket, Key="l")
    errors = reader.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k"}]})["Errors"]
    assert [each["Code"] for each in errors] == ["AccessDenied"]
    assert body(s3, bucket, "k") == b"x"


def test_a_revoked_key_is_refused(doors: GatewayCluster, bucket: str) -> None:
    short = client(doors, doors.key("s3-short"))
    short.list_objects_v2(Bucket=bucket)
    assert doors.mrstream("key", "revoke", "s3-short").returncode == 0

    def code() -> str | None:
        try:
            short.list_objects_v2(Bucket=bucket)
        except ClientError as error:
            return refusal(error)[1]
        return None

    assert wait_for(code, 60, "the key to be void") == "InvalidAccessKeyId"


def test_a_presigned_link_is_good_for_its_method_key_and_time(
    doors: GatewayCluster, s3: Any, bucket: str
) -> None:
    named = {"Bucket": bucket, "Key": "a b/ü"}
    put = s3.generate_presigned_url("put_object", Params=named)
    get = s3.generate_presigned_url("get_object", Params=named)
    with doors.session(None) as session:
        assert session.put(put, data=b"by link").status_code == 200
        assert session.get(get).content == b"by link"
        assert session.get(get, headers={"Range": "bytes=3-"}).content == b"link"
        assert session.get(put).status_code == 403, "a link is for one method"
        head = s3.generate_presigned_url("head_object", Params=named)
        assert session.head(head).headers["Content-Length"] == "7"
        assert session.get(get.replace("a%20b", "a%20c")).status_code == 403
        late = get.replace("X-Amz-Expires=3600", "X-Amz-Expires=3601")
        assert session.get(late).status_code == 403
        too_long = s3.generate_presigned_url("get_object", Params=named, ExpiresIn=604_801)
        refused_link = session.get(too_long)
        assert refused_link.status_code == 403 and "X-Amz-Expires must be" in refused_link.text
        gone = s3.generate_presigned_url("delete_object", Params=named)
        assert session.delete(gone).status_code == 204
        assert session.get(get).status_code == 404


def test_an_old_request_is_refused(doors: GatewayCluster, key: Secret, bucket: str) -> None:
    when = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=16)
    path = f"/{bucket}/k"
    request = AWSRequest("GET", endpoint(doors) + path)
    request.context["timestamp"] = when.strftime("%Y%m%dT%H%M%SZ")
    signer: Any = S3SigV4Auth(Credentials(key.id, key.secret), "s3", "us-east-1")
    # The steps of `add_auth`, which takes the time from the clock.
    signer._modify_request_before_signing(request)
    request.headers.replace_header("X-Amz-Date", request.context["timestamp"])
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    signer._inject_signature_to_request(request, signature)
    with doors.session(None) as session:
        answer = session.get(endpoint(doors) + path, headers=dict(request.headers))
    assert answer.status_code == 403 and "RequestTimeTooSkewed" in answer.text


def test_a_body_that_is_not_the_signed_one_is_not_stored(
    doors: GatewayCluster, key: Secret, s3: Any, bucket: str
) -> None:
    path = f"/{bucket}/k"
    request = AWSRequest("PUT", endpoint(doors) + path, data=b"signed")
    request.context["payload_signing_enabled"] = True
    signer: Any = S3SigV4Auth(Credentials(key.id, key.secret), "s3", "us-east-1")
    signer.add_auth(request)
    with doors.session(None) as session:
        answer = session.put(endpoint(doors) + path, headers=dict(request.headers), data=b"forged")
    assert answer.status_code == 400 and "XAmzContentSHA256Mismatch" in answer.text
    refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="k")


@pytest.mark.parametrize("with_trailer", [False, True])
def test_a_stream_that_is_signed_piece_by_piece(
    doors: GatewayCluster, key: Secret, s3: Any, bucket: str, with_trailer: bool
) -> None:
    """As Java's SDK and others send it."""
    pieces = [os.urandom(65_536) for _ in range(20)] + [b"end"]
    whole = b"".join(pieces)
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if with_trailer else "")
    headers = {
        "x-amz-content-sha256": kind,
        "x-amz-decoded-content-length": str(len(whole)),
        "content-encoding": "aws-chunked",
    }
    trailer = ""
    if with_trailer:
        crc = base64.b64encode(zlib.crc32(whole).to_bytes(4, "big")).decode()
        trailer = f"x-amz-checksum-crc32:{crc}"
        headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    path = f"/{bucket}/k"

    class Streaming(S3SigV4Auth):  # type: ignore[misc]
        def payload(self, request: Any) -> str:
            return kind

    request = AWSRequest("PUT", endpoint(doors) + path, headers=headers)
    Streaming(Credentials(key.id, key.secret), "s3", "us-east-1").add_auth(request)
    right = signed_stream(key, request.headers, pieces, trailer)
    wrong = bytearray(right)
    wrong[5000] ^= 1
    with doors.session(None) as session:
        url, head = endpoint(doors) + path, dict(request.headers)
        answer = session.put(url, headers=head, data=bytes(wrong))
        assert answer.status_code == 403 and "SignatureDoesNotMatch" in answer.text
        cut = session.put(url, headers=head, data=right[: len(right) // 2])
        assert cut.status_code == 400 and "IncompleteBody" in cut.text
        refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="k")
        assert session.put(url, headers=head, data=right).status_code == 200
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == whole and "ContentEncoding" not in got


def test_a_refused_upload_sends_no_body(
    doors: GatewayCluster, key: Secret, bucket: str, tmp_path: Any
) -> None:
    """§1.2: `Expect: 100-continue` is answered after the checks. curl signs by itself."""
    (tmp_path / "in").write_bytes(bytes(64 * MIB))
    done = subprocess.run(
        ["curl", "-q", "-sS", "--noproxy", "*", "--cacert", doors.authority, "--max-time", "60",
         "--aws-sigv4", "aws:amz:us-east-1:s3", "-u", f"{key.id}:{key.secret}",
         "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-H", "If-None-Match: *",
         "-H", "Expect: 100-continue", "-w", "\n%{http_code} %{size_upload}",
         "-T", str(tmp_path / "in"), f"{endpoint(doors)}/{bucket}-none/k"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == b"404 0", done.stdout[-500:] + done.stderr


def test_every_request_leaves_a_line(doors: GatewayCluster, s3: Any, bucket: str) -> None:
    done = s3.put_object(Bucket=bucket, Key="who did it", Body=b"12345")
    id = done["ResponseMetadata"]["RequestId"]
    path = os.path.join(
        doors.config.state_directory(doors.config.host("h1")), "logs", "web.gateway.audit.log"
    )

    def line() -> dict[str, Any] | None:
        with open(path, encoding="utf-8") as file:
            for each in file:
                if id in each:
                    found: dict[str, Any] = json.loads(each)
                    return found
        return None

    found = wait_for(line, 60, "the audit log")
    assert (found["face"], found["operation"], found["key"]) == ("s3", "PutObject", "all")
    assert found["paths"] == [f"/{bucket}/who did it"] and found["status"] == 200


def test_buckets_by_their_host_names_and_a_root_of_their_own(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """`s3_virtual_host`, `s3_root`, and TLS for both: names resolve here by a wire of the test."""
    import socket
    from unittest import mock

    made = "{hosts: [h1], s3_virtual_host: s3.lab.example, s3_root: /buckets}"
    with GatewayCluster(tmp_path_factory.mktemp("virtual"), made) as doors:
        key = doors.key("all")
        port = urlsplit(endpoint(doors)).port
        real = socket.getaddrinfo

        def resolve(host: Any, *rest: Any, **more: Any) -> Any:
            ours = isinstance(host, str) and host.endswith("s3.lab.example")
            return real("127.0.0.1" if ours else host, *rest, **more)

        with mock.patch("socket.getaddrinfo", resolve):
            s3 = boto3.client(
                "s3", endpoint_url=f"https://s3.lab.example:{port}", verify=doors.authority,
                aws_access_key_id=key.id, aws_secret_access_key=key.secret, region_name="x",
                config=boto3.session.Config(s3={"addressing_style": "virtual"}, proxies={}),
            )  # fmt: skip
            s3.create_bucket(Bucket="deep")
            s3.put_object(Bucket="deep", Key="deep/k", Body=b"x")
            assert body(s3, "deep", "deep/k") == b"x"
            assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == ["deep"]
            link = s3.generate_presigned_url(
                "get_object", Params={"Bucket": "deep", "Key": "deep/k"}
            )
            assert link.startswith(f"https://deep.s3.lab.example:{port}/deep/k")
            with doors.session(None) as session:
                assert session.get(link).content == b"x"
                foreign = session.get(endpoint(doors), headers={"Host": "deep.evil.example"})
                assert foreign.status_code == 421
        assert doors.mrstream("dfs", "-cat", "/buckets/deep/deep/k").stdout == b"x"
