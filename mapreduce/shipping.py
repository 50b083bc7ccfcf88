"""Files that travel with a job to the hosts of a cluster: stored once, fetched once a host.

`stage` stores what is local to the client in the dfs under a name made of its content, so that the
same file of the next job is already there. `HostCache` brings such files to a host, unpacks
archives, and evicts what was not used for longest once it holds more than it may; files of running
jobs stay.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from cluster.errors import UserError
from dfs import writer
from dfs.client import DfsClient
from dfs.errors import NoSuchFile
from dfs.reader import DfsReader
from streaming.properties import from_wire, to_wire
from streaming.shipping import Shipped, is_archive, local_path, unpack

STAGED: Final = "/.mrstream/files"
STAGED_KEPT_S: Final = 30 * 24 * 3600.0
"""A staged file goes this long after it was stored; one of half that age is stored again."""
_COPY_BYTES: Final = 1 << 20
_TREE_NAME: Final = "directory.tar"


class CannotShip(UserError):
    """A file that should travel with a job and cannot be read."""


def stage(shipped: Sequence[Shipped], client: DfsClient) -> tuple[Shipped, ...]:
    """Store local files in the dfs; gives the same list with dfs paths instead."""
    return tuple(_staged(item, client) for item in shipped)


def _staged(item: Shipped, client: DfsClient) -> Shipped:
    source = from_wire(item.source)
    path = local_path(source)
    if path is None:
        return item
    try:
        if not os.path.isdir(path):
            stored = _store(path, os.path.basename(path), client)
            return msgspec.structs.replace(item, source=stored)
        with tempfile.TemporaryDirectory(prefix="mrstream-ship-") as place:
            packed = os.path.join(place, _TREE_NAME)
            _pack(path, packed)
            return msgspec.structs.replace(
                item, source=_store(packed, _TREE_NAME, client), archive=True
            )
    except OSError as error:
        if isinstance(error, UserError):
            raise
        raise CannotShip(f"{source} cannot travel with the job: {error}") from error


def _pack(directory: str, target: str) -> None:
    """Pack a tree so that equal trees give equal bytes: times and owners are left out."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
        return member

    with tarfile.open(target, "w") as tar:
        for name in sorted(os.listdir(directory)):
            tar.add(os.path.join(directory, name), arcname=name, filter=plain)


def _store(path: str, name: str, client: DfsClient) -> str:
    """Store one file under its content, unless it is there; gives its `dfs:///` URL."""
    executable = "x" if os.access(path, os.X_OK) else "-"
    target = f"{STAGED}/{_digest(path)}{executable}/{to_wire(name)}"
    try:
        age_s = time.time() - client.stat(target).modified_at_s
    except NoSuchFile:
        age_s = STAGED_KEPT_S
    if age_s > STAGED_KEPT_S / 2:
        _upload(path, target, client)
    return f"dfs://{target}"


def _upload(path: str, target: str, client: DfsClient) -> None:
    """Write beside the name, then rename: another client may be doing just the same."""
    partial = f"{target}.{client.name.rsplit(':', 1)[-1]}"
    with open(path, "rb") as file, writer.create(client, partial, overwrite=True) as copy:
        while data := file.read(_COPY_BYTES):
            copy.write(data)
    client.rename(partial, target, overwrite=True)  # the same bytes, whoever comes last


def clear_staged(client: DfsClient, now_s: float) -> None:
    """Delete files that no job has shipped for a long time."""
    try:
        stored = [status for status in client.find(STAGED) if not status.is_directory]
    except NoSuchFile:
        return
    for status in stored:
        if now_s - status.modified_at_s > STAGED_KEPT_S:
            client.delete(os.path.dirname(status.path), recursive=True, skip_trash=True)


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(_COPY_BYTES):
            digest.update(data)
    return digest.hexdigest()


class HostCache:
    """Staged files on one host's disk. For one process; its threads may share it."""

    def __init__(self, directory: str, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._jobs: dict[str, dict[str, None]] = {}
        """Entries that running jobs use; those are never evicted."""
        os.makedirs(directory, exist_ok=True)
        for name in os.listdir(directory):
            if name.endswith(".partial"):
                shutil.rmtree(os.path.join(directory, name), ignore_errors=True)

    def localise(
        self, job_id: str, shipped: Sequence[Shipped], client: DfsClient
    ) -> tuple[Shipped, ...]:
        """Give the same files as they lie on this host, fetched if need be; archives unpacked."""
        with self._lock:
            here = tuple(self._local(job_id, item, client) for item in shipped)
            self._evict()
            return here

    def release(self, job_id: str) -> None:
        """A job has ended: what only it used may go."""
        with self._lock:
            self._jobs.pop(job_id, None)
            self._evict()

    def _local(self, job_id: str, item: Shipped, client: DfsClient) -> Shipped:
        source = from_wire(item.source)
        path = _dfs_path(source)
        if path is None:
            return item
        archive = item.archive and is_archive(path)
        entry = _entry_name(path, client, archive=archive)
        self._jobs.setdefault(job_id, {})[entry] = None
        directory = os.path.join(self._directory, entry)
        if not os.path.isdir(directory):
            self._fetch(path, directory, client, archive=archive)
        os.utime(directory)
        found = directory if archive else os.path.join(directory, os.path.basename(path))
        return msgspec.structs.replace(item, source=to_wire(found), archive=False)

    def _fetch(self, path: str, directory: str, client: DfsClient, *, archive: bool) -> None:
        partial = f"{directory}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        os.makedirs(partial)
        file = os.path.join(partial, os.path.basename(path))
        with DfsReader(client, path) as source, open(file, "wb") as copy:
            for piece in source.pieces():
                copy.write(piece)
        if _is_executable(path):
            os.chmod(file, 0o755)
        if archive:
            unpacked = os.path.join(partial, "unpacked")
            unpack(file, unpacked)
            os.rename(unpacked, directory)
            shutil.rmtree(partial)
        else:
            os.rename(partial, directory)

    def _evict(self) -> None:
        """Delete the entries not used for longest, until the rest fits."""
        pinned = {entry for entries in self._jobs.values() for entry in entries}
        entries = []
        for name in sorted(os.listdir(self._directory)):
            path = os.path.join(self._directory, name)
            entries.append((os.stat(path).st_mtime, name, path, _tree_bytes(path)))
        total = sum(entry[3] for entry in entries)
        for _, name, path, held in sorted(entries):
            if total <= self._bytes_max:
                return
            if name not in pinned:
                shutil.rmtree(path)
                total -= held


def _dfs_path(source: str) -> str | None:
    if not source.startswith("dfs://"):
        return None
    return "/" + source.split("://", 1)[1].partition("/")[2]


def _entry_name(path: str, client: DfsClient, *, archive: bool) -> str:
    """Name the cache entry: by content for staged files, by file and time for a user's own."""
    if path.startswith(STAGED + "/"):
        key = path.removeprefix(STAGED + "/")
    else:
        status = client.stat(path)
        key = f"{path}\0{status.file_id}\0{status.modified_at_s}\0{status.length_bytes}"
    kind = "archive" if archive else "file"
    return f"{kind}-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"


def _is_executable(path: str) -> bool:
    if not path.startswith(STAGED + "/"):
        return False
    return path.removeprefix(STAGED + "/").partition("/")[0].endswith("x")


def _tree_bytes(path: str) -> int:
    return sum(
        os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(path)
        for name in names
    )
