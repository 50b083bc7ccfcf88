"""The style sheet, the script and the sign of the pages, under names that change with them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

_MARK = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="3" fill="#1f2933"/>'
    '<path d="M3 5h4M3 8h7M3 11h10" stroke="#56b4e9" stroke-width="1.6"/></svg>'
)
KINDS = {
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "mark.svg": "image/svg+xml",
}
FOR_EVER = "public, max-age=31536000, immutable"


@cache
def content(name: str) -> bytes:
    """Return the bytes of one of `KINDS`."""
    if name == "mark.svg":
        return _MARK.encode()
    return files("mrstream.web.pages").joinpath(name).read_bytes()


@cache
def address(name: str) -> str:
    """Return where a browser finds it: `/static/app.0123456789ab.css`."""
    stem, dot, suffix = name.partition(".")
    print_of = hashlib.sha256(content(name)).hexdigest()[:12]
    return f"/static/{stem}.{print_of}{dot}{suffix}"


def found(path: str) -> str | None:
    """Return the name of what has this address; None if nothing has it."""
    return next((name for name in KINDS if address(name) == path), None)
