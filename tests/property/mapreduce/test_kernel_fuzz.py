"""Whole jobs' worth of random records through C kernel and twin: the same segment files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mrstream.mapreduce.dataflow import block_codec, kernel, merger, segment, twin
from mrstream.mapreduce.dataflow.record_form import text_form, text_records
from mrstream.mapreduce.dataflow.sort_buffer import SortPlan
from mrstream.mapreduce.dataflow.spill import MapOutput, SpillPlan
from mrstream.streaming.records.comparator import ByteOrder, ComparatorSpec, key_field_order
from mrstream.streaming.records.key_value import KeyValueRule
from mrstream.streaming.records.partitioner import (
    HashPartition,
    PartitionerSpec,
    key_field_partition,
)
from tests.support.examples import examples

SEEDS = examples(12)
MAPS = 3

pytestmark = pytest.mark.skipif(not kernel.IS_NATIVE, reason="there is no C kernel to compare")


def random_output(rng: random.Random) -> bytes:
    """Return what a map command may write: few or many keys, any line ends, any bytes."""
    alphabet = rng.choice([b"ab\t", b"0123456789.-\t", bytes(range(256)), b"aaab\t\xc3\xa9"])
    keys = [bytes(rng.choices(alphabet, k=rng.randrange(20))) for _ in range(rng.choice([5, 5000]))]
    lines = []
    for _ in range(rng.randrange(6000)):
        value = bytes(rng.choices(alphabet, k=rng.choice([0, 1, 1, 30])))
        lines.append(rng.choice(keys) + b"\t" + value + rng.choice([b"\n", b"\n", b"\r\n", b"\r"]))
    return b"".join(lines)


def random_plan(rng: random.Random) -> tuple[SortPlan, int, int, str]:
    options = rng.choice(["", "", "-k1,1", "-k2,2nr -k1,1", "-n", "-r", "-k1.2,2"])
    order: ComparatorSpec = key_field_order(options) if options else ByteOrder()
    spread: list[PartitionerSpec] = [
        HashPartition(),
        key_field_partition("-k1,1"),
        key_field_partition(""),
    ]
    shape = text_records(KeyValueRule(b"\t", rng.choice([1, 2])))
    plan = SortPlan(rng.choice([1, 2, 7]), shape, rng.choice(spread), order)
    capacity_bytes = rng.choice([5000, 60_000, 300_000, 4 << 20])
    return plan, capacity_bytes, rng.choice([2, 10]), rng.choice(["none", "zstd"])


def job(seed: int, place: Path) -> list[object]:
    """Run a few maps and merge their partitions; return everything that was written and counted."""
    rng = random.Random(seed)
    plan, capacity_bytes, width_max, codec = random_plan(rng)
    results: list[object] = []
    paths = []
    for number in range(MAPS):
        data = random_output(rng)
        path = str(place / f"map-{number}")
        paths.append(path)
        output = MapOutput(
            SpillPlan(plan, path, capacity_bytes, width_max, block_codec.by_name(codec))
        )
        at = 0
        while at < len(data):
            size = rng.choice([1, 1000, 1 << 16])
            output.feed(data[at : at + size])
            at += size
        entries, counts = output.finish()
        results += [entries, counts.records, counts.bytes, counts.materialized_bytes]
        results.append(Path(path).read_bytes())
    for partition in range(plan.partitions):
        merged = merger.merge(
            [run_of(path, partition) for path in paths],
            plan.order,
            text_form(b"\t"),
            shape=plan.shape,
            width_max=width_max,
            scratch=str(place),
        )
        results += [b"".join(blob for _, blob in merged.blobs())]
        results += [merged.records, merged.groups, merged.largest_group[1]]
    return results


def run_of(path: str, partition: int) -> Callable[[], object]:
    return lambda: segment.Reader(path).run(partition)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_kernel_and_twin_write_the_same_bytes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin is a full replacement: segments, merged streams and counts are equal."""
    native = job(seed, tmp_path)

    monkeypatch.setattr(kernel, "_native", None)
    monkeypatch.setattr(kernel, "_twin", twin)

    assert native == job(seed, tmp_path)
