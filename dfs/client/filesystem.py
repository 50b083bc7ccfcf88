"""fsspec's `dfs://`: the file system for pandas, pyarrow, polars, DuckDB and everyone else.

    dfs:///path        on the current cluster
    dfs://NAME/path    on the cluster of that name

Takes and gives what `fsspec.AbstractFileSystem` says. Listings, globs and sums are served by the
master in a few calls; a rename is atomic; `x` mode is exclusive; a file written in a transaction
appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from mrstream.cluster.config import state
from mrstream.cluster.retry import RetryPolicy
from mrstream.dfs.chunk import NO_FENCE, Fence
from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient, connect
from mrstream.dfs.client.filesystem_file import DfsFile
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import (
    DirectoryNotEmpty,
    FileExists,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
)
from mrstream.dfs.protocol import FileStatus

RANGES_AT_ONCE = 8
_MAGIC = frozenset("*?[")


class DfsFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The chunk store as an fsspec file system."""

    protocol = "dfs"
    root_marker = "/"
    async_impl = False

    def __init__(
        self,
        cluster: str | None = None,
        user: str = "",
        retry_s: float | None = None,
        replication: int = 0,
        fence: Fence = NO_FENCE,
        **options: Any,
    ) -> None:
        """`cluster` is a file or a name; `retry_s` how long to ride over failures;
        `replication` that of files made here (0: the directory's); `fence` is that of a lock, under
        which all changes are made."""
        super().__init__(**options)
        self.cluster = cluster
        self.user = user
        self._retry = RetryPolicy() if retry_s is None else RetryPolicy(total_s=retry_s)
        self._replication = replication
        self._fence = fence
        self._clients: dict[tuple[int, str | None], DfsClient] = {}

    @property
    def client(self) -> DfsClient:
        """The client of the cluster meant, made when first needed (and after a fork)."""
        key = os.getpid(), state.chosen(self.cluster)
        client = self._clients.get(key)
        if client is None:
            client = connect(self.cluster, user=self.user, retry=self._retry, fence=self._fence)
            self._clients = {key: client}
        return client

    @property
    def fsid(self) -> str:
        return f"dfs_{self.client.master}"

    # --- paths

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith("dfs://"):
            _, _, path = path[6:].partition("/")
        elif path.startswith("dfs:"):
            path = path[4:]
        path = "/" + path.strip("/")
        while "//" in path:
            path = path.replace("//", "/")
        return path

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        path = stringify_path(path)
        if path.startswith("dfs://"):
            name = path[6:].partition("/")[0]
            if name:
                return {"cluster": name}
        return {}

    def unstrip_protocol(self, name: str) -> str:
        return f"dfs://{self.cluster or ''}{self._strip_protocol(name)}"

    # --- looking

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return _info(self._status(path))

    def _status(self, path: str) -> FileStatus:
        return self.client.stat(self._strip_protocol(path))

    def exists(self, path: str, **kwargs: Any) -> bool:
        try:
            self._status(path)
        except (NoSuchFile, NotADirectory):
            return False
        return True

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        entries = [_info(status) for status in self.client.list(self._strip_protocol(path))]
        return entries if detail else [entry["name"] for entry in entries]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: Any,
    ) -> Any:
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        found: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(NoSuchFile, NotADirectory):
            for status in self.client.find(path, maxdepth or 0):
                if withdirs or not status.is_directory:
                    found[status.path] = _info(status)
        found.pop("/", None)
        return found if detail else list(found)

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **kwargs: Any,
    ) -> Any:
        if total and maxdepth is None:
            return self.client.summarise(self._strip_protocol(path))[0].length_bytes
        return super().du(path, total=total, maxdepth=maxdepth, withdirs=withdirs, **kwargs)

    def created(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._status(path).created_at_s, UTC)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._status(path).modified_at_s, UTC)

    def ukey(self, path: str) -> str:
        """Another after every change of the file's bytes: no two files ever share an id."""
        status = self._status(path)
        return f"{status.file_id:x}-{status.length_bytes:x}-{status.modified_at_s!r}"

    def checksum(self, path: str) -> int:
        from mrstream.dfs.client.file_checksum import composite_crc

        return composite_crc(self.client, self._strip_protocol(path))

    def block_locations(
        self, path: str, start: int = 0, length: int | None = None
    ) -> list[dict[str, Any]]:
        """Where the bytes of a range are: for each chunk its offset and length in the file, and
        the names of the hosts that hold it."""
        path = self._strip_protocol(path)
        located = self.client.locate(path, 0, 1)
        chunk_bytes = located.status.chunk_bytes
        end = located.status.length_bytes if length is None else start + length
        last = max(0, end - 1) // chunk_bytes
        chunks = self.client.chunks(path, start // chunk_bytes)
        return [
            {
                "offset": chunk.index * chunk_bytes,
                "length": chunk.length_bytes,
                "hosts": [server.server for server in chunk.replicas],
            }
            for chunk in takewhile(lambda chunk: chunk.index <= last, chunks)
        ]

    # --- changing names

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents and self.exists(path):
            raise FileExists(f"{path} exists")
        self.client.make_directory(path, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not exist_ok and self.exists(path):
            raise FileExists(f"{path} exists")
        self.client.make_directory(path, parents=True)

    def rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        if not self.client.stat(path).is_directory:
            raise NotADirectory(f"{path} is a file")
        if next(iter(self.client.list(path)), None) is not None:
            raise DirectoryNotEmpty(f"{path} is not empty")
        self.client.delete(path, skip_trash=True)

    def rm_file(self, path: str) -> None:
        self._delete(self._strip_protocol(path), recursive=False)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            matches = self.glob(one) if _MAGIC & set(one) and not self.exists(one) else [one]
            if not matches:
                raise NoSuchFile(f"{one} matches nothing")
            for match in matches:
                self._delete(match, recursive=recursive)

    def _delete(self, path: str, *, recursive: bool) -> None:
        status = self.client.stat(path)
        if status.is_directory and not recursive:
            raise IsADirectory(f"{path} is a directory; rm(recursive=True) removes it")
        self.client.delete(path, recursive=recursive)

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """An atomic rename; into `path2` if that is a directory."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if stringify_path(path2).endswith("/") or self.isdir(target):
            target = f"{target.rstrip('/')}/{source.rpartition('/')[2]}"
        if source != target:
            self.client.rename(source, target, overwrite=True)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.client.stat(source).is_directory:
            self.client.make_directory(target, parents=True)
            return
        with DfsReader(self.client, source) as original:
            with self.create(target, overwrite=True) as copy:
                copy.writelines(original.pieces())

    # --- bytes

    def create(self, path: str, *, overwrite: bool, **options: Any) -> writer.DfsWriter:
        """Open a new file for writing, without fsspec's buffer. One that may replace another has
        its name, and the other loses it, only when it is complete."""
        make = writer.create_hidden if overwrite else writer.create
        return make(
            self.client, path, overwrite=overwrite, replication=self._replication,
            **{"parents": True, **options},
        )  # fmt: skip

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> DfsFile:
        return DfsFile(
            self,
            self._strip_protocol(path),
            mode,
            block_size or DfsFile.DEFAULT_BLOCK_SIZE,
            autocommit=autocommit,
            cache_options=cache_options,
            **kwargs,
        )

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if truncate or not self.exists(path):
            self.create(path, overwrite=True, first_chunk=False).close()
        else:
            now_s = datetime.now(UTC).timestamp()
            self.client.set_times(path, modified_at_s=now_s, accessed_at_s=now_s)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        with DfsReader(self.client, self._strip_protocol(path)) as reader:
            size = reader.size if (start or 0) < 0 or end is None or end < 0 else 0
            begin = max(0, size + start) if start is not None and start < 0 else start or 0
            stop = size if end is None else size + end if end < 0 else end
            return reader.pread(begin, max(0, stop - begin))

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        target = self._strip_protocol(path)
        is_new = mode == "create"
        if self._intrans:
            file = self.open(target, "xb" if is_new else "wb")
        else:
            file = self.create(target, overwrite=not is_new)
        with file:
            file.write(value)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        if max_gap is not None:
            raise NotImplementedError("max_gap is not supported")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts, {len(ends)} ends")

        def fetch(path: str, start: int | None, end: int | None) -> Any:
            try:
                return self.cat_file(path, start, end)
            except Exception as error:
                if on_error == "return":
                    return error
                raise

        with ThreadPoolExecutor(RANGES_AT_ONCE) as threads:
            return list(threads.map(fetch, paths, starts, ends))


def _info(status: FileStatus) -> dict[str, Any]:
    return {
        "name": status.path,
        "size": status.length_bytes if not status.is_directory else 0,
        "type": "directory" if status.is_directory else "file",
        "created": status.created_at_s,
        "mtime": status.modified_at_s,
        "accessed": status.accessed_at_s,
        "owner": status.owner,
        "group": status.group,
        "mode": status.mode,
        "replication": status.replication,
        "block_size": status.chunk_bytes,
        "file_id": status.file_id,
        "is_open": status.is_open,
    }


def temporary_name(path: str) -> str:
    """A name beside `path` that nobody else uses, for what is to appear whole."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/.{name}.{secrets.token_hex(8)}.part"
