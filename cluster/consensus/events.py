"""What a replica is told: frozen facts, given to the one door with the time on our own clock."""

from __future__ import annotations

import msgspec

from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.messages import Word


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""


class Tick(Event, frozen=True):
    """Time has passed; `alive`: the state machine's own loop has shown itself lately."""

    alive: bool = True


class Received(Event, frozen=True):
    """A message came from a member whose name its connection has proven."""

    sender: MemberId
    word: Word


class Proposed(Event, frozen=True):
    """The leader's state machine wants these records in the log, in this order."""

    records: tuple[bytes, ...]


class Synced(Event, frozen=True):
    """Our disk holds the log up to here, as it was after so many cuts (`era`)."""

    sequence: int
    era: int


class Compacted(Event, frozen=True):
    """Records up to `base` are no longer kept one by one."""

    base: int


class CopyEnded(Event, frozen=True):
    """A checkpoint has been sent to a member whole, or the try is over."""

    member: MemberId


class Found(Event, frozen=True):
    """Be the first member of a new group: a person's word, never a daemon's own idea."""

    ask: int = 0
    above: int = 0
    """Epochs up to this one have been used, by a master that was alone."""


class JoinAsked(Event, frozen=True):
    """A member of a new name wants to listen; taken where its host belongs to the group."""

    member: MemberId


class AddLearner(Event, frozen=True):
    """Let a newcomer listen."""

    ask: int
    member: MemberId


class Promote(Event, frozen=True):
    """Let a learner vote."""

    ask: int
    member: MemberId


class Remove(Event, frozen=True):
    """Let a member go."""

    ask: int
    member: MemberId


class Transfer(Event, frozen=True):
    """Hand the lead over to that voter."""

    ask: int
    to: MemberId


class Parked(Event, frozen=True):
    """The state machine answers nobody from now on, as `Park` asked."""
