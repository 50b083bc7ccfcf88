"""Peers of the lock cell: etcd and ZooKeeper of Debian's packages, three members each, on loopback.

Both are asked by Python clients of the same kind as ours: etcd through its HTTP gateway, ZooKeeper
in its own protocol (four messages of it). Both sync before they answer.
"""

from __future__ import annotations

import base64
import glob
import http.client
import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.local import wait_for
from tests.support.ports import free_ports

READY_S_MAX = 60.0
Put = Callable[[str, bytes], object]
Join = Callable[[], Put]
"""Become one more client; give its way to write."""


def etcd_program() -> str:
    """`$ETCD`, or what is installed; empty: it is not here."""
    return os.environ.get("ETCD") or shutil.which("etcd") or ""


def zookeeper_jars() -> str:
    """`$ZOOKEEPER_JARS` (a class path), or what Debian's package installs; empty: not here."""
    given = os.environ.get("ZOOKEEPER_JARS")
    if given or not shutil.which("java"):
        return given or ""
    wanted = (
        "zookeeper",
        "zookeeper-jute",
        "netty-all",
        "metrics-core",
        "snappy-java",
        "slf4j-api",
    )
    found = [path for name in wanted for path in glob.glob(f"/usr/share/java/{name}.jar")]
    return ":".join(found) if len(found) == len(wanted) else ""


@contextmanager
def etcd(
    program: str, directory: Path
) -> Iterator[tuple[Join, Callable[[], Callable[[str], object]]]]:
    """Run it; give the ways to write and to read."""
    directory.mkdir()
    ports = free_ports(6)
    peers = {f"m{n}": f"http://127.0.0.1:{ports[2 * n]}" for n in range(3)}
    clients = {f"m{n}": f"http://127.0.0.1:{ports[2 * n + 1]}" for n in range(3)}
    members: list[subprocess.Popen[bytes]] = []
    try:
        for name in peers:
            argv = [
                program, "--name", name, "--data-dir", str(directory / name),
                "--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name],
                "--listen-client-urls", clients[name], "--advertise-client-urls", clients[name],
                "--initial-cluster", ",".join(f"{n}={url}" for n, url in peers.items()),
                "--initial-cluster-state", "new",
            ]  # fmt: skip
            log = open(directory / f"{name}.log", "wb")  # noqa: SIM115  the process keeps it
            members.append(subprocess.Popen(argv, stdout=log, stderr=log))
            log.close()
        leader = wait_for(lambda: _leader(ports[1::2]), READY_S_MAX, "etcd to serve")
        yield lambda: _etcd_put(leader), lambda: _etcd_get(leader)
    finally:
        for member in members:
            member.kill()
            member.wait()


def _etcd_put(port: int) -> Put:
    ask = _etcd_asker(port)
    return lambda key, value: ask("put", key=key.encode(), value=value)


def _etcd_get(port: int) -> Callable[[str], object]:
    ask = _etcd_asker(port)
    return lambda key: ask("range", key=key.encode())


def _etcd_asker(port: int) -> Callable[..., bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
    connection.connect()
    assert connection.sock is not None
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(verb: str, **fields: bytes) -> bytes:
        words = {name: base64.b64encode(value).decode() for name, value in fields.items()}
        connection.request("POST", f"/v3/kv/{verb}", json.dumps(words))
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return text

    return ask


def _leader(ports: list[int]) -> int:
    """The client port of the member that leads: ours are asked there too; 0 while nobody does."""
    for port in ports:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
            connection.request("POST", "/v3/maintenance/status", "{}")
            status = json.loads(connection.getresponse().read())
            connection.close()
        except (OSError, ValueError):
            continue
        if status.get("leader", "0") == status.get("header", {}).get("member_id", "") != "0":
            return port
    return 0


@contextmanager
def zookeeper(jars: str, directory: Path) -> Iterator[Join]:
    """Run it; give the way to write."""
    directory.mkdir()
    ports = free_ports(9)
    members: list[subprocess.Popen[bytes]] = []
    try:
        for n in range(3):
            place = directory / f"m{n + 1}"
            place.mkdir()
            (place / "myid").write_text(f"{n + 1}\n")
            servers = "".join(
                f"server.{m + 1}=127.0.0.1:{ports[3 * m]}:{ports[3 * m + 1]}\n" for m in range(3)
            )
            (place / "zoo.cfg").write_text(
                f"tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={place}\nclientPort="
                f"{ports[3 * n + 2]}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
                f"maxClientCnxns=0\n4lw.commands.whitelist=srvr\n{servers}"
            )
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            argv = ["java", "-Xmx256m", "-cp", jars, main, str(place / "zoo.cfg")]
            log = open(place / "log", "wb")  # noqa: SIM115  the process keeps it
            members.append(subprocess.Popen(argv, stdout=log, stderr=log))
            log.close()
        leader = wait_for(lambda: _zookeeper_leader(ports[2::3]), READY_S_MAX, "ZooKeeper to serve")
        yield lambda: ZooKeeperClient(leader).put
    finally:
        for member in members:
            member.kill()
            member.wait()


def _zookeeper_leader(ports: list[int]) -> int:
    for port in ports:
        try:
            with socket.create_connection(("127.0.0.1", port), 5.0) as sock:
                sock.sendall(b"srvr")
                said = b""
                while piece := sock.recv(4096):
                    said += piece
        except OSError:
            continue
        if b"Mode: leader" in said:
            return port
    return 0


class ZooKeeperClient:
    """One session; setData, and create where a node is not there yet."""

    CREATE, SET = 1, 5
    ANYBODY = (
        struct.pack(">i", 1)
        + struct.pack(">i", 31)
        + b"".join(struct.pack(">i", len(word)) + word for word in (b"world", b"anyone"))
    )
    NO_NODE = -101

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), 60.0)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(_field(struct.pack(">iqiqi16s", 0, 0, 30_000, 0, 16, bytes(16))))
        self._read()
        self._xid = 0

    def put(self, key: str, value: bytes) -> None:
        path = _field(f"/{key}".encode())
        error = self._ask(self.SET, path + _field(value) + struct.pack(">i", -1))
        if error == self.NO_NODE:
            error = self._ask(
                self.CREATE, path + _field(value) + self.ANYBODY + struct.pack(">i", 0)
            )
        assert error == 0, error

    def _ask(self, kind: int, body: bytes) -> int:
        self._xid += 1
        self._sock.sendall(_field(struct.pack(">ii", self._xid, kind) + body))
        xid, _, error = struct.unpack_from(">iqi", self._read())
        assert xid == self._xid
        return int(error)

    def _read(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._sock.recv(count - len(data))
            assert piece, "the server closed the connection"
            data += piece
        return data


def _field(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value
