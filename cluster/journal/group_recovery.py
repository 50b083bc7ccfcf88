"""What the directory of a group's member holds: checkpoint, log, epochs, members. Changes nothing.

As `recovery`, with what a group adds: files of format 1 count as epoch 0, the list of members comes
out of the log, and a log that does not hold the checkpoint's last record is void: the checkpoint
came from another member, and everything it holds is committed (C7).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from mrstream.cluster.consensus.epochs import Epochs
from mrstream.cluster.consensus.members import MemberRows, Members
from mrstream.cluster.consensus.records import MARK, EpochBegan, MembersSet, decode_own
from mrstream.cluster.disk import Disk, read_part, read_whole
from mrstream.cluster.errors import JournalCorrupt
from mrstream.cluster.journal.checkpoint import (
    checkpoint_path,
    list_checkpoints,
    read_checkpoint,
    read_checkpoint_header,
)
from mrstream.cluster.journal.format import (
    CHECKPOINT_MAGIC,
    FILE_HEADER,
    GROUP_FORMAT_VERSION,
    GROUP_HEADER,
    LOG_MAGIC,
    FileHeader,
    corrupt,
    decode_file_header,
)
from mrstream.cluster.journal.recovery import list_logs, log_path, torn_tail, whole_records
from mrstream.cluster.wire.messages import pack, unpack

HEADER_BYTES = FILE_HEADER.size + GROUP_HEADER.size
_LENGTH = struct.Struct("<BI")
_MEMBERS_BYTES_MAX = 64 * 1024

Rows = tuple[tuple[int, Members], ...]


@dataclass(slots=True)
class LogFile:
    """One file of a member's log, with the place of each record in it."""

    path: str
    first: int
    """The sequence of its first record, or of the one that will be."""
    end: int
    """Its whole records end here; the next is written here."""
    offsets: array[int]
    """Where each record begins, in order, from `first` on without a gap."""
    is_of_group: bool = True
    """False: of a journal that was alone; it is read, and never written on."""

    @property
    def last(self) -> int:
        """The last sequence in it; first - 1 when it holds none."""
        return self.first + len(self.offsets) - 1


@dataclass(slots=True)
class GroupFound:
    journal: bytes = b""
    """The uuid; empty: nothing of a group is there."""
    checkpoint_sequence: int = 0
    shape: Epochs = field(default_factory=Epochs)
    members: MemberRows = field(default_factory=MemberRows)
    files: list[LogFile] = field(default_factory=list)
    void_paths: list[str] = field(default_factory=list)
    """Files that hold nothing any more, and are to be removed."""
    torn: str = ""
    problems: list[str] = field(default_factory=list)


def encode_members(rows: Rows) -> bytes:
    """Return what a group's checkpoint begins with: the list of members in force."""
    body = pack(rows)
    return _LENGTH.pack(MARK, len(body)) + body


def split_members(pieces: Iterator[bytes], path: str) -> tuple[Rows, Iterator[bytes]]:
    """Return the list of members that a checkpoint begins with, and the state after it."""
    first = next(pieces, b"")
    try:
        mark, length = _LENGTH.unpack_from(first)
        if mark != MARK or length > _MEMBERS_BYTES_MAX or length > len(first) - _LENGTH.size:
            raise msgspec.DecodeError(f"begins with {first[:8]!r}")
        rows: Rows = unpack(first[_LENGTH.size : _LENGTH.size + length], Rows)
    except (struct.error, msgspec.DecodeError) as error:
        raise corrupt(
            path, 0, f"the checkpoint's list of members cannot be read: {error}"
        ) from None

    def rest() -> Iterator[bytes]:
        yield first[_LENGTH.size + length :]
        yield from pieces

    return rows, rest()


def look(disk: Disk, directory: str, cluster_id: str, marker: bytes) -> GroupFound:
    """Look at everything in the directory; raise `JournalCorrupt`, `WrongCluster` or `NewerFormat`
    where it cannot be trusted."""
    found = GroupFound()
    _check_headers(disk, directory, cluster_id)
    epoch, rows = _choose_checkpoint(disk, directory, cluster_id, found)
    _scan_logs(disk, directory, cluster_id, marker, found)
    sequence = found.checkpoint_sequence
    if found.shape.at(sequence) != epoch:
        if found.problems or (found.files and found.shape.base > sequence):
            raise JournalCorrupt(f"{directory}: records after {sequence} are missing")
        found.void_paths += [file.path for file in found.files]
        found.files = []
        found.shape = Epochs(sequence, epoch)
        found.members = MemberRows()
    older = tuple(row for row in rows if row[0] <= found.shape.base)
    found.members = MemberRows((*older, *found.members.rows))
    return found


