"""The schema of records that a job writes: given in words, by an Avro schema, or found in records.

Plain values without a library: `to_arrow` and `to_avro` make what the writers want, `fitted` says
what of a record does not fit. All fields may be null. Pure.

    name:string,age:int,tags:list<string>,at:timestamp,place:struct<x:double,y:double>
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mrstream.streaming.formats.row_file import BadRowSetting

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
PLAIN = (
    "bool",
    "int",
    "long",
    "float",
    "double",
    "string",
    "bytes",
    "date",
    "timestamp",
    "instant",
)
_ALIASES = {
    "boolean": "bool",
    "int32": "int",
    "integer": "int",
    "int64": "long",
    "bigint": "long",
    "float32": "float",
    "float64": "double",
    "str": "string",
    "text": "string",
    "binary": "bytes",
    "array": "list",
    "record": "struct",
}
_WORD = re.compile(r"\s*([A-Za-z_]\w*|\"(?:[^\"]|\"\")*\"|[<>,:])")


class Kind(msgspec.Struct, frozen=True):
    """A type: one of `PLAIN`, or list, map (of `item`), struct (of `fields`), null (not known)."""

    name: str
    item: Kind | None = None
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        if self.item is not None:
            return f"{self.name}<{self.item}>"
        if self.name == "struct":
            return f"struct<{','.join(map(str, self.fields))}>"
        return self.name


class Field(msgspec.Struct, frozen=True):
    name: str
    kind: Kind

    def __str__(self) -> str:
        plain = re.fullmatch(r"[A-Za-z_]\w*", self.name)
        name = self.name if plain else '"' + self.name.replace('"', '""') + '"'
        return f"{name}:{self.kind}"


Fields = tuple[Field, ...]
NULL, STRING = Kind("null"), Kind("string")


# --- read


def parse_schema(text: str) -> Fields:
    """Read a schema: words, one on a line or between commas, or an Avro record in JSON."""
    stripped = text.strip()
    if stripped.startswith("{"):
        return _of_avro(stripped)
    joined = ",".join(line.strip().rstrip(",") for line in stripped.split("\n") if line.strip())
    reader = _Words(joined)
    fields = reader.fields("")
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise BadRowSetting(f"the schema {_short(text)} has a field twice")
    return fields


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


class _Words:
    """Reads `name:type,…` from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words: list[str] = []
        at = 0
        while text[at:].strip():
            match = _WORD.match(text, at)
            if match is None:
                raise self._bad(f"{text[at:][:20]!r} is no name and no type")
            self._words.append(match[1])
            at = match.end()

    def _bad(self, why: str) -> BadRowSetting:
        return BadRowSetting(f"the schema is {_short(self._text)}: {why}; it must be NAME:TYPE,…")

    def _next(self) -> str:
        return self._words.pop(0) if self._words else ""

    def fields(self, end: str) -> Fields:
        found = []
        while True:
            name = self._next()
            if name.startswith('"'):
                name = name[1:-1].replace('""', '"')
            elif not name or name in "<>,:":
                raise self._bad("a field has no name")
            if self._next() != ":":
                raise self._bad(f"field {name} has no type")
            found.append(Field(name, self._kind(name)))
            mark = self._next()
            if mark == end:
                return tuple(found)
            if mark != ",":
                raise self._bad(f"behind field {name} stands {mark!r}")

    def _kind(self, field: str) -> Kind:
        word = self._next().lower()
        word = _ALIASES.get(word, word)
        if word in PLAIN:
            return Kind(word)
        if word not in ("list", "map", "struct"):
            raise self._bad(
                f"the type of {field} is {word!r}, and not one of {' '.join(PLAIN)} list<…> "
                "map<…> struct<…>"
            )
        if self._next() != "<":
            raise self._bad(f"the type of {field} is {word} of what? write {word}<…>")
        if word == "struct":
            return Kind("struct", fields=self.fields(">"))
        item = self._kind(field)
        if self._next() != ">":
            raise self._bad(f"the type of {field} does not end with >")
        return Kind(word, item)


