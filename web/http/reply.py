"""Answers as plain values: a handler returns one, the server sends it. Without IO.

    json_reply({"boolean": True})      text_reply("ok\\n")       html_reply(page, pack=True)
    redirect_reply(303, "/")           stream_reply(pieces, length=size, type="text/csv")

What a client could use against another never leaves: a header with CR, LF, NUL or a character
beyond Latin-1 is refused here, whoever made it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from mrstream.web.http.ranges import NotSatisfiable, Span

_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Stream:
    """A body that is made while it is sent.

    Yields at least one byte a piece and `length` bytes in all; an end before that, or any error,
    cuts the connection, so that nobody takes a part for the whole. `length` None: sent in chunks.
    """

    pieces: AsyncIterator[bytes]
    length: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. The server adds `Content-Length`, `Date`, `X-Request-Id` and the headers that
    protect browsers, each unless it is here already."""

    status: int
    body: bytes | Stream = b""
    headers: tuple[tuple[str, str], ...] = ()
    pack: bool = False
    """May be compressed for a client that takes it; only where the body holds no secret beside
    what a stranger can put there."""
    close: bool = False
    """The connection ends with it, for instance since the body of the request was not wanted."""
    length: int | None = field(default=None)
    """`Content-Length` of an answer to HEAD, whose body was never made."""
    over: Callable[[], None] | None = field(default=None, compare=False)
    """Called when it was sent, or could not be: what the body held is held no more."""

    def __post_init__(self) -> None:
        for name, value in self.headers:
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ValueError(f"header {name!r} cannot have the value {value[:80]!r}")

    def with_headers(self, *headers: tuple[str, str]) -> Reply:
        """The same with more headers."""
        return replace(self, headers=(*self.headers, *headers))


def text_reply(text: str, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """A few words."""
    kind = ("Content-Type", "text/plain; charset=utf-8")
    return Reply(status, text.encode("utf-8", "backslashreplace"), (kind, *headers))


def json_reply(value: Any, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """A value as JSON, all of it ASCII."""
    text = json.dumps(value, separators=(",", ":"))
    return Reply(status, text.encode("ascii"), (("Content-Type", "application/json"), *headers))


def xml_reply(text: str, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """A document as XML, made by somebody who escapes."""
    return Reply(status, text.encode(), (("Content-Type", "application/xml"), *headers))


def html_reply(
    page: str | bytes,
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
    *,
    pack: bool = False,
) -> Reply:
    """A page, made by somebody who escapes."""
    body = page.encode("utf-8", "replace") if isinstance(page, str) else page
    return Reply(status, body, (("Content-Type", "text/html; charset=utf-8"), *headers), pack)


def redirect_reply(status: int, location: str, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """Look there instead; `location` is a URL or an absolute path, encoded already."""
    return Reply(status, b"", (("Location", location), *headers))


def empty_reply(status: int = 204, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """No body at all."""
    return Reply(status, b"", tuple(headers))


def stream_reply(
    pieces: AsyncIterator[bytes],
    length: int | None,
    *,
    type: str = OCTETS,
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
) -> Reply:
    """A body that is made while it is sent."""
    return Reply(status, Stream(pieces, length), (("Content-Type", type), *headers))


def range_headers(span: Span | None) -> tuple[int, tuple[tuple[str, str], ...]]:
    """The status and headers of an answer with all of a file, or with a part of it."""
    accepts = ("Accept-Ranges", "bytes")
    if span is None:
        return 200, (accepts,)
    return 206, (accepts, ("Content-Range", span.content_range()))


def not_satisfiable_reply(error: NotSatisfiable) -> Reply:
    """No byte of the file is in the range."""
    return text_reply(f"{error}\n", 416, [("Content-Range", error.content_range())])


def attachment(name: str) -> tuple[str, str]:
    """The header under which a browser saves a file by its name, and never shows it (RFC 6266)."""
    plain = "".join(
        sign if sign.isascii() and sign.isprintable() and sign not in '"\\%/' else "_"
        for sign in name
    )
    encoded = quote(name.encode("utf-8", "replace"), safe="")
    return "Content-Disposition", f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
