"""Clients of S3 for the tests: boto3 in several moods."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from mrstream.cluster.config.config import GATEWAY_S3
from tests.doors.gateway_cluster import GatewayCluster, Secret

MIB = 1 << 20


def endpoint(doors: GatewayCluster, host: str = "h1") -> str:
    """Where S3 is."""
    return f"https://{doors.config.host(host).address}:{doors.config.port(GATEWAY_S3)}"


def client(doors: GatewayCluster, key: Secret, host: str = "h1", **options: Any) -> Any:
    """A boto3 client; path style, as for every name that is an address."""
    config = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 2}, **options}
    return boto3.client(
        "s3",
        endpoint_url=endpoint(doors, host),
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
