"""Client → master: the state of things."""

from __future__ import annotations

from typing import Any, ClassVar

from mrstream.cluster.wire.messages import Message, Request
from mrstream.dfs.chunk import NO_FENCE, ChunkHandle, ChunkVersion, Fence, Fences, ServerId
from mrstream.dfs.protocol.shared import DiskUse, FileStatus, ServerAddress


class ServerStatus(Message, frozen=True):
    """One chunkserver as the master sees it."""

    address: ServerAddress
    state: str
    """up | silent | dead | draining | drained"""
    disks: tuple[DiskUse, ...]
    chunk_count: int
    last_heard_s_ago: float
    clones_active: int = 0
    chunks_to_drain: int = 0


class ClusterReport(Message, frozen=True):
    """What `df`, `cluster status` and the monitor show."""

    servers: tuple[ServerStatus, ...]
    safe_mode: str
    """Empty, or why the master still waits and for what."""
    file_count: int
    directory_count: int
    chunk_count: int
    under_replicated: int
    missing: int
    corrupt: int
    capacity_bytes: int
    free_bytes: int
    used_bytes: int
    clones_active: int
    leases: int
    files_open: int
    log_sequence: int = 0
    started_at_s: float = 0.0


class Report(Request, frozen=True):
    """How are you all?"""

    reply: ClassVar[Any] = ClusterReport
    diagnosed: ClassVar[bool] = False


class ReplicaFact(Message, frozen=True):
    """One replica as `fsck` shows it."""

    server: ServerId
    state: str
    """good | stale | corrupt | short"""
    version: ChunkVersion
    length_bytes: int
    rack: str = ""


class ChunkFact(Message, frozen=True):
    """One chunk as `fsck` shows it."""

    index: int
    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int
    goal: int
    references: int
    replicas: tuple[ReplicaFact, ...]
    is_open: bool


class FileFact(Message, frozen=True):
    """One file as `fsck` shows it."""

    status: FileStatus
    chunks: tuple[ChunkFact, ...]


class FsckPage(Message, frozen=True):
    """A part of the check; `next` as in `Page`."""

    files: tuple[FileFact, ...]
    directory_count: int
    next: str = ""


class Fsck(Request, frozen=True):
    """What the master knows about every replica of every file at and below a path."""

    reply: ClassVar[Any] = FsckPage
    path: str
    start_after: str = ""
    limit: int = 200


class StoryLine(Message, frozen=True):
    """One thing that happened, and why."""

    at_s: float
    text: str


class Story(Request, frozen=True):
    """What happened to a file (path) or a chunk (16 hex digits)?"""

    reply: ClassVar[Any] = tuple[StoryLine, ...]
    subject: str


class DrainServer(Request, frozen=True):
    """Copy everything off a chunkserver before it leaves (`drain` false: take it back)."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    server: ServerId
    drain: bool = True
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class ForgetServer(Request, frozen=True):
    """A drained or dead chunkserver will not come back."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    server: ServerId
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class Checkpoint(Request, frozen=True):
    """Write a checkpoint now; the reply is the sequence number that it holds."""

    reply: ClassVar[Any] = int
