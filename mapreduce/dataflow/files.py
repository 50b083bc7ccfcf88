"""Where jobs read and write: one small set of file operations over the local disk and any fsspec
URL.

A file is named by its URL as Hadoop prints it: `file:/data/a`, `dfs://demo/in/a`, `memory://a`.
`Files` is the seam, `LocalFiles` the disk through plain `os`, `DfsFiles` (beside this file) the
dfs, `S3Files` object stores, `FsspecFiles` everything else, and `RoutedFiles` the one a job is
given: it picks by scheme and makes relative paths absolute. boto3 and fsspec are imported only when
a URL needs them. Nothing here knows of splits, records or jobs.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

import msgspec

from mrstream.cluster.closing import Closing
from mrstream.cluster.errors import UserError
from mrstream.cluster.user import user_name
from mrstream.streaming.conf.properties import from_wire, to_wire

if TYPE_CHECKING:
    from mrstream.dfs.chunk import Fences

OBJECT_STORES = ("s3", "s3a", "s3n")
"""What URLs of objects begin with; the last two are Hadoop's words for the same."""
BLOCK_BYTES_DEFAULT = 64 * 1024 * 1024
COPY_BYTES = 1 << 20
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)(?=://)|(file)(?=:)")


class UnknownLength(UserError):
    """A file of which only reading it would tell the length."""


class InputReplaced(UserError):
    """Another file has the name by now: the job planned its splits of the one before."""

    @staticmethod
    def at(url: str) -> InputReplaced:
        return InputReplaced(
            f"{url} was replaced by another file after the job was planned: run the job again"
        )


class FileStatus(msgspec.Struct, frozen=True):
    """One file or directory: its URL, its length, and the unit in which it is best cut."""

    url: str
    length: int
    is_directory: bool
    block_bytes: int = BLOCK_BYTES_DEFAULT
    version: str = ""
    """Which file it is, of those that have the name one after the other; empty: not known."""

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.url.rstrip("/").rsplit("/", 1)[-1]


class Files(Protocol):
    """The file operations that a job needs; every argument is a URL that `qualify` returned."""

    def qualify(self, path: str) -> str:
        """Return the absolute URL of a path as a user wrote it."""

    def status(self, url: str) -> FileStatus | None:
        """Say what is at `url`, or None if nothing is."""

    def list(self, url: str) -> list[FileStatus]:
        """Return the entries of a directory, sorted by name."""

    def open(self, url: str, offset: int = 0, version: str = "") -> BinaryIO:
        """Open a file for reading at `offset`; `read(n)` may return fewer bytes, b'' only at the
        end. With a version it is that file, or `InputReplaced` is raised."""

    def create(self, url: str) -> BinaryIO:
        """Make a new file (and its parents) for writing; its bytes are durable once `close`
        returns."""

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory its new name, replacing a file of that name; parents are
        made."""

    def delete(self, url: str) -> None:
        """Remove a file or a whole directory; nothing there is fine."""

    def mkdirs(self, url: str) -> None:
        """Make a directory and its parents; one that exists is fine."""

    def make_new(self, url: str) -> None:
        """Make a directory and its parents, `FileExistsError` if it is there: of several that make
        it at once one succeeds, where the file system can tell (fsspec cannot always)."""

    def exists(self, url: str) -> bool:
        """Whether anything is at `url`."""

    def hosts_of(self, url: str, start: int, length: int) -> tuple[str, ...]:
        """Name the hosts that hold most of a range, best first; empty where that means nothing."""


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URL (`file` for `file:/x` too), None for a plain path."""
    match = _SCHEME.match(path)
    return match.group(0) if match else None


def is_object_store(url: str) -> bool:
    """Whether a URL names objects, which can be copied and never renamed."""
    return scheme_of(url) in OBJECT_STORES


def join(url: str, *names: str) -> str:
    """Append path components to a URL."""
    return "/".join([url.rstrip("/") if url != "file:/" else "file:", *names])


def parent(url: str) -> str:
    """Drop the last component of a URL."""
    return url.rstrip("/").rsplit("/", 1)[0] or "/"


def local_path(url: str) -> str:
    """Return the path on this disk that a `file:` URL (or a plain path) names."""
    if not url.startswith("file:"):
        return from_wire(url)
    path = url[len("file:") :]
    if path.startswith("//"):
        # file://host/x is not a thing that we serve; file:///x is /x.
        path = path[2:]
    return from_wire(path) or "/"


class _WholeFile(Closing):
    """A file being written whole; with `sync`, `close` returns only after it is on the disk, its
    name too."""

    def __init__(self, path: str, *, sync: bool) -> None:
        self._sync = sync
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by close()
        self.name = path

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data)
        total = len(view)
        while len(view):
            view = view[self._file.write(view) :]
        return total

    def flush(self) -> None:
        """Do nothing: every write already went to the system."""

    def fileno(self) -> int:
        return self._file.fileno()

    def tell(self) -> int:
        return self._file.tell()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        if not self._file.closed:
            try:
                if self._sync:
                    os.fsync(self._file.fileno())
                    _sync_directory(os.path.dirname(self.name))
            finally:
                self._file.close()


