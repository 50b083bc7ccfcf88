"""Calls: conversions, the functions of the library, those of the program, and the few with a
syntax of their own (saw, new, convert, jsonof, csvof)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from mrstream.saw import library, patterns, readers, runtime, times, tree
from mrstream.saw.code import Code
from mrstream.saw.context import Context, FunctionVar, TableVar, Var
from mrstream.saw.conversions import CONVERTIBLE, converted
from mrstream.saw.readers import APACHE_LOG
from mrstream.saw.source import Faulty, did_you_mean
from mrstream.saw.tables.kinds import BYTES, INT, STRING, TIME, Type, Value
from mrstream.saw.values import copier

_WITH_PATTERN = frozenset({"match", "matchstrs", "matchposns"})
_HASHED = {"fingerprintof": 0, "haskey": 1, "lookup": 1}
"""Which argument must be whole: it is encoded, or looked for among keys."""
_READ_BY_CSV: dict[str, Callable[[str], Value]] = {
    "string": str,
    "bytes": str.encode,
    "int": runtime.int_of,
    "float": runtime.float_of,
    "bool": runtime.bool_of,
}


class Translator(Protocol):
    """What a call needs of the expressions around it."""

    def value(self, node: tree.Expression, target: Type | None = None) -> Code:
        """Return the code of an expression."""

    def of_type(self, node: tree.Expression, wanted: Type, what: str) -> Code:
        """Return the code of an expression that must have a type."""

    def copied(self, code: Code) -> Code:
        """Return a value of one's own."""

    def whole(self, code: Code) -> Code:
        """Return a value that lacks no field."""

    def pattern(self, node: tree.Expression) -> Code:
        """Return the code of a regular expression."""


