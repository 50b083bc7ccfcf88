"""Python functions on a cluster of three hosts: the same code, records and failures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mrstream as mr
from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster
from tests.conformance.test_examples import EXAMPLES
from tests.conformance.test_library import total, words
from tests.support.local_jobs import TREE


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("library"), 3, roles=ROLES) as running:
        assert running.mrstream("dfs", "-mkdir", "-p", str(EXAMPLES.parent)).returncode == 0
        put = running.mrstream("dfs", "-put", str(EXAMPLES), str(EXAMPLES.parent))
        assert put.returncode == 0, put.stderr
        yield running


@pytest.fixture(autouse=True)
def current(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)


@pytest.mark.parametrize("name", ["word_count", "secondary_sort", "inverted_index"])
def test_an_example_as_library_gives_the_expected_bytes(name: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name / "library.py"],
        env={**os.environ, "PYTHONPATH": str(TREE)}, capture_output=True, timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == (EXAMPLES / name / "expected").read_bytes()


def test_output_counters_and_files_are_those_of_the_cluster() -> None:
    source = EXAMPLES / "word_count" / "input"

    result = mr.Job(source, mapper=words, combiner=total, reducer=total, output="/counts").run()

    here = mr.Job(source, mapper=words, combiner=total, reducer=total, local=True).run()
    assert list(result) == list(here)
    assert result.counter("Map-Reduce Framework", "Map input records") > 0
    assert result.report["state"] == "succeeded"
    assert mr.fs().exists("/counts/_SUCCESS")


def test_a_failure_there_is_told_here(tmp_path: Path) -> None:
    def fails(line: str) -> None:
        raise ValueError(f"cannot take {line}")

    source = EXAMPLES / "word_count" / "input"
    with pytest.raises(mr.JobFailed, match="ValueError: cannot take") as failed:
        mr.Job(source, mapper=fails, D={"mapreduce.map.maxattempts": 1}).run()

    assert failed.value.exit_code == 1
    assert failed.value.record
    repeat = subprocess.run(
        [sys.executable, "-P", "-m", "mrstream.streaming.cli", *failed.value.repeat.split()[1:]],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "ValueError: cannot take" in repeat.stderr


def test_a_flow_keeps_its_outputs_in_the_dfs_and_can_be_resumed(tmp_path: Path) -> None:
    def chain(word: str) -> tuple[mr.Flow, mr.FlowStep]:
        flow = mr.Flow("on hosts")
        source = EXAMPLES / "word_count" / "input"
        counts = flow.job(source, mapper=words, combiner=total, reducer=total, name="counts")
        only = flow.job(
            counts, name="only", output="/flow/only",
            mapper=lambda key, count: [(key, count)] if key == word else None,
        )  # fmt: skip
        return flow, only

    flow, only = chain("the")
    result = flow.run()
    first = list(result[only])
    again = flow.resume(result.flow_id)
    changed, only = chain("rain")
    other = changed.resume(result.flow_id)

    assert [key for key, _ in first] == ["the"]
    assert again.started == []
    assert other.started == ["counts", "only"], "what is between was removed, so it is made again"
    assert [key for key, _ in other[only]] == ["rain"]
    assert mr.fs().ls("/flow", detail=False) == ["/flow/only"]
    assert not mr.fs().exists(f"/.mrstream/flows/{result.flow_id}")
