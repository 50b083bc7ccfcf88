"""The door of the pages: who is there, where they want to go, and what they are refused.

Every request passes here in the same order: files of style and script are anyone's; then the cookie
says who is there; a POST must come from a page of ours, and is refused as a whole where nothing may
be changed. Pages are made in threads, since they ask masters; this module alone knows HTTP.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from mrstream.cluster.errors import ClusterError, Corrupt, Unavailable
from mrstream.view.source import Source
from mrstream.view.watch import Watch
from mrstream.web.http.budget import Budget
from mrstream.web.http.head import Refused, parse_query
from mrstream.web.http.reply import (
    Reply,
    attachment,
    empty_reply,
    html_reply,
    redirect_reply,
    stream_reply,
    text_reply,
)
from mrstream.web.http.request import Request
from mrstream.web.http.streams import READER_BYTES, WRITER_BYTES
from mrstream.web.http.tokens import digest
from mrstream.web.pages import assets, attempt, entrance, forms, layout, routes
from mrstream.web.pages.markup import element, url, visible
from mrstream.web.pages.multipart import boundary_of
from mrstream.web.pages.receive import Receiver
from mrstream.web.pages.session import Sessions, cookies_of
from mrstream.web.pages.visit import NoSuchPage, OutOfBounds, Page, Visit, Visitor

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
# A page with `no-referrer` would send `Origin: null` with its own forms.
_HEADERS = (("Content-Security-Policy", POLICY), ("Referrer-Policy", "same-origin"))
_SANDBOX = ("Content-Security-Policy", "sandbox")
THEME_COOKIE = "mrstream-theme"
THEME_S = 365 * 24 * 3600
PIECE_BYTES = 512 * 1024
MEMORY_BYTES = 256 << 20
THREADS_MAX = 32
DRAIN_BYTES_MAX = 32 << 20
NOTED = ("path", "into", "value", "job", "attempt")
"""Words of a form that say what it is about, for the audit log."""
PLACES = frozenset(path.strip("/") for _, path in layout.PAGES) | frozenset(
    ("enter", "download", "act", "upload", "login", "leave", "theme")
)
"""What can be done here, as the audit log and the figures call it."""

T = TypeVar("T")
Login = Callable[[Request, str, str], Awaitable[Visitor | None]]
Link = Callable[[str], Awaitable[Visitor | None]]


@dataclass(frozen=True, slots=True)
class Door:
    """The pages of one cluster. `link` gives who holds a one-time link, `login` who has a key (by
    id and secret), `key_name` what a key is called (nothing: it is one no more); `source_of` a
    source that acts for a user."""

    watch: Watch
    sessions: Sessions
    link: Link
    login: Login | None = None
    source_of: Callable[[str], Source] | None = None
    read_only: bool = False
    key_name: Callable[[str], Awaitable[str]] | None = None
    budget: Budget = field(default_factory=lambda: Budget(MEMORY_BYTES))
    """Of what files on their way hold; a gateway has one for all its faces."""
    threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(THREADS_MAX, "pages")
    )

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[..., T], *words: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *words)

    async def __call__(self, request: Request) -> Reply:
        name = assets.found(request.path)
        if name is not None and request.method in ("GET", "HEAD"):
            kind = ("Content-Type", assets.KINDS[name])
            reply = Reply(200, assets.content(name), (kind,), pack=True)
            return reply.with_headers(("Cache-Control", assets.FOR_EVER))
        cookies = cookies_of(request.headers.all("cookie"))
        visitor = self.sessions.visitor(cookies, time.time())
        if visitor is not None and visitor.key and self.key_name is not None:
            request.note.key = await self.key_name(visitor.key)
            visitor = visitor if request.note.key else None
        if visitor is not None:
            request.note.user = visitor.user
            if self.read_only and visitor.may_change:
                visitor = replace(visitor, may_change=False)
        _note(request)
        if request.method in ("GET", "HEAD"):
            return await self._look(request, visitor, cookies)
        if request.method == "POST":
            return await self._post(request, visitor, cookies)
        raise Refused(405, f"{request.method} is not done by the pages", [("Allow", "GET, POST")])

    # --- looking

    async def _look(
        self, request: Request, visitor: Visitor | None, cookies: dict[str, str]
    ) -> Reply:
        if request.path == "/enter":
            return await self._enter(request)
        if visitor is None:
            return self._outside(401)
        visit = self._visit(request, visitor, cookies)
        if request.path == "/":
            first = "/jobs" if visitor.sees_all else url(f"/files{visitor.paths[0]}")
            return redirect_reply(303, first)
        if request.path.startswith("/download/"):
            return await self._download(visit, request.path.removeprefix("/download"))
        return await self._in_thread(self._shown, visit, request.path, request.query.get("part"))

    def _shown(self, visit: Visit, path: str, part: str) -> Reply:
        try:
            match path.split("/")[1:] if visit.visitor.sees_all else []:
                case ["jobs", _, "attempts", attempt_id, "log"]:
                    return _log(visit, attempt_id)
                case ["jobs", job_id, "failure.txt"]:
                    return text_reply(visible(visit.source.failure_report(job_id)) + "\n")
            if path.startswith("/act/") and not visit.visitor.may_change:
                raise OutOfBounds("nothing can be changed here: these pages are read-only")
            page = routes.page(visit, path)
            if part:
                seen = visit.query.get("seen", "").split(",")
                changes = layout.changed(page, visit, part.split(","), seen)
                return (
                    html_reply(changes, headers=_HEADERS, pack=True) if changes else empty_reply()
                )
        except ClusterError as error:
            page = error_page(error, otherwise=404 if not path.startswith("/act/") else 400)
        # What has a form with a token in it is not packed: its length would tell of it.
        has_token = path.startswith("/act/")
        return html_reply(layout.whole(page, visit), page.status, _HEADERS, pack=not has_token)

    async def _download(self, visit: Visit, path: str) -> Reply:
        await self.budget.take(READER_BYTES)
        try:
            found = await self._in_thread(visit.source.download, visit.visitor.check(path))
        except BaseException as error:
            self.budget.give(READER_BYTES)
            if not isinstance(error, ClusterError):
                raise
            page = error_page(error)
            return html_reply(layout.whole(page, visit), page.status, _HEADERS)
        name = path.rpartition("/")[2]
        return stream_reply(
            self._poured(found.pieces), found.length_bytes, headers=[attachment(name), _SANDBOX]
        )

    async def _poured(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of a blocking iterator, each made in a thread."""
        try:
            while (piece := await self._in_thread(next, pieces, None)) is not None:
                yield piece
        finally:
            self.budget.give(READER_BYTES)
            close = getattr(pieces, "close", None)
            if close is not None:
                await self._in_thread(close)

    async def _enter(self, request: Request) -> Reply:
        visitor = await self.link(request.query.get("link"))
        if visitor is None:
            return self._outside(403, "This link was used already, or is too old.")
        request.note.user = visitor.user
        cookie = self.sessions.begin(visitor, time.time())
        return redirect_reply(303, "/", [("Set-Cookie", cookie)])

    def _outside(self, status: int, words: str = "") -> Reply:
        page = entrance.page(words, with_keys=self.login is not None)
        return html_reply(page, status, _HEADERS)

    # --- doing

    async def _post(
        self, request: Request, visitor: Visitor | None, cookies: dict[str, str]
    ) -> Reply:
        if not is_own(request):
            raise Refused(403, "this form does not come from a page of ours", close=True)
        if request.path == "/login":
            return await self._log_in(request)
        if visitor is None:
            raise Refused(401, "who is there? open the pages by a link first", close=True)
        if request.path == "/leave":
            gone = self.sessions.end()
            return self._outside(200, "You have left.").with_headers(("Set-Cookie", gone))
        if request.path == "/theme":
            return await self._theme(request)
        if not visitor.may_change:
            raise Refused(403, "nothing can be changed here: these pages are read-only", close=True)
        visit = self._visit(request, visitor, cookies)
        try:
            if request.path.startswith("/upload/"):
                said, back = await self._upload(request, visit)
            else:
                said, back = await self._act(request, visit)
        except ClusterError as error:
            page = error_page(error)
            reply = html_reply(layout.whole(page, visit), page.status, _HEADERS)
            return replace(reply, close=request.path.startswith("/upload/"))
        proof = _proof(visitor, said)
        return redirect_reply(303, f"{back}{url('/', said=said, proof=proof).removeprefix('/')}")

    async def _act(self, request: Request, visit: Visit) -> tuple[str, str]:
        if not request.path.startswith("/act/"):
            raise NoSuchPage(f"there is nothing to be done at {request.path}")
        pairs = parse_query(await request.body())
        words = dict(pairs.pairs)
        if not forms.is_token(visit.visitor, request.path, words.get("token", "")):
            raise OutOfBounds("this form is not from a page of yours; open the page again")
        name = request.path.removeprefix("/act/")
        request.note.operation = name
        request.note.paths = [words[key] for key in NOTED if key in words]
        return await self._in_thread(forms.act, visit, name, words)

    async def _upload(self, request: Request, visit: Visit) -> tuple[str, str]:
        into = request.path.removeprefix("/upload")
        request.note.paths = [into]
        into = into if into == "/" else into.rstrip("/")
        receiver = Receiver(visit, into, boundary_of(request.headers.get("content-type", "")))
        held = bytearray()
        await self.budget.take(WRITER_BYTES)
        try:
            async for piece in request.pieces():
                held += piece
                if len(held) >= PIECE_BYTES:
                    await self._in_thread(receiver.feed, bytes(held))
                    held.clear()
            await self._in_thread(receiver.feed, bytes(held))
            said = receiver.finish()
        except ClusterError as error:
            if receiver.stored:
                error.message += f"; {', '.join(receiver.stored)} had been stored before"
            await _drain(request)
            raise
        finally:
            self.budget.give(WRITER_BYTES)
            request.note.paths += receiver.stored
            await self._in_thread(receiver.abandon)
        return said, url(f"/files{into}")

    async def _theme(self, request: Request) -> Reply:
        value = parse_query(await request.body(1024)).get("to")
        theme = value if value in ("light", "dark") else ""
        cookie = f"{THEME_COOKIE}={theme}; Path=/; SameSite=Strict; HttpOnly; Max-Age={THEME_S}"
        where = unquote(urlsplit(request.headers.get("referer", "")).path)
        back = url(where) if where.startswith("/") else "/jobs"
        return redirect_reply(303, back, [("Set-Cookie", cookie)])

    async def _log_in(self, request: Request) -> Reply:
        if self.login is None:
            raise Refused(404, "there is no login here", close=True)
        words = parse_query(await request.body(4096))
        visitor = await self.login(request, words.get("id"), words.get("secret"))
        if visitor is None:
            return self._outside(403, "There is no such key, or its secret is another.")
        return redirect_reply(303, "/", [("Set-Cookie", self.sessions.begin(visitor, time.time()))])

    def _visit(self, request: Request, visitor: Visitor, cookies: dict[str, str]) -> Visit:
        query = dict(request.query.pairs)
        said = query.get("said", "")
        if said and not hmac.compare_digest(
            _proof(visitor, said).encode(), query.get("proof", "").encode("utf-8", "replace")
        ):
            said = ""
        theme = cookies.get(THEME_COOKIE, "")
        source = self.source_of(visitor.user) if self.source_of else self.watch.source
        return Visit(
            self.watch, visitor, query, theme if theme in layout.THEMES else "", said, source
        )


