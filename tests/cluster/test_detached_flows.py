"""`mrstream flow run --detach` on three hosts: the flow goes on without its client and its host.
And the page that loads, processes and extracts, typed as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.dfs.client.client import client_of
from mrstream.dfs.client.fence import SEQUENCER
from mrstream.dfs.errors import FencedOff
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.flow.brain.messages import Completed, Started
from mrstream.mapreduce.flow.dfs_book import DfsFlowBook
from mrstream.mapreduce.protocol import ListJobs, ReportOfJob
from tests.cluster.local import LocalCluster, wait_for
from tests.cluster.machine import ROOT

ROLES = ("dfs.master", "dfs.chunkserver", "mapreduce.master", "mapreduce.worker")
LOCK = "/ls/local/nightly:4"
FLOW = """
name: three steps
variables: {to: /out}
steps:
  words:
    input: /in
    mapper: tools/words.py
    reducer: uniq -c
    numReduceTasks: 2
  slow:
    input: ${words}
    mapper: sh -c 'NOTES; until test -e SHARED/go; do sleep 0.1; done; cat'
    numReduceTasks: 1
  last:
    input: ${slow}
    mapper: sh -c 'echo last >> SHARED/ran; cat'
    numReduceTasks: 1
    output: ${to}
"""
NOTES = "echo $MRSTREAM_SEQUENCER >> SHARED/fences; echo slow >> SHARED/ran"
WORDS = """#!/usr/bin/env python3
import sys
with open("SHARED/ran", "a") as ran:
    ran.write("words\\n")
for line in sys.stdin:
    print(*line.split(), sep="\\n")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("detached")
    with LocalCluster(
        directory, 3, roles=ROLES, slots=2, dfs={"dead_after": "5s"}, mapreduce={"dead_after": "4s"}
    ) as running:
        (directory / "tools").mkdir()
        (directory / "tools" / "words.py").write_text(WORDS.replace("SHARED", running.shared))
        flow = FLOW.replace("NOTES", NOTES).replace("SHARED", running.shared)
        (directory / "flow.yaml").write_text(flow)
        (directory / "in.txt").write_text("".join(f"w{n % 7} w{n % 3}\n" for n in range(300)))
        assert running.mrstream("dfs", "-put", str(directory / "in.txt"), "/in").returncode == 0
        yield running


@pytest.fixture
def gate(cluster: LocalCluster) -> Iterator[Path]:
    """What the slow step waits for."""
    for name in ("go", "ran", "fences"):
        Path(cluster.shared, name).unlink(missing_ok=True)
    yield Path(cluster.shared, "go")
    Path(cluster.shared, "go").touch()


def ran(cluster: LocalCluster) -> Counter[str]:
    return Counter(Path(cluster.shared, "ran").read_text().split())


def detach(cluster: LocalCluster, to: str) -> str:
    """Start a flow; the client is gone when this returns."""
    began = cluster.mrstream("flow", "run", "flow.yaml", "--detach", "-v", f"to={to}")
    assert began.returncode == 0, began.stderr.decode()
    return began.stdout.decode().strip()


def status(cluster: LocalCluster, flow_id: str) -> str:
    asked = cluster.mrstream("flow", "status", flow_id)
    assert asked.returncode == 0, asked.stderr.decode()
    return asked.stdout.decode()


def jobs_listed(cluster: LocalCluster) -> str:
    listed = cluster.mrstream("job", "-list")
    assert listed.returncode == 0, listed.stderr.decode()
    return listed.stdout.decode()


def wait_until_slow(cluster: LocalCluster) -> None:
    path = Path(cluster.shared, "ran")
    wait_for(lambda: path.exists() and "slow" in path.read_text(), 90.0, "the slow step to run")


def wait_for_state(cluster: LocalCluster, flow_id: str, state: str) -> DfsFlowBook:
    book = DfsFlowBook(flow_id, cluster.client())
    wait_for(lambda: book.read_state().state == state, 120.0, f"the flow to be {state}")
    return book


def output(cluster: LocalCluster, path: str) -> bytes:
    read = cluster.mrstream("dfs", "-cat", f"{path}/part-*")
    assert read.returncode == 0, read.stderr.decode()
    return read.stdout