_AVRO_PLAIN = {
    "boolean": "bool",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "null": "null",
}
_AVRO_LOGICAL = {
    "date": "date",
    "timestamp-micros": "instant",
    "timestamp-millis": "instant",
    "local-timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp",
}


def _of_avro(text: str) -> Fields:
    try:
        schema = json.loads(text)
        kind = _avro_kind(schema)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadRowSetting(f"the Avro schema {_short(text)} cannot be read: {error}") from None
    if kind.name != "struct":
        raise BadRowSetting(f"the Avro schema {_short(text)} is a {kind}; it must be a record")
    return kind.fields


def _avro_kind(schema: Any) -> Kind:
    if isinstance(schema, str):
        return Kind(_AVRO_PLAIN[schema])
    if isinstance(schema, list):
        kinds = [_avro_kind(one) for one in schema if one != "null"]
        if len(kinds) != 1:
            raise ValueError(f"a union of {len(kinds)} types; only null and one other can be")
        return kinds[0]
    kind = schema["type"]
    if schema.get("logicalType") in _AVRO_LOGICAL:
        return Kind(_AVRO_LOGICAL[schema["logicalType"]])
    if kind == "record":
        return Kind(
            "struct",
            fields=tuple(Field(one["name"], _avro_kind(one["type"])) for one in schema["fields"]),
        )
    if kind == "array":
        return Kind("list", _avro_kind(schema["items"]))
    if kind == "map":
        return Kind("map", _avro_kind(schema["values"]))
    if kind == "enum":
        return STRING
    return _avro_kind(kind)


# --- found in records


def inferred(records: Iterable[Mapping[str, Any]]) -> Fields:
    """Return the schema that these records have: whole numbers are long, others double, a field
    that is always null is string; what has two types that no type holds is string too, and the
    record that then does not fit is told."""
    kinds: dict[str, Kind] = {}
    for record in records:
        for name, value in record.items():
            kinds[name] = _merged(kinds.get(name, NULL), _kind_of(value))
    return tuple(Field(name, _settled(kind)) for name, kind in kinds.items())


def _kind_of(value: Any) -> Kind:
    match value:
        case None:
            return NULL
        case bool():
            return Kind("bool")
        case int():
            return Kind("long")
        case float():
            return Kind("double")
        case list():
            item = NULL
            for one in value:
                item = _merged(item, _kind_of(one))
            return Kind("list", item)
        case dict():
            return Kind(
                "struct", fields=tuple(Field(name, _kind_of(one)) for name, one in value.items())
            )
    return STRING


def _merged(a: Kind, b: Kind) -> Kind:
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if {a.name, b.name} == {"long", "double"}:
        return Kind("double")
    if a.name == b.name == "list":
        return Kind("list", _merged(a.item or NULL, b.item or NULL))
    if a.name == b.name == "struct":
        fields = {field.name: field.kind for field in a.fields}
        for field in b.fields:
            fields[field.name] = _merged(fields.get(field.name, NULL), field.kind)
        return Kind("struct", fields=tuple(Field(*item) for item in fields.items()))
    return STRING


def _settled(kind: Kind) -> Kind:
    if kind.name == "null" or (kind.name == "struct" and not kind.fields):
        return STRING
    if kind.name == "list":
        return Kind("list", _settled(kind.item or NULL))
    if kind.name == "struct":
        return Kind("struct", fields=tuple(Field(f.name, _settled(f.kind)) for f in kind.fields))
    return kind


# --- does a record fit?


