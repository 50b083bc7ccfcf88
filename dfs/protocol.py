"""Every message of the file system: client ↔ master, chunkserver ↔ master, client ↔ chunkserver.

How a write goes (GFS §3.1), with the names used here:

1. `CreateFile` opens a new path for one writer and gives an *epoch*; with `first_chunk` it also
   gives a `ChunkGrant` for the first chunk. `OpenAppend` does the same for an existing file.
2. A `ChunkGrant` names handle, version, primary and all replicas. The client pushes bytes down the
   chain and asks the primary to apply them with that version. Every later chunk: `AllocateChunk`.
3. When a replica fails, or the lease is over, `FindLease` with the names of the failed servers
   gives a new grant: a higher version, only replicas that have it. The client repeats what was not
   acknowledged.
4. `CloseFile` makes the length durable. A writer whose epoch is not the file's any more gets
   `WriterFenced` from the master, and `StaleReplica` from the chunkservers, since sealing raised
   the version. `KeepAlive` says that the writer still lives.

A chunk that may still change is *unsealed*. To seal it (writer lost, file idle, snapshot, clone)
the master raises the version on all replicas, takes the shortest length that they report (whatever
was acknowledged is on all of them), logs it, and cuts the longer ones.

A lease counts only while its holder is in touch with the master: a primary orders mutations only if
`now < lease end` *and* the last answered heartbeat was **sent** less than `contact_s` ago (both on
CLOCK_BOOTTIME). So a server that the master has given up for dead has given up its leases too.

Commands to a chunkserver are pushed over the connection on which it registered; it answers each
with `CommandDone` and carries the same `command_id` out once at most.
"""

from __future__ import annotations

from typing import Any, ClassVar

from cluster.messages import Message, Request
from dfs.chunk import NO_EPOCH, NO_HANDLE, ChunkHandle, ChunkVersion, Epoch, FileId, ServerId

PROTOCOL_VERSION = 1

# --- What messages speak of ---------------------------------------------------------------------


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
    """Meaningless while `is_open`: then ask a replica (`ChunkLength`)."""
    replicas: tuple[ServerAddress, ...]
    is_open: bool = False
    corrupt_replicas: int = 0


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


# --- Client → master: names ---------------------------------------------------------------------


class Stat(Request, frozen=True):
    """What has this path? NoSuchFile when nothing has."""

    reply: ClassVar[Any] = FileStatus
    path: str


class ListDirectory(Request, frozen=True):
    """The entries of a directory in name order; of a file: itself."""

    reply: ClassVar[Any] = Page
    path: str
    start_after: str = ""
    limit: int = 1000


class Glob(Request, frozen=True):
    """Everything that a pattern names (`*` `?` `[a-z]` `[^a]` `{a,b}` `\\x`), in path order."""

    reply: ClassVar[Any] = Page
    pattern: str
    start_after: str = ""
    limit: int = 1000


class FindTree(Request, frozen=True):
    """Everything at and below a path, in path order, parents first."""

    reply: ClassVar[Any] = Page
    path: str
    start_after: str = ""
    limit: int = 1000
    depth_max: int = 0
    """0: no limit; 1: only the direct entries."""


class ContentSummary(Message, frozen=True):
    """The sums of `du` and `count`."""

    path: str
    directory_count: int
    file_count: int
    length_bytes: int
    stored_bytes: int
    """Length times replication."""


class Summarise(Request, frozen=True):
    """Sum up a path; with `children`, one sum for each direct entry instead."""

    reply: ClassVar[Any] = tuple[ContentSummary, ...]
    path: str
    children: bool = False


class Locate(Request, frozen=True):
    """Chunks `first_index` … of a file, `count` at most, and its status (GFS §2.4: several).

    The reply has fewer when the file ends. `count` is capped by the master.
    """

    reply: ClassVar[Any]
    path: str
    first_index: int = 0
    count: int = 8


class Located(Message, frozen=True):
    """The answer to `Locate`."""

    status: FileStatus
    chunks: tuple[LocatedChunk, ...]


Locate.reply = Located


