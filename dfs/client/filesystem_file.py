"""One file as fsspec's users hold it: buffered, seekable for reading, committed for writing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile

from mrstream.dfs.client import writer
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import NoSuchFile

if TYPE_CHECKING:
    from mrstream.dfs.client.filesystem import DfsFileSystem


class DfsFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """A `dfs://` file. Outside a transaction it is complete once closed; a `with` block that ends
    in an exception leaves no file that looks complete."""

    DEFAULT_BLOCK_SIZE = 4 << 20

    def __init__(self, fs: DfsFileSystem, path: str, mode: str = "rb", *args: Any, **kwargs: Any):
        self._reader: DfsReader | None = None
        self._writer: writer.DfsWriter | None = None
        self._target = path
        if mode == "rb":
            self._reader = DfsReader(fs.client, path)
            kwargs.setdefault("size", self._reader.size)
        super().__init__(fs, path, mode, *args, **kwargs)
        if mode == "ab":
            self.loc = self._begin_append()
        elif mode == "xb" and self.autocommit:
            # Exclusive means from now on, not from the first full buffer on.
            self._initiate_upload()
            self.offset = 0

    # --- reading

    def _fetch_range(self, start: int, end: int) -> bytes:
        assert self._reader is not None
        return self._reader.pread(start, end - start)

    # --- writing

    def _begin_append(self) -> int:
        """Open for appending (a transaction appends to a copy); return the position."""
        try:
            if self.autocommit:
                self._writer = writer.append(self.fs.client, self.path)
            else:
                self._initiate_upload()
                assert self._writer is not None
                with DfsReader(self.fs.client, self._target) as original:
                    self._writer.writelines(original.pieces())
        except NoSuchFile:
            self._initiate_upload()
        self.offset = 0
        assert self._writer is not None
        return self._writer.tell()

    def _initiate_upload(self) -> None:
        if self._writer is not None:
            return
        if not self.autocommit:
            from mrstream.dfs.client.filesystem import temporary_name

            self.path = temporary_name(self._target)
        is_new = self.mode == "xb" and self.autocommit
        self._writer = self.fs.create(self.path, overwrite=not is_new, first_chunk=False)

    def _upload_chunk(self, final: bool = False) -> bool:
        assert self._writer is not None
        self._writer.write(self.buffer.getbuffer())
        if final:
            self._writer.close()
        return True

    def commit(self) -> None:
        """Give the finished file its name, atomically."""
        if self.path != self._target:
            self.fs.client.rename(self.path, self._target, overwrite=self.mode != "xb")
            self.path = self._target

    def discard(self) -> None:
        """Throw the unfinished or uncommitted file away."""
        if self._writer is not None and not self._writer.closed:
            self._writer.abandon()
        elif self.path != self._target:
            self.fs.client.delete(self.path, skip_trash=True)

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._reader is not None:
                self._reader.close()

    def __exit__(self, kind: object = None, *rest: object) -> None:
        if kind is not None and self.mode != "rb" and not self.closed:
            if self._writer is not None:
                self._writer.abandon()
            self._closed = True
            return
        self.close()

    def __del__(self) -> None:
        # Garbage collection is no `close`: what was not closed is not complete.
        if not getattr(self, "_closed", True):
            if self.mode == "rb":
                self.close()
            elif self._writer is not None:
                self._writer.abandon()
