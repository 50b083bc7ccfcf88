"""`Flow`: a graph of jobs, commands and functions in Python; it runs as `mrstream flow` does.

Takes jobs whose inputs may be other steps; gives a `FlowResult`. Knows nothing of what runs when:
that is the flow brain's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mrstream.api.codecs import Codec
from mrstream.api.files import output_lines
from mrstream.api.functions import keep, pack_value, takes_pairs
from mrstream.api.job import Job, Path, Source, is_function
from mrstream.api.source import is_source
from mrstream.cluster.user import user_name
from mrstream.mapreduce.flow import start
from mrstream.mapreduce.flow.book import FlowState, new_id
from mrstream.mapreduce.flow.brain.plan import (
    AT_MOST,
    COMMAND,
    JOB,
    FlowPlan,
    Step,
    checked,
    narrowed,
    read_until,
)
from mrstream.mapreduce.flow.runner import FlowRunner, dry_run, same_flow

_CALL = "mrstream.api.call"


class FlowFailed(RuntimeError):
    """A step of a flow failed; `flow_id` is what to resume."""

    def __init__(self, text: str, flow_id: str) -> None:
        super().__init__(text)
        self.flow_id = flow_id


class FlowStep(os.PathLike[str]):
    """A step of a flow; as an input of another step it means its output."""

    def __init__(self, step: Step, codec: Codec | None) -> None:
        self.step = step
        self.codec = codec
        """How its records lie in its output; None for a command or a function."""

    @property
    def name(self) -> str:
        """The step's name."""
        return self.step.name

    def __fspath__(self) -> str:
        return f"${{{self.name}}}"

    def __repr__(self) -> str:
        return f"<FlowStep {self.name}>"


class FlowResult(Mapping[FlowStep, Iterator[Any]]):
    """What a flow gave: `result[step]` are the records of a step, if its output is kept."""

    def __init__(
        self,
        flow_id: str,
        steps: Sequence[FlowStep],
        outputs: Mapping[str, str],
        started: Sequence[str],
        cluster: str | None,
    ) -> None:
        self.flow_id = flow_id
        self.outputs = dict(outputs)
        """Where the output of each step lies, by the step's name."""
        self.started = list(started)
        """The steps that this run started; of a loop each iteration."""
        self._steps = [step for step in steps if step.name in outputs]
        self._cluster = cluster

    def __getitem__(self, step: FlowStep) -> Iterator[Any]:
        if step.name not in self.outputs:
            raise KeyError(f"the output of {step.name} was intermediate, and is gone")
        lines = output_lines(
            self.outputs[step.name], self._cluster, is_local=start.is_local(self._cluster)
        )
        return map(step.codec.record, lines) if step.codec is not None else lines

    def __iter__(self) -> Iterator[FlowStep]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


