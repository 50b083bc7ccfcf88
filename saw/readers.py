"""Records of common forms as typed values: JSON, CSV and the log of a web server.

Bad data is undefined (a ValueError here), a field that is not there is `MISSING`, which the
generated code takes for undefined where it is read.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from mrstream.saw.tables.kinds import INT, STRING, TIME, Type, Value, tuple_of
from mrstream.saw.times import parse_time

APACHE_LOG = tuple_of(
    host=STRING,
    user=STRING,
    time=TIME,
    method=STRING,
    path=STRING,
    status=INT,
    bytes=INT,
    referer=STRING,
    agent=STRING,
)
_QUOTED = rb'[^"\\]*(?:\\.[^"\\]*)*'
_SIMPLY_QUOTED = rb'[^"]*(?<!\\)'
_REQUEST_FIELDS = frozenset({"method", "path"})
_TAIL_FIELDS = frozenset({"referer", "agent"})


class Missing:
    """What stands in a tuple for a field that the record did not have."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


class MessageType(Protocol):
    """A type that bytes are parsed as: a message of a `proto` file."""

    @property
    def type(self) -> Type:
        """The tuple that a message becomes."""

    def reader(self, fields: frozenset[str] | None) -> Callable[[bytes], Value]:
        """Return the function that parses a record; of a message only these fields are looked
        at."""


# --- csv


def splitcsvline(line: bytes) -> list[bytes]:
    if b'"' not in line:
        return line.split(b",")
    return [field.encode("utf-8", "surrogateescape") for field in _quoted(line)]


def csv_strings(line: bytes) -> list[str]:
    """Return the fields of a line of CSV as strings."""
    text = line.decode()
    return _quoted(line) if '"' in text else text.split(",")


def _quoted(line: bytes) -> list[str]:
    text = line.decode("utf-8", "surrogateescape")
    try:
        return next(csv.reader(io.StringIO(text, newline=""), strict=True), [])
    except csv.Error as error:
        raise ValueError(f"a line of CSV cannot be read: {error}") from None


# --- web logs


