"""Stage 5: write a map's sorted runs to disk and join them into one segment file.

Takes what a map command writes, through the sort buffer; each time that is full, its runs
(combined, if the job has a combiner) become a spill, a segment file of its own. At the end
the only spill is renamed, or all are merged, at most `width_max` at once. A combiner runs on
each spill, and again in the last merge of three spills or more (spec 6.1). What a combiner
writes is sorted again if it is not in order, so that D1 holds whatever it does. Never runs a
process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Protocol

import msgspec

from mrstream.mapreduce.dataflow import block_codec, merger, segment
from mrstream.mapreduce.dataflow.block_codec import BlockCodec
from mrstream.mapreduce.dataflow.record_form import BLOCK_BYTES, FRAMED_FORM, RecordShape, WireForm
from mrstream.mapreduce.dataflow.segment import Block, PartitionEntry
from mrstream.mapreduce.dataflow.sort_buffer import SortBuffer, SortPlan

COMBINE_SPILLS_MIN = 3
Payload = bytes | memoryview


class Combiner(Protocol):
    """Joins the values of equal keys, for less to store and to fetch (MapReduce §4.3)."""

    @property
    def reads(self) -> WireForm:
        """The form in which it reads records."""

    @property
    def writes(self) -> RecordShape:
        """How its output is cut into records."""

    def __call__(self, partition: int, blobs: Iterator[Payload]) -> Iterator[bytes]:
        """Return the combined records of one sorted run; each call is a fresh run of it."""


class SpillPlan(msgspec.Struct, frozen=True):
    """Where and how a map's output is written."""

    sort: SortPlan
    path: str  # of the segment; spills lie beside it
    capacity_bytes: int
    width_max: int = 10
    codec: BlockCodec = block_codec.NONE
    combiner: Combiner | None = None
    combine_spills_min: int = COMBINE_SPILLS_MIN
    on_progress: Callable[[], None] = lambda: None  # called at every block of a spill or merge


class MapOutputCounts(msgspec.Struct, frozen=True):
    """What the counters of a map say about its output (spec 8.1)."""

    records: int  # Map output records
    bytes: int  # Map output bytes
    materialized_bytes: int
    spilled_records: int
    combine_input_records: int
    combine_output_records: int
    spills: int
    segment_bytes: int  # of the file


class _Combined(msgspec.Struct):
    """How many records went into the combiner and came out of it."""

    taken: int = 0
    given: int = 0


