"""Bytes whose order is the order of the values: what `sort_key` and `sort_values` put into lines.

None < numbers < text < bytes < tuples; numbers compare by value, whole or not, however large; a
tuple compares member by member. The bytes hold none that separate fields or lines, and none is the
start of another. Takes values; never decodes, since the value itself travels beside them.
"""

from __future__ import annotations

import math
from typing import Any

END = b"\x01"
"""Ends text and tuples: less than any byte that may follow."""
_ESCAPED = {byte: bytes((0x02, 0x20 + byte)) for byte in range(0x20)}
_COMPLEMENT = bytes.maketrans(b"0123456789abcdef", b"fedcba9876543210")
DIGITS_MAX = 0xFFFF


def ordered(value: Any) -> bytes:
    """Return the bytes of a value: None, a number, text, bytes, or a tuple or list of these."""
    match value:
        case None:
            return b"0"
        case int():
            return b"1" + _whole(int(value)) + END
        case float():
            return b"1" + _fractional(value)
        case str():
            return b"2" + _escaped(value.encode("utf-8", "surrogateescape")) + END
        case bytes():
            return b"3" + _escaped(value) + END
        case tuple() | list():
            return b"4" + b"".join(map(ordered, value)) + END
    raise TypeError(
        f"{value!r} has no order that bytes can have; sort by None, numbers, text, bytes or "
        "tuples of these"
    )


def _whole(number: int) -> bytes:
    """Sign, count of digits, digits, hexadecimal; of a negative number the complement."""
    digits = b"%x" % abs(number)
    if len(digits) > DIGITS_MAX:
        raise ValueError(
            f"a number of {4 * len(digits)} bits; at most {4 * DIGITS_MAX} are sorted by"
        )
    counted = b"%04x%b" % (len(digits), digits)
    return b"p" + counted if number >= 0 else b"n" + counted.translate(_COMPLEMENT)


def _fractional(number: float) -> bytes:
    """The whole part downwards, then what is above it, exactly, in hexadecimal digits."""
    if math.isnan(number):
        raise ValueError("nan has no place in any order")
    if math.isinf(number):
        return (b"z" if number > 0 else b"a") + END
    whole = math.floor(number)
    over, under = number.as_integer_ratio()
    over -= whole * under  # exact, and 0 <= over < under, a power of two
    bits = under.bit_length() - 1
    digits = -(-bits // 4)
    fraction = b"%0*x" % (digits, over << (4 * digits - bits)) if over else b""
    return _whole(whole) + fraction.rstrip(b"0") + END


def _escaped(data: bytes) -> bytes:
    if min(data, default=0xFF) >= 0x20:
        return data
    return b"".join([_ESCAPED.get(byte) or bytes((byte,)) for byte in data])
