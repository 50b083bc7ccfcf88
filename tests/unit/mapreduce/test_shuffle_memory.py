"""How much of what it fetches a reduce keeps in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.mapreduce.worker.host_figures import memory_bytes, memory_limit_bytes
from mrstream.mapreduce.worker.shuffle import shuffle_bytes
from mrstream.streaming.conf.jobconf import JobConf

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
