"""Which steps of a flow run now: a state machine without IO, clock or chance.

`handle(event)` gives commands in the order in which they must be done; a `Write` comes before
whatever relies on it. `apply(record)` folds the log, when it is written and after a crash alike.
P2: a step whose fingerprint is unchanged, and whose output is there whole, is never started.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import assert_never

import msgspec

from mrstream.mapreduce.flow.brain.messages import (
    Begin,
    Clear,
    Cleared,
    Command,
    Completed,
    Counters,
    Event,
    Finish,
    OutputPublished,
    Publish,
    Record,
    Started,
    StartStep,
    StepEnded,
    Write,
)
from mrstream.mapreduce.flow.brain.plan import (
    COMMAND,
    JOB,
    OUTPUT,
    PREVIOUS,
    FlowPlan,
    Step,
    resolved,
)


class _Done(msgspec.Struct):
    fingerprint: str
    place: str
    counters: Counters


class FlowBrain:
    """The state of one flow."""

    def __init__(self, plan: FlowPlan) -> None:
        self.plan = plan
        self._done: dict[str, _Done] = {}
        self._started: dict[str, list[Started]] = {}
        """Every attempt ever begun whose place may still be there."""
        self._prints: dict[str, str] = {}
        self._attempts = 0
        """All there ever were: no place is used twice, so its name says which output it is."""
        self._whole: set[str] = set()
        self._holds: dict[str, str] = {}
        self._running: dict[str, Started] = {}
        self._must: list[str] = []
        """The steps that this run has to have complete, in order."""
        self._failure = ""
        self._is_over = False

    # --- the log

    def apply(self, record: Record) -> None:
        match record:
            case Started(key=key):
                self._attempts += 1
                self._started.setdefault(key, []).append(record)
            case Completed(key=key, fingerprint=fingerprint, place=place, counters=counters):
                self._done[key] = _Done(fingerprint, place, counters)
                self._whole.add(place)
            case Cleared(places=places):
                self._whole.difference_update(places)
                for attempts in self._started.values():
                    attempts[:] = [each for each in attempts if each.place not in places]
            case _:
                assert_never(record)

    def places(self) -> list[str]:
        """Return all places that may be there: what a shell looks at before `Begin`."""
        return [each.place for attempts in self._started.values() for each in attempts]

    # --- the door

    def handle(self, event: Event) -> list[Command]:
        """Take one event; give what to do, in order."""
        commands: list[Command] = []
        match event:
            case Begin():
                commands += self._begin(event)
            case StepEnded():
                commands += self._ended(event)
            case OutputPublished(name=name):
                self._has_published(name)
            case _:
                assert_never(event)
        commands += self._go_on()
        return commands

    def _begin(self, event: Begin) -> Iterator[Command]:
        self._whole, self._holds = set(event.whole), dict(event.holds)
        self._failure, self._is_over = "", False
        self._prints = {}
        for step in self.plan.steps:
            self._prints[step.name] = self._fingerprint(event.digests[step.name], step)
        yield from self._adopt()
        self._must = self._needed()

    def _fingerprint(self, digest: str, step: Step) -> str:
        parts = [digest, *(self._prints[need] for need in step.needs)]
        return _hashed(parts)

    def _adopt(self) -> Iterator[Command]:
        """Take for complete what a crash kept from being written down: an attempt whose output is
        there, whole. A loop needs its counters, which are lost, so its iteration runs again."""
        for key, attempts in self._started.items():
            step = self._step_of(key)
            if step is None or step.until is not None or self._is_done(key):
                continue
            for each in attempts:
                if each.place in self._whole and each.fingerprint == self._print_of(key):
                    yield self._write(Completed(key, each.fingerprint, each.place))
                    break

    def _needed(self) -> list[str]:
        """Return the steps to run: those that leave something, and what they lack."""
        must: set[str] = set()
        for step in reversed(self.plan.steps):
            readers = [other for other in self.plan.steps if step.name in other.needs]
            is_asked = any(other.name in must for other in readers)
            leaves = bool(step.output) or not readers or step.kind == COMMAND
            # What a command did, it did: it need not be there to be read by nobody.
            is_told = step.kind == COMMAND and not step.output and self._has_run(step)
            if (is_asked or (leaves and not is_told)) and not self._is_complete(step):
                must.add(step.name)
        return [step.name for step in self.plan.steps if step.name in must]

    # --- what is complete

    def _is_complete(self, step: Step) -> bool:
        return self._final_key(step) is not None

    def _has_run(self, step: Step) -> bool:
        done = self._done.get(step.name)
        return done is not None and done.fingerprint == self._prints[step.name]

    def _final_key(self, step: Step) -> str | None:
        """Return the key under which a step is complete: of a loop, that of its last iteration."""
        if step.until is None:
            return step.name if self._is_done(step.name) else None
        for number in range(1, step.until.at_most + 1):
            key = f"{step.name}#{number}"
            done = self._done.get(key)
            if done is None or done.fingerprint != self._print_of(key):
                return None
            if number == step.until.at_most or step.until.holds(done.counters):
                return key if self._where(key) else None
        return None

    def _is_done(self, key: str) -> bool:
        done = self._done.get(key)
        return (
            done is not None and done.fingerprint == self._print_of(key) and bool(self._where(key))
        )

    def _where(self, key: str) -> str:
        """Return where the output of a complete step lies now: under its final name, or still in
        its place; empty if it is gone."""
        place = self._done[key].place
        step = self._step_of(key)
        if step is not None and step.output and self._holds.get(step.output) == place:
            return step.output
        return place if place in self._whole else ""

    def _print_of(self, key: str) -> str:
        name, _, number = key.partition("#")
        found = self._prints.get(name, "")
        return _hashed([found, number]) if number else found

    def _step_of(self, key: str) -> Step | None:
        name = key.partition("#")[0]
        return next((step for step in self.plan.steps if step.name == name), None)

    def _output_of(self, name: str) -> str:
        key = self._final_key(self.plan.step(name))
        assert key is not None, f"{name} is read before it is complete"
        return self._where(key)

    # --- what runs

    def _go_on(self) -> Iterator[Command]:
        if self._is_over:
            return
        if not self._failure:
            yield from self._start_ready()
        if self._running:
            return
        if self._failure:
            self._is_over = True
            yield Finish(False, self._failure)
        elif all(self._is_complete(self.plan.step(name)) for name in self._must):
            yield from self._wind_up()

    def _start_ready(self) -> Iterator[Command]:
        for name in self._must:
            if len(self._running) >= self.plan.side_by_side:
                return
            step = self.plan.step(name)
            is_running = any(key.partition("#")[0] == name for key in self._running)
            if not is_running and not self._is_complete(step) and self._is_ready(step):
                yield from self._start(step)

    def _is_ready(self, step: Step) -> bool:
        return all(self._is_complete(self.plan.step(need)) for need in step.needs)

    def _start(self, step: Step) -> Iterator[Command]:
        key, previous = self._next_key(step)
        place = self.plan.place(step, key, self._attempts + 1)

        def value_of(name: str) -> str:
            if name == PREVIOUS:
                return previous
            return place if name == OUTPUT else self._output_of(name)

        words = tuple(resolved(word, value_of) for word in step.words)
        started = Started(key, self._print_of(key), place)
        yield self._write(started)
        self._running[key] = started
        yield StartStep(key, step.name, place, words)

    def _next_key(self, step: Step) -> tuple[str, str]:
        """Return what to run of a step, and of a loop where its iteration begins: behind the last
        one whose output is still there."""
        if step.until is None:
            return step.name, ""
        number, previous = 0, resolved(step.first, self._output_of)
        for each in range(1, step.until.at_most + 1):
            key = f"{step.name}#{each}"
            done = self._done.get(key)
            if done is None or done.fingerprint != self._print_of(key):
                break
            if where := self._where(key):
                number, previous = each, where
        return f"{step.name}#{number + 1}", previous

    def _ended(self, event: StepEnded) -> Iterator[Command]:
        started = self._running.pop(event.key)
        if event.succeeded:
            yield self._write(
                Completed(event.key, started.fingerprint, started.place, event.counters)
            )
        elif not self._failure:
            self._failure = f"step {event.key} failed: {event.reason}"

    # --- the end

    def _wind_up(self) -> Iterator[Command]:
        """All is complete: publish what is not, then remove the rest. The old outputs stay until
        now, so that a flow that fails changes nothing."""
        for step in self.plan.steps:
            if step.output and self._output_of(step.name) != step.output:
                yield Publish(step.name, self._output_of(step.name), step.output)
                return
        kept = self._results()
        rest = tuple(place for place in self.places() if place not in kept)
        if rest:
            yield Clear(rest)
            yield self._write(Cleared(rest))
        self._is_over = True
        yield Finish(True)

    def _results(self) -> set[str]:
        """Return the places of jobs that nobody reads and that have no final name: results to look
        at, until the flow itself is removed."""
        read = {need for step in self.plan.steps for need in step.needs}
        return {
            self._output_of(step.name)
            for step in self.plan.steps
            if step.kind == JOB and not step.output and step.name not in read
        }

    def results(self) -> dict[str, str]:
        """Return where the output of each complete step lies."""
        found = {}
        for step in self.plan.steps:
            key = self._final_key(step)
            if key is not None:
                found[step.name] = self._where(key)
        return found

    def _has_published(self, name: str) -> None:
        step = self.plan.step(name)
        key = self._final_key(step)
        assert key is not None, f"{name} was published before it was complete"
        self._holds[step.output] = self._done[key].place

    def _write(self, record: Record) -> Write:
        self.apply(record)
        return Write(record)


def _hashed(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
