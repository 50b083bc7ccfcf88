"""Used by stages 2, 4, 8 and 9: the only code that touches records one by one.

Picks the C kernel where it was built, else its pure Python twin, which gives the
same bytes about ten times slower. `MRSTREAM_KERNEL=native` or `=python` in the
environment forces one. Takes the plain specs of `streaming`, gives small stateful
objects that are fed and asked for bytes. Never opens a file; the C one lets other
threads run while it works.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable
from types import ModuleType
from typing import Protocol, cast

from cluster.errors import UserError
from mapreduce.dataflow import twin
from mapreduce.dataflow.record_form import Cut, LineInput, RecordShape, WireForm
from streaming.comparator import ByteOrder, ComparatorSpec, KeyFieldOrder, KeySpec, LongOrder
from streaming.key_value import KeyValueRule
from streaming.partitioner import (
    BinaryPartition,
    HashPartition,
    KeyFieldPartition,
    LongHashPartition,
    PartitionerSpec,
    StringHashPartition,
    TotalOrderPartition,
)

log = logging.getLogger(__name__)


def _load_native() -> ModuleType | None:
    """Return the C kernel, or None for the twin."""
    wish = os.environ.get("MRSTREAM_KERNEL", "")
    if wish not in ("", "native", "python"):
        raise UserError(f"MRSTREAM_KERNEL is {wish!r}; it must be native, python or unset")
    if wish == "python":
        return None
    try:
        return importlib.import_module("mapreduce.dataflow._kernel")
    except ImportError:
        if wish == "native":
            raise
        log.warning(
            "the C kernel is not built, so the slower Python one is in use; "
            "with a C compiler at hand, installing mrstream again builds it"
        )
        return None


native = _load_native()
IS_NATIVE = native is not None

BLOCK_BYTES = twin.BLOCK_BYTES
RECORD_OVERHEAD_BYTES = twin.RECORD_OVERHEAD_BYTES


class Collector(Protocol):
    """Cuts bytes into records, keeps them in bounded memory, and gives them back sorted.

    Order: partition, then key, then emission. After `sort`, `next_blob` gives them
    until `partition` is -1; `reset` then makes room for the next ones.
    """

    @property
    def records_total(self) -> int:
        """Records taken since the beginning."""

    @property
    def bytes_total(self) -> int:
        """Their size as Hadoop counts it (spec 8.1, Map output bytes)."""

    @property
    def records(self) -> int:
        """Records in memory now."""

    @property
    def partition(self) -> int:
        """The partition of the next blob; -1 at the end."""

    def feed(self, data: bytes | bytearray | memoryview, start: int = 0) -> int:
        """Take data[start:]; return up to where. Less than all means full: sort, empty, reset."""

    def add(self, key: bytes, value: bytes) -> bool:
        """Take one record; False means full."""

    def finish(self) -> bool:
        """The data has ended: take a last line without end; False means full."""

    def sort(self) -> None:
        """Sort what is in memory; nothing can be taken until `reset`."""

    def next_blob(self, size_bytes: int) -> tuple[int, int, bytes]:
        """Return (records, Hadoop's bytes for them, bytes) of `partition`: as many whole
        records as fit into `size_bytes`, at least one."""

    def reset(self) -> None:
        """Forget the records; an unfinished last line is kept."""


class MergeTree(Protocol):
    """Merges sorted runs of framed records; equal keys come in the order of the runs."""

    @property
    def records(self) -> int:
        """Records given so far."""

    @property
    def groups(self) -> int:
        """Different whole keys among them."""

    @property
    def largest_group(self) -> tuple[bytes, int]:
        """The key with the most records so far, and how many."""

    @property
    def hadoop_bytes(self) -> int:
        """What Hadoop would have stored for them, lengths included."""

    def supply(self, run: int, block: bytes | None) -> None:
        """Give the next block of a run; None ends it."""

    def step(self, size_bytes: int) -> tuple[int, int, bytes | None]:
        """Return (run that needs a block or -1, records, blob or None); (-1, 0, None) is the end.

        Raises ValueError where a run is not in order (D1).
        """


class LineFeeder(Protocol):
    """Cuts the bytes of a split into lines and writes them for a map command."""

    @property
    def records(self) -> int:
        """Lines given so far."""

    @property
    def done(self) -> bool:
        """The next line belongs to the next split: no more data is needed."""

    @property
    def position(self) -> int:
        """Offset behind the last byte looked at."""

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return what the command reads next."""

    def finish(self) -> bytes:
        """The data has ended: return the last line, if it had no end."""


class LineRewriter(Protocol):
    """Turns a command's lines into those of an output file."""

    @property
    def records(self) -> int:
        """Lines given so far."""

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the lines that are complete now."""

    def finish(self) -> bytes:
        """The data has ended: return the last line, if it had no end."""


def collector(
    capacity_bytes: int,
    partitions: int,
    shape: RecordShape,
    partitioner: PartitionerSpec,
    order: ComparatorSpec,
    form: WireForm,
) -> Collector:
    """Return an empty collector; records, index and scratch stay within `capacity_bytes`."""
    if native is None:
        return twin.Collector(capacity_bytes, partitions, shape, partitioner, order, form)
    return cast(
        Collector,
        native.Collector(
            capacity_bytes,
            partitions,
            (
                int(shape.cut),
                shape.rule.separator,
                shape.rule.key_fields,
                int(shape.key_serial),
                int(shape.value_serial),
            ),
            _partitioner_plan(partitioner),
            _order_plan(order),
            _form_plan(form),
        ),
    )


def merge_tree(runs: int, order: ComparatorSpec, form: WireForm, shape: RecordShape) -> MergeTree:
    """Return a tree over `runs` runs; every run waits for its first block."""
    if native is None:
        return twin.MergeTree(runs, order, form, shape)
    return cast(
        MergeTree,
        native.MergeTree(
            runs,
            _order_plan(order),
            _form_plan(form),
            int(shape.key_serial),
            int(shape.value_serial),
        ),
    )


def line_feeder(of: LineInput) -> LineFeeder:
    """Return a feeder at `of.start`."""
    if native is None:
        return twin.LineFeeder(of)
    return cast(
        LineFeeder,
        native.LineFeeder(
            int(of.form),
            of.start,
            -1 if of.end is None else of.end,
            of.skip_first,
            of.separator,
            of.key_end,
            of.line_bytes_max,
            of.strip_bom,
        ),
    )


def line_rewriter(cut: Cut, rule: KeyValueRule, separator: bytes) -> LineRewriter:
    """Return a rewriter: each line is cut by `rule` and joined by `separator` (spec 4.4).

    With `Cut.KEY_LINES` a line stays as it is: key only, no separator.
    """
    assert cut in (Cut.LINES, Cut.KEY_LINES), f"lines are rewritten, not {cut.name}"
    if native is None:
        return twin.LineRewriter(cut, rule, separator)
    return cast(
        LineRewriter,
        native.LineRewriter(cut == Cut.KEY_LINES, rule.separator, rule.key_fields, separator),
    )


def decode_records(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the records of a block of frames; ValueError if it does not end at a record."""
    if native is None:
        return twin.decode_records(block)
    return cast("list[tuple[bytes, bytes]]", native.decode_records(block))


def encode_records(records: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the frames of records, one behind the other."""
    return twin.encode_records(records)


# ---- specs as the plain tuples that C understands ------------------------------------------


def _key_specs(specs: tuple[KeySpec, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        (
            spec.first_field,
            spec.first_byte,
            spec.last_field,
            spec.last_byte,
            int(spec.numeric),
            int(spec.reverse),
        )
        for spec in specs
    )


def _order_plan(order: ComparatorSpec) -> tuple[object, ...]:
    match order:
        case ByteOrder():
            return (0, b"", 0, ())
        case LongOrder(reverse=reverse):
            return (2 if reverse else 1, b"", 0, ())
        case KeyFieldOrder():
            return (3, order.separator, int(order.whole_key), _key_specs(order.specs))


def _partitioner_plan(partitioner: PartitionerSpec) -> tuple[object, ...]:
    """Return (kind, separator, whole key, key specs, left, right, cuts, order of the cuts)."""
    no_order = _order_plan(ByteOrder())
    match partitioner:
        case HashPartition():
            return (0, b"", 0, (), 0, 0, (), no_order)
        case LongHashPartition():
            return (1, b"", 0, (), 0, 0, (), no_order)
        case StringHashPartition():
            return (2, b"", 0, (), 0, 0, (), no_order)
        case KeyFieldPartition(specs=specs, separator=separator, whole_key=whole_key):
            return (3, separator, int(whole_key), _key_specs(specs), 0, 0, (), no_order)
        case BinaryPartition(left=left, right=right):
            return (4, b"", 0, (), left, right, (), no_order)
        case TotalOrderPartition(cuts=cuts, order=order):
            return (5, b"", 0, (), 0, 0, tuple(cuts), _order_plan(order))


def _form_plan(form: WireForm) -> tuple[object, ...]:
    return (int(form.framed), int(form.key), form.separator, int(form.value), form.end)
