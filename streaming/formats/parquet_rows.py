"""Parquet files as lines: the row groups that begin in a range, only the columns asked for.

Row groups whose statistics say that no row of theirs passes the filter are not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mrstream.streaming.formats.arrow_rows import BatchRows
from mrstream.streaming.formats.row_file import RecordFileCorrupt, WholeReads, decoded
from mrstream.streaming.formats.row_filter import may_hold
from mrstream.streaming.formats.row_lines import BATCH_ROWS


class ParquetRows(BatchRows):
    """The row groups that begin in the range."""

    def _opened(self, whole: WholeReads) -> tuple[Any, Sequence[str]]:
        file = pa.PythonFile(whole, mode="r")
        opened: Any = decoded(
            self._url, lambda: pq.ParquetFile(file, page_checksum_verification=True)
        )
        return opened, opened.schema_arrow.names

    def _batches(self) -> Iterator[tuple[int, Any]]:
        for group, first_byte in self.groups():
            for batch in self._file.iter_batches(
                BATCH_ROWS, row_groups=[group], columns=self._chosen.read, use_threads=False
            ):
                yield first_byte, batch

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
