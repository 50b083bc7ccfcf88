"""The records of the operation log: every change of the metadata, as it is replayed (GFS §2.6.3).

A record says what happened, with all that was decided (ids, times, names), so that applying it
needs no decision and cannot fail. Fields may be added at the end with a default; a record may never
change its meaning. `docs/formats/oplog.md` is the page for readers of the bytes.
"""

from __future__ import annotations

import msgspec

from mrstream.dfs.chunk import (
    NO_FENCE,
    ChunkHandle,
    ChunkVersion,
    Epoch,
    Fence,
    Fences,
    FileId,
    ServerId,
)

RequestId = tuple[int, int]
"""(client id, request number): tells a repeat of a request whose answer was lost."""

NO_REQUEST: RequestId = (0, 0)


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One change."""


class DirectoryMade(Record, frozen=True):
    path: str
    file_id: FileId
    owner: str
    group: str
    mode: int
    at_s: float
    request: RequestId = NO_REQUEST
    implicit: bool = False
    """Made only because something lies in it; it goes with the last that does (`prune_to`)."""


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
    request: RequestId = NO_REQUEST
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class FileOpened(Record, frozen=True):
    """A new epoch: `client` may go on writing, whoever wrote before may not. No client: the
    master itself took it over to close it."""

    file_id: FileId
    epoch: Epoch
    client: str
    at_s: float
    request: RequestId = NO_REQUEST
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


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
    request: RequestId = NO_REQUEST


class FileClosed(Record, frozen=True):
    file_id: FileId
    epoch: Epoch
    length_bytes: int
    at_s: float
    request: RequestId = NO_REQUEST


class Renamed(Record, frozen=True):
    """What had the target is gone for good."""

    source: str
    target: str
    at_s: float
    request: RequestId = NO_REQUEST


class Trashed(Record, frozen=True):
    """Deleted, and hidden under a name with the time in it."""

    path: str
    hidden: str
    at_s: float
    request: RequestId = NO_REQUEST


class Restored(Record, frozen=True):
    hidden: str
    target: str
    at_s: float
    request: RequestId = NO_REQUEST


class Removed(Record, frozen=True):
    """Deleted for good, with everything below."""

    path: str
    at_s: float
    request: RequestId = NO_REQUEST
    count: int = 0
    """With the last of what one `Expunge` drops: how many that was."""


class ReplicationSet(Record, frozen=True):
    """Of a file, or of all files below a directory."""

    path: str
    replication: int
    request: RequestId = NO_REQUEST


class PolicySet(Record, frozen=True):
    """Rules of a directory; -2 where it has none."""

    path: str
    replication: int
    trash_after_s: float
    request: RequestId = NO_REQUEST
    appends: int = -2


class OwnerSet(Record, frozen=True):
    path: str
    owner: str
    group: str
    recursive: bool
    request: RequestId = NO_REQUEST


class ModeSet(Record, frozen=True):
    path: str
    mode: int
    recursive: bool
    request: RequestId = NO_REQUEST


class TimesSet(Record, frozen=True):
    path: str
    modified_at_s: float
    accessed_at_s: float
    request: RequestId = NO_REQUEST


class Snapshotted(Record, frozen=True):
    """The target now has the source's chunks too."""

    source: str
    target: str
    at_s: float
    request: RequestId = NO_REQUEST


class DirectoryKept(Record, frozen=True):
    """A directory that was there implicitly was asked for by name: it stays when it is empty."""

    file_id: FileId
    request: RequestId = NO_REQUEST


class AttributesSet(Record, frozen=True):
    """Names of attributes with their new values; None takes one away."""

    file_id: FileId
    changed: dict[str, bytes | None]
    at_s: float
    request: RequestId = NO_REQUEST


class Joined(Record, frozen=True):
    """The first source has the chunks of all, in order, these attributes and no others, and the
    target's path; the other sources are gone, and what had the target is."""

    target: str
    sources: tuple[FileId, ...]
    replaces: FileId
    """What had the target when it was decided (0: nothing)."""
    attributes: dict[str, bytes]
    at_s: float
    request: RequestId = NO_REQUEST


class FenceRaised(Record, frozen=True):
    """From now on a change under an older generation of this name is refused."""

    name: str
    generation: int
    at_s: float
    request: RequestId = NO_REQUEST


class QuotaSet(Record, frozen=True):
    """Limits of a directory and all below it; -1 where it has none."""

    path: str
    names: int
    space_bytes: int
    request: RequestId = NO_REQUEST


class KeyMade(Record, frozen=True):
    """Somebody may come in by the doors. The secret follows from the id and is nowhere."""

    id: str
    name: str
    user: str
    paths: tuple[str, ...]
    rights: str
    """r | rw"""
    expires_at_s: float
    """0: never."""
    at_s: float
    request: RequestId = NO_REQUEST


class KeyRevoked(Record, frozen=True):
    """A key, or a token that was made with one, is void. A token's id is remembered until its own
    end, `until_s`."""

    id: str
    until_s: float
    at_s: float
    request: RequestId = NO_REQUEST


class LinkSpent(Record, frozen=True):
    """A link that may be used once was used; it would have been good until `until_s`."""

    nonce: str
    until_s: float
    at_s: float
    request: RequestId = NO_REQUEST


class ServerKnown(Record, frozen=True):
    """A chunkserver registered for the first time: start-up waits for it from now on."""

    server: ServerId


class ServerDraining(Record, frozen=True):
    server: ServerId
    drain: bool
    request: RequestId = NO_REQUEST


class ServerForgotten(Record, frozen=True):
    server: ServerId
    request: RequestId = NO_REQUEST


OneRecord = (
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
    | DirectoryKept
    | AttributesSet
    | Joined
    | FenceRaised
    | QuotaSet
    | KeyMade
    | KeyRevoked
    | LinkSpent
    | ServerKnown
    | ServerDraining
    | ServerForgotten
)


class Together(Record, frozen=True):
    """What one request changed, where that takes several records: all of it or nothing survives a
    crash."""

    records: tuple[OneRecord, ...]


AnyRecord = OneRecord | Together


def parts_of(record: AnyRecord) -> tuple[OneRecord, ...]:
    """The changes that a record of the log holds, in order."""
    return record.records if isinstance(record, Together) else (record,)
