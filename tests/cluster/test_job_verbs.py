"""`mrstream job -VERB` on jobs that run: what each does to the job, and what it says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.protocol import JobReport, ListJobs, ReportOfJob
from tests.cluster.local import LocalCluster, wait_for

ROLES = ("dfs.master", "dfs.chunkserver", "mapreduce.master", "mapreduce.worker")
MASTER = "mapreduce.master"
# A program that ends when the file appears that its variable names.
PATIENT = """#!/usr/bin/env python3
import os, sys, time
lines = sys.stdin.readlines()
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
sys.stdout.writelines(lines)
"""
GREEDY = """#!/usr/bin/env python3
import sys, time
held = bytearray(400 << 20)
for page in range(0, len(held), 4096):
    held[page] = 1
print("has it all", file=sys.stderr, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One host with one slot: who runs first is seen by everybody."""
    directory = tmp_path_factory.mktemp("verbs")
    for name, text in (("words", "b\na\n"), ("patient.py", PATIENT), ("greedy.py", GREEDY)):
        (directory / name).write_text(text)
    with LocalCluster(directory, 1, roles=ROLES, slots=1) as running:
        put = running.mrstream("dfs", "-put", "words", "/words")
        assert put.returncode == 0, put.stderr
        yield running


class Job:
    """A job of one map that runs until `go()`."""

    def __init__(self, cluster: LocalCluster, name: str, *more: str) -> None:
        self._client = JobClient(cluster.cluster)
        self.name = name
        self._go = Path(cluster.shared) / name
        self._process = cluster.begin(
            "-D", f"mapreduce.job.name={name}", *more, "-numReduceTasks", "0", "-input", "/words",
            "-mapper", "patient.py", "-cmdenv", f"GO={self._go}", cwd=cluster.directory,
        )  # fmt: skip
        self.job_id: str = wait_for(self._known, 60.0, f"{name} to be known")

    def _known(self) -> str | None:
        rows = self._client.call(ListJobs(True))
        return next((row.key for row in rows if row.name == self.name), None)

    def report(self) -> JobReport:
        report: JobReport = self._client.call(ReportOfJob(self.job_id))
        return report

    def running(self) -> list[str]:
        return [each.attempt_id for each in self.report().attempts if each.state == "running"]

    def attempt(self, number: int) -> str:
        """Wait for an attempt of the map to run; give its id."""
        attempt: str = wait_for(
            lambda: next((one for one in self.running() if one.endswith(f"_{number}")), None),
            60.0,
            f"attempt {number} to run",
        )
        return attempt

    def count(self, name: str) -> int:
        """One of the counters that end with a job."""
        groups = self.report().counters.values()
        return next((group[name] for group in groups if name in group), 0)

    def go(self) -> None:
        self._go.touch()

    def end(self) -> tuple[int, bytes, str]:
        out, error = self._process.communicate(timeout=120)
        return self._process.returncode, out, error.decode()


def ask(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[bytes]:
    return cluster.mrstream("job", *words)


def said(cluster: LocalCluster, *words: str) -> str:
    ended = ask(cluster, *words)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


def test_kill_task_has_it_tried_again_at_no_cost(cluster: LocalCluster) -> None:
    job = Job(cluster, "killed-task", "-D", "mapreduce.map.maxattempts=1")
    first = job.attempt(0)

    assert said(cluster, "-kill-task", first) == f"Killed task {first}\n"
    job.attempt(1)
    again = ask(cluster, "-kill-task", first)
    job.go()
    status, out, error = job.end()

    assert again.returncode == 1
    assert again.stderr.decode() == f"Could not kill task {first}: it does not run\n"
    assert (status, out) == (0, b"b\t\na\t\n"), error
    assert job.count("Killed map tasks") == 1
    assert job.count("Failed map tasks") == 0


def test_fail_task_counts_as_a_failure(cluster: LocalCluster) -> None:
    job = Job(cluster, "failed-task", "-D", "mapreduce.map.maxattempts=2")

    for number in (0, 1):
        attempt = job.attempt(number)
        assert said(cluster, "-fail-task", attempt) == f"Failed task {attempt}\n"
    status, _, error = job.end()

    assert status == 1, error
    assert attempt in error
    assert job.count("Failed map tasks") == 2


def test_kill_ends_a_job_once(cluster: LocalCluster) -> None:
    job = Job(cluster, "killed-job")
    job.attempt(0)

    assert said(cluster, "-kill", job.job_id) == f"Killed job {job.job_id}\n"
    status, out, error = job.end()

    assert status != 0 and out == b"", error
    assert "killed by mrstream job -kill" in error
    assert said(cluster, "-kill", job.job_id) == f"{job.job_id} has ended already\n"
    unknown = ask(cluster, "-kill", "job_1_0001")
    assert unknown.returncode != 0 and b"Traceback" not in unknown.stderr


def test_set_priority_changes_who_is_next(cluster: LocalCluster) -> None:
    running = Job(cluster, "first")
    running.attempt(0)
    second, third = Job(cluster, "second"), Job(cluster, "third")

    assert said(cluster, "-set-priority", third.job_id, "very_high") == "Changed job priority.\n"
    running.go()
    next_attempt = third.attempt(0)
    waiting = second.running()
    shown = said(cluster, "-list-attempt-ids", third.job_id, "map", "running").split()
    third.go()
    second.go()

    assert waiting == [] and shown == [next_attempt]
    assert [job.end()[0] for job in (running, second, third)] == [0, 0, 0]
    late = ask(cluster, "-set-priority", third.job_id, "LOW")
    assert late.returncode != 0 and b"does not run (any more)" in late.stderr
    for word in ("9", "²"):
        wrong = ask(cluster, "-set-priority", third.job_id, word)
        assert wrong.returncode != 0 and b"is not one of VERY_LOW" in wrong.stderr, wrong.stderr


def test_what_is_known_of_a_job_outlives_the_master(cluster: LocalCluster) -> None:
    """Its report, events and counters, to the letter."""
    job = Job(cluster, "remembered")
    job.go()
    assert job.end()[0] == 0
    asked = [("-status", "--json"), ("-history",), ("-events",), ("-events", "2", "1")]
    before = [said(cluster, verb, job.job_id, *more) for verb, *more in asked]

    cluster.kill(MASTER, "h1")
    cluster.start(MASTER, "h1")
    after = [said(cluster, verb, job.job_id, *more) for verb, *more in asked]

    assert after == before
    events, some = before[2].splitlines(), before[3].splitlines()
    assert len(events) == 3 and some == [events[0], events[2]]
    assert b"must be a whole number" in ask(cluster, "-events", job.job_id, "²").stderr


def test_an_attempt_over_its_memory_limit_is_killed_and_named(cluster: LocalCluster) -> None:
    """Limits: who held how much, and the setting that allows it."""
    ended = cluster.mrstream(
        "-D", "mapreduce.map.memory.mb=200", "-D", "mapreduce.map.maxattempts=1",
        "-numReduceTasks", "0", "-input", "/words", "-mapper", "greedy.py",
    )  # fmt: skip

    error = ended.stderr.decode()
    assert ended.returncode == 1, error
    assert "more than the 200 MiB that mapreduce.map.memory.mb allows; the largest is" in error
    assert "greedy.py" in error and "Traceback" not in error