class Calls:
    """Translates calls in a context."""

    def __init__(self, context: Context, expressions: Translator) -> None:
        self._context = context
        self._expressions = expressions

    def call(self, node: tree.Call, target: Type | None) -> Code:
        match node.name:
            case "saw" | "sawn":
                return self._saw(node)
            case "new":
                return self._new(node)
            case "convert":
                return self._convert(node)
            case "jsonof" | "csvof":
                return self._reader(node)
            case "apachelog":
                return self._apachelog(node)
            case "assert":
                raise Faulty(node.at, "assert is a statement of its own")
        meaning = self._context.find(node.name)
        match meaning:
            case FunctionVar():
                return self._function(node, meaning)
            case Var() | TableVar():
                raise Faulty(node.at, f"{node.name} is no function")
            case Type() if meaning.name in CONVERTIBLE:
                return self._conversion(node, meaning)
            case Type():
                raise Faulty(node.at, f"write convert({node.name}, …) for a conversion")
        return self._library(node)

    def _values(self, node: tree.Call, first: int = 0) -> list[Code]:
        return [self._expressions.value(argument) for argument in node.arguments[first:]]

    def _library(self, node: tree.Call) -> Code:
        if node.name in _WITH_PATTERN and node.arguments:
            self._expressions.pattern(node.arguments[0])
        values = self._values(node)
        if node.name in _HASHED:
            at = _HASHED[node.name]
            values[at : at + 1] = map(self._expressions.whole, values[at : at + 1])
        try:
            code = library.call(self._context, node.name, values)
        except library.NoSuchCall as error:
            raise Faulty(node.at, str(error)) from None
        if code is None:
            visible = {name for scope in self._context.scopes for name in scope}
            hint = did_you_mean(node.name, library.names() | visible)
            raise Faulty(node.at, f"there is no function {node.name}{hint}")
        if node.name in library.TIMES or node.name == "formattime":
            self._check_zone(node)
        return code

    def _check_zone(self, node: tree.Call) -> None:
        last = node.arguments[-1]
        if isinstance(last, tree.Literal) and last.type == STRING:
            try:
                times.zone_of(str(last.value))
            except ValueError as error:
                raise Faulty(last.at, str(error)) from None

    def _function(self, node: tree.Call, function: FunctionVar) -> Code:
        if self._context.in_static and not function.static:
            raise Faulty(node.at, f"{node.name} is not static; a static value cannot call it")
        if len(node.arguments) != len(function.parameters):
            raise Faulty(
                node.at,
                f"{node.name} takes {len(function.parameters)} arguments, "
                f"and here are {len(node.arguments)}",
            )
        arguments = [
            self._expressions.copied(
                self._expressions.of_type(argument, wanted, f"an argument of {node.name}")
            )
            for argument, wanted in zip(node.arguments, function.parameters, strict=True)
        ]
        text = f"{function.python}({', '.join(argument.text for argument in arguments)})"
        return Code(text, function.result or Type("nothing"), undef=True)

    # --- conversions

    def _conversion(self, node: tree.Call, target: Type) -> Code:
        if not node.arguments:
            raise Faulty(node.at, f"{node.name}(…) converts a value; there is none")
        value, *parameters = self._values(node)
        value = self._expressions.whole(value)
        code = converted(self._context, value, target, parameters)
        if code is None:
            with_parameters = " with such a parameter" if parameters else ""
            raise Faulty(node.at, f"cannot convert {value.type} to {target}{with_parameters}")
        argument = node.arguments[0]
        if target == TIME and isinstance(argument, tree.Literal) and value.type == STRING:
            zone = parameters[0].constant if parameters else self._context.zone
            if isinstance(zone, str):
                return self.constant_time(argument.at, str(argument.value), zone)
        return replace(code, undef=code.undef or any(one.undef for one in (value, *parameters)))

    def constant_time(self, at: int, text: str, zone: str) -> Code:
        """Return a time that is written out, read now; `zone` is its own if the text has none."""
        try:
            time = times.parse_time(text, zone)
        except ValueError as error:
            raise Faulty(at, str(error)) from None
        return Code(str(time), TIME, low=time, high=time)

    def _convert(self, node: tree.Call) -> Code:
        assert node.type is not None
        target = self._context.type(node.type)
        if not node.arguments:
            raise Faulty(node.at, "convert(type, value) needs a value")
        first = node.arguments[0]
        is_empty = isinstance(first, tree.Composite) and not first.items
        value = self._expressions.value(first, target if is_empty else None)
        message = self._context.message(node.type)
        if message is not None and value.type == BYTES:
            read = self._context.constant("message", message.reader(None))
            return Code(f"{read}({value.text})", target, undef=True)
        value = self._expressions.whole(value)
        code = converted(self._context, value, target, self._values(node, 1))
        if code is None:
            raise Faulty(node.at, f"cannot convert {value.type} to {target}")
        return replace(code, undef=code.undef or value.undef)

    # --- the few with a syntax of their own

    def _saw(self, node: tree.Call) -> Code:
        first = 1 if node.name == "saw" else 2
        if len(node.arguments) <= first:
            how = "saw(text, patterns …)" if first == 1 else "sawn(count, text, patterns …)"
            raise Faulty(node.at, f"it is called as {how}")
        texts = []
        if first == 2:
            texts.append(self._expressions.of_type(node.arguments[0], INT, "the count of sawn"))
        texts.append(self._expressions.of_type(node.arguments[first - 1], STRING, "what is cut up"))
        steps = []
        for argument in node.arguments[first:]:
            is_skipped = isinstance(argument, tree.Skip)
            inner = argument.pattern if isinstance(argument, tree.Skip) else argument
            steps.append(f"({self._expressions.pattern(inner).text}, {is_skipped}),")
        self._context.namespace.update(_saw=patterns.saw, _sawn=patterns.sawn)
        arguments = ", ".join(text.text for text in texts)
        strings = library.STRINGS
        return Code(f"_{node.name}({arguments}, ({' '.join(steps)}))", strings, undef=True)

    def _new(self, node: tree.Call) -> Code:
        assert node.type is not None
        kind = self._context.type(node.type)
        if kind.name != "array" or len(node.arguments) != 2:
            raise Faulty(node.at, "new is called as new(array of …, length, value)")
        count = self._expressions.of_type(node.arguments[0], INT, "the length of an array")
        value = self._expressions.of_type(node.arguments[1], kind.parts[0], "an element")
        mutable = kind.parts[0].is_mutable
        copy = self._context.constant("copy", copier(kind.parts[0])) if mutable else "None"
        return Code(f"_new_array({count.text}, {value.text}, {copy})", kind, undef=True)

    def _reader(self, node: tree.Call) -> Code:
        assert node.type is not None
        kind = self._context.type(node.type)
        if len(node.arguments) != 1:
            raise Faulty(node.at, f"it is called as {node.name}(type, input)")
        value = self._expressions.of_type(node.arguments[0], BYTES, f"what {node.name} reads")
        self._context.mark_partial(kind)
        if node.name == "jsonof":
            self._check_json(node.at, kind)
            read = self._context.constant("json", readers.json_reader(kind, self._context.zone))
        else:
            read = self._context.constant("csv", readers.csv_reader(self._csv_fields(node, kind)))
        return Code(f"{read}({value.text})", kind, undef=True)

    def _check_json(self, at: int, kind: Type) -> None:
        if kind.name == "map" and kind.parts[0] != STRING:
            raise Faulty(at, f"the keys of JSON are strings, not of type {kind.parts[0]}")
        if kind.name == "tuple" and not all(kind.names):
            raise Faulty(at, "every field that jsonof reads needs a name")
        for part in kind.parts:
            self._check_json(at, part)

    def _csv_fields(self, node: tree.Call, kind: Type) -> list[Callable[[str], Value]]:
        if kind.name != "tuple":
            raise Faulty(node.at, f"csvof reads tuples, not {kind}")
        zone = self._context.zone
        found: list[Callable[[str], Value]] = []
        for part in kind.parts:
            if part == TIME:
                found.append(lambda text: times.parse_time(text, zone))
            elif part.name in _READ_BY_CSV:
                found.append(_READ_BY_CSV[part.name])
            else:
                raise Faulty(node.at, f"csvof cannot read a field of type {part}")
        return found

    def _apachelog(self, node: tree.Call) -> Code:
        if len(node.arguments) != 1:
            raise Faulty(node.at, "it is called as apachelog(input)")
        value = self._expressions.of_type(node.arguments[0], BYTES, "what apachelog reads")
        hint = ("log", "" if value.undef else value.text)
        return Code(f"_apachelog({value.text})", APACHE_LOG, undef=True, hint=hint)
