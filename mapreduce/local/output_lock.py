"""One job at a time into one output: what a cluster's master knows of its jobs, a lock knows here.

The lock of a directory on this machine's disks is on the directory itself, so that it holds for all
users; that of another place is on a file of this user's state, named by the place. It is the
kernel's (`flock`): it ends with the last process that has the descriptor, kill -9 or not. Where a
file system has no locks there is none, and only the making of `_temporary` keeps a second job out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os

from mrstream.mapreduce import history
from mrstream.mapreduce.dataflow.committer import OutputExists
from mrstream.mapreduce.dataflow.files import Files, local_path

_TRIES_MAX = 100
"""A file system that calls a directory another one at each look has no locks that could be held."""
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class OutputLock:
    """The right of one job to write below a URL."""

    def __init__(self, url: str, files: Files) -> None:
        self._url = url
        self._files = files
        self._is_here = url.startswith("file:")
        name = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()
        self._path = (
            local_path(url) if self._is_here else os.path.join(history.home(), "outputs", name)
        )
        self._descriptor = -1

    def take(self) -> int:
        """Take it, or keep it if we have it; return its descriptor, -1 where there are no locks.
        `OutputExists` if another job has it."""
        for _ in range(_TRIES_MAX):
            if self._descriptor >= 0 and self._is_there():
                return self._descriptor
            self._close()
            with contextlib.suppress(FileNotFoundError):  # deleted again, just now
                self._descriptor = self._opened()
            if self._descriptor < 0:
                continue
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self._close()
                if error.errno in _NO_LOCKS:
                    return -1
                if error.errno != errno.EWOULDBLOCK:
                    raise
                raise OutputExists(
                    f"Output directory {self._url} is being written by another job: wait for it, "
                    "or end it"
                ) from None
        self._close()
        return -1

    def release(self) -> None:
        """Let another job in."""
        if self._descriptor >= 0 and not self._is_here and self._is_there():
            os.unlink(self._path)
        self._close()

    def _opened(self) -> int:
        if self._is_here:
            self._files.mkdirs(self._url)
            return os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)

    def _is_there(self) -> bool:
        """Whether what we have open still has its name: whoever had the lock before may have
        deleted it, and then others lock another one."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        return False

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
