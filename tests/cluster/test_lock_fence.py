"""Lock and dfs meet: what an ex-holder does late, itself or by a job of the cluster, is refused by
the file system itself (CH-20)."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from mrstream.dfs.errors import FencedOff
from mrstream.lock import protocol as p
from mrstream.lock.client.client import CellClient
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.protocol import ListJobs
from tests.cluster.job_faults import JOB_MASTER, ROLES
from tests.cluster.local import DFS_ROLES, LocalCluster, wait_for
from tests.cluster.test_job_group import MORE, leader_of

LOCK = "/ls/local/nightly"
MRSTREAM = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"
COMMAND = (sys.executable, "-P", "-c", MRSTREAM)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path_factory.mktemp("fence"), 1, roles=[*DFS_ROLES, "lock.master"], more="lock: {}\n"
    ) as running:
        yield running


def test_a_late_write_of_an_ex_holder_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    """CH-20 end to end: acquire fences what its command does in the dfs, without a word in it."""
    file = tmp_path / "report"
    file.write_bytes(b"first")
    with CellClient(cluster.cluster).open_session() as cell:
        held = cell.acquire(LOCK)
        put = (sys.executable, "-c", MRSTREAM, "dfs", "-put", "-f", str(file), "/report")
        ours = {**cluster.environment, "MRSTREAM_SEQUENCER": held.fence_text}
        first = subprocess.run(put, env=ours, capture_output=True, check=False)
        assert first.returncode == 0, first.stderr
        held.release()
        # Somebody else has the lock now, and does its work by the command.
        file.write_bytes(b"second")
        second = cluster.mrstream("lock", "acquire", LOCK, "--", *put)
        assert second.returncode == 0, second.stderr

        file.write_bytes(b"first, late")
        late = subprocess.run(put, env=ours, capture_output=True, check=False)

    assert late.returncode == 1 and LOCK.encode() in late.stderr, late.stderr
    assert cluster.mrstream("dfs", "-cat", "/report").stdout == b"second"


def test_a_file_system_of_an_ex_holder_changes_nothing_more(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
    with CellClient(cluster.cluster).open_session() as cell:
        fences = [cell.acquire(LOCK), cell.acquire("/ls/local/other")]
        first, other = (fsspec.filesystem("dfs", fence=held.fence) for held in fences)
        first.pipe_file("/by-fsspec", b"first")
        fences[0].release()
        second = fsspec.filesystem("dfs", fence=cell.acquire(LOCK).fence)
        second.pipe_file("/by-fsspec", b"second")

        with pytest.raises(FencedOff, match=LOCK):
            first.pipe_file("/by-fsspec", b"first, late")
        other.pipe_file("/by-another", b"of another lock")

    assert second.cat_file("/by-fsspec") == b"second"


def test_what_runs_under_two_locks_is_fenced_by_both(cluster: LocalCluster) -> None:
    inner, mkdir = "/ls/local/inner", (*COMMAND, "dfs", "-mkdir")
    nested = (*COMMAND, "lock", "acquire", inner, "--", "sh", "-c")
    words = f'echo "$MRSTREAM_SEQUENCER"; {shlex.join([*mkdir, "/nested"])}'

    said = cluster.mrstream("lock", "acquire", LOCK, "--", *nested, words)

    assert said.returncode == 0, said.stderr
    fences = said.stdout.decode().splitlines()
    assert [fence.rpartition(":")[0] for fence in fences] == [LOCK, inner]
    for lock in (LOCK, inner):
        # Whoever takes one of them alone ends what is done under both.
        words = shlex.join([*mkdir, f"/by{lock.replace('/', '-')}"])
        assert cluster.mrstream("lock", "acquire", lock, "--", "sh", "-c", words).returncode == 0
        late = subprocess.run(
            [*mkdir, "/late"], capture_output=True, check=False,
            env={**cluster.environment, "MRSTREAM_SEQUENCER": "\n".join(fences)},
        )  # fmt: skip
        assert late.returncode == 1 and lock.encode() in late.stderr, late.stderr
        fences = [fence for fence in fences if not fence.startswith(f"{lock}:")] or fences


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three job masters, which have a fence of their own."""
    directory = tmp_path_factory.mktemp("jobs")
    roles = [*ROLES, "lock.master"]
    with LocalCluster(directory, 3, roles=roles, slots=2, more=f"lock: {{}}\n{MORE}") as running:
        (directory / "in").mkdir()
        for name in ("quick", "slow"):
            (directory / "in" / name).write_text(f"{name}\n")
        assert running.mrstream("dfs", "-put", str(directory / "in"), "/in").returncode == 0
        yield running


