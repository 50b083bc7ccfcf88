"""Clients of S3 for the tests: boto3 in several moods."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from mrstream.cluster.config.config import GATEWAY_S3
from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.recording import Recorder

MIB = 1 << 20


def endpoint(doors: GatewayCluster, host: str = "h1") -> str:
    """Where S3 is."""
    return f"https://{doors.config.host(host).address}:{doors.config.port(GATEWAY_S3)}"


@contextmanager
def recorded(directory: Path, name: str) -> Iterator[tuple[GatewayCluster, str]]:
    """A gateway without TLS, and an address by which all that is said to it is written down."""
    gateway = "{hosts: [h1], tls: false, names: [localhost]}"
    with GatewayCluster(directory / "cluster", gateway) as doors:
        with Recorder(("127.0.0.1", doors.config.port(GATEWAY_S3))) as recorder:
            yield doors, f"http://localhost:{recorder.port}"
            recorder.write(name)


def client(
    doors: GatewayCluster, key: Secret, host: str = "h1", url: str = "", **options: Any
) -> Any:
    """A boto3 client; path style, as for every name that is an address."""
    config = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 2}, **options}
    return boto3.client(
        "s3",
        endpoint_url=url or endpoint(doors, host),
        aws_access_key_id=key.id,
        aws_secret_access_key=key.secret,
        region_name=options.pop("region_name", "eu-nowhere-1"),
        verify=doors.authority,
        config=Config(proxies={}, **{n: v for n, v in config.items() if n != "region_name"}),
    )


def refusal(error: ClientError) -> tuple[int, str]:
    """The status and code of an error."""
    answer = error.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def signed_stream(key: Secret | None, headers: Any, pieces: list[bytes], trailer: str) -> bytes:
    """The body of a stream that is signed piece by piece (without a key: not signed), written after
    Amazon's description and nothing of ours; `headers` are those of its signed request."""
    out = b""
    if key is None:
        for piece in pieces:
            out += b"%x\r\n%s\r\n" % (len(piece), piece)
        return out + f"0\r\n{trailer}\r\n\r\n".encode()
    stamp = headers["X-Amz-Date"]
    scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
    signing_key = f"AWS4{key.secret}".encode()
    for part in scope.split("/"):
        signing_key = hmac.new(signing_key, part.encode(), hashlib.sha256).digest()
    last = headers["Authorization"].rpartition("Signature=")[2]
    empty = hashlib.sha256(b"").hexdigest()
    for piece in [*pieces, b""]:
        text = "\n".join(
            ["AWS4-HMAC-SHA256-PAYLOAD", stamp, scope, last, empty,
             hashlib.sha256(piece).hexdigest()]
        )  # fmt: skip
        last = hmac.new(signing_key, text.encode(), hashlib.sha256).hexdigest()
        out += b"%x;chunk-signature=%s\r\n" % (len(piece), last.encode())
        out += piece + b"\r\n" if piece else b""
    if trailer:
        hashed = hashlib.sha256(f"{trailer}\n".encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256-TRAILER", stamp, scope, last, hashed])
        last = hmac.new(signing_key, text.encode(), hashlib.sha256).hexdigest()
        out += f"{trailer}\r\nx-amz-trailer-signature:{last}\r\n".encode()
    return out + b"\r\n"
