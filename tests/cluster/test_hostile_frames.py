"""Every port of every daemon takes what no peer should send, and all daemons serve on."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.cluster.config.config import CHUNKSERVER_BULK, WORKER_BULK, Cluster, load
from mrstream.cluster.config.state import write_private
from mrstream.cluster.config.tls import with_tls_keys
from mrstream.cluster.wire.addresses import connect_socket
from mrstream.cluster.wire.connection import client_handshake
from mrstream.cluster.wire.handshake import Hello
from mrstream.cluster.wire.identity import new_client_id
from mrstream.cluster.wire.messages import pack
from tests.cluster.local import LocalCluster
from tests.property.fuzz.hostile import frame, nested

ROLES = ("dfs.master", "dfs.chunkserver", "mapreduce.master", "mapreduce.worker")
BULK = {"dfs.chunkserver": CHUNKSERVER_BULK, "mapreduce.worker": WORKER_BULK}
ANSWER_S_MAX = 30.0


class HostileRoom(LocalCluster):
    """Two hosts with all roles; with TLS if asked for."""

    def __init__(self, directory: Path, has_tls: bool) -> None:
        super().__init__(directory, 2, roles=ROLES, slots=1)
        if has_tls:
            self._use_tls()

    def _use_tls(self) -> None:
        self.secret = with_tls_keys(self.secret)
        text = Path(self.file).read_text() + "tls: true\n"
        for place in [Path(self.file).parent, *map(self.host_directory, self.hosts)]:
            write_private(str(place / "cluster.yaml"), text)
            write_private(str(place / "identity.json"), self.secret.to_text())
        self.config = load(self.file)
        self.cluster = Cluster(self.config, self.secret)

    def ports(self) -> Iterator[tuple[str, str, str]]:
        """Every (role, host, address) that listens."""
        for role in ROLES:
            for host in self.hosts_of(role):
                yield role, host, self.config.address(host, role)
                if role in BULK:
                    yield role, host, self.config.address(host, BULK[role])


def hello_and(more: bytes) -> bytes:
    """A Hello as it should be, save for one field more."""
    hello = bytearray(pack(Hello(1, "c", "client", "h", "", 7, b"n" * 16)))
    hello[0] += 1
    return bytes(hello) + more


_ROOM = 1024 - len(hello_and(b""))
UNPROVEN = [
    frame(1, 0, hello_and(b"\x91" * _ROOM)),  # 1,024 bytes: this one ended every daemon
    frame(1, 0, hello_and(b"\x81\xa1k" * (_ROOM // 3))),
    frame(1, 0, b"\x98\xa5Hello\x01\xa2\xff\xfe"),
    frame(1, 0, b"\xdd\xff\xff\xff\xff\xa5Hello"),
    frame(1, 0, hello_and(b"\xc6\xff\xff\xff\xff")),
    frame(1, 0, hello_and(b"\xc1")),
    frame(1, 0, b"\xc7\x05\x01abcde"),
    frame(1, 0, b""),
    frame(2, 1, b"\x91\xa6Health"),
    frame(4, 0, b"\x94\xaaErrorReply\x90\xa0\x81\xa7message\x01"),
    frame(9, 0, b"x"),
    struct.pack("<IBQ", 2**32 - 1, 1, 0),
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x00\x05hello",
]
PROVEN = [
    frame(2, 1, b"\x92\xa6Health" + nested(100_000)),
    frame(2, 1, nested(100_000)),
    frame(2, 1, b"\x91" + nested(980)),
    frame(2, 2**64 - 1, b"\x91\xa2\xff\xfe"),
    frame(2, 1, b"\x92\xa6Health\xdd\xff\xff\xff\xff"),
    frame(4, 0, b"\x94\xaaErrorReply\x90\xa0\x81\xa1k" + nested(900)),
    frame(4, 0, b"\xc0"),
    frame(3, 1, b"\xc0"),
    frame(5, 0, nested(2000)),
    frame(1, 0, hello_and(nested(5000))),
    struct.pack("<IBQ", 33 << 20, 2, 1),
]


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_no_frame_ends_a_daemon(tmp_path: Path, has_tls: bool) -> None:
    """One frame of 1,024 bytes, without the secret, ended 8 daemons of 8."""
    with HostileRoom(tmp_path, has_tls) as cluster:
        pids = {(role, host): cluster.pid(role, host) for role, host, _ in cluster.ports()}

        for role, _, address in cluster.ports():
            for data in UNPROVEN:
                attack(cluster, address, data, is_encrypted=False)
                if has_tls:
                    attack(cluster, address, data, is_encrypted=True)
            for data in PROVEN:
                attack(cluster, address, data, is_encrypted=has_tls, role=role)

        for role, host in pids:
            assert cluster.is_up(role, host), cluster.output(role, host)
            assert cluster.health(role, host).pid == pids[role, host]
            logs = cluster.host_directory(host) / "logs"
            assert "refused" in (logs / f"{role}.log").read_text()
        run_a_job(cluster)


def run_a_job(cluster: LocalCluster) -> None:
    """What takes all four roles and both planes."""
    (cluster.directory / "words").write_text("b\na\nb\n")
    put = cluster.mrstream("dfs", "-put", "words", "/words")
    assert put.returncode == 0, put.stderr
    job = cluster.mrstream("-input", "/words", "-mapper", "cat", "-reducer", "uniq -c")
    assert job.returncode == 0, job.stderr
    assert [line.split() for line in job.stdout.splitlines()] == [[b"1", b"a"], [b"2", b"b"]]


def attack(
    cluster: LocalCluster, address: str, data: bytes, *, is_encrypted: bool, role: str = ""
) -> None:
    """Send it, after the handshake if a role is given, and wait until the daemon has dealt with
    it: it ends the connection by itself or when we have said all."""
    identity = cluster.cluster.identity()
    sock = connect_socket(address)
    raw = sock.dup()
    try:
        if role:
            sock, _, _ = client_handshake(sock, address, identity, role, new_client_id())
        elif is_encrypted:
            assert identity.tls is not None
            sock = identity.tls.client.wrap_socket(sock)
        sock.settimeout(ANSWER_S_MAX)
        with contextlib.suppress(OSError):  # it has ended the connection already
            sock.sendall(data)
            raw.shutdown(socket.SHUT_WR)
        listen(sock)
    finally:
        sock.close()
        raw.close()


def listen(sock: socket.socket) -> None:
    """Hear the daemon out."""
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        raise AssertionError("the daemon neither answers nor ends the connection") from None
    except OSError:
        return  # a reset, or an alert of TLS: an end, too
