"""What clients of the lock service ask, and what they are told (Chubby §2.6, §2.8).

Every call of a session carries the epoch of the leader that it was made for, so that a call from
before a fail-over is refused (§2.9), and a number, so that a repeat is carried out once, whichever
leader it reaches. There are no calls from the cell to a client: events ride on KeepAlives.
"""

from __future__ import annotations

from typing import ClassVar

from mrstream.cluster.wire.messages import Message, Request

CONTENTS_BYTES_MAX = 256 * 1024
LOCK_DELAY_S_MAX = 60.0
CLOCK_RATE = 0.01
"""How far a clock may run from true time: leases are counted longer by it at the cell and shorter
at the client (§2.8)."""
LISTED_CONTENTS_MAX = 100
LISTED_BYTES_MAX = 4096

# What a handle may be used for.
READ = 1
WRITE = 2
CHANGE_ACL = 4

# What its holder wants to hear of (§2.5).
CONTENTS_CHANGED = 1
CHILDREN_CHANGED = 2
FAILED_OVER = 4
HANDLE_INVALID = 8
LOCK_ACQUIRED = 16
LOCK_WANTED = 32
INVALIDATE = 64
"""Not for applications: an entry of the cache must go. `path` is its key."""

# Whether opening may make a node.
EXISTING = 0
MAY_CREATE = 1
MUST_CREATE = 2

ANY_GENERATION = -1


class Acl(Message, frozen=True):
    """The names of three lists, files in /ls/local/acl; an empty name: everybody (§2.3)."""

    read: str = ""
    write: str = ""
    change: str = ""


class Handle(Message, frozen=True):
    """An open node. `check` proves that a leader made it, `epoch` which one; the rest is what the
    next leader needs to make it again (§2.3, §2.9)."""

    session: int
    epoch: int
    number: int
    path: str
    instance: int
    mode: int
    events: int
    lock_delay_s: float
    check: bytes = b""


class Stat(Message, frozen=True):
    """A node without its contents and without its lock: what a client may keep (§2.3)."""

    path: str
    instance: int
    is_directory: bool
    is_ephemeral: bool
    content_generation: int
    acl_generation: int
    checksum: int
    length_bytes: int
    modified_at_s: float
    acl: Acl


class Seen(Message, frozen=True):
    """A node, or (stat None) that there is none; both may be kept if `cachable`."""

    stat: Stat | None
    contents: bytes = b""
    cachable: bool = False


class Children(Message, frozen=True):
    """The names in a directory; on demand with the small files among them (CH-44)."""

    names: tuple[str, ...]
    files: tuple[Seen, ...] = ()
    cachable: bool = False


class LockState(Message, frozen=True):
    """A node's lock at this moment; never kept by a client."""

    generation: int
    is_held: bool
    is_shared: bool
    holders: tuple[str, ...]
    """As `session 7 (user@host)`."""
    delay_left_s: float
    waiting_count: int
    open_count: int


class Opened(Message, frozen=True):
    handle: Handle
    created: bool
    stat: Stat


class Taken(Message, frozen=True):
    """The lock is yours; `sequencer` says so to others."""

    sequencer: str


class Happened(Message, frozen=True):
    """One event; `handle` is (epoch, number) of the handle that asked for it, or (0, 0)."""

    number: int
    kind: int
    path: str = ""
    handle: tuple[int, int] = (0, 0)


class Kept(Message, frozen=True):
    """The answer to a KeepAlive. `lease_s` counts from when the request was sent; 0: no more than
    was promised before. `ended`: there is no session any more, since nothing was done with it.
    `given_s`: the lease that the cell gives at present, without the time that this was held back; 0
    where that is not said."""

    lease_s: float
    events: tuple[Happened, ...] = ()
    ended: bool = False
    given_s: float = 0.0


class SessionGranted(Message, frozen=True):
    session: int
    epoch: int
    lease_s: float
    grace_s: float


class SessionRow(Message, frozen=True):
    """A session as people see it."""

    session: int
    user: str
    host: str
    program: str
    opened_at_s: float
    lease_left_s: float
    handle_count: int
    locks: tuple[str, ...]


