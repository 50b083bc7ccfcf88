"""Conditions on what is there: If-Match and its kin, for reading, copying and storing. No IO."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from dataclasses import dataclass

from mrstream.dfs.chunk import FileId
from mrstream.dfs.protocol import ANY_FILE, NO_FILE
from mrstream.web.s3.call import parse_http_time
from mrstream.web.s3.errors import S3Error

Header = Callable[[str], str]


def matches(value: str, etag: str) -> bool:
    for one in value.split(","):
        name = one.strip().removeprefix("W/").strip('"')
        if name in ("*", etag):
            return True
    return False


def is_unchanged(
    header: Header, prefix: str, etag: str, modified_at_s: float, *, copies: bool = False
) -> bool:
    """Is the client's copy still good (304)? Raises 412 where a condition fails; to copy is to
    have no copy, so that all of them fail so."""
    match, since = header(f"{prefix}if-match"), header(f"{prefix}if-unmodified-since")
    if match:
        if not matches(match, etag):
            raise failed(f"{prefix}if-match")
    elif since:
        at_s = parse_http_time(since)
        if at_s is not None and int(modified_at_s) > at_s:
            raise failed(f"{prefix}if-unmodified-since")
    none, newer = header(f"{prefix}if-none-match"), header(f"{prefix}if-modified-since")
    if none:
        same = matches(none, etag)
    else:
        at_s = parse_http_time(newer) if newer else None
        same = at_s is not None and int(modified_at_s) <= at_s
    if same and copies:
        raise failed(f"{prefix}if-none-match" if none else f"{prefix}if-modified-since")
    return same


def replacing(header: Header, found: Callable[[], tuple[FileId, str] | None]) -> FileId:
    """Return which file a new one may replace; `found` gives the id and ETag of what is there."""
    match, none = header("if-match"), header("if-none-match")
    if match and none:
        raise S3Error("NotImplemented", "If-Match and If-None-Match exclude each other here")
    if not match and not none:
        return ANY_FILE
    there = found()
    if none:
        if there is not None and matches(none, there[1]):
            raise failed("If-None-Match")
        return NO_FILE if there is None else there[0]
    if there is None:
        raise S3Error("NoSuchKey", "there is no object that could match")
    if not matches(match, there[1]):
        raise failed("If-Match")
    return there[0]


@dataclass(frozen=True, slots=True)
class Deleting:
    """Under what conditions an object is deleted; as they were said, empty where nothing was."""

    etag: str = ""
    size: str = ""
    modified: str = ""
    """A time as headers have it, or as XML has."""

    def __bool__(self) -> bool:
        return bool(self.etag or self.size or self.modified)

    def check(self, etag: str, size_bytes: int, modified_at_s: float) -> None:
        """Refuse to delete another object than the one that was meant."""
        if self.etag and not matches(self.etag, etag):
            raise failed("If-Match")
        if self.size and self.size != str(size_bytes):
            raise failed("x-amz-if-match-size")
        if self.modified and _time(self.modified) != int(modified_at_s):
            raise failed("x-amz-if-match-last-modified-time")


def _time(value: str) -> int | None:
    found = parse_http_time(value)
    if found is None:
        with contextlib.suppress(ValueError):
            return int(datetime.datetime.fromisoformat(value).timestamp())
    return found


def failed(condition: str) -> S3Error:
    """A condition that does not hold."""
    return S3Error("PreconditionFailed", f"{condition} does not hold", Condition=condition)
