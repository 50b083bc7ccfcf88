"""Numbers as Java prints and reads them, where that differs from Python.

Doubles and floats are printed with the fewest digits that read back as the same number, plain
from 10^-3 up to 10^7 and in scientific notation outside (`1.0E-5`); `parse_long` and
`parse_double` accept what `Long.parseLong` and `Double.parseDouble` accept. Pure.
"""

from __future__ import annotations

import math
import re
import struct

LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)
_LONG = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)"
)
_HEX_DOUBLE = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]*\.?[0-9a-fA-F]*)[pP]([+-]?[0-9]+)[fFdD]?")


def format_double(value: float) -> str:
    """Print a 64-bit float as Java's Double.toString does."""
    special = _special(value)
    if special:
        return special
    # Java wants two digits at least, and of those the nearest: 4.9E-324, where Python says 5e-324.
    text = f"{value:.1e}"
    return _java_form(text if float(text) == value else repr(value))


def format_float(value: float) -> str:
    """Print a 32-bit float as Java's Float.toString does."""
    special = _special(value)
    if special:
        return special
    packed = struct.pack(">f", value)
    for digits in range(2, 9):
        text = f"{value:.{digits - 1}e}"
        if _packs_to(text, packed):
            return _java_form(text)
    return _java_form(f"{value:.8e}")


def parse_long(text: str) -> int:
    """Read a 64-bit integer: an optional sign and digits, nothing else; ValueError in Java's
    words."""
    if not _LONG.fullmatch(text) or not LONG_MIN <= (value := int(text)) <= LONG_MAX:
        raise ValueError(f'For input string: "{text}"')
    return value


def parse_double(text: str) -> float:
    """Read a double: blanks around it, a type letter after it and hexadecimal are fine;
    ValueError if not."""
    stripped = text.strip("".join(map(chr, range(33))))
    if not stripped:
        raise ValueError("empty String")
    match = _DOUBLE.fullmatch(stripped)
    if match:
        sign, word, digits = match.groups()
        magnitude = {"NaN": math.nan, "Infinity": math.inf}[word] if word else float(digits)
        return -magnitude if sign == "-" else magnitude
    match = _HEX_DOUBLE.fullmatch(stripped)
    if match and match.group(2).strip("."):
        return float.fromhex(f"{match.group(1)}0x{match.group(2)}p{match.group(3)}")
    raise ValueError(f'For input string: "{text}"')


def wrap_long(value: int) -> int:
    """Bring a whole number into 64 bits as Java's arithmetic does."""
    return (value - LONG_MIN) % 2**64 + LONG_MIN


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    return None


def _packs_to(text: str, packed: bytes) -> bool:
    try:
        return struct.pack(">f", float(text)) == packed
    except OverflowError:
        return False


def _java_form(shortest: str) -> str:
    """Rewrite Python's shortest decimal (`1e-05`, `12345678.0`) in Java's form."""
    sign = "-" if shortest.startswith("-") else ""
    mantissa, _, exponent_text = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the `point`.
    leading_zeros = len(whole + fraction) - len(digits)
    point = len(whole) - leading_zeros + int(exponent_text or "0")
    digits = digits.rstrip("0") or "0"
    if -3 < point <= 7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
