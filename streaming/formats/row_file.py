"""What every reader of records in a foreign format is given, and what it gives.

A reader takes a seekable file and a range [start, end) of it, and gives the records that are the
range's own as whole lines: those whose unit (a row group, a block between sync marks, a member)
begins in the range. So files may be cut anywhere, without a look inside, and every record is in
exactly one range. Decoders of foreign bytes raise `RecordFileCorrupt` with one line.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from mrstream.cluster.errors import Corrupt, UserError

T = TypeVar("T")


class RecordFileCorrupt(Corrupt):
    """A file that is not what its format says; the message names the file and the place."""


class BadRowSetting(UserError):
    """A setting of a format makes no sense, or does not fit the file."""


class Source(Protocol):
    """A file as the engine opens it: `read` may give fewer bytes than were asked for."""

    url: str

    def read(self, count: int = -1, /) -> bytes: ...

    def seek(self, position: int, whence: int = 0, /) -> int: ...


class RowReader(Protocol):
    """The records of one range of a file, as lines."""

    records: int
    """How many were given so far."""

    def lines(self) -> Iterator[bytes]:
        """Return blobs of whole lines."""

    @property
    def position(self) -> int:
        """The byte of the file up to which records were given, about."""


class WholeReads:
    """A file as libraries want it: a read gives all that was asked for, or the file ends."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.url = source.url
        self.closed = False
        self.size = source.seek(0, io.SEEK_END)
        self._at = source.seek(0)

    def read(self, count: int | None = -1) -> bytes:
        left = self.size - self._at
        wanted = left if count is None or count < 0 else min(count, left)
        parts: list[bytes] = []
        while wanted > 0:
            part = self._source.read(wanted)
            if not part:
                break
            parts.append(part)
            wanted -= len(part)
            self._at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def seek(self, position: int, whence: int = 0) -> int:
        base = (0, self._at, self.size)[whence]
        self._at = self._source.seek(max(0, base + position))
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """There is nothing to write."""

    def close(self) -> None:
        """Leave the file open: who opened it closes it."""
        self.closed = True


def told(url: str, error: BaseException) -> RecordFileCorrupt:
    """Return a library's complaint as one line that names the file."""
    words = " ".join(str(error).split()) or type(error).__name__
    return RecordFileCorrupt(f"{url}: {words[:300]}")


def decoded(url: str, decode: Callable[[], T]) -> T:
    """Return what `decode` gives; whatever a library raises over foreign bytes is the file's fault.

    What is ours (a setting that does not fit) and what is the machine's (a disk, memory) passes.
    """
    try:
        return decode()
    except (UserError, Corrupt, MemoryError):
        raise
    except OSError as error:
        # Libraries say OSError for bad bytes too; only the system's own has a number.
        if error.errno is not None:
            raise
        raise told(url, error) from None
    except Exception as error:
        raise told(url, error) from None


def guarded(url: str, items: Iterator[T]) -> Iterator[T]:
    """Yield the items, with `decoded` around each step."""
    nothing = object()
    while True:
        item = decoded(url, lambda: next(items, nothing))
        if item is nothing:
            return
        yield item  # type: ignore[misc]  # what is not `nothing` is an item
