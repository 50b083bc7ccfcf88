"""Numbers, modes and tables of the shell, as Hadoop prints them."""

from __future__ import annotations

import pytest

from mrstream.dfs.errors import BadRequest
from mrstream.dfs.shell.arguments import BadUsage, Grammar
from mrstream.dfs.shell.formats import changed_mode, hadoop_size, permissions, table


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"), (1023, "1023"), (1024, "1 K"), (1366, "1.3 K"), (1536, "1.5 K"),
        (64 << 20, "64 M"), (1 << 40, "1 T"), ((1 << 40) * 2500, "2.4 P"),
    ],
)  # fmt: skip
def test_sizes_for_people(count: int, text: str) -> None:
    assert hadoop_size(count) == text


@pytest.mark.parametrize(
    ("mode", "change", "after"),
    [
        (0o644, "755", 0o755), (0o644, "u+x", 0o744), (0o644, "+x", 0o755), (0o777, "go-w", 0o755),
        (0o777, "a=r", 0o444), (0o644, "u+x,g=,o=rw", 0o706), (0o755, "1777", 0o1777),
        (0o644, "a+X", 0o644), (0o744, "a+X", 0o755), (0o755, "+t", 0o1755),
    ],
)  # fmt: skip
def test_modes_change_by_octal_numbers_and_by_letters(mode: int, change: str, after: int) -> None:
    assert changed_mode(mode, False, change) == after


def test_a_capital_x_is_for_directories() -> None:
    assert changed_mode(0o644, True, "a+X") == 0o755


def test_nonsense_is_no_mode() -> None:
    with pytest.raises(BadRequest, match="does not match"):
        changed_mode(0o644, False, "rwx")


def test_permissions_have_a_sticky_bit() -> None:
    assert [permissions(m) for m in (0o755, 0o1777, 0o1644, 0)] == [
        "rwxr-xr-x", "rwxrwxrwt", "rw-r--r-T", "---------",
    ]  # fmt: skip


def test_tables_are_two_spaces_apart() -> None:
    rows = [("Name", "Size"), ("a", "100000")]

    assert table(rows, right=(1,)) == ["Name    Size", "a     100000"]


def test_words_are_cut_into_flags_values_and_paths() -> None:
    grammar = Grammar(("r", "f"), ("t",), 1, 2)

    said = grammar.parse(["-rf", "-t", "4", "--", "-odd", "x"])

    assert (said.flags, said.values, said.rest) == ({"r", "f"}, {"t": "4"}, ("-odd", "x"))
    for words in (["-x", "a"], [], ["a", "b", "c"], ["-t"]):
        with pytest.raises(BadUsage):
            grammar.parse(words)
