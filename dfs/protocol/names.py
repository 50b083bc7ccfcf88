"""Client → master: names."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from mrstream.cluster.wire.messages import Message, Request
from mrstream.dfs.chunk import NO_FENCE, Fence, Fences, FileId
from mrstream.dfs.protocol.shared import ANY_FILE, FileStatus, LocatedChunk, Page


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

    With `file_id` it is that file that is meant, whatever it is called by now, in the trash too;
    FileReplaced when another one has the path and it is gone.
    """

    reply: ClassVar[Any]
    path: str
    first_index: int = 0
    count: int = 8
    file_id: FileId = FileId(0)
    attributes: bool = False
    """Are the attributes of the file told, too?"""


class Located(Message, frozen=True):
    """The answer to `Locate`."""

    status: FileStatus
    chunks: tuple[LocatedChunk, ...]
    values: dict[str, bytes] = msgspec.field(default_factory=dict)
    """The attributes, if they were asked for."""


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
    fence: Fence = NO_FENCE
    implicit: bool = False
    """Is it, and are those made above it, there only for what is told of them or lies in them?
    They go with the last of both (`Delete.prune_to`)."""
    more_fences: Fences = ()


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
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


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
    prune_to: str = ""
    """Directories above it, below this one, that are empty then and were made implicitly, go too;
    empty: none do."""
    fence: Fence = NO_FENCE
    file_id: FileId = ANY_FILE
    """Only if this very file has the path."""
    unseen: bool = False
    """May a directory go in which there is nothing but what is still being written, hidden? Its
    writers find their files gone."""
    more_fences: Fences = ()


class Undelete(Request, frozen=True):
    """Bring back what was last deleted at this path; the reply is the path it has again.

    `path` is the original path, or the hidden path that `Delete` gave.
    """

    reply: ClassVar[Any] = str
    mutates: ClassVar[bool] = True
    path: str
    user: str
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class Expunge(Request, frozen=True):
    """Drop what is in the trash: all that the policy says is old enough, or everything `now`.

    The reply is the number of entries dropped.
    """

    reply: ClassVar[Any] = int
    mutates: ClassVar[bool] = True
    user: str
    now: bool = False
    path: str = "/"
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


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
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class SetPolicy(Request, frozen=True):
    """Rules for a directory and all below it (GFS-04, GFS-69). -1 leaves, -2 removes a rule.

    `replication`: of files created there from now on. `trash_after_s`: how long deleted files
    stay; 0 means that deleting is final. `appends`: 1, record appends are serialised (EV-08); 0,
    they are GFS's.
    """

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    user: str
    replication: int = -1
    trash_after_s: float = -1
    fence: Fence = NO_FENCE
    appends: int = -1
    more_fences: Fences = ()


class PolicyReply(Message, frozen=True):
    """The rules in force at a path and where they come from (empty: the cluster's default)."""

    replication: int
    replication_from: str
    trash_after_s: float
    trash_from: str
    serialised: bool = False
    appends_from: str = ""


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
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class SetMode(Request, frozen=True):
    """Change the permission bits (of a tree with `recursive`)."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    mode: int
    user: str
    recursive: bool = False
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class SetTimes(Request, frozen=True):
    """Change times (-1: leave)."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    user: str
    modified_at_s: float = -1.0
    accessed_at_s: float = -1.0
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class Snapshot(Request, frozen=True):
    """Copy a file or tree without copying a byte (GFS §3.4). The target must not exist."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    source: str
    target: str
    user: str
    fence: Fence = NO_FENCE
    more_fences: Fences = ()
