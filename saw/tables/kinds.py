"""Types of values and declarations of tables, as plain data that crosses hosts and lies in shards.

A value is held as Python holds it: int, float, bool, str, bytes; a time (microseconds) and a
fingerprint are ints; an array is a list, a map a dict, a tuple a tuple. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Any

import msgspec

Value = Any
"""A value of the language; which Python type it has follows from its `Type`."""


class Type(msgspec.Struct, frozen=True, omit_defaults=True):
    """The type of a value. `parts` are those of an array's element, a map's key and value, or a
    tuple's fields, whose names are in `names`."""

    name: str
    parts: tuple[Type, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.name:
            case "array":
                return f"array of {self.parts[0]}"
            case "map":
                return f"map[{self.parts[0]}] of {self.parts[1]}"
            case "tuple":
                fields = zip(self.names, self.parts, strict=True)
                inner = ", ".join(f"{name}: {part}" if name else str(part) for name, part in fields)
                return f"{{ {inner} }}"
        return self.name

    @property
    def is_number(self) -> bool:
        """Whether values can be added up."""
        return self.name in ("int", "float")

    @property
    def is_ordered(self) -> bool:
        """Whether `<` compares values."""
        return self.name in _ORDERED

    @property
    def is_mutable(self) -> bool:
        """Whether a value, or a part of it, can change in place."""
        return self.name in ("array", "map") or self.has_mutable_parts

    @property
    def has_mutable_parts(self) -> bool:
        """Whether a value that was put together anew may still share something that can change."""
        return any(part.is_mutable for part in self.parts)

    def depth(self) -> int:
        """How many types lie in each other, this one included."""
        return 1 + max((part.depth() for part in self.parts), default=0)


_ORDERED = frozenset({"int", "float", "time", "fingerprint", "string", "bytes"})

BOOL = Type("bool")
INT = Type("int")
FLOAT = Type("float")
STRING = Type("string")
BYTES = Type("bytes")
TIME = Type("time")
FINGERPRINT = Type("fingerprint")


def array_of(element: Type) -> Type:
    return Type("array", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def tuple_of(**fields: Type) -> Type:
    return Type("tuple", tuple(fields.values()), tuple(fields))


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A type with the name that a declaration gave it, for people to read."""

    type: Type
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" if self.name else str(self.type)


class Declaration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table: `name: table kind(parameter)[indexes] of value weight weight`."""

    name: str
    kind: str
    value: Field
    parameter: int | None = None
    indexes: tuple[Field, ...] = ()
    weight: Field | None = None

    def __str__(self) -> str:
        parameter = "" if self.parameter is None else f"({self.parameter})"
        indexes = "".join(f"[{index}]" for index in self.indexes)
        weight = "" if self.weight is None else f" weight {self.weight}"
        return f"{self.name}: table {self.kind}{parameter}{indexes} of {self.value}{weight}"

    @property
    def index_types(self) -> tuple[Type, ...]:
        return tuple(index.type for index in self.indexes)
