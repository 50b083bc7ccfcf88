"""For all programs: ints are C's, foreign text is refused or runs, halves are as good as wholes."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.saw import readers, times
from mrstream.saw.program import Program, ProgramStopped, compiled
from mrstream.saw.source import Refused
from tests.support.saw_runs import csv_of, packed, shown, value_of

INTS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 2, 63, 64, 2**63 - 1, -(2**63), 2**32, -(2**31)]),
)
PROGRAMS = [
    path.read_text() for path in sorted(Path(__file__).parents[2].glob("sawzall/cases/*/*.szl"))
]


def wrapped(number: int) -> int:
    """Cut a number to 64 bits by the machine's own arithmetic."""
    return ctypes.c_int64(number & (2**64 - 1)).value


class Undefined(Exception):
    """C would not say."""


def by_c(op: str, a: int, b: int) -> int:
    """Give what C's operator does with two int64."""
    if op in ("/", "%"):
        if b == 0:
            raise Undefined
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return wrapped(quotient) if op == "/" else wrapped(a - quotient * b)
    if op in ("<<", ">>"):
        if not 0 <= b <= 63:
            raise Undefined
        return wrapped(a << b) if op == "<<" else a >> b
    results = {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}
    return wrapped(results[op])


Tree = int | tuple[str, "Tree", "Tree"] | str
EXPRESSIONS: st.SearchStrategy[Tree] = st.recursive(
    st.one_of(INTS, st.sampled_from(["x", "y", "len(s)"])),
    lambda inner: st.tuples(
        st.sampled_from(["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]), inner, inner
    ),
    max_leaves=8,
)


def written(tree: Tree) -> str:
    """Give an expression as text, with all its parentheses."""
    if isinstance(tree, tuple):
        return f"({written(tree[1])} {tree[0]} {written(tree[2])})"
    return str(tree)


def computed(tree: Tree, values: dict[str, int]) -> int:
    """Give the value of an expression."""
    if isinstance(tree, tuple):
        return by_c(tree[0], computed(tree[1], values), computed(tree[2], values))
    return values[tree] if isinstance(tree, str) else tree


@settings(max_examples=300)
@given(EXPRESSIONS, INTS, INTS, st.integers(0, 5))
def test_ints_are_those_of_c(tree: Tree, x: int, y: int, length: int) -> None:
    """SZ-21: 64 bits, two's complement, division toward zero; wrapping only where an interval
    says that it may be needed must not change a value."""
    try:
        expected = str(computed(tree, {"x": x, "y": y, "len(s)": length}))
    except Undefined:
        expected = "undefined"
    text = f"""
    out: table collection of string;
    x: int = {x};
    y: int = int(string(input));
    s: string = "{"a" * length}";
    v: int = {written(tree)};
    if (def(v)) emit out <- string(v); else emit out <- "undefined";
    """

    assert csv_of(text, [str(y)]) == f"out,{expected}\n"


@given(INTS, INTS)
def test_a_counter_in_a_loop_never_leaves_its_interval(low: int, steps: int) -> None:
    """The narrowed variable of a for loop gives what a plain one gives."""
    low, steps = low % 1000, steps % 50
    narrow = f"for (i: int = {low}; i < {low + steps}; i++) emit t <- i * i;"
    plain = f"i: int = {low}; while (i < {low + steps}) {{ emit t <- i * i; i = i + 1; }}"

    assert csv_of(f"t: table sum of int; {narrow}") == csv_of(f"t: table sum of int; {plain}")


WORDS = st.sampled_from(
    [
        "emit",
        "<-",
        "t",
        "x",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ";",
        ":",
        ",",
        ".",
        "=",
        "==",
        "+",
        "-",
        "*",
        "/",
        "%",
        "1",
        "2.5",
        '"a"',
        "`b`",
        "if",
        "else",
        "while",
        "for",
        "when",
        "some",
        "each",
        "all",
        "int",
        "string",
        "float",
        "table",
        "sum",
        "of",
        "array",
        "map",
        "static",
        "type",
        "function",
        "return",
        "def",
        "input",
        "break",
        "switch",
        "case",
        "default",
        "weight",
        "maximum",
        "jsonof",
        "'c'",
        "&&",
        "||",
        "!",
        'T"x"',
        'B"y"',
        "_undef_cnt",
    ]
)


@settings(max_examples=400)
@given(st.one_of(st.lists(WORDS, max_size=40).map(" ".join), st.text(max_size=60)))
def test_any_text_is_a_program_or_refused(text: str) -> None:
    """No text gets past the checker into Python that is wrong, nor ends anything."""
    try:
        program = compiled(text)
    except Refused:
        return
    _run_shortly(program)


def _run_shortly(program: Program) -> None:
    if "while" in program.python:
        return  # it may well not end
    try:
        packed(program, [b"", b"a,1", b"\xff"])
    except ProgramStopped:
        return


@settings(max_examples=300)
@given(st.sampled_from(PROGRAMS), st.integers(0, 2**32), st.booleans())
def test_a_damaged_program_is_refused_or_runs(text: str, seed: int, ignore: bool) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 4)):
        at, other = chance.randrange(len(text)), chance.randrange(len(text))
        length = chance.randrange(1, 8)
        text = chance.choice(
            [
                text[:at] + text[at + length :],
                text[:at] + text[other : other + length] + text[at:],
            ]
        )
    try:
        program = compiled(text, ignore_undefs=ignore)
    except Refused:
        return
    _run_shortly(program)


