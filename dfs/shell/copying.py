"""Verbs that copy bytes: put, get, cp, getmerge, appendToFile.

A tree is walked first; then its files are copied by a few threads at a time. A file gets its final
name only once it is complete.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mrstream.cluster.errors import ClusterError
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import DfsWriter
from mrstream.dfs.errors import BadRequest, FileExists, IsADirectory, NoSuchFile, NotADirectory
from mrstream.dfs.shell.arguments import Arguments, BadUsage
from mrstream.dfs.shell.items import Item, Shell, is_disk
from mrstream.dfs.shell.progress import Progress
from mrstream.dfs.shell.volumes import PIECE_BYTES, DiskFile

THREADS_DEFAULT = 4
THREADS_MAX = 64
PARTS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Copy:
    """One file to be copied."""

    source: Item
    target: Item


def put(shell: Shell, said: Arguments) -> None:
    """Copy from this machine's disk, or standard input for `-`."""
    *sources, last = said.rest if len(said.rest) > 1 else (*said.rest, ".")
    target = shell.resolve(last)
    if sources == ["-"]:
        _pour_in(shell, target, said)
        return
    _copy_all(shell, list(shell.each(tuple(sources), on_disk=True)), target, said, len(sources))


def get(shell: Shell, said: Arguments) -> None:
    """Copy to this machine's disk, or standard output for `-`."""
    *sources, last = said.rest if len(said.rest) > 1 else (*said.rest, ".")
    if last == "-":
        for item in shell.each(tuple(sources)):
            with _reported(shell, item.shown):
                shell.out.writelines(_pieces(item))
        return
    _copy_all(shell, list(shell.each(tuple(sources))), shell.on_disk(last), said, len(sources))


def cp(shell: Shell, said: Arguments) -> None:
    """Copy within or between file systems."""
    *sources, last = said.rest
    _copy_all(shell, list(shell.each(tuple(sources))), shell.resolve(last), said, len(sources))


def getmerge(shell: Shell, said: Arguments) -> None:
    """Put files, and the files of directories, one after the other into one file on disk."""
    *sources, last = said.rest
    target = shell.on_disk(last)
    items: list[Item] = []
    for item in shell.each(tuple(sources)):
        if item.is_directory:
            children = [item.child(one) for one in item.volume.list(item.path)]
            items += [child for child in children if not child.is_directory]
        else:
            items.append(item)
    if shell.status:
        return
    if target.is_directory:
        shell.fail(IsADirectory(last), last)
        return
    with _reported(shell, last), target.volume.create(target.path, overwrite=True) as merged:
        for item in items:
            if "skip-empty-file" in said and item.known().length_bytes == 0:
                continue
            for piece in _pieces(item):
                merged.write(piece)
            if "nl" in said:
                merged.write(b"\n")


def append_to_file(shell: Shell, said: Arguments) -> None:
    """Append files of this machine's disk, or standard input for `-`."""
    *sources, last = said.rest
    target = shell.resolve(last)
    with _reported(shell, last):
        if target.is_directory:
            raise IsADirectory(last)
        if target.status is None:
            file = target.volume.create(target.path, overwrite=False)
        else:
            file = target.volume.append(target.path)
        try:
            for word in sources:
                if word == "-":
                    while piece := sys.stdin.buffer.read(PIECE_BYTES):
                        file.write(piece)
                    continue
                for item in shell.matches(word, on_disk=True):
                    for part in _pieces(item):
                        file.write(part)
        finally:
            # What was appended before a failure stays, as with any append.
            file.close()


# --- many files


def _copy_all(
    shell: Shell, sources: list[Item], target: Item, said: Arguments, words_count: int
) -> None:
    if not sources:
        return
    if (words_count > 1 or len(sources) > 1) and not target.is_directory:
        reason = NoSuchFile if target.status is None else NotADirectory
        shell.fail(reason(target.shown), target.shown)
        return
    copies: list[Copy] = []
    for source in sources:
        with _reported(shell, source.shown):
            final = target.below(source.name) if target.is_directory else target
            if source.volume is final.volume and _is_below(final.path, source.path):
                raise BadRequest(f"`{final.shown}': is a subdirectory of itself")
            copies += _plan(shell, source, final, said)
    total = sum(copy.source.known().length_bytes for copy in copies)
    progress = Progress(shell.error, total, is_shown=shell.shows_progress and "q" not in said)
    with ThreadPoolExecutor(_threads(said)) as threads:
        try:
            list(threads.map(lambda copy: _copy_one(shell, copy, said, progress), copies))
        except BaseException:
            progress.stop()  # Ctrl-C: what is being copied is given up, the rest is not begun
            threads.shutdown(cancel_futures=True)
            raise
    progress.finish()


