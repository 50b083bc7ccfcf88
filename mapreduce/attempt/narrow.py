"""Narrows a failure down to the records that cause it, and cuts those out of an input.

`narrow` is pure: it asks whether a range of records fails, about twice log2 of their number, and
gives the smallest range that still does. `RecordIndex` says where records lie in a file of a
command's input; `without` leaves ranges of records out of a stream. Never runs a program itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from mrstream.streaming.formats.record_io import record_cutter
from mrstream.streaming.records.key_value import KeyValueRule

Range = tuple[int, int]
_READ_BYTES = 1 << 20


def narrow(fails: Callable[[int, int], bool], records: int) -> Range | None:
    """Return the smallest range [first, behind) of records that fails; None if all together do not.

    A program fails when it has read its last bad record, so the shortest failing beginning ends
    with that one; and the shortest failing end of that beginning holds all that it needs to fail.
    """
    if not fails(0, records):
        return None
    if records == 0 or fails(0, 0):
        return 0, 0
    behind = _first_true(lambda end: fails(0, end), 1, records)
    if fails(behind - 1, behind):
        return behind - 1, behind
    # Longer ends fail, shorter ones do not: look for the border from the right.
    length = _first_true(lambda n: fails(behind - n, behind), 2, behind)
    return behind - length, behind


def _first_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least number in [low, high] for which `holds`; it is known to hold for `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


class RecordIndex:
    """Where the records of a command's input lie in a file."""

    def __init__(self, path: str, identifier: str) -> None:
        self._path = path
        self.ends = array("Q")
        if identifier in ("text", "keyonlytext"):
            self._index_lines()
        else:
            self._index_binary(identifier)

    def __len__(self) -> int:
        return len(self.ends)

    def start(self, record: int) -> int:
        """Return the offset at which a record begins; of the number behind the last, the end."""
        return self.ends[record - 1] if record else 0

    def read(self, first: int, behind: int) -> bytes:
        """Return the bytes of a range of records."""
        start = self.start(first)
        with open(self._path, "rb") as file:
            file.seek(start)
            return file.read(self.start(behind) - start)

    def blobs(self, first: int, behind: int) -> Iterator[bytes]:
        """Yield the same, piece by piece."""
        left = self.start(behind) - self.start(first)
        with open(self._path, "rb") as file:
            file.seek(self.start(first))
            while left > 0 and (blob := file.read(min(left, _READ_BYTES))):
                left -= len(blob)
                yield blob

    def _index_lines(self) -> None:
        offset = 0
        with open(self._path, "rb") as file:
            while blob := file.read(_READ_BYTES):
                at = blob.find(b"\n")
                while at >= 0:
                    self.ends.append(offset + at + 1)
                    at = blob.find(b"\n", at + 1)
                offset += len(blob)
        if offset and (not self.ends or self.ends[-1] < offset):
            self.ends.append(offset)

    def _index_binary(self, identifier: str) -> None:
        cutter = record_cutter(identifier, KeyValueRule())
        framing_bytes = 8 if identifier == "rawbytes" else 0
        offset = 0
        with open(self._path, "rb") as file:
            while blob := file.read(_READ_BYTES):
                for key, value in cutter.feed(blob):
                    offset += framing_bytes + len(key) + len(value)
                    self.ends.append(offset)


def without(lines: Iterable[bytes], skipped: Sequence[Range]) -> Iterator[bytes]:
    """Yield a stream of whole lines without some ranges of them; ranges are in order, apart."""
    ranges = list(skipped)
    record = 0
    for blob in lines:
        count = blob.count(b"\n")
        if not ranges or record + count <= ranges[0][0]:
            record += count
            yield blob
            continue
        kept: list[bytes] = []
        for line in _lf_lines(blob):
            while ranges and record >= ranges[0][1]:
                del ranges[0]
            if not ranges or record < ranges[0][0]:
                kept.append(line)
            record += 1
        yield b"".join(kept)


def _lf_lines(blob: bytes) -> list[bytes]:
    """Cut at line feeds alone: `splitlines` knows carriage returns too."""
    parts = blob.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines
