"""The keys of the doors: names, rights and ends; made and revoked by `mrstream key` alone."""

from __future__ import annotations

from markupsafe import Markup

from mrstream.view import keys
from mrstream.view.cells import Row
from mrstream.web.pages.markup import element, joined
from mrstream.web.pages.parts import finder, nothing, page_slice, pager, table
from mrstream.web.pages.visit import Page, Visit


def _words() -> Markup:
    return element(
        "p",
        "With these, programs come in through a gateway. A secret is shown nowhere; ",
        element("code", "mrstream key add"),
        " makes a key, ",
        element("code", "mrstream key revoke"),
        " makes it void within two seconds.",
    )


def page(visit: Visit) -> Page:
    found = keys.listed(visit.source.keys(), wanted=visit.wanted)
    rows: list[Row] = [
        (key.name, keys.key_cells(key, visit.now_s)) for key in found[page_slice(visit.page)]
    ]
    shown = table("Keys", keys.COLUMNS, rows) if rows else nothing(keys.NO_KEYS, visit.wanted)
    ways = pager("/keys", visit.page, len(found), find=visit.wanted)
    body = (_words(), finder("/keys", visit.wanted), joined(shown, ways))
    return Page("Keys", body, here="Keys")
