"""Doors when it is crowded, and on hosts that are reached over SSH."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import requests
from botocore.config import Config

from mrstream.cluster.config.config import GATEWAY
from tests.cluster.hosted import Operator
from tests.cluster.netns import NetnsHosts
from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import MIB, client, endpoint
from tests.doors.test_s3_objects import body

SLOW = 500
ADDRESSES = 10
SERVED_S_MAX = 30.0
"""Of a fresh client, on a machine that has other things to do."""
MEMORY_BYTES_MAX = 700 * MIB


# --- crowds


def slow_ones(doors: GatewayCluster, s3: Any, bucket: str) -> Iterator[socket.socket]:
    """Connections that begin something and leave it at that, from several addresses."""
    place = urlsplit(endpoint(doors))
    assert place.hostname is not None and place.port is not None
    context = ssl.create_default_context(cafile=doors.authority)

    def link(operation: str, **named: Any) -> str:
        made = urlsplit(s3.generate_presigned_url(operation, Params={"Bucket": bucket, **named}))
        return f"{made.path}?{made.query}"

    host = f"Host: {place.netloc}\r\n"
    said = [
        b"",  # TLS, and not a word
        b"GET / HT",
        f"GET / HTTP/1.1\r\n{host}X-Slow: ".encode(),
        f"GET {link('get_object', Key='large')} HTTP/1.1\r\n{host}\r\n".encode(),  # reads nothing
    ]
    for number in range(SLOW):
        source = f"127.0.{1 + number % ADDRESSES}.1"
        plain = socket.create_connection((place.hostname, place.port), 60, (source, 0))
        if number % 10 == 0:
            yield plain  # not even TLS
            continue
        held = context.wrap_socket(plain, server_hostname=place.hostname)
        if number % 10 == 1:
            put = link("put_object", Key=f"never-{number}")
            held.sendall(f"PUT {put} HTTP/1.1\r\n{host}Content-Length: 99999\r\n\r\nx".encode())
        else:
            held.sendall(said[number % len(said)])
        yield held


def test_500_slow_connections_do_not_stop_the_rest(
    doors: GatewayCluster, key: Secret, s3: Any, bucket: str
) -> None:
    """Slow heads, slow bodies, readers that do not read: a fresh client is served as ever."""
    s3.put_object(Bucket=bucket, Key="large", Body=os.urandom(8 * MIB))
    with contextlib.ExitStack() as held:
        slow = [held.enter_context(each) for each in slow_ones(doors, s3, bucket)]
        fresh = client(doors, key)
        began_s = time.monotonic()

        fresh.put_object(Bucket=bucket, Key="k", Body=b"served")
        assert body(fresh, bucket, "k") == b"served"
        assert {each["Key"] for each in fresh.list_objects_v2(Bucket=bucket)["Contents"]} == {
            "k", "large",
        }  # fmt: skip
        with doors.session(key) as session:
            assert session.get(f"{doors.base()}/healthz").text == "ok\n"
            assert session.get(doors.url(f"/{bucket}/k"), params={"op": "OPEN"}).text == "served"

        assert time.monotonic() - began_s < SERVED_S_MAX
        answered, _, _ = select.select(slow, [], [], 0)
        assert len(slow) == SLOW and len(answered) < SLOW, "they were there all the time"
        memory = _memory_bytes(doors.pid(GATEWAY, "h1"))
        assert memory < MEMORY_BYTES_MAX, f"{memory >> 20} MiB"
    assert body(s3, bucket, "k") == b"served"


def _memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


# --- hosts over SSH


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    hosts = NetnsHosts(2)
    try:
        yield Operator(tmp_path / "home", hosts)
    finally:
        hosts.close()


def test_a_gateway_on_another_host(operator: Operator, tmp_path: Path) -> None:
    """`up` over SSH starts it there; it is reached by its certificate, dies and comes back."""
    written = operator.write_cluster(gateway={"hosts": ["h2"]}, dfs={"replication": 2})
    operator.good("cluster", "up", "-f", written)
    ca = tmp_path / "ca.pem"
    ca.write_text(operator.good("cluster", "ca"))
    made = dict(line.split() for line in operator.good("key", "add", "me").splitlines())
    address = operator.hosts.address("h2")
    assert (("h2", GATEWAY) in operator.roles("up")) and ("h1", GATEWAY) not in operator.roles("up")
    s3 = boto3.client(
        "s3", endpoint_url=f"https://{address}:7731", verify=str(ca), region_name="x",
        aws_access_key_id=made["id"], aws_secret_access_key=made["secret"],
        config=Config(s3={"addressing_style": "path"}, proxies={}, connect_timeout=10),
    )  # fmt: skip
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="in/a", Body=b"x" * 3_000_000)

    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(ca)
        session.auth = made["id"], made["secret"]
        web = f"https://{address}:7730"
        got = session.get(f"{web}/webhdfs/v1/data/in/a?op=OPEN")
        assert got.content == b"x" * 3_000_000
        assert session.get(f"{web}/healthz").text == "ok\n"
        assert "mrstream_up" in session.get(f"{web}/metrics").text
        link = operator.good("web", "--on", "h2").strip()
        assert "Jobs" in session.get(link).text, "the pages, by a link"
        with pytest.raises(requests.RequestException):
            session.get(f"https://{operator.hosts.address('h1')}:7730/healthz", timeout=10)
    assert f"https://h2:{7730}" in operator.good("cluster", "status")
    audit = operator.good("cluster", "logs", "h2", "web.gateway", "--audit")
    assert '"operation":"PutObject"' in audit

    operator.hosts.kill("h2")
    operator.hosts.start("h2")
    operator.good("cluster", "up", "-f", written)

    assert body(s3, "data", "in/a") == b"x" * 3_000_000
    operator.good("cluster", "down")
