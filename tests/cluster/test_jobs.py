"""Jobs on a real cluster of three hosts: the same bytes as local mode, restarts or not.

What happens when processes are killed at each stage is the matter of `test_job_faults.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.mapreduce.attempt.in_turn import ATTEMPTS_MAX
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.protocol import JobReport, ListJobs, ReportOfJob
from tests.cluster.local import LocalCluster, wait_for

ROLES = ("dfs.master", "dfs.chunkserver", "mapreduce.master", "mapreduce.worker")
LINES = 30_000
COUNT_WORDS = """#!/usr/bin/env python3
import sys
from itertools import groupby
pairs = (line.rstrip("\\n").split("\\t") for line in sys.stdin)
for word, group in groupby(pairs, key=lambda pair: pair[0]):
    print(word, sum(int(count) for _, count in group), sep="\\t")
"""
SPLIT_WORDS = """#!/usr/bin/env python3
import sys
for line in sys.stdin:
    print(line.split()[0], 1, sep="\\t")
"""
SLOW_WORDS = """#!/usr/bin/env python3
import sys, time
for number, line in enumerate(sys.stdin):
    if number % 500 == 0:
        time.sleep(0.1)
        print("reporter:counter:Test,Pauses,1", file=sys.stderr, flush=True)
    print(line.split()[0], 1, sep="\\t")
"""
NUMBERS = """#!/usr/bin/env python3
import sys
verb, *words = sys.argv[1:]
if verb == "splits":
    for word in words:
        for start in range(0, int(word), 100):
            print(f"from {start}", 100, sep="\\t")
else:
    start = int(words[0].split()[1])
    for number in range(start, start + 100):
        print(number, f"v{number % 7}", sep="\\t")
"""
TEN_MAPS = ("-D", "mapreduce.job.maps=10")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three hosts with a file of words in the dfs."""
    directory = tmp_path_factory.mktemp("jobs")
    (directory / "words.txt").write_text(
        "".join(f"word{number * 7919 % 501} {number}\n" for number in range(LINES))
    )
    for name, text in (
        ("m.py", SPLIT_WORDS),
        ("slow_m.py", SLOW_WORDS),
        ("r.py", COUNT_WORDS),
    ):
        (directory / name).write_text(text)
    with LocalCluster(directory, 3, roles=ROLES, dfs={"dead_after": "30s"}) as running:
        assert running.mrstream("dfs", "-mkdir", "-p", "/in").returncode == 0
        put = running.mrstream("dfs", "-put", str(directory / "words.txt"), "/in/words.txt")
        assert put.returncode == 0, put.stderr
        yield running


@pytest.fixture(scope="module")
def expected(cluster: LocalCluster) -> bytes:
    """What local mode gives for the same input and splits."""
    local = cluster.mrstream(
        *TEN_MAPS, "-jt", "local", "-fs", "file:///", "-numReduceTasks", "3",
        "-input", str(cluster.directory / "words.txt"), "-mapper", "m.py", "-reducer", "r.py",
    )  # fmt: skip
    assert local.returncode == 0, local.stderr.decode()
    return local.stdout


class Started:
    """A job that was started and runs beside the test."""

    def __init__(self, cluster: LocalCluster, *arguments: str) -> None:
        self._client = JobClient(cluster.cluster)
        known = {row.key for row in self._client.call_patiently(ListJobs(True))}
        code = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"
        root = Path(__file__).parent.parent.parent
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**cluster.environment, "PYTHONPATH": str(root)},
            cwd=cluster.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.job_id = wait_for(
            lambda: next(
                (r.key for r in self._client.call(ListJobs(True)) if r.key not in known), None
            ),
            60.0,
            "the job to be submitted",
        )

    def report(self) -> JobReport:
        report: JobReport = self._client.call_patiently(ReportOfJob(self.job_id))
        return report

    def wait_until(self, *, state: str, kind: str, count: int = 1) -> list[str]:
        """Wait for so many attempts of a kind in a state; give their hosts."""

        def hosts() -> list[str] | None:
            found = [
                each.host
                for each in self.report().attempts
                if f"_{kind}_" in each.attempt_id and each.state == state
            ]
            return found if len(found) >= count else None

        return wait_for(hosts, 60, f"{count} attempts of {kind} to be {state}")

    def finish(self) -> tuple[int, bytes, str]:
        """Wait for the end; give status, results and what was said."""
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err.decode()


