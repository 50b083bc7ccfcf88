"""A real listening server against raw bytes: each limit, each trick, one test."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import cast

import pytest

from mrstream.cluster.errors import Unavailable, UserError
from mrstream.web.http.budget import Budget
from mrstream.web.http.faces import Faces
from mrstream.web.http.head import Refused
from mrstream.web.http.limits import Limits
from mrstream.web.http.reply import Reply, Stream, html_reply, stream_reply, text_reply
from mrstream.web.http.request import Request
from mrstream.web.http.server import Server
from tests.unit.web.raw_http import Answer, Served, read_answer

QUICK = Limits(
    connections=6,
    connections_of_one=4,
    head_s=0.4,
    idle_s=0.5,
    form_bytes=100,
    form_s=0.5,
    pace_bytes_per_s=100_000,
    pace_s=0.5,
    linger_s=0.2,
    stop_s=1.0,
)

PATIENT = replace(QUICK, head_s=60.0, idle_s=60.0)
"""For connections that are to stay while others come."""


async def handler(request: Request) -> Reply:
    """What the tests ask of."""
    match request.path:
        case "/form":
            return text_reply(f"{len(await request.body())}")
        case "/upload":
            count = 0
            async for piece in request.pieces():
                count += len(piece)
            return text_reply(str(count))
        case "/refused":
            raise Refused(403, "not you", close=True)
        case "/bug":
            raise RuntimeError("secret detail of a bug")
        case "/unsendable":
            return Reply(200, cast(bytes, "secret text, which is no bytes"))
        case "/down":
            raise Unavailable("the master does not answer")
        case "/big":
            return stream_reply(pieces(64), 64 << 16)
        case "/short":
            return stream_reply(pieces(1), 2 << 16)
        case "/broken":
            return stream_reply(broken(), 2 << 16)
        case "/unknown-length":
            return stream_reply(pieces(2), None)
        case "/page":
            return html_reply("<p>" + "x" * 5000, headers=[("Set-Cookie", "a=1")], pack=True)
    return text_reply(f"{request.method} {request.path} {request.peer}\n")


async def pieces(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number]) * (1 << 16)


async def broken() -> AsyncIterator[bytes]:
    yield b"x" * (1 << 16)
    raise Unavailable("no replica")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(handler) as running:
        yield running


@pytest.fixture(scope="module")
def quick() -> Iterator[Served]:
    with Served(handler, QUICK) as running:
        yield running


def closes(connection: socket.socket, within_s: float = 30.0) -> bool:
    """Does the server end this connection?"""
    connection.settimeout(within_s)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


# --- answers


def test_an_answer_has_its_length_an_id_and_what_protects_a_browser(served: Served) -> None:
    answer = served.get("/a%20b")

    assert answer.status == 200
    assert answer.body == b"GET /a b 127.0.0.1\n"
    assert len(answer.headers["x-request-id"]) == 16
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["server"] == "mrstream"
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_head_has_the_length_and_no_body(served: Served) -> None:
    for path, length in (("/a", 18), ("/big", 64 << 16)):
        answer = served.ask(served.head(f"HEAD {path} HTTP/1.1", "Connection: close"))

        assert answer.status == 200
        assert answer.body == b""
        assert int(answer.headers["content-length"]) == length


def test_requests_follow_each_other_on_one_connection(served: Served) -> None:
    with served.connect() as connection:
        for _ in range(3):
            connection.sendall(served.head("GET /x HTTP/1.1"))
            assert read_answer(connection).body == b"GET /x 127.0.0.1\n"


def test_a_page_is_packed_for_those_who_take_it(served: Served) -> None:
    packed = served.get("/page", "Accept-Encoding: gzip, br")
    plain = served.get("/page")

    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body)
    assert packed.headers["set-cookie"] == "a=1"


def test_a_bug_tells_its_id_and_nothing_else(served: Served) -> None:
    answer = served.get("/bug")

    assert answer.status == 500
    assert answer.headers["x-request-id"].encode() in answer.body
    assert b"secret" not in answer.raw and b"Traceback" not in answer.raw


def test_an_answer_that_cannot_be_sent_is_a_bug_of_ours_and_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Not one of the client's (400), and not silently."""
    answer = served.get("/unsendable")

    assert answer.status == 500
    assert b"secret" not in answer.raw
    assert any(each.exc_info and each.levelname == "ERROR" for each in caplog.records)
    assert served.outcomes[-1].status == 500


