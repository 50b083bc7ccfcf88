"""Map output to one segment file: spills, the combiner, counters, memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.mapreduce.dataflow import block_codec, kernel, segment
from mrstream.mapreduce.dataflow.record_form import (
    RAW_RECORDS,
    TEXT_RECORDS,
    RecordShape,
    WireForm,
    text_form,
)
from mrstream.mapreduce.dataflow.sort_buffer import MalformedOutput, SortPlan
from mrstream.mapreduce.dataflow.spill import MapOutput, MapOutputCounts, SpillPlan
from mrstream.streaming.records.partitioner import HashPartition, partition

LINES = [b"%d\t%d" % (random.Random(i).randrange(500), i) for i in range(5000)]


def write(
    plan: SpillPlan, data: bytes, piece_bytes: int = 1000
) -> tuple[list[list[tuple[bytes, bytes]]], MapOutputCounts]:
    """Feed everything in pieces; return the records of each partition, and the counts."""
    output = MapOutput(plan)
    for at in range(0, len(data), piece_bytes):
        output.feed(data[at : at + piece_bytes])
    _, counts = output.finish()
    with segment.Reader(plan.path) as reader:
        runs = [
            [r for block in reader.run(p) for r in kernel.decode_records(block)]
            for p in range(reader.partitions)
        ]
    return runs, counts


def expected(partitions: int) -> list[list[tuple[bytes, bytes]]]:
    runs: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
    for line in LINES:
        key, value = line.split(b"\t")
        runs[partition(HashPartition(), key, partitions)].append((key, value))
    return [sorted(run, key=lambda record: record[0]) for run in runs]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("capacity_bytes", [4096, 50_000, 1 << 20])
@pytest.mark.parametrize("width_max", [2, 3, 10])
def test_a_segment_is_the_same_however_often_memory_was_full(
    tmp_path: Path, codec: str, capacity_bytes: int, width_max: int
) -> None:
    """D1, and equal keys in order of emission, through any number of passes."""
    plan = SpillPlan(
        SortPlan(3),
        str(tmp_path / "map-0"),
        capacity_bytes,
        width_max,
        block_codec.by_name(codec),
    )

    runs, counts = write(plan, b"\n".join(LINES))

    assert runs == expected(3)
    assert counts.records == len(LINES)
    assert (counts.spills > 1) == (capacity_bytes < 1 << 20)
    assert os.listdir(tmp_path) == ["map-0"]


def test_counters_are_those_of_hadoop(tmp_path: Path) -> None:
    """Spec 8.1, with the numbers of two golden cases."""
    plan = SpillPlan(SortPlan(1), str(tmp_path / "text"), 1 << 20)
    _, text = write(plan, b"b\t2\na\t1\nb\t1\na\t2\nb\t0\na\t0\n")
    raw = b"".join(
        len(side).to_bytes(4, "big") + side
        for side in (b"BB", b"\0\xff", b"A", b"\0\xff", b"CCC", b"\0\xff")
    )
    plan = SpillPlan(SortPlan(2, RAW_RECORDS), str(tmp_path / "raw"), 1 << 20)
    _, rawbytes = write(plan, raw)

    assert (text.bytes, text.materialized_bytes, text.spilled_records) == (24, 42, 6)
    assert (rawbytes.bytes, rawbytes.materialized_bytes) == (36, 54)


def test_records_spilled_twice_are_counted_twice(tmp_path: Path) -> None:
    """Spec 8.1: once for the spill, once for the merge of spills."""
    plan = SpillPlan(SortPlan(2), str(tmp_path / "s"), 50_000)

    _, counts = write(plan, b"\n".join(LINES))

    assert counts.spilled_records == 2 * len(LINES)


class Sum:
    """A combiner: adds up the numbers of each key. `order` may make a mess of its output."""

    reads: WireForm = text_form(b"\t")
    writes: RecordShape = TEXT_RECORDS

    def __init__(self, reverse: bool = False) -> None:
        self._reverse = reverse
        self.calls: list[int] = []

    def __call__(self, partition: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        self.calls.append(partition)
        sums: dict[bytes, int] = {}
        for line in b"".join(blobs).splitlines():
            key, value = line.split(b"\t")
            sums[key] = sums.get(key, 0) + int(value)
        keys = list(sums)
        for key in reversed(keys) if self._reverse else keys:
            yield b"%b\t%d\n" % (key, sums[key])


def sums_of(records: list[tuple[bytes, bytes]]) -> dict[bytes, int]:
    sums: dict[bytes, int] = {}
    for key, value in records:
        sums[key] = sums.get(key, 0) + int(value)
    return sums


def test_a_combiner_runs_once_a_spill_and_partition(tmp_path: Path) -> None:
    """Spec 6.1: a fresh run for each; what it gives is what reducers fetch."""
    combiner = Sum()
    plan = SpillPlan(SortPlan(3), str(tmp_path / "s"), 1 << 20, combiner=combiner)

    runs, counts = write(plan, b"\n".join(LINES))

    assert combiner.calls == [0, 1, 2]
    assert [sums_of(run) for run in runs] == [sums_of(run) for run in expected(3)]
    assert all(len(run) == len({key for key, _ in run}) for run in runs)
    assert (counts.combine_input_records, counts.combine_output_records) == (5000, 500)
    assert counts.spilled_records == 500


@pytest.mark.parametrize("reverse", [False, True])
def test_a_combiner_runs_again_when_three_spills_are_merged(tmp_path: Path, reverse: bool) -> None:
    """Spec 6.1; and D1 holds even if the combiner writes its keys in any order."""
    combiner = Sum(reverse)
    plan = SpillPlan(SortPlan(2), str(tmp_path / "s"), 100_000, combiner=combiner)

    runs, counts = write(plan, b"\n".join(LINES))

    assert counts.spills >= 3
    assert len(combiner.calls) == 2 * (counts.spills + 1)
    assert runs == [
        [(key, b"%d" % total) for key, total in sorted(sums_of(run).items())] for run in expected(2)
    ]
    assert os.listdir(tmp_path) == ["s"]


def test_two_spills_are_merged_without_the_combiner(tmp_path: Path) -> None:
    """Spec 6.1: mapreduce.map.combine.minspills is 3."""
    combiner = Sum()
    plan = SpillPlan(SortPlan(1), str(tmp_path / "s"), 200_000, combiner=combiner)

    _, counts = write(plan, b"\n".join(LINES))

    assert (counts.spills, len(combiner.calls)) == (2, 2)


def test_a_combiner_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """Spec 6.1: the map task fails."""

    class Failing(Sum):
        def __call__(self, partition: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
            yield b"a\t1\n"
            raise RuntimeError("exit status 3")

    plan = SpillPlan(SortPlan(1), str(tmp_path / "s"), 1 << 20, combiner=Failing())
    output = MapOutput(plan)
    output.feed(b"a\t1\n")

    with pytest.raises(RuntimeError, match="exit status 3"):
        output.finish()
    output.abort()

    assert os.listdir(tmp_path) == []


def test_an_empty_map_makes_an_empty_segment(tmp_path: Path) -> None:
    """Reducers fetch from every map; 6 bytes a partition are counted (spec 8.1)."""
    plan = SpillPlan(SortPlan(4), str(tmp_path / "s"), 1 << 20)

    runs, counts = write(plan, b"")

    assert runs == [[], [], [], []]
    assert (counts.records, counts.materialized_bytes, counts.spills) == (0, 24, 1)


def test_a_record_larger_than_the_buffer_works(tmp_path: Path) -> None:
    """Between small ones, in pieces."""
    lines = [b"b\t1", b"a" * 3_000_000 + b"\t" + b"v" * 2_000_000, b"c\t1", b"k\t" + b"x" * 999_999]
    plan = SpillPlan(SortPlan(1), str(tmp_path / "s"), 100_000)

    runs, _ = write(plan, b"\n".join(lines), piece_bytes=65_536)

    assert runs == [sorted((k, v) for k, _, v in (line.partition(b"\t") for line in lines))]


def test_broken_binary_output_fails_the_task_with_its_reason(tmp_path: Path) -> None:
    """Spec 9: the end inside a record."""
    output = MapOutput(SpillPlan(SortPlan(1, RAW_RECORDS), str(tmp_path / "s"), 1 << 20))
    output.feed(b"\0\0\0\4ab")

    with pytest.raises(MalformedOutput, match="ends inside a record, 6 bytes into it"):
        output.finish()


MEMORY = """
import sys
from mrstream.mapreduce.dataflow import merger, segment
from mrstream.mapreduce.dataflow.record_form import text_form
from mrstream.mapreduce.dataflow.sort_buffer import SortPlan
from mrstream.mapreduce.dataflow.spill import MapOutput, SpillPlan
from mrstream.streaming.records.comparator import BYTE_ORDER

