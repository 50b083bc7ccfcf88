"""Flows through crashes at any moment (P1, P2), and brains that are wrong on purpose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from mrstream.mapreduce.flow.brain.brain import FlowBrain
from mrstream.mapreduce.flow.brain.messages import Begin, Clear, Command, Finish, Publish, Write
from mrstream.mapreduce.flow.brain.plan import Step
from tests.simulation.flow_history import Broken, History

SEEDS = range(int(os.environ.get("MRSTREAM_FLOW_SEEDS", "100")))


def test_histories() -> None:
    """Every seed ends with the right outputs, and nothing complete ran twice."""
    for seed in SEEDS:
        try:
            History(seed).run()
        except Broken as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_seed_gives_the_same_history_again() -> None:
    one, other = History(7), History(7)
    one.run()
    other.run()

    assert one.log == other.log


class RunsAllAgain(FlowBrain):
    """Forgets the log."""

    def apply(self, record: Any) -> None:
        if self._prints:
            super().apply(record)


class IgnoresChanges(FlowBrain):
    """Takes what is there for what is wanted."""

    def _fingerprint(self, digest: str, step: Step) -> str:
        return step.name


class IgnoresChangesAbove(FlowBrain):
    """Looks at a step's own program alone."""

    def _fingerprint(self, digest: str, step: Step) -> str:
        return digest


class DoesNotWait(FlowBrain):
    """Starts a step when one of those it needs is complete."""

    def _is_ready(self, step: Step) -> bool:
        needs = [self.plan.step(need) for need in step.needs]
        return not needs or any(self._is_complete(need) for need in needs)


class PublishesAtOnce(FlowBrain):
    """Shows an output before the whole flow is complete."""

    def _start_ready(self) -> Iterator[Command]:
        for step in self.plan.steps:
            if step.output and self._is_complete(step) and not self._running:
                where = self._output_of(step.name)
                if where != step.output:
                    yield Publish(step.name, where, step.output)
        yield from super()._start_ready()


class ReusesPlaces(FlowBrain):
    """Counts attempts from the start in each process."""

    def _begin(self, event: Begin) -> Iterator[Command]:
        self._attempts = 0
        yield from super()._begin(event)


class ClearsFirst(FlowBrain):
    """Removes intermediate data before the outputs have their names."""

    def _wind_up(self) -> Iterator[Command]:
        if places := tuple(self.places()):
            from mrstream.mapreduce.flow.brain.messages import Cleared

            yield self._write(Cleared(places))
            yield Clear(places)
        self._is_over = True
        yield Finish(True)


class WritesTooEarly(FlowBrain):
    """Calls a step complete when it starts."""

    def _start(self, step: Step) -> Iterator[Command]:
        from mrstream.mapreduce.flow.brain.messages import Completed, Started

        for command in super()._start(step):
            yield command
            if isinstance(command, Write) and isinstance(command.record, Started):
                record = command.record
                yield self._write(Completed(record.key, record.fingerprint, record.place))


class EndsLoopsEarly(FlowBrain):
    """Takes the first iteration for the last."""

    def _final_key(self, step: Step) -> str | None:
        if step.until is None:
            return super()._final_key(step)
        key = f"{step.name}#1"
        return key if key in self._done and self._where(key) else None


class RestartsLoops(FlowBrain):
    """Begins a loop anew after each crash."""

    def _next_key(self, step: Step) -> tuple[str, str]:
        key, previous = super()._next_key(step)
        if step.until is not None and not any(k.startswith(step.name) for k in self._seen):
            self._seen.add(key)
            return f"{step.name}#1", previous
        return key, previous

    @property
    def _seen(self) -> set[str]:
        return self.__dict__.setdefault("seen", set())


MUTANTS = [
    RunsAllAgain, IgnoresChanges, IgnoresChangesAbove, DoesNotWait, PublishesAtOnce, ReusesPlaces,
    ClearsFirst, WritesTooEarly, EndsLoopsEarly, RestartsLoops,
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_wrong_brain_is_caught(mutant: type[FlowBrain]) -> None:
    for seed in range(400):
        try:
            History(seed, mutant).run()
        except (Broken, AssertionError, KeyError):
            return
    raise AssertionError(f"{mutant.__name__} survives all seeds")