def test_an_error_of_the_cluster_has_its_status(served: Served) -> None:
    answer = served.get("/down")

    assert answer.status == 503
    assert answer.headers["retry-after"] == "5"


def test_a_body_without_a_length_comes_in_chunks(served: Served) -> None:
    answer = served.get("/unknown-length")

    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.body.endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("path", ["/short", "/broken"])
def test_an_answer_that_fails_half_way_is_cut_and_never_a_short_200(
    served: Served, path: str
) -> None:
    """§3: whoever counts bytes, or looks at how the connection ended, sees it."""
    answer = served.get(path)

    assert len(answer.body) < int(answer.headers["content-length"])
    assert served.outcomes[-1].status == 499


def test_what_happened_is_told_once_with_bytes_and_status(served: Served) -> None:
    served.outcomes.clear()
    served.ask(
        served.head("PUT /upload HTTP/1.1", "Content-Length: 5", "User-Agent: " + "u" * 200)
        + b"12345"
    )

    (outcome,) = served.outcomes

    assert (outcome.status, outcome.bytes_in, outcome.bytes_out) == (200, 5, 1)
    assert (outcome.method, outcome.peer, len(outcome.agent)) == ("PUT", "127.0.0.1", 80)


# --- who is called


def test_a_foreign_host_is_not_served(served: Served) -> None:
    """§2.2, DNS rebinding: 421 before anything else, whatever is asked."""
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1", "localhost:1"):
        answer = served.ask(f"GET /bug HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

        assert answer.status == 421
        assert b"bug" not in answer.body


def test_our_names_are_served(served: Served) -> None:
    for host in (f"127.0.0.1:{served.port}", f"LOCALHOST:{served.port}"):
        answer = served.ask(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

        assert answer.status == 200


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_no_host_and_two_hosts_are_refused(served: Served, version: str) -> None:
    ours = f"Host: 127.0.0.1:{served.port}\r\n"
    for hosts in ("", ours + ours, ours + "Host: evil.example\r\n"):
        answer = served.ask(f"GET / HTTP/{version}\r\n{hosts}\r\n".encode())

        assert answer.status == 400


def test_only_a_balancer_is_believed_about_the_client() -> None:
    forwarded = "X-Forwarded-For: 192.0.2.1, 192.0.2.2"
    with Served(handler) as alone:
        assert alone.get("/", forwarded).body == b"GET / 127.0.0.1\n"
    with Served(handler, behind=["127.0.0.1"]) as balanced:
        assert balanced.get("/", forwarded).body == b"GET / 192.0.2.2\n"
        assert balanced.get("/", "X-Forwarded-For: nonsense").body == b"GET / 127.0.0.1\n"


async def test_nothing_listens_on_all_interfaces() -> None:
    for address in ("0.0.0.0", "::"):
        with pytest.raises(UserError):
            await Server(handler).listen(address, 0)


# --- smuggling and other bytes

TRICKS = {
    "length and chunks": "POST /form HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4\r\n"
    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "two lengths": "POST /form HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4\r\n"
    "Content-Length: 5\r\n\r\nabcde",
    "a list of lengths": "POST /form HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4, 4\r\n\r\nabcd",
    "a signed length": "POST /form HTTP/1.1\r\nHost: {h}\r\nContent-Length: +4\r\n\r\nabcd",
    "a negative length": "POST /form HTTP/1.1\r\nHost: {h}\r\nContent-Length: -1\r\n\r\n",
    "two encodings": "POST /form HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n"
    "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an unknown encoding": "POST /form HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: xchunked\r\n\r\n"
    "0\r\n\r\n",
    "bare line feeds": "GET / HTTP/1.1\nHost: {h}\n\n",
    "a bare line feed in a header": "GET / HTTP/1.1\r\nHost: {h}\r\nA: b\nC: d\r\n\r\n",
    "a folded header": "GET / HTTP/1.1\r\nHost: {h}\r\nA: b\r\n c\r\n\r\n",
    "a blank before the colon": "GET / HTTP/1.1\r\nHost: {h}\r\nA : b\r\n\r\n",
    "a blank in a name": "GET / HTTP/1.1\r\nHost: {h}\r\nA B: c\r\n\r\n",
    "a NUL in a value": "GET / HTTP/1.1\r\nHost: {h}\r\nA: b\0c\r\n\r\n",
    "a carriage return in a value": "GET / HTTP/1.1\r\nHost: {h}\r\nA: b\rc\r\n\r\n",
    "an absolute target": "GET http://{h}/x HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "another's absolute target": "GET http://evil.example/ HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "no target": "GET HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "a NUL in the target": "GET /a\0b HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "an encoded NUL": "GET /a%00b HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "overlong dots": "GET /%c0%ae%c0%ae/x HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "half a percent sign": "GET /a%2 HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "another protocol": "SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "x" * 64,
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no version": "GET /\r\n\r\n",
    "a version of ours": "GET / HTTP/9.9\r\nHost: {h}\r\n\r\n",
}


@pytest.mark.parametrize("trick", sorted(TRICKS))
def test_what_two_servers_could_read_differently_is_refused_and_closed(
    served: Served, trick: str
) -> None:
    message = TRICKS[trick].format(h=f"127.0.0.1:{served.port}").encode("latin-1")
    with served.connect() as connection:
        connection.sendall(message)
        answer = read_answer(connection)

        assert answer.status == 400, answer.raw
        assert b"smuggled" not in answer.raw
        assert b"Traceback" not in answer.raw and b"aiohttp" not in answer.raw
        is_decoded_by_us = trick in {"an encoded NUL", "overlong dots", "half a percent sign"}
        assert is_decoded_by_us or closes(connection)


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "PATCH", "PROPFIND", "PURGE"])
def test_a_method_that_nobody_needs_is_refused(served: Served, method: str) -> None:
    target = f"127.0.0.1:{served.port}" if method == "CONNECT" else "/"

    assert served.ask(served.head(f"{method} {target} HTTP/1.1")).status in {400, 405}


