"""Server, Channel and Connection over real sockets of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ClassVar

import pytest

from mrstream.cluster.errors import (
    CallTimedOut,
    ClusterError,
    DaemonFault,
    HostUnreachable,
    NotTrusted,
    Speechless,
    Unavailable,
    UnknownRequest,
    UserError,
    WrongCluster,
)
from mrstream.cluster.wire.addresses import split_address
from mrstream.cluster.wire.frames import Kind, encode_frame
from mrstream.cluster.wire.messages import Message, Request
from mrstream.cluster.wire.network import (
    Channel,
    Connection,
    Identity,
    Peer,
    Server,
    new_event_loop,
)

SECRET = b"k" * 32
MASTER = Identity("c1", SECRET, "dfs.master", "h1")
CLIENT = Identity("c1", SECRET, "client", "laptop")


class Add(Request, frozen=True):
    """Mutates: adds to a number on the server."""

    reply: ClassVar[Any] = int
    mutates: ClassVar[bool] = True
    n: int


class Slow(Request, frozen=True):
    reply: ClassVar[Any] = str
    seconds: float = 0.0


class Fail(Request, frozen=True):
    bug: bool = False


class Unknown(Request, frozen=True):
    pass


class News(Message, frozen=True):
    text: str


class Refusal(UserError):
    pass


class Desk:
    """A small daemon: what a real one's handlers look like."""

    def __init__(self) -> None:
        self.total = 0
        self.bugs: list[BaseException] = []
        self.left: list[str] = []
        self.server = Server(
            {Add: self.add, Slow: self.slow, Fail: self.fail},
            MASTER,
            on_bug=lambda bug, _: self.bugs.append(bug),
            on_disconnect=lambda peer: self.left.append(peer.host),
        )

    def add(self, request: Add, peer: Peer) -> int:
        self.total += request.n
        peer.push(News(f"total is {self.total}"))
        return self.total

    async def slow(self, request: Slow, peer: Peer) -> str:
        await asyncio.sleep(request.seconds)
        return f"slept {peer.role}"

    def fail(self, request: Fail, peer: Peer) -> None:
        if request.bug:
            raise ZeroDivisionError("a bug")
        raise Refusal("not today", day=3)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(main(), 120))
    finally:
        loop.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A server on a loop in a thread of its own, for the blocking clients."""
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = Desk()
    asyncio.run_coroutine_threadsafe(made.server.start("127.0.0.1:0"), loop).result(60)
    yield made
    asyncio.run_coroutine_threadsafe(made.server.close(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def test_a_channel_calls_pushes_and_errors() -> None:
    async def main() -> None:
        desk, news = Desk(), []
        address = await desk.server.start("127.0.0.1:0")
        channel = await Channel.connect(
            address, CLIENT, role="dfs.master", on_push=news.append, push_types=[News]
        )

        assert await channel.call(Add(2)) == 2
        assert await channel.call(Slow(0.001)) == "slept client"
        assert news == [News("total is 2")]
        with pytest.raises(Refusal, match="not today") as caught:
            await channel.call(Fail())
        assert caught.value.details == {"day": 3}
        with pytest.raises(UnknownRequest, match="Unknown"):
            await channel.call(Unknown())
        assert await channel.call(Add(1)) == 3  # the connection lives on

        channel.close()
        await desk.server.close()

    run(main)


def test_a_channel_that_was_closed_hears_no_push() -> None:
    """A transport under TLS may still deliver what comes while it closes."""

    async def main() -> None:
        desk, news = Desk(), []
        address = await desk.server.start("127.0.0.1:0")
        channel = await Channel.connect(address, CLIENT, on_push=news.append, push_types=[News])
        channel.data_received(bytes(encode_frame(Kind.PUSH, 0, News("in time"))))

        channel.close()
        channel.data_received(bytes(encode_frame(Kind.PUSH, 0, News("too late"))))

        assert news == [News("in time")]
        await desk.server.close()

    run(main)


def test_a_repeated_request_is_answered_but_not_carried_out_again() -> None:
    """Fault gate 30: a repeat over a new connection, same client id and number."""

    async def main() -> None:
        desk = Desk()
        address = await desk.server.start("127.0.0.1:0")
        first = await Channel.connect(address, CLIENT, client_id=5)
        number = first.next_number()
        assert await first.call(Add(10), number=number) == 10
        first.close()

        second = await Channel.connect(address, CLIENT, client_id=5)
        assert await second.call(Add(10), number=number) == 10
        other = await Channel.connect(address, CLIENT, client_id=6)
        assert await other.call(Add(10), number=number) == 20

        assert desk.total == 20
        await desk.server.close()

    run(main)


@pytest.mark.parametrize("kind", [Refusal, Unavailable])
def test_a_copy_of_a_refused_request_is_not_carried_out_later(kind: type[ClusterError]) -> None:
    """F5: its client was told no, and went on; the copy came over a connection that it had given
    up. Only where nothing could be said is a repeat tried afresh."""

    async def main() -> None:
        runs = 0

        def add(request: Add, peer: Peer) -> int:
            nonlocal runs
            runs += 1
            if runs == 1:
                raise kind("not today")
            return request.n

        server = Server({Add: add}, MASTER)
        address = await server.start("127.0.0.1:0")
        one = await Channel.connect(address, CLIENT, client_id=5)
        two = await Channel.connect(address, CLIENT, client_id=5)
        with pytest.raises(kind, match="not today"):
            await one.call(Add(4), number=1)

        if kind is Unavailable:
            assert await two.call(Add(4), number=1) == 4
        else:
            with pytest.raises(kind, match="not today"):
                await two.call(Add(4), number=1)
            assert runs == 1
            assert await two.call(Add(4), number=2) == 4
        await server.close()

    run(main)


def test_a_repeat_while_the_first_is_still_running_waits_for_its_answer() -> None:
    async def main() -> None:
        runs = 0
        gate = asyncio.Event()

        async def add(request: Add, peer: Peer) -> int:
            nonlocal runs
            runs += 1
            await gate.wait()
            return request.n

        server = Server({Add: add}, MASTER)
        address = await server.start("127.0.0.1:0")
        one = await Channel.connect(address, CLIENT, client_id=5)
        two = await Channel.connect(address, CLIENT, client_id=5)

        a, b = one.call(Add(4), number=1), two.call(Add(4), number=1)
        while not runs:
            await asyncio.sleep(0.001)
        one.close()  # the one that started it goes away: the work is still seen through
        gate.set()

        assert await b == 4
        assert runs == 1
        with pytest.raises(HostUnreachable):
            await a
        await server.close()

    run(main)


def test_a_bug_in_a_handler_is_told_to_the_caller_and_to_the_daemon() -> None:
    async def main() -> None:
        desk = Desk()
        channel = await Channel.connect(await desk.server.start("127.0.0.1:0"), CLIENT)

        with pytest.raises(DaemonFault, match="ZeroDivisionError"):
            await channel.call(Fail(bug=True))

        assert isinstance(desk.bugs[0], ZeroDivisionError)
        await desk.server.close()

    run(main)


def test_calls_in_flight_fail_when_the_server_goes() -> None:
    async def main() -> None:
        desk = Desk()
        channel = await Channel.connect(await desk.server.start("127.0.0.1:0"), CLIENT)
        call = channel.call(Slow(60))
        await asyncio.sleep(0.02)

        await desk.server.close()

        with pytest.raises(HostUnreachable):
            await call
        assert isinstance(await channel.closed, HostUnreachable)
        with pytest.raises(HostUnreachable):
            await channel.call(Add(1))

    run(main)


def test_a_channel_gives_up_after_the_time_it_was_given() -> None:
    async def main() -> None:
        desk = Desk()
        channel = await Channel.connect(await desk.server.start("127.0.0.1:0"), CLIENT)

        with pytest.raises(CallTimedOut, match=r"no answer to Slow within 0\.05 s"):
            await channel.call(Slow(5), timeout_s=0.05)

        assert await channel.call(Add(1)) == 1
        await desk.server.close()

    run(main)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_connection_that_is_made_just_when_the_time_for_it_is_over_is_given_up(
    turns: int,
) -> None:
    """A host that was frozen, or cut off and joined again, finds all its time-outs and all its
    connections at once. That is no bug of the caller's: what runs for ever goes on trying."""

    async def main() -> None:
        desk = Desk()
        address = await desk.server.start("127.0.0.1:0")
        trying = asyncio.ensure_future(Channel.connect(address, CLIENT, timeout_s=0.05))
        for _ in range(turns):
            await asyncio.sleep(0)
        time.sleep(0.2)  # the loop is stopped: meanwhile the kernel connects
        with pytest.raises(HostUnreachable, match="no answer within"):
            await trying
        said: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: said.append(what))
        channel = await Channel.connect(address, CLIENT)

        assert await channel.call(Add(1)) == 1
        assert said == []
        channel.close()
        await desk.server.close()

    run(main)