class Flow:
    """A chain of jobs that runs side by side what it can, and goes on after any crash.

    >>> flow = mr.Flow("top words")
    >>> counts = flow.job(input="/logs", mapper=words, combiner=total, reducer=total)
    >>> top = flow.job(input=counts, mapper=swap, reducer=largest, output="/top")
    >>> for word, count in flow.run()[top]:
    ...     print(word, count)

    Outputs with a name get it when the whole flow is complete, whole; what is between is removed.
    `flow.resume(ID)` runs only what is incomplete, or whose inputs, functions or settings changed.
    """

    def __init__(self, name: str, *, cluster: str | None = None, side_by_side: int = 4) -> None:
        self.name = name
        self.cluster = cluster
        self.side_by_side = side_by_side
        self.steps: list[FlowStep] = []

    def job(
        self,
        input: Path | FlowStep | Iterable[Path | FlowStep] | Source,
        *,
        name: str | None = None,
        output: Path | None = None,
        after: Iterable[FlowStep] = (),
        until: str | None = None,
        at_most: int = AT_MOST,
        **options: Any,
    ) -> FlowStep:
        """Add a job, with the options of `mr.Job`. A mapper of two parameters reads what the step
        before wrote. With `until="GROUP,COUNTER is|below|above NUMBER"` it is a loop: each
        iteration reads what the one before wrote, the first reads `input`."""
        inputs: list[Any] = (
            [input] if isinstance(input, str | os.PathLike) or is_source(input) else list(input)
        )
        before = [each for each in inputs if isinstance(each, FlowStep)]
        if "reads" not in options and before and before[0].codec is not None:
            mapper = options.get("mapper")
            if is_function(mapper) and takes_pairs(mapper):
                options["reads"] = before[0].codec
        first = ""
        if until is not None:
            if len(inputs) != 1 or is_source(input):
                raise ValueError("a loop has one input, a path, which its first iteration reads")
            first, inputs = os.fspath(inputs[0]), ["${previous}"]
        job = Job(input if is_source(input) else inputs, cluster=self.cluster, **options)
        step = Step(
            name or f"step{len(self.steps) + 1}",
            JOB,
            tuple(job.words()),
            "" if output is None else os.fspath(output),
            tuple(each.name for each in after),
            None if until is None else read_until(until, at_most),
            first,
        )
        return self._add(step, job.writes)

    def command(
        self,
        command: str | Sequence[str],
        *,
        name: str | None = None,
        output: Path | None = None,
        after: Iterable[FlowStep] = (),
    ) -> FlowStep:
        """Add a command of this machine: text for the shell, or its words. `${NAME}` in it is the
        output of a step, `${output}` its own, a directory that is there."""
        words = ("sh", "-c", command) if isinstance(command, str) else tuple(command)
        return self._add_command(words, name, output, after)

    def call(
        self,
        function: Callable[..., Any],
        *inputs: Path | FlowStep,
        name: str | None = None,
        output: Path | None = None,
        after: Iterable[FlowStep] = (),
    ) -> FlowStep:
        """Add a function: `function(output, *inputs)`, paths all of them, in a process of its
        own on this machine."""
        path = keep(pack_value(function))
        words = [sys.executable, "-P", "-m", _CALL, path, "${output}"]
        words += [os.fspath(each) for each in inputs]
        return self._add_command(tuple(words), name, output, after)

    def run(self, steps: Iterable[FlowStep] = ()) -> FlowResult:
        """Run the flow to its end, or these steps of it and what they need; `FlowFailed` names the
        step that failed."""
        return self._go(self._state(steps))

    def resume(self, flow_id: str, steps: Iterable[FlowStep] = ()) -> FlowResult:
        """Go on with a flow: what is complete and unchanged is not run again."""
        return self._go(same_flow(self._state(steps), flow_id))

    def detach(self, steps: Iterable[FlowStep] = ()) -> str:
        """Have the cluster run the flow, or these steps of it and what they need, as `mrstream flow
        run --detach` does, and give its id: it goes on when this Python does not, and elsewhere
        when the host that runs it is lost.

        Outputs are in the dfs under their names when `mrstream flow status ID` says `succeeded`.
        Functions of jobs travel; `call` and inputs that are no files need this machine:
        `ValueError`.
        """
        from mrstream.cluster.config.config import current_cluster  # brings a YAML parser with it
        from mrstream.mapreduce.flow import detach

        state = self._state(steps)
        for step in state.plan.steps:
            if any(map(_needs_us, step.words)):
                raise ValueError(f"step {step.name!r} needs this machine: it cannot be detached")
        cluster = current_cluster(self.cluster)
        if cluster is None:
            raise ValueError("a detached flow needs a cluster, and there is no current one")
        state.user = user_name()
        detach.detach(state, cluster, _say_nothing)
        return state.plan.flow_id

    def plan(self, steps: Iterable[FlowStep] = ()) -> str:
        """Return what would run, step by step."""
        state = self._state(steps)
        return "\n".join(dry_run(state, start.files_of(state)))

    def _add_command(
        self,
        words: tuple[str, ...],
        name: str | None,
        output: Path | None,
        after: Iterable[FlowStep],
    ) -> FlowStep:
        final = "" if output is None else os.fspath(output)
        names = tuple(each.name for each in after)
        return self._add(
            Step(name or f"step{len(self.steps) + 1}", COMMAND, words, final, names), None
        )

    def _add(self, step: Step, codec: Codec | None) -> FlowStep:
        added = FlowStep(step, codec)
        self.steps.append(added)
        return added

    def _state(self, steps: Iterable[FlowStep] = ()) -> FlowState:
        flow_id = new_id()
        plan = checked(
            FlowPlan(
                flow_id,
                self.name,
                tuple(each.step for each in self.steps),
                start.work_of(flow_id, self.cluster),
                self.side_by_side,
            )
        )
        if chosen := [each.name for each in steps]:
            plan = narrowed(plan, chosen)
        return FlowState(plan, cluster=self.cluster, working_directory=os.getcwd())

    def _go(self, state: FlowState) -> FlowResult:
        said: list[str] = []
        runner = FlowRunner(state, start.files_of(state), said.append)
        flow_id = state.plan.flow_id
        if not runner.run():
            raise FlowFailed("\n".join(said), flow_id)
        return FlowResult(flow_id, self.steps, runner.results(), runner.started, self.cluster)


def _needs_us(word: str) -> bool:
    """Whether a word of a step is one that the Python here has a part in: a function that is
    called, or one that gives splits."""
    return word == _CALL or (word.startswith("program:") and "mrstream.api." in word)


def _say_nothing(text: str) -> None:
    """The id says all that a caller needs."""