def test_a_job_of_an_ex_holder_commits_nothing_more_and_fails(masters: LocalCluster) -> None:
    """Whoever leads the jobs by then: a job carries its lock as long as it runs. Its submitter is
    stopped, and does not know that another has the lock; nor does the job, before it is refused."""
    shared = Path(masters.shared)
    mapper = (
        'read line; echo "$MRSTREAM_SEQUENCER" > SHARED/fence-$line; '
        "until test $line = quick || test -e SHARED/go; do sleep 0.1; done; echo $line"
    ).replace("SHARED", masters.shared)
    program = shared / "mapper.sh"
    program.write_text(f"#!/bin/sh\n{mapper}\n")
    program.chmod(0o755)
    job = shlex.join(
        [*COMMAND, "-input", "/in", "-output", "/out", "-mapper", str(program), "-reducer", "NONE"]
    )
    ended, said = shared / "ended", shared / "said"
    words = f"{job} 2> {said}; echo $? > {ended}.new; mv {ended}.new {ended}"
    begun = masters.begin("lock", "acquire", "--delay", "0s", LOCK, "--", "sh", "-c", words)
    dfs = masters.client()
    leader = ""
    try:
        wait_for((shared / "fence-slow").exists, 90, "the slow map to run")
        wait_for(lambda: "/out/part-00000" in listed(masters, "/out"), 90, "the quick map's output")
        before = listed(masters, "/out")
        leader = leader_of(masters)
        masters.kill(JOB_MASTER, leader)
        leader_of(masters, other_than=leader)
        os.kill(begun.pid, signal.SIGSTOP)
        end_session(masters)
        done = masters.mrstream(
            "lock", "acquire", "--wait", "60s", LOCK, "--", *COMMAND, "dfs", "-touchz", "/out/mine"
        )
        assert done.returncode == 0, done.stderr

        (shared / "go").touch()
        wait_for(ended.exists, 120, "the job to end")
    finally:
        begun.kill()
        begun.communicate()
        if leader:
            masters.start(JOB_MASTER, leader)

    assert ended.read_text() == "1\n"
    (line,) = [line for line in said.read_text().splitlines() if "failed with state" in line]
    assert f"FAILED due to: its lock is lost: {LOCK}: generation 1 is over, 2 has come" in line
    assert (shared / "fence-slow").read_text() == f"{LOCK}:1\n", "its program is under the lock too"
    assert listed(masters, "/out") == sorted([*before, "/out/mine"])
    left = [status.path for status in dfs.find("/out/_temporary") if "attempt" in status.path]
    assert left == [], "what bears its id goes; what lies above may be another's"
    # Nobody took it for the end of the master: jobs go on, and one that comes too late does not.
    words = ("-input", "/in", "-mapper", "cat", "-reducer", "NONE", "-output")
    assert masters.mrstream(*words, "/other").returncode == 0
    late = subprocess.run(
        [*COMMAND, *words, "/late"], capture_output=True, text=True, check=False,
        env={**masters.environment, "MRSTREAM_SEQUENCER": f"{LOCK}:1"},
    )  # fmt: skip
    assert late.returncode == 1 and "generation 1 is over, 2 has come" in late.stderr, late.stderr
    with JobClient(masters.cluster) as jobs:
        states = [row.state for row in jobs.call(ListJobs(True))]
    assert states == ["failed", "succeeded"], "what is refused is no job"
    assert not any(path.startswith("/late") for path in listed(masters, "/"))


def listed(cluster: LocalCluster, path: str) -> list[str]:
    shown = cluster.mrstream("dfs", "-ls", path)
    return [line.split()[-1] for line in shown.stdout.decode().splitlines() if " /" in line]


def end_session(cluster: LocalCluster) -> None:
    """As if the holder's lease had run out."""
    with CellClient(cluster.cluster).open_session() as cell:
        row = next(row for row in cell.sessions() if LOCK in row.locks)
        cell._link._calling.call(p.EndSession(row.session, cell.locate().epoch), 10.0)