def peak_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))

path, kind = sys.argv[1:]
before = peak_mib()
output = MapOutput(SpillPlan(SortPlan(4), path, 8 << 20))
if kind == "many":
    for i in range(0, 1_500_000, 5000):
        numbers = range(i, i + 5000)
        output.feed(b"".join([b"%d\\t%d\\n" % (j * 7919 % 1_000_003, j) for j in numbers]))
else:
    for _ in range(64):
        output.feed(b"x" * (1 << 20))
output.finish()
with segment.Reader(path) as reader:
    for p in range(4):
        merged = merger.merge([lambda: reader.run(p)], BYTE_ORDER, text_form(b"\\t"), scratch=".")
        for records, blob in merged.blobs():
            pass
print(peak_mib() - before)
"""


@pytest.mark.parametrize(("kind", "limit_mib"), [("many", 8 + 30), ("large", 8 + 30 + 2 * 64)])
def test_memory_stays_within_the_buffer_and_twice_the_largest_record(
    tmp_path: Path, kind: str, limit_mib: int
) -> None:
    """Records, index and scratch are bounded together by the buffer's size."""
    if not kernel.IS_NATIVE:
        pytest.skip("the twin keeps Python objects, which are larger")

    said = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "s"), kind],
        check=True,
        capture_output=True,
        text=True,
    )

    assert int(said.stdout) <= limit_mib
