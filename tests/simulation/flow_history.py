"""Simulated histories of flows: random graphs, crashes at any moment, programs that change.

A world of places as a dictionary, a log as a list, and a shell that does a brain's commands one by
one and may die before or after each. Everything is drawn from one seed. The oracle computes what
each output must be from the graph alone.
"""

from __future__ import annotations

import hashlib
from random import Random

from mrstream.mapreduce.flow.brain.brain import FlowBrain
from mrstream.mapreduce.flow.brain.messages import (
    Begin,
    Clear,
    Cleared,
    Command,
    Completed,
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
from mrstream.mapreduce.flow.brain.plan import COMMAND, JOB, FlowPlan, Step, Until, checked

RUNS_MAX = 60


class Broken(AssertionError):
    """An invariant does not hold."""


class Crash(Exception):
    """The process is gone."""


class History:
    """One flow from its first run to its end, through everything that a seed brings."""

    def __init__(self, seed: int, make_brain: type[FlowBrain] = FlowBrain) -> None:
        self.rng = Random(seed)
        self.make_brain = make_brain
        self.plan = random_plan(self.rng)
        self.versions = {step.name: 0 for step in self.plan.steps}
        """Of each step's program; a change makes another digest."""
        self.log: list[Record] = []
        self.places: dict[str, str] = {}
        """What is written and whole."""
        self.finals: dict[str, tuple[str, str]] = {
            step.output: ("", "an older output") for step in self.plan.steps if step.output
        }
        """Final name to (place it came from, content)."""
        self.running: dict[str, StartStep] = {}
        self.runs = 0
        self.crash_chance = self.rng.choice([0.0, 0.02, 0.1, 0.3])

    # ---- the world -------------------------------------------------------------------------

    def run(self) -> None:
        """Run and resume until it is done; then once more, with and without a change."""
        for round_number in range(3):
            before = len([r for r in self.log if isinstance(r, Started)])
            self.run_to_end()
            self.check_outputs()
            self.check_litter()
            after = len([r for r in self.log if isinstance(r, Started)])
            if round_number and not self.changed and after != before:
                raise Broken(f"{after - before} steps ran again though nothing had changed")
            self.changed = self.rng.random() < 0.5
            if self.changed:
                name = self.rng.choice(self.plan.steps).name
                self.versions[name] += 1

    changed = False

    def run_to_end(self) -> None:
        for _ in range(RUNS_MAX):
            self.runs += 1
            if self.runs > RUNS_MAX // 2:
                self.crash_chance = 0.0
            try:
                if self.one_process():
                    return
            except Crash:
                self.running.clear()  # jobs end with the flow that started them
        raise Broken("the flow does not end")

    def one_process(self) -> bool:
        """Be the shell until the flow is over; says whether it succeeded."""
        brain = self.make_brain(self.plan)
        for record in self.log:
            brain.apply(record)
        holds = {final: place for final, (place, _) in self.finals.items()}
        digests = {name: f"{name}:{number}" for name, number in self.versions.items()}
        queue: list[Event] = [Begin(digests, frozenset(self.places), holds)]
        while True:
            if not queue:
                if not self.running:
                    raise Broken("nothing runs and nothing is over")
                queue.append(self.end_of(self.rng.choice(sorted(self.running))))
            for command in brain.handle(queue.pop(0)):
                self.maybe_crash()
                if isinstance(command, Finish):
                    return self.finished(command)
                queue += self.do(command)
                self.maybe_crash()

    def maybe_crash(self) -> None:
        if self.rng.random() < self.crash_chance:
            raise Crash

    def finished(self, command: Finish) -> bool:
        if self.running:
            raise Broken("over, and something runs")
        return command.succeeded

    def do(self, command: Command) -> list[Event]:
        match command:
            case Write(record=record):
                self.check_record(record)
                self.log.append(record)
            case StartStep():
                self.check_start(command)
                self.running[command.key] = command
            case Publish(name=name, place=place, final=final):
                if any(not self.is_final(step) for step in self.plan.steps):
                    raise Broken(f"{final} is published before all is complete")
                self.finals[final] = (place, self.places.pop(place))
                self.maybe_crash()
                return [OutputPublished(name)]
            case Clear(places=places):
                for place in places:
                    self.places.pop(place, None)
            case Finish():
                raise AssertionError
        return []

    def end_of(self, key: str) -> StepEnded:
        """Let a running step end; a crash may come between its last byte and our hearing of it."""
        command = self.running.pop(key)
        if self.rng.random() < 0.05 and self.runs < RUNS_MAX // 2:
            return StepEnded(key, False, "bad luck")
        self.places[command.place] = self.content_of(command)
        self.maybe_crash()
        number = int(key.partition("#")[2] or 0)
        return StepEnded(key, True, "", {"loop": {"left": max(0, 3 - number)}})

    def content_of(self, command: StartStep) -> str:
        """What a step writes: a hash of its program and of what it reads."""
        read = []
        for word in command.words:
            if word.startswith("in:"):
                read.append(word)
            elif word in self.places:
                read.append(self.places[word])
            elif word in self.finals:
                read.append(self.finals[word][1])
            else:
                raise Broken(f"{command.key} reads {word}, which is not there")
        return _hash([command.name, str(self.versions[command.name]), *read])

    # ---- what must hold --------------------------------------------------------------------

    def check_record(self, record: Record) -> None:
        if isinstance(record, Completed) and record.place not in self.places:
            raise Broken(f"{record.key} is called complete, and {record.place} is not there")
        if isinstance(record, Cleared):
            if set(record.places) & set(self.places):
                raise Broken("places are called gone, and are there")
            for step in self.plan.steps:
                if step.output and self.finals[step.output][1] != self.wanted(step):
                    raise Broken(f"places go before {step.output} is what it must be")

    def check_start(self, command: StartStep) -> None:
        """P2, and: no place is written into twice."""
        if command.place in self.places or command.place in (p for p, _ in self.finals.values()):
            raise Broken(f"{command.place} is used again")
        done = [r for r in self.log if isinstance(r, Completed) and r.key == command.key]
        started = next(
            r for r in reversed(self.log) if isinstance(r, Started) and r.key == command.key
        )
        for record in done:
            is_there = record.place in self.places or record.place in (
                place for place, _ in self.finals.values()
            )
            if record.fingerprint == started.fingerprint and is_there:
                raise Broken(f"{command.key} runs again, and is complete")
        wanted = self.content_of(command)
        if "#" not in command.key and wanted in self.places.values():
            raise Broken(f"{command.key} runs again, and what it gives is there")

    def is_final(self, step: Step) -> bool:
        """Say whether what the step must give is anywhere."""
        wanted = self.wanted(step)
        is_gone = (not step.output and self.is_read(step)) or step.kind == COMMAND
        return (
            is_gone
            or wanted in self.places.values()
            or wanted in (content for _, content in self.finals.values())
        )

    def is_read(self, step: Step) -> bool:
        return any(step.name in other.needs for other in self.plan.steps)

    def wanted(self, step: Step) -> str:
        """The oracle: what a step must give, from the graph and the programs alone."""
        version = str(self.versions[step.name])
        read = [
            self.wanted(self.plan.step(name)) if name in self.versions else f"in:{step.name}"
            for name in (word.strip("${}") for word in step.words)
            if name != "previous"
        ]
        if step.until is None:
            return _hash([step.name, version, *read])
        first = step.first.strip("${}")
        content = (
            self.wanted(self.plan.step(first)) if first in self.versions else f"in:{step.name}"
        )
        for _ in range(min(3, step.until.at_most)):
            content = _hash([step.name, version, content, *read])
        return content

    def check_outputs(self) -> None:
        for step in self.plan.steps:
            if step.output and self.finals[step.output][1] != self.wanted(step):
                raise Broken(f"{step.output} is not what it must be")

    def check_litter(self) -> None:
        results = {self.wanted(s) for s in self.plan.steps if s.kind == JOB and not self.is_read(s)}
        litter = [place for place, content in self.places.items() if content not in results]
        if litter:
            raise Broken(f"{litter} is left behind")


def random_plan(rng: Random) -> FlowPlan:
    """Draw a graph of up to eight steps."""
    steps: list[Step] = []
    for number in range(rng.randint(1, 8)):
        name = f"s{number}"
        needs = rng.sample([s.name for s in steps], rng.randint(0, min(3, len(steps))))
        words = [f"${{{need}}}" for need in needs] or [f"in:{name}"]
        output = f"/out/{name}" if rng.random() < 0.5 else ""
        kind = COMMAND if rng.random() < 0.2 else JOB
        until, first = None, ""
        if kind == JOB and rng.random() < 0.25:
            first = words.pop(0)
            words.insert(0, "${previous}")
            until = Until("loop", "left", "is", 0, rng.randint(1, 5))
        steps.append(Step(name, kind, tuple(words), output, until=until, first=first))
    rng.shuffle(steps)
    return checked(FlowPlan("f1", "simulated", tuple(steps), "/work", rng.randint(1, 4)))


def _hash(parts: list[str]) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
