"""Bulk streams: messages with raw bytes between them, over TCP and Unix sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.cluster.errors import HostUnreachable, NotTrusted, Overloaded, Speechless, UserError
from mrstream.cluster.wire.addresses import split_address
from mrstream.cluster.wire.frames import Kind
from mrstream.cluster.wire.messages import Message
from mrstream.cluster.wire.network import BulkServer, BulkStream, Identity, bulk_connect

SECRET = b"k" * 32
SERVER = Identity("c1", SECRET, "dfs.chunkserver", "h2")
CLIENT = Identity("c1", SECRET)


class Put(Message, frozen=True):
    size: int


class Get(Message, frozen=True):
    size: int


class Open(Message, frozen=True):
    path: str


class Done(Message, frozen=True):
    size: int


class NoRoom(UserError):
    pass


class Shelf:
    """A server that keeps the last bytes it was given."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the shelf

    def serve(self, stream: BulkStream) -> None:
        while True:
            match stream.receive(Put | Get | Open):
                case Put(size) if size > 100_000_000:
                    raise NoRoom(f"{size} bytes are too many")
                case Put(size):
                    self.kept = stream.receive_bytes(size)
                    stream.send(Done(len(self.kept)))
                case Get(0):
                    size = os.fstat(self.file.fileno()).st_size
                    stream.send(Done(size))
                    stream.send_file(self.file.fileno(), 0, size)
                case Get(size):
                    stream.send(Done(size), memoryview(self.kept)[:size], b"!")
                case Open(path):
                    with open(path, "rb") as file:
                        stream.send(Done(0))
                        stream.send_descriptors([file.fileno()])


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def server(shelf: Shelf) -> Iterator[BulkServer]:
    made = BulkServer(shelf.serve, SERVER, connections_max=4)
    made.start("127.0.0.1:0")
    yield made
    made.close()


def test_raw_bytes_go_there_and_back(server: BulkServer) -> None:
    payload = os.urandom(5_000_001)
    with bulk_connect(server.address, CLIENT, role="dfs.chunkserver") as stream:
        stream.send(Put(len(payload)), payload[:1000], memoryview(payload)[1000:])
        assert stream.receive(Done) == Done(len(payload))
        stream.send(Get(len(payload)))
        assert stream.receive(Done) == Done(len(payload))
        assert stream.receive_bytes(len(payload)) == payload
        assert stream.receive_bytes(1) == b"!"
        assert stream.peer.host == "h2"


