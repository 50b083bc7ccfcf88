"""mapreduce.client.client: a job from its submission to its exit status, against a master that is a
script behind a real socket."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mrstream.cluster.config.config import MAPREDUCE_MASTER, Cluster, ClusterConfig, HostConfig
from mrstream.cluster.config.state import Secret
from mrstream.cluster.errors import Unavailable
from mrstream.cluster.leader.connection import LeaderConnection
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.wire.network import Peer, Server, new_event_loop
from mrstream.mapreduce.client import client
from mrstream.mapreduce.client.client import ClusterJob, JobClient
from mrstream.mapreduce.console import Console
from mrstream.mapreduce.dataflow.committer import OutputExists
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.progress import JobProgress
from mrstream.mapreduce.protocol import (
    JobEnd,
    JobNews,
    KillJob,
    ListJobs,
    NewsLine,
    SubmitJob,
    WaitForNews,
)
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.mapreduce.snapshot import JobRow
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf

CLUSTER = Cluster(
    ClusterConfig("test", "h1", (HostConfig("h1", "127.0.0.1"),)), Secret("c1", b"s" * 32)
)
JOB = "job_1_0001"
HALF, WHOLE = JobProgress(1.0, 0.0, 1, 1, 0, 1), JobProgress(1.0, 1.0, 1, 1, 1, 1)


class Master:
    """Answers each request by the next line of its script, the last one for ever."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.submissions: list[SubmitJob] = []
        self.seen: list[int] = []
        self.killed: list[str] = []
        self.rows: list[JobRow] = []
        self.on_submit: list[Callable[[], Any]] = [lambda: JOB]
        self.on_wait: list[Callable[[], Any]] = []
        self._loop = loop
        handlers: dict[type[Any], Any] = {
            SubmitJob: self._submit,
            WaitForNews: self._wait,
            KillJob: self._kill,
            ListJobs: lambda request, peer: tuple(self.rows),
        }
        self._server = Server(handlers, CLUSTER.identity(MAPREDUCE_MASTER, "h1"))
        self.address: str = self.do(self._server.start("127.0.0.1:0"))

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self.do(self._server.close())

    def _submit(self, request: SubmitJob, peer: Peer) -> Any:
        self.submissions.append(request)
        return _next(self.on_submit)()

    def _wait(self, request: WaitForNews, peer: Peer) -> Any:
        self.seen.append(request.seen)
        return _next(self.on_wait)()

    def _kill(self, request: KillJob, peer: Peer) -> bool:
        self.killed.append(request.job_id)
        return True

    def nothing(self) -> Any:
        """Never answer."""
        return self._loop.create_future()

    def interrupt(self) -> Any:
        """Let the user press Ctrl-C while the answer is on its way, and lose the answer."""
        os.kill(os.getpid(), signal.SIGINT)
        return self.nothing()


def _next(script: list[Callable[[], Any]]) -> Callable[[], Any]:
    return script.pop(0) if len(script) > 1 else script[0]


def away() -> Any:
    raise Unavailable("the master has just begun to lead")


def news(seen: int, *lines: str, end: JobEnd | None = None) -> Callable[[], JobNews]:
    told = tuple(NewsLine("INFO", line) for line in lines)
    return lambda: JobNews(seen, told, WHOLE if end else HALF, end)


