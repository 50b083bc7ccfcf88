"""What members say to each other. One-way: an answer is a message of its own, and any may be lost.

`epoch` is always that of the sender's ballot, save in `PreVote` and `Vote`: there it is the one
that the sender wants to lead. `sent_at_s` is the leader's clock, given back as it came.
"""

from __future__ import annotations

from mrstream.cluster.wire.messages import Message

NEVER_S = -1.0


class Release(Message, frozen=True):
    """The leader of an epoch has given up what electors promised it up to a moment of its clock."""

    epoch: int = 0
    sent_at_s: float = NEVER_S


class PreVote(Message, frozen=True):
    """Would you vote for me? Nothing changes by the question (Raft's dissertation, §9.6)."""

    epoch: int
    last: int
    last_epoch: int


class Vote(Message, frozen=True):
    """Vote for me in this epoch; my log ends so."""

    epoch: int
    last: int
    last_epoch: int
    release: Release = Release()


class Voted(Message, frozen=True):
    """The answer to both; `epoch` is the elector's own, `wanted` the one that was asked for."""

    epoch: int
    wanted: int
    granted: bool
    pre: bool


class AppendLog(Message, frozen=True):
    """Records that follow `previous`; without records, a beat."""

    epoch: int
    previous: int
    previous_epoch: int
    committed: int
    sent_at_s: float
    records: tuple[bytes, ...] = ()


class Position(Message, frozen=True):
    """How far the sender has the leader's log on its disk; where they differ, how far at most."""

    epoch: int
    synced: int
    sent_at_s: float
    matches: bool = True
    fork: int = 0
    fork_epoch: int = 0


class TransferNow(Message, frozen=True):
    """You have all that I have: stand at once, with this release in your hand."""

    epoch: int
    release: Release


Word = PreVote | Vote | Voted | AppendLog | Position | TransferNow