def runner_host(cluster: LocalCluster, job_id: str) -> str:
    with JobClient(cluster.cluster) as client:
        report = client.call(ReportOfJob(job_id))
    return next(each.host for each in report.attempts if each.state == "running")


def fences_of_slow(cluster: LocalCluster) -> list[list[str]]:
    """What the programs of the slow step were under, for each time that it was started."""
    text = Path(cluster.shared, "fences").read_text()
    return [line.split() for line in dict.fromkeys(text.splitlines())]


def test_it_goes_on_when_its_client_and_then_its_host_are_gone(
    cluster: LocalCluster, gate: Path
) -> None:
    # Under a lock, as `mrstream lock acquire` says it.
    cluster.environment[SEQUENCER] = LOCK
    try:
        flow_id = detach(cluster, "/detached")
    finally:
        del cluster.environment[SEQUENCER]
    # What the client had is gone, too: the cluster has all that it needs.
    shutil.move(cluster.directory / "tools", cluster.directory / "gone")
    wait_until_slow(cluster)
    assert "  words: complete" in status(cluster, flow_id)
    (row,) = re.findall(r"^.*three steps.*$", jobs_listed(cluster), re.M)
    assert "three steps: slow (flow, 1 of 2 jobs done)" in row, "one thing, though two jobs run"
    book = DfsFlowBook(flow_id, cluster.client())
    job_id = book.job_id
    ((mine, lock),) = fences_of_slow(cluster)
    assert mine.startswith(f"flow/{flow_id}:") and lock == LOCK
    host = runner_host(cluster, job_id)
    for role in ("mapreduce.worker", "dfs.chunkserver"):
        cluster.kill(role, host)
    try:
        wait_for(
            lambda: (
                sum(isinstance(each, Started) and each.key == "slow" for each in book.records())
                == 2
            ),
            120.0,
            "the flow to go on elsewhere",
        )
        # What the lost runner started could still run, and commit, where nobody hears of it.
        wait_for(lambda: len(fences_of_slow(cluster)) == 2, 60.0, "its step to run")
        _, (later, lock) = fences_of_slow(cluster)
        assert later > mine and lock == LOCK
        gate.touch()
        wait_for_state(cluster, flow_id, "succeeded")
    finally:
        for role in ("dfs.chunkserver", "mapreduce.worker"):
            cluster.start(role, host)
        shutil.move(cluster.directory / "gone", cluster.directory / "tools")

    counts = Counter(f"w{n % m}" for n in range(300) for m in (7, 3))
    lines = sorted(f"{count:7} {word}\t\n" for word, count in counts.items())
    assert output(cluster, "/detached").decode() == "".join(lines)
    starts = Counter(each.key for each in book.records() if isinstance(each, Started))
    assert starts == {"words": 1, "slow": 2, "last": 1}, "nothing complete runs twice"
    assert (
        Counter(e.key for e in book.records() if isinstance(e, Completed)).most_common(1)[0][1] == 1
    )
    assert ran(cluster)["words"] == ran(cluster)["last"] == 1
    assert book.job_id == job_id, "the same job, another attempt"
    listed = cluster.mrstream("flow", "list").stdout.decode()
    assert re.search(rf"{flow_id} +succeeded .*three steps", listed)


def test_one_that_is_killed_leaves_no_job_and_is_resumed(cluster: LocalCluster, gate: Path) -> None:
    flow_id = detach(cluster, "/resumed")
    wait_until_slow(cluster)

    killed = cluster.mrstream("flow", "kill", flow_id)
    assert killed.returncode == 0, killed.stderr.decode()
    with JobClient(cluster.cluster) as client:
        wait_for(lambda: not client.call(ListJobs(False)), 60.0, "its jobs to end")
    assert "State: killed" in status(cluster, flow_id)

    gate.touch()
    resumed = cluster.mrstream("flow", "resume", flow_id)
    assert resumed.returncode == 0, resumed.stderr.decode()
    wait_for_state(cluster, flow_id, "succeeded")
    assert ran(cluster)["words"] == 1
    logs = cluster.mrstream("flow", "logs", flow_id, "last").stdout.decode()
    assert logs.startswith("==> last <==\n") and "completed successfully" in logs
    with JobClient(cluster.cluster) as client:
        wait_for(lambda: not client.call(ListJobs(False)), 60.0, "its job to end")
    assert cluster.mrstream("flow", "remove", flow_id).returncode == 0
    assert cluster.mrstream("flow", "status", flow_id).returncode == 1


