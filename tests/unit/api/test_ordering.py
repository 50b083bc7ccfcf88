"""The bytes of `sort_key` and `sort_values`: their order is that of the values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mrstream.api.ordering import ordered

NUMBERS = st.integers() | st.floats(allow_nan=False) | st.booleans()
TUPLES = st.tuples(NUMBERS, st.text(st.characters(blacklist_categories=["Cs"])), st.binary())


def agree(one: Any, other: Any) -> None:
    left, right = ordered(one), ordered(other)
    assert (left < right, left == right) == (one < other, one == other)


@given(NUMBERS, NUMBERS)
@example(-1, -1.5)
@example(10**400, math.inf)
@example(0.1, 5e-324)
@example(2**53 + 1, float(2**53))
@example(-0.0, 0)
def test_numbers_are_ordered_whole_or_not(one: float, other: float) -> None:
    agree(one, other)


@given(st.text(), st.text())
@example("a", "a\0")
@example("a\t", "a\n")
def test_text_is_ordered_as_python_does(one: str, other: str) -> None:
    try:
        agree(one, other)
    except UnicodeEncodeError:
        assert any("\ud800" <= letter <= "\udfff" for letter in one + other)


@given(st.lists(st.binary()), st.lists(st.binary()))
def test_tuples_are_ordered_member_by_member(one: list[bytes], other: list[bytes]) -> None:
    agree(one, other)


@given(TUPLES, TUPLES)
def test_tuples_of_all_kinds_are_ordered_alike(one: Any, other: Any) -> None:
    agree(one, other)


@given(st.lists(TUPLES))
def test_no_byte_separates_a_field_or_a_line(values: list[Any]) -> None:
    assert not set(ordered(values)) & set(b"\t\n\x1f")


@given(TUPLES, TUPLES)
def test_none_is_the_start_of_another(one: Any, other: Any) -> None:
    left, right = ordered(one), ordered(other)
    assert left == right or not right.startswith(left)


@pytest.mark.parametrize("value", [math.nan, object(), {1: 2}])
def test_what_has_no_order_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        ordered(value)


def test_a_number_beyond_all_use_is_refused() -> None:
    assert ordered(1 << 200_000) < ordered((1 << 200_000) + 1)
    with pytest.raises(ValueError, match="bits"):
        ordered(1 << 300_000)
