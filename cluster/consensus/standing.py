"""What anybody may ask a member of a group: who leads? And the answer of one that does not."""

from __future__ import annotations

from typing import Any, ClassVar

from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.errors import Unavailable
from mrstream.cluster.wire.messages import Message, Request


class NotLeader(Unavailable):
    """This member does not lead, and has done nothing. `leader`, `address` and `epoch` in the
    details say who does, as far as it knows."""


class Standing(Message, frozen=True):
    """How a member sees its group."""

    member: MemberId
    leader: MemberId
    """Who leads, as far as it knows; "" when it does not."""
    epoch: int
    committed: int
    last: int
    voters: tuple[MemberId, ...] = ()
    learners: tuple[MemberId, ...] = ()
    synced: int = 0
    """How far its own disk has the log."""
    behind_s: float = -1.0
    """So long ago it had all that its leader called committed; below 0: not in this life."""
    is_serving: bool = False
    """It leads, and its lease holds: it answers requests."""
    address: str = ""
    """Where the leader answers clients, where it was asked by one."""
    leader_committed: int = 0
    """What its leader called committed when it was last heard of."""
    clock_rate: float = 0.0
    """How much faster its clock runs than its leader's, by beats: 0.01 is 1 %; 0: not known yet."""
    since_s: float = 0.0
    """Since when it leads, by its wall clock; 0: it does not."""


class WhoLeads(Request, frozen=True):
    """Who leads your group? Any member answers, without a lease."""

    reply: ClassVar[Any] = Standing
    diagnosed: ClassVar[bool] = False


class AskGroup(Request, frozen=True):
    """A person's wish: `found`, `add`, `promote`, `remove` or `transfer`; answered when done,
    with the sequence of the record that did it."""

    reply: ClassVar[Any] = int
    verb: str
    member: MemberId = MemberId("")
