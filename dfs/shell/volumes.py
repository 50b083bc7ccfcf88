"""The file systems that a path can name, with one set of operations: the cluster's and the disk.

`ClusterVolume` speaks through `DfsClient`; `DiskVolume` is this machine's disk, for `file://`
paths, for the local side of copies, and for everything when there is no cluster. Entries are
`FileStatus` in both. Knows nothing of verbs and of output.
"""

from __future__ import annotations

import glob
import grp
import io
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from mrstream.cluster.disk import WRITE_BYTES
from mrstream.dfs.chunk import CHUNK_BYTES_DEFAULT, FileId
from mrstream.dfs.client import file_checksum, writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import (
    BadRequest,
    DirectoryNotEmpty,
    FileExists,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
    PermissionDenied,
)
from mrstream.dfs.protocol import ContentSummary, FileStatus

PIECE_BYTES = 1 << 20
T = TypeVar("T")


class Volume(Protocol):
    """One file system. Paths are absolute."""

    uri: str

    def home(self) -> str:
        """What relative paths are relative to."""

    def status(self, path: str) -> FileStatus: ...

    def list(self, path: str) -> Iterator[FileStatus]: ...

    def glob(self, pattern: str) -> Sequence[FileStatus]: ...

    def find(self, path: str) -> Iterator[FileStatus]: ...

    def summarise(self, path: str) -> ContentSummary: ...

    def open(self, path: str) -> Any:
        """A raw file for reading: `readinto`, `seek`, `read`, `close`."""

    def create(self, path: str, *, overwrite: bool, replication: int = 0) -> Any: ...

    def create_hidden(self, path: str, *, overwrite: bool, has_bytes: bool = False) -> Any:
        """A file that has its name only once it is closed. One that `has_bytes` to come gets the
        place for the first of them in the same exchange."""

    def append(self, path: str) -> Any: ...

    def make_directory(self, path: str, *, parents: bool) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def delete(self, path: str, *, recursive: bool, skip_trash: bool) -> str: ...

    def set_mode(self, path: str, mode: int) -> None: ...

    def set_owner(self, path: str, owner: str, group: str) -> None: ...

    def set_times(self, path: str, modified_at_s: float, accessed_at_s: float) -> None: ...

    def space(self) -> tuple[int, int, int]:
        """(total, used, free) bytes."""

    def checksum(self, path: str) -> int: ...


class ClusterVolume:
    """The cluster's file system."""

    def __init__(
        self, client: DfsClient, name: str, *, replication: int = 0, chunk_bytes: int = 0
    ) -> None:
        """`replication` and `chunk_bytes` are those of the files made here; 0: the usual ones."""
        self.client = client
        self.uri = f"dfs://{name}"
        self._replication = replication
        self._chunk_bytes = chunk_bytes

    def home(self) -> str:
        return f"/user/{self.client.user}"

    def status(self, path: str) -> FileStatus:
        return self.client.stat(path)

    def list(self, path: str) -> Iterator[FileStatus]:
        return self.client.list(path)

    def glob(self, pattern: str) -> Sequence[FileStatus]:
        return list(self.client.glob(pattern))

    def find(self, path: str) -> Iterator[FileStatus]:
        return self.client.find(path)

    def summarise(self, path: str) -> ContentSummary:
        return self.client.summarise(path)[0]

    def open(self, path: str) -> DfsReader:
        return DfsReader(self.client, path)

    def create(self, path: str, *, overwrite: bool, replication: int = 0) -> writer.DfsWriter:
        return writer.create(
            self.client,
            path,
            overwrite=overwrite,
            replication=replication or self._replication,
            chunk_bytes=self._chunk_bytes,
            parents=False,
        )

    def create_hidden(
        self, path: str, *, overwrite: bool, has_bytes: bool = False
    ) -> writer.DfsWriter:
        return writer.create_hidden(
            self.client,
            path,
            overwrite=overwrite,
            replication=self._replication,
            chunk_bytes=self._chunk_bytes,
            first_chunk=has_bytes,
        )

    def append(self, path: str) -> writer.DfsWriter:
        return writer.append(self.client, path)

    def make_directory(self, path: str, *, parents: bool) -> None:
        self.client.make_directory(path, parents=parents)

    def rename(self, source: str, target: str) -> None:
        self.client.rename(source, target)

    def delete(self, path: str, *, recursive: bool, skip_trash: bool) -> str:
        return self.client.delete(path, recursive=recursive, skip_trash=skip_trash)

    def set_mode(self, path: str, mode: int) -> None:
        self.client.set_mode(path, mode)

    def set_owner(self, path: str, owner: str, group: str) -> None:
        self.client.set_owner(path, owner=owner, group=group)

    def set_times(self, path: str, modified_at_s: float, accessed_at_s: float) -> None:
        self.client.set_times(path, modified_at_s=modified_at_s, accessed_at_s=accessed_at_s)

    def space(self) -> tuple[int, int, int]:
        report = self.client.report()
        return report.capacity_bytes, report.used_bytes, report.free_bytes

    def checksum(self, path: str) -> int:
        return file_checksum.composite_crc(self.client, path)


def _named(function: Callable[..., T]) -> Callable[..., T]:
    """Make a method raise this package's errors for those of the operating system."""

    def named(self: DiskVolume, path: str, *rest: Any, **named: Any) -> T:
        try:
            return function(self, path, *rest, **named)
        except OSError as error:
            raise _error_of(error, path) from error

    return named