def test_a_wrong_secret_a_wrong_cluster_and_nobody_there_are_told_apart() -> None:
    async def main() -> None:
        desk = Desk()
        address = await desk.server.start("127.0.0.1:0")

        with pytest.raises(NotTrusted):
            await Channel.connect(address, Identity("c1", b"x" * 32))
        with pytest.raises(WrongCluster):
            await Channel.connect(address, Identity("c2", SECRET))
        with pytest.raises(WrongCluster, match=r"dfs\.master listens here"):
            await Channel.connect(address, CLIENT, role="mapreduce.master")
        await desk.server.close()
        with pytest.raises(HostUnreachable):
            await Channel.connect(address, CLIENT)

    run(main)


def test_a_client_that_does_not_read_its_answers_is_not_read_from() -> None:
    """Bounded memory: a deaf client must not fill the server with replies."""

    async def main() -> None:
        class Big(Request, frozen=True):
            reply: ClassVar[Any] = bytes

        served = 0

        def big(request: Big, peer: Peer) -> bytes:
            nonlocal served
            served += 1
            return b"z" * 65536

        server = Server({Big: big}, MASTER)
        address = await server.start("127.0.0.1:0")
        channel = await Channel.connect(address, CLIENT)
        channel.transport.pause_reading()
        for _ in range(3000):
            channel.call(Big())

        await asyncio.sleep(0.5)

        assert served < 500  # 4 MiB of ours and what the kernel holds, not 190 MB
        channel.transport.abort()
        await server.close()

    run(main)


