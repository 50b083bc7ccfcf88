"""A page as somebody reads it who does not see it: words, links, headings, forms; what is wrong."""

from __future__ import annotations

from html.parser import HTMLParser

from mrstream.view.watch import Watch
from mrstream.web.pages import layout, routes
from mrstream.web.pages.visit import Visit, Visitor
from tests.support.tui_states import Recorded

VOID = {"br", "col", "hr", "input", "link", "meta"}
YOU = Visitor("ann", b"a session")


class Reader(HTMLParser):
    """Reads a document and keeps what tests ask for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.wrong: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self._cell: list[str] | None = None
        self.feed(html)
        self.close()
        if self._open:
            self.wrong.append(f"never closed: {self._open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")
        if tag in ("td", "th") and self._cell is not None:
            self.rows[-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        if data.strip():
            self.words.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def links(self) -> list[str]:
        return [each["href"] or "" for each in self.all("a")]


def visit_of(state: Recorded, visitor: Visitor = YOU, /, **query: str) -> Visit:
    return Visit(Watch(state), visitor, query)


def html_of(state: Recorded, path: str, visitor: Visitor = YOU, /, **query: str) -> str:
    visit = visit_of(state, visitor, **query)
    return str(layout.whole(routes.page(visit, path), visit))


def read(state: Recorded, path: str, visitor: Visitor = YOU, /, **query: str) -> Reader:
    return Reader(html_of(state, path, visitor, **query))
