"""Used by stages 2, 4, 8 and 9: the only code that touches records one by one.

Picks the C kernel where it was built, else its pure Python twin, which gives the
same bytes about ten times slower. `MRSTREAM_KERNEL=native` or `=python` in the
environment forces one. Orders and partitioners that few jobs ever ask for are known to
the twin alone, which then does the job's collecting and merging. Takes the plain specs
of `streaming`, gives small stateful objects that are fed and asked for bytes. Never
opens a file; the C one lets other threads run while it works.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.dataflow.record_form import (
    CsvInput,
    Cut,
    LineInput,
    RecordShape,
    WireForm,
)
from mrstream.streaming.records.comparator import (
    ByteOrder,
    ComparatorSpec,
    KeyFieldOrder,
    KeySpec,
    LongOrder,
    SerialFieldOrder,
)
from mrstream.streaming.records.key_value import KeyValueRule
from mrstream.streaming.records.partitioner import (
    BinaryPartition,
    HashPartition,
    KeyFieldPartition,
    KeyPartitionerSpec,
    LongHashPartition,
    PartitionerSpec,
    StringHashPartition,
    TextOfKeyPartition,
    TotalOrderPartition,
    ValuePartition,
)

if TYPE_CHECKING:
    from mrstream.mapreduce.dataflow.kernel_types import Collector as Collector
    from mrstream.mapreduce.dataflow.kernel_types import CsvReader as CsvReader
    from mrstream.mapreduce.dataflow.kernel_types import LineFeeder as LineFeeder
    from mrstream.mapreduce.dataflow.kernel_types import LineRewriter as LineRewriter
    from mrstream.mapreduce.dataflow.kernel_types import MergeTree as MergeTree


def _load() -> tuple[Any, Any]:
    """Return (C kernel, None) or (None, twin)."""
    wish = os.environ.get("MRSTREAM_KERNEL", "")
    if wish not in ("", "native", "python"):
        raise UserError(f"MRSTREAM_KERNEL is {wish!r}; it must be native, python or unset")
    if wish != "python":
        try:
            return importlib.import_module("mrstream.mapreduce.dataflow._kernel"), None
        except ImportError:
            if wish == "native":
                raise
            import logging

            logging.getLogger(__name__).warning(
                "the C kernel is not built, so the slower Python one is in use; "
                "with a C compiler at hand, installing mrstream again builds it"
            )
    return None, _load_twin()


def _load_twin() -> Any:
    return importlib.import_module("mrstream.mapreduce.dataflow.twin")


_native, _twin = _load()
IS_NATIVE = _native is not None


def collector(
    capacity_bytes: int,
    partitions: int,
    shape: RecordShape,
    partitioner: PartitionerSpec,
    order: ComparatorSpec,
    form: WireForm,
) -> Collector:
    """Return an empty collector; records, index and scratch stay within `capacity_bytes`."""
    made: Collector
    if _native is None or isinstance(order, SerialFieldOrder) or _is_of_text(partitioner):
        twin = _load_twin()
        made = twin.Collector(capacity_bytes, partitions, shape, partitioner, order, form)
    else:
        rule = shape.rule
        serials = int(shape.key_serial), int(shape.value_serial)
        made = _native.Collector(
            capacity_bytes,
            partitions,
            (int(shape.cut), rule.separator, rule.key_fields, *serials),
            _partitioner_plan(partitioner),
            _order_plan(order),
            _form_plan(form),
        )
    return made


def merge_tree(runs: int, order: ComparatorSpec, form: WireForm, shape: RecordShape) -> MergeTree:
    """Return a tree over `runs` runs; every run waits for its first block."""
    made: MergeTree
    if _native is None or isinstance(order, SerialFieldOrder):
        made = _load_twin().MergeTree(runs, order, form, shape)
    else:
        serials = int(shape.key_serial), int(shape.value_serial)
        made = _native.MergeTree(runs, _order_plan(order), _form_plan(form), *serials)
    return made


def line_feeder(of: LineInput) -> LineFeeder:
    """Return a feeder at `of.start`."""
    made: LineFeeder
    if _native is None:
        made = _twin.LineFeeder(of)
    else:
        end = -1 if of.end is None else of.end
        made = _native.LineFeeder(
            int(of.form), of.start, end, of.skip_first, of.separator, of.key_end,
            of.line_bytes_max, of.strip_bom,
        )  # fmt: skip
    return made


def csv_reader(of: CsvInput) -> CsvReader:
    """Return a reader at `of.start`; it raises ValueError for records that cannot be."""
    made: CsvReader
    if _native is None:
        made = _twin.CsvReader(of)
    else:
        end = -1 if of.end is None else of.end
        made = _native.CsvReader(
            int(of.form), of.delimiter, of.quote, of.start, end, of.fields_max, of.bytes_max,
            of.names, of.columns,
        )  # fmt: skip
    return made


def line_rewriter(cut: Cut, rule: KeyValueRule, separator: bytes) -> LineRewriter:
    """Return a rewriter: each line is cut by `rule` and joined by `separator` (spec 4.4).

    With `Cut.KEY_LINES` a line stays as it is: key only, no separator.
    """
    assert cut in (Cut.LINES, Cut.KEY_LINES), f"lines are rewritten, not {cut.name}"
    made: LineRewriter
    if _native is None:
        made = _twin.LineRewriter(cut, rule, separator)
    else:
        is_key = cut == Cut.KEY_LINES
        made = _native.LineRewriter(is_key, rule.separator, rule.key_fields, separator)
    return made


def decode_records(block: bytes | memoryview) -> list[tuple[bytes, bytes]]:
    """Return the records of a block of frames; ValueError if it does not end at a record."""
    return cast("list[tuple[bytes, bytes]]", (_native or _twin).decode_records(block))


def encode_records(records: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the frames of records, one behind the other."""
    return cast(bytes, (_native or _twin).encode_records(list(records)))


def count_lines(data: bytes | bytearray | memoryview) -> int:
    """Return how many LF bytes there are."""
    return cast(int, (_native or _twin).count_lines(data))


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the CRC32C of data, or of all that came before and data."""
    return cast(int, (_native or _twin).crc32c(data, before))


# --- specs as the plain tuples that C understands


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


def _is_of_text(partitioner: PartitionerSpec) -> bool:
    of = partitioner.of if isinstance(partitioner, ValuePartition) else partitioner
    return isinstance(of, TextOfKeyPartition)


def _order_plan(order: ComparatorSpec) -> tuple[object, ...]:
    match order:
        case ByteOrder():
            return (0, b"", 0, ())
        case LongOrder(reverse=reverse):
            return (2 if reverse else 1, b"", 0, ())
        case KeyFieldOrder():
            return (3, order.separator, int(order.whole_key), _key_specs(order.specs))
        case SerialFieldOrder():
            raise AssertionError("only the twin knows serialised keys")


def _partitioner_plan(partitioner: PartitionerSpec) -> tuple[object, ...]:
    """Return (kind, separator, whole key, key specs, left, right, cuts, order of the cuts, by
    value)."""
    if isinstance(partitioner, ValuePartition):
        return (*_key_plan(partitioner.of), 1)
    return (*_key_plan(partitioner), 0)


def _key_plan(partitioner: KeyPartitionerSpec) -> tuple[object, ...]:
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
        case TextOfKeyPartition():
            raise AssertionError("only the twin knows the text of keys")


def _form_plan(form: WireForm) -> tuple[object, ...]:
    return (int(form.framed), int(form.key), form.separator, int(form.value), form.end)
