"""Votes: ours for others, and those of others for us.

Raft §5.2 and §5.4.1 with a pre-vote (dissertation §9.6): a member that a majority cannot hear asks
in vain and leaves everybody's epoch alone. A promise to a leader that was heard comes before any
vote (§6.4.1's lease), and outlives our own restart (C5). A vote is on disk before it leaves (C1).
"""

from __future__ import annotations

from mrstream.cluster.consensus.commands import SavePromise
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.messages import NEVER_S, PreVote, Release, Vote, Voted
from mrstream.cluster.consensus.state import NOBODY, Role, State


class Ballot:
    """How this replica votes, and stands."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._granted: dict[MemberId, None] = {}
        """Who said yes in the present round, ourselves included."""

    # --- ours for others

    def pre_vote_asked(self, sender: MemberId, ask: PreVote, now_s: float) -> None:
        state = self._state
        granted = (
            ask.epoch > state.epoch
            and not self._is_promised(now_s)
            and self._is_as_good_as_ours(ask.last, ask.last_epoch)
        )
        state.send(sender, Voted(state.epoch, ask.epoch, granted, pre=True))

    def vote_asked(self, sender: MemberId, ask: Vote, now_s: float) -> None:
        state = self._state
        self._release(ask.release, now_s)
        # A promise goes before the epoch, too: else whoever stands could depose by standing.
        if not self._is_promised(now_s):
            self._vote(sender, ask, now_s)
        granted = ask.epoch == state.epoch and state.voted_for == sender
        state.send(sender, Voted(state.epoch, ask.epoch, granted, pre=False))

    def _vote(self, sender: MemberId, ask: Vote, now_s: float) -> None:
        state = self._state
        if ask.epoch < state.epoch:
            return
        if ask.epoch > state.epoch:
            state.resign(f"{sender} stands for epoch {ask.epoch}")
            state.enter(ask.epoch)
        if state.voted_for == NOBODY and self._is_as_good_as_ours(ask.last, ask.last_epoch):
            state.enter(ask.epoch, sender)
            state.stand_at_s = now_s + state.spread_s(state.timing.stand_spread)

    def _is_promised(self, now_s: float) -> bool:
        return now_s < self._state.promised_until_s

    def _is_as_good_as_ours(self, last: int, last_epoch: int) -> bool:
        """Raft §5.4.1: whoever has all that is committed has a log at least as good as that of
        some member of each majority."""
        epochs = self._state.epochs
        return (last_epoch, last) >= (epochs.last_epoch, epochs.last)

    def _release(self, release: Release, now_s: float) -> None:
        """Forget what we promised a leader that has given it up; not what we promised after."""
        state = self._state
        is_given_up = release.epoch == state.epoch and release.sent_at_s >= state.heard_sent_at_s
        if release.sent_at_s > NEVER_S and is_given_up and state.heard_sent_at_s > NEVER_S:
            state.promised_until_s = min(state.promised_until_s, now_s)
            state.out.append(SavePromise(state.promised_until_s))

    # --- those of others for us

    def ask(self, now_s: float) -> None:
        """Find out whether a majority would vote for us."""
        state = self._state
        state.role = Role.ASKING
        state.stand_at_s = now_s + state.spread_s(state.timing.retry_spread)
        self._granted = {state.me: None}
        if self._has_majority():
            self.stand(now_s)
            return
        epochs = state.epochs
        self._ask_all(PreVote(state.epoch + 1, epochs.last, epochs.last_epoch))

    def take_over(self, release: Release, now_s: float) -> None:
        """The leader gives us the lead: stand without asking first, if it is still its word."""
        self._release(release, now_s)
        if not self._is_promised(now_s):
            self.stand(now_s, release)

    def stand(self, now_s: float, release: Release | None = None) -> None:
        """Ask for votes, with our own already given."""
        state = self._state
        state.enter(state.epoch + 1, state.me)
        state.role = Role.STANDING
        state.stand_at_s = now_s + state.spread_s(state.timing.retry_spread)
        self._granted = {state.me: None}
        epochs = state.epochs
        self._ask_all(Vote(state.epoch, epochs.last, epochs.last_epoch, release or Release()))

    def voted(self, sender: MemberId, answer: Voted, now_s: float) -> bool:
        """Take an answer; say whether we have won."""
        state = self._state
        if answer.epoch > state.epoch:
            # We were away for a while; that epoch is over or led by somebody.
            state.resign(f"{sender} is in epoch {answer.epoch}")
            state.enter(answer.epoch)
            return False
        if not answer.granted or sender not in state.members.now.voters:
            return False
        if answer.pre and state.role is Role.ASKING and answer.wanted == state.epoch + 1:
            self._granted[sender] = None
            if self._has_majority():
                self.stand(now_s)
                return self.has_won()
        elif not answer.pre and answer.wanted == state.epoch:
            self._granted[sender] = None
            return self.has_won()
        return False

    def has_won(self) -> bool:
        """Has a majority voted for us in the epoch that we stand for?"""
        return self._state.role is Role.STANDING and self._has_majority()

    def _has_majority(self) -> bool:
        members = self._state.members.now
        return sum(1 for voter in members.voters if voter in self._granted) >= members.majority

    def _ask_all(self, word: PreVote | Vote) -> None:
        for voter in self._state.members.now.voters:
            if voter != self._state.me:
                self._state.send(voter, word)
