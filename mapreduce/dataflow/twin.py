"""Used by stages 4 and 8 where the C kernel is not built, or does not know a rare order or
partitioner: the same records, the same bytes, in Python.

`Collector` and `MergeTree` give what their C namesakes give. C keeps a repeated key once
and so spills later; no reader sees that. `twin_lines` has the other half. Written
to be read beside the C code, and to judge it in tests. Never opens a file.
"""

from __future__ import annotations

from crc32c import crc32c

from mrstream.mapreduce.dataflow.record_form import (
    RECORD_OVERHEAD_BYTES,
    Cut,
    RecordShape,
    WireForm,
)
from mrstream.mapreduce.dataflow.twin_csv import CsvReader
from mrstream.mapreduce.dataflow.twin_lines import LineFeeder, LineRewriter, count_lines
from mrstream.mapreduce.dataflow.twin_records import (
    BINARY_CUTS,
    FRAME_HEADER_BYTES_MAX,
    decode_records,
    encode_records,
    frame,
    serial_bytes,
    stored_bytes,
    write_record,
)
from mrstream.streaming.records.comparator import (
    ByteOrder,
    ComparatorSpec,
    KeyFieldOrder,
    LongOrder,
    SerialFieldOrder,
    compare,
)
from mrstream.streaming.records.key_value import split
from mrstream.streaming.records.partitioner import PartitionerSpec, partition_record

__all__ = [
    "Collector",
    "CsvReader",
    "LineFeeder",
    "LineRewriter",
    "MergeTree",
    "count_lines",
    "crc32c",
    "decode_records",
    "encode_records",
]

_LF, _CR = 10, 13
_TYPED_END = 255
LARGEST_KEY_BYTES_MAX = 1024

Record = tuple[int, bytes, bytes]


