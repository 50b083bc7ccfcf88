"""A file that has its name only when it is whole.

A worker that was taken for dead may write the same file as the one that took its task over, and a
master may look at the directory at any time: so neither sees half of it, nor a stray name beside
it where the file system can hold a file without one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from typing import BinaryIO

_MODE = 0o666
_NO_NAMELESS_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """Yield a file to write; `path` is replaced by it at the end, and untouched after an error."""
    directory, name = os.path.split(path)
    aside = os.path.join(directory, f".{name}.{os.getpid()}")
    descriptor = _nameless(directory or ".")
    has_name = descriptor is None
    if descriptor is None:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if not has_name:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside)
                # A link cannot replace a file, and a rename can.
                # With a directory given, Python asks the system to follow the link of /proc.
                os.link(f"/proc/self/fd/{file.fileno()}", aside, src_dir_fd=file.fileno())
                has_name = True
        os.replace(aside, path)
    except BaseException:
        if has_name:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        raise


def copy_whole(source: str, target: str) -> None:
    """Copy a file; the source stays, so that both places have it (R11)."""
    with open(source, "rb") as read, whole_file(target) as written:
        shutil.copyfileobj(read, written, 1 << 20)


def _nameless(directory: str) -> int | None:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_WRONLY, _MODE)
    except OSError as error:
        if error.errno in _NO_NAMELESS_FILES and os.path.isdir(directory):
            return None
        raise
