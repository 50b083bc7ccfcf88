"""Brains and shells that are wrong on purpose, each by one rule. The tests must find every one.

A rule that can be left out without a test going red will be left out one day, by somebody who finds
it slow. `ALL` names them; tests/simulation/test_consensus_mutants.py says how each is caught.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mrstream.cluster.consensus import commands as c
from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.ballot import Ballot
from mrstream.cluster.consensus.changing import Changing
from mrstream.cluster.consensus.commands import Deposed, Send
from mrstream.cluster.consensus.following import Following
from mrstream.cluster.consensus.leading import Leading
from mrstream.cluster.consensus.members import MemberId, member_id
from mrstream.cluster.consensus.messages import AppendLog, Position, Release, Voted
from mrstream.cluster.consensus.replica import Replica
from mrstream.cluster.consensus.state import NOBODY, Remembered
from mrstream.cluster.consensus.transfer import Transferring
from tests.simulation.consensus.host import Host
from tests.simulation.consensus.process import Process, Request


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong rule, in the brain, in the shell or on the host."""

    replica: type[Replica] = Replica
    process: type[Process] = Process
    host: type[Host] = Host


ALL: dict[str, Mutant] = {}


def mutant(name: str) -> Callable[[type], type]:
    """Register a class that overrides one rule, by the part that it overrides it in."""

    def register(kind: type) -> type:
        if issubclass(kind, Replica):
            ALL[name] = Mutant(replica=kind)
        elif issubclass(kind, Process):
            ALL[name] = Mutant(process=kind)
        elif issubclass(kind, Host):
            ALL[name] = Mutant(host=kind)
        else:
            part = {
                Ballot: "ballot_kind",
                Following: "following_kind",
                Leading: "leading_kind",
                Changing: "changing_kind",
                Transferring: "transferring_kind",
            }[next(base for base in kind.__mro__[1:] if base is not kind)]
            ALL[name] = Mutant(replica=type("Wrong", (Replica,), {part: kind}))
        return kind

    return register


# --- votes


@mutant("votes for any log")
class AnyLog(Ballot):
    def _is_as_good_as_ours(self, last: int, last_epoch: int) -> bool:
        return True


@mutant("votes for the longer log, whatever its epoch")
class LongerLog(Ballot):
    def _is_as_good_as_ours(self, last: int, last_epoch: int) -> bool:
        return last >= self._state.last


@mutant("makes no promise")
class NoPromise(Ballot):
    def _is_promised(self, now_s: float) -> bool:
        return False


@mutant("sends its vote before it is on disk")
class VoteBeforeSync(Replica):
    def handle(self, event: e.Event, now_s: float) -> list[c.Command]:
        commands = super().handle(event, now_s)
        votes = [at for at in commands if isinstance(at, Send) and isinstance(at.word, Voted)]
        return votes + [at for at in commands if at not in votes]


@mutant("forgets its vote when it starts again")
class VoteForgotten(Process):
    def remembered(self, now_s: float) -> Remembered:
        found = super().remembered(now_s)
        return _with(found, voted_for=NOBODY)


@mutant("forgets its epoch when it starts again")
class EpochForgotten(Process):
    def remembered(self, now_s: float) -> Remembered:
        return _with(super().remembered(now_s), epoch=0, voted_for=NOBODY)


@mutant("keeps no silence after it starts again")
class NoSilence(Process):
    def promised_until_s(self, now_s: float) -> float:
        return now_s


@mutant("keeps no silence after its host starts again")
class NoSilenceAfterBoot(Process):
    def promised_until_s(self, now_s: float) -> float:
        longest_s = self.host.timing.promise_s
        until_s = super().promised_until_s(now_s)
        return now_s if until_s == now_s + longest_s else until_s


@mutant("counts the same vote twice")
class CountsTwice(Ballot):
    def _has_majority(self) -> bool:
        return len(self._granted) + self._extra >= self._state.members.now.majority

    _extra = 0

    def voted(self, sender: MemberId, answer: Voted, now_s: float) -> bool:
        if answer.granted and not answer.pre and sender in self._granted:
            self._extra += 1
        return super().voted(sender, answer, now_s)

    def stand(self, now_s: float, release: Release | None = None) -> None:
        self._extra = 0
        super().stand(now_s, release)


@mutant("takes a vote of another epoch")
class StaleVote(Ballot):
    def voted(self, sender: MemberId, answer: Voted, now_s: float) -> bool:
        now = Voted(answer.epoch, self._state.epoch, answer.granted, answer.pre)
        return super().voted(sender, answer if answer.pre else now, now_s)


@mutant("asks nobody before it stands")
class NoPreVote(Ballot):
    def ask(self, now_s: float) -> None:
        self.stand(now_s)


@mutant("takes an old release for a new one")
class OldRelease(Ballot):
    def _release(self, release: Release, now_s: float) -> None:
        if release.epoch == self._state.epoch:
            self._state.promised_until_s = min(self._state.promised_until_s, now_s)


# --- records


@mutant("commits records of older epochs by counting")
class OldEpochs(Leading):
    def _may_commit(self, agreed: int) -> bool:
        return True


@mutant("counts itself before its disk has it")
class OwnDiskTooEarly(Leading):
    def _mark(self, voter: MemberId) -> int:
        return self._state.last if voter == self._state.me else super()._mark(voter)


