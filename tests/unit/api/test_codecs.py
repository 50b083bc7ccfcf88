"""Codecs: what becomes of values on their way through lines."""

from __future__ import annotations

import math
import pickle as stdlib_pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.api import codecs
from mrstream.api.codecs import BadRecord, Codec, codec_of

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
LINE = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\t\n"))


def through(codec: Codec, records: list[Any]) -> list[Any]:
    data = codec.lines(records)
    assert data.count(b"\n") == len(records)
    return [codec.record(line) for line in data.split(b"\n")[:-1]]


@given(st.lists(st.tuples(JSON, JSON)))
def test_json_gives_back_what_it_got(records: list[Any]) -> None:
    assert through(codecs.json, records) == records


@given(st.lists(JSON))
def test_json_takes_values_that_are_no_pairs(records: list[Any]) -> None:
    assert through(codecs.json, records) == records


@given(st.dictionaries(st.text(), JSON))
def test_equal_values_have_equal_bytes_whatever_their_order(value: dict[str, Any]) -> None:
    again = dict(reversed(list(value.items())))

    assert codecs.json.encode(value) == codecs.json.encode(again)


@pytest.mark.parametrize("value", [math.nan, math.inf, [1, math.nan], object(), "\udcff"])
def test_what_json_cannot_say_is_refused_with_its_name(value: Any) -> None:
    """A number that is none would become null, and nobody would know."""
    for record in (value, ("key", value), (value, 1)):
        with pytest.raises(BadRecord, match=r"is no JSON"):
            codecs.json.lines([("a", 1), record])


def test_null_itself_is_fine() -> None:
    assert through(codecs.json, [("a", None), (None, "null")]) == [("a", None), (None, "null")]


@given(st.lists(st.tuples(LINE, LINE)))
def test_text_gives_back_text(records: list[Any]) -> None:
    assert through(codecs.text, records) == records


def test_text_keeps_tabs_of_values_and_bytes_that_are_no_utf8() -> None:
    odd = b"\xff\xfe".decode("utf-8", "surrogateescape")

    assert through(codecs.text, [("k", "a\tb"), (odd, odd), "lone"]) == [
        ("k", "a\tb"), (odd, odd), "lone",
    ]  # fmt: skip
    assert codecs.text.lines([(odd, 1)]) == b"\xff\xfe\t1\n"


@pytest.mark.parametrize("record", [("a\tb", 1), ("a\nb", 1), ("a", "b\nc"), "b\nc", (b"x", 1)])
def test_text_that_would_be_cut_elsewhere_is_refused(record: Any) -> None:
    with pytest.raises(BadRecord):
        codecs.text.lines([("fine", 1), record])


@given(st.lists(st.tuples(st.binary(), st.tuples(st.integers(), st.text()))))
def test_pickle_takes_anything(records: list[Any]) -> None:
    assert through(codecs.pickle, records) == records


def test_raw_is_bytes_and_nothing_else() -> None:
    assert through(codecs.raw, [(b"\xff", b"a\tb"), b"x"]) == [(b"\xff", b"a\tb"), b"x"]
    for record in [("text", b""), (b"a\tb", b""), b"a\nb"]:
        with pytest.raises(BadRecord):
            codecs.raw.lines([record])


def test_a_pair_of_functions_is_a_codec() -> None:
    codec = codec_of((lambda n: f"{n:x}", lambda data: int(data, 16)))

    assert codec.lines([(255, 16), 1]) == b"ff\t10\n1\n"
    assert codec.record(b"ff\t10") == (255, 16)
    with pytest.raises(BadRecord, match="tab or a newline"):
        codec_of((lambda _: "a\tb", bytes)).encode(1)
    with pytest.raises(TypeError, match="no codec"):
        codec_of("json")


@pytest.mark.parametrize("codec", [codecs.json, codecs.text, codecs.pickle, codecs.raw])
def test_a_codec_travels_by_its_name(codec: Codec) -> None:
    assert stdlib_pickle.loads(stdlib_pickle.dumps(codec)) is codec
