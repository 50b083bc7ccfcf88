"""Which master a chunkserver obeys (F2): the latest that it ever registered with, and only while an
order is fresh.

Takes epochs, commands and the time; says yes, or raises why not. A master that was stopped or cut
off may have been deposed without knowing it: what it says late dies of its age, and what it says to
a server that has met its successor dies of its epoch, also after a restart of the server (`epochs`
on each disk). Reads no clock; the only IO is `keep`, when a higher epoch is met.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

from mrstream.cluster.disk import Disk
from mrstream.cluster.errors import Corrupt, Unavailable
from mrstream.dfs.chunk import ROOT_CELL, epoch_of_command
from mrstream.dfs.chunks.chunk_store import ChunkStore
from mrstream.dfs.errors import StaleMaster
from mrstream.dfs.protocol import Command

EPOCHS = "epochs"
NUMBERS_KEPT = 1000
_BYTES_MAX = 4096
_LINE_BYTES = 31
"""Every line is as long as the longest: it can be written over the one before."""
_MASTER = "dfs"


class Allegiance:
    """The highest epoch met, and when each registration and heartbeat was sent."""

    def __init__(self, epoch: int, keep: Callable[[int], None]) -> None:
        """`keep` returns when that epoch is on disk."""
        self.epoch = epoch
        self._keep = keep
        self._number = 0
        self._sent_at_s: dict[int, float] = {}

    def numbered(self, sent_at_s: float) -> int:
        """The number of a registration or heartbeat sent at that time: orders count from there."""
        self._number += 1
        self._sent_at_s[self._number] = sent_at_s
        self._sent_at_s.pop(self._number - NUMBERS_KEPT, None)
        return self._number

    def meet(self, epoch: int) -> None:
        """A master of this epoch has taken our registration; StaleMaster if it is not to be obeyed.
        A higher one is on disk before anything that it says is done."""
        self.check(epoch, "the master's answer")
        if epoch > self.epoch:
            self._keep(epoch)
            self.epoch = epoch

    def check(self, epoch: int, what: str) -> None:
        """StaleMaster if something comes of an older master than the one that is obeyed."""
        if epoch < self.epoch:
            raise StaleMaster(f"{what} is of epoch {epoch}; a master of {self.epoch} was met here")

    def admit(self, command: Command, now_s: float, contact_s: float) -> float:
        """When the news was sent that a command rests on; StaleMaster if it is not to be obeyed."""
        name = type(command).__name__
        self.check(epoch_of_command(command.command_id), name)
        since: int = command.since  # type: ignore[attr-defined]  # every command has it
        sent_at_s = self._sent_at_s.get(since, float("-inf"))
        if now_s - sent_at_s >= contact_s:
            raise StaleMaster(
                f"{name} rests on message {since}, {now_s - sent_at_s:.1f} s old; orders count for "
                f"{contact_s:.1f} s"
            )
        return sent_at_s


def allegiance_of(store: ChunkStore, cell: int = ROOT_CELL) -> Allegiance:
    """Return what the disks of a store remember of a cell's masters, and keep there what comes."""
    name = epochs_name(cell)

    def keep(epoch: int) -> None:
        kept, reasons = 0, []
        for disk in store.disks():
            try:
                with store.guarded(disk):
                    write_epoch(disk, epoch, name)
                kept += 1
            except Unavailable as error:
                reasons.append(str(error))
        if not kept:
            raise Unavailable(f"no disk takes the master's epoch {epoch}: {'; '.join(reasons)}")

    known = max((read_epoch(disk, name) for disk in store.disks()), default=0)
    return Allegiance(known, keep)


def epochs_name(cell: int) -> str:
    """Return the file of a cell: epochs of two cells have nothing to do with each other."""
    return EPOCHS if cell == ROOT_CELL else f"{EPOCHS}-{cell}"


def read_epoch(disk: Disk, name: str = EPOCHS) -> int:
    """Return the highest epoch that was met with this disk in the server; 0 if there was none."""
    if not disk.exists(name):
        return 0
    file = disk.open(name)
    try:
        text = file.read(_BYTES_MAX, 0)
    finally:
        file.close()
    try:
        epoch = json.loads(text)[_MASTER]
        if type(epoch) is not int or not 0 <= epoch < 1 << 31:
            raise ValueError(epoch)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt(
            f"{disk.name}/{name} cannot be read: {error!r}; nothing was touched. Without it a "
            "deposed master could not be told from the true one; remove it if none runs"
        ) from None
    return epoch


def write_epoch(disk: Disk, epoch: int, name: str = EPOCHS) -> None:
    """Keep the epoch on a disk; it is there when this returns."""
    line = json.dumps({_MASTER: epoch}).encode().ljust(_LINE_BYTES) + b"\n"
    try:
        file = disk.open(name + ".new", create=True)
        try:
            file.write(line, 0)
            file.sync()
        finally:
            file.close()
        disk.rename(name + ".new", name)
        disk.sync_directory("")
    except OSError as error:
        disk.remove(name + ".new")
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not disk.exists(name):
            raise
        _write_over(disk, name, line)


def _write_over(disk: Disk, name: str, line: bytes) -> None:
    """A full disk still takes what has its place there: a server whose disk was filled by others
    would obey no new master, and be of no use to readers either. One sector is written as one."""
    file = disk.open(name, write=True)
    try:
        file.write(line, 0)
        file.sync()
    finally:
        file.close()