def test_blocking_connection_calls_from_many_threads(desk: Desk) -> None:
    with Connection(desk.server.address, CLIENT, role="dfs.master") as connection:
        results: list[int] = []

        def work() -> None:
            for _ in range(100):
                results.append(connection.call(Add(1)))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(results) == list(range(1, 801))
        assert connection.peer.host == "h1"


def test_a_slow_call_does_not_hold_up_a_quick_one_on_the_same_connection(desk: Desk) -> None:
    with Connection(desk.server.address, CLIENT) as connection:
        ended: list[ClusterError] = []

        def call_slowly() -> None:
            try:
                connection.call(Slow(600), timeout_s=600)
            except ClusterError as error:
                ended.append(error)

        slow = threading.Thread(target=call_slowly)
        slow.start()

        assert connection.call(Add(1)) == 1

        assert slow.is_alive() and not ended
    slow.join()
    assert isinstance(ended[0], HostUnreachable)


def test_a_blocking_call_times_out_and_the_connection_goes_on(desk: Desk) -> None:
    with Connection(desk.server.address, CLIENT) as connection:
        with pytest.raises(CallTimedOut):
            connection.call(Slow(5), timeout_s=0.05)

        assert connection.call(Add(3)) == 3


def test_a_blocking_connection_comes_back_and_its_repeat_is_recognised(desk: Desk) -> None:
    with Connection(desk.server.address, CLIENT) as connection:
        number = connection.next_number()
        assert connection.call(Add(7), number=number) == 7
        connection.close()

        assert connection.call(Add(7), number=number) == 7
        assert desk.total == 7


def test_after_a_fork_the_child_has_a_connection_of_its_own(desk: Desk) -> None:
    with Connection(desk.server.address, CLIENT) as connection:
        connection.call(Add(1))
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                status = 0 if connection.call(Add(10), timeout_s=60) == 11 else 2
            os._exit(status)
        _, status = os.waitpid(child, 0)

        assert status == 0
        assert connection.call(Add(1)) == 12


