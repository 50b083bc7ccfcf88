"""`tls: true` on real hosts: bytes of files and jobs cross the wire, and none can be read there."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

from tests.cluster.conftest import MakeHosts
from tests.cluster.hosted import Operator
from tests.cluster.machine import TestHosts

OperatorAt = Callable[[TestHosts], Operator]
ETH_P_ALL = 3
SECRET_WORDS = b"the quick brown fox of the board of directors "


class Tap:
    """Listens to all packets that this machine exchanges with its test hosts."""

    def __init__(self, interface: str) -> None:
        self._sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self._sock.bind((interface, 0))
        self._sock.settimeout(0.2)
        self.heard = bytearray()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                self.heard += self._sock.recv(65536)
            except TimeoutError:
                continue

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._sock.close()


def transfer(operator: Operator, tap_at: str) -> bytes:
    """Put a file, run a word count on it, get it back; return the packets that went by."""
    content = SECRET_WORDS * 20_000
    (operator.home / "f").write_bytes(content)
    tap = Tap(tap_at)
    try:
        operator.good("dfs", "-put", "f", "/f")
        counted = operator.good(
            "-input", "/f", "-mapper", "tr ' ' '\\n'", "-reducer", "uniq -c", timeout_s=100
        )
        operator.good("dfs", "-get", "/f", "back")
    finally:
        tap.close()
    assert (operator.home / "back").read_bytes() == content
    assert "fox" in counted
    return bytes(tap.heard)


def test_with_tls_nothing_on_the_wire_can_be_read(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """Every connection is encrypted and mutually proven; the same tap hears all of it without."""
    hosts = make_netns(2)
    operator = operator_at(hosts)
    tap_at = f"mrs{hosts.site.number}up"
    path = operator.write_cluster()
    operator.good("cluster", "up", "-f", path)
    assert SECRET_WORDS in transfer(operator, tap_at)
    operator.good("dfs", "-rm", "/f")
    operator.good("cluster", "down")
    path = operator.write_cluster(tls=True)
    operator.good("cluster", "up", "-f", path)
    (operator.home / "back").unlink()

    heard = transfer(operator, tap_at)

    assert len(heard) > 500_000
    assert SECRET_WORDS not in heard and b"CreateFile" not in heard
    with socket.create_connection((hosts.address("h1"), 7700), 60) as sock:
        sock.sendall(struct.pack("<IBQ", 8, 1, 0) + b"\x91\xa6Health")
        sock.settimeout(60)
        assert b"Challenge" not in sock.recv(4096)  # an alert, or nothing
