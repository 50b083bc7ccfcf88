"""Members of a cell that are wrong on purpose: each breaks one rule of fail-over, and is found."""

from __future__ import annotations

from typing import Any

from mrstream.cluster.consensus import events as e
from mrstream.cluster.leader.gate import Gate
from mrstream.lock.cell.events import Refuse, Reply
from tests.simulation.lock.members import LockProcess


class AnswersWithoutLease(LockProcess):
    """C4: who leads, as far as it knows, answers."""

    def may_speak(self) -> bool:
        return self.may_serve() and self.is_alive and self.host.is_lively


class AnswersUncommitted(LockProcess):
    """M1: what is on the leader's own disk is durable, it believes."""

    def _start(self, kind: Any) -> None:
        super()._start(kind)

        class Hasty(Gate[Reply | Refuse]):
            def say(gate, commands: Any) -> None:
                for command in commands:
                    if self.may_speak():
                        self._carry_out(command)

        self.gate = self.duties._gate = Hasty(self.records, self._carry_out, self.may_speak)


class RefusesWhatIsLogged(LockProcess):
    """A deposed leader tells whoever waits that it does not lead: but their records are in its log,
    and a successor may commit them."""

    def _deposed(self, reason: str) -> None:
        for respond in self.calls.values():
            respond(self.not_leader())
        super()._deposed(reason)


class TakesOverEarly(LockProcess):
    """It serves when it is elected, before its `EpochBegan` is committed: what others acknowledged
    is in its log, and not yet in its state."""

    def handle(self, event: e.Event) -> None:
        super().handle(event)
        if self.is_alive and self.replica.is_leading and self.serving_epoch != self.replica.epoch:
            LockProcess.lead(self, self.replica.epoch)

    def lead(self, epoch: int) -> None:
        if self.serving_epoch != epoch:
            super().lead(epoch)


class LivesOn(LockProcess):
    """A deposed leader follows with the state that it has, records that are cut included."""

    def _deposed(self, reason: str) -> None:
        self.serving_epoch = 0
        self.calls.clear()


MUTANTS: dict[str, type[LockProcess]] = {
    "answers without a lease": AnswersWithoutLease,
    "answers before a majority has it": AnswersUncommitted,
    "NotLeader for what is logged": RefusesWhatIsLogged,
    "takes over before its epoch is committed": TakesOverEarly,
    "a deposed leader lives on": LivesOn,
}
