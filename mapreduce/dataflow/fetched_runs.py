"""Beside stage 7: where fetched partitions lie until they are merged.

In memory up to a bound; beyond it groups of adjacent maps are merged into files. A partition too
big for memory goes straight to disk. Gives runs in the order of the maps. A file is open only while
its run is read: there may be many more runs than descriptors.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mrstream.cluster.disk import WRITE_BYTES
from mrstream.cluster.wire.network import BulkStream
from mrstream.mapreduce.dataflow import block_codec, segment
from mrstream.mapreduce.dataflow.block_codec import BlockCodec
from mrstream.mapreduce.dataflow.merger import Merge, merged_blocks
from mrstream.mapreduce.dataflow.record_form import FRAMED_FORM, RecordShape
from mrstream.mapreduce.dataflow.segment import PartitionEntry, Raw
from mrstream.streaming.records.comparator import ComparatorSpec

BIG_SHARE = 16
"""A partition of more than 1/16 of the memory reserves its room first, since several come at
once."""
HUGE_SHARE = 2
"""One of more than half of the memory goes to disk always."""
_OWN_PAGES = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_OWN_PAGES_BYTES_MIN = 1 << 18


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How runs are merged, and with what."""

    order: ComparatorSpec
    shape: RecordShape
    memory_bytes: int
    scratch: str
    codec: BlockCodec = block_codec.NONE


@dataclass(slots=True)
class FetchedRun:
    """The partition of one map, or of adjacent maps merged; `run` opens its verified blocks."""

    first_map: int
    last_map: int
    entry: PartitionEntry
    run: Callable[[], Iterator[Raw]]
    held_bytes: int = 0


class FetchedRuns:
    """What is here so far. `receive` and `local` may be called by many threads at once."""

    def __init__(self, partition: int, rule: MergeRule) -> None:
        self._partition = partition
        self._rule = rule
        self._lock = threading.Lock()
        self._kept: dict[int, FetchedRun] = {}
        self._files: list[str] = []
        self._held_bytes = 0
        self._promised_bytes = 0

    def receive(
        self, map_index: int, entry: PartitionEntry, stream: BulkStream, source: str
    ) -> FetchedRun:
        """Take a partition off a stream and verify it; raises SegmentCorrupt after taking it."""
        is_big = entry.length > self._rule.memory_bytes // BIG_SHARE
        if is_big and not self._promise(entry.length):
            return self._receive_to_disk(map_index, entry, stream, source)
        try:
            payload = memoryview(_room(entry.length))
            stream.receive_into(payload)
        finally:
            if is_big:
                self._take_promise_back(entry.length)
        run = FetchedRun(
            map_index,
            map_index,
            entry,
            lambda: self._blocks(_reading(payload), entry, source),
            len(payload),
        )
        _verify(run)
        return run

    def local(self, map_index: int, path: str) -> FetchedRun:
        """Take a segment of this host as it lies; it is verified as it is read."""
        with segment.Reader(path) as reader:
            entry = reader.entries[self._partition]
        return FetchedRun(map_index, map_index, entry, lambda: _run_of(path, self._partition))

    def keep(self, run: FetchedRun) -> None:
        """This run counts; makes room if memory is full."""
        with self._lock:
            self._kept[run.first_map] = run
            self._held_bytes += run.held_bytes
            if self._held_bytes > self._rule.memory_bytes:
                self._make_room()

    def in_map_order(self) -> list[FetchedRun]:
        """Return all runs that count."""
        with self._lock:
            return [self._kept[first] for first in sorted(self._kept)]

    def close(self) -> None:
        """Delete everything that was brought here."""
        with self._lock:
            for path in self._files:
                if os.path.exists(path):
                    os.unlink(path)
            self._kept.clear()

    # --- memory and disk

    def _promise(self, length: int) -> bool:
        """Set memory aside for what is on its way, if there is so much."""
        memory_bytes = self._rule.memory_bytes
        with self._lock:
            has_room = self._held_bytes + self._promised_bytes + length <= memory_bytes
            if not has_room or length > memory_bytes // HUGE_SHARE:
                return False
            self._promised_bytes += length
            return True

    def _take_promise_back(self, length: int) -> None:
        """It is here, or did not come. However much is held by then: others came meanwhile."""
        with self._lock:
            self._promised_bytes -= length
            assert self._promised_bytes >= 0

    def _make_room(self) -> None:
        """Merge groups of adjacent maps held in memory to disk, all that are in memory."""
        group: list[FetchedRun] = []
        for first in sorted(self._kept):
            run = self._kept[first]
            if group and (run.first_map != group[-1].last_map + 1 or not run.held_bytes):
                self._spill(group)
                group = []
            if run.held_bytes:
                group.append(run)
        if group:
            self._spill(group)
        self._held_bytes = 0

    def _spill(self, group: list[FetchedRun]) -> None:
        path = self._new_file()
        writer = segment.Writer(path, 1, self._rule.codec)
        merged = Merge([run.run for run in group], self._rule.order, FRAMED_FORM, self._rule.shape)
        for block in merged_blocks(0, merged):
            writer.append(block)
        (written,) = writer.finish()
        # The figures stay those of what was fetched: they are what counters count.
        entry = PartitionEntry(
            written.offset,
            sum(run.entry.length for run in group),
            written.records,
            sum(run.entry.raw_bytes for run in group),
            sum(run.entry.hadoop_bytes for run in group),
        )
        for run in group:
            del self._kept[run.first_map]
        self._kept[group[0].first_map] = FetchedRun(
            group[0].first_map, group[-1].last_map, entry, lambda: _run_of(path, 0)
        )

    def _receive_to_disk(
        self, map_index: int, entry: PartitionEntry, stream: BulkStream, source: str
    ) -> FetchedRun:
        path = self._new_file()
        left = entry.length
        buffer = bytearray(min(left, WRITE_BYTES))
        with open(path, "wb") as file:
            while left > 0:
                count = stream.receive_some(memoryview(buffer)[: min(left, len(buffer))])
                file.write(memoryview(buffer)[:count])
                left -= count

        def blocks() -> Iterator[Raw]:
            with open(path, "rb", buffering=0) as file:
                yield from self._blocks(file.read, entry, source)

        run = FetchedRun(map_index, map_index, entry, blocks)
        _verify(run)
        return run

    def _blocks(
        self, read: Callable[[int], Raw], entry: PartitionEntry, source: str
    ) -> Iterator[Raw]:
        return segment.blocks_of(read, entry.length, self._partition, entry.records, source)

    def _new_file(self) -> str:
        descriptor, path = tempfile.mkstemp(".run", "fetched-", self._rule.scratch)
        os.close(descriptor)
        self._files.append(path)
        return path


def _room(length: int) -> bytearray | mmap.mmap:
    """Memory for what comes; pages of its own are cleared by the system alone, not by us before,
    and given back at once."""
    return (
        mmap.mmap(-1, length, _OWN_PAGES) if length >= _OWN_PAGES_BYTES_MIN else bytearray(length)
    )


def _run_of(path: str, partition: int) -> Iterator[Raw]:
    with segment.Reader(path) as reader:
        yield from reader.run(partition)


def _reading(payload: memoryview) -> Callable[[int], Raw]:
    """Return what was received as it lies: it is read twice, and a copy costs more than its sum."""
    position = 0

    def read(size: int) -> memoryview:
        nonlocal position
        piece = payload[position : position + size]
        position += len(piece)
        return piece

    return read


def _verify(run: FetchedRun) -> None:
    for _ in run.run():
        pass
