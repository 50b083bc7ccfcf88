"""HTML as values: elements that escape what they are given, and the only place that makes markup.

    element("td", "a < b", cls="num")      →  <td class="num">a &lt; b</td>
    url("/files/a b", view="map")          →  /files/a%20b?view=map

Whatever is no markup already is text, and stays text. Characters that a reader cannot see, or that
turn the direction of others round, are shown as signs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

Child: TypeAlias = "str | int | Markup | Iterable[Child] | None"
Value: TypeAlias = "str | int | float | bool | None"

_VOID = {"br", "col", "hr", "input", "link", "meta"}
_HIDDEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def element(tag: str, *children: Child, **attributes: Value) -> Markup:
    """Return an element. In names of attributes `_` stands for `-`, and `cls` for `class`; one that
    is None or False is left out, one that is True has no value."""
    opening = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{opening}>")  # both parts are escaped
    return Markup(f"<{tag}{opening}>{joined(*children)}</{tag}>")


def joined(*children: Child) -> Markup:
    """Return these one after the other; text is escaped."""
    return Markup("".join(_pieces(children)))


def text(words: str) -> Markup:
    """Return words as they are, whatever they look like."""
    return escape(visible(words))


def visible(words: str) -> str:
    """Return words with a sign for each character that would be hidden or would hide others."""
    return _HIDDEN.sub(_sign, words)


def url(path: str, /, **query: Value) -> str:
    """Return a link to a page of ours; words of the query that are empty are left out."""
    assert path.startswith("/"), path
    words = urlencode({name: value for name, value in query.items() if value not in ("", None)})
    # Two slashes at the beginning would be the name of another host.
    there = "/" + quote(path.encode("utf-8", "surrogateescape"), safe="/").lstrip("/")
    return f"{there}?{words}" if words else there


def document(theme: str, head: Markup, body: Markup) -> Markup:
    html = element("html", head, body, lang="en", data_theme=theme or None)
    return Markup("<!doctype html>\n") + html


def _attribute(name: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = "class" if name == "cls" else name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'


def _pieces(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield text(child)
        elif isinstance(child, int):
            yield str(child)
        elif child is not None:
            yield from _pieces(child)


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"\\u{code:04x}"
