"""One request, as a handler sees it: strict values from the head, and the body when it is wanted.

A handler reads the body by `body` (a form: small, in time) or by `pieces` (a file). Before either,
`proceed` tells a client that waits for `100 Continue` to send it: a handler that refuses first
costs its client no upload.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mrstream.web.http.budget import Budget, Share
from mrstream.web.http.head import Headers, Query, Refused, Target
from mrstream.web.http.limits import Limits, Pace

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

    from mrstream.web.http.access import Principal

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class Note:
    """What the audit log says of a request beside its outcome; whoever knows fills it in."""

    face: str = ""
    operation: str = ""
    key: str = ""
    user: str = ""
    paths: list[str] = field(default_factory=list)


class ClientGone(Exception):
    """The client went away, or was so slow that it was sent away; there is nobody to answer."""


class Request:
    """One request. `target`, `headers` and `query` are checked; the body is as it was sent."""

    def __init__(
        self,
        raw: BaseRequest,
        target: Target,
        headers: Headers,
        *,
        limits: Limits,
        forms: Budget,
        id: str,
        peer: str,
        address: str,
        host: str,
        is_secure: bool,
        scheme: str,
    ) -> None:
        self._raw = raw
        self._limits = limits
        self._forms = forms
        self._share = Share()
        self.id = id
        self.method = raw.method
        self.target = target
        self.headers = headers
        self.peer = peer
        """The client's address; behind a balancer, what that says."""
        self.address = address
        """Where the connection comes from."""
        self.host = host
        """The authority by which the client calls us, checked to be ours."""
        self.is_secure = is_secure
        """Did it come by TLS, up to here?"""
        self.scheme = scheme
        """`http` or `https`, as the client sees it."""
        self.principal: Principal | None = None
        """Who proved to be there, once a face has asked `access`."""
        self.note = Note()
        self.body_bytes = 0
        """How many bytes of the body were read."""
        self._is_told_to_continue = False

    @property
    def path(self) -> str:
        """The path, decoded once."""
        return self.target.path

    @property
    def query(self) -> Query:
        """The words after `?`."""
        return self.target.query

    @property
    def length(self) -> int | None:
        """`Content-Length`; None: the body comes in chunks, or there is none."""
        value = self.headers.get("content-length")
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()) or len(value) > 18:
            raise Refused(400, f"Content-Length is {value[:40]!r}, not a number", close=True)
        return int(value)

    @property
    def has_body(self) -> bool:
        """Does a body come with it, of at least one byte or of unknown length?"""
        return bool(self.length) or "transfer-encoding" in self.headers

    # --- the body

    def proceed(self) -> None:
        """Let a client that asked (`Expect: 100-continue`) send its body."""
        if self._is_told_to_continue or not self._waits:
            return
        transport = self._raw.transport
        if transport is not None and self._raw.version >= (1, 1) and self.has_body:
            transport.write(CONTINUE)
        self._is_told_to_continue = True

    @property
    def waits_to_send(self) -> bool:
        """Does the client wait for `proceed` before it sends its body?"""
        return self._waits and not self._is_told_to_continue

    @property
    def _waits(self) -> bool:
        # What else a client may expect is passed over, as RFC 9110 (10.1.1) leaves open.
        return self.headers.get("expect", "").lower() == "100-continue"

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises `ClientGone` if it ends before its end or comes too
        slowly."""
        self.proceed()
        content = self._raw.content
        pace = Pace(self._limits)
        while not content.at_eof():
            began_s = time.monotonic()
            try:
                async with asyncio.timeout(pace.patience_s):
                    piece = await content.readany()
            except TimeoutError:
                self.cut()
                raise ClientGone("the body came too slowly") from None
            except Exception as error:  # what aiohttp raises for a body that is none differs
                raise ClientGone(f"the body ended before its end: {type(error).__name__}") from None
            if not pace.moved(len(piece), time.monotonic() - began_s):
                self.cut()
                raise ClientGone("the body came too slowly")
            self.body_bytes += len(piece)
            if piece:
                yield piece

    async def body(self, bytes_max: int = 0) -> bytes:
        """Return the whole of a small body; 413 if it is larger than `bytes_max` (the limit of
        forms if 0), 408 if it takes too long, 503 if those of others hold all memory for forms."""
        most = bytes_max or self._limits.form_bytes
        too_large = Refused(413, f"the body may have {most} bytes at most", close=True)
        if (self.length or 0) > most:
            raise too_large
        await self._share.move(self._forms, self.length if self.length is not None else most)
        whole = bytearray()
        try:
            async with asyncio.timeout(self._limits.form_s):
                async for piece in self.pieces():
                    whole += piece
                    if len(whole) > most:
                        raise too_large
        except TimeoutError:
            raise Refused(
                408, f"the body took longer than {self._limits.form_s:g} s", close=True
            ) from None
        return bytes(whole)

    def let_go(self) -> None:
        """The request is over: hold no memory for its body."""
        self._share.end()

    def cut(self) -> None:
        """End the connection now, so that nobody takes what was sent for a whole answer."""
        if self._raw.transport is not None:
            self._raw.transport.abort()
