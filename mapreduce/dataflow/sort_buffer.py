"""Stage 4: collect a map's output in bounded memory and give it back as sorted runs.

Takes the bytes that a map command writes (or records, from a built-in); gives runs of
framed records by partition, in comparator order, records of one key in the order of their
emission. Records, index and scratch together stay within `capacity_bytes`; only a single
record that is larger than that may pass it. Never writes a file.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mrstream.mapreduce.dataflow import kernel
from mrstream.mapreduce.dataflow.record_form import (
    BLOCK_BYTES,
    FRAMED_FORM,
    TEXT_RECORDS,
    RecordShape,
    WireForm,
)
from mrstream.mapreduce.dataflow.segment import Block
from mrstream.mapreduce.program.errors import TaskFailed
from mrstream.streaming.records.comparator import BYTE_ORDER, ComparatorSpec
from mrstream.streaming.records.partitioner import HashPartition, PartitionerSpec

CAPACITY_BYTES_MIN = 4096
CAPACITY_BYTES_MAX = (1 << 31) - 1  # the index keeps 32-bit offsets; Hadoop's limit is the same


HASH_PARTITION = HashPartition()


class MalformedOutput(TaskFailed):
    """A command's binary output is not what its format says."""


class SortPlan(msgspec.Struct, frozen=True):
    """How a job's map output is cut, dealt to partitions and ordered."""

    partitions: int
    shape: RecordShape = TEXT_RECORDS
    partitioner: PartitionerSpec = HASH_PARTITION
    order: ComparatorSpec = BYTE_ORDER


class SortBuffer:
    """Records of one map that are not on disk yet.

    The caller feeds; what `feed`, `add` or `finish` did not take is to be offered again
    after `runs` has been consumed to its end, which empties the buffer.
    """

    def __init__(self, plan: SortPlan, capacity_bytes: int, form: WireForm = FRAMED_FORM) -> None:
        capacity_bytes = min(max(capacity_bytes, CAPACITY_BYTES_MIN), CAPACITY_BYTES_MAX)
        self._collector = kernel.collector(
            capacity_bytes, plan.partitions, plan.shape, plan.partitioner, plan.order, form
        )
        self._blob = bytearray()

    @property
    def records(self) -> int:
        """Records in memory now."""
        return self._collector.records

    @property
    def records_total(self) -> int:
        """Records taken since the beginning (Map output records)."""
        return self._collector.records_total

    @property
    def bytes_total(self) -> int:
        """Their size as Hadoop counts it (Map output bytes)."""
        return self._collector.bytes_total

    def feed(self, data: bytes | bytearray | memoryview, start: int = 0) -> int:
        """Take data[start:]; return up to where it was taken, less than all when full."""
        try:
            return self._collector.feed(data, start)
        except ValueError as error:
            raise MalformedOutput(str(error)) from error

    def add(self, key: bytes, value: bytes) -> bool:
        """Take one record; False when full."""
        return self._collector.add(key, value)

    def finish(self) -> bool:
        """The command's output has ended: take a last line without end; False when full."""
        try:
            return self._collector.finish()
        except ValueError as error:
            raise MalformedOutput(str(error)) from error

    def runs(self, size_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
        """Sort, give everything in blocks, in partition order, and be empty at the end.

        A block's payload is good until the next block is asked for: they share one buffer.
        """
        for _, blocks in self.runs_by_partition(size_bytes):
            yield from blocks

    def runs_by_partition(
        self, size_bytes: int = BLOCK_BYTES
    ) -> Iterator[tuple[int, Iterator[Block]]]:
        """The same, partition by partition; what a partition's consumer leaves is dropped."""
        collector = self._collector
        collector.sort()
        while (partition := collector.partition) >= 0:
            blocks = self._blocks_of(partition, size_bytes)
            yield partition, blocks
            for _ in blocks:
                pass
        collector.reset()

    def _blocks_of(self, partition: int, size_bytes: int) -> Iterator[Block]:
        collector = self._collector
        if len(self._blob) != size_bytes:
            self._blob = bytearray(size_bytes)
        while collector.partition == partition:
            blob = self._blob
            records, hadoop_bytes, length = collector.next_blob(blob)
            if not records:
                blob = bytearray(length)  # one record, larger than all that come together
                records, hadoop_bytes, length = collector.next_blob(blob)
            yield Block(partition, records, hadoop_bytes, memoryview(blob)[:length])
