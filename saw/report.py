"""Results for people and programs: rows of tables as CSV, JSON or text.

Takes declarations and (key, packed state) in key order, from any number of shards and jobs; merges
what has one key and gives lines. Reads no file.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.saw.program import UNDEF_DETAILS
from mrstream.saw.runtime import float_text, shown
from mrstream.saw.source import did_you_mean
from mrstream.saw.tables import keys
from mrstream.saw.tables.kinds import FLOAT, INT, Declaration, Type, Value
from mrstream.saw.tables.registry import KEYED_BY_VALUE, table_of
from mrstream.saw.tables.table import Chance, Table, check

Packed = tuple[bytes, bytes]


class Manifest(msgspec.Struct, frozen=True):
    """What lies beside the shards of a job: which tables they hold."""

    version: int
    program: str
    digest: str
    tables: tuple[Declaration, ...]


class ManifestCorrupt(Corrupt):
    """A manifest that cannot be read."""


class OtherTables(UserError):
    """Results of programs with different declarations, which cannot be merged."""


class Row(msgspec.Struct, frozen=True):
    """One row of a table: its index, value, and weight and error where there are any."""

    table: Declaration
    index: tuple[Value, ...]
    value: Value
    weight: Value = None
    error: Value = None


def manifest_bytes(program: str, digest: str, tables: Sequence[Declaration]) -> bytes:
    """Return a manifest as it is written."""
    return msgspec.json.encode(Manifest(1, program, digest, tuple(tables))) + b"\n"


def read_manifest(data: bytes, place: str) -> Manifest:
    """Read a manifest, which anyone may have written."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ManifestCorrupt(f"{place} is no list of tables: {error}") from None
    if manifest.version != 1:
        raise UserError(f"{place} is of version {manifest.version}; this mrstream reads version 1")
    for table in manifest.tables:
        wrong = check(table) if all(map(_is_known, _types(table))) else "a type is unknown"
        if wrong is not None:
            raise ManifestCorrupt(f"{place}: table {table.name}: {wrong}")
    return manifest


def _types(table: Declaration) -> Iterator[Type]:
    yield from table.index_types
    yield table.value.type
    if table.weight is not None:
        yield table.weight.type


def _is_known(kind: Type) -> bool:
    parts = {"array": 1, "map": 2, "tuple": len(kind.names)}
    plain = ("bool", "int", "float", "string", "bytes", "time", "fingerprint")
    if kind.name not in parts and kind.name not in plain:
        return False
    return len(kind.parts) == parts.get(kind.name, 0) and all(map(_is_known, kind.parts))


def same_tables(manifests: Sequence[tuple[str, Manifest]]) -> tuple[Declaration, ...]:
    """Return the tables of several results, which must be the same (SZ-17)."""
    first_place, first = manifests[0]
    for place, manifest in manifests[1:]:
        if manifest.tables != first.tables:
            raise OtherTables(
                f"{place} and {first_place} hold different tables ({_listed(manifest)} against "
                f"{_listed(first)}): dump them one by one"
            )
    return first.tables


def _listed(manifest: Manifest) -> str:
    return "; ".join(map(str, manifest.tables))[:300]


def chosen(tables: Sequence[Declaration], names: Sequence[str]) -> set[str]:
    """Return the tables to show: those named, else all but the details of skipped statements, whose
    number is in a table of its own."""
    known = {table.name for table in tables}
    for name in names:
        if name not in known:
            raise UserError(f"there is no table {name}{did_you_mean(name, known)}")
    return set(names) or known - {UNDEF_DETAILS.name}


def rows(
    tables: Sequence[Declaration], packed: Iterable[Packed], wanted: set[str], chance: Chance
) -> Iterator[Row]:
    """Yield the rows of all results in order of table and index; equal keys are merged."""
    made: dict[int, Table] = {}
    for key, group in groupby(packed, key=lambda record: record[0]):
        number = keys.table_number(key)
        if number >= len(tables):
            raise Corrupt(f"a shard has a table {number}, and {len(tables)} are declared")
        declaration = tables[number]
        if declaration.name not in wanted:
            continue
        table = made.get(number)
        if table is None:
            table = made[number] = table_of(declaration, chance)
        state = table.new()
        for _, value in group:
            state = table.merge(state, value)
        index = keys.index_of(key, declaration)
        for final in table.final(state):
            yield _row(declaration, index, final)


