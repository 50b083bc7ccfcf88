"""Chunkserver ↔ master: reports and heartbeats one way, pushed commands the other."""

from __future__ import annotations

from typing import Any, ClassVar

from mrstream.cluster.wire.messages import Message, Request
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, ServerId
from mrstream.dfs.protocol.shared import PROTOCOL_VERSION, DiskUse, ServerAddress


class HeldLease(Message, frozen=True):
    """A lease that the server believes it holds."""

    handle: ChunkHandle
    version: ChunkVersion
    left_s: float


class ServerSettings(Message, frozen=True):
    """What the master tells a chunkserver when it registers."""

    heartbeat_s: float
    lease_s: float
    contact_s: float
    chunk_bytes: int
    clone_bytes_per_s: int
    """0: no limit."""
    report_chunks: int = 50_000
    """Chunks in one `ReportChunks`."""
    void: tuple[ChunkHandle, ...] = ()
    """Chunks whose lease, named in the registration, is over: the master gave the server up in
    between, and others may be primary now. To be dropped before anything else."""
    epoch: int = 0
    """Of the master that answers. A chunkserver that knows a higher one takes no notice; else it
    makes this one durable before it does anything else (F2)."""
    leads: bool = True
    """False: a shadow answers, which watches; nothing that it says is an order (F4)."""


class Register(Request, frozen=True):
    """A chunkserver is up. Then it sends `ReportChunks` until it has told everything it holds.

    `incarnation` is new at every start of the process (any number that never repeats, e.g. its
    start time in ns); messages of an older incarnation are refused with NotRegistered.
    """

    reply: ClassVar[Any] = ServerSettings
    address: ServerAddress
    incarnation: int
    cluster_id: str
    disks: tuple[DiskUse, ...]
    leases: tuple[HeldLease, ...]
    protocol_version: int = PROTOCOL_VERSION
    number: int = 0
    """Counts the registrations and heartbeats of one incarnation together, from 1 on; one that
    comes after a higher one was overtaken on the way, and is refused."""
    epoch: int = 0
    """The highest of a master that the server has registered with, ever."""


class ReportChunks(Request, frozen=True):
    """A part of everything that the server holds (`dfs.chunk.pack_reports`), in handle order.

    Parts count from 0; after the one with `last` whatever was held before the registration and was
    not named is not there (GFS §2.6.2).
    """

    reply: ClassVar[Any] = type(None)
    server: ServerId
    incarnation: int
    part: int
    chunks: bytes
    last: bool
    number: int = -1
    """Of the registration that it belongs to; -1: not said."""


class HeartbeatReply(Message, frozen=True):
    """What the master answers to a heartbeat."""

    extended: tuple[HeldLease, ...] = ()
    """Leases prolonged: valid `left_s` from the moment the heartbeat was *sent*."""
    garbage: tuple[tuple[ChunkHandle, ChunkVersion], ...] = ()
    """Of the chunks named: those that no file has, or that are stale. Each replica of at most
    that version may be deleted (M5)."""


class Heartbeat(Request, frozen=True):
    """I am alive (GFS §2.6.2, §4.4); every `heartbeat_s`."""

    reply: ClassVar[Any] = HeartbeatReply
    diagnosed: ClassVar[bool] = False
    server: ServerId
    incarnation: int
    number: int
    """See `Register.number`."""
    disks: tuple[DiskUse, ...]
    extend: tuple[HeldLease, ...] = ()
    """Leases of chunks being changed, to be prolonged (GFS §3.1)."""
    changed: bytes = b""
    """Reports of replicas whose length changed since the last answered heartbeat (a hint)."""
    sample: bytes = b""
    """Reports of some chunks held, in turn, for the garbage collector (GFS §4.4.1)."""
    lost: tuple[ChunkHandle, ...] = ()
    """Replicas found to be gone (a disk failed, a file vanished)."""
    corrupt: tuple[tuple[ChunkHandle, ChunkVersion], ...] = ()
    """Replicas found to be bad: kept, not served, until the master says delete."""
    busy: bool = False
    """Clients use the disks right now: clones should be slow."""


