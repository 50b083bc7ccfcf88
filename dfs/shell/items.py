"""From a path as a user wrote it to what it names, shown the way the user wrote it.

`out/part-00000` stays `out/part-00000` in the output although it lies in `/user/me/out`; a pattern
becomes all that it matches. Also the state of one run: where it writes, and what failed.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.terminal import masked
from mrstream.dfs.errors import (
    DirectoryNotEmpty,
    FileExists,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
    PermissionDenied,
)
from mrstream.dfs.protocol import FileStatus
from mrstream.dfs.shell.volumes import DiskVolume, Volume

_MAGIC = frozenset("*?[{")
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (NoSuchFile, "No such file or directory"),
    (FileExists, "File exists"),
    (IsADirectory, "Is a directory"),
    (NotADirectory, "Is not a directory"),
    (DirectoryNotEmpty, "Directory is not empty"),
    (PermissionDenied, "Permission denied"),
)


@dataclass(frozen=True, slots=True)
class Item:
    """One path: the file system it is on, its place there, how to show it, and what is there."""

    volume: Volume
    path: str
    shown: str
    status: FileStatus | None

    def child(self, status: FileStatus) -> Item:
        """An entry of this directory."""
        shown = self.below_shown(posixpath.basename(status.path))
        return Item(self.volume, status.path, shown, status)

    def below(self, name: str) -> Item:
        """What has that name in this directory, if anything."""
        path = posixpath.join(self.path, name)
        shown = self.below_shown(name)
        return Item(self.volume, path, shown, status_or_none(self.volume, path))

    def nothing_below(self, name: str) -> Item:
        """The same, of a directory that was just made."""
        return Item(self.volume, posixpath.join(self.path, name), self.below_shown(name), None)

    def below_shown(self, relative: str) -> str:
        """How something below this directory is shown."""
        if not relative or self.shown == ".":
            return relative or self.shown
        return self.shown + relative if self.shown.endswith("/") else f"{self.shown}/{relative}"

    @property
    def is_directory(self) -> bool:
        return self.status is not None and self.status.is_directory

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)

    def known(self) -> FileStatus:
        """The status; NoSuchFile if there is nothing."""
        if self.status is None:
            raise NoSuchFile(self.shown)
        return self.status


@dataclass(slots=True)
class Shell:
    """One run: where output goes, which file systems there are, whether anything failed."""

    default: Volume
    disk: Volume
    cluster_of: Callable[[str], Volume]
    """The volume of `dfs://NAME`; an empty name is the current cluster."""
    decode: Callable[[str, io.BufferedReader], Iterator[bytes]]
    """For `text`: (name, file) → what is in it, by its first bytes or its suffix."""
    out: IO[bytes] = field(default_factory=lambda: sys.stdout.buffer)
    error: IO[str] = field(default_factory=lambda: sys.stderr)
    verb: str = ""
    status: int = 0
    shows_progress: bool = False
    spares_disk: bool = False
    """A bare path may not mean this machine's disk: the verb changes something, and nobody said so.
    """

    def print(self, text: str) -> None:
        if self.out.isatty():
            text = masked(text)
        self.out.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def fail(self, error: ClusterError | str, shown: str = "") -> None:
        """Say what went wrong, in Hadoop's words, and remember it for the exit status."""
        self.status = 1
        self.out.flush()
        print(f"{self.verb}: {_words(error, shown)}", file=self.error, flush=True)

    @contextlib.contextmanager
    def reported(self, shown: str) -> Iterator[None]:
        """Say what goes wrong inside, and go on after it."""
        try:
            yield
        except ClusterError as error:
            # Where the error is about another path, as the user wrote it, that is the one to show.
            self.fail(error, error.details.get("shown", shown))

    # --- paths

    def resolve(self, text: str) -> Item:
        """What a path names; there need not be anything."""
        volume, path, shown = self._place(text)
        return Item(volume, path, shown, status_or_none(volume, path))

    def named(self, text: str) -> Item:
        """A path alone: nobody is asked what is there."""
        return Item(*self._place(text), None)

    def on_disk(self, text: str) -> Item:
        """What a path names on this machine's disk (the local side of a copy)."""
        return self.resolve(text if "://" in text or text.startswith("file:") else f"file:{text}")

    def matches(self, text: str, *, on_disk: bool = False) -> list[Item]:
        """All that a path or pattern names; NoSuchFile if there is nothing."""
        if on_disk and "://" not in text and not text.startswith("file:"):
            volume, path, shown = self.disk, _absolute(text, self.disk.home()), text
        else:
            volume, path, shown = self._place(text)
        if not _MAGIC & set(path):
            status = status_or_none(volume, path)
            if status is None:
                raise NoSuchFile(shown)
            return [Item(volume, path, shown, status)]
        found = volume.glob(path)
        if not found:
            raise NoSuchFile(shown)
        return [
            Item(volume, status.path, _shown_like(shown, path, status.path), status)
            for status in found
        ]

    def each(self, texts: tuple[str, ...], *, on_disk: bool = False) -> Iterator[Item]:
        """All items of all paths; a path that names nothing is said, and the rest go on."""
        for text in texts:
            with self.reported(text):
                yield from self.matches(text, on_disk=on_disk)

    def _place(self, text: str) -> tuple[Volume, str, str]:
        if text.startswith("file:"):
            bare = text.removeprefix("file:")
            is_url = bare.startswith("//")
            path = "/" + bare.lstrip("/") if is_url else bare
            shown = text if is_url else bare
            return self.disk, _absolute(path, self.disk.home()), shown
        if text.startswith("dfs://"):
            name, _, path = text.removeprefix("dfs://").partition("/")
            return self.cluster_of(name), _absolute("/" + path, "/"), text
        if text.startswith("dfs:"):
            return self.cluster_of(""), _absolute(text.removeprefix("dfs:"), "/"), text
        if self.spares_disk and is_disk(self.default):
            raise UserError(
                f"there is no current cluster, and -{self.verb} would change this machine's own "
                f"disk: write file:{text} or -fs local if you mean that; `mrstream cluster up` "
                "makes a cluster"
            )
        return self.default, _absolute(text, self.default.home()), text or "."


def status_or_none(volume: Volume, path: str) -> FileStatus | None:
    try:
        return volume.status(path)
    except (NoSuchFile, NotADirectory):
        return None


def is_disk(volume: Volume) -> bool:
    return isinstance(volume, DiskVolume)


def _absolute(path: str, home: str) -> str:
    joined = posixpath.join(home, path) if path else home
    parts = [part for part in joined.split("/") if part not in ("", ".")]
    # `..` is resolved here, by name, as Hadoop does: there are no links that it could mean.
    resolved: list[str] = []
    for part in parts:
        if part == "..":
            del resolved[-1:]
        else:
            resolved.append(part)
    return "/" + "/".join(resolved)


def _shown_like(shown: str, pattern: str, path: str) -> str:
    """Show a match the way its pattern was written: relative, absolute or as a URL."""
    if shown == pattern or pattern == path:
        return path if shown == pattern else shown
    if pattern.endswith("/" + shown.removeprefix("./")):
        home = pattern[: len(pattern) - len(shown.removeprefix("./"))]
        return path.removeprefix(home)
    prefix = shown[: shown.find("://") + 3] + shown.partition("://")[2].partition("/")[0]
    return prefix + path if "://" in shown else path


def _words(error: ClusterError | str, shown: str) -> str:
    if isinstance(error, str):
        return error
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return f"`{shown or error}': {reason}"
    return f"{shown}: {error}" if shown and shown not in str(error) else str(error)