def _row(declaration: Declaration, index: tuple[Value, ...], final: tuple[Value, ...]) -> Row:
    if declaration.kind in KEYED_BY_VALUE:
        return Row(declaration, index[:-1], index[-1])
    value, weight, error = (*final, None, None)[:3]
    return Row(declaration, index, value, weight, error)


# --- as csv


def csv_lines(all_rows: Iterable[Row]) -> Iterator[str]:
    """Yield table, index, value and weight of each row; the error of a count where there is one."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in all_rows:
        index, value = text_cells(row)
        writer.writerow(index + value)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def text_cells(row: Row) -> tuple[list[str], list[str]]:
    """Return a row as texts: table and index; value, weight and error."""
    table = row.table
    index = [table.name]
    for kind, part in zip(table.index_types, row.index, strict=True):
        index += _cells(kind, part)
    value = _cells(INT if table.kind == "unique" else table.value.type, row.value)
    if row.weight is not None:
        value += _cells(_weight_type(table), row.weight)
    if row.error:
        value += _cells(_weight_type(table), row.error)
    return index, value


def _weight_type(table: Declaration) -> Type:
    return INT if table.weight is None else table.weight.type


def _cells(kind: Type, value: Value) -> list[str]:
    if kind.name == "tuple":
        return [
            cell
            for part, item in zip(kind.parts, value, strict=True)
            for cell in _cells(part, item)
        ]
    return [_cell(kind, value)]


def _cell(kind: Type, value: Value) -> str:
    if kind.name in ("time", "fingerprint"):
        return str(value)
    if kind.name == "bytes":
        return str(value.decode("utf-8", "surrogateescape"))
    return shown(kind, value)


# --- as json and text


def json_lines(all_rows: Iterable[Row]) -> Iterator[str]:
    """Yield an object a row."""
    for row in all_rows:
        table = row.table
        line: dict[str, Any] = {"table": table.name}
        if table.indexes:
            line["index"] = [
                _plain(kind, value)
                for kind, value in zip(table.index_types, row.index, strict=True)
            ]
        line["value"] = _plain(INT if table.kind == "unique" else table.value.type, row.value)
        if row.weight is not None:
            line["weight"] = _plain(_weight_type(table), row.weight)
        if row.error is not None:
            line["error"] = _plain(_weight_type(table), row.error)
        yield json.dumps(line, ensure_ascii=False) + "\n"


def _plain(kind: Type, value: Value) -> Any:
    match kind.name:
        case "bytes":
            return value.decode("utf-8", "backslashreplace")
        case "string":
            return value.encode("utf-8", "backslashreplace").decode()
        case "float":
            return value if math.isfinite(value) else float_text(value)
        case "array":
            return [_plain(kind.parts[0], item) for item in value]
        case "map":
            return {_cell(kind.parts[0], k): _plain(kind.parts[1], v) for k, v in value.items()}
        case "tuple":
            names = (name or str(at) for at, name in enumerate(kind.names))
            return {
                name: _plain(part, item)
                for name, part, item in zip(names, kind.parts, value, strict=True)
            }
    return value


def text_lines(all_rows: Iterable[Row]) -> Iterator[str]:
    """Yield `name[index] = value` a row; a row of kind text is its value alone."""
    for row in all_rows:
        table = row.table
        kind = INT if table.kind == "unique" else table.value.type
        if table.kind == "text":
            yield _cell(kind, row.value) + "\n"
            continue
        indexes = "".join(
            f"[{_cell(kind, value)}]"
            for kind, value in zip(table.index_types, row.index, strict=True)
        )
        words = [_cell(kind, row.value)]
        if row.weight is not None:
            words.append(_cell(_weight_type(table), row.weight))
        if row.error is not None:
            amount = float_text(row.error) if _weight_type(table) == FLOAT else row.error
            words.append(f"error {amount}")
        yield f"{table.name}{indexes} = {', '.join(words)}\n"


LINES: dict[str, Callable[[Iterable[Row]], Iterator[str]]] = {
    "csv": csv_lines,
    "json": json_lines,
    "text": text_lines,
}
