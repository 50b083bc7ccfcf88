"""A piece of generated Python with what is known of its value: type, definedness, interval.

`prec` is Python's own precedence, so that parentheses stand only where they are needed. An int has
an interval that no wrapped value leaves: where the interval of a result fits 64 bits, no wrapping
is generated (`wrapped`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.saw.tables.kinds import INT, Type

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
OR, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, ADD, MULTIPLY, SIGN, ATOM = range(1, 13)


@dataclass(slots=True, frozen=True)
class Code:
    """A Python expression."""

    text: str
    type: Type
    prec: int = ATOM
    undef: bool = False
    """Whether it may be undefined: raise one of `runtime.UNDEFS`."""
    fresh: bool = True
    """Whether nobody else holds the value, so that it need not be copied."""
    low: int = INT_MIN
    high: int = INT_MAX
    constant: int | str | None = None
    """The value of a literal."""
    hint: tuple[str, str] = ("", "")
    """A shorter way to what a conversion makes of it: (way, Python of what it begins with)."""

    def at(self, level: int) -> str:
        """Return the text for a place that needs this precedence."""
        return self.text if self.prec >= level else f"({self.text})"

    @property
    def is_simple(self) -> bool:
        """Whether reading it twice costs nothing and changes nothing."""
        return self.text.isidentifier() or self.constant is not None


def wrapped(text: str, low: int, high: int, prec: int, *, undef: bool) -> Code:
    """Return an int whose value is in an interval before it is cut to 64 bits."""
    if low < INT_MIN or high > INT_MAX:
        inner = text if prec >= ADD else f"({text})"
        text = f"({inner} + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000"
        return Code(text, INT, ADD, undef)
    return Code(text, INT, prec, undef, low=low, high=high)


def known(number: int) -> Code:
    """Return a whole number."""
    return Code(
        str(number),
        INT,
        SIGN if number < 0 else ATOM,
        low=number,
        high=number,
        constant=number,
    )


def sum_interval(a: Code, b: Code) -> tuple[int, int]:
    """Return the interval of a + b before wrapping."""
    return a.low + b.low, a.high + b.high


def difference_interval(a: Code, b: Code) -> tuple[int, int]:
    """Return the interval of a - b before wrapping."""
    return a.low - b.high, a.high - b.low


def product_interval(a: Code, b: Code) -> tuple[int, int]:
    """Return the interval of a * b before wrapping."""
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(corners), max(corners)
