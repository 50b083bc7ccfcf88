"""A disk in memory that forgets what was not synced: for simulators and tests.

It behaves as `dfs.chunks.disk` says and no better. `crash` is a power cut: of each file's writes
since its last sync any part may have reached the platter, sector by sector, and of the names made
or removed since a directory's last sync any may have. Which ones is drawn from the generator given.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable

from mrstream.dfs.chunks.disk import Bytes

SECTOR_BYTES = 512


class _Inode:
    """A file's bytes as seen now, as last synced, and the writes between the two."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = b""
        self.pending: list[tuple[int, bytes | None]] = []

    def settle(self, chance: random.Random) -> None:
        """Keep the synced bytes and an arbitrary part of what was written since."""
        kept = bytearray(self.synced)
        for offset, data in self.pending:
            if data is None:
                if chance.random() < 0.5:
                    _resize(kept, offset)
                continue
            for start, end in _sectors(offset, len(data)):
                if chance.random() < 0.5:
                    if len(kept) < end:
                        _resize(kept, end)
                    kept[start:end] = data[start - offset : end - offset]
        self.content = kept
        self.synced = bytes(kept)
        self.pending = []


class MemoryDisk:
    """A `Disk`. `before_step` hears of every step that changes something, and may raise."""

    def __init__(
        self,
        name: str = "memory",
        *,
        capacity_bytes: int = 1 << 40,
        before_step: Callable[[str, str], None] | None = None,
    ) -> None:
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.before_step = before_step
        self._boot = 1
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._directories = {""}

    def crash(self, chance: random.Random) -> None:
        """Lose power, and come back with what a real disk might have kept."""
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

    def contents(self, path: str) -> bytes:
        """A file's bytes."""
        return bytes(self._names[path].content)

    # -- Disk -----------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, write: bool = False) -> MemoryFile:
        inode = self._names.get(path)
        if inode is None:
            if not create or path.rpartition("/")[0] not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.step("create", path)
            inode = self._names[path] = _Inode()
        file = MemoryFile(self, path, inode)
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
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            # Directories are never lost here: they hold nothing by themselves.
            self._directories.add("/".join(parts[:count]))

    def list(self, path: str) -> list[str]:
        prefix = path + "/" if path else ""
        return sorted(
            name[len(prefix) :]
            for name in [*self._names, *(self._directories - {""})]
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def sync_directory(self, path: str) -> None:
        self.step("sync_directory", path)
        for name in set(self._names) | set(self._synced_names):
            if name.rpartition("/")[0] != path:
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


class MemoryFile:
    """A `DiskFile` of a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, path: str, inode: _Inode) -> None:
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
        content = self._inode.content
        end = offset + len(data)
        growth = end - len(content)
        if growth > 0:
            if growth > self._disk.space()[1]:
                raise OSError(errno.ENOSPC, "no space left on device", self._path)
            _resize(content, end)
        content[offset:end] = data
        self._inode.pending.append((offset, bytes(data)))

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", self._path)
        _resize(self._inode.content, size)
        self._inode.pending.append((size, None))

    def size(self) -> int:
        return len(self._inode.content)

    def sync(self) -> None:
        self._disk.step("sync", self._path)
        self._inode.synced = bytes(self._inode.content)
        self._inode.pending = []

    def begin_writing_out(self, offset: int, size: int) -> None:
        """Whatever is not synced may be lost or kept here anyway."""

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file in memory has no descriptor", self._path)

    def close(self) -> None:
        return


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
