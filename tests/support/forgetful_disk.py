"""A disk in memory that forgets what was not synced: a small real thing for crash tests.

It behaves as `cluster.disk` says and no better. `crash` is a power cut: of each file's writes since
its last sync any part may have reached the platter, and of the names made or removed since a
directory's last sync any may have. Which ones is drawn from the generator given, or from its own.
`before_step`, `fail_sync` and `room_bytes` make it misbehave while it runs.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable

from mrstream.cluster.disk import Bytes

SECTOR_BYTES = 512
WAYS = ("nothing", "prefix", "sectors", "length", "all")


class _Inode:
    """A file's bytes as seen now, as last synced, and the writes between the two."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = b""
        self.pending: list[tuple[int, bytes | None]] = []

    def settle(self, chance: random.Random) -> None:
        """Keep the synced bytes and an arbitrary part of what was written since."""
        if self.pending:
            self.content = self._after_power_cut(chance)
            self.synced = bytes(self.content)
            self.pending = []

    def _after_power_cut(self, chance: random.Random) -> bytearray:
        kept = bytearray(self.synced)
        match chance.choice(WAYS):
            case "prefix":  # in order, and the last of them torn
                *whole, (offset, data) = self.pending[: chance.randint(1, len(self.pending))]
                torn = data[: chance.randint(0, len(data))] if data is not None else None
                for change in [*whole, (offset, torn)]:
                    _apply(kept, *change)
            case "sectors":  # each on its own
                for offset, data in self.pending:
                    for start, end in _sectors(offset, len(data or b"")):
                        if data is not None and chance.random() < 0.5:
                            _apply(kept, start, data[start - offset : end - offset])
                    if data is None and chance.random() < 0.5:
                        _resize(kept, offset)
            case "length":  # which lies in the journal of the file system, and not the bytes
                _resize(kept, max(len(kept), len(self.content)))
            case "all":
                kept = bytearray(self.content)
        return kept


