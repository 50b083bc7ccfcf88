"""The disk as a seam: what journals and chunks need of a file system, and the real one.

Files are read and written at offsets. Nothing is durable before `sync` (a file's bytes) and
`sync_directory` (a name). Tests and simulators put a disk in its place that forgets what was not
synced. Nothing here decides anything; an `OSError` passes through to whoever must act on it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

WRITE_BYTES = 64 * 1024
"""At most so much of a long write goes to the kernel in one call: for more it takes larger pages,
and in a virtual machine those are often the ones that the host has to find first (a third of the
CPU time of a write by the megabyte: docs/performance.md)."""
_SYNC_FILE_RANGE_WRITE = 2
_FALLOC_FL_KEEP_SIZE = 1

Bytes: TypeAlias = bytes | bytearray | memoryview


class DiskFile(Protocol):
    """An open file. Offsets are given with each call; there is no current position."""

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset`; return the number of bytes, fewer only at the end."""

    def read(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`, fewer only at the end of the file."""

    def write(self, data: Bytes, offset: int) -> None:
        """Write all of `data` at `offset` (into the cache; see `sync`)."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Return when the bytes and the length are on disk; raise OSError if they may not be."""

    def reserve(self, size: int) -> None:
        """Keep room for the file to become so long, which it does not yet; ENOSPC if there is
        none. A file system that cannot promise anything says nothing."""

    def begin_writing_out(self, offset: int, size: int) -> None:
        """Let the disk start on these bytes now, so that the next `sync` takes less time."""

    def fileno(self) -> int:
        """The descriptor, for passing to another process; raises OSError if there is none."""

    def close(self) -> None:
        """Give the file back; says nothing about durability."""


class Disk(Protocol):
    """A directory of a disk. Paths are relative to it and use '/'; an absolute one is itself."""

    @property
    def name(self) -> str:
        """What an administrator calls this disk (its path)."""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        """Open a file; `create` makes it, or empties it if it is there, and implies `write`."""

    def exists(self, path: str) -> bool: ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""

    def rename(self, source: str, target: str) -> None:
        """Rename within the disk, atomically, over an existing target."""

    def make_directories(self, path: str) -> None: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if it does not exist."""

    def sync_directory(self, path: str) -> None:
        """Return when the names made, removed or renamed in `path` are on disk."""

    def space(self) -> tuple[int, int]:
        """(total bytes, bytes free for us) of the file system below."""

    def boot_id(self) -> int:
        """A 64-bit number that changes whenever unsynced bytes may have been lost."""


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read_into(self, buffer: memoryview, offset: int) -> int:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._fd, [buffer[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def read(self, size: int, offset: int) -> bytes:
        parts = []
        while size > 0:
            part = os.pread(self._fd, size, offset)
            if not part:
                break
            parts.append(part)
            size -= len(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: Bytes, offset: int) -> None:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done : done + WRITE_BYTES], offset + done)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        # fdatasync writes the length too whenever it is needed to read the bytes back.
        os.fdatasync(self._fd)

    def reserve(self, size: int) -> None:
        fallocate = _fallocate()
        if fallocate is not None and fallocate(self._fd, _FALLOC_FL_KEEP_SIZE, 0, size) != 0:
            import ctypes

            number = ctypes.get_errno()
            if number not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise OSError(number, os.strerror(number))

    def begin_writing_out(self, offset: int, size: int) -> None:
        sync_file_range = _sync_file_range()
        if sync_file_range is not None:
            # Only a hint: whether it helped or not, `sync` tells the truth.
            sync_file_range(self._fd, offset, size, _SYNC_FILE_RANGE_WRITE)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class OsDisk:
    """A directory of the operating system."""

    def __init__(self, root: str = "/", *, mode: int = 0o600) -> None:
        self._root = os.path.abspath(root)
        self._mode = mode
        """Of new files; who may read them may enter the directories too."""
        self._boot_id = _kernel_boot_id()

    @property
    def name(self) -> str:
        return self._root

    def open(self, path: str, *, create: bool = False, write: bool = False) -> OsFile:
        flags = os.O_RDWR if create or write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | os.O_TRUNC
        return OsFile(os.open(self._at(path), flags | os.O_CLOEXEC, self._mode))

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._at(path))

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(path))

    def rename(self, source: str, target: str) -> None:
        os.rename(self._at(source), self._at(target))

    def make_directories(self, path: str) -> None:
        os.makedirs(self._at(path), self._mode | (self._mode & 0o444) >> 2, exist_ok=True)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._at(path)))
        except FileNotFoundError:
            return []

    def sync_directory(self, path: str) -> None:
        fd = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self) -> tuple[int, int]:
        stat = os.statvfs(self._root)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def boot_id(self) -> int:
        return self._boot_id

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root


@contextlib.contextmanager
def opened(
    disk: Disk, path: str, *, create: bool = False, write: bool = False
) -> Iterator[DiskFile]:
    file = disk.open(path, create=create, write=write)
    try:
        yield file
    finally:
        file.close()


def read_part(disk: Disk, path: str, offset: int, size: int) -> bytes:
    """Return up to `size` bytes of a file from `offset`, fewer only at its end."""
    with opened(disk, path) as file:
        return file.read(size, offset)


def read_whole(disk: Disk, path: str) -> bytes:
    with opened(disk, path) as file:
        return file.read(file.size(), 0)


def make_directory(disk: Disk, path: str) -> None:
    """Make a directory, and those above it that are missing; their names last when this returns."""
    if disk.exists(path):
        return
    parent = os.path.dirname(path)
    make_directory(disk, parent)
    disk.make_directories(path)
    disk.sync_directory(parent)


@functools.cache
def _sync_file_range() -> Any:
    """The C library's sync_file_range, which Python does not offer; None where there is none."""
    import ctypes  # only chunkservers need it

    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


@functools.cache
def _fallocate() -> Any:
    """The C library's fallocate, of which Python offers only the form that makes the file longer;
    None where there is none."""
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function


def _kernel_boot_id() -> int:
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            text = file.read().strip()
    except FileNotFoundError:
        # No boot id (not Linux): then every start counts as a boot, which costs only reading.
        text = os.urandom(16)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
