"""The one door of the consensus: `handle(event, now_s)` gives commands, to be done in their order.

A replica never does IO, reads a clock or draws a number that was not handed to it: the same events
give the same commands. `now_s` is a clock that also runs while the host sleeps, and never back.
"""

from __future__ import annotations

import math
from random import Random
from typing import assert_never

import msgspec

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.ballot import Ballot
from mrstream.cluster.consensus.changing import Changing
from mrstream.cluster.consensus.commands import Command, Refused
from mrstream.cluster.consensus.epochs import Epochs
from mrstream.cluster.consensus.following import Following
from mrstream.cluster.consensus.invariants import check
from mrstream.cluster.consensus.leading import Leading
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, MemberRows, Members
from mrstream.cluster.consensus.messages import (
    AppendLog,
    Position,
    PreVote,
    TransferNow,
    Vote,
    Voted,
)
from mrstream.cluster.consensus.records import decode_own
from mrstream.cluster.consensus.state import NOBODY, Remembered, Role, State
from mrstream.cluster.consensus.story import Story
from mrstream.cluster.consensus.transfer import Transferring

Ask = e.Found | e.AddLearner | e.Promote | e.Remove | e.Transfer


class Replica:
    """One member's brain."""

    ballot_kind: type[Ballot] = Ballot
    following_kind: type[Following] = Following
    leading_kind: type[Leading] = Leading
    changing_kind: type[Changing] = Changing
    transferring_kind: type[Transferring] = Transferring

    def __init__(
        self, me: MemberId, found: Remembered, timing: Timing, random: Random, now_s: float
    ) -> None:
        epochs = Epochs(found.base, found.base_epoch, found.epochs, found.last)
        wait_s = random.uniform(*timing.cold_spread_s)
        self._state = State(
            me=me,
            timing=timing,
            random=random,
            epochs=epochs,
            members=MemberRows(found.members),
            # A log may go further than a ballot: an epoch that was heard of is saved with both.
            epoch=max(found.epoch, epochs.last_epoch),
            voted_for=found.voted_for if found.epoch >= epochs.last_epoch else NOBODY,
            synced=epochs.last,
            committed=found.committed,
            promised_until_s=found.promised_until_s,
            stand_at_s=max(now_s, found.promised_until_s) + wait_s,
        )
        self._ballot = self.ballot_kind(self._state)
        self._following = self.following_kind(self._state)
        self._leading: Leading | None = None
        self._changing: Changing | None = None
        self._transferring: Transferring | None = None
        self.story = Story()

    # --- the door

    def handle(self, event: e.Event, now_s: float) -> list[Command]:
        """Take one event; return what is to be done about it."""
        state = self._state
        self._decide(event, now_s)
        if state.role is not Role.LEADING:
            self._leading = self._changing = self._transferring = None
        elif self._transferring is not None:
            self._transferring.go_on(now_s)
        commands, state.out = state.out, []
        self.story.add(now_s, event, commands)
        return commands

    # --- looking

    @property
    def me(self) -> MemberId:
        return self._state.me

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def leader(self) -> MemberId:
        """Who leads our epoch, as far as we know; "" when we do not."""
        return self._state.leader

    @property
    def is_leading(self) -> bool:
        return self._state.role is Role.LEADING

    @property
    def members(self) -> Members:
        return self._state.members.now

    @property
    def last(self) -> int:
        return self._state.last

    @property
    def synced(self) -> int:
        return self._state.synced

    @property
    def committed(self) -> int:
        return self._state.committed

    @property
    def state(self) -> State:
        """Everything, for checks and for people; never to be changed."""
        return self._state

    def lease_until_s(self) -> float:
        """Until when we may answer as the leader, on our clock; before our first record is
        committed, never."""
        leading = self._leading
        if leading is None or not leading.has_led or leading.is_silent:
            return -math.inf
        return leading.lease_until_s()

    def wake_at_s(self) -> float:
        """When a `Tick` has something to do, on our clock."""
        state = self._state
        if self._leading is not None and self._transferring is not None:
            return min(self._leading.wake_at_s(), self._transferring.wake_at_s())
        return max(state.stand_at_s, state.promised_until_s) if state.votes_here else math.inf

    def progress(self) -> dict[MemberId, tuple[int, float]]:
        """As the leader: how far each other member's disk is, and when the newest beat was sent
        that it answered."""
        others = {} if self._leading is None else self._leading.progress
        return {member: (p.synced, p.heard_s) for member, p in others.items()}

    def copies(self) -> tuple[dict[MemberId, bool], dict[MemberId, bool]]:
        """As the leader: the other voters, and the learners; each with whether it is heard of, and
        has all but what came since the last beat."""
        leading, members = self._leading, self.members
        if leading is None:
            return {}, {}
        voters = {m: leading.has_log(m) for m in members.voters if m != self.me}
        return voters, {m: leading.has_log(m) for m in members.learners}

    def check_invariants(self) -> None:
        check(self._state, self._leading)

    # --- deciding

    def _decide(self, event: e.Event, now_s: float) -> None:
        state = self._state
        match event:
            case e.Tick():
                self._tick(event.alive, now_s)
            case e.Received():
                self._receive(event.sender, event, now_s)
            case e.Synced():
                self._synced(event, now_s)
            case e.Compacted():
                state.epochs.forget(min(event.base, state.committed))
                state.members.forget(state.epochs.base)
            case e.Found():
                self._found(event, now_s)
            case _ if self._leading is None or self._changing is None or self._transferring is None:
                if isinstance(event, Ask):
                    state.out.append(Refused(event.ask, "this member does not lead"))
            case e.Proposed():
                self._leading.append(event.records, now_s)
            case e.CopyEnded():
                self._leading.copy_ended(event.member)
            case e.JoinAsked():
                self._changing.join(event.member, now_s)
            case e.AddLearner():
                self._changing.add_learner(event.ask, event.member, now_s)
            case e.Promote():
                self._changing.promote(event.ask, event.member, now_s)
            case e.Remove():
                self._changing.remove(event.ask, event.member, now_s)
            case e.Transfer():
                self._transferring.begin(event.ask, event.to, now_s)
            case e.Parked():
                self._transferring.parked(now_s)
            case _:
                raise AssertionError(f"an event of no known kind: {event}")

    def _tick(self, alive: bool, now_s: float) -> None:
        state = self._state
        state.alive = alive
        if self._leading is not None:
            assert self._changing is not None and self._transferring is not None
            self._transferring.tick(now_s)
            self._leading.tick(now_s)
            if state.role is Role.LEADING:
                self._changing.mend(now_s)
        elif now_s >= max(state.stand_at_s, state.promised_until_s) and state.votes_here:
            if alive:
                self._ballot.ask(now_s)
                self._lead_if_won(now_s)
            else:
                state.stand_at_s = now_s + state.timing.beat_s

    def _receive(self, sender: MemberId, event: e.Received, now_s: float) -> None:
        word = event.word
        match word:
            case AppendLog():
                if _is_readable(word):
                    self._following.appended(sender, word, now_s)
            case Position():
                self._positioned(sender, word, now_s)
            case PreVote():
                self._ballot.pre_vote_asked(sender, word, now_s)
            case Vote():
                self._ballot.vote_asked(sender, word, now_s)
            case Voted():
                if self._ballot.voted(sender, word, now_s) or self._ballot.has_won():
                    self._lead_if_won(now_s)
            case TransferNow():
                self._transfer_now(sender, word, now_s)
            case _:
                assert_never(word)

    def _positioned(self, sender: MemberId, position: Position, now_s: float) -> None:
        state = self._state
        if position.epoch > state.epoch:
            state.resign(f"{sender} is in epoch {position.epoch}")
            state.enter(position.epoch)
        elif position.epoch == state.epoch and self._leading is not None:
            self._leading.positioned(sender, position, now_s)

    def _transfer_now(self, sender: MemberId, word: TransferNow, now_s: float) -> None:
        state = self._state
        if word.epoch == state.epoch and sender == state.leader and state.votes_here:
            self._ballot.take_over(word.release, now_s)
            self._lead_if_won(now_s)

    def _synced(self, event: e.Synced, now_s: float) -> None:
        state = self._state
        if event.era != state.era or event.sequence <= state.synced:
            return
        state.synced = min(event.sequence, state.last)
        if self._leading is not None:
            self._leading.synced(now_s)
        else:
            self._following.report()

    def _found(self, event: e.Found, now_s: float) -> None:
        """Begin a group: only where the log knows of none."""
        state = self._state
        if state.members.rows:
            state.out.append(Refused(event.ask, f"{state.me} belongs to a group already"))
            return
        state.enter(max(state.epoch, event.above) + 1, state.me)
        self._lead(now_s)
        assert self._changing is not None
        self._changing.found(now_s)

    def _lead_if_won(self, now_s: float) -> None:
        if self._ballot.has_won():
            self._lead(now_s)

    def _lead(self, now_s: float) -> None:
        self._leading = self.leading_kind(self._state, now_s)
        self._changing = self.changing_kind(self._state, self._leading)
        self._transferring = self.transferring_kind(self._state, self._leading)
        self._leading.beat(now_s)


def _is_readable(log: AppendLog) -> bool:
    """Can all records of the consensus in it be read? What cannot is not taken."""
    try:
        return all(record and (decode_own(record), True)[1] for record in log.records)
    except msgspec.DecodeError:
        return False