class Misfit(ValueError):
    """A record does not fit: which field, what is wrong with it."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"field {field}: {why}" if field else why)
        self.field = field
        self.why = why


def fitted(fields: Fields, record: Any, path: str = "") -> dict[str, Any]:
    """Return the record with values as the writers take them, absent fields as None; or
    `Misfit`."""
    if not isinstance(record, dict):
        raise Misfit(path, f"{_shown(record)} is no object")
    if len(record) > len(fields) or not record.keys() <= {field.name for field in fields}:
        known = {field.name for field in fields}
        unknown = next(name for name in record if name not in known)
        raise Misfit(f"{path}{unknown}", "the schema has no such field")
    return {
        field.name: _value(field.kind, record.get(field.name), path + field.name)
        for field in fields
    }


def _value(kind: Kind, value: Any, path: str) -> Any:
    if value is None:
        return None
    name = kind.name
    if name == "struct":
        return fitted(kind.fields, value, f"{path}.")
    if name == "list" and isinstance(value, list) and kind.item:
        return [_value(kind.item, one, f"{path}[{n}]") for n, one in enumerate(value)]
    if name == "map" and kind.item and (entries := _entries(value)) is not None:
        return {key: _value(kind.item, one, f"{path}.{key}") for key, one in entries.items()}
    made = _plain_value(name, value)
    if made is None:
        raise Misfit(path, f"{_shown(value)} is no {kind}")
    return made


def _entries(value: Any) -> dict[str, Any] | None:
    """Return a map's entries: an object, or the pairs as which readers of tables give one."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return None
    pairs = [one for one in value if isinstance(one, list) and len(one) == 2]
    entries = {one[0]: one[1] for one in pairs if isinstance(one[0], str)}
    return entries if len(entries) == len(value) else None


def _plain_value(name: str, value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match name:
        case "bool":
            return value if isinstance(value, bool) else None
        case "int" | "long":
            limit = INT_MAX if name == "int" else LONG_MAX
            fits = is_number and isinstance(value, int) and -limit - 1 <= value <= limit
            return value if fits else None
        case "float" | "double":
            return _float(value) if is_number else None
        case "string":
            return value if isinstance(value, str) and _is_text(value) else None
    return _from_text(name, value) if isinstance(value, str) else None


def _float(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all doubles
        return None


def _is_text(value: str) -> bool:
    """Whether it is text in UTF-8: JSON can write half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_text(name: str, value: str) -> Any:
    try:
        if name == "bytes":
            return base64.b64decode(value, validate=True)
        if name == "date":
            return datetime.date.fromisoformat(value)
        moment = datetime.datetime.fromisoformat(value)
    except (ValueError, binascii.Error):
        return None
    if name == "timestamp":
        return moment if moment.tzinfo is None else None
    return moment if moment.tzinfo is not None else None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


# --- for the libraries


def to_avro(fields: Fields, name: str = "record") -> dict[str, Any]:
    """Return the Avro schema; names of inner records follow from where they are."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": f.name, "type": ["null", _avro_type(f.kind, f"{name}_{n}")], "default": None}
            for n, f in enumerate(fields)
        ],
    }


def _avro_type(kind: Kind, name: str) -> Any:
    match kind.name:
        case "struct":
            return to_avro(kind.fields, name)
        case "list":
            assert kind.item is not None
            return {"type": "array", "items": ["null", _avro_type(kind.item, name)]}
        case "map":
            assert kind.item is not None
            return {"type": "map", "values": ["null", _avro_type(kind.item, name)]}
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "timestamp":
            return {"type": "long", "logicalType": "local-timestamp-micros"}
        case "instant":
            return {"type": "long", "logicalType": "timestamp-micros"}
        case "bool":
            return "boolean"
    return kind.name


def to_arrow(kind: Kind) -> Any:
    import pyarrow as pa

    match kind.name:
        case "struct":
            return pa.struct([(field.name, to_arrow(field.kind)) for field in kind.fields])
        case "list":
            return pa.list_(to_arrow(kind.item or STRING))
        case "map":
            return pa.map_(pa.string(), to_arrow(kind.item or STRING))
        case "timestamp":
            return pa.timestamp("us")
        case "instant":
            return pa.timestamp("us", "UTC")
    plain = {
        "bool": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "bytes": pa.binary(),
        "date": pa.date32(),
    }
    return plain[kind.name]


def names_of(fields: Sequence[Field]) -> list[str]:
    return [field.name for field in fields]
