"""Conversions between types: `int(s)`, `string(b, "UTF-8")`, and the implicit ones of
initialisers (§7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mrstream.saw.code import COMPARE, INT_MAX, Code
from mrstream.saw.context import Context
from mrstream.saw.runtime import shown
from mrstream.saw.tables.kinds import BYTES, FINGERPRINT, FLOAT, INT, STRING, TIME, Type

CONVERTIBLE = ("bool", "int", "float", "string", "bytes", "time", "fingerprint")


def converted(
    context: Context, code: Code, target: Type, parameters: Sequence[Code] = ()
) -> Code | None:
    """Return the code converted to a type, or None if there is no such conversion."""
    if parameters:
        return _with_parameter(context, code, target, parameters)
    if code.type == target:
        return code
    match target.name:
        case "string":
            return _to_string(context, code)
        case "int":
            return _to_int(code)
        case "array" if code.type.name == "array":
            return _to_array(context, code, target)
        case "map" if code.type.name == "map":
            return _to_map(context, code, target)
        case "tuple" if code.type.name == "tuple":
            return _to_tuple(context, code, target)
    return _to_plain(context, code, target)


def _with_parameter(
    context: Context, code: Code, target: Type, parameters: Sequence[Code]
) -> Code | None:
    (parameter,) = parameters[:1]
    if len(parameters) > 1:
        return None
    text = f"{code.text}, {parameter.text}"
    match (target.name, code.type.name, parameter.type.name):
        case ("string", "int", "int"):
            return Code(f"_int_text({text})", STRING, undef=True)
        case ("string", "bytes", "string"):
            if parameter.constant in ("UTF-8", "utf-8", "UTF8"):
                return _decoded(code)
            return Code(f"_decode({text})", STRING, undef=True)
        case ("bytes", "string", "string"):
            return Code(f"_encode({text})", BYTES, undef=True)
        case ("int", "string", "int"):
            if parameter.constant == 10:
                return _to_int(code)
            return Code(f"_int_in_base({text})", INT, undef=True)
        case ("time", "string", "string"):
            return Code(f"_parse_time({text})", TIME, undef=True)
        case ("string", "time", "string"):
            return Code(f"_time_text({text})", STRING, undef=True)
    return None


def _decoded(code: Code) -> Code:
    return Code(f"{code.at(12)}.decode()", STRING, undef=True, hint=("bytes", code.text))


def _to_string(context: Context, code: Code) -> Code:
    text, undef = code.text, code.undef
    match code.type.name:
        case "bytes":
            return _decoded(code)
        case "int":
            return Code(f"str({text})", STRING, undef=undef)
        case "float":
            return Code(f"_float_text({text})", STRING, undef=undef)
        case "bool":
            return Code(f"('true' if {text} else 'false')", STRING, undef=undef)
    kind = context.constant("type", code.type)
    context.namespace["_shown"] = shown
    return Code(f"_shown({kind}, {text}, {context.zone!r})", STRING, undef=True)


def _to_int(code: Code) -> Code | None:
    text, undef = code.text, code.undef
    match code.type.name:
        case "string":
            way, inner = code.hint
            if way == "bytes":
                return Code(f"_int_of_bytes({inner})", INT, undef=True)
            return Code(f"_int_of({text})", INT, undef=True)
        case "float":
            return Code(f"_int_of_float({text})", INT, undef=True)
        case "time":
            return replace(code, type=INT)
        case "bool":
            return Code(f"int({text})", INT, undef=undef, low=0, high=1)
        case "fingerprint":
            return Code(f"_wrap({text})", INT, undef=undef)
        case "bytes":
            return Code(f"_binary_int({text})", INT, undef=True)
    return None


def _to_plain(context: Context, code: Code, target: Type) -> Code | None:
    text, undef = code.text, code.undef
    match (target.name, code.type.name):
        case ("float", "int"):
            return Code(f"float({text})", FLOAT, undef=undef)
        case ("float", "string" | "bytes"):
            inner = code.hint[1] if code.hint[0] == "bytes" else text
            return Code(f"_float_of({inner})", FLOAT, undef=True)
        case ("bytes", "string"):
            return Code(f"{code.at(12)}.encode()", BYTES, undef=True)
        case ("time", "int"):
            return replace(code, type=TIME)
        case ("time", "string"):
            return Code(f"_parse_time({text}, {context.zone!r})", TIME, undef=True)
        case ("fingerprint", "int"):
            return Code(f"({text}) & 0xFFFFFFFFFFFFFFFF", FINGERPRINT, COMPARE, undef)
        case ("bool", "string"):
            return Code(f"_bool_of({text})", target, undef=True)
    return None


def _to_array(context: Context, code: Code, target: Type) -> Code | None:
    element = Code("item", code.type.parts[0], undef=False, high=INT_MAX)
    inner = converted(context, element, target.parts[0])
    if inner is None:
        return None
    if code.hint[0] == "csv" and target.parts[0] == STRING:
        return Code(f"_csv_strings({code.hint[1]})", target, undef=True)
    text, undef = f"[{inner.text} for item in {code.text}]", code.undef or inner.undef
    return Code(text, target, undef=undef, fresh=not target.has_mutable_parts)


def _to_map(context: Context, code: Code, target: Type) -> Code | None:
    key = converted(context, Code("key", code.type.parts[0]), target.parts[0])
    value = converted(context, Code("item", code.type.parts[1]), target.parts[1])
    if key is None or value is None:
        return None
    undef = code.undef or key.undef or value.undef
    pairs = f"{key.text}: {value.text} for key, item in {code.at(12)}.items()"
    return Code(f"{{{pairs}}}", target, undef=undef, fresh=not target.has_mutable_parts)


def _to_tuple(context: Context, code: Code, target: Type) -> Code | None:
    if len(code.type.parts) != len(target.parts):
        return None
    if code.type.parts == target.parts:  # other names of the same fields
        return replace(code, type=target)
    fields = [
        converted(context, Code(f"item[{at}]", kind), wanted)
        for at, (kind, wanted) in enumerate(zip(code.type.parts, target.parts, strict=True))
    ]
    if None in fields:
        return None
    inner = ", ".join(field.text for field in fields if field is not None)
    text = f"[({inner},) for item in ({code.text},)][0]"
    return Code(text, target, undef=True, fresh=not target.has_mutable_parts)
