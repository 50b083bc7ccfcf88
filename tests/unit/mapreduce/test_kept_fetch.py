"""mapreduce/client/kept_fetch.py: a failed attempt comes here whole or not at all, from a master
behind a real socket that may be away in the middle."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mrstream.cluster.config.config import MAPREDUCE_MASTER, Cluster, ClusterConfig, HostConfig
from mrstream.cluster.config.state import Secret
from mrstream.cluster.errors import Unavailable, UserError
from mrstream.cluster.leader.connection import LeaderConnection
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.wire.network import Peer, Server, new_event_loop
from mrstream.mapreduce import history
from mrstream.mapreduce.attempt.attempt_report import KEPT_FAILURE, KEPT_INPUT, KEPT_ORDER
from mrstream.mapreduce.client import client, kept_fetch
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.errors import NoSuchAttempt
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.protocol import LogPiece, ReadKept, SpecOfJob
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf

CLUSTER = Cluster(
    ClusterConfig("test", "h1", (HostConfig("h1", "127.0.0.1"),)), Secret("c1", b"s" * 32)
)
JOB = JobId("job_1_0001")
ATTEMPT, OTHER = "attempt_1_0001_m_000000_3", "attempt_1_0001_m_000001_3"
SPEC = JobSpec(JOB, JobConf({}).to_dict(), Program("cat"), None, None, 0, ("/in",), "/out")
FILES = {KEPT_FAILURE: b"why it failed", KEPT_INPUT: b"what it read", KEPT_ORDER: b"its order"}
PIECE_BYTES = 5
REQUESTS = 1 + 4 + 4 + 1 + 3
"""For the job, and for the pieces of four files and their ends."""


class Master:
    """Gives what a worker kept in small pieces; `before` each answer something may happen."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.kept = {ATTEMPT: dict(FILES), OTHER: dict(FILES)}
        self.asked = 0
        self.before: Callable[[Any], None] = lambda request: None
        self._loop = loop
        handlers: dict[type[Any], Any] = {SpecOfJob: self._spec, ReadKept: self._read}
        self._server = Server(handlers, CLUSTER.identity(MAPREDUCE_MASTER, "h1"))
        self.address: str = self.do(self._server.start("127.0.0.1:0"))

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self.do(self._server.close())

    def goes_away_after(self, requests: int) -> None:
        def look(_: object) -> None:
            if self.asked > requests:
                raise Unavailable("the master has just begun to lead")

        self.asked, self.before = 0, look

    def _spec(self, request: SpecOfJob, peer: Peer) -> bytes:
        self._meet(request)
        return job.encode(SPEC)

    def _read(self, request: ReadKept, peer: Peer) -> LogPiece:
        self._meet(request)
        data = self.kept[request.attempt_id].get(request.name, b"")
        return LogPiece(data[request.offset : request.offset + PIECE_BYTES], len(data))

    def _meet(self, request: object) -> None:
        self.asked += 1
        self.before(request)


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    there = Master(loop)
    finding, identity = Finding({"h1": there.address}), CLUSTER.identity()
    monkeypatch.setattr(
        client, "connect_to_leader", lambda *_, **options: LeaderConnection(finding, identity)
    )
    monkeypatch.setattr(dfs_files, "serve", lambda cluster: None)  # no file of it is asked for
    yield there
    there.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def kept(attempt_id: str = ATTEMPT) -> dict[str, bytes]:
    """What `-repeat` finds, without a cluster."""
    record, directory = history.find_attempt(attempt_id)
    assert record.read_spec() == SPEC
    return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def below_home() -> list[str]:
    return sorted(name for _, _, names in os.walk(history.home()) for name in names)


def test_all_that_was_kept_comes_in_pieces_and_once(master: Master) -> None:
    kept_fetch.fetch(ATTEMPT, CLUSTER)
    asked = master.asked

    assert kept() == FILES, "there was no segment, so there is no file of it"
    kept_fetch.fetch(ATTEMPT, CLUSTER)
    assert master.asked == asked


@pytest.mark.parametrize("requests", range(REQUESTS))
def test_a_master_that_goes_away_leaves_nothing_and_the_next_fetch_brings_it_all(
    master: Master, requests: int
) -> None:
    master.goes_away_after(requests)

    with pytest.raises(Unavailable):
        kept_fetch.fetch(ATTEMPT, CLUSTER)

    with pytest.raises(NoSuchAttempt, match=f"nothing is kept of {JOB}"):
        history.find_attempt(ATTEMPT)
    master.goes_away_after(REQUESTS)
    kept_fetch.fetch(ATTEMPT, CLUSTER)
    assert kept() == FILES


def test_an_attempt_of_which_nothing_is_kept_leaves_those_that_are(master: Master) -> None:
    kept_fetch.fetch(OTHER, CLUSTER)
    there = below_home()
    del master.kept[ATTEMPT][KEPT_ORDER]

    with pytest.raises(UserError, match=f"nothing is kept of {ATTEMPT}"):
        kept_fetch.fetch(ATTEMPT, CLUSTER)

    assert below_home() == there and kept(OTHER) == FILES
    with pytest.raises(NoSuchAttempt, match=f"these are: {OTHER}"):
        history.find_attempt(ATTEMPT)


def test_two_that_fetch_the_same_do_not_disturb_each_other(master: Master) -> None:
    """The other one is through just before this one."""

    def other_is_first(request: object) -> None:
        if isinstance(request, ReadKept) and request.name == KEPT_ORDER:
            directory = Path(history.home(), "jobs", JOB, "kept", ATTEMPT)
            directory.mkdir(parents=True, exist_ok=True)
            for name, data in FILES.items():
                (directory / name).write_bytes(data)

    master.before = other_is_first

    kept_fetch.fetch(ATTEMPT, CLUSTER)

    assert kept() == FILES
    assert os.listdir(Path(history.home(), "jobs", JOB, "kept")) == [ATTEMPT]


def test_an_empty_directory_of_an_attempt_is_no_attempt(master: Master) -> None:
    """As a fetch that failed left it before this was whole or not at all."""
    Path(history.home(), "jobs", JOB, "kept", ATTEMPT).mkdir(parents=True)

    kept_fetch.fetch(ATTEMPT, CLUSTER)

    assert kept() == FILES
