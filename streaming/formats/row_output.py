"""JSON lines become records of a table format: the schema, what does not fit it, and the file.

`RowOutput` takes whole lines, holds the first 1,000 to find a schema where none was given, and
hands blocks to a `Sink` of the format. A record that does not fit fails the attempt with its line,
field and value, or goes to `_rejected/` while the job allows that. Nothing is visible before the
attempt commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Protocol

from mrstream.cluster.errors import UserError
from mrstream.streaming.formats.output_format import OutputWriter
from mrstream.streaming.formats.row_schema import Fields, Misfit, fitted, inferred, parse_schema

SCHEMA_RECORDS = 1_000
BLOCK_BYTES = 8 << 20
# Records so large that a thousand of them are more than this make a schema sooner.
HELD_BYTES_MAX = 64 << 20
REJECTED = "_rejected"
_Rows = list[dict[str, Any]]


class BadRecord(UserError):
    """A record does not fit the schema of the output, or too many do not."""


class Sink(Protocol):
    """A file of one format, for records of one schema."""

    def take_lines(self, block: bytes, lines: int) -> bool:
        """Take JSON lines at once, all of them or, with False, none: some may not fit."""

    def check(self, row: dict[str, Any]) -> None:
        """Misfit, if the format cannot hold a record that fits the schema."""

    def take_rows(self, rows: _Rows) -> None:
        """Take records that fit."""

    def close(self) -> None:
        """Write the end of the file."""


class Outlet:
    """The file below a sink: counts what is written, and is closed by its owner alone."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._file.closed:
            return len(view)  # a library that ends the file of an attempt that was given up
        self._file.write(view)
        self.count += len(view)
        return len(view)

    def tell(self) -> int:
        return self.count

    def flush(self) -> None:
        """Every write has already gone on."""

    def close(self) -> None:
        self.closed = True

    def finish(self) -> None:
        """Close the file itself."""
        if not self._file.closed:
            self._file.close()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class RowOutput(OutputWriter):
    """A part file of records with a schema."""

    wants_records = True
    wants_lines = True

    def __init__(
        self,
        create: Callable[[str], BinaryIO],
        name: str,
        suffix: str,
        open_sink: Callable[[Outlet, Fields], Sink],
        *,
        schema: str,
        rejects_percent: float,
        lazy: bool,
    ) -> None:
        super().__init__()
        self._create = create
        self._name = name
        self._suffix = suffix
        self._open_sink = open_sink
        self._rejects_percent = rejects_percent
        self._fields: Fields | None = parse_schema(schema) if schema else None
        self._held: list[bytes] = []
        self._held_bytes = self._held_lines = 0
        self._lines_done = 0
        self._rejects: BinaryIO | None = None
        self._outlet: Outlet | None = None
        self._sink: Sink | None = None
        if self._fields is not None and not lazy:
            self._begin(self._fields)

    def write(self, text: bytes, records: int = 0) -> None:
        if not text:
            return
        self._held.append(text)
        self._held_bytes += len(text)
        self._held_lines += records
        self.records_written += records
        known = self._fields is not None or self._held_lines >= SCHEMA_RECORDS
        if self._held_bytes >= (BLOCK_BYTES if known else HELD_BYTES_MAX):
            self._flush()

    def write_records(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            line = key + b"\t" + value if value else key
            self.write(line.replace(b"\n", b" ") + b"\n", 1)

    def close(self) -> None:
        self._flush()
        if self._sink is not None and self._outlet is not None:
            self._sink.close()
            self._outlet.finish()
            self.bytes_written = self._outlet.count
        if self._rejects is not None:
            self._rejects.close()
        allowed = self.records_written * self._rejects_percent / 100
        if self.rejected > allowed:
            raise BadRecord(
                f"{self.rejected} of {self.records_written} records do not fit the schema, more "
                f"than the {self._rejects_percent:g}% that may be rejected"
            )
        self.records_written -= self.rejected

    def abandon(self) -> None:
        for file in (self._outlet, self._rejects):
            if isinstance(file, Outlet):
                file.finish()
            elif file is not None:
                file.close()

    # --- a block

    def _flush(self) -> None:
        block, lines = b"".join(self._held), self._held_lines
        self._held, self._held_bytes, self._held_lines = [], 0, 0
        if not block:
            return
        if self._fields is None:
            self._fields = self._found_schema(block)
        sink = self._sink or self._begin(self._fields)
        # Lines without anything in them would be passed over in silence by who takes all at once.
        is_plain = b"\n\n" not in block and not block.startswith(b"\n")
        if not (is_plain and sink.take_lines(block, lines)):
            sink.take_rows(list(self._fitting(block, self._fields, sink)))
        self._lines_done += lines

    def _found_schema(self, block: bytes) -> Fields:
        records = []
        for number, line in enumerate(block.split(b"\n", SCHEMA_RECORDS)[:SCHEMA_RECORDS], 1):
            if not line:
                continue
            try:
                record = _loaded(line)
            except Misfit as error:
                self._may_reject(number, line, error)
                continue
            if not isinstance(record, dict):
                self._may_reject(number, line, Misfit("", "it is no JSON object"))
                continue
            records.append(record)
        fields = inferred(records)
        if not fields:
            raise BadRecord(
                "the first records of the output have no field to make a schema of: give one with "
                "-D mrstream.output.schema=NAME:TYPE,…"
            )
        return fields

    def _fitting(self, block: bytes, fields: Fields, sink: Sink) -> Iterator[dict[str, Any]]:
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, self._lines_done + 1):
            try:
                row = fitted(fields, _loaded(line))
                sink.check(row)
            except Misfit as error:
                self._may_reject(number, line, error)
                self._reject(number, line, error)
            else:
                yield row

    def _may_reject(self, number: int, line: bytes, error: Misfit) -> None:
        if not self._rejects_percent:
            raise BadRecord(f"line {number} of the output does not fit: {error}: {_shown(line)}")

    def _reject(self, number: int, line: bytes, error: Misfit) -> None:
        if self._rejects is None:
            self._rejects = self._create(f"{REJECTED}/{self._name}")
        self.rejected += 1
        why = " ".join(error.why.split())
        told = f"{number}\t{error.field}\t{why}\t".encode("utf-8", "backslashreplace")
        self._rejects.write(told + line + b"\n")

    def _begin(self, fields: Fields) -> Sink:
        self._outlet = Outlet(self._create(self._name + self._suffix))
        self._sink = self._open_sink(self._outlet, fields)
        return self._sink


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Misfit("", f"it is no JSON: {error}") from None


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 120 else text[:117] + "...")
