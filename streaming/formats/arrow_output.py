"""Parquet and Arrow files out of JSON lines: blocks of lines become tables by vector calls."""

from __future__ import annotations

import base64
import io
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from mrstream.streaming.formats.row_output import Outlet
from mrstream.streaming.formats.row_schema import Fields, Kind, to_arrow

ROW_GROUP_BYTES = 64 << 20
# What the JSON reader of Arrow reads as text, and a cast or Python makes of that: it has no dates
# and no base64, and would drop the zone of a moment that may have none.
_BY_TEXT = ("date", "bytes", "timestamp", "instant")


class ArrowSink:
    """Tables of one schema, gathered into row groups or batches."""

    def __init__(self, outlet: Outlet, fields: Fields, compression: str | None) -> None:
        self._fields = fields
        self._schema = pa.schema([(field.name, to_arrow(field.kind)) for field in fields])
        self._tables: list[Any] = []
        self._held_bytes = 0
        self._can_vector = not any(_needs_python(field.kind) for field in fields)
        self._read_schema = pa.schema(
            [(f.name, pa.string() if f.kind.name in _BY_TEXT else to_arrow(f.kind)) for f in fields]
        )
        self._writer: Any = self._open(pa.PythonFile(outlet, mode="w"), compression)

    def _open(self, file: Any, compression: str | None) -> Any:
        raise NotImplementedError

    def _write(self, table: Any) -> None:
        raise NotImplementedError

    def take_lines(self, block: bytes, lines: int) -> bool:
        """Take the lines if Arrow's own reader takes every one of them."""
        if not self._can_vector:
            return False
        try:
            table = pj.read_json(
                io.BytesIO(block),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=self._read_schema, unexpected_field_behavior="error"
                ),
            )
            if table.num_rows != lines:
                return False
            table.validate(full=True)
            table = self._cast(table)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            return False
        self._hold(table)
        return True

    def _cast(self, table: Any) -> Any:
        for index, field in enumerate(self._fields):
            column = table.column(index)
            if field.kind.name != "bytes" and field.kind.name in _BY_TEXT:
                column = column.cast(to_arrow(field.kind))
            elif field.kind.name == "bytes":
                values = [
                    None if text is None else base64.b64decode(text, validate=True)
                    for text in column.to_pylist()
                ]
                column = pa.chunked_array([pa.array(values, pa.binary())])
            else:
                continue
            table = table.set_column(index, self._schema.field(index), column)
        return table

    def check(self, row: dict[str, Any]) -> None:
        """Hold whatever fits the schema."""

    def take_rows(self, rows: list[dict[str, Any]]) -> None:
        made = [{f.name: _for_arrow(f.kind, row[f.name]) for f in self._fields} for row in rows]
        self._hold(pa.Table.from_pylist(made, schema=self._schema))

    def _hold(self, table: Any) -> None:
        self._tables.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held_bytes or any(table.num_rows for table in self._tables):
            self._write(pa.concat_tables(self._tables))
        self._tables, self._held_bytes = [], 0

    def close(self) -> None:
        """Write what is held, and the file's end."""
        self._flush()
        self._writer.close()


class ParquetSink(ArrowSink):
    def _open(self, file: Any, compression: str | None) -> Any:
        return pq.ParquetWriter(
            file, self._schema, compression=compression or "snappy", write_page_checksum=True
        )

    def _write(self, table: Any) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)


class ArrowFileSink(ArrowSink):
    """An Arrow IPC file, which is Feather version 2."""

    def _open(self, file: Any, compression: str | None) -> Any:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        return pa.ipc.new_file(file, self._schema, options=options)

    def _write(self, table: Any) -> None:
        self._writer.write_table(table)


def _needs_python(kind: Kind) -> bool:
    """Whether Arrow's JSON reader has no way to read it, inside of something at that."""
    if kind.name == "map":
        return True
    inner = [field.kind for field in kind.fields] + ([kind.item] if kind.item else [])
    return any(one.name in _BY_TEXT or _needs_python(one) for one in inner)


def _for_arrow(kind: Kind, value: Any) -> Any:
    """Return a map as the pairs that Arrow makes one of."""
    if value is None:
        return None
    if kind.name == "map":
        assert kind.item is not None
        return [(key, _for_arrow(kind.item, one)) for key, one in value.items()]
    if kind.name == "list":
        assert kind.item is not None
        return [_for_arrow(kind.item, one) for one in value]
    if kind.name == "struct":
        return {field.name: _for_arrow(field.kind, value[field.name]) for field in kind.fields}
    return value
