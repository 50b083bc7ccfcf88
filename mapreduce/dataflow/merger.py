"""Stage 8: merge sorted runs into one sorted stream.

Takes the runs of one partition in the order of their maps; gives blobs in the form that
the reduce command reads, in comparator order, equal keys in the order of the runs and of
emission (design: by map number, then emission). Holds at most `width_max` runs open at
once: more are first merged, adjacent ones only, into files of its scratch directory.
Never reads the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count

from mrstream.mapreduce.dataflow import block_codec, kernel, segment
from mrstream.mapreduce.dataflow.block_codec import BlockCodec
from mrstream.mapreduce.dataflow.record_form import (
    BLOCK_BYTES,
    FRAMED_FORM,
    TEXT_RECORDS,
    RecordShape,
    WireForm,
)
from mrstream.streaming.records.comparator import ComparatorSpec

BLOB_BYTES = 1 << 18
WIDTH_MAX = 64

_pass_numbers = count(1)

Run = Callable[[], Iterator[segment.Raw]]
"""Opens a run: gives its verified blocks of framed records, from the first on."""


class Merge:
    """One merge of a partition's runs: iterate over its blobs, then ask for its counts."""

    def __init__(
        self,
        runs: Sequence[Run],
        order: ComparatorSpec,
        form: WireForm,
        shape: RecordShape = TEXT_RECORDS,
    ) -> None:
        self._runs = runs
        self._tree = kernel.merge_tree(len(runs), order, form, shape)

    @property
    def records(self) -> int:
        """Records given so far (Reduce input records)."""
        return self._tree.records

    @property
    def groups(self) -> int:
        """Different whole keys among them (Reduce input groups, spec 5.4)."""
        return self._tree.groups

    @property
    def hadoop_bytes(self) -> int:
        """What Hadoop would have stored for the records given so far."""
        return self._tree.hadoop_bytes

    @property
    def largest_group(self) -> tuple[bytes, int]:
        """The key with the most records so far, and how many it has."""
        return self._tree.largest_group

    def blobs(self, size_bytes: int = BLOB_BYTES) -> Iterator[tuple[int, bytes]]:
        """Yield (records, bytes) until all runs are used up.

        Whole records, but for one larger than a blob: that may come in pieces.
        """
        sources = [run() for run in self._runs]
        while True:
            wanted, records, blob = self._step(size_bytes)
            if blob is not None:
                yield records, blob
                del blob  # it can be as large as the largest record
            elif wanted >= 0:
                self._supply(wanted, next(sources[wanted], None))
            else:
                return

    def _step(self, size_bytes: int) -> tuple[int, int, bytes | None]:
        try:
            return self._tree.step(size_bytes)
        except ValueError as error:
            raise segment.SegmentCorrupt(f"merge of {len(self._runs)} runs: {error}") from error

    def _supply(self, run: int, block: segment.Raw | None) -> None:
        try:
            self._tree.supply(run, block)
        except ValueError as error:
            raise segment.SegmentCorrupt(f"run {run} of {len(self._runs)}: {error}") from error


def merge(
    runs: Sequence[Run],
    order: ComparatorSpec,
    form: WireForm,
    *,
    shape: RecordShape = TEXT_RECORDS,
    width_max: int = WIDTH_MAX,
    scratch: str,
    codec: BlockCodec = block_codec.NONE,
) -> Merge:
    """Return the last merge over any number of runs, the passes before it being done."""
    assert width_max >= 2, f"a merge of {width_max} runs does not end"
    rest = list(runs)
    while len(rest) > width_max:
        rest = _pass(rest, order, shape, width_max, scratch, codec)
    return Merge(rest, order, form, shape)


def _pass(
    runs: list[Run],
    order: ComparatorSpec,
    shape: RecordShape,
    width_max: int,
    scratch: str,
    codec: BlockCodec,
) -> list[Run]:
    """Join adjacent runs, no more than it takes to get below `width_max` or to the next pass.

    As few records as possible are written twice: where one pass will do, only so many
    runs are joined that exactly `width_max` remain.
    """
    joined: list[Run] = []
    surplus = len(runs) - width_max
    at = 0
    while at < len(runs):
        width = min(width_max, surplus + 1, len(runs) - at)
        group = runs[at : at + width]
        at += width
        surplus -= width - 1
        if width == 1:
            joined += group
        else:
            joined.append(_join(group, order, shape, scratch, codec))
    return joined


def _join(
    runs: Sequence[Run],
    order: ComparatorSpec,
    shape: RecordShape,
    scratch: str,
    codec: BlockCodec,
) -> Run:
    """Merge runs into a file of the scratch directory; it is deleted as soon as it is read."""
    path = os.path.join(scratch, f"merge-{os.getpid()}-{next(_pass_numbers)}")
    writer = segment.Writer(path, 1, codec)
    for block in merged_blocks(0, Merge(runs, order, FRAMED_FORM, shape)):
        writer.append(block)
    writer.finish()
    return lambda: _read_and_delete(path)


def merged_blocks(partition: int, merged: Merge) -> Iterator[segment.Block]:
    """Yield what a merge of framed records gives, as blocks of a partition."""
    hadoop_bytes = 0
    for records, payload in merged.blobs(BLOCK_BYTES):
        grown = merged.hadoop_bytes - hadoop_bytes
        hadoop_bytes += grown
        yield segment.Block(partition, records, grown, payload)


def _read_and_delete(path: str) -> Iterator[segment.Raw]:
    with closing(segment.Reader(path)) as reader:
        os.unlink(path)
        yield from reader.run(0)
