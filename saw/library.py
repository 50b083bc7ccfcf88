"""The functions that every program has: their types, and the Python that stands for each.

`PLAIN` lists those whose types are fixed, one row an overload; `{0}` is the first argument. The
others look at the types of their arguments and have a function here each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mrstream.saw import times
from mrstream.saw.code import COMPARE, INT_MAX, INT_MIN, Code
from mrstream.saw.context import Context
from mrstream.saw.readers import by_minute
from mrstream.saw.tables import order
from mrstream.saw.tables.kinds import (
    BOOL,
    BYTES,
    FINGERPRINT,
    FLOAT,
    INT,
    STRING,
    TIME,
    Type,
    array_of,
)

STRINGS = array_of(STRING)
INTS = array_of(INT)


@dataclass(slots=True, frozen=True)
class Plain:
    """A function with fixed types."""

    parameters: tuple[Type, ...]
    result: Type
    python: str
    undef: bool = False
    low: int = INT_MIN
    high: int = INT_MAX


def _math(name: str) -> list[Plain]:
    return [Plain((FLOAT,), FLOAT, f"_math.{name}({{0}})", undef=True)]


PLAIN: dict[str, list[Plain]] = {
    "uppercase": [Plain((STRING,), STRING, "({0}).upper()")],
    "lowercase": [Plain((STRING,), STRING, "({0}).lower()")],
    "trim": [Plain((STRING,), STRING, "({0}).strip()")],
    "strfind": [
        Plain((STRING, STRING), INT, "({1}).find({0})", low=-1),
        Plain((BYTES, BYTES), INT, "({1}).find({0})", low=-1),
    ],
    "strrfind": [
        Plain((STRING, STRING), INT, "({1}).rfind({0})", low=-1),
        Plain((BYTES, BYTES), INT, "({1}).rfind({0})", low=-1),
    ],
    "strreplace": [
        Plain((STRING, STRING, STRING, BOOL), STRING, "_replace_text({0}, {1}, {2}, {3})")
    ],
    "startswith": [
        Plain((STRING, STRING), BOOL, "({0}).startswith({1})"),
        Plain((BYTES, BYTES), BOOL, "({0}).startswith({1})"),
    ],
    "split": [Plain((STRING, STRING), STRINGS, "({0}).split({1})", undef=True)],
    "join": [Plain((STRINGS, STRING), STRING, "({1}).join({0})")],
    "splitcsvline": [Plain((BYTES,), array_of(BYTES), "_splitcsvline({0})", undef=True)],
    "domain": [Plain((STRING,), STRING, "_domain({0})", undef=True)],
    "matchstrs": [Plain((STRING, STRING), STRINGS, "_matchstrs({0}, {1})", undef=True)],
    "matchposns": [Plain((STRING, STRING), INTS, "_matchposns({0}, {1})", undef=True)],
    "match": [
        Plain((STRING, STRING), BOOL, "_match({0}, {1})", undef=True),
        Plain((STRING, BYTES), BOOL, "_match_bytes({0}, {1})", undef=True),
    ],
    "abs": [
        Plain((INT,), INT, "_wrap(abs({0}))"),
        Plain((FLOAT,), FLOAT, "abs({0})"),
    ],
    "min": [Plain((kind, kind), kind, "min({0}, {1})") for kind in (INT, FLOAT, TIME, STRING)],
    "max": [Plain((kind, kind), kind, "max({0}, {1})") for kind in (INT, FLOAT, TIME, STRING)],
    "ceil": [Plain((FLOAT,), FLOAT, "float(_math.ceil({0}))", undef=True)],
    "floor": [Plain((FLOAT,), FLOAT, "float(_math.floor({0}))", undef=True)],
    "round": [Plain((FLOAT,), FLOAT, "float(_math.floor({0} + 0.5))", undef=True)],
    "trunc": [Plain((FLOAT,), FLOAT, "float(_math.trunc({0}))", undef=True)],
    "pow": [Plain((FLOAT, FLOAT), FLOAT, "_math.pow({0}, {1})", undef=True)],
    "ln": [Plain((FLOAT,), FLOAT, "_math.log({0})", undef=True)],
    "isnan": [Plain((FLOAT,), BOOL, "_math.isnan({0})")],
    "isinf": [Plain((FLOAT,), BOOL, "_math.isinf({0})")],
    "isfinite": [Plain((FLOAT,), BOOL, "_math.isfinite({0})")],
    **{
        name: _math(name)
        for name in ("sqrt", "exp", "log10", "sin", "cos", "tan", "asin", "acos", "atan")
    },
}

# name → (type behind the time, result, Python for UTC or "", low, high)
TIMES: dict[str, tuple[tuple[Type, ...], Type, str, int, int]] = {
    "secondof": ((), INT, "{0} // 1000000 % 60", 0, 59),
    "minuteof": ((), INT, "{0} // 60000000 % 60", 0, 59),
    "hourof": ((), INT, "{0} // 3600000000 % 24", 0, 23),
    "dayofweek": ((), INT, "({0} // 86400000000 + 3) % 7 + 1", 1, 7),
    "dayofmonth": ((), INT, "", 1, 31),
    "monthof": ((), INT, "", 1, 12),
    "yearof": ((), INT, "", 1, 9999),
    "dayofyear": ((), INT, "", 1, 366),
    "trunctosecond": ((), TIME, "{0} // 1000000 * 1000000", INT_MIN, INT_MAX),
    "trunctominute": ((), TIME, "{0} // 60000000 * 60000000", INT_MIN, INT_MAX),
    "trunctohour": ((), TIME, "{0} // 3600000000 * 3600000000", INT_MIN, INT_MAX),
    "trunctoday": ((), TIME, "{0} // 86400000000 * 86400000000", INT_MIN, INT_MAX),
    "trunctomonth": ((), TIME, "", INT_MIN, INT_MAX),
    "trunctoyear": ((), TIME, "", INT_MIN, INT_MAX),
    "addday": ((INT,), TIME, "", INT_MIN, INT_MAX),
    "addweek": ((INT,), TIME, "", INT_MIN, INT_MAX),
    "addmonth": ((INT,), TIME, "", INT_MIN, INT_MAX),
    "addyear": ((INT,), TIME, "", INT_MIN, INT_MAX),
}

CONSTANTS: dict[str, Code] = {
    "true": Code("True", BOOL),
    "false": Code("False", BOOL),
    "PI": Code("3.141592653589793", FLOAT),
    "inf": Code("_math.inf", FLOAT),
    "nan": Code("_math.nan", FLOAT),
    **{
        name: Code(str(size), TIME, low=size, high=size)
        for name, size in (
            ("SECOND", 10**6),
            ("SEC", 10**6),
            ("MINUTE", 60 * 10**6),
            ("MIN", 60 * 10**6),
            ("HOUR", 3600 * 10**6),
            ("DAY", 86_400 * 10**6),
            ("WEEK", 7 * 86_400 * 10**6),
        )
    },
}


LOG_TIME = "log time"
"""The hint of a time that is still text of a log's entry."""
_OF_MINUTES = (
    frozenset(TIMES)
    - {"secondof", "trunctosecond"}
    - {name for name, (extra, *_) in TIMES.items() if extra}
)
"""Those that are the same for all times of a minute, nearly always."""


