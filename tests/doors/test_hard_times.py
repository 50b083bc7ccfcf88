"""Doors when it is crowded, and on hosts that are reached over SSH."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import boto3
import pytest
import requests
from botocore.config import Config

from mrstream.cluster.config.config import GATEWAY
from mrstream.web.http.limits import Limits
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
MOMENT_S = 1.0
"""So much later than its moment something may be seen here."""
TCP_ESTABLISHED = 1


# --- crowds


class Slow(NamedTuple):
    """A connection that begins something and leaves it at that."""

    link: socket.socket
    since_s: float
    for_s: float
    """How long the gateway bears with it."""

    @property
    def has_time(self) -> bool:
        return time.monotonic() - self.since_s < self.for_s - MOMENT_S

    @property
    def is_open(self) -> bool:
        """As the kernel knows it, whatever waits to be read."""
        state = self.link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return state == TCP_ESTABLISHED


def slow_ones(doors: GatewayCluster, s3: Any, bucket: str) -> Iterator[Slow]:
    """Come from several addresses; the most patient kinds come first."""
    place = urlsplit(endpoint(doors))
    assert place.hostname is not None and place.port is not None
    context = ssl.create_default_context(cafile=doors.authority)
    limits = Limits()

    def link(operation: str, number: int) -> str:
        named = {"Bucket": bucket, "Key": "large"}
        if operation == "put_object":
            named["Key"] = f"never-{number}"
        made = urlsplit(s3.generate_presigned_url(operation, Params=named))
        return f"{made.path}?{made.query}"

    def said(kind: str, number: int) -> str:
        host = f"Host: {place.netloc}\r\n"
        match kind:
            case "slow body":
                put = f"PUT {link('put_object', number)} HTTP/1.1\r\n{host}"
                return f"{put}Content-Length: 99999\r\n\r\nx"
            case "reads nothing":
                return f"GET {link('get_object', number)} HTTP/1.1\r\n{host}\r\n"
            case "slow line":
                return "GET / HT"
            case "slow head":
                return f"GET / HTTP/1.1\r\n{host}X-Slow: "
        return ""

    kinds = {
        # Of 1 GiB there is room for 156 of the first kind, and for 211 of the second.
        "slow body": (150, limits.pace_s),
        "reads nothing": (50, limits.pace_s),
        "not a word": (100, limits.idle_s),
        "slow line": (75, limits.head_s),
        "slow head": (75, limits.head_s),
        "not even TLS": (50, limits.handshake_s),
    }
    assert sum(count for count, _ in kinds.values()) == SLOW
    sources = itertools.cycle(f"127.0.{number}.1" for number in range(1, ADDRESSES + 1))
    for kind, (count, for_s) in kinds.items():
        for number in range(count):
            since_s = time.monotonic()
            held = socket.create_connection((place.hostname, place.port), 60, (next(sources), 0))
            if kind != "not even TLS":
                held = context.wrap_socket(held, server_hostname=place.hostname)
            held.sendall(said(kind, number).encode())
            yield Slow(held, since_s, for_s)


def test_500_slow_connections_do_not_stop_the_rest(
    doors: GatewayCluster, key: Secret, s3: Any, bucket: str
) -> None:
    """Slow heads, slow bodies, readers that do not read: a fresh client is served as ever, and
    none of them is cut before its time."""
    s3.put_object(Bucket=bucket, Key="large", Body=os.urandom(8 * MIB))
    with contextlib.ExitStack() as held:
        slow: list[Slow] = []
        for each in slow_ones(doors, s3, bucket):
            held.enter_context(each.link)
            slow.append(each)
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
        with_time = [each.is_open for each in slow if each.has_time]
        assert len(with_time) >= SLOW // 3, f"only {len(with_time)} were there all the time"
        assert all(with_time), f"{with_time.count(False)} of {len(with_time)} were cut too early"
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
