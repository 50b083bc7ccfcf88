"""`mrstream web`: the pages on a user's own machine, for this user alone.

Listens on 127.0.0.1 only. The way in is a link that works once; what a browser is then given ends
with this process. Holds the user's own identity: what the pages may do is what the user may do.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from mrstream.cluster.errors import UserError
from mrstream.cluster.user import user_name
from mrstream.view.source import Source
from mrstream.view.watch import Watch
from mrstream.web.http.reply import Reply
from mrstream.web.http.request import Request
from mrstream.web.http.server import Server
from mrstream.web.pages.door import Door
from mrstream.web.pages.session import OneTimeLink, Sessions
from mrstream.web.pages.visit import Visitor

ADDRESS = "127.0.0.1"
NAME = "localhost"


@dataclass(frozen=True, slots=True)
class Opened:
    """Pages that are being served: where, and the way in."""

    port: int
    link: str


class LocalPages:
    """The pages of one source for the user of this machine."""

    def __init__(self, source: Source, *, read_only: bool = False) -> None:
        self._source = source
        self._read_only = read_only
        self._secret = secrets.token_bytes(32)
        self._server: Server | None = None
        self._door: Door | None = None

    async def open(self, port: int = 0) -> Opened:
        """Begin to listen; return the link that lets one browser in."""
        link = OneTimeLink(time.time())
        visitor = Visitor(user_name(), may_change=not self._read_only)

        async def spend(word: str) -> Visitor | None:
            return visitor if link.spend(word, time.time()) else None

        async def handler(request: Request) -> Reply:
            assert self._door is not None
            return await self._door(request)

        server = self._server = Server(handler)
        try:
            bound = await server.listen(ADDRESS, port, [NAME])
        except OSError as error:
            raise UserError(
                f"port {port} of {ADDRESS} cannot be used: {error.strerror or error}; "
                "--port 0 finds one that is free"
            ) from None
        # Cookies know no ports: the name keeps two of these apart in one browser.
        sessions = Sessions(self._secret, f"mrstream-{bound}", secure=False)
        self._door = Door(Watch(self._source), sessions, spend, read_only=self._read_only)
        return Opened(bound, f"http://{ADDRESS}:{bound}/enter?link={link.word}")

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
        if self._door is not None:
            self._door.close()
        self._source.close()


async def serve(source: Source, *, port: int, read_only: bool, tell: Callable[[str], None]) -> None:
    """Serve until somebody interrupts; `tell` is given the link when there is one."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    pages = LocalPages(source, read_only=read_only)
    try:
        tell((await pages.open(port)).link)
        await ending.wait()
    finally:
        # A second interrupt ends what still hangs.
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)
        await pages.close()
