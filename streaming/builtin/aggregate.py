"""The aggregate package: `-reducer aggregate` and its combiner, over keys `TYPE:ID` (spec 6.3).

Each aggregator takes the values of one key and gives a report for the output, or values that can
be aggregated again for the combiner. Pure; prints and reads numbers as Java does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from mrstream.cluster.errors import UserError
from mrstream.streaming.java.java_number import (
    LONG_MAX,
    LONG_MIN,
    format_double,
    parse_double,
    parse_long,
    wrap_long,
)
from mrstream.streaming.java.java_text import decode_text

TYPE_SEPARATOR = ":"


class BadAggregate(UserError):
    """A key or value that aggregate cannot work with; it fails the task, as in Hadoop."""


class Aggregator(Protocol):
    """What is known of the values of one key."""

    def add(self, value: str) -> None:
        """Take one more value; ValueError if it cannot be read."""

    def report(self) -> str:
        """What the reducer writes."""

    def combined(self) -> list[str]:
        """What the combiner passes on: values that say the same."""


class _LongSum:
    def __init__(self) -> None:
        self._sum = 0

    def add(self, value: str) -> None:
        self._sum = wrap_long(self._sum + parse_long(value))

    def report(self) -> str:
        return str(self._sum)

    def combined(self) -> list[str]:
        return [self.report()]


class _LongExtreme:
    def __init__(self, choose: Callable[[int, int], int], start: int) -> None:
        self._choose = choose
        self._chosen = start

    def add(self, value: str) -> None:
        self._chosen = self._choose(self._chosen, parse_long(value))

    def report(self) -> str:
        return str(self._chosen)

    def combined(self) -> list[str]:
        return [self.report()]


class _DoubleSum:
    def __init__(self) -> None:
        self._sum = 0.0

    def add(self, value: str) -> None:
        self._sum += parse_double(value)

    def report(self) -> str:
        return format_double(self._sum)

    def combined(self) -> list[str]:
        return [self.report()]


class _StringExtreme:
    def __init__(self, sign: int) -> None:
        self._sign = sign
        self._chosen: str | None = None

    def add(self, value: str) -> None:
        if self._chosen is None or self._beats(utf16_order(value), utf16_order(self._chosen)):
            self._chosen = value

    def _beats(self, value: bytes, chosen: bytes) -> bool:
        return value > chosen if self._sign > 0 else value < chosen

    def report(self) -> str:
        return self._chosen or ""

    def combined(self) -> list[str]:
        return [self.report()]


class _UniqueCount:
    def __init__(self, values_max: int) -> None:
        self._values_max = values_max
        self._values: dict[str, None] = {}

    def add(self, value: str) -> None:
        # Hadoop tests before it adds, so one more than the limit may be known.
        if len(self._values) <= self._values_max:
            self._values[value] = None

    def report(self) -> str:
        return str(len(self._values))

    def combined(self) -> list[str]:
        return sorted(self._values, key=utf16_order)


class _Histogram:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, value: str) -> None:
        item, tab, count = value.rpartition("\t")
        if not tab:
            item, count = value, "1"
        self._counts[item] = wrap_long(self._counts.get(item, 0) + parse_long(count))

    def report(self) -> str:
        counts = sorted(self._counts.values())
        if not counts:
            return "0"
        mean = float(sum(counts)) / len(counts)
        variance = 0.0
        for count in counts:
            variance += (count - mean) * (count - mean)
        deviation = math.sqrt(variance / len(counts))
        whole = [len(counts), counts[0], counts[len(counts) // 2], counts[-1]]
        return "\t".join([*map(str, whole), format_double(mean), format_double(deviation)])

    def combined(self) -> list[str]:
        return [f"{item}\t{self._counts[item]}" for item in sorted(self._counts, key=utf16_order)]


def utf16_order(text: str) -> bytes:
    """A key that sorts strings as Java does, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def aggregator(type_name: str, unique_values_max: int) -> Aggregator:
    """Return a fresh aggregator for the TYPE of a key; its case does not matter."""
    match type_name.lower():
        case "longvaluesum":
            return _LongSum()
        case "longvaluemax":
            return _LongExtreme(max, LONG_MIN)
        case "longvaluemin":
            return _LongExtreme(min, LONG_MAX)
        case "doublevaluesum":
            return _DoubleSum()
        case "stringvaluemax":
            return _StringExtreme(+1)
        case "stringvaluemin":
            return _StringExtreme(-1)
        case "uniqvaluecount":
            return _UniqueCount(unique_values_max)
        case "valuehistogram":
            return _Histogram()
    raise BadAggregate(
        f"aggregate: unknown type {type_name!r}; known are LongValueSum, LongValueMax, "
        "LongValueMin, DoubleValueSum, StringValueMax, StringValueMin, "
        "UniqValueCount and ValueHistogram"
    )


def split_key(key: str) -> tuple[str, str]:
    """Cut a key into TYPE and ID at the first colon."""
    type_name, colon, identity = key.partition(TYPE_SEPARATOR)
    if not colon:
        raise BadAggregate(f"aggregate: the key {key!r} has no colon; it must be TYPE:ID")
    return type_name, identity


def aggregate(
    key: bytes, values: Iterable[bytes], unique_values_max: int, *, combine: bool
) -> list[tuple[bytes, bytes]]:
    """Aggregate one key's values: (ID, report) for the reducer, (key, values) for the combiner."""
    text = decode_text(key)
    type_name, identity = split_key(text)
    gathered = aggregator(type_name, unique_values_max)
    for value in values:
        try:
            gathered.add(decode_text(value))
        except ValueError as error:
            raise BadAggregate(f"aggregate: {error} (key {text!r})") from None
    if combine:
        return [(key, item.encode("utf-8", "replace")) for item in gathered.combined()]
    return [(identity.encode(), gathered.report().encode("utf-8", "replace"))]