def test_a_connection_that_lies_idle_is_ended_without_a_warning_and_a_stuck_one_with_it(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients keep connections for what may come: every idle one was a warning in the log."""
    server = BulkServer(shelf.serve, SERVER, timeout_s=1.0)
    server.start("127.0.0.1:0")

    with bulk_connect(server.address, CLIENT) as idle, pytest.raises(EOFError):
        idle.receive(Done)
    assert caplog.records == []
    with bulk_connect(server.address, CLIENT) as stuck:
        stuck.send(Put(2), b"x")
        with pytest.raises(HostUnreachable, match="timed out"):
            stuck.receive(Done)

    server.close()
    assert ["timed out" in record.getMessage() for record in caplog.records] == [True]


def test_a_file_is_sent_by_the_kernel(server: BulkServer, shelf: Shelf) -> None:
    payload = os.urandom(3_000_000)
    shelf.file.write(payload)
    shelf.file.flush()
    with bulk_connect(server.address, CLIENT) as stream:
        stream.send(Get(0))
        done = stream.receive(Done)

        got = bytearray(done.size)
        taken = 0
        while taken < done.size:
            taken += stream.receive_some(memoryview(got)[taken:])

        assert got == payload


def test_an_error_of_the_server_is_raised_at_the_caller(server: BulkServer) -> None:
    with bulk_connect(server.address, CLIENT) as stream:
        stream.send(Put(200_000_000))
        with pytest.raises(NoRoom, match="200000000 bytes"):
            stream.receive(Done)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_who_says_nothing_is_given_up(server: BulkServer, tmp_path: Path, kind: str) -> None:
    """Fault gate 14: a read waits for so long, and no longer."""
    local = BulkServer(server._serve, SERVER)
    local.start(f"unix:{tmp_path / 'socket'}")
    address = server.address if kind == "tcp" else local.address
    try:
        with bulk_connect(address, CLIENT) as stream:
            stream.settimeout(0.05)  # only now: the handshake is not what is waited for
            with pytest.raises(HostUnreachable, match="timed out"):
                stream.receive(Done)
            stream.settimeout(60.0)
            stream.send(Put(1), b"x")
            assert stream.receive(Done) == Done(1)
    finally:
        local.close()


def test_a_wrong_secret_is_refused(server: BulkServer) -> None:
    with pytest.raises(NotTrusted):
        bulk_connect(server.address, Identity("c1", b"w" * 32))


def test_a_stranger_costs_nothing_and_the_rest_are_served(server: BulkServer) -> None:
    with socket.create_connection(split_address(server.address), 60) as sock:
        sock.sendall(b"\xff" * 100)
        sock.settimeout(60)
        assert b"kind 255" in sock.recv(4096)

    with bulk_connect(server.address, CLIENT) as stream:
        stream.send(Put(1), b"x")
        assert stream.receive(Done) == Done(1)


def test_strangers_that_dawdle_shut_nobody_out(
    server: BulkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """530 of them that sent a byte now and then kept holders of the secret away for good."""
    monkeypatch.setattr("mrstream.cluster.wire.bulk.UNPROVEN_MAX", 8)
    monkeypatch.setattr("mrstream.cluster.wire.bulk.HANDSHAKE_S_MAX", 300.0)
    held = [socket.create_connection(split_address(server.address), 60) for _ in range(40)]

    with bulk_connect(server.address, CLIENT) as stream:
        stream.send(Put(1), b"x")
        assert stream.receive(Done) == Done(1)

    held[0].settimeout(60)
    assert held[0].recv(1) == b""
    for sock in held:
        sock.close()


def test_a_handshake_in_drops_ends_in_time(
    server: BulkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is one on the whole of it, not on each byte."""
    monkeypatch.setattr("mrstream.cluster.wire.bulk.HANDSHAKE_S_MAX", 0.3)
    began_s = time.monotonic()
    with socket.create_connection(split_address(server.address), 60) as sock:
        sock.settimeout(0.1)
        with contextlib.suppress(OSError):  # it has ended the connection
            for byte in struct.pack("<IBQ", 1000, 1, 0) + b"x" * 1000:
                sock.sendall(bytes([byte]))
                with contextlib.suppress(TimeoutError):
                    if not sock.recv(1):
                        break

    assert time.monotonic() - began_s < 30  # a byte each 0.1 s would take 101 s


def test_one_connection_too_many_hears_why(server: BulkServer) -> None:
    streams = [bulk_connect(server.address, CLIENT) for _ in range(4)]

    with pytest.raises(Overloaded, match="4 bulk connections"):
        bulk_connect(server.address, CLIENT)

    for stream in streams:
        stream.close()


def test_a_peer_that_dies_in_the_middle_is_noticed(server: BulkServer) -> None:
    with bulk_connect(server.address, CLIENT) as stream:
        stream.send(Get(10))
        assert stream.receive(Done) == Done(10)

        with pytest.raises(HostUnreachable):
            threading.Timer(0.05, server.close).start()
            stream.receive_bytes(10)


def test_descriptors_pass_over_a_unix_socket(tmp_path: Path, shelf: Shelf) -> None:
    """Short-circuit reads: the server opens, the client reads."""
    file = tmp_path / "f"
    file.write_bytes(b"short circuit")
    server = BulkServer(shelf.serve, SERVER)
    server.start(f"unix:{tmp_path}/sock")
    with bulk_connect(f"unix:{tmp_path}/sock", CLIENT) as stream:
        stream.send(Open(str(file)))
        assert stream.receive(Done) == Done(0)

        (descriptor,) = stream.receive_descriptors(1)

        assert os.pread(descriptor, 100, 0) == b"short circuit"
        os.close(descriptor)
    server.close()
    assert not (tmp_path / "sock").exists()


@pytest.mark.parametrize("kind", [Kind.CALL, Kind.ERROR])
@pytest.mark.parametrize("body", [b"\xc0", b"\x91" * 5000, b"\x92\xa3Put\xa2\xff\xfe", b""])
def test_a_message_that_cannot_be_read_ends_its_connection_only(
    shelf: Shelf, kind: Kind, body: bytes
) -> None:
    """An error frame that was none was a bug of the server, which stopped."""
    bugs: list[BaseException] = []
    server = BulkServer(shelf.serve, SERVER, on_bug=lambda bug, _: bugs.append(bug))
    server.start("127.0.0.1:0")
    with (
        bulk_connect(server.address, CLIENT) as stream,
        bulk_connect(server.address, CLIENT) as other,
    ):
        stream.send_bytes(struct.pack("<IBQ", len(body), kind, 0) + body)

        with pytest.raises(Speechless, match="cannot be read"):
            stream.receive(Done)
        other.send(Put(1), b"x")
        assert other.receive(Done) == Done(1)
    server.close()
    assert bugs == []
