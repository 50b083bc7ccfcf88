"""What a stage needs of the dfs: `Files` straight over its client, without fsspec in between.

URLs are `dfs://NAME/path`; an empty NAME is the current cluster. A process makes its client when it
first needs it, so that a forked attempt never shares a connection with its parent.
"""

from __future__ import annotations

import os
import time
from typing import BinaryIO, cast
from urllib.parse import unquote

from mrstream.cluster.config.config import Cluster
from mrstream.dfs.chunk import NO_FENCE, Fence, FileId
from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient, client_of, connect
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import FileReplaced, NoSuchFile
from mrstream.dfs.protocol import NO_FILE, LocatedChunk
from mrstream.dfs.protocol import FileStatus as DfsStatus
from mrstream.mapreduce.dataflow.files import FileStatus, InputReplaced, parent

_LOCATE_CHUNKS = 64
# A plan asks for every piece of a file in turn; for so long the answers stand.
_LOCATED_S = 5.0
_served: tuple[Cluster, str, Fence] | None = None
_replication = 0
_clients: dict[tuple[int, str], DfsClient] = {}


def serve(cluster: Cluster, user: str = "", replication: int = 0, fence: Fence = NO_FENCE) -> None:
    """From now on, in this process and its forks, reach this cluster by what is given here.

    Daemons have their cluster's file and secret in a directory of their own, and no user's state.
    `user` owns what is made; empty: whoever runs this process. Files made have so many replicas;
    0: as many as their directory says. Every change is made under `fence`, if there is one.
    """
    global _served, _replication
    _served = (cluster, user, fence)
    _replication = replication
    _clients.clear()


def new_client(name: str = "") -> DfsClient:
    """Return a client of the cluster of this name; empty: the one served, else the current one."""
    if _served is not None and name in ("", _served[0].config.name):
        return client_of(_served[0], user=_served[1], fence=_served[2])
    return connect(name or None)


def _own_client(name: str) -> DfsClient:
    """Return the one client that this process has of a cluster: a master that made one for each of
    its jobs would have as many connections as it ever had jobs."""
    key = (os.getpid(), name)
    # One that loses a race against another thread's has not connected yet.
    return _clients.get(key) or _clients.setdefault(key, new_client(name))


class DfsFiles:
    def __init__(self, url: str) -> None:
        self._name = _split(url)[0]
        self._located: DfsStatus | None = None
        self._located_until_s = 0.0
        self._chunks: dict[int, LocatedChunk] = {}

    @property
    def client(self) -> DfsClient:
        """This process's own client."""
        return _own_client(self._name)

    def qualify(self, path: str) -> str:
        return self._url(os.path.normpath("/" + _split(path)[1].lstrip("/")))

    def status(self, url: str) -> FileStatus | None:
        try:
            return self._status(self.client.stat(_split(url)[1]))
        except NoSuchFile:
            return None

    def list(self, url: str) -> list[FileStatus]:
        found = [self._status(entry) for entry in self.client.list(_split(url)[1])]
        return sorted(found, key=lambda status: status.name.encode("utf-8", "surrogateescape"))

    def open(self, url: str, offset: int = 0, version: str = "") -> BinaryIO:
        file_id = FileId(int(version)) if version else NO_FILE
        try:
            # One that was replaced is read on while the trash has it.
            reader = DfsReader(self.client, _split(url)[1], file_id)
        except FileReplaced:
            raise InputReplaced.at(url) from None
        if offset:
            reader.seek(offset)
        return cast(BinaryIO, reader)

    def create(self, url: str) -> BinaryIO:
        made = writer.create(self.client, _split(url)[1], overwrite=True, replication=_replication)
        return cast(BinaryIO, made)

    def rename(self, source: str, target: str) -> None:
        self.client.make_directory(_split(parent(target))[1], parents=True)
        self.client.rename(_split(source)[1], _split(target)[1], overwrite=True)

    def delete(self, url: str) -> None:
        try:
            self.client.delete(_split(url)[1], recursive=True, skip_trash=True)
        except NoSuchFile:
            return

    def mkdirs(self, url: str) -> None:
        self.client.make_directory(_split(url)[1], parents=True)

    def exists(self, url: str) -> bool:
        return self.status(url) is not None

    def hosts_of(self, url: str, start: int, length: int) -> tuple[str, ...]:
        path, held = _split(url)[1], dict[str, int]()
        chunk_bytes = self._located_status(path).chunk_bytes
        for index in range(start // chunk_bytes, max(start, start + length - 1) // chunk_bytes + 1):
            chunk = self._located_chunk(path, index)
            if chunk is None:
                break
            first = index * chunk_bytes
            covered = min(start + length, first + chunk_bytes) - max(start, first)
            for server in chunk.replicas:
                held[server.server] = held.get(server.server, 0) + covered
        return tuple(sorted(held, key=lambda host: (-held[host], host)))

    def _located_status(self, path: str) -> DfsStatus:
        """The file whose chunks are being located; the answers for another one are forgotten."""
        known = self._located
        if known is None or known.path != path or time.monotonic() > self._located_until_s:
            located = self.client.locate(path, 0, _LOCATE_CHUNKS)
            self._located = known = located.status
            self._chunks = {chunk.index: chunk for chunk in located.chunks}
            self._located_until_s = time.monotonic() + _LOCATED_S
        return known

    def _located_chunk(self, path: str, index: int) -> LocatedChunk | None:
        """Where a chunk is: a plan asks for all in turn, so one question brings many."""
        if index not in self._chunks:
            for chunk in self.client.locate(path, index, _LOCATE_CHUNKS).chunks:
                self._chunks[chunk.index] = chunk
        return self._chunks.get(index)

    def _url(self, path: str) -> str:
        return f"dfs://{self._name}{path}"

    def _status(self, status: DfsStatus) -> FileStatus:
        return FileStatus(
            self._url(status.path),
            status.length_bytes,
            status.is_directory,
            status.chunk_bytes,
            str(status.file_id),
        )


def _split(url: str) -> tuple[str, str]:
    """Return the cluster's name and the path of a `dfs:` URL, or of a plain path."""
    if "://" not in url:
        return "", url
    name, _, path = url.split("://", 1)[1].partition("/")
    return unquote(name), "/" + path