def slow_job(cluster: LocalCluster) -> Started:
    return Started(
        cluster, *TEN_MAPS, "-numReduceTasks", "3", "-input", "/in", "-mapper", "slow_m.py",
        "-reducer", "r.py",
    )  # fmt: skip


def test_a_job_gives_the_bytes_of_local_mode(cluster: LocalCluster, expected: bytes) -> None:
    """MapReduce §3.3: output as of a failure-free sequential run; `m.py` is shipped by itself."""
    done = cluster.mrstream(
        *TEN_MAPS, "-numReduceTasks", "3", "-input", "/in", "-mapper", "m.py", "-reducer", "r.py"
    )

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == expected
    assert "completed successfully" in done.stderr.decode()
    assert f"Map input records={LINES}" in done.stderr.decode()


def test_a_program_gives_the_input_and_copies_of_a_map_share_it(cluster: LocalCluster) -> None:
    """MR-29, NU-15, NU-16: `-inputformat program:` lists its splits where the job is submitted and
    reads them on the hosts, to which it travels; values decide the reduce there too."""
    (cluster.directory / "give_numbers.py").write_text(NUMBERS)

    ran = cluster.mrstream(
        *("-input", "400", "-input", "200", "-inputformat", "program:give_numbers.py"),
        *("-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "2", "-output", "/by-value"),
        *("-D", "mrstream.map.concurrency=3", "-D", "mrstream.partition.by=value"),
    )

    assert ran.returncode == 0, ran.stderr.decode()
    assert b"number of splits:6" in ran.stderr and b"Map input records=600" in ran.stderr
    shown = [cluster.mrstream("dfs", "-cat", f"/by-value/part-0000{n}") for n in (0, 1)]
    parts = [[line.split("\t") for line in part.stdout.decode().splitlines()] for part in shown]
    numbers = sorted(int(number) for part in parts for number, _ in part)
    assert numbers == sorted([*range(400), *range(200)])
    values = [{value for _, value in part} for part in parts]
    assert sorted([*values[0], *values[1]]) == [f"v{n}" for n in range(7)]


def test_a_part_of_a_job_has_the_part_files_of_local_mode(cluster: LocalCluster) -> None:
    """MR-32: `-tasks` runs some maps, and their files are named as in the whole job."""
    words = (*TEN_MAPS, "-numReduceTasks", "0", "-tasks", "m0,m3-5", "-mapper", "cat")
    local = cluster.directory / "some"

    here = cluster.mrstream(
        *words, "-jt", "local", "-fs", "file:///",
        "-input", str(cluster.directory / "words.txt"), "-output", str(local),
    )  # fmt: skip
    there = cluster.mrstream(*words, "-input", "/in", "-output", "/some")
    got = cluster.mrstream("dfs", "-get", "/some", str(cluster.directory / "some-there"))

    assert (here.returncode, there.returncode, got.returncode) == (0, 0, 0), there.stderr.decode()
    found = {path.name: path.read_bytes() for path in local.glob("part-*")}
    assert sorted(found) == ["part-00000", "part-00003", "part-00004", "part-00005"]
    copied = cluster.directory / "some-there"
    assert {path.name: path.read_bytes() for path in copied.glob("part-*")} == found


def test_an_output_directory_is_complete_and_never_overwritten(
    cluster: LocalCluster, expected: bytes
) -> None:
    """Spec 8.4: `_SUCCESS` and parts; a second job with the same output is refused with 5."""
    words = (
        *TEN_MAPS, "-numReduceTasks", "3", "-input", "/in", "-output", "/out/words",
        "-mapper", "m.py", "-reducer", "r.py",
    )  # fmt: skip

    first = cluster.mrstream(*words)
    second = cluster.mrstream(*words)

    assert first.returncode == 0, first.stderr.decode()
    listing = cluster.mrstream("dfs", "-ls", "/out/words").stdout.decode()
    assert [line.rsplit("/", 1)[1] for line in listing.splitlines()[1:]] == [
        "_SUCCESS", "part-00000", "part-00001", "part-00002",
    ]  # fmt: skip
    assert cluster.mrstream("dfs", "-cat", "/out/words/part-*").stdout == expected
    assert second.returncode == 5
    assert "already exists" in second.stderr.decode()


def test_a_failing_program_is_reported_with_its_host_and_fails_the_job(
    cluster: LocalCluster,
) -> None:
    """MapReduce §4.8; MR-43: a task that fails again and again must not hang the job."""
    done = cluster.mrstream(
        "-D", "mapreduce.map.maxattempts=2", "-input", "/in", "-mapper",
        "python3 -c 'import sys; sys.exit(\"no such luck\")'",
    )  # fmt: skip

    said = done.stderr.decode()
    assert done.returncode == 1
    assert "no such luck" in said
    assert "host:" in said
    assert re.search(r"due to: Task failed task_\w+_m_000000\nJob failed as tasks failed. ", said)
    assert "Job not successful!" in said


def test_a_worker_that_restarts_at_once_repeats_no_finished_map(
    cluster: LocalCluster, expected: bytes
) -> None:
    """Segments outlive the worker's process: they lie on its disk."""
    job = slow_job(cluster)
    finished = job.wait_until(state="succeeded", kind="m", count=3)[0]

    cluster.kill("mapreduce.worker", finished)
    cluster.start("mapreduce.worker", finished)
    status, out, said = job.finish()

    assert status == 0, said
    assert out == expected
    assert job.report().facts["maps_rerun"] == 0


def test_a_killed_master_goes_on_where_it_was_and_repeats_no_finished_map(
    cluster: LocalCluster, expected: bytes
) -> None:
    """The journal has the commits, workers bring the rest, the client reconnects."""
    job = slow_job(cluster)
    job.wait_until(state="succeeded", kind="m", count=3)

    cluster.kill("mapreduce.master", "h1")
    cluster.start("mapreduce.master", "h1")
    status, out, said = job.finish()

    assert status == 0, said
    assert out == expected
    assert job.report().facts["maps_rerun"] == 0


def test_logs_of_a_lost_host_are_shown_as_far_as_they_came(cluster: LocalCluster) -> None:
    """The log lies on the host; what its programs said first, the master had heard."""
    said = cluster.mrstream(
        *TEN_MAPS, "-numReduceTasks", "0", "-input", "/in", "-output", "/said",
        "-mapper", "sh -c 'echo I ran on $MRSTREAM_HOST >&2; cat'",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr.decode()
    rows = JobClient(cluster.cluster).call_patiently(ListJobs(True))
    report: JobReport = JobClient(cluster.cluster).call_patiently(ReportOfJob(rows[-1].key))
    lost = report.attempts[0]

    for verb in ("-status", "-history"):
        document = json.loads(cluster.mrstream("job", verb, report.job.key, "--json").stdout)
        assert document["job"]["state"] == "succeeded"
        assert lost.attempt_id in [each["attempt_id"] for each in document["attempts"]]
    listed = json.loads(cluster.mrstream("job", "-list", "all", "--json").stdout)
    assert listed[-1]["key"] == report.job.key and listed[-1]["finished_at_s"] > 0
    refused = cluster.mrstream("job", "-logs", report.job.key, "--json")
    assert refused.returncode == 1 and b"--json is for -list" in refused.stderr

    cluster.kill("mapreduce.worker", lost.host)
    logs = cluster.mrstream("job", "-logs", report.job.key, lost.attempt_id)
    cluster.start("mapreduce.worker", lost.host)

    assert logs.returncode == 1
    assert "its log cannot be read" in logs.stdout.decode()
    assert f"I ran on {lost.host}\n" in logs.stdout.decode()


def test_jobs_leave_no_connection_behind(cluster: LocalCluster) -> None:
    """A master that kept one to the dfs for each job had 200 after 200 jobs."""

    def run() -> None:
        job = cluster.mrstream("-input", "/in", "-mapper", "cat", "-numReduceTasks", "0")
        assert job.returncode == 0, job.stderr

    def descriptors() -> dict[str, int]:
        pids = {f"{role} {host}": cluster.pid(role, host)
                for role in ROLES for host in cluster.hosts_of(role)}  # fmt: skip
        return {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in pids.items()}

    for _ in range(3):
        run()
    before = descriptors()
    for _ in range(6):
        run()

    def settled() -> bool:
        return all(descriptors()[name] <= count + 2 for name, count in before.items())

    wait_for(settled, 20.0, f"descriptors as before: {before}, {descriptors()}")


def test_one_process_runs_many_maps_and_another_goes_on_after_it(cluster: LocalCluster) -> None:
    """Decision 16: processes take more maps of their job, up to a number, and none is lost."""
    maps = ATTEMPTS_MAX + 20
    (cluster.directory / "lines").write_text("a line\n" * maps)
    assert cluster.mrstream("dfs", "-put", "lines", "/lines").returncode == 0

    job = cluster.mrstream(
        "-D", "mapreduce.job.running.map.limit=1", "-D", "mrstream.job.workers.max=1",
        "-D", "mapreduce.map.speculative=false",
        "-inputformat", "org.apache.hadoop.mapred.lib.NLineInputFormat", "-input", "/lines",
        "-mapper", "sh -c 'cat > /dev/null; echo $PPID'", "-reducer", "cat",
    )  # fmt: skip

    assert job.returncode == 0, job.stderr.decode()
    counts = Counter(job.stdout.split())
    assert sum(counts.values()) == maps
    assert max(counts.values()) <= ATTEMPTS_MAX
    assert len(counts) < maps
    assert f"Launched map tasks={maps}\n" in job.stderr.decode()


def test_ctrl_c_kills_the_job_and_leaves_nothing(cluster: LocalCluster) -> None:
    """Exit status 130; no attempt and no temporary output stays."""
    job = slow_job(cluster)
    job.wait_until(state="running", kind="m")

    job.process.send_signal(signal.SIGINT)
    status, _, said = job.finish()

    assert status == 130, said
    assert job.report().job.state == "killed", said
    wait_for(lambda: not attempts_of(job.job_id), 60.0, "attempts to be gone")
    wait_for(lambda: _no_results(cluster), 60.0, "temporary output to be gone")


def test_ctrl_c_before_the_jobs_id_has_come_kills_it_too(cluster: LocalCluster) -> None:
    """The master may have taken a submission whose answer its client did not wait for."""
    known = {row.key for row in JobClient(cluster.cluster).call(ListJobs(True))}
    host = cluster.hosts_of("mapreduce.master")[0]
    port = int(cluster.cluster.config.master_address("mapreduce.master").rpartition(":")[2])
    cluster.signal("mapreduce.master", host, signal.SIGSTOP)
    try:
        client = cluster.begin(
            *TEN_MAPS, "-input", "/in", "-mapper", "slow_m.py", "-reducer", "r.py",
            cwd=cluster.directory,
        )  # fmt: skip
        wait_for(lambda: _has_connection(client.pid, port), 60.0, "the job to be submitted")
        client.send_signal(signal.SIGINT)
    finally:
        cluster.signal("mapreduce.master", host, signal.SIGCONT)
    _, said = client.communicate(timeout=120)

    assert client.returncode == 130, said
    assert b"is killed" in said
    rows = [row for row in JobClient(cluster.cluster).call(ListJobs(True)) if row.key not in known]
    assert [row.state for row in rows] == ["killed"]


def _has_connection(pid: int, port: int) -> bool:
    """Has this process an established connection to that port of this machine?"""
    inodes = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            inodes.add(os.readlink(entry.path).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        row[9] in inodes and row[3] == "01" and int(row[2].rpartition(":")[2], 16) == port
        for row in rows
    )


def test_nothing_outlives_a_killed_worker(cluster: LocalCluster) -> None:
    """An attempt and all that came from it die with the worker (decision 7)."""
    job = slow_job(cluster)
    victim = job.wait_until(state="running", kind="m")[0]
    wait_for(lambda: attempts_of(job.job_id), 60.0, "programs to run")

    for host in cluster.hosts:
        cluster.kill("mapreduce.worker", host)
    wait_for(lambda: not attempts_of(job.job_id), 60.0, "attempts to be gone")
    for host in cluster.hosts:
        cluster.start("mapreduce.worker", host)
    status, _, said = job.finish()

    assert victim in cluster.hosts
    assert status == 0, said


def _no_results(cluster: LocalCluster) -> bool:
    listed = cluster.mrstream("dfs", "-ls", "/.mrstream/results").stdout
    return listed.strip() in (b"", b"Found 0 items")


def attempts_of(job_id: str) -> list[int]:
    """Processes that carry the mark of an attempt of this job."""
    mark = f"MRSTREAM_ATTEMPT=attempt_{job_id.removeprefix('job_')}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read():
                        found.append(int(name))
            except OSError:
                continue
    return found
