"""Avro container files out of records, with blocks of about 64 kB."""

from __future__ import annotations

import re
from typing import Any

from fastavro.write import Writer

from mrstream.streaming.formats.row_file import BadRowSetting
from mrstream.streaming.formats.row_output import Outlet
from mrstream.streaming.formats.row_schema import Fields, to_avro

BLOCK_BYTES = 64_000


class AvroSink:
    """A container file. Its library takes records one by one, so every line is looked at alone."""

    def __init__(self, outlet: Outlet, fields: Fields, compression: str | None) -> None:
        _check_names(fields)
        file: Any = outlet  # it writes, which is all that is asked
        self._writer = Writer(
            file, to_avro(fields), codec=compression or "null", sync_interval=BLOCK_BYTES
        )

    def take_lines(self, block: bytes, lines: int) -> bool:
        """Take none at once."""
        return False

    def check(self, row: dict[str, Any]) -> None:
        """Hold whatever fits the schema."""

    def take_rows(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._writer.write(row)

    def close(self) -> None:
        """Write the last block."""
        self._writer.flush()


def _check_names(fields: Fields) -> None:
    for field in fields:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field.name):
            raise BadRowSetting(
                f"a field is called {field.name!r}; in Avro a name has letters, digits and _ alone"
            )
        _check_names(field.kind.fields)
