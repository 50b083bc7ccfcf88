"""What every page has: head, the line of pages, the cluster at a glance, the foot."""

from __future__ import annotations

import hashlib

from markupsafe import Markup

from mrstream.cluster.version import version
from mrstream.view.groups import troubles
from mrstream.view.picture import Picture
from mrstream.view.summary import parts as summary_parts
from mrstream.view.summary import silence
from mrstream.web.pages import assets
from mrstream.web.pages.markup import document, element, joined
from mrstream.web.pages.parts import Part, cell_words, link
from mrstream.web.pages.visit import Page, Visit

PAGES = (
    ("Jobs", "/jobs"),
    ("Hosts", "/hosts"),
    ("Files", "/files/"),
    ("Trash", "/trash"),
    ("Events", "/events"),
    ("Keys", "/keys"),
    ("About", "/about"),
)
THEMES = ("light", "dark", "")
REFRESH_S = 5
"""How often a browser without scripts loads a page again."""


def whole(page: Page, visit: Visit) -> Markup:
    """Return a page as a document."""
    return document(visit.theme, _head(page), _body(page, visit))


def changed(page: Page, visit: Visit, names: list[str], seen: list[str]) -> Markup:
    """Return those of the named parts whose version is not the one that was seen."""
    known = dict(zip(names, seen, strict=False))
    found = []
    for part in (summary_part(visit), *page.body):
        if isinstance(part, Part) and part.name in known:
            have = known[part.name]
            if not part.version or part.version != have:
                version, drawing = _drawn(part)
                if version != have:
                    found.append(drawing)
    return joined(found)


def _drawn(part: Part) -> tuple[str, Markup]:
    content = part.draw()
    version = part.version or hashlib.blake2b(content.encode(), digest_size=6).hexdigest()
    drawing = element(
        "section", content, id=f"p-{part.name}", data_part=part.name, data_version=version
    )
    return version, drawing


def _head(page: Page) -> Markup:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{page.title} · mrstream"),
        element("link", rel="stylesheet", href=assets.address("app.css")),
        element("link", rel="icon", href=assets.address("mark.svg"), type="image/svg+xml"),
        element("script", src=assets.address("app.js"), defer=True),
        element(
            "noscript", element("meta", http_equiv="refresh", content=f"{REFRESH_S}")
        ) if page.every_s else None,
    )  # fmt: skip


def _body(page: Page, visit: Visit) -> Markup:
    content = [_drawn(each)[1] if isinstance(each, Part) else each for each in page.body]
    return element(
        "body",
        element("a", "Skip to the content", href="#main", cls="skip"),
        element(
            "header",
            element("nav", element("strong", "mrstream", cls="name"), _pages(page),
                    aria_label="Pages"),
            _drawn(summary_part(visit))[1],
            element("p", id="silence", role="status"),
        ),
        element(
            "main",
            _way(page) if page.back else None,
            element("h1", page.title),
            element("p", visit.said, cls="said", role="status") if visit.said else None,
            content,
            id="main",
            data_every=page.every_s or None,
        ),
        _foot(visit),
    )  # fmt: skip


def _pages(page: Page) -> Markup:
    return element(
        "ul",
        [
            element("li", element("a", word, href=path, aria_current=word == page.here and "page"))
            for word, path in PAGES
        ],
    )


def _way(page: Page) -> Markup:
    steps = [element("li", link(word, path)) for word, path in page.back]
    return element("nav", element("ol", steps), cls="way", aria_label="The way here")


def summary_part(visit: Visit) -> Part:
    """Return the line at the top: is everything all right, and do we still hear of it?"""

    def draw() -> Markup:
        with visit.watch.picture() as picture:
            return summary(picture, visit.now_s, read_only=not visit.visitor.may_change)

    return Part("summary", draw)


def summary(picture: Picture, now_s: float, *, read_only: bool) -> Markup:
    """Return the words of that line."""
    said = silence(picture, now_s)
    figures = [
        element("li", f"{part.label} " if part.label else None, cell_words(part.cell))
        for part in summary_parts(picture)
    ]
    return joined(
        element("p", said, cls="lost", role="alert") if said else None,
        [element("p", cell_words(each), role="alert") for each in troubles(picture.groups)],
        element(
            "ul",
            element("li", element("strong", picture.cluster)),
            element("li", "read-only") if read_only else None,
            figures,
            cls="glance",
            aria_label="The cluster at a glance",
        ),
    )


def _foot(visit: Visit) -> Markup:
    words = {"light": "Light", "dark": "Dark", "": "As the system"}
    switches = [
        element("button", words[theme], name="to", value=theme or "system",
                aria_pressed="true" if theme == visit.theme else "false")
        for theme in THEMES
    ]  # fmt: skip
    return element(
        "footer",
        element("span", f"mrstream {version()} · {visit.visitor.user}"),
        element("form", element("span", "Colours "), switches, action="/theme", method="post"),
        element("form", element("button", "Leave"), action="/leave", method="post"),
    )
