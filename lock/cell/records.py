"""What the cell's log holds (docs/formats/lock.md): every change that outlives a leader.

A record is a MessagePack array that begins with its name, as a message is; a field may be added at
the end if it has a default. `session` and `number` name the call that caused it, so that its repeat
is known as one by every later leader. L7: no record leaves anything to a clock or to chance.
"""

from __future__ import annotations

import msgspec

from mrstream.cluster.errors import JournalCorrupt, NewerFormat
from mrstream.cluster.wire.messages import Message, pack, unpack
from mrstream.lock.protocol import Acl


class NodeMade(Message, frozen=True):
    path: str
    is_directory: bool
    is_ephemeral: bool
    contents: bytes
    acl: Acl
    at_s: float
    session: int = 0
    number: int = 0


class NodeRemoved(Message, frozen=True):
    path: str
    session: int = 0
    number: int = 0


class ContentsSet(Message, frozen=True):
    path: str
    contents: bytes
    at_s: float
    session: int = 0
    number: int = 0


class AclSet(Message, frozen=True):
    path: str
    acl: Acl
    session: int = 0
    number: int = 0


class SessionOpened(Message, frozen=True):
    session: int
    nonce: int
    user: str
    host: str
    program: str
    at_s: float


class SessionEnded(Message, frozen=True):
    """All its locks are free with it, in one record: no leader may find one without the other.
    Where it `failed`, each of them stays unclaimable for its delay (§2.4)."""

    session: int
    failed: bool


class LockTaken(Message, frozen=True):
    """Held by one handle of a session, which is known by who made it when."""

    path: str
    session: int
    handle: tuple[int, int]
    is_shared: bool
    delay_s: float
    number: int = 0


class LockFreed(Message, frozen=True):
    """Released by its holder: free at once."""

    path: str
    session: int
    handle: tuple[int, int]
    number: int = 0


class DelayOver(Message, frozen=True):
    """A lock that a failed holder left may be claimed: no later leader waits for it again."""

    path: str


class LeaseSet(Message, frozen=True):
    """Sessions may be given leases of this length from now on: the most that the next leader has to
    wait for (§2.9 step 3)."""

    lease_s: float


AnyRecord = (
    NodeMade
    | NodeRemoved
    | ContentsSet
    | AclSet
    | SessionOpened
    | SessionEnded
    | LockTaken
    | LockFreed
    | DelayOver
    | LeaseSet
)


def encode_record(record: AnyRecord) -> bytes:
    """Return the record as the log holds it."""
    return pack(record)


def decode_record(payload: bytes) -> AnyRecord:
    """Return the record; raise NewerFormat if its kind is not known here, or JournalCorrupt: its
    checksum was right but it says nothing."""
    try:
        record: AnyRecord = unpack(payload, AnyRecord)
        return record
    except msgspec.ValidationError as error:
        raise NewerFormat(f"the lock cell's log is of a newer version: {error}") from None
    except msgspec.DecodeError as error:
        raise JournalCorrupt(f"a record of the lock cell cannot be read: {error}") from None