class Collector:
    """See `kernel.Collector`."""

    def __init__(
        self,
        capacity_bytes: int,
        partitions: int,
        shape: RecordShape,
        partitioner: PartitionerSpec,
        order: ComparatorSpec,
        form: WireForm,
    ) -> None:
        self._capacity_bytes = capacity_bytes
        self._partitions = partitions
        self._shape = shape
        self._partitioner = partitioner
        self._order = order
        self._form = form
        self._records: list[Record] = []
        self._used_bytes = 0
        self._tail = b""  # of a record that is not complete
        self._after_cr = False
        self._ended = False
        self._at: int | None = None  # next record to give; None while records are taken
        self._last_key: bytes | None = None
        self.records_total = 0
        self.bytes_total = 0

    @property
    def records(self) -> int:
        return len(self._records)

    @property
    def partition(self) -> int:
        assert self._at is not None, "sort comes first"
        return self._records[self._at][0] if self._at < len(self._records) else -1

    # --- taking

    def feed(self, data: bytes | bytearray | memoryview, start: int = 0) -> int:
        assert self._at is None, "the records are being given back"
        data = bytes(data)
        if self._shape.cut in (Cut.LINES, Cut.KEY_LINES):
            return self._feed_lines(data, start)
        return self._feed_binary(data, start)

    def add(self, key: bytes, value: bytes) -> bool:
        assert self._at is None, "the records are being given back"
        return self._take(key, value, 0)

    def finish(self) -> bool:
        if not self._tail:
            return True
        if self._shape.cut not in (Cut.LINES, Cut.KEY_LINES):
            raise ValueError(f"the output ends inside a record, {len(self._tail)} bytes into it")
        if not self._take_line(self._tail, len(self._tail)):
            return False
        self._tail = b""
        return True

    def _feed_lines(self, data: bytes, at: int) -> int:
        if self._after_cr and at < len(data):
            self._after_cr = False
            if data[at] == _LF:
                at += 1
        while at < len(data):
            lf = data.find(b"\n", at)
            end = data.find(b"\r", at, lf if lf >= 0 else len(data))
            if end < 0:
                end = lf
            if end < 0:
                return self._keep_tail(data, at)
            tail_bytes = len(self._tail) + end - at if self._tail else 0
            if not self._take_line(self._tail + data[at:end], tail_bytes):
                return at
            self._tail = b""
            at = end + 1
            if data[end] == _CR:
                if at == len(data):
                    self._after_cr = True
                elif data[at] == _LF:
                    at += 1
        return at

    def _keep_tail(self, data: bytes, at: int) -> int:
        """Keep the beginning of a record; it takes up room like any other."""
        grown = len(self._tail) + len(data) - at
        if self._records and not self._has_room(FRAME_HEADER_BYTES_MAX + grown):
            return at
        self._tail += data[at:]
        return len(data)

    def _feed_binary(self, data: bytes, at: int) -> int:
        cut = BINARY_CUTS[self._shape.cut]
        typed = self._shape.cut == Cut.TYPED_BYTES
        while at < len(data) and not self._ended:
            if typed and not self._tail and data[at] == _TYPED_END:
                self._ended = True
                break
            tail_bytes = len(self._tail)
            source = self._tail + data[at:] if tail_bytes else data
            found = cut(source, 0 if tail_bytes else at)
            if found is None:
                return self._keep_tail(data, at)
            key, value, end = found
            if not self._take(key, value, end if tail_bytes else 0):
                return at
            self._tail = b""
            at = at + end - tail_bytes if tail_bytes else end
        return len(data) if self._ended else at

    def _has_room(self, size_bytes: int) -> bool:
        return self._used_bytes + size_bytes + RECORD_OVERHEAD_BYTES <= self._capacity_bytes

    def _take_line(self, line: bytes, tail_bytes: int) -> bool:
        if self._shape.cut == Cut.KEY_LINES:
            return self._take(line, b"", tail_bytes)
        key, value = split(line, self._shape.rule)
        return self._take(key, value, tail_bytes)

    def _take(self, key: bytes, value: bytes, tail_bytes: int) -> bool:
        """Take a record, False if there is no room; any record goes into an empty buffer.

        One that was begun in an earlier feed lies in the buffer already, as it came, with
        room for the largest header: that is what it needs then.
        """
        size = len(frame(key, value))
        needed = FRAME_HEADER_BYTES_MAX + tail_bytes if tail_bytes else size
        if self._records and not self._has_room(needed):
            return False
        where = 0
        if self._partitions > 1:
            where = partition_record(self._partitioner, key, value, self._partitions)
            if not 0 <= where < self._partitions:
                raise ValueError(f"Illegal partition for {key.decode(errors='replace')} ({where})")
        self._records.append((where, key, value))
        self._used_bytes += size + RECORD_OVERHEAD_BYTES
        self.records_total += 1
        self.bytes_total += serial_bytes(len(key), self._shape.key_serial)
        self.bytes_total += serial_bytes(len(value), self._shape.value_serial)
        return True

    # --- giving

    def sort(self) -> None:
        assert self._at is None, "already sorted"
        self._at = 0
        self._last_key = None
        match self._order:
            case ByteOrder():
                self._records.sort(key=lambda record: record[:2])
            case LongOrder(reverse=reverse):
                sign = -1 if reverse else 1
                self._records.sort(key=lambda r: (r[0], sign * _long(r[1])))
            case KeyFieldOrder() | SerialFieldOrder():
                self._records.sort(key=lambda record: record[0])
                self._merge_sort_partitions()

    def _merge_sort_partitions(self) -> None:
        sorted_records: list[Record] = []
        at = 0
        while at < len(self._records):
            end = at
            while end < len(self._records) and self._records[end][0] == self._records[at][0]:
                end += 1
            sorted_records += merge_sort(self._records[at:end], self._order)
            at = end
        self._records = sorted_records

    def next_blob(self, buffer: bytearray) -> tuple[int, int, int]:
        at, where = self._at, self.partition
        assert at is not None and where >= 0, "there is something left to give"
        records = size = hadoop_bytes = 0
        while at < len(self._records) and self._records[at][0] == where:
            _, key, value = self._records[at]
            written = write_record(key, value, self._form)
            if size + len(written) > len(buffer):
                break
            assert self._last_key is None or in_order(self._order, self._last_key, key), "D1"
            self._last_key = key
            buffer[size : size + len(written)] = written
            size += len(written)
            hadoop_bytes += stored_bytes(
                serial_bytes(len(key), self._shape.key_serial),
                serial_bytes(len(value), self._shape.value_serial),
            )
            records += 1
            at += 1
        self._at = at
        if not records:
            return 0, 0, len(written)
        if self.partition != where:
            self._last_key = None
        return records, hadoop_bytes, size

    def reset(self) -> None:
        self._records = []
        self._used_bytes = 0
        self._at = None


def _long(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True)


def in_order(order: ComparatorSpec, before: bytes, key: bytes) -> bool:
    """May `key` follow `before` in a run (D1)?

    Key fields compared as numbers are not a total order: there is nothing to check. Two keys
    without the field are each less than the other: that is no mistake either.
    """
    fields = order.fields if isinstance(order, SerialFieldOrder) else order
    if isinstance(fields, KeyFieldOrder):
        if any(spec.numeric for spec in fields.specs):
            return True
        return compare(order, before, key) <= 0 or compare(order, key, before) >= 0
    return compare(order, before, key) <= 0


