"""Real servers and clients on real sockets, one end honest and the other hostile.

`hostile_client(seed)` attacks a `Server` or a `BulkServer` that knows every request of the dfs, of
jobs, of locks or of a group's members; `hostile_server(seed)` attacks a `Connection`, a `Channel`
or a bulk client. After each, nothing has failed but that one connection, whatever was refused has
its line in the log, and others are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

import mrstream.cluster.consensus.standing as standing
import mrstream.cluster.journal.peers as group_protocol
import mrstream.dfs.protocol as dfs_protocol
import mrstream.lock.protocol as lock_protocol
import mrstream.mapreduce.protocol as job_protocol
from mrstream.cluster.config.state import Secret
from mrstream.cluster.config.tls import tls_of, with_tls_keys
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.addresses import connect_socket
from mrstream.cluster.wire.connection import client_handshake
from mrstream.cluster.wire.frames import (
    HEADER,
    HEADER_BYTES,
    UNPROVEN_BYTES_MAX,
    FrameDecoder,
    Kind,
    encode_frame,
)
from mrstream.cluster.wire.handshake import Hello, Proof, ServerHandshake
from mrstream.cluster.wire.identity import new_client_id
from mrstream.cluster.wire.messages import (
    ErrorReply,
    Health,
    HealthReply,
    Message,
    Metrics,
    Request,
    Stop,
)
from mrstream.cluster.wire.network import (
    BulkServer,
    BulkStream,
    Channel,
    Connection,
    Identity,
    Server,
    bulk_connect,
    new_event_loop,
)
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion
from mrstream.dfs.chunks.chunk_service import REQUESTS as BULK_REQUESTS
from mrstream.mapreduce.dataflow.segment_server import FetchSegments, SegmentHead
from mrstream.mapreduce.protocol import PUSHED as OF_JOBS
from tests.property.fuzz.hostile import damaged, damaged_frames, frame, nested, value_of

ANSWER_S_MAX = 60.0
PUSHED = (*OF_JOBS, *group_protocol.WORDS)
AFTER_BYTES_MAX = 200_000
_SECRET = with_tls_keys(Secret.new())
_WELL = HealthReply("dfs.master", "h1", 1, 0.0, "0", True)


def requests_of(*modules: Any) -> list[type[Request]]:
    """Find the requests that modules define or hand on."""
    found: dict[str, type[Request]] = {}
    for module in modules:
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request:
                found[name] = kind
    return list(found.values())


CONTROL: dict[str, list[type[Request]]] = {
    "dfs.master": [*requests_of(dfs_protocol), Metrics, Stop],
    "mapreduce.master": [*requests_of(job_protocol), Metrics, Stop],
    "lock.master": [*requests_of(lock_protocol), Metrics, Stop],
    "lock.master.group": requests_of(group_protocol, standing),
}
BULK: dict[str, Any] = {"dfs.chunkserver": BULK_REQUESTS, "mapreduce.worker": FetchSegments}


class Seen(logging.Handler):
    """What was logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Room:
    """Servers of both planes, with TLS or without, and what went wrong in them."""

    def __init__(self, has_tls: bool) -> None:
        self.tls = tls_of(_SECRET) if has_tls else None
        self.bugs: list[str] = []
        self.seen = Seen()
        self.client = self.identity("client")
        self._loop = new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.bugs.append(repr(context)))
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.control = {role: self._control(role, kinds) for role, kinds in CONTROL.items()}
        self.bulk = {role: self._bulk(role, kind) for role, kind in BULK.items()}
        logging.getLogger("mrstream.cluster").addHandler(self.seen)
        self._honest = {
            role: Connection(server.address, self.client) for role, server in self.control.items()
        }

    def identity(self, role: str) -> Identity:
        return Identity(_SECRET.cluster_id, _SECRET.secret, role, "h1", self.tls)

    def _control(self, role: str, kinds: list[type[Request]]) -> Server:
        handlers: dict[type[Any], Any] = {kind: lambda request, peer: None for kind in kinds}
        handlers[Health] = lambda request, peer: _WELL
        server = Server(
            handlers,
            self.identity(role),
            on_bug=lambda bug, where: self.bugs.append(f"{where}: {bug!r}"),
        )
        self.wait(server.start("127.0.0.1:0"))
        return server

    def _bulk(self, role: str, kind: Any) -> BulkServer:
        def serve(stream: BulkStream) -> None:
            while True:
                stream.receive(kind)
                stream.send(_WELL)

        server = BulkServer(
            serve,
            self.identity(role),
            on_bug=lambda bug, where: self.bugs.append(f"{where}: {bug!r}"),
        )
        server.start("127.0.0.1:0")
        return server

    def wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S_MAX)

    def close(self) -> None:
        logging.getLogger("mrstream.cluster").removeHandler(self.seen)
        for connection in self._honest.values():
            connection.close()
        for bulk in self.bulk.values():
            bulk.close()
        for server in self.control.values():
            self.wait(server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_S_MAX)
        self._loop.close()

    # --- the honest ones

    def check(self, role: str) -> None:
        """Those who were connected before are served, and so is a new client."""
        if role in self.control:
            assert self._honest[role].call(Health(), ANSWER_S_MAX) == _WELL
            with Connection(self.control[role].address, self.client) as connection:
                assert connection.call(Health(), ANSWER_S_MAX) == _WELL
        else:
            with bulk_connect(self.bulk[role].address, self.client) as stream:
                stream.send(_honest_request(role))
                assert stream.receive(HealthReply) == _WELL
        assert not self.bugs, self.bugs

    # --- a hostile client

    def hostile_client(self, seed: int) -> None:
        """Damage something before, within or after the handshake."""
        rng = random.Random(seed)
        role = rng.choice([*self.control, *self.bulk])
        server: Server | BulkServer = self.control.get(role) or self.bulk[role]
        already = len(self.seen.lines)
        sock = connect_socket(server.address)
        raw = sock.dup()
        try:
            said = self._attack(sock, raw, server.address, role, rng)
            if any(kind == Kind.ERROR for kind, _, _ in _frames(said)):
                assert len(self.seen.lines) > already, f"refused without a line: {said!r}"
        except TimeoutError:
            raise AssertionError("the server neither answers nor ends the connection") from None
        finally:
            sock.close()
            raw.close()
        self.check(role)

    def _attack(
        self,
        sock: socket.socket,
        raw: socket.socket,
        address: str,
        role: str,
        rng: random.Random,
    ) -> bytes:
        stage = rng.choice(("tls", "hello", "proof", "after", "after", "after"))
        if stage == "tls":  # instead of TLS where it is spoken, else another hello
            return _send(raw, raw, _first_words(rng), rng)
        if stage == "after":
            sock, _, _ = client_handshake(sock, address, self.client, role, new_client_id())
            data = b"".join(self._request(role, rng) for _ in range(rng.randrange(1, 4)))
            if self.tls is not None and rng.random() < 0.1:
                return _send(raw, raw, b"\x17\x03\x03" + rng.randbytes(40), rng)  # a broken record
            return _send(sock, raw, data, rng)
        if self.tls is not None:
            sock = self.tls.client.wrap_socket(sock)
        sock.settimeout(ANSWER_S_MAX)
        if stage == "proof":
            hello = Hello(1, _SECRET.cluster_id, "client", "h", "", 7, b"n" * 16)
            sock.sendall(encode_frame(Kind.HANDSHAKE, 0, hello))
            sock.recv(4096)
        kind = Proof if stage == "proof" else Hello
        body = damaged(value_of(inspect.type_info(kind), rng), rng, UNPROVEN_BYTES_MAX)
        return _send(sock, raw, damaged_frames(body, Kind.HANDSHAKE, rng), rng)

    def _request(self, role: str, rng: random.Random) -> bytes:
        kind = rng.choice(CONTROL[role]) if role in CONTROL else BULK[role]
        if rng.random() < 0.05:
            kind = ErrorReply
        body = damaged(value_of(inspect.type_info(kind), rng), rng, AFTER_BYTES_MAX)
        return damaged_frames(body, Kind.ERROR if kind is ErrorReply else Kind.CALL, rng)

    # --- a hostile server

    def hostile_server(self, seed: int) -> None:
        """Answer an honest client with something damaged: it gets a `ClusterError`, and soon."""
        rng = random.Random(seed)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            answering = threading.Thread(target=self._answer, args=(listener, rng.randrange(1000)))
            answering.start()
            try:
                self._ask(f"127.0.0.1:{port}", rng.choice(("connection", "channel", "bulk")))
            except ClusterError:
                pass  # what it should be, if the answer cannot be read or is an error
            finally:
                answering.join(ANSWER_S_MAX)
        assert not self.bugs, self.bugs

    def _ask(self, address: str, how: str) -> None:
        if how == "connection":
            with Connection(
                address, self.client, on_push=lambda _: None, push_types=PUSHED
            ) as connection:
                assert isinstance(connection.call(Health(), ANSWER_S_MAX), HealthReply)
        elif how == "bulk":
            with bulk_connect(address, self.client) as stream:
                stream.send(Health())
                stream.receive(HealthReply | SegmentHead)
        else:
            self.wait(self._ask_channel(address))

    async def _ask_channel(self, address: str) -> None:
        channel = await Channel.connect(
            address, self.client, on_push=lambda _: None, push_types=PUSHED
        )
        try:
            answer = await asyncio.wait_for(channel.call(Health()), ANSWER_S_MAX)
            assert isinstance(answer, HealthReply)
        finally:
            channel.close()

    def _answer(self, listener: socket.socket, seed: int) -> None:
        rng = random.Random(seed)
        sock, _ = listener.accept()
        with contextlib.closing(sock), contextlib.suppress(OSError):  # the client has had enough
            self._mislead(sock, rng)

    def _mislead(self, sock: socket.socket, rng: random.Random) -> None:
        sock.settimeout(ANSWER_S_MAX)
        if self.tls is not None:
            sock = self.tls.server.wrap_socket(sock, server_side=True)
        with contextlib.closing(sock):
            handshake = ServerHandshake(self.identity("dfs.master"))
            while not handshake.done:
                answer = handshake.feed(_read_frame(sock))
                if rng.random() < 0.1:
                    sock.sendall(damaged_frames(_damaged_reply(rng), Kind.HANDSHAKE, rng))
                    return
                sock.sendall(answer)
            number = _read_frame(sock)[1]
            for _ in range(rng.randrange(3)):
                sock.sendall(frame(rng.choice((3, 4, 5)), rng.choice((0, number)), b"\xc0"))
            kind = rng.choice((Kind.REPLY, Kind.ERROR, Kind.PUSH))
            sock.sendall(frame(kind, rng.choice((0, number)), _damaged_reply(rng)))


