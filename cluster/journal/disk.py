"""The disk as a seam: what a journal needs of a file system, and the real one.

Tests and simulators put a disk in its place that forgets what was not synced. Nothing here decides
anything; an `OSError` passes through to whoever must act on it.
"""

from __future__ import annotations

import errno
import os
from typing import Final, Protocol

WRITE_BYTES: Final = 64 * 1024
"""At most so much of a long write goes to the kernel in one call: for more it takes larger pages,
and in a virtual machine those are often the ones that the host has to find first (a third of the
CPU time of a write by the megabyte: docs/performance.md)."""


class DiskFile(Protocol):
    """A file open for appending."""

    def write(self, data: bytes) -> None:
        """Append all of it (into the cache; see `sync`)."""
        ...

    def sync(self) -> None:
        """Return once everything written so far survives a power cut."""
        ...

    def truncate(self, length: int) -> None:
        """Cut the file; the next write goes to its new end."""
        ...

    def close(self) -> None:
        """Give the file back; says nothing about durability."""
        ...


class SlotFile(Protocol):
    """A small file of a fixed length, of which parts are written over."""

    def write_at(self, offset: int, data: bytes) -> None:
        """Write over what is there (in the cache; see `sync`)."""
        ...

    def sync(self) -> None:
        """Return once everything written so far survives a power cut."""
        ...

    def close(self) -> None:
        """Give the file back; says nothing about durability."""
        ...


class Disk(Protocol):
    """Names and files; every path is absolute."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where they are missing, durably."""
        ...

    def names(self, path: str) -> list[str]:
        """Return what a directory holds, sorted; an absent directory holds nothing."""
        ...

    def create(self, path: str) -> DiskFile:
        """Open a new, empty file, replacing any old one; its name lasts after `sync_directory`."""
        ...

    def open_append(self, path: str) -> DiskFile:
        """Open an existing file to append to."""
        ...

    def open_slots(self, path: str, length: int) -> SlotFile:
        """Open a file of that many bytes to write over; made, durably, full of zeros, where it is
        missing or shorter."""
        ...

    def read(self, path: str, offset: int, count: int) -> bytes:
        """Return up to `count` bytes from `offset`; fewer only at the end of the file."""
        ...

    def size_bytes(self, path: str) -> int:
        """Return the length of a file."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file a new name in place of any file of that name; atomic."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return once creations, renames and removals in the directory survive a power cut."""
        ...


class OsFile:
    """A `DiskFile` of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)

    def close(self) -> None:
        os.close(self._descriptor)


class OsSlotFile:
    """A `SlotFile` of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write_at(self, offset: int, data: bytes) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        if written < len(data):
            raise OSError(errno.EIO, f"only {written} of {len(data)} bytes could be written")

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class OsDisk:
    """The `Disk` that the host has."""

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        self.make_directory(parent)
        os.makedirs(path, mode=0o700, exist_ok=True)
        self.sync_directory(parent)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def create(self, path: str) -> OsFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        return OsFile(os.open(path, flags, 0o600))

    def open_append(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))

    def open_slots(self, path: str, length: int) -> OsSlotFile:
        # Not O_APPEND: Linux then appends whatever the offset.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        there = os.fstat(descriptor).st_size
        if there < length:
            os.pwrite(descriptor, bytes(length - there), there)
            os.fsync(descriptor)
            self.sync_directory(os.path.dirname(path))
        return OsSlotFile(descriptor)

    def read(self, path: str, offset: int, count: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(count)

    def size_bytes(self, path: str) -> int:
        return os.stat(path).st_size

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
