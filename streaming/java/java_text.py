"""Text as Java decodes it: bytes that are no UTF-8 become U+FFFD, mistake by mistake. Pure."""

from __future__ import annotations

import re

# Java sees the three bytes of an encoded surrogate as one mistake, Python as three.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decode_text(data: bytes) -> str:
    """Return the text as Java decodes it: each bad sequence becomes one U+FFFD."""
    return _SURROGATE.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace")


def clean_text(data: bytes) -> bytes:
    """Return the text decoded and encoded again: what Java's `Text` is once it was a `String`."""
    return data if data.isascii() else decode_text(data).encode()
