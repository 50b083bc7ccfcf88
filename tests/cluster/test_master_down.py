"""A cluster whose daemons do not run: its users hear of it at once, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.local import LocalCluster

ADVICE = "`mrstream cluster up` starts those that do not"


@pytest.fixture
def down(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path, 1)  # as after a reboot of all hosts: files, and no process
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize(
    "words", [["dfs", "-ls", "/"], ["-input", "/in", "-output", "/out", "-mapper", "cat"]]
)
def test_who_waits_for_the_dfs_master_is_told_so_and_what_to_do(
    down: LocalCluster, words: list[str]
) -> None:
    """It may be restarting, so it is waited for: not in silence."""
    process = down.begin(*words)
    try:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
    finally:
        process.kill()
        process.communicate()

    assert line.startswith("the dfs master does not answer (127.0.0.1:")
    assert "Connection refused" in line and ADVICE in line
    left = re.search(r"trying for another (\d+) s$", line.rstrip())
    assert left is not None and 0 < int(left[1]) <= 57, "told after 3 s of 60"


def test_a_question_about_jobs_fails_with_what_to_do(down: LocalCluster) -> None:
    ran = down.mrstream("job", "-list")

    assert ran.returncode == 1
    refused, advice = ran.stderr.decode().splitlines()
    assert "Connection refused" in refused and ADVICE in advice
