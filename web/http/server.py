"""A listening server: from a connection to a handler's `Reply`, under all limits.

    async def handler(request: Request) -> Reply: ...

    server = Server(handler)
    port = await server.listen("127.0.0.1", 0, ["localhost"])
    ...
    await server.close()

A handler raises `Refused` for what it will not do, and any `ClusterError`; anything else is a bug
of ours: it is logged with the request's id, which is all that the client is told. An answer whose
body fails half-way is cut off, never ended as if it were whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ipaddress
import logging
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from aiohttp.web import BaseRequest, Response, StreamResponse

from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.web.http.budget import Budget
from mrstream.web.http.connection import Connections, Factory, address_of
from mrstream.web.http.head import Refused, parse_headers, parse_target
from mrstream.web.http.hosts import Hosts, canonical
from mrstream.web.http.limits import KIB, MIB, Limits, Pace
from mrstream.web.http.reply import Reply, Stream, text_reply
from mrstream.web.http.request import ClientGone, Note, Request

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Reply]]
SLICE_BYTES = 64 * KIB
"""Sent at a time, so that how fast a client takes it can be seen."""
FORMS_BYTES = 32 * MIB
PACK_BYTES_MIN = 1 * KIB
METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"})
PROTECTION = (
    ("Server", "mrstream"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
)
"""For browsers that show pages of ours."""
BARE = PROTECTION[:2]
"""For programs: what is stored may say how it is kept and shown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request that is over, for the audit log and the figures."""

    at_s: float
    id: str
    peer: str
    method: str
    agent: str
    note: Note
    status: int
    """499 where the client left before it had its answer."""
    bytes_in: int
    bytes_out: int
    seconds: float


class Server:
    """Listeners that share a handler and limits."""

    def __init__(
        self,
        handler: Handler,
        *,
        limits: Limits | None = None,
        names: Iterable[str] = (),
        behind: Collection[str] = (),
        is_exempt: Callable[[str], bool] = lambda address: False,
        observe: Callable[[Outcome], None] = lambda outcome: None,
        names_above: str = "",
        protection: Iterable[tuple[str, str]] = PROTECTION,
        connections: Connections | None = None,
        forms: Budget | None = None,
    ) -> None:
        """`names`: further ones in `Host`, on any port, and all below `names_above`; `behind`:
        addresses of balancers, whose word on the client's address is taken; `is_exempt`: no limit
        for one address; `protection`: headers of every answer that does not say otherwise;
        `connections`: those of another server, that are counted together with these; `forms`:
        memory for bodies that are no files."""
        self._handler = handler
        self.limits = limits or Limits()
        self.hosts = Hosts(names, names_above)
        self._protection = tuple(protection)
        self._behind = frozenset(canonical(address) for address in behind)
        self._observe = observe
        self.connections = connections or Connections(
            self.limits, lambda address: address in self._behind or is_exempt(address)
        )
        self._forms = forms or Budget(FORMS_BYTES)
        self._factory: Factory | None = None
        self._listeners: list[asyncio.Server] = []
        self._underway: set[asyncio.Task[object]] = set()
        self._is_stopping = False

    async def listen(
        self,
        address: str,
        port: int,
        names: Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Listen there too; return the port. `names` are what clients may call this listener, the
        address apart."""
        if ipaddress.ip_address(address).is_unspecified:
            raise UserError(f"{address} is every interface: name the addresses to listen on")
        loop = asyncio.get_running_loop()
        if self._factory is None:
            self._factory = Factory(self._serve, self.connections)
        listener = await loop.create_server(
            self._factory,
            address,
            port,
            ssl=tls,
            ssl_handshake_timeout=self.limits.handshake_s if tls else None,
            backlog=256,
        )
        self._listeners.append(listener)
        bound: int = listener.sockets[0].getsockname()[1]
        for name in (address, *names):
            self.hosts.add(name, bound)
        return bound

    async def close(self) -> None:
        """Take no more connections, let requests under way end, then cut what is left."""
        for listener in self._listeners:
            listener.close()
        self._is_stopping = True
        if self._factory is not None:
            self._factory.close_idle()
            if self._underway:
                await asyncio.wait(self._underway, timeout=self.limits.stop_s)
            await self._factory.shutdown(0.1)
        self._listeners.clear()

    # --- one request

    async def _serve(self, raw: BaseRequest) -> StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._underway.add(task)
        task.add_done_callback(self._underway.discard)
        began_s, at_s = time.monotonic(), time.time()
        id = secrets.token_hex(8)
        transport = raw.transport
        address = address_of(transport) if transport is not None else ""
        request: Request | None = None
        status, sent = 499, [0]
        reply: Reply | None = None
        try:
            try:
                request = self._read(raw, id, address)
                reply = await self._answer(request)
            except Refused as refused:
                reply = refusal_reply(refused)
            except ClientGone as gone:
                log.info("request=%s from=%s gone: %s", id, address, gone)
                raise ConnectionResetError from None
            status = reply.status
            try:
                return await self._send(raw, reply, id, request, sent)
            except ConnectionError:
                status = 499
                raise
            except Exception:
                status = 500
                raise
        finally:
            if reply is not None and isinstance(reply.body, Stream):
                await _closed(reply.body)
            if reply is not None and reply.over is not None:
                reply.over()
            if request is not None:
                request.let_go()
            self._observe(
                Outcome(
                    at_s,
                    id,
                    request.peer if request else address,
                    raw.method,
                    raw.headers.get("User-Agent", "")[:80],
                    request.note if request else Note(),
                    status,
                    request.body_bytes if request else 0,
                    sent[0],
                    time.monotonic() - began_s,
                )
            )

    def _read(self, raw: BaseRequest, id: str, address: str) -> Request:
        """Return the request, if its head is in order; `Host` is looked at before anything."""
        headers = parse_headers(raw.raw_headers, self.limits.headers)
        is_secure = bool(raw.transport and raw.transport.get_extra_info("sslcontext"))
        host = self.hosts.check(headers.all("host"), 443 if is_secure else 80)
        if "content-length" in headers and "transfer-encoding" in headers:
            raise Refused(
                400, "Content-Length and Transfer-Encoding exclude each other", close=True
            )
        if raw.method not in METHODS:
            allow = ("Allow", ", ".join(sorted(METHODS)))
            raise Refused(405, f"{raw.method} is not done here", [allow], close=True)
        target = parse_target(raw.raw_path.encode("utf-8", "surrogateescape"))
        peer = address
        if address in self._behind and headers.all("x-forwarded-for"):
            # Only the last entry is the balancer's own; those before, anybody can write.
            last = headers.all("x-forwarded-for")[-1].rpartition(",")[2].strip()
            with contextlib.suppress(ValueError):
                peer = str(ipaddress.ip_address(last))
        forwarded = headers.get("x-forwarded-proto") if address in self._behind else None
        return Request(
            raw,
            target,
            headers,
            limits=self.limits,
            forms=self._forms,
            id=id,
            peer=peer,
            address=address,
            host=host,
            is_secure=is_secure,
            scheme="https" if is_secure or forwarded == "https" else "http",
        )

    async def _answer(self, request: Request) -> Reply:
        try:
            reply = await self._handler(request)
        except (Refused, ClientGone, ConnectionError, asyncio.CancelledError):
            raise
        except ClusterError as error:
            reply = error_reply(error)
        except Exception:
            log.exception("request=%s %s: bug", request.id, request.method)
            reply = text_reply(f"an error of ours: request {request.id}\n", 500)
        return reply

    async def _send(
        self, raw: BaseRequest, reply: Reply, id: str, request: Request | None, sent: list[int]
    ) -> StreamResponse:
        headers = dict(self._protection)
        headers["X-Request-Id"] = id
        body = reply.body
        for name, value in reply.headers:
            headers[name] = _as_bytes_were(value)
        if isinstance(body, bytes) and reply.pack and len(body) >= PACK_BYTES_MIN:
            headers["Vary"] = "Accept-Encoding"
            if request is not None and "gzip" in request.headers.get("accept-encoding", ""):
                body = gzip.compress(body, 5, mtime=0)
                headers["Content-Encoding"] = "gzip"
        cookies = [value for name, value in reply.headers if name == "Set-Cookie"]
        headers.pop("Set-Cookie", None)
        response: StreamResponse
        if reply.length is not None and raw.method == "HEAD":
            response = StreamResponse(status=reply.status, headers=headers)
            response.content_length = reply.length
        elif isinstance(body, bytes) and (len(body) <= SLICE_BYTES or raw.method == "HEAD"):
            response = Response(status=reply.status, headers=headers, body=body)
        else:
            if isinstance(body, bytes):
                # As a stream: whole, it would be copied into the transport's memory, and a client
                # that takes it slowly, or never, would not be seen.
                body = Stream(_whole(body), len(body))
            response = StreamResponse(status=reply.status, headers=headers)
            response.content_length = body.length
            if body.length is None and raw.version >= (1, 1):
                response.enable_chunked_encoding()
        for cookie in cookies:
            response.headers.add("Set-Cookie", cookie)
        if reply.close or self._is_stopping or (request is not None and request.waits_to_send):
            response.force_close()
        if isinstance(body, Stream):
            await self._pour(raw, response, body, sent)
        else:
            sent[0] = 0 if raw.method == "HEAD" else len(body)
        return response

    async def _pour(
        self, raw: BaseRequest, response: StreamResponse, body: Stream, sent: list[int]
    ) -> None:
        """Send a body while it is made; cut the connection if it does not come to its end."""
        pace = Pace(self.limits)
        try:
            await response.prepare(raw)
            if raw.method != "HEAD":
                async for piece in body.pieces:
                    await self._push(response, piece, pace)
                    sent[0] += len(piece)
                if body.length is not None and sent[0] != body.length:
                    raise ConnectionResetError(f"{sent[0]} bytes of {body.length} were there")
            await response.write_eof()
        except BaseException as error:
            if not isinstance(error, ConnectionError | asyncio.CancelledError | ClientGone):
                level = logging.WARNING if isinstance(error, ClusterError) else logging.ERROR
                log.log(level, "an answer was cut off: %s", error, exc_info=level > logging.WARNING)
            if raw.transport is not None:
                raw.transport.abort()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise ConnectionResetError("the answer was cut off") from None

    async def _push(self, response: StreamResponse, piece: bytes, pace: Pace) -> None:
        view = memoryview(piece)
        for start in range(0, len(view), SLICE_BYTES):
            part = view[start : start + SLICE_BYTES]
            began_s = time.monotonic()
            try:
                async with asyncio.timeout(pace.patience_s):
                    await response.write(part)
            except TimeoutError:
                raise ClientGone("the answer was taken too slowly") from None
            if not pace.moved(len(part), time.monotonic() - began_s):
                raise ClientGone("the answer was taken too slowly")


def _as_bytes_were(value: str) -> str:
    """A header is text of Latin-1 here, one sign a byte. It is sent as UTF-8: what a client sent as
    UTF-8 and asks for again is to have the same bytes."""
    if value.isascii():
        return value
    with contextlib.suppress(UnicodeDecodeError):
        return value.encode("latin-1").decode()
    return value


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _closed(stream: Stream) -> None:
    """Let a stream release what it holds, also one that was never begun."""
    close = getattr(stream.pieces, "aclose", None)
    if close is not None:
        await close()


def refusal_reply(refused: Refused) -> Reply:
    """The answer to what is refused, in plain words."""
    reply = text_reply(f"{refused.words}\n", refused.status, refused.headers)
    return Reply(reply.status, reply.body, reply.headers, close=refused.close)


def error_reply(error: ClusterError) -> Reply:
    """The answer to an error of the cluster that no face has put into its own words."""
    if isinstance(error, Unavailable):
        return text_reply(f"{error}\n", 503, [("Retry-After", "5")])
    return text_reply(f"{error}\n", 400 if isinstance(error, UserError) else 500)