class LocalFiles:
    """The local disk, through plain `os`; paths relative to `working_directory`."""

    def __init__(self, working_directory: str | None = None, *, sync: bool = True) -> None:
        """Without `sync` a file is as durable as any that a shell writes: after a while."""
        self._working_directory = working_directory or os.getcwd()
        self._sync = sync

    def qualify(self, path: str) -> str:
        joined = os.path.join(self._working_directory, local_path(path))
        # normpath keeps exactly two leading slashes (POSIX lets them mean something); here they
        # mean nothing.
        return to_wire("file:/" + os.path.normpath(joined).lstrip("/"))

    def status(self, url: str) -> FileStatus | None:
        try:
            return _local_status(url, os.stat(local_path(url)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, url: str) -> list[FileStatus]:
        found = []
        with os.scandir(local_path(url)) as entries:
            for entry in sorted(entries, key=lambda e: os.fsencode(e.name)):
                try:
                    found.append(_local_status(join(url, to_wire(entry.name)), entry.stat()))
                except FileNotFoundError:
                    # Gone since the listing, or a dangling link: not an input file (as Hadoop has
                    # it).
                    continue
        return found

    def open(self, url: str, offset: int = 0, version: str = "") -> BinaryIO:
        file = open(local_path(url), "rb", buffering=0)  # noqa: SIM115 - the caller closes it
        if version and version != str(os.fstat(file.fileno()).st_ino):
            file.close()
            raise InputReplaced.at(url)
        if offset:
            file.seek(offset)
        return cast(BinaryIO, file)

    def create(self, url: str) -> BinaryIO:
        path = local_path(url)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return cast(BinaryIO, _WholeFile(path, sync=self._sync))

    def rename(self, source: str, target: str) -> None:
        path = local_path(target)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.replace(local_path(source), path)
        if self._sync:
            _sync_directory(os.path.dirname(path))

    def delete(self, url: str) -> None:
        path = local_path(url)
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                import shutil  # 5 ms that most commands need not pay

                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            return

    def mkdirs(self, url: str) -> None:
        path = local_path(url)
        made = []
        while self._sync and not os.path.isdir(path):
            path = os.path.dirname(path)
            made.append(path)
        os.makedirs(local_path(url), exist_ok=True)
        for directory in made:
            _sync_directory(directory)

    def make_new(self, url: str) -> None:
        self.mkdirs(parent(url))
        os.mkdir(local_path(url))
        if self._sync:
            _sync_directory(local_path(parent(url)))

    def exists(self, url: str) -> bool:
        return os.path.lexists(local_path(url))

    def hosts_of(self, url: str, start: int, length: int) -> tuple[str, ...]:
        return ()


def _local_status(url: str, stat: os.stat_result) -> FileStatus:
    is_directory = (stat.st_mode & 0o170000) == 0o040000
    length = 0 if is_directory else stat.st_size
    return FileStatus(url, length, is_directory, version=str(stat.st_ino))


def _sync_directory(path: str) -> None:
    """Make the names in `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hint(scheme: str) -> str:
    if scheme in ("hdfs", "viewfs"):
        return f"; a path of the current cluster is written without {scheme}://HOST:PORT"
    return ""


class FsspecFiles:
    """One file system of fsspec (`memory`, `gs`, …), given by any URL on it."""

    def __init__(self, url: str) -> None:
        import fsspec  # 100 ms that a local job need not pay

        self._scheme = scheme_of(url) or "file"
        try:
            self._fs: Any = fsspec.core.url_to_fs(url)[0]
        except (ImportError, ValueError, OSError) as error:
            # Of pyarrow, where there is no Java, a hundred lines of where it looked for one.
            why = (str(error) or type(error).__name__).splitlines()[0]
            raise UserError(f"{url} cannot be used: {why}{_hint(self._scheme)}") from None

    def qualify(self, path: str) -> str:
        return self._url(self._path(path))

    def status(self, url: str) -> FileStatus | None:
        try:
            return self._status(self._fs.info(self._path(url)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, url: str) -> list[FileStatus]:
        entries = self._fs.ls(self._path(url), detail=True)
        found = [self._status(entry) for entry in entries]
        return sorted(found, key=lambda status: status.name.encode("utf-8", "surrogateescape"))

    def open(self, url: str, offset: int = 0, version: str = "") -> BinaryIO:
        file = self._fs.open(self._path(url), "rb")
        if offset:
            file.seek(offset)
        return cast(BinaryIO, file)

    def create(self, url: str) -> BinaryIO:
        path = self._path(url)
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)
        return cast(BinaryIO, self._fs.open(path, "wb"))

    def rename(self, source: str, target: str) -> None:
        path = self._path(target)
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)
        self._fs.mv(self._path(source), path, recursive=self._fs.isdir(self._path(source)))

    def delete(self, url: str) -> None:
        try:
            self._fs.rm(self._path(url), recursive=True)
        except FileNotFoundError:
            return

    def mkdirs(self, url: str) -> None:
        self._fs.makedirs(self._path(url), exist_ok=True)

    def make_new(self, url: str) -> None:
        path = self._path(url)
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)
        self._fs.mkdir(path, create_parents=False)

    def exists(self, url: str) -> bool:
        return bool(self._fs.exists(self._path(url)))

    def hosts_of(self, url: str, start: int, length: int) -> tuple[str, ...]:
        return ()  # fsspec does not know where bytes lie

    def _path(self, url: str) -> str:
        return str(self._fs._strip_protocol(url))

    def _url(self, path: str) -> str:
        return str(self._fs.unstrip_protocol(path))

    def _status(self, info: dict[str, Any]) -> FileStatus:
        is_directory = info["type"] == "directory"
        block_bytes = int(info.get("block_size") or info.get("chunk_size") or BLOCK_BYTES_DEFAULT)
        size = 0 if is_directory else info.get("size")
        if size is None:
            raise UnknownLength(
                f"{info['name']} does not say how long it is, so it cannot be split; copy it first"
            )
        return FileStatus(self._url(info["name"]), int(size), is_directory, block_bytes)


class RoutedFiles:
    """All file systems at once: the scheme of each URL picks one; a path without one is on
    `default`.

    `default` is a URL such as `file:///` or `dfs://demo/`. A relative path starts in
    `working_directory` on the disk, and in the user's home (`/user/NAME`) elsewhere. What is
    changed in the dfs is changed under `fences`, beside those of this process.
    """

    def __init__(
        self,
        default: str = "file:///",
        working_directory: str | None = None,
        fences: Fences = (),
    ) -> None:
        self._default = default
        self._fences = fences
        self._local = scheme_of(default) in (None, "file")
        self._working_directory = working_directory
        self._by_root: dict[str, Files] = {}

    def qualify(self, path: str) -> str:
        if scheme_of(path) is None and not self._local:
            authority = self._default.split("://", 1)[1].split("/", 1)[0]
            absolute = os.path.normpath(os.path.join("/user", user_name(), path))
            path = f"{scheme_of(self._default)}://{authority}/{absolute.lstrip('/')}"
        return self._of(path).qualify(path)

    def status(self, url: str) -> FileStatus | None:
        return self._of(url).status(url)

    def list(self, url: str) -> list[FileStatus]:
        return self._of(url).list(url)

    def open(self, url: str, offset: int = 0, version: str = "") -> BinaryIO:
        return self._of(url).open(url, offset, version)

    def create(self, url: str) -> BinaryIO:
        return self._of(url).create(url)

    def rename(self, source: str, target: str) -> None:
        self._of(source).rename(source, target)

    def delete(self, url: str) -> None:
        self._of(url).delete(url)

    def mkdirs(self, url: str) -> None:
        self._of(url).mkdirs(url)

    def make_new(self, url: str) -> None:
        self._of(url).make_new(url)

    def exists(self, url: str) -> bool:
        return self._of(url).exists(url)

    def hosts_of(self, url: str, start: int, length: int) -> tuple[str, ...]:
        return self._of(url).hosts_of(url, start, length)

    def _of(self, url: str) -> Files:
        scheme = scheme_of(url)
        local = scheme in (None, "file")
        root = "file:" if local else url[: (url + "/").index("/", len(scheme or "") + 3)]
        files = self._by_root.get(root)
        if files is None:
            # Local mode does not sync its files, as a shell does not; a cluster does: what it
            # acknowledged is there after a power cut.
            here = LocalFiles(self._working_directory, sync=not self._local)
            files = here if local else _remote_files(scheme, url, self._fences)
            self._by_root[root] = files
        return files


def _remote_files(scheme: str | None, url: str, fences: Fences) -> Files:
    if scheme == "dfs":
        from mrstream.mapreduce.dataflow.dfs_files import DfsFiles  # a local job needs no dfs

        return DfsFiles(url, fences)
    if scheme in OBJECT_STORES:
        from mrstream.mapreduce.dataflow.s3_files import S3Files  # nor an object store

        return S3Files(url)
    return FsspecFiles(url)


def copy_parts(files: Files, directory: str, stream: BinaryIO) -> None:
    """Copy the results below a directory to a stream: its own files in the order of their names,
    then those of the directories in it."""
    import shutil  # 5 ms that most commands need not pay

    entries = [entry for entry in files.list(directory) if not entry.name.startswith("_")]
    for entry in entries:
        if not entry.is_directory:
            with files.open(entry.url) as part:
                shutil.copyfileobj(part, stream, COPY_BYTES)
    for entry in entries:
        if entry.is_directory:
            copy_parts(files, entry.url, stream)
