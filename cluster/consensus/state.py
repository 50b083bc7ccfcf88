"""All that a replica knows, in one place; `ballot`, `following` and `leading` change it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from mrstream.cluster.consensus.commands import Command, Deposed, SaveBallot, Send, Write
from mrstream.cluster.consensus.epochs import Epochs
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, MemberRows, Members
from mrstream.cluster.consensus.messages import NEVER_S, Word
from mrstream.cluster.consensus.records import EpochBegan, MembersSet, decode_own

NOBODY = MemberId("")


class Role(enum.Enum):
    """What a replica is doing about leadership."""

    FOLLOWING = "following"
    ASKING = "asking"
    """Would a majority vote for us?"""
    STANDING = "standing"
    """It would, so we have asked for votes."""
    LEADING = "leading"


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a replica finds on its disk when it starts."""

    epoch: int = 0
    voted_for: MemberId = NOBODY
    base: int = 0
    """The last record of the oldest checkpoint from which the log goes on."""
    base_epoch: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    members: tuple[tuple[int, Members], ...] = ()
    last: int = 0
    committed: int = 0
    """What is known to be committed: at least what the newest checkpoint holds."""
    promised_until_s: float = 0.0
    """Until when we vote for nobody, on the clock that `handle` is given."""


@dataclass(slots=True)
class State:
    """One replica's knowledge. C1 needs `epoch` and `voted_for` as on disk, C2 `committed`."""

    me: MemberId
    timing: Timing
    random: Random
    epochs: Epochs
    members: MemberRows
    epoch: int
    voted_for: MemberId
    synced: int
    """Our disk holds the log up to here."""
    committed: int
    promised_until_s: float
    """We vote for nobody before."""
    stand_at_s: float
    role: Role = Role.FOLLOWING
    leader: MemberId = NOBODY
    """Who leads our epoch, as far as we know."""
    heard_sent_at_s: float = NEVER_S
    """When the newest beat that we heard was sent, on its leader's clock."""
    verified: int = 0
    """Up to here our log is known to be that of the leader of our epoch."""
    era: int = 0
    """So many times the log was cut in this life."""
    alive: bool = True
    out: list[Command] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.epochs.last

    @property
    def votes_here(self) -> bool:
        """Are we a voter, as far as our log says?"""
        return self.me in self.members.now.voters

    def others(self) -> Sequence[MemberId]:
        """All other members, voters first."""
        return [member for member in self.members.now.everyone if member != self.me]

    def send(self, to: MemberId, word: Word) -> None:
        self.out.append(Send(to, word))

    def spread_s(self, spread: tuple[float, float]) -> float:
        """Return so many leases, by chance."""
        return self.timing.lease_s * self.random.uniform(*spread)

    def enter(self, epoch: int, voted_for: MemberId = NOBODY) -> None:
        """Go to a later epoch, or vote in ours; on disk before anything that follows (C1)."""
        assert epoch >= self.epoch
        if epoch > self.epoch:
            self.leader = NOBODY
            self.verified = 0
            self.heard_sent_at_s = NEVER_S
        self.epoch, self.voted_for = epoch, voted_for
        self.out.append(SaveBallot(epoch, voted_for))

    def resign(self, reason: str) -> None:
        """Follow from now on; a leader says so, since its state machine must start anew."""
        if self.role is Role.LEADING:
            self.out.append(Deposed(reason))
        self.role = Role.FOLLOWING

    def write(self, records: tuple[bytes, ...]) -> None:
        """Append records to the log; those of the consensus count from now on."""
        if not records:
            return
        self.out.append(Write(self.last + 1, records, self.era))
        for payload in records:
            own = decode_own(payload)
            self.epochs.add(own.epoch if isinstance(own, EpochBegan) else self.epochs.last_epoch)
            if isinstance(own, MembersSet):
                self.members.add(self.last, own.members)
