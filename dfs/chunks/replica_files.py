"""The files of a replica: what they are called, and how they are opened, synced and removed.

An fsync that fails becomes `DiskFailed`, after which the process must acknowledge nothing more.
"""

from __future__ import annotations

from mrstream.cluster.disk import Disk, DiskFile
from mrstream.cluster.errors import DiskFailed

CHUNKS = "chunks"
INCOMING = "incoming"


def directory_of(handle: int) -> str:
    """The directory of a chunk's files, relative to its disk."""
    return f"{CHUNKS}/{handle & 0xFF:02x}"


def path_of(handle: int, suffix: str) -> str:
    """The path of one of a chunk's files: `suffix` is data, sums or redo."""
    return f"{directory_of(handle)}/{handle:016x}.{suffix}"


def incoming_path_of(handle: int, suffix: str) -> str:
    """The path of one of a chunk's files while it is copied from elsewhere."""
    return f"{INCOMING}/{handle:016x}.{suffix}"


def remove_files(disk: Disk, handle: int) -> None:
    """Remove whatever files a chunk has on a disk.

    Not synced: a replica that a power cut brings back is reported, and deleted again.
    """
    for suffix in ("redo", "sums", "data"):
        disk.remove(path_of(handle, suffix))


def make_directory(disk: Disk, path: str) -> None:
    """Make a directory whose name is on disk when this returns."""
    if not disk.exists(path):
        disk.make_directories(path)
        # A name counts only once each directory above it has it too.
        while "/" in path:
            path = path.rpartition("/")[0]
            sync_directory(disk, path)
        sync_directory(disk, "")


def sync(disk: Disk, file: DiskFile) -> None:
    """Return when a file's bytes are on disk."""
    try:
        file.sync()
    except OSError as error:
        raise DiskFailed(f"fsync on {disk.name} failed: {error}") from error


def sync_directory(disk: Disk, path: str) -> None:
    """Return when the names in a directory are on disk."""
    try:
        disk.sync_directory(path)
    except OSError as error:
        raise DiskFailed(f"fsync of {path} on {disk.name} failed: {error}") from error
