"""Sees everything: C1 to C8 over all members, checked as things happen, not at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, Members
from mrstream.cluster.consensus.messages import AppendLog, Position, TransferNow, Voted, Word
from mrstream.cluster.consensus.records import EpochBegan, MembersSet, decode_own
from mrstream.cluster.journal.group_log import GroupLog

_ROUNDING_S = 1e-6


class Oracle:
    """All that ever happened, as far as a promise rests on it."""

    def __init__(
        self,
        timing: Timing,
        now_s: Callable[[], float],
        folded: Callable[[list[tuple[int, bytes]]], bytes] | None = None,
    ) -> None:
        self._folded = folded or fold
        self._timing = timing
        self._now_s = now_s
        self.leaders: dict[int, MemberId] = {}
        self.committed: list[tuple[int, bytes]] = []
        """(epoch, payload) of every record that anybody called committed, from 1 on."""
        self.logs: dict[MemberId, GroupLog] = {}
        """The files of every member that ever was; of the emptied too, as they were."""
        self.ballot_of: Callable[[MemberId], tuple[int, bytes]] = lambda _: (0, b"")
        """What a member's disk would still know of its vote after a power cut."""
        self.answered_epoch = 0
        self._records: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._votes: dict[tuple[MemberId, int], MemberId] = {}
        self._promises: dict[tuple[MemberId, int], tuple[float, float]] = {}
        self._heard: dict[tuple[MemberId, int, float], float] = {}
        self._released: dict[int, float] = {}

    # --- what members do

    def led(self, member: MemberId, epoch: int, members: Members) -> None:
        """C1: one leader an epoch, and a majority has voted for it."""
        is_new = epoch not in self.leaders
        before = self.leaders.setdefault(epoch, member)
        assert before == member, f"C1: {before} and {member} both lead epoch {epoch}"
        votes = [v for v in members.voters if self._votes.get((v, epoch)) == member or v == member]
        assert not is_new or len(votes) >= members.majority, (
            f"C1: {member} leads epoch {epoch}; of {members.voters} only {votes} voted for it"
        )

    def wrote(self, member: MemberId, log: GroupLog, first: int, count: int) -> None:
        """C2: a record is the same, after the same, wherever it stands."""
        shape = log.look_at_shape()
        for sequence in range(first, first + count):
            epoch, before = shape.at(sequence), shape.at(sequence - 1)
            (payload,) = log.read(sequence, sequence)
            known = self._records.setdefault((sequence, epoch), (payload, before))
            assert known == (payload, before), (
                f"C2: {member} has {payload!r} at {sequence} of epoch {epoch} after epoch {before},"
                f" another {known}"
            )

    def cut(self, member: MemberId, log: GroupLog, after: int) -> None:
        """C2: nothing that is committed is cut."""
        shape = log.look_at_shape()
        for sequence in range(after + 1, min(shape.last, len(self.committed)) + 1):
            epoch = self.committed[sequence - 1][0]
            assert shape.at(sequence) != epoch, f"C2: {member} cuts {sequence}, which is committed"

    def said_committed(self, member: MemberId, log: GroupLog, before: int, now: int) -> None:
        """C2: all members agree on what is committed."""
        shape = log.look_at_shape()
        for sequence in range(before + 1, now + 1):
            if sequence <= shape.base:
                continue
            (payload,) = log.read(sequence, sequence)
            record = (shape.at(sequence), payload)
            if sequence <= len(self.committed):
                known = self.committed[sequence - 1]
                assert known == record, f"C2: {member} has {record} at {sequence}, not {known}"
            else:
                assert sequence == len(self.committed) + 1, f"C2: {sequence} leaves a gap"
                self.committed.append(record)

    def counted(self, leader: MemberId, members: Members, sequence: int) -> None:
        """C3: what a leader calls committed is on the disks of a majority of the voters."""
        epoch = self.committed[sequence - 1][0]
        holders = [
            voter
            for voter in members.voters
            if voter in self.logs
            and self.logs[voter].synced >= sequence
            and self.logs[voter].look_at_shape().at(sequence) in (epoch, _IN_CHECKPOINT)
        ]
        assert len(holders) >= members.majority, (
            f"C3: {leader} commits {sequence}; of {members.voters} only {holders} have it on disk"
        )

    def heard(self, member: MemberId, epoch: int, sent_at_s: float) -> None:
        """A beat reached a member; the newest time counts where it came twice."""
        self._heard[member, epoch, sent_at_s] = self._now_s()

    def sent(self, sender: MemberId, to: MemberId, word: Word) -> None:
        """C1, C5: votes are on disk and unique; promises are kept. C8."""
        if isinstance(word, Voted) and word.granted:
            self._check_promises(sender, to, word)
            if not word.pre:
                known = self._votes.setdefault((sender, word.wanted), to)
                assert known == to, f"C1: {sender} voted for {known} and {to} in {word.wanted}"
                journal = to.rpartition("/")[2].encode()
                assert self.ballot_of(sender) == (word.wanted, journal), (
                    f"C1: the vote of {sender} for {to} leaves before it is on disk"
                )
        elif isinstance(word, Position):
            # What the leader counts on is a beat; the promise runs from when that was heard.
            heard_s = self._heard.get((sender, word.epoch, word.sent_at_s))
            if heard_s is not None:
                self._promises[sender, word.epoch] = (heard_s, word.sent_at_s)
        elif isinstance(word, AppendLog):
            self._check_alone(sender, to, word)
        elif isinstance(word, TransferNow):
            self._released[word.epoch] = word.release.sent_at_s

    def _check_alone(self, sender: MemberId, to: MemberId, word: AppendLog) -> None:
        """C8: who decides alone sends on only what its own disk has."""
        log, last = self.logs[sender], word.previous + len(word.records)
        if word.records and len(log.look_at_members().now.voters) == 1:
            assert log.synced >= last, (
                f"C8: {sender} sends {last} to {to}, and has {log.synced} on its own disk"
            )

    def _check_promises(self, sender: MemberId, to: MemberId, word: Voted) -> None:
        for (member, epoch), (at_s, sent_at_s) in self._promises.items():
            is_released = sent_at_s <= self._released.get(epoch, -1.0)
            # A later leader was elected by a majority whose promises were over, and with them the
            # lease that ours would be part of; ours may be longer, since it was heard late.
            is_void = any(epoch < led < word.wanted for led in self.leaders)
            if member == sender and epoch < word.wanted and not is_released and not is_void:
                left_s = at_s + self._timing.lease_s - self._now_s()
                assert left_s <= _ROUNDING_S, (
                    f"C5: {sender} votes for {to}, {left_s:.3f} s before its promise is over"
                )

    def set_members(self, leader: MemberId, log: GroupLog, committed: int, first: int) -> None:
        """C6: one change at a time, after a record of the own epoch is committed."""
        shape = log.look_at_shape()
        (payload,) = log.read(first, first)
        own = decode_own(payload)
        rows = [row for row in log.look_at_members().rows if row[0] < first]
        if not isinstance(own, MembersSet) or not rows:
            return
        at, before = rows[-1]
        changed = set(before.voters) ^ set(own.voters)
        assert len(changed) <= 1, f"C6: {leader} changes {sorted(changed)} at once"
        assert at <= committed, f"C6: {leader} changes members, {at} not being committed"
        assert shape.at(committed) == shape.last_epoch, f"C6: {leader} changes members too early"

    def answered(self, leader: MemberId, epoch: int) -> None:
        """C4: no answer of an older epoch after one of a later."""
        assert epoch >= self.answered_epoch, (
            f"C4: {leader} answers in epoch {epoch} after an answer in {self.answered_epoch}"
        )
        self.answered_epoch = epoch

    def checkpointed(self, member: MemberId, sequence: int, epoch: int, image: bytes) -> None:
        """C7: a checkpoint is the fold of what is committed."""
        assert sequence <= len(self.committed), f"C7: {member} checkpoints {sequence} uncommitted"
        assert sequence == 0 or self.committed[sequence - 1][0] == epoch, f"C7: epoch of {sequence}"
        assert image == self._folded(self.committed[:sequence]), (
            f"C7: {member}'s state of {sequence}"
        )

    def recovered(self, member: MemberId, before: GroupLog | None, log: GroupLog) -> None:
        """J2: a log comes back with all that was synced."""
        if before is None:
            return
        old, new = before.look_at_shape(), log.look_at_shape()
        assert new.last >= before.synced, f"{member} had {before.synced} on disk, now {new.last}"
        for sequence in range(max(old.base, new.base), before.synced + 1):
            assert old.at(sequence) == new.at(sequence), f"{member} came back with another log"


_IN_CHECKPOINT = -1


def fold(records: list[tuple[int, bytes]]) -> bytes:
    """The state machine of the simulation: the last value of every key, and all request numbers."""
    state: dict[str, str] = {}
    for _, payload in records:
        apply(state, payload)
    return image_of(state)


def apply(state: dict[str, str], payload: bytes) -> None:
    """Apply one record; a repeated request, and what is the consensus' own, changes nothing."""
    if payload[:1] == b"\xc1":
        return
    request, key, value = payload.decode().split(":")
    if f"?{request}" not in state:
        state[f"?{request}"] = ""
        state[key] = value


def image_of(state: Mapping[str, str]) -> bytes:
    return "\n".join(f"{key}={value}" for key, value in sorted(state.items())).encode()


def state_of(image: bytes) -> dict[str, str]:
    lines = image.decode().split("\n") if image else []
    return {line.partition("=")[0]: line.partition("=")[2] for line in lines}


def is_epoch_began(payload: bytes) -> bool:
    return isinstance(decode_own(payload), EpochBegan)
