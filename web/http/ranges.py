"""The `Range` header, in one place (RFC 9110 §14); without IO."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE = re.compile(r"bytes=[ \t]*([0-9]{0,19})-([0-9]{0,19})[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` up to `stop`, which is not among them, of `size` in all."""

    start: int
    stop: int
    size: int

    @property
    def length(self) -> int:
        """How many bytes."""
        return self.stop - self.start

    @property
    def is_all(self) -> bool:
        return self.length == self.size

    def content_range(self) -> str:
        return f"bytes {self.start}-{self.stop - 1}/{self.size}"


class NotSatisfiable(Exception):
    """No byte of the file is in the range: 416, with `Content-Range: bytes */SIZE`."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the range is beyond the end of the file, which has {size} bytes")
        self.size = size

    def content_range(self) -> str:
        """The value of `Content-Range` that says how long the file is."""
        return f"bytes */{self.size}"


def parse_range(value: str | None, size: int) -> Span | None:
    """Return the part of a file of `size` bytes that a `Range` header asks for.

    None: all of it, since there is no header, or one that a server ignores (RFC 9110 §14.2):
    another unit, several ranges, a first byte after the last.
    """
    found = _ONE.fullmatch(value) if value else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        wanted = min(int(found[2]), size)
        if wanted == 0:
            raise NotSatisfiable(size)
        return Span(size - wanted, size, size)
    first = int(found[1])
    last = int(found[2]) if found[2] else size - 1
    if found[2] and last < first:
        return None
    if first >= size:
        raise NotSatisfiable(size)
    return Span(first, min(last + 1, size), size)
