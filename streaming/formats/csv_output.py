"""CSV files out of records, as Python's csv module writes them; nested values are JSON."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
from typing import Any

from mrstream.streaming.formats.codec import Codec
from mrstream.streaming.formats.row_output import Outlet
from mrstream.streaming.formats.row_schema import Fields, names_of
from mrstream.streaming.records.csv_dialect import Dialect


class CsvSink:
    """A CSV file, compressed on the way if asked."""

    def __init__(
        self, outlet: Outlet, fields: Fields, dialect: Dialect, codec: Codec | None
    ) -> None:
        self._outlet = outlet
        self._names = names_of(fields)
        self._encoding = dialect.encoding
        self._compressor = codec.compressor() if codec else None
        self._text = io.StringIO(newline="")
        quote = dialect.quote.decode("latin-1") if dialect.quote else None
        self._writer = csv.writer(
            self._text,
            delimiter=dialect.delimiter.decode("latin-1"),
            quotechar=quote,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            lineterminator="\n",
        )
        if dialect.has_header:
            self._writer.writerow(self._names)
            self._flush()

    def take_lines(self, block: bytes, lines: int) -> bool:
        """Take none at once."""
        return False

    def take_rows(self, rows: list[dict[str, Any]]) -> None:
        """Take records that fit."""
        names = self._names
        self._writer.writerows([_plain(row[name]) for name in names] for row in rows)
        self._flush()

    def _flush(self) -> None:
        data = self._text.getvalue().encode(self._encoding, "replace")
        self._text.seek(0)
        self._text.truncate()
        self._outlet.write(self._compressor.feed(data) if self._compressor else data)

    def close(self) -> None:
        """End the compressed stream."""
        if self._compressor is not None:
            self._outlet.write(self._compressor.finish())


def _plain(value: Any) -> Any:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case list() | dict():
            return json.dumps(value, default=_plain, ensure_ascii=False)
        case datetime.date():
            return value.isoformat()
    return value