@lru_cache(maxsize=64)
def _part_of_entry(name: str, zone: str) -> Callable[[bytes], int]:
    part: Callable[[int, str], int] = getattr(times, name)
    return by_minute(lambda time: part(time, zone))


class NoSuchCall(Exception):
    """The arguments do not fit the function; the message says which would."""


def call(context: Context, name: str, arguments: Sequence[Code]) -> Code | None:
    """Return the code of a call, or None if there is no such function."""
    if name in PLAIN:
        return _plain(name, arguments)
    if name in TIMES:
        return _time_part(context, name, arguments)
    special = SPECIAL.get(name)
    return special(context, arguments) if special is not None else None


def names() -> set[str]:
    return {*PLAIN, *TIMES, *SPECIAL}


def _plain(name: str, arguments: Sequence[Code]) -> Code:
    types = tuple(argument.type for argument in arguments)
    for overload in PLAIN[name]:
        if overload.parameters == types:
            texts = [argument.text for argument in arguments]
            undef = overload.undef or any(argument.undef for argument in arguments)
            hint = ("csv", texts[0]) if name == "splitcsvline" else ("", "")
            return Code(
                overload.python.format(*texts),
                overload.result,
                undef=undef,
                low=overload.low,
                high=overload.high,
                hint=hint,
            )
    ways = " or ".join(
        f"{name}({', '.join(map(str, overload.parameters))})" for overload in PLAIN[name]
    )
    raise NoSuchCall(f"{name} is called as {ways}, not with ({_listed(arguments)})")


def _listed(arguments: Sequence[Code]) -> str:
    return ", ".join(str(argument.type) for argument in arguments)


def _time_part(context: Context, name: str, arguments: Sequence[Code]) -> Code:
    extra, result, utc, low, high = TIMES[name]
    wanted = (TIME, *extra)
    types = tuple(argument.type for argument in arguments)
    if types not in (wanted, (*wanted, STRING)):
        parameters = ", ".join(map(str, wanted))
        raise NoSuchCall(
            f"{name} is called as {name}({parameters}[, zone]), not with ({_listed(arguments)})"
        )
    has_zone = len(types) > len(wanted)
    zone = arguments[-1].constant if has_zone else context.zone
    time = arguments[0]
    if time.hint[0] == LOG_TIME and name in _OF_MINUTES and isinstance(zone, str):
        reader = context.constant("part", _part_of_entry(name, zone))
        return Code(f"{reader}({time.hint[1]})", result, undef=True, low=low, high=high)
    if utc and zone == "UTC":
        text = utc.format(time.at(11))
        return Code(text, result, COMPARE + 1, time.undef, low=low, high=high)
    texts = ", ".join(argument.text for argument in arguments)
    text = f"_{name}({texts})" if has_zone else f"_{name}({texts}, {context.zone!r})"
    return Code(text, result, undef=True, low=low, high=high)


