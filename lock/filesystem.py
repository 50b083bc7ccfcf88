"""fsspec's `ls://`: the cell's files for whatever reads and writes files (Chubby §2.3).

    ls://local/path    in the cell of the current cluster
    ls://NAME/path     in the cell of the cluster of that name

Files are read and written whole: what is written is there when the file is closed, and not at all
if the block that writes it fails. Locks and events are not of this interface.
"""

from __future__ import annotations

import io
import os
from types import TracebackType
from typing import Any

from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from mrstream.lock.client.client import CellClient, connect
from mrstream.lock.errors import NodeExists, NodeHasChildren, NodeIsDirectory, NodeNotDirectory
from mrstream.lock.paths import ROOT
from mrstream.lock.protocol import ANY_GENERATION, Stat


class LockFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The files of a lock cell."""

    protocol = "ls"
    root_marker = ROOT
    async_impl = False

    def __init__(self, cluster: str | None = None, user: str = "", **options: Any) -> None:
        """`cluster` is a file or a name; None: the current one."""
        super().__init__(**options)
        self.cluster = cluster
        self.user = user
        self._cells: dict[int, CellClient] = {}

    @property
    def cell(self) -> CellClient:
        """The session, opened when first needed (and after a fork)."""
        cell = self._cells.get(os.getpid())
        if cell is None:
            cell = connect(self.cluster, user=self.user)
            self._cells = {os.getpid(): cell}
        return cell

    # --- paths

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith("ls://"):
            path = ROOT + "/" + path[5:].partition("/")[2]
        names = [name for name in path.split("/") if name]
        if names[:1] != ["ls"]:
            names = ["ls", "local", *names]
        return "/" + "/".join(names)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        name = stringify_path(path).removeprefix("ls://").partition("/")[0]
        return {"cluster": name} if "://" in path and name not in ("", "local") else {}

    def unstrip_protocol(self, name: str) -> str:
        rest = self._strip_protocol(name).split("/", 3)[3:]
        return "/".join([f"ls://{self.cluster or 'local'}", *rest])

    # --- looking

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return _info(self.cell.stat(self._strip_protocol(path)))

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.cell.exists(self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        stat = self.cell.stat(path)
        paths = [path]
        if stat.is_directory:
            paths = [f"{path}/{name}" for name in self.cell.list(path)]
        if not detail:
            return paths
        # A node may go between the two looks: then it is not there.
        seen = [self.cell.look(one).stat for one in paths]
        return [_info(one) for one in seen if one is not None]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        return self.cell.get(self._strip_protocol(path))[start:end]

    # --- changing

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        generation = 0 if mode == "create" else ANY_GENERATION
        self.cell.put(self._strip_protocol(path), bytes(value), generation)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.makedirs(path.rpartition("/")[0], exist_ok=True)
        if not self.cell.mkdir(path):
            raise NodeExists(f"{path} exists")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        names = self._strip_protocol(path).removeprefix(ROOT).strip("/").split("/")
        made, at = False, ROOT
        for name in names if names != [""] else []:
            at = f"{at}/{name}"
            made = self.cell.mkdir(at)
        if not made and not exist_ok:
            raise NodeExists(f"{at} exists")

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        if self.cell.stat(path).is_directory:
            raise NodeIsDirectory(f"{path} is a directory")
        self.cell.delete(path)

    _rm = rm_file

    def rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        if not self.cell.stat(path).is_directory:
            raise NodeNotDirectory(f"{path} is a file")
        self.cell.delete(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in [path] if isinstance(path, str) else path:
            self._remove(self._strip_protocol(one), recursive)

    def _remove(self, path: str, recursive: bool) -> None:
        if self.cell.stat(path).is_directory:
            names = self.cell.list(path)
            if names and not recursive:
                raise NodeHasChildren(f"{path} has {len(names)} children")
            for name in names:
                self._remove(f"{path}/{name}", recursive)
        self.cell.delete(path)

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> io.BytesIO:
        path = self._strip_protocol(path)
        if mode == "rb":
            return io.BytesIO(self.cell.get(path))
        if mode not in ("wb", "xb"):
            raise ValueError(f"mode {mode!r}: a file of a cell is read (rb) or written whole (wb)")
        return _Writing(self, path, "create" if mode == "xb" else "overwrite")


class _Writing(io.BytesIO):
    """A file that is there, whole, when it is closed."""

    def __init__(self, filesystem: LockFileSystem, path: str, mode: str) -> None:
        super().__init__()
        self._filesystem = filesystem
        self._path = path
        self._mode = mode

    def close(self) -> None:
        if not self.closed:
            contents = self.getvalue()
            super().close()
            self._filesystem.pipe_file(self._path, contents, self._mode)

    def discard(self) -> None:
        """Write nothing."""
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        self.discard()


def _info(stat: Stat) -> dict[str, Any]:
    return {
        "name": stat.path,
        "size": stat.length_bytes,
        "type": "directory" if stat.is_directory else "file",
        "mtime": stat.modified_at_s,
        "instance": stat.instance,
        "generation": stat.content_generation,
        "ephemeral": stat.is_ephemeral,
    }
