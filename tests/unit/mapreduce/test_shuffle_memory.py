"""How much of what it fetches a reduce keeps in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mrstream.mapreduce.dataflow.fetched_runs import FetchedRun, FetchedRuns, MergeRule
from mrstream.mapreduce.dataflow.record_form import FRAMED_RECORDS
from mrstream.mapreduce.dataflow.segment import PartitionEntry
from mrstream.mapreduce.worker.host_figures import memory_bytes, memory_limit_bytes
from mrstream.mapreduce.worker.shuffle import shuffle_bytes
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.records.comparator import BYTE_ORDER

MIB = 1 << 20
SORT = "mapreduce.task.io.sort.mb"
LIMIT = "mapreduce.reduce.memory.mb"


@pytest.mark.parametrize(
    ("settings", "host_mib", "cores", "expected_mib"),
    [
        ({}, 24_000, 2, 512),
        ({}, 4_096, 4, 256),
        ({}, 1_024, 4, 100),
        ({SORT: "30"}, 24_000, 2, 30),
        ({SORT: "900"}, 1_024, 4, 900),
        ({LIMIT: "600"}, 24_000, 2, 300),
        ({LIMIT: "64"}, 24_000, 2, 100),
    ],
    ids=["large", "small", "tiny", "asked for little", "asked for much", "limit", "low limit"],
)
def test_a_shuffle_takes_what_the_job_says_or_its_share_of_the_host(
    settings: dict[str, str], host_mib: int, cores: int, expected_mib: int
) -> None:
    taken = shuffle_bytes(JobConf(settings), host_mib * MIB, cores)

    assert taken == expected_mib * MIB


@pytest.mark.parametrize(
    ("said", "expected"), [("max\n", None), (f"{100 * MIB}\n", 100 * MIB), (None, None)]
)
def test_a_container_has_no_more_memory_than_its_group(
    tmp_path: Path, said: str | None, expected: int | None
) -> None:
    if said is not None:
        (tmp_path / "memory.max").write_text(said)

    _, total = memory_bytes()
    assert memory_limit_bytes(str(tmp_path / "memory.max")) == (expected or total)


def test_memory_that_was_promised_is_free_again_whatever_else_came_meanwhile(
    tmp_path: Path,
) -> None:
    """What stayed promised for ever sent every later large partition to the disk."""
    rule = MergeRule(BYTE_ORDER, FRAMED_RECORDS, 1000, str(tmp_path))
    runs = FetchedRuns(0, rule)

    class Broken:
        """A stream that ends early; while it was open, something happened."""

        def __init__(self, happens: Callable[[], None]) -> None:
            self._happens = happens

        def receive_into(self, buffer: memoryview) -> None:
            self._happens()
            raise EOFError

    def fetch(map_index: int, length: int, happens: Callable[[], None]) -> None:
        entry = PartitionEntry(0, length, 1, length, length)
        with pytest.raises(EOFError):
            runs.receive(map_index, entry, Broken(happens), "h1")  # type: ignore[arg-type]

    def small_ones_come() -> None:
        entry = PartitionEntry(0, 900, 1, 900, 900)
        runs.keep(FetchedRun(9, 9, entry, lambda: iter(()), held_bytes=900))

    fetch(0, 500, lambda: fetch(1, 400, small_ones_come))

    assert runs._promised_bytes == 0