# --- functions of any type


def _undef(arguments: Sequence[Code]) -> bool:
    return any(argument.undef for argument in arguments)


def _expect(is_right: bool, how: str, arguments: Sequence[Code]) -> None:
    if not is_right:
        raise NoSuchCall(f"it is called as {how}, not with ({_listed(arguments)})")


def _len(context: Context, arguments: Sequence[Code]) -> Code:
    sized = ("string", "bytes", "array", "map")
    _expect(
        len(arguments) == 1 and arguments[0].type.name in sized,
        "len(string, bytes, array or map)",
        arguments,
    )
    return Code(f"len({arguments[0].text})", INT, undef=_undef(arguments), low=0)


def _keys(context: Context, arguments: Sequence[Code]) -> Code:
    _expect(len(arguments) == 1 and arguments[0].type.name == "map", "keys(map)", arguments)
    kind = array_of(arguments[0].type.parts[0])
    return Code(f"list({arguments[0].text})", kind, undef=_undef(arguments))


def _haskey(context: Context, arguments: Sequence[Code]) -> Code:
    _expect(
        len(arguments) == 2
        and arguments[0].type.name == "map"
        and arguments[0].type.parts[0] == arguments[1].type,
        "haskey(map, key)",
        arguments,
    )
    text = f"{arguments[1].at(COMPARE + 1)} in {arguments[0].at(COMPARE + 1)}"
    return Code(text, BOOL, COMPARE, _undef(arguments))


def _lookup(context: Context, arguments: Sequence[Code]) -> Code:
    _expect(
        len(arguments) == 3
        and arguments[0].type.name == "map"
        and arguments[0].type.parts == (arguments[1].type, arguments[2].type),
        "lookup(map, key, value if there is none)",
        arguments,
    )
    text = f"{arguments[0].at(12)}.get({arguments[1].text}, {arguments[2].text})"
    return Code(text, arguments[2].type, undef=_undef(arguments), fresh=False)


def _sort(context: Context, arguments: Sequence[Code]) -> Code:
    _expect(
        len(arguments) == 1
        and arguments[0].type.name == "array"
        and arguments[0].type.parts[0].is_ordered,
        "sort(array of values with an order)",
        arguments,
    )
    return Code(f"sorted({arguments[0].text})", arguments[0].type, undef=_undef(arguments))


def _reverse(context: Context, arguments: Sequence[Code]) -> Code:
    reversible = ("array", "string", "bytes")
    _expect(
        len(arguments) == 1 and arguments[0].type.name in reversible,
        "reverse(array, string or bytes)",
        arguments,
    )
    kind = arguments[0].type
    fresh = not kind.has_mutable_parts
    return Code(f"{arguments[0].at(12)}[::-1]", kind, undef=_undef(arguments), fresh=fresh)


def _format(context: Context, arguments: Sequence[Code]) -> Code:
    allowed = ("int", "float", "string", "time", "fingerprint")
    _expect(
        len(arguments) >= 1
        and arguments[0].type == STRING
        and all(argument.type.name in allowed for argument in arguments[1:]),
        "format(layout, ints, floats and strings …)",
        arguments,
    )
    texts = ", ".join(argument.text for argument in arguments)
    return Code(f"_format_text({texts})", STRING, undef=True)


def _fingerprintof(context: Context, arguments: Sequence[Code]) -> Code:
    _expect(len(arguments) == 1, "fingerprintof(value)", arguments)
    encode = context.constant("encode", order.encoder(arguments[0].type))
    text = f"_fingerprint_of({encode}({arguments[0].text}))"
    return Code(text, FINGERPRINT, undef=_undef(arguments))


def _formattime(context: Context, arguments: Sequence[Code]) -> Code:
    types = [argument.type for argument in arguments]
    _expect(
        types in ([STRING, TIME], [STRING, TIME, STRING]),
        "formattime(layout, time[, zone])",
        arguments,
    )
    texts = ", ".join(argument.text for argument in arguments)
    zone = "" if len(types) == 3 else f", {context.zone!r}"
    return Code(f"_formattime({texts}{zone})", STRING, undef=True)


SPECIAL: dict[str, Callable[[Context, Sequence[Code]], Code]] = {
    "len": _len,
    "keys": _keys,
    "haskey": _haskey,
    "lookup": _lookup,
    "sort": _sort,
    "reverse": _reverse,
    "format": _format,
    "fingerprintof": _fingerprintof,
    "formattime": _formattime,
}
