"""`flow.yaml`: steps with the option names of the command line, variables, loops.

Takes the text of a file and variables; gives a `FlowPlan`. Every mistake is told with the step and
the key. Never runs anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from mrstream.mapreduce.flow.brain.plan import (
    AT_MOST,
    COMMAND,
    JOB,
    REFERENCE,
    BadFlow,
    FlowPlan,
    Step,
    Until,
    checked,
    read_until,
)
from mrstream.streaming.command.options import GENERIC_OPTIONS, OWN_OPTIONS, STREAMING_OPTIONS

OPTIONS = {
    option.name: option
    for option in (*STREAMING_OPTIONS, *GENERIC_OPTIONS, *OWN_OPTIONS)
    if option.name not in ("output", "help", "info", "background")
}
_STEP_KEYS = {"output", "command", "after", "until", "first", "at_most"}
_FLOW_KEYS = {"name", "variables", "steps", "side_by_side"}


def read_flow(
    text: str, flow_id: str, work: str, variables: Mapping[str, str], name: str = "flow"
) -> FlowPlan:
    """Return the plan of a file; `variables` of the command line win over those of the file."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadFlow(f"this is no YAML: {error}") from None
    except RecursionError:
        raise BadFlow("this YAML is nested too deeply") from None
    if not isinstance(said, dict) or not isinstance(said.get("steps"), dict):
        raise BadFlow("a flow is a mapping with `steps:`, a mapping of names to steps")
    _refuse_unknown(said, _FLOW_KEYS, "the flow")
    given = said.get("variables") or {}
    if not isinstance(given, dict):
        raise BadFlow("`variables:` must be a mapping of names to values")
    known = {str(key): _text(value) for key, value in given.items()}
    for key in variables:
        if key not in known:
            raise BadFlow(
                f"there is no variable {key!r}; the flow has {', '.join(known) or 'none'}"
            )
    known.update(variables)
    steps = tuple(_step(str(key), step, known) for key, step in said["steps"].items())
    count = said.get("side_by_side", 4)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise BadFlow(f"side_by_side is {count!r}; it must be a whole number, 1 or more")
    return checked(FlowPlan(flow_id, _text(said.get("name", name)), steps, work, count))


def _step(name: str, said: Any, variables: Mapping[str, str]) -> Step:
    where = f"step {name!r}"
    if not isinstance(said, dict):
        raise BadFlow(f"{where} must be a mapping of options")
    said = _with_variables(said, variables, where)
    until = _until(said, where)
    after = said.get("after", [])
    after = [after] if isinstance(after, str) else after
    if not isinstance(after, list):
        raise BadFlow(f"{where}: `after` is a list of steps")
    output, first = _text(said.get("output", "")), _text(said.get("first", ""))
    if "command" in said:
        _refuse_unknown(said, {"command", "after", "output"}, where)
        shell = ("sh", "-c", _text(said["command"]))
        return Step(name, COMMAND, shell, output, tuple(map(_text, after)))
    _refuse_unknown(said, {*OPTIONS, *_STEP_KEYS}, where)
    if "input" not in said:
        raise BadFlow(f"{where} needs `input`, or `command`")
    words = tuple(word for key in said if key in OPTIONS for word in _option_words(key, said[key]))
    return Step(name, JOB, words, output, tuple(map(_text, after)), until, first)


def _until(said: Mapping[str, Any], where: str) -> Until | None:
    if "until" not in said:
        return None
    try:
        return read_until(_text(said["until"]), said.get("at_most", AT_MOST))
    except BadFlow as error:
        raise BadFlow(f"{where}: {error}") from None


def _option_words(key: str, value: Any) -> list[str]:
    option = OPTIONS[key]
    if not option.value:
        return [f"-{key}"] if value is True else []
    if isinstance(value, dict):
        value = [f"{name}={_text(each)}" for name, each in value.items()]
    values = value if isinstance(value, list) else [value]
    return [word for each in values for word in (f"-{key}", _text(each))]


def _with_variables(said: Any, variables: Mapping[str, str], where: str) -> Any:
    """Replace `${name}` where it is a variable; others are steps."""
    if isinstance(said, dict):
        return {str(k): _with_variables(v, variables, where) for k, v in said.items()}
    if isinstance(said, list):
        return [_with_variables(each, variables, where) for each in said]
    if not isinstance(said, str):
        return said
    return REFERENCE.sub(lambda m: variables.get(m[1] or "", m[0]), said)


def _refuse_unknown(said: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = [str(key) for key in said if key not in known]
    if unknown:
        import difflib

        close = difflib.get_close_matches(unknown[0], sorted(known), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise BadFlow(f"{where} has no {unknown[0]!r}{hint}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        raise BadFlow(f"{value!r} stands where one value is wanted")
    return str(value)