def _note(request: Request) -> None:
    """Say for the audit log what is asked for: which kind of page, and of files which one."""
    first, _, rest = request.path.removeprefix("/").partition("/")
    if first in PLACES:
        request.note.operation = first
    if first in ("files", "download"):
        request.note.paths = [f"/{rest}"]


def is_own(request: Request) -> bool:
    """Whether a POST comes from a page of this very server, as every browser says."""
    site = request.headers.get("sec-fetch-site", "")
    origin = request.headers.get("origin", "")
    if site not in ("", "same-origin"):
        return False
    if not origin:
        return site == "same-origin"
    there = urlsplit(origin)
    return there.scheme in ("http", "https") and there.netloc.lower() == request.host


def error_page(error: ClusterError, *, otherwise: int = 400) -> Page:
    """Return the page that says what is wrong, with the status that belongs to it."""
    if isinstance(error, OutOfBounds | PermissionError):
        title, status = "Not for you", 403
    elif isinstance(error, NoSuchPage | FileNotFoundError):
        title, status = "Not there", 404
    elif isinstance(error, Unavailable):
        title, status = "No answer", 503
    elif isinstance(error, Corrupt):
        title, status = "Damaged", 500
    else:
        title, status = "Not there" if otherwise == 404 else "That cannot be done", otherwise
    return Page(title, (element("p", str(error), cls="wrong"),), status=status)


def _log(visit: Visit, attempt_id: str) -> Reply:
    data, after = attempt.log_piece(visit, attempt_id)
    return text_reply(visible(data.decode("utf-8", "replace")), headers=[("X-From", f"{after}")])


async def _drain(request: Request) -> None:
    """Take the rest of a body that is not wanted, if it is not long: a browser that is answered
    while it sends says that the connection broke, and nothing of the answer."""
    left = DRAIN_BYTES_MAX
    async for piece in request.pieces():
        left -= len(piece)
        if left < 0:
            break


def _proof(visitor: Visitor, said: str) -> str:
    """What a link must carry for a page to say these words: nobody else makes us say things."""
    return digest(visitor.session, "said", said.encode("utf-8", "replace")).hex()[:32]