def test_a_stranger_gets_one_clear_refusal_and_the_server_lives(desk: Desk) -> None:
    """Bad input: port scanner, 4 GB header, half-open connections."""
    host_port = split_address(desk.server.address)
    for noise in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("<IBQ", 0xFFFFFFFF, 2, 1),
        bytes(encode_frame(Kind.CALL, 1, ["Add", 1])),
        bytes(encode_frame(Kind.HANDSHAKE, 0, ["Hello", "nonsense"])),
        os.urandom(4096),
    ):
        with socket.create_connection(host_port, 60) as sock:
            sock.sendall(noise)
            sock.settimeout(60)
            said = b""
            with contextlib.suppress(ConnectionResetError):
                while part := sock.recv(4096):
                    said += part
            assert len(said) < 1024
    half_open = [socket.create_connection(host_port, 60) for _ in range(20)]

    with Connection(desk.server.address, CLIENT) as connection:
        assert connection.call(Add(1)) == 1

    for sock in half_open:
        sock.close()
    assert desk.bugs == []


def test_a_connection_that_never_speaks_is_ended(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrstream.cluster.wire.server.HANDSHAKE_S_MAX", 0.1)
    with socket.create_connection(split_address(desk.server.address), 60) as sock:
        sock.settimeout(60)

        assert b"no handshake within" in sock.recv(4096)
        assert sock.recv(4096) == b""


def test_strangers_that_dawdle_shut_nobody_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of them makes room for the next."""
    monkeypatch.setattr("mrstream.cluster.wire.server.UNPROVEN_MAX", 3)
    monkeypatch.setattr("mrstream.cluster.wire.server.HANDSHAKE_S_MAX", 300.0)
    held = [socket.create_connection(split_address(desk.server.address), 60) for _ in range(9)]

    with Connection(desk.server.address, CLIENT) as friend:
        assert friend.call(Add(1)) == 1

    held[0].settimeout(60)
    assert b"wait for their handshake" in held[0].recv(4096)
    for sock in held:
        sock.close()


@pytest.mark.parametrize("body", [b"\xa2\xff\xfe", b"\x91" * 5000, b"\x94\xaaErrorReply"])
def test_a_reply_that_cannot_be_read_fails_its_call_and_no_other(body: bytes) -> None:
    """The call of a channel waited for ever, even beyond its time: nobody knew it any more."""

    async def main() -> None:
        desk = Desk()
        channel = await Channel.connect(await desk.server.start("127.0.0.1:0"), CLIENT)
        call = channel.call(Slow(60))

        channel.data_received(struct.pack("<IBQ", len(body), Kind.REPLY, 1) + body)

        with pytest.raises(Speechless, match="cannot be read"):
            await call
        assert await channel.call(Add(1)) == 1
        await desk.server.close()

    run(main)


def test_a_reply_that_came_is_given_though_the_connection_ends_right_behind_it() -> None:
    """The end of the connection took the place of an answer that its caller had not yet seen."""
    ours, theirs = socket.socketpair()
    with Connection("unix:/nowhere", CLIENT) as connection, theirs:
        connection._sock = ours
        nonsense = struct.pack("<IBQ", 1, Kind.ERROR, 0) + b"\xc1"
        theirs.sendall(encode_frame(Kind.REPLY, 1, 42) + nonsense)

        assert connection.call(Add(1), 60.0) == 42
        assert not connection.is_open


def test_two_calls_in_flight_never_share_a_number() -> None:
    """One of them would wait for ever, and the other might get its answer."""
    ours, theirs = socket.socketpair()
    with Connection("unix:/nowhere", CLIENT) as connection, theirs:
        connection._sock = ours
        with connection._waiting(7), pytest.raises(AssertionError, match="in flight"):
            connection.call(Add(1), 60.0, 7)


def test_a_request_that_cannot_be_read_is_refused_and_logged(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one whose name is nested so deep that it could be read, but not be printed."""
    with Connection(desk.server.address, CLIENT) as connection:
        connection.call(Add(1))
        assert connection._sock is not None
        for body in (b"\x91" * 5000, b"\x91" * 985 + b"\xc0", b"\x92\xa3Add\xa2\xff\xfe", b""):
            connection._sock.sendall(struct.pack("<IBQ", len(body), Kind.CALL, 99) + body)

        assert connection.call(Add(1)) == 2

    assert caplog.text.count("refused request of peer=") == 4
    assert desk.bugs == []