class ForgetfulDisk:
    """A `Disk`. `before_step` hears of every step that changes something, and may raise."""

    def __init__(
        self,
        seed: int = 0,
        *,
        name: str = "memory",
        capacity_bytes: int = 1 << 40,
        before_step: Callable[[str, str], None] | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.before_step = before_step
        self.fail_sync = False
        self.syncs = 0
        self.at_sync: Callable[[], None] = lambda: None
        self._boot = 1
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._directories = {"", "/"}

    # --- faults

    def crash(self, chance: random.Random | None = None) -> None:
        """Lose power, and come back with what a real disk might have kept."""
        chance = chance or self.random
        names = dict(self._synced_names)
        for path in sorted(set(names) | set(self._names)):
            if self._names.get(path) is names.get(path) or chance.random() < 0.5:
                continue
            if path in self._names:
                names[path] = self._names[path]
            else:
                del names[path]
        self._names = names
        self._synced_names = dict(names)
        for inode in {id(inode): inode for inode in names.values()}.values():
            inode.settle(chance)
        self._boot += 1

    def flip_bit(self, path: str, bit: int) -> None:
        """Rot: change one bit of a file behind everybody's back."""
        inode = self._names[path]
        inode.content[bit // 8] ^= 1 << bit % 8
        inode.synced = bytes(inode.content)

    @property
    def room_bytes(self) -> int:
        """How many more bytes there is room for."""
        return self.space()[1]

    @room_bytes.setter
    def room_bytes(self, room: int) -> None:
        self.capacity_bytes = self.used_bytes() + room

    def contents(self, path: str) -> bytes:
        """A file's bytes."""
        return bytes(self._names[path].content)

    def synced_bytes(self, path: str) -> bytes:
        """What a power cut would surely leave of a file."""
        return self._names[path].synced

    def copy(self) -> ForgetfulDisk:
        """Another disk with the same contents, all of it synced."""
        other = ForgetfulDisk(name=self.name)
        other.random.setstate(self.random.getstate())
        other._directories = set(self._directories)
        for path, inode in self._names.items():
            twin = other._names[path] = _Inode()
            twin.content, twin.synced = bytearray(inode.content), bytes(inode.content)
        other._synced_names = dict(other._names)
        return other

    # --- a Disk

    def open(self, path: str, *, create: bool = False, write: bool = False) -> ForgetfulFile:
        inode = self._names.get(path)
        if inode is None:
            if not create or os.path.dirname(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.step("create", path)
            inode = self._names[path] = _Inode()
        file = ForgetfulFile(self, path, inode)
        if create and inode.content:
            file.truncate(0)
        return file

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def remove(self, path: str) -> None:
        if path in self._names:
            self.step("remove", path)
            del self._names[path]

    def rename(self, source: str, target: str) -> None:
        if source not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.step("rename", target)
        self._names[target] = self._names.pop(source)

    def make_directories(self, path: str) -> None:
        while path not in self._directories:
            # Directories are never lost here: they hold nothing by themselves.
            self._directories.add(path)
            path = os.path.dirname(path)

    def list(self, path: str) -> list[str]:
        return sorted(
            os.path.basename(name)
            for name in [*self._names, *(self._directories - {"", "/"})]
            if os.path.dirname(name) == path
        )

    def sync_directory(self, path: str) -> None:
        self.step("sync_directory", path)
        for name in set(self._names) | set(self._synced_names):
            if os.path.dirname(name) != path:
                continue
            if name in self._names:
                self._synced_names[name] = self._names[name]
            else:
                del self._synced_names[name]

    def space(self) -> tuple[int, int]:
        return self.capacity_bytes, max(0, self.capacity_bytes - self.used_bytes())

    def boot_id(self) -> int:
        return self._boot

    def used_bytes(self) -> int:
        """The bytes of all files."""
        return sum(len(inode.content) for inode in self._names.values())

    def step(self, action: str, path: str) -> None:
        """Something is about to change."""
        if self.before_step is not None:
            self.before_step(action, path)


class ForgetfulFile:
    """A `DiskFile` of a `ForgetfulDisk`."""

    def __init__(self, disk: ForgetfulDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def read_into(self, buffer: memoryview, offset: int) -> int:
        part = self.read(len(buffer), offset)
        buffer[: len(part)] = part
        return len(part)

    def read(self, size: int, offset: int) -> bytes:
        return bytes(self._inode.content[offset : offset + size])

    def write(self, data: Bytes, offset: int) -> None:
        self._disk.step("write", self._path)
        growth = offset + len(data) - len(self._inode.content)
        room = self._disk.room_bytes if growth > 0 else growth
        fits = bytes(data[: len(data) - max(0, growth - room)])
        _apply(self._inode.content, offset, fits)
        self._inode.pending.append((offset, fits))
        if growth > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", self._path)
        _resize(self._inode.content, size)
        self._inode.pending.append((size, None))

    def size(self) -> int:
        return len(self._inode.content)

    def sync(self) -> None:
        self._disk.step("sync", self._path)
        self._disk.syncs += 1
        self._disk.at_sync()
        if self._disk.fail_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._inode.synced = bytes(self._inode.content)
        self._inode.pending = []

    def reserve(self, size: int) -> None:
        """There is room, or there is not; none is kept."""
        if size - len(self._inode.content) > self._disk.room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def begin_writing_out(self, offset: int, size: int) -> None:
        """Whatever is not synced may be lost or kept here anyway."""

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file in memory has no descriptor", self._path)

    def close(self) -> None:
        return


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    """Write at an offset, or (None) cut there."""
    if data is None:
        _resize(content, offset)
    else:
        _resize(content, max(len(content), offset + len(data)))
        content[offset : offset + len(data)] = data


def _sectors(offset: int, size: int) -> list[tuple[int, int]]:
    """The parts of a write that reach the platter each on its own."""
    end = offset + size
    edges = [offset, *range((offset // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES), end]
    return list(itertools.pairwise(edges))


def _resize(content: bytearray, size: int) -> None:
    if size <= len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