def apache_patterns(fields: frozenset[str]) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return two patterns of an entry, to be tried in turn, with a group for each of these fields.

    What a program does not read is only passed over: an entry must have the common form, and what
    stands behind it is looked at only for the fields there. The first pattern is twice as fast and
    refuses texts with a quoted quote and entries that end early, which the second knows.
    """
    return _apache_pattern(fields, _SIMPLY_QUOTED), _apache_pattern(fields, _QUOTED)


def _apache_pattern(fields: frozenset[str], quoted: bytes) -> re.Pattern[bytes]:

    def part(name: str, pattern: bytes) -> bytes:
        return b"(" + pattern + b")" if name in fields else pattern

    request = quoted
    if fields & _REQUEST_FIELDS:
        method = b"(?:" + part("method", rb'[^" ]+') + b" )?"
        request = method + part("path", rb'[^" ]*') + quoted
    number = rb"(?:(\d+)|-)" if "bytes" in fields else rb"(?:\d+|-)"
    whole = b" ".join(
        (
            part("host", rb"[^ ]+"),
            rb"[^ ]+",
            part("user", rb"[^ ]+"),
            rb"\[" + part("time", rb"[^]]+") + rb"\]",
            b'"' + request + b'"',
            part("status", rb"\d{3}"),
            number,
        )
    )
    if fields & _TAIL_FIELDS:
        tail = b' "' + part("referer", quoted) + b'" "' + part("agent", quoted) + b'"'
        whole += tail if quoted is _SIMPLY_QUOTED else b"(?:" + tail + b")?"
    return re.compile(whole)


def apache_time(text: bytes) -> int:
    """Return the time of an entry; entries of one minute follow each other."""
    try:
        zone, start = _minutes[text[:18]]
        if text[20:] == zone:
            return start + _SECONDS[text[18:20]]
    except KeyError:
        pass
    time = parse_time(text.decode(), "UTC")
    second = _SECONDS.get(text[18:20])
    if len(text) == 26 and second is not None:
        if len(_minutes) >= MINUTES_REMEMBERED:
            _minutes.clear()
        _minutes[text[:18]] = text[20:], time - second
    return time


def by_minute(part: Callable[[int], int]) -> Callable[[bytes], int]:
    """Return a function of an entry's text of its time, such as the hour, that is computed once a
    minute. A part that changes within a minute (zones of old had odd seconds) is not kept."""
    known: dict[bytes, tuple[bytes, int]] = {}

    def read(text: bytes) -> int:
        try:
            zone, value = known[text[:18]]
            if text[20:] == zone and text[18:20] in _SECONDS:
                return value
        except KeyError:
            pass
        time = apache_time(text)
        value = part(time)
        second = _SECONDS.get(text[18:20])
        if len(text) == 26 and second is not None:
            start = time - second
            if part(start) == part(start + _MINUTE - 1):
                if len(known) >= MINUTES_REMEMBERED:
                    known.clear()
                known[text[:18]] = text[20:], value
        return value

    return read


def apache_text(text: bytes | None) -> str:
    """Return a text of an entry; what the entry does not have is undefined."""
    if text is None:
        raise ValueError("the entry of the log has no such field")
    return text.decode("utf-8", "replace")


MINUTES_REMEMBERED = 10_000
_minutes: dict[bytes, tuple[bytes, int]] = {}
"""The text of a minute → its zone and its time."""
_MINUTE = 60_000_000
_SECONDS = {b"%02d" % second: 1_000_000 * second for second in range(60)}
_WHOLE = apache_patterns(frozenset(APACHE_LOG.names))[1]
_OPTIONAL = frozenset({"method", "referer", "agent"})


def apachelog(line: bytes) -> tuple[Value, ...]:
    """Return a whole entry; what it does not have (common logs have no referer) is missing."""
    found = _WHOLE.match(line)
    if found is None:
        raise ValueError("a line is no entry of a web server's log")
    values: list[Value] = []
    for kind, part in zip(APACHE_LOG.parts, found.groups(), strict=True):
        if kind == INT:
            values.append(int(part or 0))
        elif part is None:
            values.append(MISSING)
        else:
            values.append(apache_time(part) if kind == TIME else apache_text(part))
    return tuple(values)


def apache_field(name: str, group: str) -> str:
    """Return the Python that reads a field from its group."""
    kind = APACHE_LOG.parts[APACHE_LOG.names.index(name)]
    if kind == INT:
        return f"int({group})" if name == "status" else f"int({group} or 0)"
    if kind == TIME:
        return f"_apache_time({group})"
    if name in _OPTIONAL:
        return f"_apache_text({group})"
    return f"{group}.decode('utf-8', 'replace')"


# --- json


def json_reader(kind: Type) -> Callable[[bytes], Value]:
    """Return the function that reads JSON as values of a type; fields that the type does not name
    are passed over."""
    decoder = msgspec.json.Decoder(_json_type(kind))
    convert = _json_value(kind)

    def read(data: bytes) -> Value:
        try:
            return convert(decoder.decode(data))
        except msgspec.DecodeError as error:
            raise ValueError(f"the record is no such JSON: {error}") from None
        except RecursionError:
            raise ValueError("the JSON is nested too deep") from None

    return read


def _json_type(kind: Type) -> Any:
    match kind.name:
        case "array":
            return list[_json_type(kind.parts[0])]  # type: ignore[misc]
        case "map":
            return dict[str, _json_type(kind.parts[1])]  # type: ignore[misc]
        case "tuple":
            fields = [
                (f"f{at}", _json_type(part) | msgspec.UnsetType | None, msgspec.UNSET)
                for at, part in enumerate(kind.parts)
            ]
            names = {f"f{at}": name for at, name in enumerate(kind.names)}
            return msgspec.defstruct("Record", fields, rename=names)
        case "time":
            return int | str
    return {"int": int, "float": float, "bool": bool, "fingerprint": int}.get(kind.name, str)


def _json_value(kind: Type) -> Callable[[Any], Value]:
    match kind.name:
        case "array":
            element = _json_value(kind.parts[0])
            return lambda items: [element(item) for item in items]
        case "map":
            value = _json_value(kind.parts[1])
            return lambda items: {key: value(item) for key, item in items.items()}
        case "tuple":
            fields = [(f"f{at}", _json_value(part)) for at, part in enumerate(kind.parts)]
            return lambda record: tuple(
                MISSING
                if (item := getattr(record, name)) is msgspec.UNSET or item is None
                else convert(item)
                for name, convert in fields
            )
        case "time":
            return lambda item: item if isinstance(item, int) else parse_time(item, "UTC")
        case "int":
            return _in_64_bits
        case "bytes":
            return lambda item: item.encode()
    return lambda item: item


def _in_64_bits(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} does not fit an int")
    return number


def csv_reader(
    converters: list[Callable[[str], Value]],
) -> Callable[[bytes], tuple[Value, ...]]:
    """Return the function that reads a line of CSV as a tuple; empty and absent fields are
    missing."""

    def read(line: bytes) -> tuple[Value, ...]:
        fields = csv_strings(line)
        given = [
            MISSING if field == "" else convert(field)
            for convert, field in zip(converters, fields, strict=False)
        ]
        return (*given, *[MISSING] * (len(converters) - len(given)))

    return read
