"""What generated code calls: the parts of the language that are not plain Python expressions.

An undefined value is one of `UNDEFS`, raised where it would arise: Python's own errors of indexes,
keys, division and conversion, a variable that was not set, and `Undefined` for all else. On the
good path that costs nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from mrstream.saw.tables.kinds import Type, Value
from mrstream.saw.tables.unique import fingerprint
from mrstream.saw.times import time_text
from mrstream.saw.values import MISSING

ELEMENTS_MAX = 10_000_000
_SIGN = 1 << 63
_MASK = (1 << 64) - 1
_INT = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_FORMAT = re.compile(r"%([-+ 0#]*)(\d{0,4})(?:\.(\d{1,3}))?([a-zA-Z%])")


class Undefined(Exception):
    """A value that does not exist."""


class Stop(Exception):
    """An undefined value was read where it may not be; where, and why."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.message = message


class NextRecord(Exception):
    """`return` outside of a function: this record is done with."""


UNDEFS = (Undefined, LookupError, ArithmeticError, ValueError, NameError)


def out() -> NoReturn:
    """Be the value at an index below zero."""
    raise IndexError("an index below zero")


def natural(index: int) -> int:
    """Return an index, which Python would count from the end if it were below zero."""
    if index < 0:
        raise IndexError("an index below zero")
    return index


def given(value: Value) -> Value:
    """Return a field of a record, unless the record did not have it."""
    if value is MISSING:
        raise Undefined("the record has no such field")
    return value


def whole(value: Value) -> Value:
    """Return a tuple all of whose fields are there."""
    if MISSING in value:
        raise Undefined("the record lacks a field")
    return value


def whole_inside(value: Value) -> Value:
    """Return a value in which no field is missing, however deep."""
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(parts, list | tuple) or parts is not value:
        for part in parts:
            whole_inside(part)
    elif value is MISSING:
        raise Undefined("the record lacks a field")
    return value


def is_defined(read: Callable[[], Value]) -> bool:
    """Whether an expression has a value."""
    try:
        return read() is not MISSING
    except UNDEFS:
        return False


# --- whole numbers


def wrap(number: int) -> int:
    """Cut a number to 64 bits, as C's do."""
    return (number + _SIGN & _MASK) - _SIGN


def div(a: int, b: int) -> int:
    """Divide toward zero."""
    quotient = abs(a) // abs(b)
    return wrap(-quotient if (a < 0) != (b < 0) else quotient)


def mod(a: int, b: int) -> int:
    """Return what division toward zero leaves: it has the sign of a."""
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def shift_left(a: int, count: int) -> int:
    """Shift left; undefined beyond 63."""
    return wrap(a << _shift(count))


def shift_right(a: int, count: int) -> int:
    """Shift right, the sign with it; undefined beyond 63."""
    return a >> _shift(count)


def _shift(count: int) -> int:
    if not 0 <= count <= 63:
        raise Undefined(f"a shift by {count}; it must be 0 to 63")
    return count


# --- conversions


def int_of(text: str) -> int:
    """Read a whole number: decimal, or hexadecimal behind 0x."""
    if text.isdecimal() and text.isascii() and len(text) < 19:
        return int(text)
    if not _INT.fullmatch(text) or len(text) > 40:
        raise ValueError(f"{text[:40]!r} is no int")
    return _in_range(int(text, 16) if "x" in text.lower() else int(text))


def int_of_bytes(text: bytes) -> int:
    """Read a whole number from bytes of text."""
    if text.isdigit() and len(text) < 19:
        return int(text)
    return int_of(text.decode())


def int_in_base(text: str, base: int) -> int:
    """Read a whole number of base 2 to 36."""
    if not 2 <= base <= 36 or "_" in text or text != text.strip() or not text.isascii():
        raise ValueError(f"{text[:40]!r} is no int of base {base}")
    return _in_range(int(text[:100], base))


def int_of_float(number: float) -> int:
    """Cut a number toward zero."""
    return _in_range(int(number))


def binary_int(data: bytes) -> int:
    """Read eight bytes as a number, high byte first."""
    if len(data) != 8:
        raise ValueError(f"an int is 8 bytes, not {len(data)}; of text: int(string(…))")
    number: int = struct.unpack(">q", data)[0]
    return number


def _in_range(number: int) -> int:
    if not -_SIGN <= number < _SIGN:
        raise ValueError(f"{number} does not fit an int")
    return number


def float_of(text: str | bytes) -> float:
    if (b"_" if isinstance(text, bytes) else "_") in text:  # type: ignore[operator]
        raise ValueError(f"{text[:40]!r} is no float")
    return float(text)


def bool_of(text: str) -> bool:
    """Read true or false."""
    if text not in ("true", "false"):
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return text == "true"


def decode(data: bytes, encoding: str) -> str:
    name = encoding.lower()
    if name == "hex":
        return data.hex()
    if name not in ("utf-8", "utf8", "latin-1", "latin1", "iso-8859-1", "ascii", "utf-16"):
        raise ValueError(f"there is no encoding {encoding[:40]!r}")
    return data.decode(name)


