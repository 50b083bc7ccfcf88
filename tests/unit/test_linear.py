"""The judge is judged: histories that are linearizable, and twenty that are not."""

from __future__ import annotations

import math

import pytest

from tests.support.linear import Operation, is_linearizable, mutex, name, register


def history(text: str) -> list[Operation]:
    """`0-2 write a; 1-3 read a; 4- write b`: call, return (or none), what was asked, the answer."""
    operations = []
    for part in text.split(";"):
        times, verb, *words = part.split()
        called, _, returned = times.partition("-")
        end = float(returned) if returned else math.inf
        if verb == "read":
            asked, answer = ("read",), (words[0] if words else "")
        elif verb == "swap":
            asked, answer = ("swap", words[0], words[1]), words[2] == "yes"
        elif verb in ("take", "free"):
            asked, answer = (verb, words[0]), words[1] == "yes"
        else:
            asked, answer = ("write", words[0]), None
        operations.append(Operation(float(called), end, asked, answer))
    return operations


@pytest.mark.parametrize(
    "text",
    [
        "0-1 read",
        "0-1 write a; 2-3 read a",
        "0-3 write a; 1-2 read",
        "0-3 write a; 1-2 read a",
        "0-5 write a; 1-2 read; 3-4 read a",
        "0- write a; 1-2 read; 3-4 read a",
        "0- write a; 1-2 read",
        "0-3 write a; 0-3 write b; 4-5 read a",
        "0-3 write a; 0-3 write b; 4-5 read b",
        "0-9 write a; 0-9 write b; 1-2 read a; 3-4 read b; 5-6 read b",
        "0-1 write a; 2-3 swap a b yes; 4-5 swap a c no; 6-7 read b",
        "0-9 swap a b yes; 1-2 write a; 3-8 read b",
    ],
)
def test_a_register_that_could_be(text: str) -> None:
    assert is_linearizable(history(text), "", register)


@pytest.mark.parametrize(
    "text",
    [
        "0-1 read a",
        "0-1 write a; 2-3 read",
        "0-1 write a; 2-3 read b",
        "0-1 write a; 2-3 write b; 4-5 read a",
        "0-5 write a; 1-2 read a; 3-4 read",
        "0- write a; 1-2 read a; 3-4 read",
        "0-1 write a; 2-9 write b; 3-4 read b; 5-6 read a",
        "0-9 write a; 0-9 write b; 1-2 read a; 3-4 read b; 5-6 read a",
        "0-3 write a; 0-3 write b; 4-5 read a; 6-7 read b",
        "2-3 write a; 0-1 read a",
        "0-1 swap a b yes",
        "0-1 write a; 2-3 swap a b no",
        "0-1 write a; 2-3 swap a b yes; 4-5 read a",
        "0-1 write a; 2-5 swap a b yes; 3-6 swap a c yes",
        "0-1 write a; 2- swap a b yes; 3-4 read b; 5-6 read a",
        "0-1 write a; 2-3 read a; 4-5 write b; 6-7 read b; 8-9 read a",
        "0-1 write a; 2-3 read a; 2-3 read; 4-5 read a",
    ],
)
def test_a_register_that_cannot_be(text: str) -> None:
    assert not is_linearizable(history(text), "", register)


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("0-1 take x yes; 2-3 take y no; 4-5 free x yes; 6-7 take y yes", True),
        ("0-3 take x yes; 1-2 take y no", True),
        ("0- take x yes; 1-2 take y no; 3-4 take z no", True),
        ("0-1 take x yes; 2-3 take y yes", False),
        ("0-3 take x yes; 0-3 take y yes", False),
        ("0-1 take x no", False),
        ("0-1 take x yes; 2-3 free y yes", False),
    ],
)
def test_a_lock_is_held_by_one_at_a_time(text: str, possible: bool) -> None:
    assert is_linearizable(history(text), None, mutex) is possible


def of_name(text: str) -> list[Operation]:
    """`0-1 make yes; 2- remove`: call, return (or none), what was asked, the answer."""
    operations = []
    for part in text.split(";"):
        times, asked, *words = part.split()
        called, _, returned = times.partition("-")
        end = float(returned) if returned else math.inf
        operations.append(Operation(float(called), end, asked, words == ["yes"]))
    return operations


@pytest.mark.parametrize(
    ("text", "can_be"),
    [
        ("0-1 make yes; 2-3 look yes; 4-5 remove yes; 6-7 look no", True),
        ("0-9 make yes; 1-8 make no", True),
        ("0- make; 1-2 look no; 3-4 look yes", True),
        ("0-1 make no", False),  # done twice, over two leaders: the repeat was told of the first
        ("0-1 make yes; 2-3 look no", False),  # lost
        ("0-1 make yes; 2-3 remove yes; 4-5 look yes", False),  # done twice, later
        ("0-1 make yes; 2-9 remove yes; 3-4 look no; 5-6 look yes", False),  # back in time
        ("0-1 make yes; 2-9 make yes; 3-4 look yes", False),
    ],
)
def test_a_name_is_made_and_removed_in_turn(text: str, can_be: bool) -> None:
    assert is_linearizable(of_name(text), False, name) == can_be
