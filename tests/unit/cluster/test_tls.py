"""`tls: true`: all three kinds of connection are encrypted, and strangers stay out."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from mrstream.cluster.config.state import Secret
from mrstream.cluster.config.tls import tls_of, with_tls_keys
from mrstream.cluster.errors import HostUnreachable, Unavailable
from mrstream.cluster.wire.addresses import split_address
from mrstream.cluster.wire.messages import Message, Request
from mrstream.cluster.wire.network import (
    BulkServer,
    BulkStream,
    Channel,
    Connection,
    Identity,
    Peer,
    Server,
    bulk_connect,
    new_event_loop,
)

SECRET = with_tls_keys(Secret.new())
OTHER = with_tls_keys(Secret.new())


def identity(secret: Secret, role: str = "client") -> Identity:
    return Identity(SECRET.cluster_id, SECRET.secret, role, "h", tls_of(secret))


class Twice(Request, frozen=True):
    reply: ClassVar[Any] = int
    n: int


class Run(Message, frozen=True):
    size: int


@pytest.fixture
def server() -> Iterator[Server]:
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def twice(request: Twice, peer: Peer) -> int:
        return request.n * 2

    made = Server({Twice: twice}, identity(SECRET, "dfs.master"))
    asyncio.run_coroutine_threadsafe(made.start("127.0.0.1:0"), loop).result(60)
    yield made
    asyncio.run_coroutine_threadsafe(made.close(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def test_the_keys_are_kept_with_the_secret() -> None:
    again = Secret.from_text(SECRET.to_text(), "here")

    assert again == SECRET
    assert with_tls_keys(again) is again


def test_a_blocking_connection_from_many_threads(server: Server) -> None:
    with Connection(server.address, identity(SECRET)) as connection:
        got: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: got.extend(connection.call(Twice(n)) for n in range(50))
            )
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert sorted(got) == sorted(n * 2 for n in range(50) for _ in range(6))


def test_a_channel_talks_under_tls(server: Server) -> None:
    async def main() -> None:
        channel = await Channel.connect(server.address, identity(SECRET))
        assert await channel.call(Twice(4)) == 8
        channel.close()

    asyncio.run(main())


def test_a_peer_that_vanishes_is_noticed_under_tls_too(server: Server) -> None:
    """A member of a group only listens: without the kernel's questions it would do so for ever."""

    async def main() -> None:
        channel = await Channel.connect(server.address, identity(SECRET))
        assert await channel.call(Twice(4)) == 8
        for end in (channel.transport, server.peers[-1].transport):
            sock = end.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 60
        channel.close()

    for loop in (asyncio.new_event_loop(), new_event_loop()):
        loop.run_until_complete(main())
        loop.close()


def test_one_without_tls_or_with_another_clusters_keys_gets_nowhere(server: Server) -> None:
    plain = Identity(SECRET.cluster_id, SECRET.secret)
    with pytest.raises(Unavailable), Connection(server.address, plain) as connection:
        connection.call(Twice(1))
    with pytest.raises(HostUnreachable), Connection(server.address, identity(OTHER)) as connection:
        connection.call(Twice(1))
    with Connection(server.address, identity(SECRET)) as connection:
        assert connection.call(Twice(1)) == 2


def test_a_bulk_stream_that_sends_and_receives_at_once() -> None:
    def serve(stream: BulkStream) -> None:
        while True:
            run = stream.receive(Run)
            stream.send(Run(run.size), stream.receive_bytes(run.size))

    server = BulkServer(serve, identity(SECRET, "dfs.chunkserver"))
    server.start("127.0.0.1:0")
    payload = bytes(range(256)) * 4000
    with bulk_connect(server.address, identity(SECRET)) as stream:

        def send() -> None:
            for _ in range(10):
                stream.send(Run(len(payload)), payload)

        sender = threading.Thread(target=send)
        sender.start()
        for _ in range(10):
            assert stream.receive(Run).size == len(payload)
            assert stream.receive_bytes(len(payload)) == payload
        sender.join()
    server.close()


def test_a_stranger_to_tls_is_told_of_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Event loops say nothing of a TLS handshake that failed."""
    with socket.create_connection(split_address(server.address), 60) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while sock.recv(4096):
            pass

    assert "refused peer at the TLS handshake" in caplog.text
    with Connection(server.address, identity(SECRET)) as connection:
        assert connection.call(Twice(1)) == 2


def test_a_refused_bulk_connection_ends_although_something_remembers_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It stayed open for as long as anything, such as a log, held the error."""
    server = BulkServer(lambda stream: None, identity(SECRET, "dfs.chunkserver"))
    server.start("127.0.0.1:0")
    tls = identity(SECRET).tls
    assert tls is not None
    plain = socket.create_connection(split_address(server.address), 60)
    with tls.client.wrap_socket(plain) as sock:
        sock.sendall(bytes(13) + b"no frame")
        said = b""
        while part := sock.recv(4096):
            said += part

    assert b"Speechless" in said
    assert "refused bulk peer=" in caplog.text
    server.close()
