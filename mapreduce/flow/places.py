"""Outputs of steps on their way to their final names, on any file system.

A place that is whole holds `_flow`, a file with the place's own name: it moves along when the place
gets its final name, so that whoever looks there can tell which output it is. On the local disk two
directories are exchanged at once; elsewhere the old one steps aside first. Never decides anything.
"""

from __future__ import annotations

import ctypes
import os

from mrstream.mapreduce.dataflow.committer import SUCCESS
from mrstream.mapreduce.dataflow.files import Files, join, local_path, parent

MARK = "_flow"
_AT_FDCWD, _EXCHANGE = -100, 2
_MARK_BYTES_MAX = 1 << 16


class PlaceKeeper:
    """Looks at places and moves them."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def is_whole(self, place: str) -> bool:
        """Whether a place holds a complete output: a job says so itself, by `_SUCCESS`."""
        mark = self.mark_of(place)
        if mark is not None:
            return mark == place
        return self._files.exists(join(self._files.qualify(place), SUCCESS))

    def mark_of(self, path: str) -> str | None:
        """Return the place that a directory was; None if it never was one."""
        url = join(self._files.qualify(path), MARK)
        if self._files.status(url) is None:
            return None
        with self._files.open(url) as file:
            return file.read(_MARK_BYTES_MAX).decode("utf-8", "surrogateescape")

    def make(self, place: str) -> None:
        """Make an empty place, for a command to write into."""
        self._files.mkdirs(self._files.qualify(place))

    def mark(self, place: str) -> None:
        """Call a place whole."""
        url = self._files.qualify(place)
        if self._files.status(url) is None:
            return  # a job that wrote to standard output, or a command to nowhere
        with self._files.create(join(url, MARK)) as file:
            file.write(place.encode("utf-8", "surrogateescape"))

    def publish(self, place: str, final: str) -> None:
        """Give a place its final name; may be done again after a crash."""
        if self.mark_of(final) == place:
            return
        if self.mark_of(place) is None:
            # A job's own `_SUCCESS` called it whole, after a crash just before the mark was set.
            # Without one, the next crash could not tell what the final name holds (P2).
            self.mark(place)
        source, target = self._files.qualify(place), self._files.qualify(final)
        if not self._files.exists(target):
            self._files.rename(source, target)
        elif target.startswith("file:") and _exchange(local_path(source), local_path(target)):
            self._files.delete(source)
        else:
            aside = f"{source}.old"
            self._files.delete(aside)
            self._files.rename(target, aside)
            self._files.rename(source, target)
            self._files.delete(aside)

    def remove(self, place: str) -> None:
        """Remove a place, what stepped aside for it, and the directory that held the last one."""
        url = self._files.qualify(place)
        self._files.delete(url)
        self._files.delete(f"{url}.old")
        above = parent(url)
        if self._files.status(above) is not None and not self._files.list(above):
            self._files.delete(above)


def _exchange(one: str, other: str) -> bool:
    """Exchange two names at once; False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    status: int = renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_EXCHANGE)
    )
    return status == 0