def merge_sort(records: list[Record], order: ComparatorSpec) -> list[Record]:
    """Sort from the bottom up, stable: runs of 1, 2, 4 … records, the left one first on a tie.

    Runs that are in order as they stand are not merged. The C kernel has the same borders and
    makes the same comparisons: the outcome is the same also where the order is not transitive.
    """
    width = 1
    while width < len(records):
        merged: list[Record] = []
        for low in range(0, len(records), 2 * width):
            left, right = records[low : low + width], records[low + width : low + 2 * width]
            if not right or compare(order, left[-1][1], right[0][1]) <= 0:
                merged += left + right
                continue
            i = j = 0
            while i < len(left) and j < len(right):
                if compare(order, left[i][1], right[j][1]) <= 0:
                    merged.append(left[i])
                    i += 1
                else:
                    merged.append(right[j])
                    j += 1
            merged += left[i:]
            merged += right[j:]
        records = merged
        width *= 2
    return records


class MergeTree:
    """See `kernel.MergeTree`.

    A loser tree: leaves `runs` … 2 · `runs` - 1 are the runs, node i's children 2i and 2i + 1;
    a node keeps who lost there, so that a new record is compared once a level.
    """

    def __init__(
        self, runs: int, order: ComparatorSpec, form: WireForm, shape: RecordShape
    ) -> None:
        self._runs = runs
        self._order = order
        self._form = form
        self._shape = shape
        self._waiting = [True] * runs
        self._blocks: list[list[tuple[bytes, bytes]]] = [[] for _ in range(runs)]  # reversed
        self._losers: list[int] = []
        self._winner = -1
        self._advancing = -1  # a run whose next record is to be matched
        self._parts: list[bytes] = []
        self._size = 0
        self._last_key: bytes | None = None
        self._group_records = 0
        self._largest: tuple[bytes, int] = (b"", 0)
        self.records = 0
        self.groups = 0
        self.hadoop_bytes = 0

    @property
    def largest_group(self) -> tuple[bytes, int]:
        if self._last_key is not None and self._group_records > self._largest[1]:
            return self._last_key[:LARGEST_KEY_BYTES_MAX], self._group_records
        return self._largest

    def supply(self, run: int, block: bytes | memoryview | None) -> None:
        assert self._waiting[run], f"run {run} has records left"
        if block is None:
            self._waiting[run] = False
        elif block:
            self._blocks[run] = decode_records(block)[::-1]
            self._waiting[run] = False

    def step(self, size_bytes: int) -> tuple[int, int, bytes | None]:
        if self._winner < 0 and self._runs:
            if True in self._waiting:
                return self._waiting.index(True), 0, None
            self._build()
        while self._runs:
            if self._advancing >= 0:
                if self._waiting[self._advancing]:
                    return self._advancing, 0, None
                self._replay(self._advancing)
                self._advancing = -1
            block = self._blocks[self._winner]
            if not block:
                break
            key, value = block[-1]
            written = write_record(key, value, self._form)
            if self._parts and self._size + len(written) > size_bytes:
                return self._flush()
            self._count(key, value)
            self._parts.append(written)
            self._size += len(written)
            block.pop()
            self._waiting[self._winner] = not block
            self._advancing = self._winner
        return self._flush() if self._parts else (-1, 0, None)

    def _flush(self) -> tuple[int, int, bytes]:
        parts, self._parts, self._size = self._parts, [], 0
        return -1, len(parts), b"".join(parts)

    def _count(self, key: bytes, value: bytes) -> None:
        if key == self._last_key:
            self._group_records += 1
        else:
            if self._last_key is not None and not in_order(self._order, self._last_key, key):
                raise ValueError(f"run {self._winner} is not in order (D1) at key {key[:40]!r}")
            self._largest = self.largest_group
            self._last_key = key
            self._group_records = 1
            self.groups += 1
        self.records += 1
        self.hadoop_bytes += stored_bytes(
            serial_bytes(len(key), self._shape.key_serial),
            serial_bytes(len(value), self._shape.value_serial),
        )

    def _beats(self, a: int, b: int) -> bool:
        """Does the record of run `a` come before that of run `b`?"""
        if a > b:
            return not self._beats(b, a)
        if not self._blocks[a]:
            return not self._blocks[b]
        return not self._blocks[b] or (
            compare(self._order, self._blocks[a][-1][0], self._blocks[b][-1][0]) <= 0
        )

    def _build(self) -> None:
        winners = [0] * self._runs + list(range(self._runs))
        self._losers = [0] * self._runs
        for node in range(self._runs - 1, 0, -1):
            left, right = winners[2 * node], winners[2 * node + 1]
            left_wins = self._beats(left, right)
            winners[node] = left if left_wins else right
            self._losers[node] = right if left_wins else left
        self._winner = winners[1] if self._runs > 1 else 0

    def _replay(self, run: int) -> None:
        winner = run
        node = (run + self._runs) // 2
        while node:
            if self._beats(self._losers[node], winner):
                winner, self._losers[node] = self._losers[node], winner
            node //= 2
        self._winner = winner