class CommandDone(Request, frozen=True):
    """The outcome of a pushed command: the replica as it is now, or what went wrong."""

    reply: ClassVar[Any] = type(None)
    diagnosed: ClassVar[bool] = True
    server: ServerId
    incarnation: int
    command_id: int
    ok: bool
    version: ChunkVersion = ChunkVersion(0)
    length_bytes: int = 0
    error: str = ""
    """Class name and message, e.g. `StaleReplica: …`."""


# --- commands, pushed


class Command(Message, frozen=True):
    """What the master wants done; answered by `CommandDone`.

    `command_id` is the master's epoch in the upper half, and a count. `since`, in each, is
    the number of the `Register` or `Heartbeat` that the master had received last when it decided:
    a command whose `since` was sent more than `contact_s` ago is refused, for a master that was
    stopped in between may have been deposed (F2).
    """

    command_id: int


class AppendsBefore(Message, frozen=True):
    """Where a new chunk finds the table of appends that it begins with: in the full chunk before
    it."""

    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int
    sources: tuple[ServerAddress, ...]


class CreateChunk(Command, frozen=True):
    """Expect a new, empty chunk at this version; with `lease_s` > 0 you are its primary.

    Nothing needs to reach the disk before the first byte: an empty chunk that a crash forgets is
    no loss.
    """

    handle: ChunkHandle
    version: ChunkVersion
    lease_s: float
    since: int = 0
    before: AppendsBefore | None = None
    """Appends are serialised: it begins with what is known of those to the chunk before it."""


class SetVersion(Command, frozen=True):
    """Finish the mutations under way, give up any lease, refuse whoever names a lower version,
    and make the new version durable. Refused (StaleReplica) if yours is below `from_version`.

    The answer holds the replica's length. An acknowledged mutation of an older version is part
    of that length on every replica that answers.
    """

    handle: ChunkHandle
    from_version: ChunkVersion
    version: ChunkVersion
    since: int = 0
    cut_to: int = -1
    """The length on which all agreed, where appends are serialised: whoever takes the version has
    exactly so many bytes then. -1: they keep what they have."""


class GrantLease(Command, frozen=True):
    """You are primary of this chunk at this version; with `lease_s` 0 you are no longer.

    The time counts from when you *sent* message number `since`: however long this one was on its
    way, your lease ends before the master thinks it does. Heartbeats extend it.
    """

    handle: ChunkHandle
    version: ChunkVersion
    lease_s: float
    since: int = 0


class TruncateChunk(Command, frozen=True):
    """Cut the replica to this length if it is longer (bytes that were never acknowledged)."""

    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int
    since: int = 0


class CopyChunk(Command, frozen=True):
    """Copy a chunk of yours under a new handle, on the same disk (GFS §3.4)."""

    source: ChunkHandle
    source_version: ChunkVersion
    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int
    since: int = 0


class CloneChunk(Command, frozen=True):
    """Pull a chunk from one of these servers (GFS §4.3), `length_bytes` of it, at this version.

    Checked block by block on both sides; durable before `CommandDone`. Replaces a stale replica.
    """

    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int
    sources: tuple[ServerAddress, ...]
    urgent: bool = False
    """A client waits for it, or one copy is left: do not throttle."""
    since: int = 0


class DeleteChunk(Command, frozen=True):
    """Delete your replica if its version is at most this one (surplus, stale or corrupt)."""

    handle: ChunkHandle
    version: ChunkVersion
    reason: str
    since: int = 0


class VerifyChunk(Command, frozen=True):
    """Check every block now, and report it as corrupt if it is."""

    handle: ChunkHandle
    version: ChunkVersion
    since: int = 0


COMMANDS: tuple[type[Command], ...] = (
    CreateChunk, SetVersion, GrantLease, TruncateChunk, CopyChunk, CloneChunk, DeleteChunk,
    VerifyChunk,
)  # fmt: skip
