"""`flow.yaml`: what becomes of it, and every mistake by name."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.flow.brain.plan import BadFlow, Until, narrowed, resolved
from mrstream.mapreduce.flow.file import read_flow

GOOD = """
name: top words
variables: {day: 2026-11-16, least: 3}
side_by_side: 2
steps:
  top:
    input: ${counts}
    mapper: awk '$1 > ${least} {print $2}'
    reducer: NONE
    output: /top/${day}
  counts:
    input: ["/logs/${day}", /more]
    mapper: map.py
    reducer: sum.py
    numReduceTasks: 4
    D: {mapreduce.job.name: counts, x: true}
    lazyOutput: true
  rank:
    input: ${previous}
    first: ${counts}
    mapper: rank.py
    reducer: add.py
    until: ranks,moved below 10
    at_most: 20
  tell:
    command: echo ${top} > ${output}/told
    after: rank
"""


def read(text: str, **variables: str) -> Any:
    return read_flow(text, "f1", "/work", variables)


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["counts"], ["counts"]),
        (["top"], ["counts", "top"]),
        (["rank", "counts"], ["counts", "rank"]),
        (["tell"], ["counts", "top", "rank", "tell"]),
    ],
)
def test_chosen_steps_bring_what_they_need_and_no_more(names: list[str], left: list[str]) -> None:
    assert [step.name for step in narrowed(read(GOOD), names).steps] == left


def test_a_chosen_step_that_is_not_there_is_named() -> None:
    with pytest.raises(BadFlow, match="no step 'tops'; the flow has counts, top, rank, tell"):
        narrowed(read(GOOD), ["top", "tops"])


def test_steps_become_words_in_an_order_in_which_they_can_run() -> None:
    plan = read(GOOD, least="5")

    assert (plan.name, plan.side_by_side) == ("top words", 2)
    assert [step.name for step in plan.steps] == ["counts", "top", "rank", "tell"]
    assert plan.step("counts").words == (
        "-input", "/logs/2026-11-16", "-input", "/more", "-mapper", "map.py", "-reducer", "sum.py",
        "-numReduceTasks", "4", "-D", "mapreduce.job.name=counts", "-D", "x=true", "-lazyOutput",
    )  # fmt: skip
    assert plan.step("top").words[3] == "awk '$1 > 5 {print $2}'"
    assert plan.step("top").output == "/top/2026-11-16"
    assert plan.step("rank").until == Until("ranks", "moved", "below", 10, 20)
    assert plan.step("rank").needs == ["counts"]
    assert plan.step("tell").needs == ["top", "rank"]


def test_places_lie_beside_their_final_names_and_are_no_input_by_chance() -> None:
    plan = read(GOOD)

    assert plan.place(plan.step("top"), "top", 3) == "/top/_f1/top.3"
    assert plan.place(plan.step("rank"), "rank#2", 7) == "/work/rank-2.7"


def test_a_dollar_is_one_unless_it_names_something() -> None:
    assert resolved("$1 $$ ${a} $x {b}", lambda name: name.upper()) == "$1 $ A $x {b}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps: [1]", "mapping"),
        ("a: [", "line 1: this is no YAML: expected the node content"),
        ("a: 1\n--- 2\n--- 3", "this is no YAML: "),
        ("steps:\n  a: {input: x}\n  a: {input: y}", "line 3: 'a' is there twice"),
        ("steps: {a: {input: x, mapper: b, mapper: c}}", "line 1: 'mapper' is there twice"),
        ("steps: {a: {input: x, output: }}", "step 'a': `output` has no value"),
        ("steps: {a: {input: x, D: {n: }}}", "step 'a': `D`, n has no value; an empty one is ''"),
        ("variables: {day: }\nsteps: {a: {input: x}}", "the variable day has no value"),
        ("steps: {a: {input: x, lazyOutput: 1}}", "`lazyOutput` is '1'; it is true or false"),
        ("steps: {a: {command: x, output: //}}", "step 'a': the output '//' is there, and stays"),
        ('name: "a\\nb"\nsteps: {a: {command: x}}', "'a\\nb' cannot name a flow"),
        ("steps: {}", "at least one step"),
        ("steps: {a: {mapper: cat}}", "needs `input`"),
        ("steps: {a: {input: x, maper: cat}}", "did you mean 'mapper'"),
        ("steps: {a: {input: '${b}'}}", "no such step"),
        ("steps: {a: {input: '${b}'}, b: {input: '${a}'}}", "circle"),
        ("steps: {a: {input: '${a}'}}", "circle"),
        ("steps: {'a b': {input: x}}", "cannot name a step"),
        ("steps: {previous: {input: x}}", "cannot name a step"),
        ("steps: {a: {input: '${previous}'}}", "a loop has `until`"),
        ("steps: {a: {input: x, until: 'g,c is 0'}}", "a loop has `until`"),
        ("steps: {a: {input: '${previous}', until: g, first: x}}", "is|below|above"),
        ("steps: {a: {input: '${previous}', until: 'g,c is 0'}}", "needs `first`"),
        ("steps: {a: {input: '${output}'}}", "needs no"),
        ("steps: {a: {input: x, output: o}, b: {input: y, output: o}}", "two steps have"),
        ("steps: {a: {command: x, mapper: y}}", "has no 'mapper'"),
        ("steps: {a: {input: {x: [1]}}}", "one value"),
        ("stps: {}\nsteps: {a: {input: x}}", "did you mean 'steps'"),
        ("side_by_side: 0\nsteps: {a: {input: x}}", "1 or more"),
        (f"side_by_side: {'9' * 5000}\nsteps: {{a: {{input: x}}}}", "1 or more"),
        (
            "steps: {a: {input: '${previous}', first: x, until: 'g,c is 0', at_most: 0}}",
            "1 or more",
        ),
    ],
)
def test_a_mistake_is_told(text: str, words: str) -> None:
    with pytest.raises(BadFlow) as told:
        read(text)
    assert words in str(told.value) and "\n" not in str(told.value)


def test_values_are_the_text_that_stands_there() -> None:
    """YAML takes 10:30 for minutes of a day's seconds, 1.10 for a number, no for false."""
    said = """
    variables: {at: 10:30, version: 1.10, answer: no, mode: 0644, day: 2026-11-18 10:00}
    steps:
      a: &a {input: x, cmdenv: {AT: "${at} ${version} ${answer} ${mode} ${day}"}, lazyOutput: true}
      b: {<<: *a, input: y, lazyOutput: false, numReduceTasks: 010}
    """

    first, second = read(said).steps

    assert first.words == ("-input", "x", "-cmdenv", "AT=10:30 1.10 no 0644 2026-11-18 10:00",
                           "-lazyOutput")  # fmt: skip
    assert second.words[-2:] == ("-numReduceTasks", "010") and "-lazyOutput" not in second.words


def test_a_variable_that_the_file_does_not_have_is_refused() -> None:
    with pytest.raises(BadFlow, match="no variable 'dya'"):
        read(GOOD, dya="1")


YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8)
    | st.sampled_from(["${a}", "${previous}", "${output}", "g,c is 0", "x"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["steps", "a", "b", "input", "mapper", "until", "first", "after", "output", "command",
             "at_most", "D", "variables", "lazyOutput", "side_by_side", "name"]
        ),
        inner, max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(YAML)
def test_whatever_a_file_holds_it_is_a_flow_or_refused(said: Any) -> None:
    with contextlib.suppress(UserError):
        read(yaml.safe_dump(said))


@given(st.text(max_size=60))
def test_whatever_text_a_file_holds(text: str) -> None:
    with contextlib.suppress(UserError):
        read(text)
