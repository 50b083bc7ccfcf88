"""The kernel against GNU sort: CPU time to cut, partition, sort and write; and to merge 64 runs.

Both sides read a file and write a file. GNU sort is told to sort by the first field, stably, as a
shuffle must; the kernel deals to four partitions besides, and checks and writes checksums.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.common import Row, Run, interleaved, records, run, urls, words, workplace

SIZE_BYTES = 50_000_000
RUNS = 64
C_LOCALE = {**os.environ, "LC_ALL": "C"}

SORT = """
import sys
from mrstream.mapreduce.dataflow.sort_buffer import SortPlan
from mrstream.mapreduce.dataflow.spill import MapOutput, SpillPlan
source, target = sys.argv[1:]
output = MapOutput(SpillPlan(SortPlan(4), target, 100 << 20))
with open(source, "rb", buffering=0) as file:
    while data := file.read(1 << 20):
        output.feed(data)
output.finish()
"""
MERGE = """
import sys
from mrstream.mapreduce.dataflow import merger, segment
from mrstream.mapreduce.dataflow.record_form import text_form
from mrstream.streaming.records.comparator import BYTE_ORDER
target, *paths = sys.argv[1:]
readers = [segment.Reader(path) for path in paths]
runs = [(lambda reader=reader: reader.run(0)) for reader in readers]
merged = merger.merge(runs, BYTE_ORDER, text_form(b"\\t"), scratch=".")
with open(target, "wb", buffering=0) as file:
    for _, blob in merged.blobs():
        file.write(blob)
"""
NOTHING = "from mrstream.mapreduce.dataflow import spill"


def bench() -> list[Row]:
    """Sort and merge the three shapes of records; ratios are GNU sort's time over ours."""
    rows: list[Row] = []
    with workplace() as place:
        for name, make in _shapes().items():
            source = place / "source"
            make(source)
            rows += _sort_rows(name, source, place)
            rows += _merge_rows(name, source, place)
    return rows


def _shapes() -> dict[str, Callable[[Path], None]]:
    return {
        "word-count pairs": _pairs,
        "100-byte records": lambda path: records(path, SIZE_BYTES),
        "URLs": lambda path: urls(path, SIZE_BYTES),
    }


def _pairs(path: Path) -> None:
    """Write `word TAB 1` lines, as the mapper of a word count does."""
    text = path.with_suffix(".text")
    words(text, SIZE_BYTES * 7 // 10)
    with open(text) as source, open(path, "w") as target:
        for line in source:
            target.write("".join(f"{word}\t1\n" for word in line.split()))
    text.unlink()


def _ours(code: str, place: Path, *arguments: Path) -> Run:
    """Run our side in an interpreter of its own; what starting that costs is not the kernel's."""
    from sys import executable

    start = run([executable, "-c", NOTHING], place)
    whole = run([executable, "-c", code, *map(str, arguments)], place)
    return Run(whole.wall_s - start.wall_s, whole.cpu_s - start.cpu_s)


def _row(what: str, medians: dict[str, Run], size_bytes: int, goal: str) -> Row:
    rates = {name: size_bytes / 1e6 / run.cpu_s for name, run in medians.items()}
    return Row(what, rates["mrstream"], rates["sort"], "MB/CPU s", goal)


def _sort_rows(name: str, source: Path, place: Path) -> list[Row]:
    gnu = ["sort", "-s", "-t", "\t", "-k1,1", "--parallel=1", "-S", "1G"]
    medians = interleaved(
        {
            "mrstream": lambda: _ours(SORT, place, source, place / "segment"),
            "sort": lambda: run([*gnu, "-o", "sorted", str(source)], place, C_LOCALE),
        }
    )
    return [_row(f"sort {name}", medians, source.stat().st_size, "≥ 2.5")]


def _merge_rows(name: str, source: Path, place: Path) -> list[Row]:
    lines = source.read_bytes().splitlines(keepends=True)
    step = -(-len(lines) // RUNS)
    ours, theirs = [], []
    for number in range(RUNS):
        text = place / f"run-{number}"
        text.write_bytes(b"".join(sorted(lines[number * step : (number + 1) * step])))
        theirs.append(text)
        ours.append(place / f"segment-{number}")
        _write_segment(text, ours[-1])
    gnu = ["sort", "-m", "-s", "-t", "\t", "-k1,1", f"--batch-size={RUNS}", "-o", "merged"]
    medians = interleaved(
        {
            "mrstream": lambda: _ours(MERGE, place, place / "merged", *ours),
            "sort": lambda: run([*gnu, *map(str, theirs)], place, C_LOCALE),
        }
    )
    return [_row(f"merge {RUNS} runs of {name}", medians, source.stat().st_size, "≥ 1")]


def _write_segment(text: Path, path: Path) -> None:
    from mrstream.mapreduce.dataflow.sort_buffer import SortPlan
    from mrstream.mapreduce.dataflow.spill import MapOutput, SpillPlan

    output = MapOutput(SpillPlan(SortPlan(1), str(path), 100 << 20))
    output.feed(text.read_bytes())
    output.finish()