class MapOutput:
    """The output of one map: feed it, then `finish` gives its segment file.

    `path` exists only after `finish`, and then it is whole.
    """

    def __init__(self, plan: SpillPlan) -> None:
        self._plan = plan
        combiner = plan.combiner
        # What a combiner gives is kept in a buffer of its own until it is known to be in
        # order: both share the memory of one.
        self._combined_capacity_bytes = plan.capacity_bytes // 4 if combiner else 0
        self._buffer = SortBuffer(
            plan.sort,
            plan.capacity_bytes - self._combined_capacity_bytes,
            combiner.reads if combiner else FRAMED_FORM,
        )
        self._spills: list[str] = []
        self._entries: tuple[PartitionEntry, ...] = ()
        self._spill_count = 0
        self._spilled_records = 0
        self._combined = _Combined()
        self._combined_outputs = 0

    @property
    def records(self) -> int:
        """Records taken so far."""
        return self._buffer.records_total

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the map command's output."""
        taken = self._buffer.feed(data)
        while taken < len(data):
            self._spill()
            taken = self._buffer.feed(data, taken)

    def add(self, key: bytes, value: bytes) -> None:
        """Take one record of a built-in mapper."""
        if not self._buffer.add(key, value):
            self._spill()
            added = self._buffer.add(key, value)
            assert added, "an empty buffer takes any record"

    def finish(self) -> tuple[tuple[PartitionEntry, ...], MapOutputCounts]:
        """Write the segment; return where its partitions lie, and the counts."""
        if not self._buffer.finish():
            self._spill()
            finished = self._buffer.finish()
            assert finished, "an empty buffer takes any record"
        if self._buffer.records or not self._spills:
            self._spill()
        if len(self._spills) == 1:
            os.replace(self._spills[0], self._plan.path)
            self._spills.clear()
        else:
            self._merge_spills()
        return self._entries, self._counts()

    def abort(self) -> None:
        """Delete what was spilled."""
        for path in self._spills:
            _unlink(path)
        self._spills.clear()

    def _counts(self) -> MapOutputCounts:
        plan = self._plan
        return MapOutputCounts(
            records=self._buffer.records_total,
            bytes=self._buffer.bytes_total,
            # Hadoop ends each partition with two bytes and a checksum of four.
            materialized_bytes=sum(entry.hadoop_bytes + 6 for entry in self._entries),
            spilled_records=self._spilled_records,
            combine_input_records=self._combined.taken,
            combine_output_records=self._combined.given,
            spills=self._spill_count,
            segment_bytes=os.stat(plan.path).st_size,
        )

    # --- one spill

    def _spill(self) -> None:
        """Empty the buffer into a new spill file."""
        path = f"{self._plan.path}.spill{self._spill_count}"
        self._spill_count += 1
        self._spills.append(path)
        writer = self._writer(path)
        blob_bytes = merger.BLOB_BYTES if self._plan.combiner else BLOCK_BYTES
        try:
            for partition, blocks in self._buffer.runs_by_partition(blob_bytes):
                if self._plan.combiner is None:
                    self._append(writer, blocks)
                else:
                    self._append(writer, self._combine(partition, self._fed(blocks)))
        except BaseException:
            writer.abort()
            raise
        self._finish(writer)

    def _writer(self, path: str) -> segment.Writer:
        return segment.Writer(path, self._plan.sort.partitions, self._plan.codec)

    def _append(self, writer: segment.Writer, blocks: Iterator[Block]) -> None:
        for block in blocks:
            writer.append(block)
            self._plan.on_progress()

    def _finish(self, writer: segment.Writer) -> None:
        self._entries = writer.finish()
        self._spilled_records += sum(entry.records for entry in self._entries)

    # --- the combiner

    def _fed(self, blocks: Iterator[Block]) -> Iterator[Payload]:
        for block in blocks:
            self._combined.taken += block.records
            yield block.payload

    def _combine(self, partition: int, blobs: Iterator[Payload]) -> Iterator[Block]:
        """Yield what the combiner makes of a sorted run, in order."""
        combiner = self._plan.combiner
        assert combiner is not None, "the caller has checked that there is one"
        sorter = MapOutput(self._combined_plan(combiner))
        try:
            for data in combiner(partition, blobs):
                sorter.feed(data)
            for block in sorter.drain():
                self._combined.given += block.records
                yield msgspec.structs.replace(block, partition=partition)
        finally:
            sorter.abort()

    def _combined_plan(self, combiner: Combiner) -> SpillPlan:
        self._combined_outputs += 1
        return SpillPlan(
            sort=SortPlan(1, combiner.writes, order=self._plan.sort.order),
            path=f"{self._plan.path}.combined{self._combined_outputs}",
            capacity_bytes=self._combined_capacity_bytes,
            width_max=self._plan.width_max,
            codec=self._plan.codec,
        )

    def drain(self) -> Iterator[Block]:
        """Yield all records in order, in blocks, instead of writing a segment."""
        if not self._buffer.finish():
            self._spill()
            self._buffer.finish()
        if not self._spills:
            yield from self._buffer.runs()
            return
        if self._buffer.records:
            self._spill()
        with ExitStack() as opened:
            readers = [opened.enter_context(segment.Reader(path)) for path in self._spills]
            merged = self._merged_partition(0, FRAMED_FORM, readers)
            yield from merger.merged_blocks(0, merged)

    # --- the last merge

    def _merge_spills(self) -> None:
        """Merge all spills, partition by partition, into the segment."""
        plan = self._plan
        combine = plan.combiner is not None and len(self._spills) >= plan.combine_spills_min
        temporary = f"{plan.path}.merging"
        writer = self._writer(temporary)
        try:
            with ExitStack() as opened:
                readers = [opened.enter_context(segment.Reader(path)) for path in self._spills]
                for partition in range(plan.sort.partitions):
                    self._merge_partition(writer, partition, readers, combine)
            self._finish(writer)
            os.replace(temporary, plan.path)
        except BaseException:
            writer.abort()
            _unlink(temporary)
            raise
        self.abort()

    def _merge_partition(
        self,
        writer: segment.Writer,
        partition: int,
        readers: list[segment.Reader],
        combine: bool,
    ) -> None:
        combiner = self._plan.combiner
        if combine and combiner is not None:
            merged = self._merged_partition(partition, combiner.reads, readers)
            if sum(reader.entries[partition].records for reader in readers):
                self._append(writer, self._combine(partition, self._merged_blobs(merged)))
        else:
            merged = self._merged_partition(partition, FRAMED_FORM, readers)
            self._append(writer, merger.merged_blocks(partition, merged))

    def _merged_partition(
        self, partition: int, form: WireForm, readers: list[segment.Reader]
    ) -> merger.Merge:
        plan = self._plan
        runs: list[merger.Run] = [
            (lambda reader=reader: reader.run(partition))  # type: ignore[misc]
            for reader in readers
            if reader.entries[partition].records
        ]
        return merger.merge(
            runs,
            plan.sort.order,
            form,
            shape=plan.sort.shape,
            width_max=max(2, plan.width_max),
            scratch=os.path.dirname(plan.path) or ".",
            codec=plan.codec,
        )

    def _merged_blobs(self, merged: merger.Merge) -> Iterator[Payload]:
        for records, blob in merged.blobs():
            self._combined.taken += records
            yield blob


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):  # it was renamed, or never made
        os.unlink(path)
