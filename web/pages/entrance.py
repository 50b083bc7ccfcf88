"""What somebody sees who has not proved to be allowed in: nothing of the cluster."""

from __future__ import annotations

from markupsafe import Markup

from mrstream.web.pages import assets
from mrstream.web.pages.markup import document, element, joined


def page(words: str, *, with_keys: bool) -> Markup:
    """Return the page before the door, with a form for keys where keys are known."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "mrstream"),
        element("link", rel="stylesheet", href=assets.address("app.css")),
        element("link", rel="icon", href=assets.address("mark.svg"), type="image/svg+xml"),
    )
    how = element(
        "p", "`mrstream web` prints a link that opens these pages once; a new one each time."
    )
    main = element(
        "main",
        element("h1", "mrstream"),
        element("p", words, role="status", cls="said") if words else None,
        _keys() if with_keys else how,
        id="main",
    )
    return document("", head, element("body", main, cls="outside"))


def _keys() -> Markup:
    return element(
        "form",
        element("p", element("label", "Key ", element("input", name="id", autocomplete="username",
                                                     required=True))),
        element("p", element("label", "Secret ", element("input", name="secret", type="password",
                                                        autocomplete="current-password",
                                                        required=True))),
        element("p", element("button", "Enter")),
        joined(element("p", "`mrstream key add NAME` makes a key; `mrstream web --on HOST` prints "
                            "a link instead.")),
        action="/login",
        method="post",
        cls="ask",
    )  # fmt: skip
