"""The output of a job under a lock, as the master touches it: over the real client and brain of the
dfs, without a process."""

from __future__ import annotations

from typing import Any

import pytest

from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.identity import Identity
from mrstream.dfs.chunk import Fences
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import FencedOff
from mrstream.dfs.protocol import MakeDirectory, RaiseFence
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dataflow.committer import Committer
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.master.job_output import JobOutput
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.mapreduce.worker.job_here import JobHere
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from tests.support.dfs_model import Model

OWN, LOCK = ("jobs", 5), ("/ls/local/nightly", 1)
ATTEMPT = "attempt_1_0001_m_000000_0"
VERSION = "mapreduce.fileoutputcommitter.algorithm.version"


class Dfs:
    """A brain, and the connection of this process to it."""

    def __init__(self) -> None:
        self.model = Model()
        self.finding = Finding({"h1": "127.0.0.1:1"})
        self.asked: list[Any] = []

    def next_number(self) -> int:
        return 0

    def call(self, request: Any, timeout_s: float, number: int = 0, **more: Any) -> Any:
        self.asked.append(request)
        return self.model.call(request)

    def close(self) -> None:
        pass

    def client(self, fences: Fences) -> DfsClient:
        client = DfsClient(
            "127.0.0.1:1", Identity("c", b"s" * 32, "", ""), retry=RetryPolicy(total_s=0.0)
        ).under(fences)
        client._connection = self  # type: ignore[assignment]
        return client

    def changes(self) -> list[Fences]:
        """The fences of all changes since this was asked."""
        asked, self.asked = self.asked, []
        return [(ask.fence, *ask.more_fences) for ask in asked if ask.mutates]

    def mkdir(self, path: str) -> None:
        self.model.call(MakeDirectory(path, "me", parents=True))


@pytest.fixture
def dfs(monkeypatch: pytest.MonkeyPatch) -> Dfs:
    """As a job master of a group has it."""
    made = Dfs()
    own = made.client((OWN,))
    monkeypatch.setattr(dfs_files, "_own_client", lambda name: own)
    return made


def spec_of(fences: Fences = (LOCK,), version: str = "2") -> JobSpec:
    properties = JobConf({VERSION: version}).to_dict()
    return JobSpec(
        JobId("job_1_0001"), properties, Program("cat"), None, None, 0, ("/in",), "/out",
        fences=fences,
    )  # fmt: skip


def output_of(spec: JobSpec) -> JobOutput:
    return JobOutput(spec, "dfs://test/")


@pytest.mark.parametrize("version", ["1", "2"])
def test_all_that_the_master_does_for_a_job_is_under_its_own_fence_and_the_jobs(
    dfs: Dfs, version: str
) -> None:
    output = output_of(spec_of(version=version))

    output.set_up()
    output.committer.setup_task(ATTEMPT)
    output.committer.commit_task(ATTEMPT)
    output.committer.setup_task(ATTEMPT)
    output.committer.abort_task(ATTEMPT)
    output.commit_job()
    output.abort_job(is_killed=True)

    assert set(dfs.changes()) == {(OWN, LOCK)}
    assert dfs.model.paths() == ["/", "/out", "/out/_SUCCESS"]


def test_a_job_without_a_lock_is_under_the_masters_fence_alone(dfs: Dfs) -> None:
    output = output_of(spec_of(fences=()))

    output.set_up()
    output.commit_job()

    assert set(dfs.changes()) == {(OWN,)}


@pytest.mark.parametrize("name", [OWN[0], LOCK[0]])
def test_a_refusal_says_whether_the_master_or_the_job_may_not(dfs: Dfs, name: str) -> None:
    output = output_of(spec_of())
    output.set_up()
    there = dfs.model.paths()
    dfs.model.call(RaiseFence((name, 9)))

    for change in (output.set_up, output.commit_job, lambda: output.abort_job(is_killed=False)):
        with pytest.raises(FencedOff) as refusal:
            change()
        assert refusal.value.name == name
    assert dfs.model.paths() == there


@pytest.mark.parametrize("version", ["1", "2"])
def test_of_a_job_without_its_lock_goes_what_bears_its_id_and_nothing_else(
    dfs: Dfs, version: str
) -> None:
    """The directory, and all above the attempts in it, may be a later holder's by now."""
    output = output_of(spec_of(version=version))
    output.set_up()
    output.committer.setup_task(ATTEMPT)
    output.committer.setup_task("attempt_1_0001_m_000001_0")
    if version == "1":
        output.committer.commit_task("attempt_1_0001_m_000001_0")
    room = "/out/_temporary/0"
    others = [
        f"{room}/_temporary/attempt_1_00011_m_000000_0",
        f"{room}/_temporary/attempt_1_0002_m_000000_0",
        f"{room}/task_1_0002_m_000001",
        "/out/mine",
    ]
    for path in others:
        dfs.mkdir(path)
    dfs.model.call(RaiseFence((LOCK[0], 2)))
    dfs.changes()

    output.drop_attempts()

    above = ["/", "/out", "/out/_temporary", room, f"{room}/_temporary"]
    assert dfs.model.paths() == sorted([*above, *others])
    assert set(dfs.changes()) == {(OWN,)}
    output.drop_attempts()
    dfs.model.call(RaiseFence((OWN[0], 6)))
    dfs.mkdir(f"{room}/_temporary/{ATTEMPT}")
    with pytest.raises(FencedOff) as refusal:
        output.drop_attempts()
    assert refusal.value.name == OWN[0], "a deposed master clears nothing"


def test_there_may_be_nothing_to_clear(dfs: Dfs) -> None:
    """The later holder deleted it all."""
    output_of(spec_of()).drop_attempts()

    assert dfs.changes() == []


def test_a_temporary_directory_is_nobody_elses(dfs: Dfs) -> None:
    """Named after the submission: it goes whoever has the lock."""
    output = output_of(spec_of())
    output.set_up()
    dfs.model.call(RaiseFence((LOCK[0], 2)))

    output.remove()

    assert dfs.model.paths() == ["/"]


def test_whether_a_lock_holds_is_asked_without_changing_anything(dfs: Dfs) -> None:
    output = output_of(spec_of())
    output.check_fences()
    assert dfs.model.brain.fences.generation(LOCK[0]) == 1
    records = len(dfs.model.log)

    output.check_fences()
    assert len(dfs.model.log) == records
    dfs.model.call(RaiseFence((LOCK[0], 2)))
    with pytest.raises(FencedOff, match="nightly: generation 1 is over, 2 has come"):
        output.check_fences()


def test_a_worker_commits_under_the_lock_of_the_job(
    dfs: Dfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no fence of its own: whether its leader leads is its allegiance's to know."""
    plain = dfs.client(())
    monkeypatch.setattr(dfs_files, "_own_client", lambda name: plain)
    here = JobHere(job.encode(spec_of()), "dfs://test/")
    files = here._committer
    assert isinstance(files, Committer)
    for attempt_id in (ATTEMPT, "attempt_1_0001_m_000001_0"):
        files.setup_task(attempt_id)

    assert here.commit(ATTEMPT, lambda: True)
    assert set(dfs.changes()) == {(LOCK,)}
    dfs.model.call(RaiseFence((LOCK[0], 2)))

    with pytest.raises(FencedOff):
        here.commit("attempt_1_0001_m_000001_0", lambda: True)
    with pytest.raises(FencedOff):
        here.drop_output("attempt_1_0001_m_000001_0")
    assert set(dfs.changes()) == {(LOCK,)}
