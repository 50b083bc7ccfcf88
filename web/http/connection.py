"""One connection: what is limited before there is a request (a thin layer on aiohttp's protocol).

Counts connections, gives a request's head its time, and answers what is not HTTP with one line.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from aiohttp.web import BaseRequest, RequestHandler, Response, Server, StreamResponse

from mrstream.web.http.limits import KIB, Limits

log = logging.getLogger(__name__)

READ_BYTES = 128 * KIB
"""A body that nobody reads yet fills twice this, then TCP pushes back."""
_SHORT = (
    "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n"
    "Connection: close\r\n{more}\r\n{words}"
)
REASONS = {408: "Request Timeout", 503: "Service Unavailable"}


class Connections:
    """How many connections there are, in all and from each address."""

    def __init__(self, limits: Limits, is_exempt: Callable[[str], bool]) -> None:
        self.limits = limits
        self._is_exempt = is_exempt
        self._by_address: Counter[str] = Counter()
        self.count = 0
        self.refused_count = 0

    def admit(self, address: str) -> bool:
        """May one more from there come in?"""
        is_over = self.count >= self.limits.connections or (
            self._by_address[address] >= self.limits.connections_of_one
            and not self._is_exempt(address)
        )
        if is_over:
            self.refused_count += 1
            return False
        self.count += 1
        self._by_address[address] += 1
        return True

    def left(self, address: str) -> None:
        """One that was admitted has ended."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Factory(Server):
    """Makes a `Connection` for each that comes."""

    def __init__(self, handler: Any, connections: Connections) -> None:
        super().__init__(handler)
        self._counted = connections

    def __call__(self) -> RequestHandler:
        return Connection(self, self._counted, self._loop)

    def close_idle(self) -> None:
        """End connections that have no request under way."""
        for connection in self.connections:
            if isinstance(connection, Connection):
                connection.close_if_idle()


class Connection(RequestHandler):
    __slots__ = ("_address", "_counted", "_head_timer")

    def __init__(
        self, factory: Factory, connections: Connections, loop: asyncio.AbstractEventLoop
    ) -> None:
        limits = connections.limits
        super().__init__(
            factory,
            loop=loop,
            keepalive_timeout=limits.idle_s,
            access_log=cast(Any, None),
            max_line_size=limits.line_bytes,
            # One more, so that the parser's complaint says by its limit which of the two it was.
            max_field_size=limits.header_bytes + 1,
            max_headers=limits.headers,
            lingering_time=limits.linger_s,
            read_bufsize=READ_BYTES,
            # A body is stored as it was sent; unpacking it would store others, and is a bomb.
            auto_decompress=False,
        )
        self._counted = connections
        self._address: str | None = None
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        address = address_of(transport)
        if not self._counted.admit(address):
            self._force_close = True
            line = _short(503, "too many connections; try again later", "Retry-After: 5\r\n")
            real = cast(asyncio.Transport, transport)
            real.write(line)
            real.close()
            return
        self._address = address
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_came()
        if self._address is not None:
            self._counted.left(self._address)
            self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_in_request() and self._head_timer is None:
            # The first byte of a head: the rest has to follow in time (slow loris).
            self._head_timer = self._loop.call_later(
                self._counted.limits.head_s, self._head_is_late
            )
        super().data_received(data)
        if self._is_in_request():
            self._head_came()

    def _is_in_request(self) -> bool:
        return bool(self._messages) or self._request_in_progress or self._force_close

    def close_if_idle(self) -> None:
        """End it, if nobody waits for an answer on it."""
        if not self._is_in_request():
            self.force_close()

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        transport = self.transport
        if transport is not None and not self._is_in_request():
            transport.write(_short(408, "the head of the request took too long"))
            self._force_close = True
            transport.close()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer what could not be read as a request, or whose answer could not be sent; the words
        are ours, never the library's."""
        if status >= 500:
            log.error("from=%s an answer failed: bug", self._address, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun and cannot be ended")
        if status >= 500:
            words = "an error of ours; the gateway's log has more"
        else:
            status, words = _read_error(exc, self._counted.limits)
        reply = Response(status=status, text=f"{words}\n", headers={"Server": "mrstream"})
        reply.force_close()
        return reply


def address_of(transport: asyncio.BaseTransport) -> str:
    """The address at the other end."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else ""


def _read_error(error: BaseException | None, limits: Limits) -> tuple[int, str]:
    if isinstance(error, LineTooLong):
        if error.args[1] == limits.line_bytes:
            return 414, f"the request line may have {limits.line_bytes} bytes at most"
        return 431, f"a header may have {limits.header_bytes} bytes at most"
    if "Too many headers" in str(error):
        return 431, f"more than {limits.headers} headers"
    if isinstance(error, BadHttpMethod):
        return 400, "this is not a request of HTTP"
    return 400, "this is not a request that can be understood"


def _short(status: int, words: str, more: str = "") -> bytes:
    text = _SHORT.format(
        status=status,
        reason=REASONS[status],
        length=len(words) + 1,
        more=more,
        words=f"{words}\n",
    )
    return text.encode("ascii")
