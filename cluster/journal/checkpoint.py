"""Checkpoints: a brain's whole state in one checksummed file, whole or not there at all.

Written under a temporary name, synced, renamed, and the directory synced. Two are kept, so that one
that no longer reads back costs only a longer replay. Never holds more than a block in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from crc32c import crc32c

from mrstream.cluster.disk import Disk, read_part
from mrstream.cluster.journal.format import (
    BLOCK_BYTES,
    BLOCK_HEADER,
    CHECKPOINT_MAGIC,
    END_TRAILER,
    FILE_HEADER,
    FORMAT_VERSION,
    GROUP_HEADER,
    FileHeader,
    GroupMark,
    corrupt,
    decode_file_header,
    encode_block,
    encode_end,
    encode_file_header,
)

KEPT_COUNT = 2
_PREFIX = "checkpoint-"
_TEMPORARY = ".part"
_NO_MARKER = b"\0\0\0\0"


def checkpoint_path(directory: str, sequence: int) -> str:
    return os.path.join(directory, f"{_PREFIX}{sequence:020d}")


def list_checkpoints(disk: Disk, directory: str) -> list[int]:
    """Return the sequences of the checkpoints there, newest first."""
    names = [n.removeprefix(_PREFIX) for n in disk.list(directory) if n.startswith(_PREFIX)]
    return sorted((int(n) for n in names if n.isdigit()), reverse=True)


def write_checkpoint(
    disk: Disk, directory: str, cluster_id: str, sequence: int, pieces: Iterable[bytes]
) -> None:
    """Write the state after record `sequence`; when this returns it is durable and in place."""
    write_part(disk, directory, cluster_id, sequence, pieces)
    publish_part(disk, directory, sequence)


def write_part(
    disk: Disk, directory: str, cluster_id: str, sequence: int, pieces: Iterable[bytes]
) -> None:
    """The first half: write and sync under the temporary name (may run in a forked child)."""
    writer = CheckpointWriter(disk, directory, cluster_id, sequence)
    for piece in pieces:
        writer.add(piece)
    writer.finish()


class CheckpointWriter:
    """A checkpoint in the making, under its temporary name; `publish_part` follows `finish`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        cluster_id: str,
        sequence: int,
        group: GroupMark | None = None,
    ) -> None:
        self._disk, self._path = disk, checkpoint_path(directory, sequence) + _TEMPORARY
        self._file = disk.open(self._path, create=True)
        self._file_bytes = 0
        self._put(encode_file_header(CHECKPOINT_MAGIC, cluster_id, sequence, _NO_MARKER, group))
        self._held = bytearray()
        self._total_bytes = 0
        self._total_crc = 0

    def add(self, piece: bytes) -> None:
        """Take some more of the state; small pieces are gathered into full blocks."""
        self._held += piece
        while len(self._held) >= BLOCK_BYTES:
            self._write(bytes(self._held[:BLOCK_BYTES]))
            del self._held[:BLOCK_BYTES]

    def finish(self) -> None:
        """Write the end and sync; the checkpoint is whole from here on."""
        if self._held:
            self._write(bytes(self._held))
        self._put(encode_end(self._total_bytes, self._total_crc))
        self._file.sync()
        self._file.close()

    def abandon(self) -> None:
        """Give back what it took: nobody will ask for it."""
        self._file.close()
        self._disk.remove(self._path)

    def _write(self, block: bytes) -> None:
        self._put(encode_block(block))
        self._total_bytes += len(block)
        self._total_crc = crc32c(block, self._total_crc)

    def _put(self, data: bytes) -> None:
        self._file.write(data, self._file_bytes)
        self._file_bytes += len(data)


def publish_part(disk: Disk, directory: str, sequence: int) -> None:
    """The second half: give it its name."""
    path = checkpoint_path(directory, sequence)
    disk.rename(path + _TEMPORARY, path)
    disk.sync_directory(directory)


def remove_part(disk: Disk, directory: str, sequence: int) -> None:
    """Give back what a checkpoint took that could not be finished: the log needs the room."""
    disk.remove(checkpoint_path(directory, sequence) + _TEMPORARY)


def remove_parts(disk: Disk, directory: str) -> None:
    """Remove what a crash left under temporary names."""
    for name in disk.list(directory):
        if name.startswith(_PREFIX) and name.endswith(_TEMPORARY):
            disk.remove(os.path.join(directory, name))


def read_checkpoint_header(
    disk: Disk, directory: str, cluster_id: str, sequence: int, version_max: int = FORMAT_VERSION
) -> FileHeader:
    """Return the header of a checkpoint; raises `JournalCorrupt` where it is damaged."""
    path = checkpoint_path(directory, sequence)
    data = read_part(disk, path, 0, FILE_HEADER.size + GROUP_HEADER.size)
    header = decode_file_header(data, CHECKPOINT_MAGIC, cluster_id, path, version_max)
    if header is None or header.sequence != sequence:
        raise corrupt(path, 0, "the header of the checkpoint is damaged")
    return header


def read_checkpoint(
    disk: Disk, directory: str, cluster_id: str, sequence: int, version_max: int = FORMAT_VERSION
) -> Iterator[bytes]:
    """Yield the blocks of a checkpoint, each verified; raises `JournalCorrupt` at the first bad
    one. A caller that must not act on half a state calls `verify_checkpoint` first."""
    path = checkpoint_path(directory, sequence)
    header = read_checkpoint_header(disk, directory, cluster_id, sequence, version_max)
    at, total_bytes, total_crc = header.size_bytes, 0, 0
    while True:
        head = read_part(disk, path, at, BLOCK_HEADER.size)
        if len(head) < BLOCK_HEADER.size:
            raise corrupt(path, at, "the checkpoint ends too early")
        length, crc = BLOCK_HEADER.unpack(head)
        if length == 0 and crc == 0:
            break
        block = read_part(disk, path, at + BLOCK_HEADER.size, min(length, BLOCK_BYTES))
        if len(block) != length or crc32c(block) != crc:
            raise corrupt(path, at, f"a block of {length:,} bytes fails its checksum")
        yield block
        total_bytes += length
        total_crc = crc32c(block, total_crc)
        at += BLOCK_HEADER.size + length
    trailer = read_part(disk, path, at + BLOCK_HEADER.size, END_TRAILER.size)
    if trailer != END_TRAILER.pack(total_bytes, total_crc):
        raise corrupt(path, at, "the end of the checkpoint does not match its blocks")


def verify_checkpoint(
    disk: Disk, directory: str, cluster_id: str, sequence: int, version_max: int = FORMAT_VERSION
) -> None:
    """Read all of it; raises `JournalCorrupt` where it is damaged."""
    for _ in read_checkpoint(disk, directory, cluster_id, sequence, version_max):
        pass