class Desk:
    """A user with a job for that master."""

    def __init__(self, directory: Path, master: Master) -> None:
        self.master = master
        self.output = directory / "out"
        self.said = io.StringIO()
        (directory / "in").write_text("line\n")
        self._spec = JobSpec(
            JobId(""),
            JobConf({"mapreduce.client.completion.pollinterval": "50"}).to_dict(),
            Program("cat"),
            None,
            Program("cat"),
            1,
            (f"file:{directory}/in",),
            f"file:{directory}/out",
        )

    def overwrite(self) -> None:
        """The job may replace what an earlier one left."""
        settings = {**self._spec.properties, "mrstream.output.overwrite": "true"}
        self._spec = msgspec.structs.replace(self._spec, properties=settings)

    def run(self, *, background: bool = False) -> int:
        console = Console(self.said, is_live=False)
        with JobClient(CLUSTER) as asked:
            return ClusterJob(self._spec, asked, console).run(background=background)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    master = Master(loop)
    finding = Finding({"h1": master.address})
    identity = CLUSTER.identity()
    monkeypatch.setattr(
        client, "connect_to_leader", lambda *_, **options: LeaderConnection(finding, identity)
    )
    gc.disable()  # Ctrl-C that comes while a collector's callback runs is lost
    yield Desk(tmp_path, master)
    gc.enable()
    master.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def test_a_job_is_followed_to_its_end_and_each_line_is_told_once(desk: Desk) -> None:
    desk.master.on_wait = [
        news(1, "first"),
        news(1),
        news(
            2, "second", end=JobEnd("succeeded", counters={"Mine": {"n": 3}}, closing="Took 1 s.")
        ),
    ]

    assert desk.run() == 0

    said = desk.said.getvalue()
    assert desk.master.seen == [0, 1, 1]
    assert said.count("first") == said.count("second") == 1
    assert "map 100% reduce 100%" in said and "n=3" in said and "Took 1 s." in said
    (asked,) = desk.master.submissions
    spec = job.decode(asked.spec)
    assert len(spec.splits) == 1 and spec.properties["mapreduce.job.maps"] == "1"


def test_a_job_carries_the_locks_that_its_submitter_works_under(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.master.on_wait = [news(0, end=JobEnd("succeeded"))]
    monkeypatch.setenv("MRSTREAM_SEQUENCER", "/ls/local/a:3\n/ls/local/b:7:shared")

    assert desk.run() == 0

    (asked,) = desk.master.submissions
    assert job.decode(asked.spec).fences == (("/ls/local/a", 3), ("/ls/local/b", 7))


def test_a_submission_that_is_not_answered_is_said_again_by_the_same_name(desk: Desk) -> None:
    """A master that takes over must find the job that the one before it had accepted."""
    desk.master.on_submit = [away, away, lambda: JOB]
    desk.master.on_wait = [away, news(0, end=JobEnd("succeeded"))]

    assert desk.run() == 0

    assert len(desk.master.submissions) == 3
    assert len({each.submission for each in desk.master.submissions}) == 1
    assert desk.said.getvalue().count("waiting for it") == 2, "once for each question"


def test_a_job_that_failed_says_why_and_by_its_status(desk: Desk) -> None:
    why = "Task failed task_1_0001_m_000000\nJob failed as tasks failed. failedMaps:1"
    desk.master.on_wait = [news(0, end=JobEnd("failed", why))]

    assert desk.run() == 1

    assert f"failed with state FAILED due to: {why}\n" in desk.said.getvalue()


def test_a_job_in_the_background_is_only_submitted(desk: Desk) -> None:
    assert desk.run(background=True) == 0

    assert desk.master.seen == []
    assert "Job is running in background." in desk.said.getvalue()


def test_ctrl_c_kills_the_job(desk: Desk) -> None:
    desk.master.on_wait = [desk.master.interrupt]

    assert desk.run() == 130

    assert desk.master.killed == [JOB]
    assert f"Interrupted: {JOB} is killed." in desk.said.getvalue()


def test_ctrl_c_kills_a_job_whose_id_never_came(desk: Desk) -> None:
    """The master may have accepted it: the submission, said again, gives the id."""
    desk.master.on_submit = [desk.master.interrupt, lambda: JOB]

    assert desk.run() == 130

    assert len({each.submission for each in desk.master.submissions}) == 1
    assert desk.master.killed == [JOB]


def test_overwriting_deletes_what_an_earlier_job_left(desk: Desk) -> None:
    desk.overwrite()
    desk.output.mkdir()
    (desk.output / "part-00000").write_text("old")

    assert desk.run(background=True) == 0
    assert not desk.output.exists()


def test_overwriting_never_deletes_the_output_of_a_job_that_runs(desk: Desk) -> None:
    """That one would go on, and succeed without the parts that it had committed."""
    desk.overwrite()
    desk.output.mkdir()
    (desk.output / "part-00000").write_text("committed")
    desk.master.rows = [JobRow("job_1_0007", output=f"file:{desk.output}")]

    with pytest.raises(OutputExists, match="job -kill job_1_0007"):
        desk.run()

    assert (desk.output / "part-00000").read_text() == "committed"
    assert not desk.master.submissions
