"""What a journal directory holds: the newest sound checkpoint and the records after it.

Every file's header is looked at before anything is changed or believed. A damaged checkpoint falls
back to the one before it. A bad record is corruption, and recovery stops, if any later record or
file shows that it had been durable; only a tail that nothing vouches for is torn, and cut off.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from mrstream.cluster.disk import Disk, read_part, read_whole
from mrstream.cluster.errors import JournalCorrupt
from mrstream.cluster.journal.checkpoint import (
    KEPT_COUNT,
    checkpoint_path,
    list_checkpoints,
    read_checkpoint,
    verify_checkpoint,
)
from mrstream.cluster.journal.format import (
    CHECKPOINT_MAGIC,
    FILE_HEADER,
    LOG_MAGIC,
    Record,
    corrupt,
    decode_file_header,
    decode_record,
    good_records_after,
)

_LOG_PREFIX = "log-"


@dataclass(slots=True)
class Recovery:
    """What was found. `checkpoint` and `records` are read as they are iterated, once."""

    checkpoint_sequence: int = 0
    """The state of `checkpoint` is that after this record; 0: there is none."""
    last_sequence: int = 0
    torn: str = ""
    """What was cut off the tail, for people; empty if nothing was."""
    problems: list[str] = field(default_factory=list)
    """Damage that was survived, for people."""
    unfinished_path: str | None = None
    """A log file whose creation was cut short; it holds nothing and is to be removed."""
    tail_path: str | None = None
    tail_bytes: int = 0
    _read_checkpoint: Callable[[], Iterator[bytes]] = lambda: iter(())
    _read_records: Callable[[], Iterator[tuple[int, bytes]]] = lambda: iter(())

    @property
    def checkpoint(self) -> Iterator[bytes]:
        """The blocks of the checkpoint, already verified; nothing if there is none."""
        return self._read_checkpoint()

    @property
    def records(self) -> Iterator[tuple[int, bytes]]:
        """(sequence, payload) of every record after the checkpoint, in order, no gap."""
        return self._read_records()


@dataclass(frozen=True, slots=True)
class _LogFile:
    path: str
    first: int
    end: int
    """Up to here its bytes are sound records."""
    last: int
    """The last sequence in it; first - 1 when it holds none."""


def log_path(directory: str, first_sequence: int) -> str:
    """Return where the log file that begins with that record is."""
    return os.path.join(directory, f"{_LOG_PREFIX}{first_sequence:020d}")


def list_logs(disk: Disk, directory: str) -> list[int]:
    """Return the first sequences of the log files there, oldest first."""
    names = [n.removeprefix(_LOG_PREFIX) for n in disk.list(directory) if n.startswith(_LOG_PREFIX)]
    return sorted(int(n) for n in names if n.isdigit())


def recover(disk: Disk, directory: str, cluster_id: str, marker: bytes) -> Recovery:
    """Look at everything in the directory (changing nothing) and say what is to be replayed."""
    checkpoints = list_checkpoints(disk, directory)
    logs = list_logs(disk, directory)
    _check_headers(disk, directory, cluster_id, checkpoints, logs)
    found = Recovery()
    _choose_checkpoint(disk, directory, cluster_id, checkpoints, found)
    start = found.checkpoint_sequence
    files = _scan_logs(disk, directory, cluster_id, marker, logs, start, found)
    if files and files[0].first > start + 1:
        raise JournalCorrupt(
            f"{directory}: records {start + 1} to {files[0].first - 1} are missing: the state can "
            "only come from a backup (mrstream cluster restore --master HOST --from DIR)"
        )
    # A checkpoint may be there before the file that begins after it: nothing was logged since.
    if checkpoints and not files and found.unfinished_path != log_path(directory, start + 1):
        raise JournalCorrupt(f"{directory}: the log files after the checkpoint are missing")
    found.last_sequence = max([start, *[file.last for file in files]])
    if files:
        found.tail_path, found.tail_bytes = files[-1].path, files[-1].end
    found._read_records = lambda: _records(disk, files, marker, start)
    return found


def remove_old(disk: Disk, directory: str) -> None:
    """Remove checkpoints beyond the newest two, and logs that lie wholly before the older."""
    checkpoints = list_checkpoints(disk, directory)
    for sequence in checkpoints[KEPT_COUNT:]:
        disk.remove(checkpoint_path(directory, sequence))
    if len(checkpoints) < KEPT_COUNT:
        return
    needed_from = checkpoints[KEPT_COUNT - 1] + 1
    logs = list_logs(disk, directory)
    for first, following in itertools.pairwise(logs):
        if following <= needed_from:
            disk.remove(log_path(directory, first))
    disk.sync_directory(directory)


def _check_headers(
    disk: Disk, directory: str, cluster_id: str, checkpoints: list[int], logs: list[int]
) -> None:
    files = [(checkpoint_path(directory, at), CHECKPOINT_MAGIC) for at in checkpoints]
    files += [(log_path(directory, at), LOG_MAGIC) for at in logs]
    for path, magic in files:
        decode_file_header(read_part(disk, path, 0, FILE_HEADER.size), magic, cluster_id, path)


def _choose_checkpoint(
    disk: Disk, directory: str, cluster_id: str, checkpoints: list[int], found: Recovery
) -> None:
    for sequence in checkpoints:
        try:
            verify_checkpoint(disk, directory, cluster_id, sequence)
        except JournalCorrupt as error:
            found.problems.append(str(error))
            continue
        found.checkpoint_sequence = sequence
        found._read_checkpoint = partial(read_checkpoint, disk, directory, cluster_id, sequence)
        return


def _scan_logs(
    disk: Disk,
    directory: str,
    cluster_id: str,
    marker: bytes,
    logs: list[int],
    start: int,
    found: Recovery,
) -> list[_LogFile]:
    # A file is needless if the one after it begins no later than the first record that we need.
    needless = sum(1 for following in logs[1:] if following <= start + 1)
    needed = logs[needless:]
    files: list[_LogFile] = []
    for first in needed:
        path = log_path(directory, first)
        is_last = first == needed[-1]
        data = read_whole(disk, path)
        header = decode_file_header(data, LOG_MAGIC, cluster_id, path)
        if header is None:
            if is_last and len(data) <= FILE_HEADER.size and (files or start + 1 >= first):
                # Its creation was cut short, before any record could go into it.
                found.torn = f"{path}: unfinished"
                found.unfinished_path = path
                continue
            raise corrupt(path, 0, "the header of the log is damaged")
        file = _scan_one(path, data, first, marker, is_last, found)
        if files and file.first != files[-1].last + 1:
            raise corrupt(path, 0, f"record {files[-1].last + 1} is missing before this file")
        files.append(file)
    return files


def _scan_one(
    path: str, data: bytes, first: int, marker: bytes, is_last: bool, found: Recovery
) -> _LogFile:
    end, last = FILE_HEADER.size, first - 1
    for _, record in whole_records(path, data, end, first, marker, is_last):
        end, last = record.end_bytes, record.sequence
    found.torn = torn_tail(path, data, end, last) or found.torn
    return _LogFile(path, first, end, last)


def whole_records(
    path: str, data: bytes, at: int, first: int, marker: bytes, is_last: bool
) -> Iterator[tuple[int, Record]]:
    """Yield the records of a log file from a byte on, each with its place, up to where a write was
    torn; raise `JournalCorrupt` where that cannot be what happened."""
    expected = first
    while at < len(data):
        record = decode_record(data, at, marker)
        if record is None:
            judge_bad_record(path, data, at, expected, marker, is_last)
            return
        if record.sequence != expected:
            raise corrupt(path, at, f"stands record {record.sequence}, not {expected}")
        yield at, record
        at, expected = record.end_bytes, expected + 1


def torn_tail(path: str, data: bytes, end: int, last: int) -> str:
    """Say what lies behind the last whole record of a file; empty: nothing."""
    return f"{path}: {len(data) - end:,} bytes after record {last}" if end < len(data) else ""


def judge_bad_record(
    path: str, data: bytes, at: int, expected: int, marker: bytes, is_last: bool
) -> None:
    """Raise `JournalCorrupt` unless the bad record can only be a torn write."""
    if not is_last:
        raise corrupt(path, at, f"record {expected} is damaged, and a later file follows")
    for later in good_records_after(data, at, marker):
        if later.durable >= expected:
            raise corrupt(
                path,
                at,
                f"record {expected} is damaged, which record {later.sequence} knew to be durable",
            )


def _records(
    disk: Disk, files: list[_LogFile], marker: bytes, after: int
) -> Iterator[tuple[int, bytes]]:
    for file in files:
        data = read_part(disk, file.path, 0, file.end)
        at = FILE_HEADER.size
        while at < file.end:
            record = decode_record(data, at, marker)
            if record is None:
                raise corrupt(file.path, at, "a record changed while it was being read")
            if record.sequence > after:
                yield record.sequence, record.payload
            at = record.end_bytes