def test_an_upgrade_is_not_made(served: Served) -> None:
    answer = served.get("/x", "Upgrade: websocket", "Sec-WebSocket-Key: x")

    assert answer.status == 200
    assert "upgrade" not in answer.headers


def test_a_body_is_never_unpacked(served: Served) -> None:
    """§0.3: a small body that unpacks to a large one stays small."""
    bomb = gzip.compress(bytes(1 << 22))

    answer = served.ask(
        served.head(
            "PUT /upload HTTP/1.1", "Content-Encoding: gzip", f"Content-Length: {len(bomb)}"
        )
        + bomb
    )

    assert answer.body == str(len(bomb)).encode()


def test_random_bytes_are_answered_or_closed_and_hurt_nobody(served: Served) -> None:
    chance = random.Random(1)
    whole = served.head("PUT /upload HTTP/1.1", "Content-Length: 3") + b"abc"
    for _ in range(300):
        message = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        with served.connect() as connection:
            connection.sendall(bytes(message))
            connection.shutdown(socket.SHUT_WR)
            answer = read_answer(connection)
            assert answer.status in {0, 200, 400, 405, 417, 421, 431}
            assert b"Traceback" not in answer.raw

    assert served.get("/").status == 200


# --- limits


def test_a_long_line_a_long_header_and_many_headers_are_refused(served: Served) -> None:
    """§1.2: 8 KiB, 8 KiB, 64."""
    assert served.get("/" + "a" * 8000).status == 200
    assert served.get("/" + "a" * 8300).status == 414
    assert served.get("/", "A: " + "b" * 8000).status == 200
    assert served.get("/", "A: " + "b" * 8300).status == 431
    assert served.get("/", *["A: b"] * 61).status == 200
    assert served.get("/", *["A: b"] * 64).status == 431


def test_a_head_has_its_time(quick: Served) -> None:
    """§1.2, slow loris: a byte now and then does not keep a connection."""
    with quick.connect() as connection:
        began_s = time.monotonic()
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
        answer = read_answer(connection)

    assert answer.status == 408
    assert time.monotonic() - began_s < 30


def test_a_head_that_drips_is_cut_all_the_same(quick: Served) -> None:
    with quick.connect() as connection:
        deadline_s = time.monotonic() + 30
        with pytest.raises(OSError):
            while time.monotonic() < deadline_s:
                connection.sendall(b"a")
                time.sleep(0.05)
    assert time.monotonic() < deadline_s


def test_a_connection_without_a_request_is_closed(quick: Served) -> None:
    with quick.connect() as connection:
        assert closes(connection)


