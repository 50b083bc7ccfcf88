"""One member's log of a group on its disk: written, synced, cut, read, checkpointed.

Everything here blocks and is called by one thread at a time; what may be done when is the brain's
matter (`cluster/consensus`). `write` leaves records in the cache, `sync` and `cut` return when the
disk has them. A checkpoint is given its name only once its last record is committed (C7).
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence

from mrstream.cluster.consensus.epochs import UNKNOWN, Epochs
from mrstream.cluster.consensus.members import MemberRows
from mrstream.cluster.disk import Disk, DiskFile, OsDisk, make_directory, read_part
from mrstream.cluster.journal import checkpoint
from mrstream.cluster.journal.format import (
    GROUP_FORMAT_VERSION,
    LOG_MAGIC,
    GroupMark,
    corrupt,
    decode_record,
    encode_file_header,
    encode_record,
)
from mrstream.cluster.journal.group_recovery import (
    GroupFound,
    LogFile,
    Rows,
    encode_members,
    look,
    note_record,
    split_members,
)
from mrstream.cluster.journal.recovery import list_logs, log_path, remove_old

log = logging.getLogger(__name__)

READ_BYTES_MAX = 8 * 1024 * 1024


class GroupLog:
    """The log of one member; `open` first."""

    def __init__(self, directory: str, cluster_id: str, disk: Disk | None = None) -> None:
        self.directory = os.path.abspath(directory)
        self.cluster_id = cluster_id
        self._disk: Disk = OsDisk() if disk is None else disk
        self._marker = hashlib.sha256(cluster_id.encode()).digest()[:4]
        self._file: DiskFile | None = None
        """The newest of `_found.files`, open from `open` to `close`."""
        self._found = GroupFound()
        """The log as it is now, in files, epochs and members; changed only after the disk was."""
        self.synced = 0
        """The disk holds the log up to here; never beyond `last`."""

    # --- beginning

    def look(self) -> GroupFound:
        """Say what is there, and change nothing."""
        return look(self._disk, self.directory, self.cluster_id, self._marker)

    def open(self, new_journal: bytes) -> GroupFound:
        """Go on from what is there: cut a torn tail off, open the files. Where there is nothing of
        a group yet, `new_journal` is the uuid of the journal from now on."""
        assert self._file is None, "a log is opened once"
        found = self._found = self.look()
        is_new = not found.journal
        found.journal = found.journal or new_journal
        assert len(found.journal) == 16
        make_directory(self._disk, self.directory)
        for path in found.void_paths:
            self._disk.remove(path)
        if found.void_paths:  # one that came back would follow a file whose tail may be torn
            self._disk.sync_directory(self.directory)
        self.synced = found.shape.last
        if found.files and not is_new and found.files[-1].is_of_group:
            self._reopen(found.files[-1])
        else:
            self._begin_file()
        checkpoint.remove_parts(self._disk, self.directory)
        return found

    def close(self) -> None:
        """Give the files back; what was not synced may be lost."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def journal(self) -> bytes:
        """The uuid of this journal."""
        return self._found.journal

    def look_at_shape(self) -> Epochs:
        """Where the log begins and ends, and its epochs; never to be changed."""
        return self._found.shape

    def look_at_members(self) -> MemberRows:
        """The lists of members that the log holds; never to be changed."""
        return self._found.members

    @property
    def last(self) -> int:
        return self._found.shape.last

    @property
    def base(self) -> int:
        """Records after this one are kept one by one."""
        return self._found.shape.base

    # --- records

    def write(self, first: int, records: Sequence[bytes]) -> None:
        """Append records, into the cache; a failed write leaves the log as it was."""
        assert self._file is not None and first == self.last + 1, (first, self.last)
        found, file = self._found, self._found.files[-1]
        pieces = [
            encode_record(self._marker, first + at, self.synced, payload)
            for at, payload in enumerate(records)
        ]
        try:
            self._file.write(b"".join(pieces), file.end)
        except OSError:
            self._file.truncate(file.end)
            raise
        for piece, payload in zip(pieces, records, strict=True):
            note_record(payload, found.shape, found.members, file.path)
            file.offsets.append(file.end)
            file.end += len(piece)

    def sync(self) -> int:
        """Make durable what was written; return how far that is."""
        assert self._file is not None
        last = self.last
        self._file.sync()
        self.synced = last
        return last

    def cut(self, after: int) -> None:
        """Cut off all records after `after`, durably."""
        assert self._file is not None and self.base <= after <= self.last
        found = self._found
        if found.files[-1].first > after + 1:
            # Newer files first: what a crash leaves is the log up to some record.
            self._file.close()
            while found.files[-1].first > after + 1:
                self._disk.remove(found.files.pop().path)
                self._disk.sync_directory(self.directory)
            self._file = self._disk.open(found.files[-1].path, write=True)
        file = found.files[-1]
        kept = after - file.first + 1
        if kept < len(file.offsets):
            file.end = file.offsets[kept]
            del file.offsets[kept:]
        self._file.truncate(file.end)
        self._file.sync()
        found.shape.cut(after)
        found.members.cut(after)
        self.synced = min(self.synced, after)

    def read(self, first: int, last: int, bytes_max: int = READ_BYTES_MAX) -> tuple[bytes, ...]:
        """Return the payloads of records `first` to `last`, or of the first of them that fit."""
        payloads: list[bytes] = []
        held = 0
        for file in self._found.files:
            while file.first <= first <= min(last, file.last):
                payload = self._read_one(file, first)
                if payloads and held + len(payload) > bytes_max:
                    return tuple(payloads)
                payloads.append(payload)
                held += len(payload)
                first += 1
        return tuple(payloads)

    def _read_one(self, file: LogFile, sequence: int) -> bytes:
        at = sequence - file.first
        start = file.offsets[at]
        end = file.offsets[at + 1] if at + 1 < len(file.offsets) else file.end
        record = decode_record(
            read_part(self._disk, file.path, start, end - start), 0, self._marker
        )
        if record is None or record.sequence != sequence:
            raise corrupt(file.path, start, f"record {sequence} changed since it was written")
        return record.payload

    # --- checkpoints

    def rotate(self) -> None:
        """Begin a new file with the next record, if there is room for one: else the one that there
        is goes on, and is only kept for longer."""
        assert self._file is not None
        if not self._found.files[-1].offsets:
            return
        self.sync()
        old = self._file
        try:
            self._begin_file()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            log.error("%s: no room for a new file of the log: %s", self.directory, error)
        else:
            old.close()

    def begin_checkpoint(
        self, sequence: int, epoch: int | None = None, rows: Rows | None = None
    ) -> checkpoint.CheckpointWriter:
        """Begin the state after record `sequence`; epoch and members are given where it comes from
        another member. `publish_checkpoint` follows once it is finished and committed."""
        found = self._found
        epoch = found.shape.at(sequence) if epoch is None else epoch
        assert epoch != UNKNOWN, f"record {sequence} is not in the log"
        mark = GroupMark(epoch, found.journal)
        writer = checkpoint.CheckpointWriter(
            self._disk, self.directory, self.cluster_id, sequence, mark
        )
        writer.add(encode_members(found.members.at(sequence) if rows is None else rows))
        return writer

    def write_checkpoint_part(self, sequence: int, pieces: Iterable[bytes]) -> None:
        """Write the state after `sequence` under a temporary name (may run in a forked child)."""
        writer = self.begin_checkpoint(sequence)
        for piece in pieces:
            writer.add(piece)
        writer.finish()

    def publish_checkpoint(self, sequence: int) -> int:
        """Let a finished checkpoint count, drop what is needless; return the new `base`."""
        checkpoint.publish_part(self._disk, self.directory, sequence)
        remove_old(self._disk, self.directory)
        kept = set(list_logs(self._disk, self.directory))
        found = self._found
        found.files = [file for file in found.files if file.first in kept]
        base = found.files[0].first - 1
        found.shape.forget(base)
        found.members.forget(base)
        return base

    def read_checkpoint(self) -> tuple[int, int, Rows, Iterator[bytes]] | None:
        """Return (sequence, epoch, members, state) of the newest checkpoint."""
        for sequence in checkpoint.list_checkpoints(self._disk, self.directory)[:1]:
            place = (self._disk, self.directory, self.cluster_id, sequence, GROUP_FORMAT_VERSION)
            header = checkpoint.read_checkpoint_header(*place)
            pieces = checkpoint.read_checkpoint(*place)
            if header.group is None:
                return sequence, 0, (), pieces
            path = checkpoint.checkpoint_path(self.directory, sequence)
            rows, pieces = split_members(pieces, path)
            return sequence, header.group.epoch, rows, pieces
        return None

    # --- files

    def _reopen(self, file: LogFile) -> None:
        self._file = self._disk.open(file.path, write=True)
        if file.end < self._file.size():
            self._file.truncate(file.end)
        # After a crash of the process alone the last records may only be in the cache.
        self._file.sync()

    def _begin_file(self) -> None:
        found = self._found
        first = found.shape.last + 1
        mark = GroupMark(found.shape.last_epoch, found.journal)
        header = encode_file_header(LOG_MAGIC, self.cluster_id, first, self._marker, mark)
        path = log_path(self.directory, first)
        file = self._disk.open(path, create=True)
        try:
            file.write(header, 0)
            file.sync()
            self._disk.sync_directory(self.directory)
        except OSError:
            file.close()
            self._disk.remove(path)
            raise
        self._file = file
        found.files = [old for old in found.files if old.first != first]
        found.files.append(LogFile(path, first, len(header), array("Q")))