@pytest.mark.parametrize(
    ("piece", "times"),
    [("(", 5000), ("{", 5000), ("-", 5000), ("a[", 5000), ("1+", 5000), ("if(x)", 5000),
     ("array of ", 5000), ("x.y", 5000), ("for(;;)", 100), ("f(", 5000), ("!", 5000)],
)  # fmt: skip
def test_deep_nesting_is_refused(piece: str, times: int) -> None:
    with pytest.raises(Refused):
        compiled(f"t: table sum of int; x: int = 1; y: int = {piece * times}1;")
    with pytest.raises(Refused):
        compiled(piece * times + "1;")


def test_loops_nested_deeper_than_python_takes_are_refused() -> None:
    loops = "".join(f"for (i{n}: int = 0; i{n} < 2; i{n}++) " for n in range(25))

    with pytest.raises(Refused, match="make a function of the inner"):
        compiled(f"t: table sum of int; {loops} emit t <- 1;")


HALVED = """
n: table sum[string] of int;
c: table collection of string;
m: table maximum(3) of string weight int;
u: table unique(100) of string;
q: table quantile(5) of int;
p: table top(3) of string;
s: string = input;
emit n[s] <- 1;
emit c <- s;
emit m <- s weight len(s);
emit u <- s;
emit q <- len(s);
emit p <- s;
"""


@given(st.lists(st.text("abc", max_size=4), max_size=30), st.integers(0, 30))
def test_two_halves_are_one_whole(records: list[str], cut: int) -> None:
    """SZ-17 (§8): results of separate jobs are combined later."""
    program = compiled(HALVED)
    data = [record.encode() for record in records]

    halves = packed(program, data[:cut], 1) + packed(program, data[cut:], 2)

    assert shown(program, halves) == shown(program, packed(program, data, 3))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_text(number: float) -> None:
    assert float(value_of("float(string(input))", "float", repr(number).encode())) == number


CLOCKS = st.one_of(
    st.builds(
        "{:02}/{}/{:04}:{:02}:{:02}:{} {}".format,
        st.integers(1, 31),
        st.sampled_from(["Oct", "Mar", "xyz"]),
        st.sampled_from([1883, 1971, 2005, 2024]),
        st.integers(0, 3),
        st.integers(0, 2),
        st.sampled_from(["00", "29", "30", "31", "59", "60", "xx"]),
        st.sampled_from(["+0000", "-0700", "+0530", "+00", "UTC"]),
    ),
    st.text("0123:/ab ", max_size=27),
)


@settings(max_examples=30)
@given(
    st.lists(CLOCKS, max_size=40),
    st.sampled_from(["hourof", "minuteof", "dayofweek", "trunctohour", "trunctoday", "monthof"]),
    st.sampled_from(["UTC", "America/Los_Angeles", "Africa/Monrovia"]),
)
def test_a_part_of_an_entrys_time_is_that_of_the_time(
    clocks: list[str], part: str, zone: str
) -> None:
    """It is remembered for a minute; zones of old changed theirs within one."""
    quick = readers.by_minute(lambda time: int(getattr(times, part)(time, zone)))
    for text in clocks:
        try:
            expected = getattr(times, part)(readers.apache_time(text.encode()), zone)
        except ValueError:
            with pytest.raises(ValueError):
                quick(text.encode())
        else:
            assert quick(text.encode()) == expected