def test_connections_of_one_address_are_counted() -> None:
    """§1.2: beyond them 503 and closed; those that are there go on."""
    with Served(handler, PATIENT) as served:
        held = [served.connect() for _ in range(4)]
        for connection in held:
            connection.sendall(served.head("GET / HTTP/1.1"))
            assert read_answer(connection).status == 200
        with served.connect() as late:
            answer = read_answer(late)
            assert answer.status == 503
            assert closes(late)
        held[0].sendall(served.head("GET / HTTP/1.1"))
        assert read_answer(held[0]).status == 200
        for connection in held:
            connection.close()


def test_all_connections_are_counted_and_a_trusted_address_has_no_limit_of_its_own() -> None:
    with Served(handler, PATIENT, is_exempt=lambda address: True) as trusting:
        held = []
        for _ in range(6):
            connection = trusting.connect()
            connection.sendall(trusting.head("GET / HTTP/1.1"))
            assert read_answer(connection).status == 200
            held.append(connection)
        with trusting.connect() as late:
            assert read_answer(late).status == 503
        for connection in held:
            connection.close()


def test_a_form_is_small_and_comes_in_time(quick: Served) -> None:
    """§1.2: 413 at once by its length or while it comes, 408 for one that does not come."""
    post = "POST /form HTTP/1.1"
    chunks = b"40\r\n" + b"x" * 64 + b"\r\n"
    declared = quick.ask(quick.head(post, "Content-Length: 101"))
    counted = quick.ask(quick.head(post, "Transfer-Encoding: chunked") + chunks * 2)
    late = quick.ask(quick.head(post, "Content-Length: 5") + b"1")
    right = quick.ask(quick.head(post, "Content-Length: 100") + b"x" * 100)

    assert [declared.status, counted.status, late.status, right.status] == [413, 413, 408, 200]


def test_a_body_that_comes_too_slowly_is_cut(quick: Served) -> None:
    with quick.connect() as connection:
        connection.sendall(quick.head("PUT /upload HTTP/1.1", "Content-Length: 1000000") + b"x")
        assert closes(connection)


