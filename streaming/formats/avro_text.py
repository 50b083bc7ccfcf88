"""An Avro datum as Java's `GenericData.toString` writes it, for AvroAsTextInputFormat. Pure.

Looks like JSON with blanks behind colons and commas; bytes are characters of ISO 8859-1, a fixed is
a list of signed bytes, and logical types are the numbers below them. The entries of a map come as
they lie in the file; Java's come in the order of its hash table.
"""

from __future__ import annotations

import math
import re
from typing import Any

from mrstream.streaming.java.java_number import format_double, format_float

_ESCAPED = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2000-\u20ff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def java_text(datum: Any, schema: Any) -> bytes:
    """Return the line of a datum: its text as key, an empty value; a datum of bytes is itself."""
    if isinstance(datum, bytes) and _is(schema, "bytes"):
        return datum + b"\t\n"
    names: dict[str, Any] = {}
    return (_text(datum, schema, names) + "\t\n").encode("utf-8", "surrogatepass")


def without_logical_types(schema: Any) -> Any:
    """Return the schema whose values are plain numbers and bytes, as Java's reader sees them."""
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {
            name: without_logical_types(value) if name in _HOLDING else value
            for name, value in schema.items()
            if name != "logicalType"
        }
    return schema


_HOLDING = ("type", "fields", "items", "values")


def _is(schema: Any, kind: str) -> bool:
    return schema == kind or (isinstance(schema, dict) and schema.get("type") == kind)


def _text(datum: Any, schema: Any, names: dict[str, Any]) -> str:
    schema = _resolved(datum, schema, names)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "record" | "error":
            fields = (
                f"{_quoted(one['name'])}: {_text(datum[one['name']], one['type'], names)}"
                for one in schema["fields"]
            )
            return "{" + ", ".join(fields) + "}"
        case "array":
            return "[" + ", ".join(_text(one, schema["items"], names) for one in datum) + "]"
        case "map":
            values = schema["values"]
            pairs = (f"{_quoted(k)}: {_text(one, values, names)}" for k, one in datum.items())
            return "{" + ", ".join(pairs) + "}"
        case "fixed":
            return "[" + ", ".join(str(b - 256 if b > 127 else b) for b in datum) + "]"
        case "bytes":
            return _quoted(datum.decode("latin-1"))
        case "string" | "enum":
            return _quoted(datum)
        case "float" | "double":
            text = (format_float if kind == "float" else format_double)(datum)
            return text if math.isfinite(datum) else f'"{text}"'
        case "boolean":
            return "true" if datum else "false"
    return "null" if datum is None else str(datum)


def _resolved(datum: Any, schema: Any, names: dict[str, Any]) -> Any:
    """Return the schema of a datum: a branch of a union, what a name stands for, the type
    inside."""
    while True:
        if isinstance(schema, list):
            schema = next((one for one in schema if _fits(datum, one, names)), "null")
        elif isinstance(schema, str) and schema in names:
            return names[schema]
        elif isinstance(schema, dict) and isinstance(schema["type"], dict | list):
            schema = schema["type"]
        else:
            if isinstance(schema, dict) and "name" in schema:
                _learn(schema, names)
            return schema


def _learn(schema: dict[str, Any], names: dict[str, Any]) -> None:
    names[schema["name"]] = schema
    space = schema.get("namespace")
    if space and "." not in schema["name"]:
        names[f"{space}.{schema['name']}"] = schema


def _fits(datum: Any, schema: Any, names: dict[str, Any]) -> bool:
    schema = names.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    match datum:
        case None:
            return bool(kind == "null")
        case bool():
            return bool(kind == "boolean")
        case int():
            return kind in ("int", "long")
        case float():
            return kind in ("float", "double")
        case str():
            return kind == "string" or (kind == "enum" and datum in schema["symbols"])
        case bytes():
            return kind == "bytes" or (kind == "fixed" and len(datum) == schema["size"])
        case list():
            return bool(kind == "array")
    if kind == "record":
        return bool({one["name"] for one in schema["fields"]} == datum.keys())
    return bool(kind == "map")


def _quoted(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04X}"
