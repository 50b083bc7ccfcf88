"""A follower: takes the leader's records, in order, and says how far its disk has them.

C2: two logs that have the same epoch at a sequence are the same up to it. So records are taken only
after a record that matches, and what differs is cut off first; never what is committed. What is
reported is on disk *and* known to be the leader's.
"""

from __future__ import annotations

from mrstream.cluster.consensus.commands import Committed, Cut, SavePromise
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.messages import NEVER_S, AppendLog, Position
from mrstream.cluster.consensus.records import EpochBegan, decode_own
from mrstream.cluster.consensus.state import NOBODY, Role, State


class LogsDiffer(AssertionError):
    """Our leader would have us cut what it had called committed, or what its own disk had before it
    was sent to us (C8): its log is not the one that was acknowledged. With a majority that cannot
    be (C2); one that leads alone may have lost some."""


class Following:
    """What a replica does with what its leader sends."""

    def __init__(self, state: State) -> None:
        self._state = state

    def appended(self, sender: MemberId, log: AppendLog, now_s: float) -> None:
        """Take records or a beat."""
        state = self._state
        if log.epoch < state.epoch:
            # Tell it: a later epoch than its own has begun.
            state.send(sender, Position(state.epoch, 0, log.sent_at_s, matches=False))
            return
        self._hear(sender, log, now_s)
        log = self._after_base(log)
        if state.epochs.at(log.previous) != log.previous_epoch:
            fork, fork_epoch = state.epochs.fork_point(log.previous, log.previous_epoch)
            answer = Position(
                state.epoch,
                0,
                state.heard_sent_at_s,
                matches=False,
                fork=fork,
                fork_epoch=fork_epoch,
            )
            state.send(sender, answer)
            return
        is_new = self._take(log)
        state.verified = max(state.verified, log.previous + len(log.records))
        self._commit(log)
        if not is_new:
            self.report()

    def report(self) -> None:
        """Say how far our disk has the leader's log."""
        state = self._state
        if state.leader not in (NOBODY, state.me) and state.heard_sent_at_s > NEVER_S:
            synced = self._reported()
            state.send(state.leader, Position(state.epoch, synced, state.heard_sent_at_s))

    def _reported(self) -> int:
        return min(self._state.synced, self._state.verified)

    def _hear(self, sender: MemberId, log: AppendLog, now_s: float) -> None:
        """Accept the sender as the leader of its epoch, and promise it a lease."""
        state = self._state
        if log.epoch > state.epoch:
            state.resign(f"{sender} leads epoch {log.epoch}")
            state.enter(log.epoch)
        assert state.role is not Role.LEADING, f"C1: {sender} and we lead epoch {state.epoch}"
        state.role = Role.FOLLOWING
        state.leader = sender
        state.heard_sent_at_s = max(state.heard_sent_at_s, log.sent_at_s)
        self._promise(now_s)
        state.stand_at_s = now_s + state.spread_s(state.timing.stand_spread)

    def _promise(self, now_s: float) -> None:
        state = self._state
        state.promised_until_s = max(state.promised_until_s, now_s + state.timing.promise_s)
        state.out.append(SavePromise(state.promised_until_s))

    def _after_base(self, log: AppendLog) -> AppendLog:
        """Leave out records that our checkpoint holds: they are committed, so they match."""
        epochs = self._state.epochs
        known = epochs.base - log.previous
        if known <= 0:
            return log
        rest = log.records[known:]
        return AppendLog(
            log.epoch, epochs.base, epochs.base_epoch, log.committed, log.sent_at_s, rest
        )

    def _take(self, log: AppendLog) -> bool:
        """Append what we do not have, cutting off what differs; say whether there was any."""
        state = self._state
        epoch = log.previous_epoch
        for at, payload in enumerate(log.records):
            own = decode_own(payload)
            epoch = own.epoch if isinstance(own, EpochBegan) else epoch
            sequence = log.previous + 1 + at
            if state.epochs.at(sequence) == epoch:
                continue
            if sequence <= state.last:
                self._cut(sequence - 1)
            state.write(log.records[at:])
            return True
        return False

    def _cut(self, after: int) -> None:
        state = self._state
        if after < state.committed:
            raise LogsDiffer(f"C2: {state.committed} is committed, cut after {after}")
        if any(members.voters == (state.leader,) for _, members in state.members.at(after)):
            raise LogsDiffer(f"C8: {state.leader} sent us up to {state.last}, and ends at {after}")
        state.epochs.cut(after)
        state.members.cut(after)
        state.synced = min(state.synced, after)
        state.era += 1
        state.out.append(Cut(after))

    def _commit(self, log: AppendLog) -> None:
        """Believe the leader's word about what is committed, as far as our log is its log."""
        state = self._state
        committed = min(log.committed, state.verified)
        if committed > state.committed:
            state.committed = committed
            state.out.append(Committed(committed))
