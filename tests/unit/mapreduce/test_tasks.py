"""mapreduce/attempt/map_task.py and reduce_task.py: stages put together, in this very process."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.mapreduce.attempt.attempt import run_map
from mrstream.mapreduce.attempt.attempt_report import KEPT_INPUT
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.program.errors import CommandFailed
from tests.support.attempts import Desk


def test_maps_sort_into_segments_and_reduces_merge_them(tmp_path: Path) -> None:
    """Every line arrives once, each part in the order of its keys."""
    lines = [f"k{number % 17}\tv{number:03d}" for number in range(200)]
    desk = Desk(tmp_path, numReduceTasks="2")

    parts = desk.run("".join(f"{line}\n" for line in lines))

    assert len(parts) == 2 and all(parts)
    read = [part.decode().splitlines() for part in parts]
    assert sorted(line for part in read for line in part) == sorted(lines)
    for part in read:
        keys = [line.partition("\t")[0] for line in part]
        assert keys == sorted(keys)


def test_a_map_counts_what_passes_and_says_how_large_its_partitions_are(tmp_path: Path) -> None:
    """Spec 8.1; the sizes are what a reduce is given before it fetches."""
    desk = Desk(tmp_path, numReduceTasks="2", D="mapreduce.job.maps=1")
    (split,) = desk.splits("b\t1\na\t2\nc\t3\n")

    done, path = desk.map(split, 1)

    counted = done.counters[c.FRAMEWORK]
    assert counted[c.MAP_INPUT_RECORDS] == counted[c.MAP_OUTPUT_RECORDS] == 3
    assert counted[c.SPILLED_RECORDS] == 3
    assert sum(part.records for part in done.partitions) == 3 and len(done.partitions) == 2
    assert done.segment_bytes == Path(path).stat().st_size


def test_a_combiner_runs_inside_the_map(tmp_path: Path) -> None:
    desk = Desk(tmp_path, combiner="uniq", D="mapreduce.job.maps=1")
    (split,) = desk.splits("a\t1\n" * 50 + "b\t1\n" * 50)

    done, _ = desk.map(split, 1)

    counted = done.counters[c.FRAMEWORK]
    assert counted[c.COMBINE_INPUT_RECORDS] == 100
    assert counted[c.COMBINE_OUTPUT_RECORDS] == done.partitions[0].records == 2


def test_without_reduces_a_map_writes_final_output(tmp_path: Path) -> None:
    desk = Desk(tmp_path, numReduceTasks="0", mapper="tr a-z A-Z", D="mapreduce.job.maps=1")

    assert desk.run("b\na\n") == [b"B\t\nA\t\n"]


def test_a_map_whose_program_fails_leaves_no_segment_and_its_input_can_be_kept(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, mapper="sh -c 'cat >/dev/null; exit 3'", D="mapreduce.job.maps=1")
    (split,) = desk.splits("a\nb\n")
    attempt = desk.attempt(
        "m_000000", 1, split=split, segment_path=str(tmp_path / "s"),
    )  # fmt: skip

    with pytest.raises(CommandFailed, match="3"):
        run_map(attempt)

    assert not (tmp_path / "s").exists()
    attempt.keep_input(str(tmp_path))
    assert (tmp_path / KEPT_INPUT).read_bytes() == b"a\nb\n"


def test_a_reduce_reads_its_own_partition_of_every_segment(tmp_path: Path) -> None:
    desk = Desk(tmp_path, reducer="wc -l", numReduceTasks="2")
    splits = desk.splits("".join(f"k{number}\tv\n" for number in range(40)))
    made = [desk.map(split, len(splits)) for split in splits]
    wanted = [sum(done.partitions[index].records for done, _ in made) for index in range(2)]

    done = [desk.reduce(index, [path for _, path in made]) for index in range(2)]

    assert [each.counters[c.FRAMEWORK][c.REDUCE_INPUT_RECORDS] for each in done] == wanted
    printed = [path.read_text().strip() for path in sorted((tmp_path / "out").iterdir())]
    assert [int(number) for number in printed] == wanted and sum(wanted) == 40
