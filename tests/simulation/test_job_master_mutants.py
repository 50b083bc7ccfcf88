"""The simulator of the job master finds duties that are done wrongly (M1)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mrstream.cluster.leader.gate import Gate
from mrstream.mapreduce.master.duties import Duties
from mrstream.mapreduce.master.job_journal import AnyRecord
from mrstream.mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    RecordCommit,
)
from tests.simulation.scheduler_history import History

SEEDS = 150


class HastyGate(Gate[Command]):
    def say(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._carry_out(command)


class Hasty(Duties):
    """Carries out at once what may not be durable yet."""

    def begin_life(self, stamp_ms: int) -> None:
        self.gate = HastyGate(self._log, self._do)
        super().begin_life(stamp_ms)


class OneBehindGate(Gate[Command]):
    def say(self, commands: Sequence[Command]) -> None:
        self._held.append((self._log.seen - 1, commands))
        self.release()


class OneBehind(Duties):
    """Waits for all records but the last."""

    def begin_life(self, stamp_ms: int) -> None:
        self.gate = OneBehindGate(self._log, self._do)
        super().begin_life(stamp_ms)


class Lifeless(Duties):
    """Counts its first life only."""

    def begin_life(self, stamp_ms: int) -> None:
        if not self._journaled.life:
            super().begin_life(stamp_ms)


class Forgetful(Duties):
    """Does not journal one kind of decision."""

    forgets: type[Command]

    def _record_of(self, command: Command) -> AnyRecord | None:
        return None if type(command) is self.forgets else super()._record_of(command)


class ForgetsCommits(Forgetful):
    forgets = RecordCommit


class ForgetsEnds(Forgetful):
    forgets = FinishJob


class ForgetsAbandoned(Forgetful):
    forgets = AbandonTask


class ForgetsGrants(Forgetful):
    forgets = GrantCommit


MUTANTS = [Hasty, OneBehind, Lifeless, ForgetsCommits, ForgetsEnds, ForgetsAbandoned, ForgetsGrants]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_duties_that_are_done_wrongly_are_found(mutant: type[Duties]) -> None:
    for seed in range(SEEDS):
        try:
            History(seed, mutant).run()
        except AssertionError as error:
            assert any(word in str(error) for word in ("M1", "S1", "S4", "S5")), error
            return

    pytest.fail(f"{SEEDS} histories found nothing wrong with {mutant.__name__}")
