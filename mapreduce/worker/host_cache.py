"""Files of jobs on one host of a cluster: each is fetched from the dfs once, however many need it.

Brings files that a client staged, and files of the dfs that a job names, to the worker's disk;
unpacks archives; evicts what was not used for longest once it holds more than it may. Files of
running jobs stay.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Sequence

import msgspec

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.mapreduce.dfs_layout import is_executable, staged_key
from mrstream.mapreduce.environment.tree import root_of, settle, tree_bytes
from mrstream.mapreduce.job.environment import Environment
from mrstream.streaming.conf.properties import from_wire, to_wire
from mrstream.streaming.task.shipping import Shipped, is_archive, unpack

_SETTLED = ".mrstream-settled"
"""In the directory of a Python environment that runs from where it is."""


class HostCache:
    """Staged files on one host's disk. For one process; its threads may share it."""

    def __init__(self, directory: str, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._jobs: dict[str, dict[str, None]] = {}
        """Entries that running jobs use; those are never evicted."""
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.chmod(directory, 0o700)  # users' programs and files
        for name in os.listdir(directory):
            if name.endswith(".partial"):
                shutil.rmtree(os.path.join(directory, name), ignore_errors=True)

    def localise(
        self, job_id: str, shipped: Sequence[Shipped], client: DfsClient
    ) -> tuple[Shipped, ...]:
        """Return the same files as they lie on this host, fetched if need be; archives unpacked."""
        with self._lock:
            here = tuple(self._local(job_id, item, client) for item in shipped)
            self._evict()
            return here

    def environment(self, job_id: str, environment: Environment, client: DfsClient) -> Environment:
        """Return a Python environment as it lies on this host, fetched and settled if need be."""
        name = f"environment-{hashlib.sha256(environment.key.encode()).hexdigest()[:40]}"
        directory = os.path.join(self._directory, name)
        mark = os.path.join(directory, _SETTLED)
        with self._lock:
            self._jobs.setdefault(job_id, {})[name] = None
            if not os.path.exists(mark):
                shutil.rmtree(directory, ignore_errors=True)
                self._fetch(_dfs_path(environment.path) or "", directory, client, archive=True)
                # It settles where it stays; until the mark is there it is half an environment.
                settle(root_of(directory), environment)
                open(mark, "x").close()
            os.utime(directory)
            self._evict()
        return msgspec.structs.replace(environment, path=to_wire(root_of(directory)))

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
            copy.writelines(source.pieces())
        key = staged_key(path)
        if key is not None and is_executable(key):
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
            entries.append((os.stat(path).st_mtime, name, path, tree_bytes(path)))
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
    key = staged_key(path)
    if key is None:
        status = client.stat(path)
        key = f"{path}\0{status.file_id}\0{status.modified_at_s}\0{status.length_bytes}"
    kind = "archive" if archive else "file"
    return f"{kind}-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"