class Whereabouts(Message, frozen=True):
    """Who leads the cell (CH-04), and how far its fail-over is."""

    host: str
    address: str
    epoch: int
    step: int


class CellFigures(Message, frozen=True):
    """The cell as people see it."""

    epoch: int
    step: int
    nodes: int
    nodes_max: int
    contents_bytes: int
    contents_bytes_max: int
    sessions: int
    handles: int
    locks_held: int
    calls_waiting: int
    cached_entries: int
    lease_s: float
    calls: dict[str, int]
    """How often each kind of call came since this leader began."""


# --- without a session


class Locate(Request, frozen=True):
    reply: ClassVar[object] = Whereabouts


class CheckSequencer(Request, frozen=True):
    """Is this the sequencer of a lock that is held now?"""

    reply: ClassVar[object] = bool
    sequencer: str


class ListSessions(Request, frozen=True):
    reply: ClassVar[object] = tuple[SessionRow, ...]


class DescribeCell(Request, frozen=True):
    reply: ClassVar[object] = CellFigures


class OpenSession(Request, frozen=True):
    """`nonce` is drawn by the client: a repeat gets the session of the first try."""

    reply: ClassVar[object] = SessionGranted
    nonce: int
    user: str
    host: str = ""
    program: str = ""


# --- of a session


class KeepAlive(Request, frozen=True):
    """Held by the leader until the lease is nearly over, or there is something to tell (§2.8)."""

    reply: ClassVar[object] = Kept
    diagnosed: ClassVar[bool] = False
    session: int
    epoch: int
    acked: int = 0
    """Every event up to this number has been acted upon."""


class EndSession(Request, frozen=True):
    session: int
    epoch: int


class OpenNode(Request, frozen=True):
    reply: ClassVar[object] = Opened
    session: int
    epoch: int
    number: int
    path: str
    mode: int = READ
    events: int = 0
    lock_delay_s: float = 0.0
    create: int = EXISTING
    is_directory: bool = False
    is_ephemeral: bool = False
    contents: bytes = b""
    acl: Acl | None = None


class PutContents(Request, frozen=True):
    """Write a whole file that is there, by its path: open, SetContents and close in one."""

    reply: ClassVar[object] = int
    session: int
    epoch: int
    number: int
    path: str
    contents: bytes = b""
    if_generation: int = ANY_GENERATION


class Look(Request, frozen=True):
    """Contents and Stat in one, by path or by handle (GetContentsAndStat)."""

    reply: ClassVar[object] = Seen
    session: int
    epoch: int
    path: str
    handle: Handle | None = None
    under: str = ""


class ListNode(Request, frozen=True):
    reply: ClassVar[object] = Children
    session: int
    epoch: int
    path: str
    with_contents: bool = False


class LookAtLock(Request, frozen=True):
    reply: ClassVar[object] = LockState
    session: int
    epoch: int
    path: str


class HandleCall(Request, frozen=True):
    """A call on an open node. `under` is a sequencer that must still be good (SetSequencer)."""

    session: int
    epoch: int
    number: int
    handle: Handle
    under: str = ""


class CloseNode(HandleCall, frozen=True):
    """Never fails."""


class PoisonHandle(HandleCall, frozen=True):
    """Whatever waits on the handle fails, and whatever comes."""


class RefreshHandle(HandleCall, frozen=True):
    """After a fail-over: the handle is still in use (§2.9 steps 8 and 9)."""


class SetContents(HandleCall, frozen=True):
    reply: ClassVar[object] = int
    contents: bytes = b""
    if_generation: int = ANY_GENERATION


class SetAcl(HandleCall, frozen=True):
    reply: ClassVar[object] = int
    acl: Acl = Acl()


class DeleteNode(HandleCall, frozen=True):
    """Only without children."""


class AcquireLock(HandleCall, frozen=True):
    """`wait_s` 0 is TryAcquire."""

    reply: ClassVar[object] = Taken
    is_shared: bool = False
    wait_s: float = 0.0


class ReleaseLock(HandleCall, frozen=True):
    """Also ends a wait for it."""


class GetSequencer(HandleCall, frozen=True):
    reply: ClassVar[object] = str