def is_of_group(disk: Disk, directory: str, cluster_id: str) -> bool:
    """Has a group ever written here? Looks at the files' headers only, however long they are."""
    return any(header.group is not None for header in _headers(disk, directory, cluster_id))


def _headers(disk: Disk, directory: str, cluster_id: str) -> Iterator[FileHeader]:
    files = [
        (checkpoint_path(directory, at), CHECKPOINT_MAGIC)
        for at in list_checkpoints(disk, directory)
    ]
    files += [(log_path(directory, at), LOG_MAGIC) for at in list_logs(disk, directory)]
    for path, magic in files:
        data = read_part(disk, path, 0, HEADER_BYTES)
        header = decode_file_header(data, magic, cluster_id, path, GROUP_FORMAT_VERSION)
        if header is not None:
            yield header


def _check_headers(disk: Disk, directory: str, cluster_id: str) -> None:
    for _ in _headers(disk, directory, cluster_id):
        pass


def _choose_checkpoint(
    disk: Disk, directory: str, cluster_id: str, found: GroupFound
) -> tuple[int, Rows]:
    for sequence in list_checkpoints(disk, directory):
        try:
            header, rows = _verified(disk, directory, cluster_id, sequence)
        except JournalCorrupt as error:
            found.problems.append(str(error))
            continue
        found.checkpoint_sequence = sequence
        if header.group is None:
            return 0, ()
        found.journal = header.group.journal
        return header.group.epoch, rows
    return 0, ()


def _verified(
    disk: Disk, directory: str, cluster_id: str, sequence: int
) -> tuple[FileHeader, Rows]:
    version = GROUP_FORMAT_VERSION
    header = read_checkpoint_header(disk, directory, cluster_id, sequence, version)
    pieces = read_checkpoint(disk, directory, cluster_id, sequence, version)
    rows: Rows = ()
    if header.group is not None:
        rows, pieces = split_members(pieces, checkpoint_path(directory, sequence))
    for _ in pieces:
        pass
    return header, rows


def _scan_logs(
    disk: Disk, directory: str, cluster_id: str, marker: bytes, found: GroupFound
) -> None:
    logs = list_logs(disk, directory)
    for first in logs:
        path = log_path(directory, first)
        data = read_whole(disk, path)
        header = decode_file_header(data, LOG_MAGIC, cluster_id, path, GROUP_FORMAT_VERSION)
        is_last = first == logs[-1]
        if header is None:
            if is_last and len(data) <= HEADER_BYTES:
                found.torn = f"{path}: unfinished"
                found.void_paths.append(path)
                continue
            raise corrupt(path, 0, "the header of the log is damaged")
        _begin_file(path, header, first, found)
        _scan_one(path, data, marker, is_last, found)


def _begin_file(path: str, header: FileHeader, first: int, found: GroupFound) -> None:
    """Go on with a file where the one before it ended, or from a checkpoint."""
    epoch = 0 if header.group is None else header.group.epoch
    if header.group is not None:
        found.journal = header.group.journal
    if found.files and first == found.files[-1].last + 1:
        if found.shape.last_epoch != epoch:
            raise corrupt(path, 0, f"epoch {found.shape.last_epoch} goes before, not {epoch}")
    elif first <= found.checkpoint_sequence + 1:
        found.void_paths += [file.path for file in found.files]
        found.files = []
        found.shape = Epochs(first - 1, epoch)
        found.members = MemberRows()
    else:
        raise corrupt(path, 0, "records are missing before this file")
    empty: array[int] = array("Q")
    found.files.append(LogFile(path, first, header.size_bytes, empty, header.group is not None))


def _scan_one(path: str, data: bytes, marker: bytes, is_last: bool, found: GroupFound) -> None:
    file = found.files[-1]
    for at, record in whole_records(path, data, file.end, file.first, marker, is_last):
        note_record(record.payload, found.shape, found.members, path)
        file.offsets.append(at)
        file.end = record.end_bytes
    found.torn = torn_tail(path, data, file.end, file.last) or found.torn


def note_record(payload: bytes, shape: Epochs, members: MemberRows, path: str) -> None:
    """Let the shape of a log grow by one record."""
    try:
        own = decode_own(payload)
    except msgspec.DecodeError as error:
        raise corrupt(path, 0, f"record {shape.last + 1} cannot be read: {error}") from None
    epoch = own.epoch if isinstance(own, EpochBegan) else shape.last_epoch
    if epoch < shape.last_epoch:
        raise corrupt(path, 0, f"record {shape.last + 1} goes back to epoch {epoch}")
    shape.add(epoch)
    if isinstance(own, MembersSet):
        members.add(shape.last, own.members)
