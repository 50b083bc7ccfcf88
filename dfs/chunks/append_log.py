"""Who appended what to a chunk last, so that a repeated append has no second effect (EV-08).

A chunk of a file whose appends are serialised has a log of them beside its header: one entry for
each append, written together with the bytes. The entry of an appender that comes last counts. A log
that is full is begun anew, in the other of two places, with the entries that count; so is one
behind whose end an entry may lie that does not count: after a power cut it must not stand for
another that was to be written there. Bytes in, bytes out: never does any IO. The format is that of
docs/formats/chunk.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from mrstream.dfs.chunk import BLOCK_BYTES, CHUNK_BYTES_MAX
from mrstream.dfs.errors import ChunkCorrupt
from mrstream.dfs.transfer.chunk_format import ENTRY_BYTES, TABLE_AT_BYTES

APPENDERS_MAX = 4096
"""So many appenders are remembered of a chunk; the one that was silent longest goes first."""
LOG_ENTRIES_MAX = 2 * APPENDERS_MAX
PADDING = 0
"""In place of an appender: nobody's bytes, the rest of a chunk that a record did not fit into."""
ROUNDS = 1 << 16

_ENTRY = struct.Struct("<QQQII")
_CRC = struct.Struct("<I")
_SEED = struct.Struct("<QII")
STORED_BYTES = _ENTRY.size + _CRC.size
LOG_AT_BYTES = TABLE_AT_BYTES + CHUNK_BYTES_MAX // BLOCK_BYTES * ENTRY_BYTES
"""Behind the checksums of the longest chunk that there can be: before it the file has a hole."""
LOG_BYTES = LOG_ENTRIES_MAX * STORED_BYTES


class Appended(NamedTuple):
    """The last append of one appender."""

    appender: int
    number: int
    at: int
    """Where its bytes begin in the file."""
    length_bytes: int
    end: int
    """Where they end in this chunk; 0: they are in a chunk before it."""


class Step(NamedTuple):
    """What the log has more: these entries, from that place on."""

    round: int
    first: int
    entries: Sequence[Appended]

    @property
    def stop(self) -> int:
        """How many entries the log has then."""
        return self.first + len(self.entries)


@dataclass(slots=True)
class AppendLog:
    """The appends of one chunk, those that it inherited first."""

    handle: int
    round: int
    entries: list[Appended]
    _last: dict[int, Appended]
    _is_clean: bool

    def __init__(
        self,
        handle: int,
        round: int = 0,
        entries: Iterable[Appended] = (),
        *,
        is_clean: bool = False,
    ) -> None:
        """`is_clean`: nothing was ever written behind these entries."""
        self.handle = handle
        self.round = round
        self.entries = list(entries)
        self._is_clean = is_clean
        self._replay()

    def _replay(self) -> None:
        self._last = {}
        for entry in self.entries:
            self._count(entry)

    def _count(self, entry: Appended) -> None:
        self._last.pop(entry.appender, None)
        self._last[entry.appender] = entry
        if len(self._last) > APPENDERS_MAX:
            del self._last[next(iter(self._last))]

    def last_of(self, appender: int) -> Appended | None:
        """What that appender appended last, as far as is remembered."""
        return self._last.get(appender)

    @property
    def newest(self) -> Appended | None:
        return self.entries[-1] if self.entries else None

    def next(self, entry: Appended) -> Step:
        """What is to be written so that the log has one entry more."""
        if self._is_clean and len(self.entries) < LOG_ENTRIES_MAX:
            return Step(self.round, len(self.entries), [entry])
        # What the slot in force vouches for stays: the other place is written.
        return Step((self.round + 1) % ROUNDS, 0, [*self._last.values(), entry])

    def take(self, step: Step) -> None:
        """It is written."""
        if step.round != self.round:
            self.round, self.entries = step.round, []
            self._is_clean = True
        for entry in step.entries:
            self.entries.append(entry)
            self._count(entry)

    def kept(self, length: int) -> int:
        """How many entries are left of a chunk that is cut to this length."""
        count = len(self.entries)
        while count and self.entries[count - 1].end > length:
            count -= 1
        return count

    def cut(self, count: int) -> None:
        """Forget all entries but the first so many."""
        if count < len(self.entries):
            del self.entries[count:]
            self._replay()
            self.soil()

    def soil(self) -> None:
        """Something lies behind the entries, or may."""
        self._is_clean = False

    def table(self, length: int) -> list[Appended]:
        """What counts in a chunk of this length: an entry for each appender, oldest first."""
        count = self.kept(length)
        if count == len(self.entries):
            return list(self._last.values())
        return AppendLog(self.handle, self.round, self.entries[:count]).table(length)


def inherited(table: Iterable[Appended]) -> list[Appended]:
    """The table of a chunk as the next chunk of the file begins with it."""
    return [entry._replace(end=0) for entry in table if entry.appender != PADDING]


def pack_table(table: Iterable[Appended]) -> bytes:
    """Return entries as they go from server to server, 32 bytes each."""
    return b"".join(_ENTRY.pack(*entry) for entry in table)


def unpack_table(packed: bytes) -> list[Appended]:
    """Return the entries; ChunkCorrupt when the string cannot be a table."""
    if len(packed) % _ENTRY.size or len(packed) > APPENDERS_MAX * _ENTRY.size:
        raise ChunkCorrupt(
            f"a table of appends of {len(packed)} bytes; entries have {_ENTRY.size}, and there are "
            f"at most {APPENDERS_MAX}"
        )
    return [Appended(*fields) for fields in _ENTRY.iter_unpack(packed)]


def place_bytes(round: int, index: int) -> int:
    """Where in the checksum file an entry is: rounds take turns with the two places."""
    return LOG_AT_BYTES + round % 2 * LOG_BYTES + index * STORED_BYTES


def encode_entries(handle: int, step: Step) -> bytes:
    """Return the entries as they are stored: none counts in another chunk, round or place."""
    parts = []
    for index, entry in enumerate(step.entries, step.first):
        body = _ENTRY.pack(*entry)
        parts.append(body + _CRC.pack(_crc(handle, step.round, index, body)))
    return b"".join(parts)


def decode_entries(handle: int, round: int, count: int, stored: bytes) -> list[Appended]:
    """Return the first `count` entries of a log; ChunkCorrupt if one is not what was written."""
    entries = []
    for index in range(count):
        one = stored[index * STORED_BYTES : (index + 1) * STORED_BYTES]
        body = one[: _ENTRY.size]
        if len(one) < STORED_BYTES or _CRC.unpack_from(one, _ENTRY.size)[0] != _crc(
            handle, round, index, body
        ):
            raise ChunkCorrupt(
                f"chunk {handle:016x}: entry {index} of {count} in its log of appends is damaged",
                handle=handle,
            )
        entries.append(Appended(*_ENTRY.unpack(body)))
    return entries


def _crc(handle: int, round: int, index: int, body: bytes) -> int:
    return int(crc32c(body, crc32c(_SEED.pack(handle, round, index))))
