"""What pages are made of: tables of `view`'s cells, bars, marks, links, forms that look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mrstream.view.cells import Cell, Column, Row
from mrstream.view.palette import Colour
from mrstream.web.pages.markup import Child, Value, element, joined, url

ROWS_A_PAGE = 200
BAR_UNITS = 100


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a page that is brought up to date by itself: found again by name, and drawn only
    if its version is not the one that the browser has."""

    name: str
    draw: Callable[[], Markup]
    version: str = ""
    """What it shows, cheaper to say than to draw; if empty, what was drawn is compared."""


def cell_words(cell: Cell) -> Markup:
    """Return the words of a cell in their colour."""
    words = cell.text.strip()
    if cell.colour is Colour.PLAIN:
        return element("strong", words) if cell.loud else joined(words)
    return element("strong" if cell.loud else "span", words, cls=f"c-{cell.colour}")


def cell_content(cell: Cell) -> Markup:
    """Return a cell's words, after a bar if it has a share to show."""
    words = cell_words(cell)
    return words if cell.share is None else joined(bar(cell.share), words)


def bar(share: float) -> Markup:
    """Return a bar; the words beside it say the same, so it is nothing to a screen reader."""
    width = round(max(0.0, min(1.0, share)) * BAR_UNITS, 1)
    return element(
        "svg",
        element("rect", cls="bar-ground", width=BAR_UNITS, height=8),
        element("rect", cls="bar-done", width=f"{width:g}", height=8),
        cls="bar",
        viewBox=f"0 0 {BAR_UNITS} 8",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Row],
    *,
    link: Callable[[str], str] | None = None,
    head: int = 0,
    more: Callable[[str], Child] | None = None,
) -> Markup:
    """Return a table. Column `head` names a row, and is the link to what the row is about; `more`
    gives a last cell with what can be done about it."""
    titles = [
        element("th", column.title, scope="col", cls="num" if column.right else None)
        for column in columns
    ]
    if more is not None:
        titles.append(element("th", element("span", "Actions", cls="unseen"), scope="col"))
    body = [_row(columns, row, link, head, more) for row in rows]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", titles)),
            element("tbody", body),
        ),
        cls="wide",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def _row(
    columns: Sequence[Column],
    row: Row,
    link: Callable[[str], str] | None,
    head: int,
    more: Callable[[str], Child] | None,
) -> Markup:
    key, cells = row
    out = []
    for at, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        content = cell_content(cell)
        kind = "num" if column.right else "bars" if cell.share is not None else None
        if at != head:
            out.append(element("td", content, cls=kind, data_label=column.title))
            continue
        if link is not None:
            content = element("a", content, href=link(key))
        out.append(element("th", content, scope="row", cls=kind, data_label=column.title))
    if more is not None:
        out.append(element("td", more(key), cls="acts"))
    return element("tr", out)


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Return names and what is known of each."""
    return element(
        "dl", [element("div", element("dt", name), element("dd", value)) for name, value in pairs]
    )


def link(words: Child, path: str, /, **query: Value) -> Markup:
    return element("a", words, href=url(path, **query))


def button(words: str, path: str, /, *, cls: str | None = None, **fields: Value) -> Markup:
    """Return a button that opens a page, which asks before anything is done."""
    return element(
        "form",
        [hidden(name, value) for name, value in fields.items()],
        element("button", words, cls=cls),
        action=url(path),
        method="get",
        cls="inline",
    )


def hidden(name: str, value: Value) -> Markup:
    """Return a value that a form carries along."""
    return element("input", type="hidden", name=name, value=str(value))


def choice(name: str, label: str, options: Sequence[str], chosen: str) -> Markup:
    """Return a list of which one is chosen."""
    told = [element("option", each, value=each, selected=each == chosen) for each in options]
    return element("label", f"{label} ", element("select", told, name=name))


def finder(path: str, wanted: str, *more: Child) -> Markup:
    """Return the form that shows only rows with some text."""
    return element(
        "form",
        element(
            "label",
            "Find ",
            element("input", type="search", name="find", value=wanted, size=24),
        ),
        *more,
        element("button", "Show"),
        action=url(path),
        method="get",
        role="search",
        cls="finder",
    )


def nothing(words: str, wanted: str = "") -> Markup:
    """Say why there is nothing to see."""
    if wanted:
        words = f"Nothing here has {wanted!r} in it."
    return element("p", words, cls="nothing")


def pager(path: str, page: int, count: int, /, **query: Value) -> Markup:
    """Return the way to the other pages of a long list; nothing if there is but one."""
    pages = max(1, -(-count // ROWS_A_PAGE))
    if pages == 1:
        return joined()
    first = (page - 1) * ROWS_A_PAGE + 1
    words = f"{first:,} to {min(first + ROWS_A_PAGE - 1, count):,} of {count:,}"
    return element(
        "nav",
        link("← before", path, page=page - 1, **query) if page > 1 else None,
        element("span", words),
        link("after →", path, page=page + 1, **query) if page < pages else None,
        cls="pager",
        aria_label="Pages of this list",
    )


def page_slice(page: int) -> slice:
    """Return the rows of one page of a long list."""
    return slice((page - 1) * ROWS_A_PAGE, page * ROWS_A_PAGE)
