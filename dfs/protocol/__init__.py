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

Where a directory has its record appends *serialised*, `AppendRecord` says whose it is and which.
When one fails at any replica its primary orders nothing more at that version; the master seals the
chunk, and the next grant has all replicas cut to the length on which they agreed
(`SetVersion.cut_to`).

A lease counts only while its holder is in touch with the master: a primary orders mutations only if
`now < lease end` *and* the last answered heartbeat was **sent** less than `contact_s` ago (both on
CLOCK_BOOTTIME). So a server that the master has given up for dead has given up its leases too.

Commands to a chunkserver are pushed over the connection on which it registered; it answers each
with `CommandDone` and carries the same `command_id` out once at most.
"""

from __future__ import annotations

from mrstream.dfs.protocol.attributes import (
    AttributesReply,
    FindKeys,
    GetAttributes,
    KeyEntry,
    KeyPage,
    SetAttributes,
)
from mrstream.dfs.protocol.chunks import (
    AppendMark,
    AppendRecord,
    ApplyMutation,
    ChecksumChunk,
    Checksums,
    ChunkLength,
    Done,
    Number,
    OpenReplica,
    Piece,
    PushData,
    ReadChunk,
    ReplicaFiles,
    WriteChunk,
)
from mrstream.dfs.protocol.keys import (
    DoorKey,
    KeysSince,
    KeyTable,
    MakeKey,
    RevokeKey,
    SpendLink,
)
from mrstream.dfs.protocol.names import (
    ContentSummary,
    Delete,
    Expunge,
    FindTree,
    GetPolicy,
    Glob,
    ListDirectory,
    ListTrash,
    Locate,
    Located,
    MakeDirectory,
    PolicyReply,
    Rename,
    SetMode,
    SetOwner,
    SetPolicy,
    SetReplication,
    SetTimes,
    Snapshot,
    Stat,
    Summarise,
    TrashEntry,
    Undelete,
)
from mrstream.dfs.protocol.rules import (
    NO_QUOTA,
    QUOTA_STAYS,
    ClearQuota,
    FenceFact,
    GetQuota,
    ListFences,
    QuotaReply,
    RaiseFence,
    SetQuota,
)
from mrstream.dfs.protocol.servers import (
    COMMANDS,
    AppendsBefore,
    CloneChunk,
    Command,
    CommandDone,
    CopyChunk,
    CreateChunk,
    DeleteChunk,
    GrantLease,
    Heartbeat,
    HeartbeatReply,
    HeldLease,
    Register,
    ReportChunks,
    ServerSettings,
    SetVersion,
    TruncateChunk,
    VerifyChunk,
)
from mrstream.dfs.protocol.shadow import AskShadow, Question, ShadowAnswer
from mrstream.dfs.protocol.shared import (
    ANY_FILE,
    NO_FILE,
    PROTOCOL_VERSION,
    ChunkGrant,
    DiskUse,
    FileStatus,
    LocatedChunk,
    OpenFile,
    Page,
    ServerAddress,
)
from mrstream.dfs.protocol.state import (
    Checkpoint,
    ChunkFact,
    ClusterReport,
    DrainServer,
    FileFact,
    ForgetServer,
    Fsck,
    FsckPage,
    ReplicaFact,
    Report,
    ServerStatus,
    Story,
    StoryLine,
)
from mrstream.dfs.protocol.writing import (
    AbandonFile,
    AllocateChunk,
    AppendTarget,
    CloseFile,
    ConfirmLength,
    CreateFile,
    FindLease,
    JoinFiles,
    KeepAlive,
    OpenAppend,
    RecoverFile,
    ReportReplica,
)

__all__ = [
    "ANY_FILE",
    "COMMANDS",
    "NO_FILE",
    "NO_QUOTA",
    "PROTOCOL_VERSION",
    "QUOTA_STAYS",
    "AbandonFile",
    "AllocateChunk",
    "AppendMark",
    "AppendRecord",
    "AppendTarget",
    "AppendsBefore",
    "ApplyMutation",
    "AskShadow",
    "AttributesReply",
    "Checkpoint",
    "ChecksumChunk",
    "Checksums",
    "ChunkFact",
    "ChunkGrant",
    "ChunkLength",
    "ClearQuota",
    "CloneChunk",
    "CloseFile",
    "ClusterReport",
    "Command",
    "CommandDone",
    "ConfirmLength",
    "ContentSummary",
    "CopyChunk",
    "CreateChunk",
    "CreateFile",
    "Delete",
    "DeleteChunk",
    "DiskUse",
    "Done",
    "DoorKey",
    "DrainServer",
    "Expunge",
    "FenceFact",
    "FileFact",
    "FileStatus",
    "FindKeys",
    "FindLease",
    "FindTree",
    "ForgetServer",
    "Fsck",
    "FsckPage",
    "GetAttributes",
    "GetPolicy",
    "GetQuota",
    "Glob",
    "GrantLease",
    "Heartbeat",
    "HeartbeatReply",
    "HeldLease",
    "JoinFiles",
    "KeepAlive",
    "KeyEntry",
    "KeyPage",
    "KeyTable",
    "KeysSince",
    "ListDirectory",
    "ListFences",
    "ListTrash",
    "Locate",
    "Located",
    "LocatedChunk",
    "MakeDirectory",
    "MakeKey",
    "Number",
    "OpenAppend",
    "OpenFile",
    "OpenReplica",
    "Page",
    "Piece",
    "PolicyReply",
    "PushData",
    "Question",
    "QuotaReply",
    "RaiseFence",
    "ReadChunk",
    "RecoverFile",
    "Register",
    "Rename",
    "ReplicaFact",
    "ReplicaFiles",
    "Report",
    "ReportChunks",
    "ReportReplica",
    "RevokeKey",
    "ServerAddress",
    "ServerSettings",
    "ServerStatus",
    "SetAttributes",
    "SetMode",
    "SetOwner",
    "SetPolicy",
    "SetQuota",
    "SetReplication",
    "SetTimes",
    "SetVersion",
    "ShadowAnswer",
    "Snapshot",
    "SpendLink",
    "Stat",
    "Story",
    "StoryLine",
    "Summarise",
    "TrashEntry",
    "TruncateChunk",
    "Undelete",
    "VerifyChunk",
    "WriteChunk",
]
