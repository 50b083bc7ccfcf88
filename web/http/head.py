"""What stands in the head of a request, as strict values; without IO.

Everything a client can write is decoded once, from the raw bytes, and either has exactly one
meaning or is refused with a status: percent signs that are none, bytes that are no UTF-8 (overlong
forms among them), NUL, a name twice where one is asked for, a `Host` with more in it than a host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})?")
_PLAIN = re.compile(rb"/[\x21\x22\x24-\x7e\x80-\xff]*")
"""A target in origin form: no controls, no blanks, no fragment."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,252}[a-z0-9])?")
PARAMETERS_MAX = 100


class Refused(Exception):
    """A request cannot be served; the answer has this status and these words, and no more."""

    def __init__(
        self, status: int, words: str, headers: Iterable[tuple[str, str]] = (), close: bool = False
    ) -> None:
        super().__init__(words)
        self.status = status
        self.words = words
        self.headers = tuple(headers)
        self.close = close
        """The connection is of no use after this."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about: the path, decoded once, and the query."""

    path: str
    query: Query
    raw: bytes
    """As it was sent: signatures are over this."""


class Query:
    """The words after `?`, in their order."""

    def __init__(self, pairs: Sequence[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)

    def get(self, name: str, default: str = "") -> str:
        """The one value of a name; said twice it must be the same."""
        values = [value for key, value in self.pairs if key == name]
        if len(set(values)) > 1:
            raise Refused(400, f"the query has {name!r} {len(values)} times, each different")
        return values[0] if values else default

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    def folded(self) -> Query:
        """The same with names in lower case."""
        return Query([(name.lower(), value) for name, value in self.pairs])

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self.pairs)


class Headers(Mapping[str, str]):
    """Headers by name in lower case; one that came twice is read by `all` only."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name.lower(), []).append(value)

    def __getitem__(self, name: str) -> str:
        values = self._values[name.lower()]
        if len(values) > 1:
            raise Refused(400, f"header {name} is there {len(values)} times", close=True)
        return values[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return self._values.get(name.lower(), [])


def parse_target(raw: bytes) -> Target:
    """Return the target of a request line; 400 for what is not an absolute path and a query."""
    if not _PLAIN.fullmatch(raw):
        raise Refused(400, "the request target must be a path that begins with /", close=True)
    path, mark, query = raw.partition(b"?")
    return Target(_decoded(path, "path"), parse_query(query) if mark else Query(), raw)


def parse_query(raw: bytes) -> Query:
    """Return the pairs of a query or of a form; `+` is a blank, as forms write it."""
    pairs = []
    for item in raw.split(b"&") if raw else ():
        if not item:
            continue
        name, _, value = item.replace(b"+", b" ").partition(b"=")
        pairs.append((_decoded(name, "query"), _decoded(value, "query")))
        if len(pairs) > PARAMETERS_MAX:
            raise Refused(400, f"the query has more than {PARAMETERS_MAX} parameters")
    return Query(pairs)


def _decoded(raw: bytes, where: str) -> str:
    def byte(found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            raise Refused(400, f"a % in the {where} is not followed by two hexadecimal digits")
        return bytes.fromhex(found[1].decode())

    plain = _PERCENT.sub(byte, raw)
    try:
        text = plain.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise Refused(
            400, f"byte {error.start} of the {where} is not UTF-8 ({error.reason})"
        ) from None
    if "\0" in text:
        raise Refused(400, f"the {where} has a NUL in it")
    return text


def parse_headers(raw: Iterable[tuple[bytes, bytes]], count_max: int) -> Headers:
    """Return the headers; 431 for too many, 400 for a name or value that none may have."""
    pairs: list[tuple[str, str]] = []
    for name, value in raw:
        if len(pairs) == count_max:
            raise Refused(431, f"more than {count_max} headers", close=True)
        key = name.decode("latin-1")
        text = value.decode("latin-1")
        if not _TOKEN.fullmatch(key) or any(sign in text for sign in "\r\n\0"):
            raise Refused(400, "a header's name or value has a character in it that none may have")
        pairs.append((key, text.strip(" \t")))
    return Headers(pairs)


def parse_host(value: str) -> tuple[str, int | None]:
    """Return name and port of a `Host` header; the name in lower case, an address as Python
    writes it, the port None where none stands."""
    wrong = Refused(400, "the Host header is not a host and a port", close=True)
    name, port = value, ""
    if value.startswith("["):
        name, bracket, rest = value[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise wrong
        port = rest[1:]
        if rest and not port:
            raise wrong
        try:
            name = str(ipaddress.IPv6Address(name))
        except ValueError:
            raise wrong from None
    else:
        name, colon, port = value.partition(":")
        name = name.lower()
        if not _HOST_NAME.fullmatch(name) or (colon and not port):
            raise wrong
    if port and (not port.isascii() or not port.isdigit() or len(port) > 5):
        raise wrong
    number = int(port) if port else None
    if number is not None and not 0 < number < 65536:
        raise wrong
    return name, number
