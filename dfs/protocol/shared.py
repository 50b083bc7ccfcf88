"""What messages of the file system speak of."""

from __future__ import annotations

from mrstream.cluster.wire.messages import Message
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, Epoch, FileId, ServerId

ANY_FILE = FileId(-1)
NO_FILE = FileId(0)

PROTOCOL_VERSION = 1


class ServerAddress(Message, frozen=True):
    """Where a chunkserver is reached: bulk bytes at `bulk_port`, short calls at `control_port`."""

    server: ServerId
    host: str
    control_port: int
    bulk_port: int
    rack: str = ""
    local_socket: str = ""
    """Path of the Unix socket for short-circuit reads, on that host; empty where there is none."""


class FileStatus(Message, frozen=True):
    """One file or directory as `ls` shows it."""

    path: str
    is_directory: bool
    length_bytes: int
    replication: int
    chunk_bytes: int
    modified_at_s: float
    accessed_at_s: float
    owner: str
    group: str
    mode: int
    file_id: FileId
    chunk_count: int
    is_open: bool = False
    """Somebody may be writing it: the length is what has been confirmed so far."""
    created_at_s: float = 0.0


class LocatedChunk(Message, frozen=True):
    """One chunk of a file: who holds a good replica (GFS §2.4)."""

    index: int
    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int
    """While `is_open` a hint: ask a replica (`ChunkLength`)."""
    replicas: tuple[ServerAddress, ...]
    is_open: bool = False
    corrupt_replicas: int = 0
    silent: tuple[ServerId, ...] = ()
    """Where there is no good replica: the servers that are down or have yet to report."""
    serialised: bool = False
    """It `is_open`, and appends to it are in one order: it is as long as any replica says, at least
    `length_bytes`."""


class ChunkGrant(Message, frozen=True):
    """The right to send mutations of one chunk to its primary at one version (GFS §3.1)."""

    index: int
    handle: ChunkHandle
    version: ChunkVersion
    primary: ServerId
    replicas: tuple[ServerAddress, ...]
    """All replicas, the primary among them: exactly those a mutation must reach."""
    lease_s: float
    chunk_bytes: int
    serialised: bool = False
    """Appends must say whose they are, and which: the directory's rule."""


class OpenFile(Message, frozen=True):
    """A file opened for writing."""

    status: FileStatus
    epoch: Epoch
    grant: ChunkGrant | None = None
    """For the chunk that the next byte goes to, when one was asked for and exists."""


class Page(Message, frozen=True):
    """A part of a listing; `next` is what to pass as `start_after` for more, empty at the end."""

    entries: tuple[FileStatus, ...]
    next: str = ""


class DiskUse(Message, frozen=True):
    """One disk of a chunkserver."""

    path: str
    capacity_bytes: int
    free_bytes: int
    """What new chunks may take: the reserve is not in it."""
    used_bytes: int
    failed: bool = False
