"""The numbers that docs/guide/saw-language.md gives: each holds, and one more does not."""

from __future__ import annotations

import pytest

from mrstream.saw.program import compiled
from mrstream.saw.source import Refused
from tests.support.saw_runs import csv_of, packed, shown


def emitted(kind: str, count: int) -> str:
    """What a table shows of the numbers from 0 on, packed and read again as in a job."""
    program = compiled(f"t: table {kind} of int; emit t <- int(string(input));")
    return shown(program, packed(program, [b"%d" % number for number in range(count)]))


@pytest.mark.parametrize(("rows", "values"), [(1, 1024), (100, 1600)])
def test_top_is_exact_up_to_so_many_different_values(rows: int, values: int) -> None:
    exact = "".join(f"t,{value},1\n" for value in range(rows))

    assert emitted(f"top({rows})", values) == exact
    assert emitted(f"top({rows})", values + 1) != exact


@pytest.mark.parametrize(("cuts", "values"), [(101, 2048), (300, 2400)])
def test_quantile_is_exact_below_so_many_values(cuts: int, values: int) -> None:
    def exact(count: int) -> str:
        ranks = (-(-cut * (count - 1) // (cuts - 1)) for cut in range(cuts))
        return "".join(f"t,{rank}\n" for rank in ranks)

    assert emitted(f"quantile({cuts})", values - 1) == exact(values - 1)
    assert emitted(f"quantile({cuts})", values) != exact(values)


@pytest.mark.parametrize(
    ("before", "after", "most", "why"),
    [
        ("for (;;) ", "return;", 18, "loops are nested too deep"),
        ("if (true) ", "emit t <- 1;", 48, "nested more than 50 deep"),
    ],
)
def test_statements_lie_in_each_other_so_deep(before: str, after: str, most: int, why: str) -> None:
    text = "t: table sum of int; "
    compiled(text + before * most + after)
    with pytest.raises(Refused, match=why):
        compiled(text + before * (most + 1) + after)


def test_expressions_and_operators_are_so_many() -> None:
    text = "t: table sum of int; emit t <- "

    assert csv_of(f"{text}{'(' * 48}1{')' * 48};") == "t,1\n"
    assert csv_of(f"{text}1{' + 1' * 200};") == "t,201\n"
    with pytest.raises(Refused, match="nested more than 50 deep"):
        csv_of(f"{text}{'(' * 49}1{')' * 49};")
    with pytest.raises(Refused, match="more than 200 operators in a row"):
        csv_of(f"{text}1{' + 1' * 201};")