def _damaged_reply(rng: random.Random) -> bytes:
    kind: type[Message] = rng.choice((HealthReply, ErrorReply, SegmentHead, *PUSHED))
    return damaged(value_of(inspect.type_info(kind), rng), rng, AFTER_BYTES_MAX)


def _honest_request(role: str) -> Message:
    kinds = BULK[role]
    if kinds is FetchSegments:
        return FetchSegments(0, ())
    return dfs_protocol.ChunkLength(ChunkHandle(1), ChunkVersion(1))


def _first_words(rng: random.Random) -> bytes:
    return rng.choice(
        (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\xff\xff" + rng.randbytes(500),
            b"\x16\x03\x01\x00\x05hello",
            b"SSH-2.0-x\r\n",
            frame(1, 0, b"\x99\xa5Hello" + nested(1000)),
            rng.randbytes(rng.randrange(3000)),
        )
    )


def _send(sock: socket.socket, raw: socket.socket, data: bytes, rng: random.Random) -> bytes:
    """Send it, whole or in pieces, and nothing more; return all that the server says to it."""
    sock.settimeout(ANSWER_S_MAX)
    cut = rng.randrange(len(data) + 1) if rng.random() < 0.2 else 0
    said = b""
    with _server_may_end_it():
        sock.sendall(data[:cut])
        sock.sendall(data[cut:])
        raw.shutdown(socket.SHUT_WR)
    with _server_may_end_it():
        while part := sock.recv(65536):
            said += part
    return said


@contextlib.contextmanager
def _server_may_end_it() -> Iterator[None]:
    """With a reset, or an alert of TLS; but it must not say nothing for ever."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        assert isinstance(error, ConnectionError | ssl.SSLError) or error.errno == errno.ENOTCONN


def _frames(said: bytes) -> Iterator[tuple[int, int, bytes]]:
    with contextlib.suppress(ClusterError):  # an alert of TLS is not a frame
        yield from FrameDecoder(1 << 20).feed(said)


def _read_frame(sock: socket.socket) -> tuple[int, int, bytes]:
    header = _exactly(sock, HEADER_BYTES)
    length, kind, number = HEADER.unpack(header)
    return kind, number, _exactly(sock, length)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the client has gone")
        data += part
    return data