NOTEBOOK = """
import mrstream as mr

factor = 3

def words(line):
    for word in line.split():
        yield word, factor

def total(word, counts):
    yield word, sum(counts)

def large(word, count):
    if count > 400:
        yield word, count

flow = mr.Flow("of functions")
counts = flow.job("/in", mapper=words, combiner=total, reducer=total, name="counts")
flow.job(counts, mapper=large, writes=mr.text, output="/large", name="large")
print(flow.detach())
"""


def test_functions_go_on_when_the_python_that_made_them_is_gone(cluster: LocalCluster) -> None:
    began = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], cwd=cluster.directory, capture_output=True, text=True,
        env={**cluster.environment, "PYTHONPATH": str(ROOT)}, timeout=120,
    )  # fmt: skip
    assert began.returncode == 0, began.stderr

    wait_for_state(cluster, began.stdout.strip(), "succeeded")

    counts = Counter(f"w{n % m}" for n in range(300) for m in (7, 3))
    large = {word: 3 * count for word, count in counts.items() if 3 * count > 400}
    assert len(large) > 1
    found = output(cluster, "/large").decode()
    assert {word: int(n) for word, n in map(str.split, found.splitlines())} == large


def test_a_runner_that_was_taken_for_lost_can_change_nothing(cluster: LocalCluster) -> None:
    """It may still run behind a broken network when another has taken over."""
    mine = DfsFlowBook("flow_20260101_000000_abcd", cluster.client())
    fence = mine.next_fence()
    with client_of(cluster.cluster, fence=fence) as old:
        book = DfsFlowBook(mine.flow_id, old)
        book.open()
        book.write(Started("a", "print", "/x/a.1"))
        later = mine.next_fence()
        assert later[1] > fence[1]
        with client_of(cluster.cluster, fence=later) as new:
            new.raise_fence(later)
            assert DfsFlowBook(mine.flow_id, new).open() == [Started("a", "print", "/x/a.1")]

        with pytest.raises(FencedOff):
            book.write(Completed("a", "print", "/x/a.1"))
        with pytest.raises(FencedOff):
            old.rename("/in", "/elsewhere")

    assert mine.records() == [Started("a", "print", "/x/a.1")]


def test_the_page_about_load_process_extract_works_as_it_is_typed(cluster: LocalCluster) -> None:
    """One documented command each (SM-02), and all of them as the steps of a flow (SM-03)."""
    page = (ROOT / "docs" / "guide" / "load-process-extract.md").read_text(encoding="utf-8")
    visits = [f"user{n} /page{n * 7 % 5}" for n in range(100)]
    (cluster.directory / "visits.txt").write_text("\n".join(visits) + "\n")
    (yaml,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    (cluster.directory / "visits.yaml").write_text(yaml)
    bin_directory = cluster.directory / "bin"
    bin_directory.mkdir()
    command = bin_directory / "mrstream"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m mrstream.streaming.cli "$@"\n')
    command.chmod(0o755)
    path = f"{bin_directory}:{os.environ['PATH']}"
    typed = re.findall(r"^\$ (.*)$", page, re.M)
    assert len(typed) == 4

    for words in typed:
        ended = subprocess.run(
            ["bash", "-c", words], cwd=cluster.directory, capture_output=True, text=True,
            env={**cluster.environment, "PYTHONPATH": str(ROOT), "PATH": path}, timeout=120,
        )  # fmt: skip
        assert ended.returncode == 0, f"$ {words}\n{ended.stderr}"

    for name in ("pages.txt", "extracted.txt"):
        lines = (cluster.directory / name).read_text().splitlines()
        counts = sorted(tuple(line.split()) for line in lines)
        assert counts == [("20", f"/page{n}") for n in range(5)]
