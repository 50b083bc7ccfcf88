"""A disk in memory that forgets what was not synced: a small real thing for crash tests.

`crash` leaves what a power cut may leave: synced bytes stay; of each file's later bytes any prefix,
or any subset of 512-byte sectors, may have reached the platter; of the later names (creations,
renames, removals) any number in order. `fail_sync` and `full_after_bytes` make it misbehave.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable


class _Inode:
    def __init__(self) -> None:
        self.now = bytearray()
        self.synced = b""
        self.is_slots = False


class ForgetfulFile:
    """A file of a `ForgetfulDisk`, open for appending."""

    def __init__(self, disk: ForgetfulDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write(self, data: bytes) -> None:
        room = self._disk.room_bytes
        if room is not None and len(data) > room:
            self._inode.now += data[:room]
            self._disk.room_bytes = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if room is not None:
            self._disk.room_bytes = room - len(data)
        self._inode.now += data

    def sync(self) -> None:
        self._disk.syncs += 1
        self._disk.at_sync()
        if self._disk.fail_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._inode.synced = bytes(self._inode.now)

    def truncate(self, length: int) -> None:
        freed = len(self._inode.now) - length
        if self._disk.room_bytes is not None:
            self._disk.room_bytes += max(0, freed)
        del self._inode.now[length:]

    def close(self) -> None:
        pass


class ForgetfulSlots:
    """A file of a `ForgetfulDisk`, open to be written over."""

    def __init__(self, disk: ForgetfulDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write_at(self, offset: int, data: bytes) -> None:
        self._inode.now[offset : offset + len(data)] = data

    def sync(self) -> None:
        ForgetfulFile(self._disk, self._inode).sync()

    def close(self) -> None:
        pass


class ForgetfulDisk:
    """Satisfies `cluster.journal.disk.Disk`."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.fail_sync = False
        self.room_bytes: int | None = None
        self.syncs = 0
        self.at_sync: Callable[[], None] = lambda: None
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._unsynced: list[Callable[[dict[str, _Inode]], object]] = []

    def make_directory(self, path: str) -> None:
        pass

    def names(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(n[len(prefix) :] for n in self._names if n.startswith(prefix))

    def create(self, path: str) -> ForgetfulFile:
        inode = _Inode()
        self._rename_operation(lambda names: names.__setitem__(path, inode))
        return ForgetfulFile(self, inode)

    def open_append(self, path: str) -> ForgetfulFile:
        return ForgetfulFile(self, self._names[path])

    def open_slots(self, path: str, length: int) -> ForgetfulSlots:
        if path not in self._names or len(self._names[path].now) < length:
            inode = _Inode()
            inode.is_slots = True
            inode.now = bytearray(length)
            inode.synced = bytes(length)
            # Made durably, whatever else is not yet: only this name is added to the synced ones.
            self._names[path] = self._synced_names[path] = inode
        return ForgetfulSlots(self, self._names[path])

    def read(self, path: str, offset: int, count: int) -> bytes:
        return bytes(self._names[path].now[offset : offset + count])

    def size_bytes(self, path: str) -> int:
        return len(self._names[path].now)

    def rename(self, old: str, new: str) -> None:
        self._rename_operation(lambda names: names.__setitem__(new, names.pop(old)))

    def remove(self, path: str) -> None:
        self._rename_operation(lambda names: names.pop(path))

    def sync_directory(self, path: str) -> None:
        self._synced_names = dict(self._names)
        self._unsynced = []

    def _rename_operation(self, operation: Callable[[dict[str, _Inode]], object]) -> None:
        operation(self._names)
        self._unsynced.append(operation)

    # --- faults

    def crash(self) -> None:
        """Cut the power: keep what was synced, and of the rest what chance leaves."""
        names = dict(self._synced_names)
        for operation in self._unsynced[: self.random.randint(0, len(self._unsynced))]:
            operation(names)
        self._names = names
        for inode in names.values():
            inode.now = bytearray(self._after_power_cut(inode))
            inode.synced = bytes(inode.now)
        self._synced_names = dict(names)
        self._unsynced = []

    def synced_bytes(self, path: str) -> bytes:
        """Return what a power cut would surely leave of a file."""
        return self._names[path].synced

    def flip(self, path: str, bit: int) -> None:
        """Turn one bit of a file over."""
        for content in (self._names[path],):
            content.now[bit // 8] ^= 1 << (bit % 8)
            content.synced = bytes(content.now)

    def copy(self) -> ForgetfulDisk:
        """Return another disk with the same contents, all of it synced."""
        other = ForgetfulDisk()
        other.random.setstate(self.random.getstate())
        for name, inode in self._names.items():
            twin = _Inode()
            twin.now, twin.synced = bytearray(inode.now), bytes(inode.now)
            twin.is_slots = inode.is_slots
            other._names[name] = twin
        other._synced_names = dict(other._names)
        return other

    def _after_power_cut(self, inode: _Inode) -> bytes:
        now, synced = bytes(inode.now), inode.synced
        if now == synced:
            return now
        if inode.is_slots:  # written over in place: what changed last may have arrived by half
            at = self.random.choice([0, self.random.randint(0, len(now)), len(now)])
            return now[:at] + synced[at:]
        kept = self.random.choice(["synced", "prefix", "sectors", "zeros", "all"])
        if kept == "synced" or len(now) <= len(synced):
            return synced if kept == "synced" else now
        if kept == "prefix":
            return now[: self.random.randint(len(synced), len(now))]
        if kept == "zeros":
            return synced + bytes(len(now) - len(synced))
        if kept == "sectors":
            return self._some_sectors(now, len(synced))
        return now

    def _some_sectors(self, now: bytes, synced_bytes: int) -> bytes:
        result = bytearray(now)
        at = synced_bytes
        while at < len(result):
            end = min((at // 512 + 1) * 512, len(result))
            if self.random.random() < 0.5:
                result[at:end] = bytes(end - at)
            at = end
        return bytes(result)
