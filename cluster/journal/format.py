"""The bytes of journal and checkpoint files; the grammar is docs/formats/journal.md. Sans-IO.

`durable` in each record is the last sequence that was known to be on disk when the record was
written. It tells a torn write from corruption: a bad record that a later record calls durable was
acknowledged and has been lost; one that no later record vouches for never was.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from mrstream.cluster.errors import JournalCorrupt, NewerFormat, WrongCluster

FORMAT_VERSION = 1
"""Of a journal that one process keeps for itself."""
GROUP_FORMAT_VERSION = 2
"""Of a journal that is one member's log of a group; such a member also reads the other."""
LOG_MAGIC = b"MRSLOG\r\n"
CHECKPOINT_MAGIC = b"MRSCKP\r\n"
ID_BYTES_MAX = 64
RECORD_BYTES_MAX = 64 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024

FILE_HEADER = struct.Struct("<8sI64sQ4sI")
"""Magic, format version, cluster id, sequence, marker, CRC32C of all before it."""
GROUP_HEADER = struct.Struct("<Q16sI")
"""After the header of a file of a group: epoch, journal, CRC32C of both. The header before it is as
it ever was, so that older software reads its version first, and refuses."""
RECORD_HEADER = struct.Struct("<4sIQQI")
"""Marker, payload length, sequence, durable, CRC32C of length, sequence, durable and payload."""
_CHECKED_FIELDS = struct.Struct("<IQQ")
BLOCK_HEADER = struct.Struct("<II")
"""Payload length, CRC32C of it; length 0 ends the file."""
END_TRAILER = struct.Struct("<QI")
"""After the last block: bytes in all blocks, CRC32C over all of them."""


@dataclass(frozen=True, slots=True)
class GroupMark:
    """Whose log a file is part of, and how its epochs go on."""

    epoch: int
    """Of the record before the first of a log file, or of the last that a checkpoint includes."""
    journal: bytes
    """The uuid of the journal: with the host, the name of the member."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What stands at the start of a journal or checkpoint file."""

    cluster_id: str
    sequence: int
    marker: bytes
    group: GroupMark | None = None
    """None: format 1, all of whose records are of epoch 0."""

    @property
    def size_bytes(self) -> int:
        """Where the header ends."""
        return FILE_HEADER.size + (0 if self.group is None else GROUP_HEADER.size)


@dataclass(frozen=True, slots=True)
class Record:
    """One journal record as it was read."""

    sequence: int
    durable: int
    payload: bytes
    end_bytes: int
    """Where the record ends in its file."""


def encode_file_header(
    magic: bytes, cluster_id: str, sequence: int, marker: bytes, group: GroupMark | None = None
) -> bytes:
    name = cluster_id.encode()
    assert len(name) <= ID_BYTES_MAX and len(marker) == 4
    version = FORMAT_VERSION if group is None else GROUP_FORMAT_VERSION
    checked = FILE_HEADER.pack(magic, version, name, sequence, marker, 0)[:-4]
    header = checked + struct.pack("<I", crc32c(checked))
    if group is None:
        return header
    more = GROUP_HEADER.pack(group.epoch, group.journal, 0)[:-4]
    return header + more + struct.pack("<I", crc32c(more))


def decode_file_header(
    data: bytes, magic: bytes, cluster_id: str, path: str, version_max: int = FORMAT_VERSION
) -> FileHeader | None:
    """Return the header; None when its bytes are not whole (a file whose creation was cut short).

    Raises `NewerFormat` or `WrongCluster` for data that is whole but not ours to touch.
    """
    if len(data) < FILE_HEADER.size:
        return None
    found, version, name, sequence, marker, crc = FILE_HEADER.unpack_from(data)
    if crc32c(data[: FILE_HEADER.size - 4]) != crc or found != magic:
        return None
    if version > version_max:
        raise NewerFormat(
            f"{path} has format {version}; this version reads up to {version_max} and leaves "
            "it alone: run the version that wrote it, or a newer one"
        )
    owner = name.rstrip(b"\0").decode()
    if owner != cluster_id:
        raise WrongCluster(
            f"{path} belongs to cluster {owner}, not to {cluster_id}: another cluster used this "
            "directory; give this one a directory of its own"
        )
    if version < GROUP_FORMAT_VERSION:
        return FileHeader(owner, sequence, marker)
    more = data[FILE_HEADER.size : FILE_HEADER.size + GROUP_HEADER.size]
    if len(more) < GROUP_HEADER.size or crc32c(more[:-4]) != GROUP_HEADER.unpack(more)[2]:
        return None
    epoch, journal, _ = GROUP_HEADER.unpack(more)
    return FileHeader(owner, sequence, marker, GroupMark(epoch, journal))


def encode_record(marker: bytes, sequence: int, durable: int, payload: bytes) -> bytes:
    length = len(payload)
    assert 0 < length <= RECORD_BYTES_MAX, f"a record of {length} bytes"
    crc = crc32c(payload, crc32c(_CHECKED_FIELDS.pack(length, sequence, durable)))
    return RECORD_HEADER.pack(marker, length, sequence, durable, crc) + payload


def decode_record(data: bytes, at: int, marker: bytes) -> Record | None:
    """Return the record that begins there, or None if no whole and sound one does."""
    if len(data) - at < RECORD_HEADER.size:
        return None
    found, length, sequence, durable, crc = RECORD_HEADER.unpack_from(data, at)
    start = at + RECORD_HEADER.size
    if found != marker or not 0 < length <= RECORD_BYTES_MAX or len(data) - start < length:
        return None
    payload = data[start : start + length]
    if crc32c(payload, crc32c(_CHECKED_FIELDS.pack(length, sequence, durable))) != crc:
        return None
    return Record(sequence, durable, payload, start + length)


def good_records_after(data: bytes, at: int, marker: bytes) -> Iterator[Record]:
    """Yield every sound record that begins after `at`, wherever it stands."""
    at = data.find(marker, at + 1)
    while at >= 0:
        record = decode_record(data, at, marker)
        if record is not None:
            yield record
            at = record.end_bytes - 1
        at = data.find(marker, at + 1)


def encode_block(payload: bytes) -> bytes:
    return BLOCK_HEADER.pack(len(payload), crc32c(payload)) + payload


def encode_end(total_bytes: int, total_crc: int) -> bytes:
    """Return what ends a checkpoint, without which it does not count."""
    return BLOCK_HEADER.pack(0, 0) + END_TRAILER.pack(total_bytes, total_crc)


def corrupt(path: str, at: int, what: str) -> JournalCorrupt:
    """Return the error for damage at a place of a file."""
    return JournalCorrupt(f"{path}: at byte {at:,} {what}", path=path, offset=at)