@pytest.mark.parametrize("made_at_once", [False, True])
def test_an_answer_that_is_taken_too_slowly_is_cut(
    made_at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was made at once was held for as long as its client liked; and whoever leaves is no
    bug of ours."""

    async def endless(request: Request) -> Reply:
        return Reply(200, bytes(4 << 20) if made_at_once else Stream(pieces(255), 255 << 16))

    with Served(endless, QUICK) as slow:
        with slow.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(slow.head("GET / HTTP/1.1"))
            deadline_s = time.monotonic() + 60
            while not slow.outcomes and time.monotonic() < deadline_s:
                time.sleep(0.02)

        assert [outcome.status for outcome in slow.outcomes] == [499]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_long_answer_that_was_made_at_once_comes_whole() -> None:
    """By slices: its length and its bytes are as before, and so is what HEAD says of it."""
    body = random.Random(1).randbytes(300_000)
    over: list[str] = []

    async def long(request: Request) -> Reply:
        return Reply(200, body, over=lambda: over.append(request.method))

    with Served(long) as served:
        answer = served.get("/")
        with served.connect() as connection:
            connection.sendall(served.head("HEAD / HTTP/1.1", "Connection: close"))
            head = connection.recv(4096, socket.MSG_WAITALL)

    assert answer.body == body and answer.headers["content-length"] == "300000"
    assert b"Content-Length: 300000\r\n" in head and head.endswith(b"\r\n\r\n")
    assert over == ["GET", "HEAD"]


def test_forms_share_the_memory_that_there_is_for_them() -> None:
    """Two megabytes each, of a thousand clients that send the last byte later."""
    came, may_end = asyncio.Event(), asyncio.Event()

    async def form(request: Request) -> Reply:
        data = await request.body()
        if request.path == "/first":
            came.set()
            await may_end.wait()
        return text_reply(str(len(data)))

    def post(target: str, size: int) -> bytes:
        head = served.head(f"POST {target} HTTP/1.1", f"Content-Length: {size}")
        return head + bytes(size)

    async def end() -> None:
        may_end.set()

    with Served(form, forms=Budget(100, wait_s_max=0.1)) as served:
        with served.connect() as first:
            first.sendall(post("/first", 60))
            served.do(came.wait())
            small, refused = served.ask(post("/", 40)), served.ask(post("/", 41))
            served.do(end())
            assert read_answer(first).body == b"60"
        full = served.ask(post("/", 100))

    assert (small.body, refused.status, full.body) == (b"40", 503, b"100")
    assert refused.headers["retry-after"] == "5"


def test_a_client_that_waits_is_told_to_go_on_only_when_its_body_is_wanted(served: Served) -> None:
    """§1.2: a refused upload sends no body."""
    expect = "Expect: 100-continue"
    with served.connect() as connection:
        connection.sendall(served.head("PUT /upload HTTP/1.1", "Content-Length: 3", expect))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        assert read_answer(connection).body == b"3"
    with served.connect() as connection:
        began_s = time.monotonic()
        connection.sendall(served.head("PUT /refused HTTP/1.1", "Content-Length: 3", expect))
        answer = read_answer(connection)
        assert answer.status == 403
        assert answer.headers["connection"] == "close"
        assert closes(connection)
        assert time.monotonic() - began_s < 30


def test_another_expectation_is_passed_over(served: Served) -> None:
    """RFC 9110 leaves that open; clients of S3 send odd ones."""
    answer = served.ask(
        served.head("PUT /upload HTTP/1.1", "Content-Length: 3", "Expect: more") + b"abc"
    )

    assert answer.status == 200


def test_a_client_that_leaves_in_the_middle_is_noticed(served: Served) -> None:
    served.outcomes.clear()
    with served.connect() as connection:
        connection.sendall(served.head("PUT /upload HTTP/1.1", "Content-Length: 10") + b"abc")
    deadline_s = time.monotonic() + 60
    while not served.outcomes and time.monotonic() < deadline_s:
        time.sleep(0.02)

    assert [outcome.status for outcome in served.outcomes] == [499]
    assert served.server.connections.count == 0


def test_drips_that_take_every_place_are_cut_by_their_time_and_leave_room() -> None:
    """§8: while they are all there a fresh client is sent away; then it is served."""
    limits = Limits(connections=64, connections_of_one=1000, head_s=1.0)
    with Served(handler, limits) as besieged:
        drips = [besieged.connect() for _ in range(64)]
        for connection in drips:
            connection.sendall(b"GET / HT")
        statuses = []
        deadline_s = time.monotonic() + 60
        while 200 not in statuses and time.monotonic() < deadline_s:
            statuses.append(besieged.get("/").status)
        for connection in drips:
            assert isinstance(read_answer(connection), Answer)
            connection.close()

        assert set(statuses[:-1]) <= {503} and statuses[-1] == 200


def test_faces_share_a_listener_by_the_beginning_of_the_path() -> None:
    async def named(request: Request) -> Reply:
        return text_reply(request.note.face)

    faces = {"/webhdfs/": ("webhdfs", named), "/healthz": ("health", named)}
    with Served(Faces(faces)) as running:
        assert running.get("/webhdfs/v1/").body == b"webhdfs"
        assert running.get("/healthz").body == b"health"
        assert running.get("/healthz/x").status == 404
        assert running.get("/webhdfs").status == 404
    with Served(Faces({**faces, "/": ("pages", named)})) as running:
        assert running.get("/webhdfs").body == b"pages"


def test_a_stop_lets_what_is_under_way_end_and_ends_what_is_idle() -> None:
    with Served(handler, Limits(stop_s=10)) as stopping:
        idle, busy = stopping.connect(), stopping.connect()
        busy.sendall(stopping.head("PUT /upload HTTP/1.1", "Content-Length: 4") + b"12")
        idle.sendall(stopping.head("GET / HTTP/1.1"))
        assert read_answer(idle).status == 200
        closing = asyncio.run_coroutine_threadsafe(stopping.server.close(), stopping._loop)
        assert closes(idle)
        with pytest.raises(ConnectionRefusedError):
            stopping.connect()
        busy.sendall(b"34")
        answer = read_answer(busy)
        closing.result(30)

        assert (answer.status, answer.body) == (200, b"4")
        assert answer.headers["connection"] == "close"
        assert closes(busy)
        busy.close()
        idle.close()


def test_a_stop_cuts_what_does_not_end() -> None:
    with Served(handler, Limits(stop_s=0.3)) as stopping:
        with stopping.connect() as busy:
            busy.sendall(stopping.head("PUT /upload HTTP/1.1", "Content-Length: 4") + b"12")
            began_s = time.monotonic()
            stopping.do(stopping.server.close())
            assert time.monotonic() - began_s < 30
            assert closes(busy)
