"""Files out of a form as they come (RFC 7578): fed bytes, gives events; without IO.

Holds no more than one part's head and a boundary's length of its body, however large the form is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mrstream.cluster.errors import UserError

HEAD_BYTES_MAX = 8 * 1024
PARTS_MAX = 1000
_BOUNDARY = re.compile(r"""(?i)multipart/form-data\s*;.*\bboundary=("?)([^"\s;,]{1,70})\1""")
_WORD = re.compile(rb'(?i);\s*(name|filename)="([^"]*)"')
_ESCAPES = {b"%22": b'"', b"%0D": b"\r", b"%0A": b"\n"}


class BadForm(UserError):
    """A form that is none."""


@dataclass(frozen=True, slots=True)
class PartBegins:
    """A field of the form; `filename` is None where it is no file."""

    name: str
    filename: str | None


@dataclass(frozen=True, slots=True)
class PartBytes:
    """Bytes of the field that began last."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnds:
    """The field that began last is whole."""


Event = PartBegins | PartBytes | PartEnds


def boundary_of(content_type: str) -> bytes:
    """Return what separates the parts of a form with this `Content-Type`."""
    found = _BOUNDARY.match(content_type)
    if found is None:
        raise BadForm(f"Content-Type is {content_type[:80]!r}, not multipart/form-data")
    return found[2].encode("latin-1", "replace")


class Multipart:
    """Fed the bytes of a form; `feed` gives what they complete."""

    def __init__(self, boundary: bytes) -> None:
        self._mark = b"\r\n--" + boundary
        self._held = b"\r\n"  # the first boundary begins a line, too
        self._state = "before"
        self._parts = 0

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete."""
        self._held += data
        while True:
            if self._state == "after":
                self._held = b""
                return
            if self._state == "head":
                if not (begins := self._head()):
                    return
                yield begins
                continue
            at = self._held.find(self._mark)
            if at < 0:
                ready, self._held = self._split_safe()
                if ready and self._state == "body":
                    yield PartBytes(ready)
                return
            # What follows a boundary says whether it is the last: two bytes are needed to know.
            if len(self._held) < at + len(self._mark) + 2:
                if at and self._state == "body":
                    yield PartBytes(self._held[:at])
                self._held = self._held[at:]
                return
            if at and self._state == "body":
                yield PartBytes(self._held[:at])
            if self._state == "body":
                yield PartEnds()
            self._after_mark(self._held[at + len(self._mark) :])

    def finish(self) -> None:
        """Say that no more comes."""
        if self._state != "after":
            raise BadForm("the form ends before its end")

    def _split_safe(self) -> tuple[bytes, bytes]:
        """What surely is no beginning of a boundary, and the rest."""
        keep = len(self._mark) - 1
        at = self._held.find(b"\r", max(0, len(self._held) - keep))
        return (self._held, b"") if at < 0 else (self._held[:at], self._held[at:])

    def _after_mark(self, rest: bytes) -> None:
        if rest.startswith(b"--"):
            self._state, self._held = "after", b""
        elif rest.startswith(b"\r\n"):
            self._state, self._held = "head", rest[2:]
            self._parts += 1
            if self._parts > PARTS_MAX:
                raise BadForm(f"the form has more than {PARTS_MAX} fields")
        else:
            raise BadForm("a boundary of the form is followed by other than a line's end")

    def _head(self) -> PartBegins | None:
        end = self._held.find(b"\r\n\r\n")
        if end < 0 or end > HEAD_BYTES_MAX:
            if len(self._held) > HEAD_BYTES_MAX:
                raise BadForm(f"the head of a field has more than {HEAD_BYTES_MAX} bytes")
            return None
        head, self._held = self._held[:end], self._held[end + 4 :]
        self._state = "body"
        for line in head.split(b"\r\n"):
            label, _, value = line.partition(b":")
            if label.strip().lower() == b"content-disposition":
                words = {key.lower(): _word(text) for key, text in _WORD.findall(value)}
                if b"name" in words:
                    return PartBegins(words[b"name"], words.get(b"filename"))
        raise BadForm("a field of the form has no name")


def _word(raw: bytes) -> str:
    for escape, sign in _ESCAPES.items():
        raw = raw.replace(escape, sign).replace(escape.lower(), sign)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadForm("a name in the form is not UTF-8") from None
