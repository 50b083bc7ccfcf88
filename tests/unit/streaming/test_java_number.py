"""streaming/java/java_number.py: numbers as Java prints and reads them."""

from __future__ import annotations

import math
import struct

import pytest

from mrstream.streaming.java.java_number import (
    format_double,
    format_float,
    parse_double,
    parse_long,
    wrap_long,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.5, "5.5"),
        (100.0, "100.0"),
        (1e-5, "1.0E-5"),
        (12345678.0, "1.2345678E7"),
        (24999999998.75, "2.499999999875E10"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.8660254037844386, "0.8660254037844386"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (2e23, "2.0E23"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_a_double_prints_as_in_java(value: float, text: str) -> None:
    """Spec 6.3; the smallest and largest are those that Java's own documentation prints."""
    assert format_double(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1.5, "1.5"),
        (3.4028234663852886e38, "3.4028235E38"),
        (1.401298464324817e-45, "1.4E-45"),
        (16777216.0, "1.6777216E7"),
        (1 / 3, "0.33333334"),
    ],
)
def test_a_float_prints_as_in_java(value: float, text: str) -> None:
    """Float.toString: as few digits as 32 bits need."""
    (nearest,) = struct.unpack(">f", struct.pack(">f", value))

    assert format_float(nearest) == text


@pytest.mark.parametrize("text", ["1.5", " 1", "1 ", "", "+", "0x10", "9223372036854775808", "1_0"])
def test_a_long_that_java_refuses_is_refused_in_its_words(text: str) -> None:
    """Long.parseLong: a sign and digits, 64 bits, nothing else."""
    with pytest.raises(ValueError, match="For input string: "):
        parse_long(text)


def test_a_long_may_have_either_sign() -> None:
    """Java 7 and later take a plus."""
    assert [parse_long(text) for text in ("+5", "-5", "007")] == [5, -5, 7]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 1.5 ", 1.5),
        ("1e3", 1000.0),
        ("1.5f", 1.5),
        ("2d", 2.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-Infinity", -math.inf),
        ("0x1.8p1", 3.0),
    ],
)
def test_a_double_is_read_as_in_java(text: str, value: float) -> None:
    """Double.parseDouble: blanks around it, a type letter behind it."""
    assert parse_double(text) == value


@pytest.mark.parametrize("text", ["", "x", "1,5", "nan", "inf", "1e", "1_0"])
def test_a_double_that_java_refuses_is_refused(text: str) -> None:
    """Python would take some of these."""
    with pytest.raises(ValueError):
        parse_double(text)


def test_sums_wrap_at_two_to_the_63() -> None:
    """Spec 6.3, LongValueSum."""
    assert wrap_long(2**63) == -(2**63)
    assert wrap_long(-(2**63) - 1) == 2**63 - 1
