"""A leader: writes, sends, counts, beats; commits what a majority has on disk (C3).

Only records of its own epoch are committed by counting (Raft §5.4.2, figure 8); those before them
go along. Its own disk counts as one. To each member one batch of records is under way at a time:
what gathers meanwhile goes with the next. Who decides alone sends on what its own disk has, and no
more (C8): whatever a listener has beyond it later, it had, and has lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.cluster.consensus.commands import Committed, Led, SavePromise, SendCheckpoint, SendLog
from mrstream.cluster.consensus.lease import lease_end_s
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.messages import NEVER_S, Position
from mrstream.cluster.consensus.records import EpochBegan, encode_own
from mrstream.cluster.consensus.state import Role, State

BATCH_MAX = 4096
"""Records that are under way to one member at a time."""


@dataclass(slots=True)
class Progress:
    """What the leader knows of one other member."""

    next: int
    """The next record to send, if all that was sent arrived."""
    synced: int = 0
    """Its disk holds our log up to here."""
    heard_s: float = NEVER_S
    """When the newest beat that it answered was sent."""
    under_way: int = 0
    """Records up to here are under way to it; 0: none are."""
    is_copying: bool = False
    is_in_step: bool = False
    """Only in a group of one voter: acknowledgements wait for this learner."""
    moved_at_s: float = 0.0
    """When it was last seen to have more, or all there was."""


class Leading:
    """The duties of a leader; made when an election is won, gone when the lead is lost."""

    def __init__(self, state: State, now_s: float) -> None:
        self._state = state
        self.began_at_s = now_s
        self.began_at = state.last + 1
        """The sequence of our first record: from here on, records are of our epoch."""
        self.has_led = False
        """Is our first record committed?"""
        self.released_s = NEVER_S
        """Beats sent up to this moment give no lease: we gave it up (`transfer`)."""
        self.is_silent = False
        """While the lead is being handed over nothing is sent that would renew a promise."""
        self.beat_at_s = now_s
        self.last_at_beat = 0
        """Where our log ended one beat ago."""
        self._last_at_this_beat = 0
        self._sent_at_s = now_s
        self.progress: dict[MemberId, Progress] = {}
        state.role = Role.LEADING
        state.leader = state.me
        self.follow_members(now_s)  # first: all of them may have our log up to here
        self.append((encode_own(EpochBegan(state.epoch, state.me)),), now_s)

    # --- records

    def append(self, records: tuple[bytes, ...], now_s: float) -> None:
        """Write records of our own and send them on."""
        self._state.write(records)
        self.follow_members(now_s)
        self.send_all(now_s)
        self.count(now_s)

    def follow_members(self, now_s: float) -> None:
        """Know exactly the members of the list in force."""
        others = self._state.others()
        self.progress = {
            member: self.progress.get(member) or Progress(self._state.last + 1, moved_at_s=now_s)
            for member in others
        }

    def synced(self, now_s: float) -> None:
        """Our own disk has more than it had."""
        self.count(now_s)
        self.send_all(now_s)

    def positioned(self, sender: MemberId, position: Position, now_s: float) -> None:
        """A member says how far it is."""
        progress = self.progress.get(sender)
        if progress is None or position.synced > self._state.last:
            return
        progress.heard_s = max(progress.heard_s, self._heard(position, now_s))
        if not position.matches:
            self._go_back(progress, position)
        elif position.synced > progress.synced:
            progress.synced, progress.moved_at_s = position.synced, now_s
            progress.next = max(progress.next, progress.synced + 1)
        if progress.synced >= progress.under_way:
            progress.under_way = 0
        self.count(now_s)
        self._send_log(sender, progress, now_s)

    def _heard(self, position: Position, now_s: float) -> float:
        """When did the elector make its promise at the latest, on our clock?"""
        return position.sent_at_s

    def _go_back(self, progress: Progress, position: Position) -> None:
        """Find the last record that its log shares with ours; never below what it has."""
        fork, _ = self._state.epochs.fork_point(position.fork, position.fork_epoch)
        if position.fork < self._state.epochs.base:
            fork = position.fork
        progress.next = max(min(fork, self._state.last, progress.next - 1), progress.synced) + 1
        progress.under_way = 0

    def count(self, now_s: float) -> None:
        """Commit what enough members have, and tell them."""
        state = self._state
        agreed = self._agreed(now_s)
        if agreed <= state.committed or not self._may_commit(agreed):
            return
        state.committed = agreed
        state.out.append(Committed(agreed))
        if not self.has_led:
            self.has_led = True
            state.out.append(Led(state.epoch))
        for member, progress in self.progress.items():
            if not progress.under_way and progress.next > self._sendable():
                self._send(member, progress, now_s)

    def _agreed(self, now_s: float) -> int:
        """How far do enough members have our log on disk?"""
        members = self._state.members.now
        marks = sorted((self._mark(voter) for voter in members.voters), reverse=True)
        if not marks:
            return 0
        agreed = marks[members.majority - 1]
        if len(marks) == 1:
            for learner in members.learners:
                if learner in self.progress and self._in_step(self.progress[learner], now_s):
                    agreed = min(agreed, self.progress[learner].synced)
        return agreed

    def _mark(self, voter: MemberId) -> int:
        if voter == self._state.me:
            return self._state.synced
        progress = self.progress.get(voter)
        return progress.synced if progress is not None else 0

    def _may_commit(self, agreed: int) -> bool:
        """Records of older epochs are committed with one of our own, never by counting (Raft's
        figure 8)."""
        return agreed >= self.began_at

    def _in_step(self, progress: Progress, now_s: float) -> bool:
        """A learner is waited for from when it has all that is committed until it is silent."""
        if progress.synced >= self._sendable():
            progress.moved_at_s = now_s
        if progress.synced >= self._state.committed and progress.synced >= self.began_at:
            progress.is_in_step = True
        if now_s - progress.moved_at_s > self._state.timing.learner_silence_s_max:
            progress.is_in_step = False
        return progress.is_in_step

    # --- beats and lease

    def tick(self, now_s: float) -> None:
        """Beat when it is time, and resign when no majority answers."""
        state = self._state
        lease = max(self.lease_until_s(), self.began_at_s + state.timing.lease_s)
        if now_s >= lease and not self.is_silent:
            state.resign("no majority has answered for a lease")
            return
        self.count(now_s)
        if now_s >= self.beat_at_s:
            self.beat(now_s)

    def beat(self, now_s: float) -> None:
        """Send everybody what is missing, and where nothing is, a sign of life; unless our own
        state machine shows none, or the lead is being handed over."""
        self.beat_at_s = now_s + self._state.timing.beat_s
        self.last_at_beat, self._last_at_this_beat = self._last_at_this_beat, self._state.last
        for member, progress in self.progress.items():
            self._send(member, progress, now_s)

    def lease_until_s(self) -> float:
        """Until when we may answer, on our clock."""
        state = self._state
        heard_s: dict[str, float] = {m: p.heard_s for m, p in self.progress.items()}
        heard_s[state.me] = self._sent_at_s
        return lease_end_s(state.timing, heard_s, state.members.now.voters, self.released_s)

    def release(self, now_s: float) -> None:
        """Give up the lease that we have: what was sent until now gives none."""
        self.released_s = now_s
        self.is_silent = True

    def go_on(self, now_s: float) -> None:
        """The lead was not taken over: beat again; the lease begins with what is sent now."""
        self.is_silent = False
        self.beat_at_s = now_s
        self.began_at_s = now_s

    # --- sending

    def send_all(self, now_s: float) -> None:
        for member, progress in self.progress.items():
            self._send_log(member, progress, now_s)

    def _send_log(self, member: MemberId, progress: Progress, now_s: float) -> None:
        """Send records that are missing, unless some, or a checkpoint, are under way."""
        is_busy = progress.under_way or progress.is_copying
        if not is_busy and progress.next <= self._sendable():
            self._send(member, progress, now_s)

    def _sendable(self) -> int:
        """Up to where may others have our log?"""
        state = self._state
        return state.synced if state.members.decides_alone(state.committed) else state.last

    def _send(self, member: MemberId, progress: Progress, now_s: float) -> None:
        state = self._state
        if self.is_silent or not state.alive:
            return
        previous = progress.next - 1
        if previous < state.epochs.base:
            self._send_checkpoint(member, progress, now_s)
            previous = state.epochs.base
            last = previous
        else:
            last = min(self._sendable(), previous + BATCH_MAX)
            last = previous if progress.under_way else max(last, previous)
        self._note_sent(now_s)
        previous_epoch = state.epochs.at(previous)
        state.out.append(
            SendLog(member, state.epoch, previous, previous_epoch, last, state.committed, now_s)
        )
        if last > previous:
            progress.under_way = last
            progress.next = last + 1

    def _send_checkpoint(self, member: MemberId, progress: Progress, now_s: float) -> None:
        if not progress.is_copying:
            progress.is_copying = True
            self._state.out.append(SendCheckpoint(member))

    def copy_ended(self, member: MemberId) -> None:
        """A checkpoint has gone there: what the member says next tells where to go on."""
        if member in self.progress:
            self.progress[member].is_copying = False

    def _note_sent(self, now_s: float) -> None:
        """We are an elector of ours, too: we promise ourselves what we ask of the others."""
        state = self._state
        self._sent_at_s = state.heard_sent_at_s = now_s
        if now_s + state.timing.promise_s > state.promised_until_s:
            state.promised_until_s = now_s + state.timing.promise_s
            state.out.append(SavePromise(state.promised_until_s))

    # --- looking

    def is_near(self, member: MemberId) -> bool:
        """Has the member a record of ours, is at most a beat behind, and heard of lately?"""
        return self._is_close(member, 2 * self._state.timing.beat_s)

    def has_log(self, member: MemberId) -> bool:
        """As `is_near`, for people: a beat that is late is no news."""
        return self._is_close(member, self._state.timing.lease_s)

    def _is_close(self, member: MemberId, silent_s_max: float) -> bool:
        progress = self.progress.get(member)
        if progress is None:
            return False
        is_heard = progress.heard_s >= self._sent_at_s - silent_s_max
        return is_heard and progress.synced >= max(self.began_at, self.last_at_beat)

    def wake_at_s(self) -> float:
        """When `tick` has something to do."""
        return self.beat_at_s
