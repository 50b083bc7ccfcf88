"""A flow as data: steps, what each needs, where its output goes. Checked when it is made; pure.

`${name}` in a step's words means: the output of that step; `${previous}`, in a loop, that of the
iteration before (`first` for the first); `${output}` the step's own. `$$` is a dollar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mrstream.cluster.errors import UserError

REFERENCE = re.compile(r"\$(?:\$|\{([A-Za-z_][\w.-]*)\})")
NAME = re.compile(r"[A-Za-z_][\w-]*")
AT_MOST = 100
"""Iterations of a loop that says nothing else."""
_UNTIL = re.compile(r"(.+),(.+?)\s+(is|below|above)\s+(-?\d+)")
PREVIOUS, OUTPUT = "previous", "output"
JOB, COMMAND = "job", "command"


class BadFlow(UserError):
    """A flow that cannot run: the message names the step."""


class Until(msgspec.Struct, frozen=True):
    """When a loop ends: a counter of its last iteration compared with a number."""

    group: str
    counter: str
    relation: str
    """`is`, `below` or `above`."""
    value: int
    at_most: int
    """Iterations, however the counter stands."""

    def holds(self, counters: Mapping[str, Mapping[str, int]]) -> bool:
        """Whether the counters end the loop; a counter that nobody counted is 0."""
        amount = counters.get(self.group, {}).get(self.counter, 0)
        return {
            "is": amount == self.value,
            "below": amount < self.value,
            "above": amount > self.value,
        }[self.relation]


class Step(msgspec.Struct, frozen=True):
    """One job or command of a flow."""

    name: str
    kind: str
    words: tuple[str, ...]
    """Of the command line, without `-output`; of a command, its argument list."""
    output: str = ""
    """The final name of its output; empty: it is intermediate, and removed at the end."""
    after: tuple[str, ...] = ()
    """Steps that must be complete before, beside those whose output it reads."""
    until: Until | None = None
    first: str = ""
    """Of a loop: what `${previous}` is in the first iteration."""

    @property
    def references(self) -> list[str]:
        """The names that its words refer to, each once."""
        texts = [*self.words, self.first]
        found = [name for text in texts for name in REFERENCE.findall(text) if name]
        return list(dict.fromkeys(found))

    @property
    def needs(self) -> list[str]:
        """The steps that must be complete before."""
        own = [name for name in self.references if name not in (PREVIOUS, OUTPUT)]
        return list(dict.fromkeys([*own, *self.after]))


class FlowPlan(msgspec.Struct, frozen=True):
    """A whole flow; `checked` has put its steps in an order in which they can run."""

    flow_id: str
    name: str
    steps: tuple[Step, ...]
    work: str
    """The directory of intermediate outputs."""
    side_by_side: int = 4

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def place(self, step: Step, key: str, attempt: int) -> str:
        """Return where an attempt of a step writes: in a hidden directory beside the final name, so
        that it can be moved there at once, else in `work`."""
        name = f"{key.replace('#', '-')}.{attempt}"
        if not step.output:
            return f"{self.work}/{name}"
        parent, slash, _ = step.output.rstrip("/").rpartition("/")
        return f"{parent}{slash}_{self.flow_id}/{name}"


def read_until(text: str, at_most: int) -> Until:
    """Read `GROUP,COUNTER is|below|above NUMBER`."""
    found = _UNTIL.fullmatch(text)
    if found is None:
        raise BadFlow(f"`until` is {text!r}; write GROUP,COUNTER is|below|above NUMBER")
    if not isinstance(at_most, int) or isinstance(at_most, bool) or at_most < 1:
        raise BadFlow(f"at_most is {at_most!r}; it must be a whole number, 1 or more")
    group, counter, relation, value = found.groups()
    return Until(group.strip(), counter.strip(), relation, int(value), at_most)


def checked(plan: FlowPlan) -> FlowPlan:
    """Return the plan with its steps in order; `BadFlow` if there is none."""
    if not plan.name.isprintable():
        raise BadFlow(f"{plan.name!r} cannot name a flow: it stands in lists, a line each")
    names = [step.name for step in plan.steps]
    for step in plan.steps:
        _check_step(step, names)
    outputs = [step.output for step in plan.steps if step.output]
    for output in outputs:
        if outputs.count(output) > 1:
            raise BadFlow(f"two steps have the output {output}")
    if not plan.steps:
        raise BadFlow("a flow needs at least one step")
    return msgspec.structs.replace(plan, steps=tuple(_in_order(plan.steps)))


def narrowed(plan: FlowPlan, names: Sequence[str]) -> FlowPlan:
    """Return the plan of these steps, and of those that they need, alone."""
    known = [step.name for step in plan.steps]
    for name in names:
        if name not in known:
            raise BadFlow(f"there is no step {name!r}; the flow has {', '.join(known)}")
    wanted = set(names)
    for step in reversed(plan.steps):  # whoever needs a step stands behind it
        if step.name in wanted:
            wanted.update(step.needs)
    return msgspec.structs.replace(
        plan, steps=tuple(step for step in plan.steps if step.name in wanted)
    )


def _check_step(step: Step, names: Sequence[str]) -> None:
    if not NAME.fullmatch(step.name) or step.name in (PREVIOUS, OUTPUT):
        raise BadFlow(f"{step.name!r} cannot name a step: letters, digits, _ and -, no `previous`")
    if names.count(step.name) > 1:
        raise BadFlow(f"two steps are called {step.name!r}")
    for need in step.needs:
        if need not in names:
            raise BadFlow(f"step {step.name!r} needs {need!r}, and there is no such step")
    if step.output and not step.output.strip("/"):
        raise BadFlow(f"step {step.name!r}: the output {step.output!r} is there, and stays")
    loops = PREVIOUS in step.references
    if loops != (step.until is not None):
        raise BadFlow(
            f"step {step.name!r}: a loop has `until` and reads ${{previous}}, one with the other"
        )
    if step.until is not None and (not step.first or step.until.at_most < 1):
        raise BadFlow(f"step {step.name!r}: a loop needs `first`, and `at_most` of 1 or more")
    if step.kind == JOB and OUTPUT in step.references:
        raise BadFlow(f"step {step.name!r}: a job's output is its own, it needs no ${{output}}")


def _in_order(steps: Sequence[Step]) -> list[Step]:
    left, ordered = list(steps), list[Step]()
    while left:
        done = {step.name for step in ordered}
        ready = [step for step in left if set(step.needs) <= done]
        if not ready:
            circle = ", ".join(step.name for step in left)
            raise BadFlow(f"steps wait for each other in a circle: {circle}")
        ordered += ready
        left = [step for step in left if step not in ready]
    return ordered


def resolved(text: str, value_of: Callable[[str], str]) -> str:
    """Replace the references of a text."""

    def replace(found: re.Match[str]) -> str:
        return value_of(found[1]) if found[1] else "$"

    return REFERENCE.sub(replace, text)
