"""Parquet files as lines: the row groups that begin in a range, only the columns asked for.

Row groups whose statistics say that no row of theirs passes the filter are not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mrstream.streaming.formats.row_file import (
    RecordFileCorrupt,
    Source,
    WholeReads,
    decoded,
    guarded,
)
from mrstream.streaming.formats.row_filter import Condition, Selection, may_hold
from mrstream.streaming.formats.row_lines import BATCH_ROWS, LINES_OF


class ParquetRows:
    """The rows of the row groups that begin in [start, end)."""

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
        self._url = source.url
        self.position = start
        """Where the row group begins that is being read."""
        self._lines_of = LINES_OF[form]
        self._start, self._end = start, end
        whole = WholeReads(source)
        self._size = whole.size
        file = pa.PythonFile(whole, mode="r")
        self._file: Any = decoded(
            self._url, lambda: pq.ParquetFile(file, page_checksum_verification=True)
        )
        self._chosen = Selection(self._url, self._file.schema_arrow.names, columns, where)

    def lines(self) -> Iterator[bytes]:
        """Return blobs of whole lines."""
        return guarded(self._url, self._lines())

    def _lines(self) -> Iterator[bytes]:
        for group, first_byte in self.groups():
            self.position = first_byte
            batches = self._file.iter_batches(
                BATCH_ROWS, row_groups=[group], columns=self._chosen.read, use_threads=False
            )
            for batch in batches:
                batch.validate(full=True)
                wanted = self._chosen.of(batch)
                yield from self._lines_of(wanted)
                self.records += wanted.num_rows

    def groups(self) -> list[tuple[int, int]]:
        """Return (number, first byte) of the row groups that are to be read."""
        metadata = self._file.metadata
        found = []
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            first_byte = _first_byte(group)
            if first_byte >= self._size:
                raise RecordFileCorrupt(
                    f"{self._url}: row group {index} begins at byte {first_byte} of {self._size}"
                )
            if self._start <= first_byte < self._end and self._may_pass(group):
                found.append((index, first_byte))
        return found

    def _may_pass(self, group: Any) -> bool:
        if not self._chosen.where:
            return True
        columns = {
            group.column(index).path_in_schema: group.column(index)
            for index in range(group.num_columns)
        }
        for condition in self._chosen.where:
            column = columns.get(condition.column)
            statistics = column.statistics if column is not None else None
            if statistics is None or not statistics.has_min_max:
                continue
            if not may_hold(condition, statistics.min, statistics.max):
                return False
        return True


def _first_byte(group: Any) -> int:
    """Where a row group begins: 0 for one without columns or pages, so that some range has it."""
    starts = []
    for index in range(group.num_columns):
        column = group.column(index)
        pages = [column.data_page_offset]
        if column.has_dictionary_page and column.dictionary_page_offset:
            pages.append(column.dictionary_page_offset)
        starts.append(min(pages))
    return max(0, min(starts, default=0))
