"""The log of a master as files in a folder here: fetched, proven, and made that of a lone master.

Of a log only its checkpoints and its log files count: votes and promises are the member's own, and
must not come back with an old copy.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from mrstream.cluster.config.config import DFS_MASTER, LOCK_MASTER, MAPREDUCE_MASTER, base_role
from mrstream.cluster.consensus.records import MARK
from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import ClusterError, JournalCorrupt, UserError
from mrstream.cluster.hosts.launcher import HostLink
from mrstream.cluster.journal.checkpoint import write_checkpoint
from mrstream.cluster.journal.format import LOG_MAGIC, encode_file_header, encode_record
from mrstream.cluster.journal.group_log import GroupLog
from mrstream.cluster.journal.group_recovery import is_of_group
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.recovery import log_path

JOURNALS = {DFS_MASTER: "oplog", MAPREDUCE_MASTER: "journal", LOCK_MASTER: "log"}
"""The directory of a master's log, in its state directory."""
PIECE_BYTES = 4 * 1024 * 1024
TRIES = 5
"""A log may be turned over while it is being read."""


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """How far a log goes; of two logs the greater one has all that was acknowledged in both."""

    epoch: int
    """0: that of a lone master."""
    sequence: int


class LogMoved(UserError):
    """A file of the log went away, or became shorter, while it was being read."""


def journal_of(role: str) -> str:
    """Return the directory of a master's log, in its state directory."""
    return JOURNALS[base_role(role)]


def is_part_of_log(name: str) -> bool:
    return name.startswith(("log-", "checkpoint-")) and name.rpartition("-")[2].isdigit()


def look_at_log(folder: str, cluster_id: str) -> LogEnd:
    """Read every checkpoint and record there; raise what is wrong with them."""
    if not is_of_group(OsDisk(), folder, cluster_id):
        return LogEnd(0, Journal(folder, cluster_id).look().last_sequence)
    found = GroupLog(folder, cluster_id).look()
    if found.problems:
        raise UserError("; ".join(found.problems))
    return LogEnd(found.shape.last_epoch, max(found.shape.last, found.checkpoint_sequence))


def fetch_log(link: HostLink, path: str, here: str) -> bool:
    """Bring the files of a log from a host here; False: there are none."""
    sizes: dict[str, int] = link.call("files", path=path)["files"]
    names = sorted(name for name in sizes if is_part_of_log(name))
    if not names:
        return False
    os.mkdir(here, mode=0o700)
    for name in names:
        with open(os.path.join(here, name), "wb") as file:
            file.writelines(_pieces(link, f"{path}/{name}", sizes[name]))
    return True


def _pieces(link: HostLink, path: str, size: int) -> Iterator[bytes]:
    at = 0
    while at < size:
        try:
            answer = link.call("fetch", path=path, offset=at, count=min(PIECE_BYTES, size - at))
        except UserError as error:
            raise LogMoved(f"{link.name}: {error}") from None
        piece = base64.b64decode(answer["base64"])
        if not piece:
            raise LogMoved(f"{link.name}: {path} became shorter while it was being read")
        yield piece
        at += len(piece)


def copy_log(path: str, here: str) -> bool:
    """As `fetch_log`, for a log of this host."""
    try:
        names = sorted(name for name in os.listdir(path) if is_part_of_log(name))
        if not names:
            return False
        os.mkdir(here, mode=0o700)
        for name in names:
            shutil.copyfile(os.path.join(path, name), os.path.join(here, name))
    except FileNotFoundError as error:
        if error.filename == path:
            return False
        raise LogMoved(f"{error.filename} went away while it was being copied") from None
    return True


def as_lone_log(folder: str, target: str, cluster_id: str) -> int:
    """Write a log anew as that of a lone master, who belongs to no group; return its last record's
    number. What the consensus itself had written is left out, so later records get lower ones."""
    disk = OsDisk()
    os.makedirs(target, mode=0o700, exist_ok=True)
    if not is_of_group(disk, folder, cluster_id):
        copy_log(folder, os.path.join(target, "copy"))
        for name in os.listdir(os.path.join(target, "copy")):
            os.rename(os.path.join(target, "copy", name), os.path.join(target, name))
        os.rmdir(os.path.join(target, "copy"))
        return Journal(target, cluster_id).look().last_sequence
    with tempfile.TemporaryDirectory(prefix="mrstream-log-") as scratch:
        whole = os.path.join(scratch, "log")
        copy_log(folder, whole)  # to open one cuts off its torn end
        log = GroupLog(whole, cluster_id)
        log.open(b"0" * 16)
        try:
            return _write_lone(log, target, cluster_id)
        finally:
            log.close()


def _write_lone(log: GroupLog, target: str, cluster_id: str) -> int:
    disk, marker = OsDisk(), hashlib.sha256(cluster_id.encode()).digest()[:4]
    held = log.read_checkpoint()
    last = 0
    if held is not None:
        last, _, _, pieces = held
        write_checkpoint(disk, target, cluster_id, last, pieces)
    at = last + 1
    file = disk.open(log_path(target, at), create=True)
    file.write(encode_file_header(LOG_MAGIC, cluster_id, at, marker), 0)
    while at <= log.last:
        payloads = log.read(at, log.last)
        at += len(payloads)
        for payload in payloads:
            if payload[0] != MARK:
                file.write(encode_record(marker, last + 1, last, payload), file.size())
                last += 1
    file.sync()
    file.close()
    disk.sync_directory(target)
    return last


def try_again(error: ClusterError, turn: int) -> None:
    """Raise unless the log may only have moved while it was being read, and tries are left."""
    if not isinstance(error, LogMoved | JournalCorrupt) or turn == TRIES - 1:
        raise error