class MakeDirectory(Request, frozen=True):
    """Make a directory; with `parents`, those above it too, and it may exist already."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    user: str
    group: str = ""
    mode: int = 0o755
    parents: bool = False


class Rename(Request, frozen=True):
    """Give a file or tree another path, atomically (GFS-31).

    `target` is the new path itself. If it exists: refused, unless `overwrite` and both are files
    (or the target is an empty directory and the source a directory).
    """

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    source: str
    target: str
    user: str
    overwrite: bool = False


class Delete(Request, frozen=True):
    """Move to the trash (GFS §4.4.1), or for good with `skip_trash` or where the policy says so.

    The reply is the path under which it can still be read, or an empty string.
    """

    reply: ClassVar[Any] = str
    mutates: ClassVar[bool] = True
    path: str
    user: str
    recursive: bool = False
    skip_trash: bool = False


class Undelete(Request, frozen=True):
    """Bring back what was last deleted at this path; the reply is the path it has again.

    `path` is the original path, or the hidden path that `Delete` gave.
    """

    reply: ClassVar[Any] = str
    mutates: ClassVar[bool] = True
    path: str
    user: str


class Expunge(Request, frozen=True):
    """Drop what is in the trash: all that the policy says is old enough, or everything `now`.

    The reply is the number of entries dropped.
    """

    reply: ClassVar[Any] = int
    mutates: ClassVar[bool] = True
    user: str
    now: bool = False
    path: str = "/"


class TrashEntry(Message, frozen=True):
    """One deleted file or tree."""

    hidden_path: str
    original_path: str
    deleted_at_s: float
    expires_at_s: float


class ListTrash(Request, frozen=True):
    """What can be undeleted at and below a path, oldest first."""

    reply: ClassVar[Any] = tuple[TrashEntry, ...]
    path: str = "/"


class SetReplication(Request, frozen=True):
    """Set the number of replicas of a file, or of every file in a tree; reply: files touched."""

    reply: ClassVar[Any] = int
    mutates: ClassVar[bool] = True
    path: str
    replication: int
    user: str


class SetPolicy(Request, frozen=True):
    """Rules for a directory and all below it (GFS-04, GFS-69). -1 leaves, -2 removes a rule.

    `replication`: of files created there from now on. `trash_after_s`: how long deleted files
    stay; 0 means that deleting is final.
    """

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    user: str
    replication: int = -1
    trash_after_s: float = -1


class PolicyReply(Message, frozen=True):
    """The rules in force at a path and where they come from (empty: the cluster's default)."""

    replication: int
    replication_from: str
    trash_after_s: float
    trash_from: str


class GetPolicy(Request, frozen=True):
    """Which rules hold here?"""

    reply: ClassVar[Any] = PolicyReply
    path: str


class SetOwner(Request, frozen=True):
    """Change owner and/or group (empty: leave)."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    user: str
    owner: str = ""
    group: str = ""
    recursive: bool = False


class SetMode(Request, frozen=True):
    """Change the permission bits (of a tree with `recursive`)."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    mode: int
    user: str
    recursive: bool = False


class SetTimes(Request, frozen=True):
    """Change times (-1: leave)."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    user: str
    modified_at_s: float = -1.0
    accessed_at_s: float = -1.0


class Snapshot(Request, frozen=True):
    """Copy a file or tree without copying a byte (GFS §3.4). The target must not exist."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    source: str
    target: str
    user: str


# --- Client → master: writing -------------------------------------------------------------------


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


class ConfirmLength(Request, frozen=True):
    """Make the length so far durable and visible, and go on writing (a flush for readers)."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    file_id: FileId
    epoch: Epoch
    length_bytes: int


class CloseFile(Request, frozen=True):
    """All `length_bytes` are acknowledged by all replicas: make it durable and end the epoch."""

    reply: ClassVar[Any] = FileStatus
    mutates: ClassVar[bool] = True
    file_id: FileId
    epoch: Epoch
    length_bytes: int


class AbandonFile(Request, frozen=True):
    """Give up a file that this epoch created: it disappears."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    file_id: FileId
    epoch: Epoch


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


class ReportReplica(Request, frozen=True):
    """A client found these bytes bad; the master has the server check them (it is the judge)."""

    reply: ClassVar[Any] = type(None)
    handle: ChunkHandle
    version: ChunkVersion
    server: ServerId
    reason: str


# --- Client → master: the state of things -------------------------------------------------------


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


class ForgetServer(Request, frozen=True):
    """A drained or dead chunkserver will not come back."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    server: ServerId


class Checkpoint(Request, frozen=True):
    """Write a checkpoint now; the reply is the sequence number that it holds."""

    reply: ClassVar[Any] = int


# --- Chunkserver → master -----------------------------------------------------------------------


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


class ReportChunks(Request, frozen=True):
    """A part of everything that the server holds (`dfs.chunk.pack_reports`), in handle order.

    Parts count from 0; after the one with `last` whatever was not named is not there (GFS §2.6.2).
    """

    reply: ClassVar[Any] = type(None)
    server: ServerId
    incarnation: int
    part: int
    chunks: bytes
    last: bool


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


# --- Master → chunkserver: commands (pushed) ------------------------------------------------------


class Command(Message, frozen=True):
    """What the master wants done; answered by `CommandDone`."""

    command_id: int


class CreateChunk(Command, frozen=True):
    """Expect a new, empty chunk at this version; with `lease_s` > 0 you are its primary.

    Nothing needs to reach the disk before the first byte: an empty chunk that a crash forgets is
    no loss.
    """

    handle: ChunkHandle
    version: ChunkVersion
    lease_s: float
    since: int = 0
    """As in `GrantLease`."""


class SetVersion(Command, frozen=True):
    """Finish the mutations under way, give up any lease, refuse whoever names a lower version,
    and make the new version durable. Refused (StaleReplica) if yours is below `from_version`.

    The answer holds the replica's length. An acknowledged mutation of an older version is part
    of that length on every replica that answers.
    """

    handle: ChunkHandle
    from_version: ChunkVersion
    version: ChunkVersion


class GrantLease(Command, frozen=True):
    """You are primary of this chunk at this version; with `lease_s` 0 you are no longer.

    The time counts from when you *sent* message number `since` (a `Register` or `Heartbeat`),
    which the master had received when it decided: however long this one was on its way, your lease
    ends before the master thinks it does. Heartbeats extend it.
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


class CopyChunk(Command, frozen=True):
    """Copy a chunk of yours under a new handle, on the same disk (GFS §3.4)."""

    source: ChunkHandle
    source_version: ChunkVersion
    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int


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


class DeleteChunk(Command, frozen=True):
    """Delete your replica if its version is at most this one (surplus, stale or corrupt)."""

    handle: ChunkHandle
    version: ChunkVersion
    reason: str


class VerifyChunk(Command, frozen=True):
    """Check every block now, and report it as corrupt if it is."""

    handle: ChunkHandle
    version: ChunkVersion


class RegisterAgain(Command, frozen=True):
    """I do not know you (any more): `Register`, then report everything."""


# --- Client → chunkserver, chunkserver → chunkserver ----------------------------------------------


class Done(Message, frozen=True):
    """On a bulk connection: it is done."""


class Number(Message, frozen=True):
    """On a bulk connection: an answer that is a number."""

    value: int


class PushData(Request, frozen=True):
    """Bytes for a mutation to come, held in a bounded buffer under an id (GFS §3.1 step 3, §3.2).

    `length_bytes` raw bytes follow. They are forwarded to `chain[0]`, with the rest as its chain,
    as they arrive; the answer comes when all of the chain have them.
    """

    reply: ClassVar[Any] = Done
    data_id: bytes
    length_bytes: int
    chain: tuple[ServerAddress, ...]
    crc: int = 0
    """CRC32C of all of them."""


class WriteChunk(Request, frozen=True):
    """To the primary: apply pushed data at an offset, here and at all `replicas` (steps 4–7)."""

    reply: ClassVar[Any] = Done
    handle: ChunkHandle
    version: ChunkVersion
    offset: int
    length_bytes: int
    data_id: bytes
    replicas: tuple[ServerAddress, ...]
    durable: bool = True
    """Whether this write, and all of this version before it, is to be on all disks before the
    answer. Without it the bytes are only in all servers' caches: the writer says `durable` with its
    last write, and tells nobody that anything is written before that is answered."""


class AppendRecord(Request, frozen=True):
    """To the primary: append pushed data where you choose (GFS §3.3); the reply is the offset in
    the chunk. ChunkFull: it did not fit, the chunk is padded, take the next."""

    reply: ClassVar[Any] = Number
    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int
    data_id: bytes
    replicas: tuple[ServerAddress, ...]
    chunk_bytes: int


class ApplyMutation(Request, frozen=True):
    """Primary to secondary: mutation number `serial` of this version (GFS §3.1 step 5).

    Applied strictly in serial order. An empty `data_id` pads with zeros up to the end. Refused with
    StaleReplica where it would leave a gap, unless `gap_allowed`: a record append that failed here
    alone leaves one (GFS §3.3).
    """

    reply: ClassVar[Any] = Done
    handle: ChunkHandle
    version: ChunkVersion
    serial: int
    offset: int
    length_bytes: int
    data_id: bytes
    durable: bool = True
    gap_allowed: bool = False


class Piece(Message, frozen=True):
    """Up to 1 MiB of what was asked for: `count` raw bytes follow, with this CRC32C.

    `length_bytes` is the length of the whole replica. Another piece comes unless `last`; an error
    may come in place of any piece.
    """

    count: int
    crc: int
    length_bytes: int
    last: bool


class ReadChunk(Request, frozen=True):
    """Verified bytes of a replica whose version is at least this, in `Piece`s; fewer than
    `length_bytes` where the replica ends."""

    reply: ClassVar[Any] = Piece
    handle: ChunkHandle
    version: ChunkVersion
    offset: int
    length_bytes: int


class ReplicaFiles(Message, frozen=True):
    """Two descriptors follow: the data and the checksum file (docs/formats/chunk.md)."""

    version: ChunkVersion
    length_bytes: int
    tail_crc: int


class OpenReplica(Request, frozen=True):
    """Over the Unix socket: the files of a replica whose version is at least this, for reading
    them without us (the reader verifies; what fails it reads through us, who judge)."""

    reply: ClassVar[Any] = ReplicaFiles
    handle: ChunkHandle
    version: ChunkVersion


class ChunkLength(Request, frozen=True):
    """How long is your replica?"""

    reply: ClassVar[Any] = Number
    handle: ChunkHandle
    version: ChunkVersion


class Checksums(Message, frozen=True):
    """Checksums of blocks, packed `<I`."""

    packed: bytes


class ChecksumChunk(Request, frozen=True):
    """CRC32C of each block of the first `length_bytes`, verified against the data, packed `<I`."""

    reply: ClassVar[Any] = Checksums
    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: int


COMMANDS: tuple[type[Command], ...] = (
    CreateChunk, SetVersion, GrantLease, TruncateChunk, CopyChunk, CloneChunk, DeleteChunk,
    VerifyChunk, RegisterAgain,
)  # fmt: skip
