"""Changes of the list of members: one voter more or less at a time (Raft's dissertation, §4).

C6: a change is begun only when the one before it is committed *and* a record of the own epoch is;
the second half is the erratum of 2015: without it two leaders can each commit a change that the
other's majority never saw. A newcomer listens first, and votes when it has caught up.
"""

from __future__ import annotations

from mrstream.cluster.consensus.commands import Accepted, Refused
from mrstream.cluster.consensus.leading import Leading
from mrstream.cluster.consensus.members import MemberId, Members, host_of
from mrstream.cluster.consensus.records import MembersSet, encode_own
from mrstream.cluster.consensus.state import State


class Changing:
    """What a leader does to the list of members."""

    def __init__(self, state: State, leading: Leading) -> None:
        self._state = state
        self._leading = leading

    def found(self, now_s: float) -> None:
        """Write the first list of a new group: ourselves."""
        self._set(Members((self._state.me,)), now_s)

    def add_learner(self, ask: int, member: MemberId, now_s: float) -> None:
        members = self._state.members.now
        if member in members.everyone:
            self._refuse(ask, f"{member} is a member already")
        else:
            self._change(ask, members.with_learner(member), now_s)

    def promote(self, ask: int, member: MemberId, now_s: float) -> None:
        members = self._state.members.now
        if member not in members.learners:
            self._refuse(ask, f"{member} is not a learner of this group")
        elif not self._leading.is_near(member):
            self._refuse(ask, f"{member} has not caught up with the log yet: try again")
        else:
            self._change(ask, members.with_voter(member), now_s)

    def remove(self, ask: int, member: MemberId, now_s: float) -> None:
        members = self._state.members.now
        if member not in members.everyone:
            self._refuse(ask, f"{member} is not a member of this group")
        elif member == self._state.me:
            self._refuse(ask, f"{member} leads: hand the lead over first")
        else:
            self._change(ask, members.without(member), now_s)

    def join(self, member: MemberId, now_s: float) -> None:
        """Let a host of the group that has lost its journal listen under its new name."""
        members = self._state.members.now
        is_ours = any(host_of(old) == host_of(member) for old in members.everyone)
        if is_ours and member not in members.everyone and not self._hindrance():
            self._set(members.with_learner(member), now_s)

    def mend(self, now_s: float) -> None:
        """Put members who came back with an empty disk in the places of their old selves."""
        if self._hindrance():
            return
        members = self._state.members.now
        hosts = [host_of(voter) for voter in members.voters]
        for voter, host in zip(members.voters, hosts, strict=True):
            if hosts.count(host) > 1 and voter != self._state.me:
                self._set(members.without(voter), now_s)  # the first of the two is the older
                return
        for learner in members.learners:
            if host_of(learner) in hosts and self._leading.is_near(learner):
                self._set(members.with_voter(learner), now_s)
                return

    def _change(self, ask: int, members: Members, now_s: float) -> None:
        hindrance = self._hindrance()
        if hindrance:
            self._refuse(ask, hindrance)
        else:
            self._set(members, now_s)
            self._state.out.append(Accepted(ask, self._state.last))

    def _hindrance(self) -> str:
        """Why the list may not be changed at this moment (C6); empty when it may."""
        state = self._state
        if not self._is_settled():
            return "the last change of members is not committed yet: try again"
        if state.committed < self._leading.began_at:
            return f"no record of epoch {state.epoch} is committed yet: try again"
        return ""

    def _is_settled(self) -> bool:
        return self._state.members.set_at <= self._state.committed

    def _set(self, members: Members, now_s: float) -> None:
        record = MembersSet(members.voters, members.learners)
        self._leading.append((encode_own(record),), now_s)

    def _refuse(self, ask: int, reason: str) -> None:
        self._state.out.append(Refused(ask, reason))
