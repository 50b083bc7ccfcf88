"""The examples on a cluster of three hosts: input in the dfs, the expected bytes all the same.

They run as they stand: a path is one of the current file system, so each input lies in the dfs
under the name that it has on this disk.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster
from tests.conformance.test_examples import EXAMPLES, NAMES


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("examples"), 3, roles=ROLES) as running:
        assert running.mrstream("dfs", "-mkdir", "-p", str(EXAMPLES.parent)).returncode == 0
        put = running.mrstream("dfs", "-put", str(EXAMPLES), str(EXAMPLES.parent))
        assert put.returncode == 0, put.stderr
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_an_example_gives_the_expected_result_on_a_cluster(
    name: str, cluster: LocalCluster
) -> None:
    """MR-03: the seven programs of §2.3, and two more, beside their data."""
    programs = Path(sys.executable).parent

    done = subprocess.run(
        [EXAMPLES / name / "run"],
        env={**cluster.environment, "PATH": f"{programs}:{cluster.environment['PATH']}"},
        capture_output=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == (EXAMPLES / name / "expected").read_bytes()
    assert "Data-local map tasks=" in done.stderr.decode()
