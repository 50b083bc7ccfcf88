"""Client → master: writing."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from mrstream.cluster.wire.messages import Request
from mrstream.dfs.chunk import (
    NO_EPOCH,
    NO_FENCE,
    NO_HANDLE,
    ChunkHandle,
    ChunkVersion,
    Epoch,
    Fence,
    Fences,
    FileId,
    ServerId,
)
from mrstream.dfs.protocol.shared import ANY_FILE, ChunkGrant, FileStatus, OpenFile

"""Conditions on what has the path that a finished file gets: whatever it is; nothing."""


class CreateFile(Request, frozen=True):
    """Make a new, empty file and open it for one writer."""

    reply: ClassVar[Any] = OpenFile
    mutates: ClassVar[bool] = True
    path: str
    client: str
    """Names the writer (unique for each client process), for `KeepAlive` and for messages."""
    user: str
    group: str = ""
    mode: int = 0o644
    replication: int = 0
    """0: what the policy of the directory says."""
    chunk_bytes: int = 0
    """0: the cluster's."""
    overwrite: bool = False
    parents: bool = True
    first_chunk: bool = False
    near: str = ""
    """The client's host: its chunkserver, if it has one, gets the first replica."""
    fence: Fence = NO_FENCE
    hidden: bool = False
    """Under a name of its own that no listing shows, in the nearest directory above `path` that
    exists: `CloseFile.rename_to` gives it its path. What has the path now, and `overwrite`, are
    looked at here and once more there; with `parents` missing directories are made there."""
    more_fences: Fences = ()


class OpenAppend(Request, frozen=True):
    """Open an existing file for one writer, which goes on at its end.

    Fences an earlier writer that is silent; FileBusy while one is alive.
    """

    reply: ClassVar[Any] = OpenFile
    mutates: ClassVar[bool] = True
    path: str
    client: str
    user: str
    near: str = ""
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class AllocateChunk(Request, frozen=True):
    """A new chunk at the end of the file; the one before it is full, and thereby confirmed."""

    reply: ClassVar[Any] = ChunkGrant
    mutates: ClassVar[bool] = True
    file_id: FileId
    epoch: Epoch
    index: int
    near: str = ""
    abandon: ChunkHandle = NO_HANDLE
    """The chunk that the file has at `index` now, when no byte of it was acknowledged and its
    servers failed: it is dropped and another one, on other servers, takes its place."""
    failed: tuple[ServerId, ...] = ()
    """Servers not to use."""
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class FindLease(Request, frozen=True):
    """Who is primary of this chunk? (GFS §3.1 step 1.) Grants a lease if nobody is.

    `epoch` is 0 for writers that share the file (overwrites, record append). `failed` names the
    servers at which a mutation just failed at version `version`: the new grant leaves them out.
    """

    reply: ClassVar[Any] = ChunkGrant
    mutates: ClassVar[bool] = True
    path: str
    index: int
    file_id: FileId = FileId(0)
    """Set by an exclusive writer, whose file may have been renamed meanwhile; else 0: by path."""
    epoch: Epoch = NO_EPOCH
    version: ChunkVersion = ChunkVersion(0)
    failed: tuple[ServerId, ...] = ()
    user: str = ""
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class AppendTarget(Request, frozen=True):
    """The chunk that the next record append goes to (GFS §3.3): the last one, or a new one.

    `full` is the handle that the primary just said is full. The file must exist.
    """

    reply: ClassVar[Any] = ChunkGrant
    mutates: ClassVar[bool] = True
    path: str
    user: str
    full: ChunkHandle = NO_HANDLE
    version: ChunkVersion = ChunkVersion(0)
    failed: tuple[ServerId, ...] = ()
    near: str = ""
    fence: Fence = NO_FENCE
    handle: ChunkHandle = NO_HANDLE
    """The chunk that failed at `version`; none: whichever is the last now."""
    once: bool = False
    """The client says of each append whose it is and which, where appends are serialised."""
    more_fences: Fences = ()


class ConfirmLength(Request, frozen=True):
    """Make the length so far durable and visible, and go on writing (a flush for readers)."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    file_id: FileId
    epoch: Epoch
    length_bytes: int
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class CloseFile(Request, frozen=True):
    """All `length_bytes` are acknowledged by all replicas: make it durable and end the epoch."""

    reply: ClassVar[Any] = FileStatus
    mutates: ClassVar[bool] = True
    file_id: FileId
    epoch: Epoch
    length_bytes: int
    rename_to: str = ""
    """The path that it has from then on; empty: the one it was created with."""
    overwrite: bool = False
    """May a file that is there be replaced?"""
    parents: bool = False
    """Are missing directories above that path made (implicitly)?"""
    replaces: FileId = ANY_FILE
    """Only if this very file has that path (compare and swap); `NO_FILE`: only if nothing has."""
    keep_replaced: bool = False
    """Does what is replaced go to the trash, where the policy there has one?"""
    attributes: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Set together with the close."""
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class AbandonFile(Request, frozen=True):
    """Give up writing: a file that this epoch created disappears; one that was there before is
    closed with what all replicas have."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    file_id: FileId
    epoch: Epoch
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class KeepAlive(Request, frozen=True):
    """The writer lives and still has these files open; the reply names epochs that are fenced."""

    reply: ClassVar[Any] = tuple[Epoch, ...]
    diagnosed: ClassVar[bool] = False
    client: str
    epochs: tuple[Epoch, ...]


class RecoverFile(Request, frozen=True):
    """Close a file whose writer is gone: length = what all replicas agree on (fault gate 15).

    FileBusy while the writer is alive, unless `force`. The reply comes when it is closed.
    """

    reply: ClassVar[Any] = FileStatus
    mutates: ClassVar[bool] = True
    path: str
    user: str
    force: bool = False
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class ReportReplica(Request, frozen=True):
    """A client found these bytes bad; the master has the server check them (it is the judge)."""

    reply: ClassVar[Any] = type(None)
    handle: ChunkHandle
    version: ChunkVersion
    server: ServerId
    reason: str


class JoinFiles(Request, frozen=True):
    """Make one file of several, in order, without moving a byte; the sources are gone then.

    All are closed, have one chunk size, and every one but the last fills its chunks: else
    NotAligned. The first gets the target's path, which may be its own. The other fields are those
    of `CloseFile`.
    """

    reply: ClassVar[Any] = FileStatus
    mutates: ClassVar[bool] = True
    target: str
    sources: tuple[FileId, ...]
    user: str
    overwrite: bool = False
    parents: bool = False
    replaces: FileId = ANY_FILE
    keep_replaced: bool = False
    attributes: dict[str, bytes] = msgspec.field(default_factory=dict)
    fence: Fence = NO_FENCE
    more_fences: Fences = ()
