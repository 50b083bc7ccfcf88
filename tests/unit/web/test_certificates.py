"""TLS of the doors: a client that was given the authority knows a gateway from an impostor."""

from __future__ import annotations

import os
import socket
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mrstream.cluster.config.config import ClusterConfig
from mrstream.cluster.config.doors import with_door_keys
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import DoorKeys, Secret
from mrstream.cluster.errors import UserError
from mrstream.web.certificates import RENEWED_AFTER_S, Certificates, leaf
from mrstream.web.http.limits import Limits
from mrstream.web.http.reply import Reply, text_reply
from mrstream.web.http.request import Request
from tests.unit.web.raw_http import Served

CONFIG = read_config(
    "name: lab\nhosts: {h1: {address: 127.0.0.1}}\ngateway: {hosts: [h1], names: [files.example]}\n"
)


def door_of(config: ClusterConfig) -> DoorKeys:
    door = with_door_keys(Secret.new(), config).door
    assert door is not None
    return door


DOOR = door_of(CONFIG)


async def hello(request: Request) -> Reply:
    return text_reply(f"{request.scheme}\n")


def client_of(door: DoorKeys) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=door.authority)
    # Stricter than the default of this Python; newer ones check it unasked.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def called(port: int, name: str, context: ssl.SSLContext) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        with context.wrap_socket(plain, server_hostname=name) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            return connection.recv(10_000)


def test_all_names_of_a_gateway_are_vouched_for() -> None:
    certificates = Certificates(CONFIG, "h1", DOOR)
    certificates.refresh(time.time())
    with Served(hello, tls=certificates.context) as served:
        for name in ("127.0.0.1", "h1", "files.example"):
            assert called(served.port, name, client_of(DOOR)).endswith(b"https\n")
        with pytest.raises(ssl.SSLCertVerificationError):
            called(served.port, "other.example", client_of(DOOR))
        with pytest.raises(ssl.SSLCertVerificationError):
            called(served.port, "h1", client_of(door_of(CONFIG)))


def test_the_authority_can_vouch_for_nothing_else() -> None:
    """Installed in a browser, it endangers no other site, even if its key is stolen."""
    for name in ("bank.example", "192.0.2.1"):
        certificates = Certificates(CONFIG, "h1", DOOR)
        certificates._load("".join(leaf(DOOR, (name,), time.time())))
        with Served(hello, tls=certificates.context) as served:
            with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
                called(served.port, name, client_of(DOOR))


def test_a_new_certificate_is_shown_without_a_restart() -> None:
    certificates = Certificates(CONFIG, "h1", DOOR)
    now_s = time.time()
    certificates.refresh(now_s)
    first_s = certificates.ends_at_s
    certificates.refresh(now_s + RENEWED_AFTER_S - 1)
    assert certificates.ends_at_s == first_s

    certificates.refresh(now_s + RENEWED_AFTER_S)

    assert certificates.ends_at_s == pytest.approx(first_s + RENEWED_AFTER_S, abs=2)


def test_files_of_ones_own_are_read_again_when_they_change(tmp_path: Path) -> None:
    paths = [tmp_path / "c.pem", tmp_path / "k.pem"]
    assert CONFIG.gateway is not None
    gateway = replace(CONFIG.gateway, certificate=str(paths[0]), key=str(paths[1]))
    certificates = Certificates(replace(CONFIG, gateway=gateway), "h1", DOOR)
    with pytest.raises(UserError, match=r"c\.pem"):
        certificates.refresh(0.0)
    now_s = time.time()
    for path, text in zip(paths, leaf(DOOR, ("h1",), now_s), strict=True):
        path.write_text(text)
    certificates.refresh(0.0)
    first_s = certificates.ends_at_s

    paths[0].write_text("half")
    os.utime(paths[0], (1, 1))
    certificates.refresh(0.0)
    assert certificates.ends_at_s == first_s
    for path, text in zip(paths, leaf(DOOR, ("h1",), now_s + 1000), strict=True):
        path.write_text(text)
        os.utime(path, (2, 2))
    certificates.refresh(0.0)

    assert certificates.ends_at_s == pytest.approx(first_s + 1000, abs=2)


def test_a_handshake_has_its_time_and_old_protocols_stay_out() -> None:
    certificates = Certificates(CONFIG, "h1", DOOR)
    certificates.refresh(time.time())
    with Served(hello, Limits(handshake_s=0.3), certificates.context) as served:
        with served.connect() as connection:
            began_s = time.monotonic()
            connection.sendall(b"\x16\x03\x01")
            assert connection.recv(100) == b""
            assert time.monotonic() - began_s < 30
        with served.connect() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"HTTP/1.1" not in connection.recv(1000)
        old = client_of(DOOR)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert b"200" in called(served.port, "h1", old)
