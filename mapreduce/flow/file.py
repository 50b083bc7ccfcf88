"""`flow.yaml`: steps with the option names of the command line, variables, loops.

Takes the text of a file and variables; gives a `FlowPlan`. Values are the text that stands there,
as on a command line: YAML would make 630 of 10:30, and 1.1 of 1.10. Every mistake is told with the
step and the key. Never runs anything.
"""

from __future__ import annotations

import re
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
SIDE_BY_SIDE = 4
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_STEP_KEYS = {"output", "command", "after", "until", "first", "at_most"}
_FLOW_KEYS = {"name", "variables", "steps", "side_by_side"}


def read_flow(
    text: str, flow_id: str, work: str, variables: Mapping[str, str], name: str = "flow"
) -> FlowPlan:
    """Return the plan of a file; `variables` of the command line win over those of the file."""
    try:
        said = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadFlow(f"{where}this is no YAML: {problem}") from None
    except RecursionError:
        raise BadFlow("this YAML is nested too deeply") from None
    if not isinstance(said, dict) or not isinstance(said.get("steps"), dict):
        raise BadFlow("a flow is a mapping with `steps:`, a mapping of names to steps")
    _refuse_unknown(said, _FLOW_KEYS, "the flow")
    given = said.get("variables") or {}
    if not isinstance(given, dict):
        raise BadFlow("`variables:` must be a mapping of names to values")
    known = {str(key): _text(value, f"the variable {key}") for key, value in given.items()}
    for key in variables:
        if key not in known:
            raise BadFlow(
                f"there is no variable {key!r}; the flow has {', '.join(known) or 'none'}"
            )
    known.update(variables)
    steps = tuple(_step(str(key), step, known) for key, step in said["steps"].items())
    count = _number(said, "side_by_side", SIDE_BY_SIDE, "the flow")
    return checked(FlowPlan(flow_id, _text(said.get("name", name), "name"), steps, work, count))


class _Loader(yaml.SafeLoader):
    """Reads every value as the text that it is, and refuses what stands there twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as its base has it
        first: [(tag, regex) for tag, regex in resolvers if tag.endswith((":merge", ":null"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                raise BadFlow(f"line {key.start_mark.line + 1}: {key.value!r} is there twice")
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


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
    names = tuple(_text(each, f"{where}: a step of `after`") for each in after)
    output, first = (_text(said.get(key, ""), f"{where}: `{key}`") for key in ("output", "first"))
    if "command" in said:
        _refuse_unknown(said, {"command", "after", "output"}, where)
        shell = ("sh", "-c", _text(said["command"], f"{where}: `command`"))
        return Step(name, COMMAND, shell, output, names)
    _refuse_unknown(said, {*OPTIONS, *_STEP_KEYS}, where)
    if "input" not in said:
        raise BadFlow(f"{where} needs `input`, or `command`")
    words = [w for key in said if key in OPTIONS for w in _option_words(key, said[key], where)]
    return Step(name, JOB, tuple(words), output, names, until, first)


def _until(said: Mapping[str, Any], where: str) -> Until | None:
    if "until" not in said:
        return None
    try:
        until = _text(said["until"], "`until`")
        return read_until(until, _number(said, "at_most", AT_MOST, "it"))
    except BadFlow as error:
        raise BadFlow(f"{where}: {error}") from None


def _number(said: Mapping[str, Any], key: str, default: int, where: str) -> int:
    given = _text(said.get(key, default), f"{where}: `{key}`")
    if not _NUMBER.fullmatch(given):
        raise BadFlow(f"{key} is {given!r}; it must be a whole number, 1 or more")
    return int(given)


def _option_words(key: str, value: Any, where: str) -> list[str]:
    option = OPTIONS[key]
    what = f"{where}: `{key}`"
    if not option.value:
        flag = _text(value, what).lower()
        if flag not in ("true", "false"):
            raise BadFlow(f"{what} is {flag!r}; it is true or false")
        return [f"-{key}"] if flag == "true" else []
    if isinstance(value, dict):
        value = [f"{name}={_text(each, f'{what}, {name}')}" for name, each in value.items()]
    values = value if isinstance(value, list) else [value]
    return [word for each in values for word in (f"-{key}", _text(each, what))]


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


def _text(value: Any, what: str) -> str:
    if value is None:
        raise BadFlow(f"{what} has no value; an empty one is ''")
    if isinstance(value, dict | list):
        raise BadFlow(f"{what}: {value!r} stands where one value is wanted")
    return str(value)
