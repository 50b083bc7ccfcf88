"""CSV files out of records, as Python's csv module writes them; nested values are JSON.

What would be read back as something else is never written: a line end of any kind stands in quotes,
and a value that the dialect or the encoding cannot hold does not fit.
"""

from __future__ import annotations

import base64
import csv
import datetime
import json
from typing import Any

from mrstream.streaming.formats.codec import Codec
from mrstream.streaming.formats.row_file import BadRowSetting
from mrstream.streaming.formats.row_output import Outlet
from mrstream.streaming.formats.row_schema import Fields, Misfit, names_of
from mrstream.streaming.records.csv_dialect import Dialect

_END = "\r\n"


class CsvSink:
    """A CSV file, compressed on the way if asked."""

    def __init__(
        self, outlet: Outlet, fields: Fields, dialect: Dialect, codec: Codec | None
    ) -> None:
        self._outlet = outlet
        self._names = names_of(fields)
        self._encoding = dialect.encoding
        self._compressor = codec.compressor() if codec else None
        self._lines = _Lines()
        quote = dialect.quote.decode("latin-1") if dialect.quote else None
        delimiter = dialect.delimiter.decode("latin-1")
        self._needs_quotes = frozenset() if quote else frozenset({delimiter, "\r", "\n"})
        is_flat = all(not field.kind.item and not field.kind.fields for field in fields)
        self._holds_all = is_flat and self._encoding == "utf-8" and quote is not None
        self._writer = csv.writer(
            self._lines,
            delimiter=delimiter,
            quotechar=quote,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            lineterminator=_END,
        )
        if dialect.has_header:
            self._write_header()

    def _write_header(self) -> None:
        try:
            self._check({name: name for name in self._names})
        except Misfit as error:
            raise BadRowSetting(f"the header of CSV cannot be written: {error}") from None
        self._writer.writerow(self._names)
        self._flush()

    def check(self, row: dict[str, Any]) -> None:
        """Misfit, if a value can be written in neither this dialect nor this encoding."""
        if not self._holds_all:
            self._check({name: _text(row[name]) for name in self._names})

    def _check(self, texts: dict[str, str]) -> None:
        for name, text in texts.items():
            try:
                text.encode(self._encoding)
            except UnicodeEncodeError:
                raise Misfit(name, f"{text!r} cannot be written in {self._encoding}") from None
            if not self._needs_quotes.isdisjoint(text):
                raise Misfit(name, f"{text!r} cannot be written without quotes")
        if self._needs_quotes and list(texts.values()) == [""]:
            raise Misfit(self._names[0], "a line with nothing in it is no record without quotes")

    def take_lines(self, block: bytes, lines: int) -> bool:
        """Take none at once."""
        return False

    def take_rows(self, rows: list[dict[str, Any]]) -> None:
        names = self._names
        self._writer.writerows([_plain(row[name]) for name in names] for row in rows)
        self._flush()

    def _flush(self) -> None:
        data = self._lines.taken().encode(self._encoding)
        self._outlet.write(self._compressor.feed(data) if self._compressor else data)

    def close(self) -> None:
        """End the compressed stream."""
        if self._compressor is not None:
            self._outlet.write(self._compressor.finish())


class _Lines:
    """Takes the lines of a csv.writer, one a call. That puts a value in quotes for the sake of the
    characters that end its lines alone: it is told of both, and one of them is taken away here."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line[: -len(_END)])

    def taken(self) -> str:
        """Return what was written since the last time."""
        lines, self._lines = self._lines, []
        return "".join(line + "\n" for line in lines)


def _text(value: Any) -> str:
    plain = _plain(value)
    return "" if plain is None else str(plain)


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