@mutant("counts learners as voters")
class CountsLearners(Leading):
    def _agreed(self, now_s: float) -> int:
        members = self._state.members.now
        marks = sorted((self._mark(member) for member in members.everyone), reverse=True)
        return marks[members.majority - 1] if marks else 0


@mutant("needs half of the voters, not more")
class HalfIsEnough(Leading):
    def _agreed(self, now_s: float) -> int:
        members = self._state.members.now
        marks = sorted((self._mark(voter) for voter in members.voters), reverse=True)
        return marks[max(len(marks) // 2 - 1, 0)] if marks else 0


@mutant("sends to a listener what its own disk does not have")
class SendsTooEarly(Leading):
    def _sendable(self) -> int:
        return self._state.last


@mutant("a listener cuts what its voter has lost")
class CutsWhatIsLost(Following):
    def _cut(self, after: int) -> None:
        leader, self._state.leader = self._state.leader, NOBODY
        super()._cut(after)
        self._state.leader = leader


@mutant("reports what it has written, not what is synced")
class ReportsWritten(Following):
    def _reported(self) -> int:
        return self._state.verified


@mutant("reports what is synced, the leader's or not")
class ReportsUnverified(Following):
    def _reported(self) -> int:
        return self._state.synced


@mutant("believes what is committed beyond what it has compared")
class CommitsUnverified(Following):
    def _commit(self, log: AppendLog) -> None:
        self._state.verified, kept = self._state.last, self._state.verified
        super()._commit(log)
        self._state.verified = kept


@mutant("cuts what follows the message, conflict or not")
class CutsAll(Following):
    def _take(self, log: AppendLog) -> bool:
        end = log.previous + len(log.records)
        if end < self._state.last and log.records:
            self._state.committed = min(self._state.committed, end)
            self._state.verified = min(self._state.verified, end)
            self._cut(end)
        return super()._take(log)


@mutant("takes records without comparing the one before")
class NoComparison(Following):
    def appended(self, sender: MemberId, log: AppendLog, now_s: float) -> None:
        epoch = self._state.epochs.at(log.previous)
        if epoch >= 0 and log.epoch >= self._state.epoch and log.previous >= self._state.committed:
            log = AppendLog(
                log.epoch, log.previous, epoch, log.committed, log.sent_at_s, log.records
            )
        super().appended(sender, log, now_s)


@mutant("takes records of a leader of the past")
class StaleLeader(Following):
    def appended(self, sender: MemberId, log: AppendLog, now_s: float) -> None:
        epoch = max(log.epoch, self._state.epoch)
        log = AppendLog(
            epoch, log.previous, log.previous_epoch, log.committed, log.sent_at_s, log.records
        )
        super().appended(sender, log, now_s)


@mutant("believes a sync from before a cut")
class OldSync(Replica):
    def handle(self, event: e.Event, now_s: float) -> list[c.Command]:
        if isinstance(event, e.Synced):
            event = e.Synced(event.sequence, self.state.era)
        return super().handle(event, now_s)


# --- lease and hand-over


@mutant("counts its lease from the answer")
class LeaseFromAnswer(Leading):
    def _heard(self, position: Position, now_s: float) -> float:
        return now_s


@mutant("answers without a lease")
class NoLease(Process):
    def may_answer(self) -> bool:
        return True


class AnswersReleased(Replica):
    def lease_until_s(self) -> float:
        leading = self._leading
        if leading is None or not leading.has_led:
            return -math.inf
        leading.released_s, kept = -1.0, leading.released_s
        until_s = leading.lease_until_s()
        leading.released_s = kept
        return until_s


class NeverParks(Process):
    def request(self, request: Request) -> None:
        self.is_parked = False
        super().request(request)


ALL["answers on after it gave its lease up"] = Mutant(replica=AnswersReleased, process=NeverParks)


@mutant("counts beats from before the release")
class CountsReleased(Leading):
    def go_on(self, now_s: float) -> None:
        super().go_on(now_s)
        self.released_s = -1.0


@mutant("says that it does not lead about a request that is logged")
class RefusesLogged(Process):
    def _deposed(self, reason: str) -> None:
        for _, request, _ in self.waiting:
            request.answer(request, "not leader", None)
        super()._deposed(reason)


@mutant("a deposed leader's state lives on")
class LivesOn(Process):
    def _do(self, command: c.Command) -> None:
        if isinstance(command, Deposed):
            self.serving_epoch, self.waiting = 0, []
            return
        super()._do(command)


# --- members and checkpoints


@mutant("changes members before a record of its epoch is committed")
class ChangesTooEarly(Changing):
    def _hindrance(self) -> str:
        return "" if self._is_settled() else "busy"


@mutant("changes members twice at a time")
class ChangesTwice(Changing):
    def _is_settled(self) -> bool:
        return True


@mutant("promotes a learner that has nothing")
class PromotesEmpty(Leading):
    def is_near(self, member: MemberId) -> bool:
        return member in self.progress


@mutant("an emptied disk keeps its name")
class SameName(Process):
    def name_of(self, journal: bytes) -> MemberId:
        return member_id(self.host.name, f"{self.host.name}-0".ljust(16, "."))


@mutant("gives a checkpoint its name before it is committed")
class EarlyCheckpoint(Process):
    def may_publish(self, sequence: int) -> bool:
        return True


def _with(found: Remembered, **changes: object) -> Remembered:
    values = {name: getattr(found, name) for name in Remembered.__slots__}
    return Remembered(**{**values, **changes})  # type: ignore[arg-type]
