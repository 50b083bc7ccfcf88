"""The parameters of an operation: from the query to values, or to words about what is wrong.

Names are read in any case, as Hadoop does; a value that Hadoop would not take is not taken. Without
IO.
"""

from __future__ import annotations

import re

from mrstream.web.http.head import Query, Refused

_OCTAL = re.compile(r"[01]?[0-7]{1,3}")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
MIB = 1 << 20
CHUNK_SIZES = tuple(mib * MIB for mib in (5, 8, 10, 16, 20, 25, 32, 40, 50, 64))
"""Of files with a block size of their own: few enough that the table of sizes never fills."""


class Parameters:
    """The query of one request."""

    def __init__(self, query: Query) -> None:
        self._query = query.folded()

    def text(self, name: str, default: str = "") -> str:
        """A value as it stands."""
        return self._query.get(name, default)

    def has(self, name: str) -> bool:
        """Is it given, with a value?"""
        return bool(self._query.get(name))

    def whole(self, name: str, default: int, least: int = 0) -> int:
        """A whole number; what is empty or `null` is not given."""
        value = self._query.get(name)
        if value in ("", "null"):
            return default
        if not _WHOLE.fullmatch(value) or int(value) < least:
            raise _wrong(name, value, f"a whole number, at least {least}")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        value = self._query.get(name).lower()
        if value not in ("", "null", "true", "false"):
            raise _wrong(name, value, "true or false")
        return default if value in ("", "null") else value == "true"

    def mode(self, name: str, default: int) -> int:
        """Permission bits in octal."""
        value = self._query.get(name)
        if value in ("", "null"):
            return default
        if not _OCTAL.fullmatch(value):
            raise _wrong(name, value, "an octal number up to 1777")
        return int(value, 8)

    def choice(self, name: str, default: str, *choices: str) -> str:
        """One of some words, in any case."""
        value = self._query.get(name).upper() or default
        if value not in choices:
            raise _wrong(name, value, " or ".join(choices))
        return value

    def chunk_bytes(self, default_bytes: int) -> int:
        """`blocksize`, as the largest of our sizes that is not above it; 0: the cluster's."""
        wanted = self.whole("blocksize", 0)
        if wanted in (0, default_bytes):
            return 0
        return max([size for size in CHUNK_SIZES if size <= wanted], default=CHUNK_SIZES[0])


def _wrong(name: str, value: str, wanted: str) -> Refused:
    return Refused(
        400, f'Invalid value for webhdfs parameter "{name}": {value[:80]!r} is not {wanted}'
    )
