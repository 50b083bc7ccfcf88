"""How a CSV file is written. Plain data."""

from __future__ import annotations

import msgspec


class Dialect(msgspec.Struct, frozen=True):
    """How CSV is written; `quote` is None where nothing is ever quoted."""

    delimiter: bytes = b","
    quote: bytes | None = b'"'
    has_header: bool = True
    encoding: str = "utf-8"
