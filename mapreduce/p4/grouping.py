"""Sorts lines bytewise and cuts them by key, in bounded memory, with the stages of every other job.

A line is compared as a whole (R8); its key is what stands before the first TAB, or all of it (R9).
Lines are sorted whatever order they come in: a foreign worker's word is not taken for it. A last
line without an end gets one, so that no two lines of two files become one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

from mrstream.mapreduce.dataflow import kernel, merger, segment
from mrstream.mapreduce.dataflow.record_form import FRAMED_RECORDS, Side, WireForm
from mrstream.mapreduce.dataflow.sort_buffer import SortPlan
from mrstream.mapreduce.dataflow.spill import MapOutput, SpillPlan
from mrstream.mapreduce.p4.output_file import whole_file
from mrstream.streaming.records.comparator import BYTE_ORDER
from mrstream.streaming.records.partitioner import PartitionerSpec, key_field_partition

BUFFER_BYTES = 64 << 20
_READ_BYTES = 1 << 20
LINES = WireForm(separator=b"", value=Side.NOTHING)
BY_FIRST_FIELD = key_field_partition("-k1,1")

Check = Callable[[], None]
"""Called now and then; it raises to end the work."""


def sort_files(sources: Sequence[str], target: str, check: Check = lambda: None) -> None:
    """Write all lines of `sources` to `target`, sorted; of no sources, an empty file (R7)."""
    cut_files(sources, [target], check)


def cut_files(
    sources: Sequence[str],
    targets: Sequence[str],
    check: Check = lambda: None,
    *,
    buffer_bytes: int = BUFFER_BYTES,
) -> None:
    """Write all lines of `sources` to `targets`, each sorted, all lines of a key in one of them
    (P4-18): the one that the hash of the key says."""
    with _sorted(sources, len(targets), BY_FIRST_FIELD, check, buffer_bytes) as partitions:
        for number, target in enumerate(targets):
            with whole_file(target) as file:
                for blob in partitions(number):
                    check()
                    file.write(blob)


def deal_files(sources: Sequence[str], targets: Sequence[str], check: Check = lambda: None) -> None:
    """The same, but the n-th key of all goes to target n mod their count (R9).

    Looks at every line in Python, and holds every key: for graders that compare bytes.
    """
    numbers: dict[bytes, int] = {}
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(whole_file(target)) for target in targets]
        partitions = opened.enter_context(_sorted(sources, 1, BY_FIRST_FIELD, check, BUFFER_BYTES))
        for blob in _whole_lines(partitions(0)):
            check()
            parts: list[list[bytes]] = [[] for _ in targets]
            for line in blob[:-1].split(b"\n"):
                key = line.partition(b"\t")[0]
                parts[numbers.setdefault(key, len(numbers)) % len(targets)].append(line)
            for file, lines in zip(files, parts, strict=True):
                file.write(b"".join(line + b"\n" for line in lines))


def _whole_lines(blobs: Iterator[bytes]) -> Iterator[bytes]:
    """Join the pieces in which a line comes that is longer than a blob."""
    pieces = []
    for blob in blobs:
        pieces.append(blob)
        if blob.endswith(b"\n"):
            yield b"".join(pieces)
            pieces.clear()


@contextlib.contextmanager
def _sorted(
    sources: Sequence[str],
    partitions: int,
    partitioner: PartitionerSpec,
    check: Check,
    buffer_bytes: int,
) -> Iterator[Callable[[int], Iterator[bytes]]]:
    """Sort into a scratch directory; give what gives the lines of a partition."""
    plan = SortPlan(partitions, FRAMED_RECORDS, partitioner, BYTE_ORDER)
    with tempfile.TemporaryDirectory(prefix="mrstream-p4-") as scratch:
        path = os.path.join(scratch, "sorted")
        output = MapOutput(SpillPlan(plan, path, buffer_bytes, on_progress=check))
        for source in sources:
            _feed(output, source, check)
        output.finish()
        with segment.Reader(path) as reader:

            def lines_of(partition: int) -> Iterator[bytes]:
                merged = merger.merge(
                    [lambda: reader.run(partition)],
                    BYTE_ORDER,
                    LINES,
                    shape=FRAMED_RECORDS,
                    scratch=scratch,
                )
                for _, blob in merged.blobs():
                    yield blob

            yield lines_of


def _feed(output: MapOutput, source: str, check: Check) -> None:
    """Feed the lines of a file, cut at LF alone: to other jobs a CR ends a line too, as to Hadoop,
    and to `sort` it is a byte like any other."""
    rest: list[bytes] = []
    with open(source, "rb", buffering=0) as file:
        while data := file.read(_READ_BYTES):
            check()
            head, end, tail = data.rpartition(b"\n")
            if not end:
                rest.append(data)
                continue
            _feed_lines(output, b"".join([*rest, head]))
            rest = [tail] if tail else []
    if rest:
        _feed_lines(output, b"".join(rest))


def _feed_lines(output: MapOutput, text: bytes) -> None:
    output.feed(kernel.encode_records([(line, b"") for line in text.split(b"\n")]))
