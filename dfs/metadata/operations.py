"""The records of the operation log: every change of the metadata, as it is replayed (GFS §2.6.3).

A record says what happened, with all that was decided (ids, times, names), so that applying it
needs no decision and cannot fail. Fields may be added at the end with a default; a record may never
change its meaning. `docs/formats/oplog.md` is the page for readers of the bytes.
"""

from __future__ import annotations

import msgspec

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, Epoch, FileId, ServerId

RequestId = tuple[int, int]
"""(client id, request number): tells a repeat of a request whose answer was lost."""


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One change."""


class DirectoryMade(Record, frozen=True):
    path: str
    file_id: FileId
    owner: str
    group: str
    mode: int
    at_s: float
    request: RequestId = (0, 0)


class FileCreated(Record, frozen=True):
    """A new, empty file, open for its writer; what had the path before is gone."""

    path: str
    file_id: FileId
    epoch: Epoch
    client: str
    owner: str
    group: str
    mode: int
    replication: int
    chunk_bytes: int
    at_s: float
    request: RequestId = (0, 0)


class FileOpened(Record, frozen=True):
    """A new epoch: `client` may go on writing, whoever wrote before may not. No client: the
    master itself took it over to close it."""

    file_id: FileId
    epoch: Epoch
    client: str
    at_s: float
    request: RequestId = (0, 0)


class HandlesReserved(Record, frozen=True):
    """Handles below `below` may be in use at some chunkserver: none is given out twice."""

    below: ChunkHandle


class ChunkAdded(Record, frozen=True):
    """A new chunk at the end of the file; the one before it is full."""

    file_id: FileId
    handle: ChunkHandle


class ChunkGranted(Record, frozen=True):
    """A lease was given at this version: the chunk may change (it is unsealed), as chunk number
    `index` of the one file that has it."""

    handle: ChunkHandle
    version: ChunkVersion
    file_id: FileId
    index: int


class ChunkSealed(Record, frozen=True):
    """No mutation below this version can succeed any more; the chunk has this length."""

    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int


class ChunkReplaced(Record, frozen=True):
    """The file has a copy of its own now, made for writing (GFS §3.4)."""

    file_id: FileId
    index: int
    handle: ChunkHandle


class ChunkDropped(Record, frozen=True):
    """The last chunk of the file never held an acknowledged byte, and is taken off."""

    file_id: FileId
    handle: ChunkHandle


class LengthConfirmed(Record, frozen=True):
    file_id: FileId
    length_bytes: int
    at_s: float


class FileClosed(Record, frozen=True):
    file_id: FileId
    epoch: Epoch
    length_bytes: int
    at_s: float


class Renamed(Record, frozen=True):
    """What had the target is gone for good."""

    source: str
    target: str
    at_s: float
    request: RequestId = (0, 0)


class Trashed(Record, frozen=True):
    """Deleted, and hidden under a name with the time in it."""

    path: str
    hidden: str
    at_s: float
    request: RequestId = (0, 0)


class Restored(Record, frozen=True):
    hidden: str
    target: str
    at_s: float
    request: RequestId = (0, 0)


class Removed(Record, frozen=True):
    """Deleted for good, with everything below."""

    path: str
    at_s: float
    request: RequestId = (0, 0)


class ReplicationSet(Record, frozen=True):
    """Of a file, or of all files below a directory."""

    path: str
    replication: int


class PolicySet(Record, frozen=True):
    """Rules of a directory; -2 where it has none."""

    path: str
    replication: int
    trash_after_s: float


class OwnerSet(Record, frozen=True):
    path: str
    owner: str
    group: str
    recursive: bool


class ModeSet(Record, frozen=True):
    path: str
    mode: int
    recursive: bool


class TimesSet(Record, frozen=True):
    path: str
    modified_at_s: float
    accessed_at_s: float


class Snapshotted(Record, frozen=True):
    """The target now has the source's chunks too."""

    source: str
    target: str
    at_s: float
    request: RequestId = (0, 0)


class ServerKnown(Record, frozen=True):
    """A chunkserver registered for the first time: start-up waits for it from now on."""

    server: ServerId


class ServerDraining(Record, frozen=True):
    server: ServerId
    drain: bool


class ServerForgotten(Record, frozen=True):
    server: ServerId


AnyRecord = (
    DirectoryMade
    | FileCreated
    | FileOpened
    | HandlesReserved
    | ChunkAdded
    | ChunkGranted
    | ChunkSealed
    | ChunkReplaced
    | ChunkDropped
    | LengthConfirmed
    | FileClosed
    | Renamed
    | Trashed
    | Restored
    | Removed
    | ReplicationSet
    | PolicySet
    | OwnerSet
    | ModeSet
    | TimesSet
    | Snapshotted
    | ServerKnown
    | ServerDraining
    | ServerForgotten
)
