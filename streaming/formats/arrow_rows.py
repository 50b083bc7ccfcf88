"""Arrow IPC files (Feather version 2) and streams as lines, batch by batch.

Where a batch lies in a file is Arrow's own affair, so the batches of a file are dealt out over its
bytes evenly: batch i of n belongs to the range that holds byte i/n of the file. A stream has no
table of its batches: who has its first byte reads all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from mrstream.streaming.formats.row_file import (
    RecordFileCorrupt,
    Source,
    WholeReads,
    decoded,
    guarded,
)
from mrstream.streaming.formats.row_filter import Condition, Selection
from mrstream.streaming.formats.row_lines import LINES_OF

_FILE_MAGIC = b"ARROW1"
_FEATHER_1_MAGIC = b"FEA1"


class BatchRows:
    """Rows that Arrow reads batch by batch: those of the batches that belong to [start, end)."""

    def __init__(
        self,
        source: Source,
        start: int,
        end: int,
        *,
        columns: Sequence[str] = (),
        where: Sequence[Condition] = (),
        form: str = "json",
    ) -> None:
        self.records = 0
        self.position = start
        """Where the batch lies that is being read, or about there."""
        self._url = source.url
        self._start, self._end = start, end
        self._lines_of = LINES_OF[form]
        whole = WholeReads(source)
        self._size = whole.size
        self._file, names = self._opened(whole)
        self._chosen = Selection(self._url, names, columns, where)

    def lines(self) -> Iterator[bytes]:
        return guarded(self._url, self._lines())

    def _lines(self) -> Iterator[bytes]:
        for at, batch in self._batches():
            self.position = at
            batch.validate(full=True)
            wanted = self._chosen.of(batch)
            yield from self._lines_of(wanted)
            self.records += wanted.num_rows

    def _opened(self, whole: WholeReads) -> tuple[Any, Sequence[str]]:
        """Return the file as Arrow reads it, and the names of its columns."""
        raise NotImplementedError

    def _batches(self) -> Iterator[tuple[int, Any]]:
        """Yield where a batch lies, and the batch."""
        raise NotImplementedError


class ArrowRows(BatchRows):
    """An IPC file, or a stream."""

    def _opened(self, whole: WholeReads) -> tuple[Any, Sequence[str]]:
        magic = whole.read(len(_FILE_MAGIC))
        whole.seek(0)
        if magic.startswith(_FEATHER_1_MAGIC):
            raise RecordFileCorrupt(
                f"{self._url} is Feather version 1; write it again as version 2, or as Parquet"
            )
        self._is_file = magic == _FILE_MAGIC
        open_it = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
        file = pa.PythonFile(whole, mode="r")
        reader: Any = decoded(self._url, lambda: open_it(file))
        return reader, reader.schema.names

    def _batches(self) -> Iterator[tuple[int, Any]]:
        if not self._is_file:
            if self._start == 0:
                for batch in self._file:
                    yield 0, batch
            return
        count = self._file.num_record_batches
        for index in range(count):
            at = index * self._size // count
            if self._start <= at < self._end:
                yield at, self._file.get_batch(index)
