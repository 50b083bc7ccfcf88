"""FieldSelectionMapReduce: choose and reorder fields of records (spec 6.4).

A spec `KEYFIELDS:VALUEFIELDS` names 0-based fields; the separator cuts as a Java regular
expression and joins as literal text. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.streaming.java.java_regex import compile_java


class BadFieldSpec(UserError):
    """A field list that cannot be read."""


class FieldSpec(msgspec.Struct, frozen=True):
    """Which fields make the key and which the value; `all_from` adds every field from there on
    to the value."""

    key_fields: tuple[int, ...]
    value_fields: tuple[int, ...]
    all_from: int | None

    @property
    def has_key(self) -> bool:
        return bool(self.key_fields)

    @property
    def has_value(self) -> bool:
        return bool(self.value_fields) or self.all_from is not None

    @staticmethod
    def parse(spec: str) -> FieldSpec:
        """Read `2,0:1,3-`; an open range counts for the value only."""
        key, _, value = spec.partition(":")
        key_fields, _ = _fields(key, spec)
        value_fields, all_from = _fields(value.partition(":")[0], spec)
        return FieldSpec(key_fields, value_fields, all_from)


class FieldSelection:
    """Cuts text into fields and puts the chosen ones together."""

    def __init__(self, separator: str, spec: str) -> None:
        self.separator = separator
        self._pattern = compile_java(separator)
        self.spec = FieldSpec.parse(spec)

    def select(self, text: str) -> tuple[str | None, str | None]:
        """Return (key, value); None for a side of which the spec names no field."""
        fields = self.split(text)
        spec = self.spec
        return (
            self._joined(fields, spec.key_fields, None),
            self._joined(fields, spec.value_fields, spec.all_from),
        )

    def split(self, text: str) -> list[str]:
        """Cut as Java's String.split: no groups in the result, trailing empty fields dropped."""
        fields: list[str] = []
        start = 0
        for match in self._pattern.finditer(text):
            if match.end() == 0:
                continue  # a match of nothing at the start cuts off nothing
            fields.append(text[start : match.start()])
            start = match.end()
        if not fields:
            return [text]
        fields.append(text[start:])
        while fields and not fields[-1]:
            fields.pop()
        return fields

    def _joined(
        self, fields: Sequence[str], chosen: Sequence[int], all_from: int | None
    ) -> str | None:
        if not chosen and all_from is None:
            return None
        parts = [fields[index] if index < len(fields) else "" for index in chosen]
        if all_from is not None:
            parts += fields[all_from:]
        whole = "".join(part + self.separator for part in parts)
        # Hadoop takes one character off, however long the separator is.
        return whole[:-1]


def _fields(text: str, spec: str) -> tuple[tuple[int, ...], int | None]:
    fields: list[int] = []
    all_from: int | None = None
    try:
        for word in filter(None, text.split(",")):
            start, dash, end = word.partition("-")
            if not dash:
                fields.append(int(word))
            elif not end:
                all_from = int(start or "0")
            else:
                fields += range(int(start or "0"), int(end) + 1)
    except ValueError:
        raise BadFieldSpec(
            f"the field list {spec!r} is wrong; it must be like 2,0:1,3- (KEYFIELDS:VALUEFIELDS)"
        ) from None
    return tuple(fields), all_from