def _plan(shell: Shell, source: Item, target: Item, said: Arguments) -> list[Copy]:
    """The files to copy for one source; the directories are made."""
    if not source.is_directory:
        _refuse_existing(target, said)
        return [Copy(source, target)]
    below = target.below
    if target.status is None:
        target.volume.make_directory(target.path, parents=False)
        below = target.nothing_below  # asking for each would cost a request a file
    elif not target.is_directory:
        raise NotADirectory(target.shown, shown=target.shown)
    copies = []
    for child in [source.child(one) for one in source.volume.list(source.path)]:
        with _reported(shell, child.shown):
            copies += _plan(shell, child, below(child.name), said)
    return copies


def _refuse_existing(target: Item, said: Arguments) -> None:
    if target.is_directory:
        raise IsADirectory(target.shown, shown=target.shown)
    if target.status is not None and "f" not in said:
        raise FileExists(target.shown, shown=target.shown)


def _copy_one(shell: Shell, copy: Copy, said: Arguments, progress: Progress) -> None:
    with _reported(shell, copy.target.shown):
        status = copy.source.known()
        with _created(copy.target, said, has_bytes=status.length_bytes > 0) as file:
            if isinstance(file, DiskFile) and file.takes_parts and _has_parts(copy.source):
                _fetch(copy.source, file, progress)
            else:
                for count in _poured(copy.source, file):
                    progress.add(count)
        if "p" in said:
            volume, path = copy.target.volume, copy.target.path
            volume.set_times(path, status.modified_at_s, status.accessed_at_s)
            volume.set_mode(path, status.mode)
            with contextlib.suppress(ClusterError):  # the owner may not exist here: as Hadoop
                volume.set_owner(path, status.owner, status.group)


@contextlib.contextmanager
def _created(target: Item, said: Arguments, *, has_bytes: bool = False) -> Iterator[io.RawIOBase]:
    """A file that has its name only once it is whole; missing parents are an error, as in HDFS."""
    parent = target.path.rpartition("/")[0] or "/"
    if is_disk(target.volume) and not os.path.isdir(parent):
        raise NoSuchFile(target.shown, shown=target.shown)
    volume, path, overwrite = target.volume, target.path, "f" in said
    # As Hadoop: -d leaves out the temporary name.
    made = (
        volume.create(path, overwrite=overwrite)
        if "d" in said
        else volume.create_hidden(path, overwrite=overwrite, has_bytes=has_bytes)
    )
    with made as file:
        yield file


def _pour_in(shell: Shell, target: Item, said: Arguments) -> None:
    with _reported(shell, target.shown):
        _refuse_existing(target, said)
        with _created(target, said) as file:
            while piece := sys.stdin.buffer.read(PIECE_BYTES):
                file.write(piece)


def _poured(source: Item, target: io.RawIOBase) -> Iterator[int]:
    """Copy a file, and say piece by piece how many bytes."""
    if isinstance(target, DfsWriter) and is_disk(source.volume):
        with source.volume.open(source.path) as file:
            while count := target.write_from(file.readinto):
                yield count
        return
    for piece in _pieces(source):
        target.write(piece)
        yield len(piece)


def _has_parts(source: Item) -> bool:
    status = source.known()
    return (
        not is_disk(source.volume)
        and not status.is_open
        and status.length_bytes > status.chunk_bytes
    )


def _fetch(source: Item, target: DiskFile, progress: Progress) -> None:
    """Copy a file of several chunks to disk, two of them at a time: while one is being verified
    the other is being written."""
    status = source.known()

    def fetch_part(offset: int) -> None:
        stop = min(offset + status.chunk_bytes, status.length_bytes)
        with source.volume.open(source.path) as reader:
            assert isinstance(reader, DfsReader)
            for piece in reader.pieces(offset, stop - offset):
                target.write_at(piece, offset)
                offset += len(piece)
                progress.add(len(piece))
        if offset < stop:
            raise BadRequest(f"{source.shown}: became shorter while it was copied")

    with ThreadPoolExecutor(PARTS_AT_ONCE) as threads:
        list(threads.map(fetch_part, range(0, status.length_bytes, status.chunk_bytes)))


def _pieces(item: Item) -> Iterator[memoryview]:
    if item.is_directory:
        raise IsADirectory(item.shown)
    with item.volume.open(item.path) as file:
        if isinstance(file, DfsReader):
            yield from file.pieces()
            return
        buffer = bytearray(PIECE_BYTES)
        while count := file.readinto(buffer):
            yield memoryview(buffer)[:count]


@contextlib.contextmanager
def _reported(shell: Shell, shown: str) -> Iterator[None]:
    """As `Shell.reported`, of this machine's disk as well."""
    try:
        with shell.reported(shown):
            yield
    except OSError as error:
        shell.fail(f"`{shown}': {error.strerror or error}")


def _threads(said: Arguments) -> int:
    text = said.values.get("t", str(THREADS_DEFAULT))
    if not text.isdigit() or not 1 <= int(text) <= THREADS_MAX:
        raise BadUsage(f"-t is {text!r}; it must be a number of threads, 1 to {THREADS_MAX}")
    return int(text)


def _is_below(path: str, directory: str) -> bool:
    return (path + "/").startswith(directory.rstrip("/") + "/")
