"""A failed attempt of a cluster is repeated, and narrowed to its record, on its user's machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.local import LocalCluster

ROLES = ("dfs.master", "dfs.chunkserver", "mapreduce.master", "mapreduce.worker")
NO_42 = """#!/usr/bin/env python3
import sys
for line in sys.stdin:
    assert int(line.split()[0]) != 42, "not that number"
    print(line, end="")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two hosts with a file of numbers in the dfs."""
    directory: Path = tmp_path_factory.mktemp("repeat")
    (directory / "numbers").write_text("".join(f"{number}\n" for number in range(1000)))
    (directory / "bad.py").write_text(NO_42)
    with LocalCluster(directory, 2, roles=ROLES) as running:
        assert running.mrstream("dfs", "-put", str(directory / "numbers"), "/n").returncode == 0
        yield running


@pytest.mark.parametrize("side", ["map", "reduce"])
def test_a_failed_attempt_comes_here_to_be_repeated_and_narrowed(
    cluster: LocalCluster, side: str
) -> None:
    program = str(cluster.directory / "bad.py")
    programs = {"map": (program, "cat"), "reduce": ("cat", program)}
    mapper, reducer = programs[side]

    failed = cluster.mrstream(
        *("-D", f"mapreduce.{side}.maxattempts=1"),
        *("-input", "/n", "-mapper", mapper, "-reducer", reducer),
    )
    attempt = next(
        line.split()[-1]
        for line in failed.stderr.decode().splitlines()
        if "mrstream -repeat" in line
    )
    again = cluster.mrstream("-repeat", attempt)
    narrowed = cluster.mrstream("-bisect", attempt)

    assert failed.returncode == 1
    assert again.returncode == 1, again.stderr
    assert b"not that number" in again.stderr
    assert narrowed.returncode == 0, narrowed.stderr
    assert narrowed.stdout.strip() == b"42"


def test_an_attempt_that_was_tried_again_is_refused_with_what_is_kept(
    cluster: LocalCluster,
) -> None:
    program = str(cluster.directory / "bad.py")
    failed = cluster.mrstream(
        *("-D", "mapreduce.map.maxattempts=2"),
        *("-input", "/n", "-mapper", program, "-reducer", "NONE"),
    )
    (last,) = re.findall(r"repeat it: +mrstream -repeat (\w+_1)\n", failed.stderr.decode())

    refused = cluster.mrstream("-repeat", f"{last[:-1]}0")

    assert refused.returncode == 1
    assert b"the attempt with which a task failed for good" in refused.stderr
    assert cluster.mrstream("-repeat", last).returncode == 1


def test_what_is_no_attempt_is_refused_in_a_line(cluster: LocalCluster) -> None:
    """It was looked for on the cluster, and ended in a traceback."""
    refused = cluster.mrstream("-repeat", "attempt_1_0001_m_x_0")

    assert refused.returncode == 1
    assert b"is not an attempt id" in refused.stderr and b"Traceback" not in refused.stderr
