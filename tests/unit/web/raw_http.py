"""A server in a thread, and a client that sends exactly the bytes it is given."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from mrstream.cluster.wire.network import new_event_loop
from mrstream.web.http.limits import Limits
from mrstream.web.http.reply import Reply
from mrstream.web.http.request import Request
from mrstream.web.http.server import Outcome, Server


class Served:
    """A `Server` on 127.0.0.1 that lives in its own thread while the context is open."""

    def __init__(
        self,
        handler: Callable[[Request], Awaitable[Reply]],
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._handler = handler
        self._limits = limits
        self._tls = tls
        self._options = options
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Served:
        self._thread.start()
        self.port = self.do(self._listen())
        return self

    def __exit__(self, *exc: object) -> None:
        self.do(self.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> int:
        self.server = Server(
            self._handler, limits=self._limits, observe=self.outcomes.append, **self._options
        )
        return await self.server.listen("127.0.0.1", 0, ["localhost"], self._tls)

    def do(self, work: Any) -> Any:
        """Have something done by the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def connect(self) -> socket.socket:
        """A connection of one's own."""
        made = socket.create_connection(("127.0.0.1", self.port), 60)
        made.settimeout(60)
        return made

    def head(self, line: str, *headers: str) -> bytes:
        """A request's head with the right Host."""
        lines = [line, f"Host: 127.0.0.1:{self.port}", *headers, "", ""]
        return "\r\n".join(lines).encode("latin-1")

    def ask(self, message: bytes) -> Answer:
        """Send bytes on a new connection and read until the server closes it or has answered."""
        with self.connect() as connection:
            connection.sendall(message)
            return read_answer(connection)

    def get(self, target: str, *headers: str) -> Answer:
        """A plain GET."""
        return self.ask(self.head(f"GET {target} HTTP/1.1", "Connection: close", *headers))


class Answer:
    """What came back."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        head, _, self.body = raw.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(line.split(" ")[1]) if line else 0
        self.headers = {
            name.lower(): value.strip()
            for name, _, value in (item.partition(":") for item in lines)
        }


def read_answer(connection: socket.socket) -> Answer:
    """Read one whole answer, or as much of it as comes before the end of the connection."""
    raw = b""
    while True:
        answer = Answer(raw) if b"\r\n\r\n" in raw else None
        if answer is not None and answer.status != 100:
            length = answer.headers.get("content-length")
            if length is not None and len(answer.body) >= int(length):
                return answer
        try:
            piece = connection.recv(1 << 16)
        except ConnectionResetError:
            piece = b""
        if not piece:
            return Answer(raw)
        raw += piece