class DiskVolume:
    uri = "file://"

    def home(self) -> str:
        return os.getcwd()

    @_named
    def status(self, path: str) -> FileStatus:
        return _status(path, os.stat(path))

    @_named
    def list(self, path: str) -> Iterator[FileStatus]:
        if not os.path.isdir(path):
            return iter([_status(path, os.stat(path))])
        names = sorted(os.listdir(path), key=os.fsencode)
        found = (os.path.join(path, name) for name in names)
        return iter([_status(one, os.lstat(one)) for one in found])

    def glob(self, pattern: str) -> Sequence[FileStatus]:
        return [_status(path, os.stat(path)) for path in sorted(glob.glob(pattern))]

    def find(self, path: str) -> Iterator[FileStatus]:
        yield self.status(path)
        for root, directories, files in os.walk(path):
            directories.sort()
            for name in sorted([*directories, *files]):
                yield self.status(os.path.join(root, name))

    def summarise(self, path: str) -> ContentSummary:
        directories = files = length = 0
        for status in self.find(path):
            directories += status.is_directory
            files += not status.is_directory
            length += 0 if status.is_directory else status.length_bytes
        return ContentSummary(path, directories, files, length, length)

    @_named
    def open(self, path: str) -> io.FileIO:
        return io.FileIO(path, "rb")

    @_named
    def create(self, path: str, *, overwrite: bool, replication: int = 0) -> DiskFile:
        return DiskFile(path, overwrite=overwrite)

    def create_hidden(self, path: str, *, overwrite: bool, has_bytes: bool = False) -> DiskFile:
        return self.create(path, overwrite=overwrite)

    @_named
    def append(self, path: str) -> io.FileIO:
        return io.FileIO(path, "ab")

    @_named
    def make_directory(self, path: str, *, parents: bool) -> None:
        if parents:
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)

    @_named
    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    @_named
    def delete(self, path: str, *, recursive: bool, skip_trash: bool) -> str:
        if not os.path.isdir(path) or os.path.islink(path):
            os.unlink(path)
        elif recursive:
            shutil.rmtree(path)
        else:
            os.rmdir(path)
        return ""

    @_named
    def set_mode(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    @_named
    def set_owner(self, path: str, owner: str, group: str) -> None:
        try:
            shutil.chown(path, owner or None, group or None)  # type: ignore[arg-type]
        except LookupError as error:
            raise BadRequest(str(error)) from None

    @_named
    def set_times(self, path: str, modified_at_s: float, accessed_at_s: float) -> None:
        os.utime(path, (accessed_at_s, modified_at_s))

    def space(self) -> tuple[int, int, int]:
        usage = shutil.disk_usage("/")
        return usage.total, usage.used, usage.free

    def checksum(self, path: str) -> int:
        from crc32c import crc32c

        crc = 0
        with self.open(path) as file:
            while piece := file.read(PIECE_BYTES):
                crc = crc32c(piece, crc)
        return int(crc)


class DiskFile:
    """A file on the disk that has its name only once it is complete."""

    def __init__(self, path: str, *, overwrite: bool) -> None:
        if not overwrite and os.path.lexists(path):
            raise FileExists(f"{path} exists")
        self._path = path
        # What is not an ordinary file (a device, a pipe) cannot be replaced by one.
        self._is_direct = os.path.exists(path) and not os.path.isfile(path)
        self._temporary = path if self._is_direct else f"{path}._COPYING_"
        self._file = io.FileIO(self._temporary, "wb")

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data)
        while len(view):
            view = view[self._file.write(view[:WRITE_BYTES]) :]
        return len(data)

    @property
    def takes_parts(self) -> bool:
        """May `write_at` be used? Not with a device or a pipe."""
        return not self._is_direct

    def write_at(self, data: memoryview, offset: int) -> None:
        """Write at a place; safe for several threads."""
        done = 0
        while done < len(data):
            piece = data[done : done + WRITE_BYTES]
            done += os.pwrite(self._file.fileno(), piece, offset + done)

    def close(self) -> None:
        self._file.close()
        if not self._is_direct:
            os.replace(self._temporary, self._path)

    def __enter__(self) -> DiskFile:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
            return
        self._file.close()
        if not self._is_direct:
            os.unlink(self._temporary)


def _status(path: str, found: os.stat_result) -> FileStatus:
    is_directory = stat.S_ISDIR(found.st_mode)
    return FileStatus(
        path=path,
        is_directory=is_directory,
        length_bytes=0 if is_directory else found.st_size,
        replication=1,
        chunk_bytes=CHUNK_BYTES_DEFAULT,
        modified_at_s=found.st_mtime,
        accessed_at_s=found.st_atime,
        owner=_name_of(pwd.getpwuid, found.st_uid),
        group=_name_of(grp.getgrgid, found.st_gid),
        mode=stat.S_IMODE(found.st_mode),
        file_id=FileId(found.st_ino),
        chunk_count=0,
        created_at_s=found.st_ctime,
    )


def _name_of(look_up: Callable[[int], Any], number: int) -> str:
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)


def _error_of(error: OSError, path: str) -> Exception:
    kinds: dict[type[OSError], type[Exception]] = {
        FileNotFoundError: NoSuchFile,
        FileExistsError: FileExists,
        IsADirectoryError: IsADirectory,
        NotADirectoryError: NotADirectory,
        PermissionError: PermissionDenied,
    }
    for kind, ours in kinds.items():
        if isinstance(error, kind):
            return error if isinstance(error, ours) else ours(f"{path}: {error.strerror}")
    if error.strerror == "Directory not empty":
        return DirectoryNotEmpty(f"{path} is not empty")
    return BadRequest(f"{path}: {error.strerror or error}")
