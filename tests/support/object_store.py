"""An object store that is not ours, in this process: moto's server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

KEYS = {
    "AWS_ACCESS_KEY_ID": "anybody",
    "AWS_SECRET_ACCESS_KEY": "anything",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def running_store() -> Iterator[dict[str, str]]:
    """Run a store; gives the variables by which clients find it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "NO_PROXY": host}
    finally:
        server.stop()


def client_of(variables: dict[str, str]) -> Any:
    """Give a client of boto3 to it."""
    return boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_DEFAULT_REGION"],
    )


def made_bucket(client: Any, name: str) -> str:
    """Make a bucket."""
    client.create_bucket(
        Bucket=name, CreateBucketConfiguration={"LocationConstraint": KEYS["AWS_DEFAULT_REGION"]}
    )
    return name


def keys_in(client: Any, bucket: str, prefix: str = "") -> list[str]:
    """List all keys."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def uploads_in(client: Any, bucket: str) -> list[str]:
    """List the keys of uploads that nobody completed or aborted."""
    return [u["Key"] for u in client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())]