def encode(text: str, encoding: str) -> bytes:
    if encoding.lower() == "hex":
        return bytes.fromhex(text)
    if encoding.lower() not in ("utf-8", "utf8", "latin-1", "latin1", "iso-8859-1", "ascii"):
        raise ValueError(f"there is no encoding {encoding[:40]!r}")
    return text.encode(encoding)


def int_text(number: int, base: int) -> str:
    """Return a whole number in a base from 2 to 36."""
    if not 2 <= base <= 36:
        raise ValueError(f"there is no base {base}")
    digits = ""
    rest = abs(number)
    while rest or not digits:
        rest, digit = divmod(rest, base)
        digits = _DIGITS[digit] + digits
    return "-" + digits if number < 0 else digits


def float_text(number: float) -> str:
    """Return a number as people write it: no point where there is nothing behind it."""
    text = repr(number)
    return text[:-2] if text.endswith(".0") else text


def shown(kind: Type, value: Value, zone: str = "UTC") -> str:
    """Return any value as the text that its conversion to string is."""
    match kind.name:
        case "string":
            return str(value)
        case "bool":
            return "true" if value else "false"
        case "float":
            return float_text(value)
        case "bytes":
            return str(value.decode("utf-8", "backslashreplace"))
        case "time":
            return time_text(value, zone)
        case "fingerprint":
            return f"{value:#018x}"
        case "array":
            return "{ " + ", ".join(_inner(kind.parts[0], item, zone) for item in value) + " }"
        case "map":
            pairs = (
                f"{_inner(kind.parts[0], key, zone)}: {_inner(kind.parts[1], item, zone)}"
                for key, item in dict(value).items()
            )
            return "{ " + ", ".join(pairs) + " }"
        case "tuple":
            items = zip(kind.parts, value, strict=True)
            return "{ " + ", ".join(_inner(part, item, zone) for part, item in items) + " }"
    return str(value)


def _inner(kind: Type, value: Value, zone: str) -> str:
    if kind.name in ("string", "bytes"):
        text = shown(kind, value)
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shown(kind, value, zone)


# --- strings and collections


def format_text(layout: str, *values: Any) -> str:
    """Return values in the layout of C's printf."""
    rest = list(values)

    def one(match: re.Match[str]) -> str:
        flags, width, precision, letter = match.groups()
        if letter == "%":
            return "%"
        if not rest:
            raise ValueError("format has more places than values")
        value = rest.pop(0)
        if letter in "duxXoc" and not isinstance(value, int):
            raise ValueError(f"%{letter} takes an int")
        if letter in "eEfFgG" and not isinstance(value, float):
            raise ValueError(f"%{letter} takes a float")
        if letter not in "duxXoceEfFgGs":
            raise ValueError(f"%{letter} is not a place for a value")
        dot = "" if precision is None else "." + precision
        return str(f"%{flags}{width}{dot}{letter}" % (value,))

    text = _FORMAT.sub(one, layout)
    if rest:
        raise ValueError("format has fewer places than values")
    return text


def new_array(count: int, value: Value, copy: Callable[[Value], Value] | None) -> list[Value]:
    """Return an array of equal elements."""
    if not 0 <= count <= ELEMENTS_MAX:
        raise Undefined(f"an array of {count} elements; 0 to {ELEMENTS_MAX:,} are possible")
    return [value] * count if copy is None else [copy(value) for _ in range(count)]


def replaced(value: tuple[Value, ...], index: int, item: Value) -> tuple[Value, ...]:
    """Return a tuple with one field changed."""
    return (*value[:index], item, *value[index + 1 :])


def domain(url: str) -> str:
    """Return the host of a URL, in small letters; a URL without one is undefined."""
    match = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/@?#]*@)?([^/:?#]+)", url)
    if match is None:
        raise ValueError(f"{url[:60]!r} is no URL with a host")
    return match.group(1).lower()


def replace_text(text: str, old: str, new: str, everywhere: bool) -> str:
    """Return a string with a part of it replaced, once or everywhere."""
    if not old:
        return text
    return text.replace(old, new) if everywhere else text.replace(old, new, 1)


def must(is_so: bool, message: str) -> None:
    """End the program if what it asserts is not so."""
    if not is_so:
        raise AssertionFailed(message)


class AssertionFailed(Exception):
    """`assert` of the program found something else."""


def fingerprint_of(encoded: bytes) -> int:
    return fingerprint(encoded)


def reason(error: BaseException, names: dict[str, str]) -> str:
    """Say in words why a value is undefined; `names` are the program's, by generated ones."""
    match error:
        case ZeroDivisionError():
            return "division by zero"
        case IndexError():
            return "an index outside of its array or string"
        case KeyError():
            key = error.args[0] if error.args else ""
            return f"the map has no key {str(key)[:60]!r}"
        case NameError():
            quoted = re.search(r"'(\w+)'", str(error))
            name = quoted.group(1) if quoted else "a variable"
            return f"{names.get(name, name)} is undefined"
        case UnicodeDecodeError():
            return "bytes that are not UTF-8"
    return str(error)[:200] or type(error).__name__
