"""What a chunk is: its names, its limits, and the packed form in which servers list theirs.

Shared by master, chunkservers and clients; never does any IO.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NewType

ChunkHandle = NewType("ChunkHandle", int)
"""64 bits, given out by the master, never used twice (GFS §2.3)."""

ChunkVersion = NewType("ChunkVersion", int)
"""Raised at every new lease and every seal; tells a stale replica from a good one (GFS §4.5)."""

ServerId = NewType("ServerId", str)
"""The name of the chunkserver's host in cluster.yaml."""

FileId = NewType("FileId", int)
"""A file or directory as long as it lives, whatever it is called; never used twice."""

Epoch = NewType("Epoch", int)
"""One opening of one file for writing by one client; a later opening fences the earlier."""

Fence = tuple[str, int]
"""(name, generation): a change under it is refused once a higher generation was seen."""

HIDDEN_NAME = ".mrstream-"
"""Names that begin so are of what is unfinished; no listing shows them."""

CHUNK_BYTES_DEFAULT = 64 * 1024 * 1024
CHUNK_BYTES_MIN = 64 * 1024
CHUNK_BYTES_MAX = 1 << 31
BLOCK_BYTES = 64 * 1024
"""The unit of checksumming (GFS §5.2)."""

RECORD_FRACTION_OF_CHUNK = 4
"""A record append may be at most this part of a chunk (GFS §3.3: one fourth)."""

REPLICATION_DEFAULT = 3
REPLICATION_MAX = 64
FIRST_VERSION = ChunkVersion(1)
NO_HANDLE = ChunkHandle(0)
NO_EPOCH = Epoch(0)
NO_FENCE: Fence = ("", 0)


_EPOCH_BITS = 32
_CELL_SHIFT = 56

ROOT_CELL = 0


def first_of_cell(cell: int) -> int:
    """Return the number below all handles and file ids of a cell; those of two cells never meet."""
    return cell << _CELL_SHIFT


def cell_of(number: int) -> int:
    """Return the cell whose master gave out this handle or file id."""
    return number >> _CELL_SHIFT


def first_command_id(epoch: int) -> int:
    """Return the id of the first command of a master's epoch; those of two epochs never meet."""
    return epoch << _EPOCH_BITS | 1


def unasked_command_id(epoch: int) -> int:
    """Return the id of what a master allowed rather than commanded: nobody waits for an answer."""
    return epoch << _EPOCH_BITS


def epoch_of_command(command_id: int) -> int:
    return command_id >> _EPOCH_BITS


def handle_name(handle: int) -> str:
    """Return the handle as people read it and as chunk files are called: 16 hex digits."""
    return f"{handle:016x}"


class ChunkReport(NamedTuple):
    """One replica as its server sees it."""

    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int


_REPORT = struct.Struct("<QQI")


def pack_reports(reports: Iterable[ChunkReport]) -> bytes:
    """Return many reports as one byte string, 20 bytes each (a server may hold a million)."""
    return b"".join(_REPORT.pack(*report) for report in reports)


def unpack_reports(packed: bytes) -> Iterator[ChunkReport]:
    """Yield the reports back; raise ValueError when the string has a wrong length."""
    if len(packed) % _REPORT.size:
        raise ValueError(f"chunk report of {len(packed)} bytes is not a multiple of {_REPORT.size}")
    for handle, version, length_bytes in _REPORT.iter_unpack(packed):
        yield ChunkReport(ChunkHandle(handle), ChunkVersion(version), length_bytes)
