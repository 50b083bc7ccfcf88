"""A worker below the process: its real link, pool, store and zygote in one loop with a double of
the master, which loses answers, repeats itself, goes away and comes back.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mrstream.cluster.config.config import (
    MAPREDUCE_MASTER,
    WORKER,
    Cluster,
    ClusterConfig,
    HostConfig,
)
from mrstream.cluster.config.state import Secret
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.wire.messages import Message
from mrstream.cluster.wire.network import Peer, Server
from mrstream.mapreduce.attempt.attempt_report import AttemptNews, Done, Failed, Failure, send
from mrstream.mapreduce.attempt.zygote import Zygote
from mrstream.mapreduce.dataflow.files import local_path
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.protocol import (
    AllowCommit,
    AttemptEnded,
    AttemptSaid,
    AttemptShuffled,
    AttemptWantsCommit,
    FetchTrouble,
    ForgetJob,
    Heartbeat,
    Register,
    RunAttempt,
    StopRunning,
    WorkerSettings,
)
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.mapreduce.worker.attempt_process import WorkOrder
from mrstream.mapreduce.worker.worker import Worker
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from tests.unit.cluster.test_daemon import own_address

WAIT_S_MAX = 60.0
JOB = JobId("job_1_0001")
MAP, OTHER, REDUCE = (
    "attempt_1_0001_m_000000_0",
    "attempt_1_0001_m_000001_0",
    "attempt_1_0001_r_000000_0",
)


def attempt(packed: bytes, report: int, lifeline: int) -> int:
    """What the zygote forks: it does what the job's mapper is called."""
    work = msgspec.msgpack.decode(packed, type=WorkOrder)
    order, what = work.order, job.decode(work.spec).mapper.command
    send(report, AttemptNews(order.attempt_id, 0.5, 1, 10, "map", "half way"))
    match what:
        case "hang second" if order.task_index == 1:
            signal.pause()
        case "hang":
            signal.pause()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            send(report, Failed(Failure("it broke", stage="map")))
            return 1
        case _:
            for path in filter(None, [order.segment_path]):
                Path(path).write_bytes(b"segment")
            if order.output_directory:
                directory = Path(local_path(order.output_directory))
                directory.mkdir(parents=True)
                (directory / "part-00000").write_text("x")
            send(report, Done({"Mine": {"seen": 1}}, segment_bytes=7))
    return 0


class MasterDouble:
    """A server with a master's name: it keeps what workers say, and answers as it is told to."""

    def __init__(self, daemon: Daemon, config: ClusterConfig, cluster: Cluster) -> None:
        self.address = config.address("h1", MAPREDUCE_MASTER)
        self._identity = cluster.identity(MAPREDUCE_MASTER, "h1")
        self.registered: list[Register] = []
        self.ended: list[AttemptEnded] = []
        self.wants: list[str] = []
        self.news: list[Any] = []
        self.loses_answers = False
        self.epoch = 0
        self.peer: Peer | None = None
        self._server: Server | None = None

    async def start(self) -> None:
        ignored = (AttemptSaid, AttemptShuffled, FetchTrouble)
        self._server = Server(
            {
                Register: self._register,
                Heartbeat: self._heartbeat,
                AttemptEnded: self._ended,
                AttemptWantsCommit: lambda request, peer: self.wants.append(request.attempt_id),
                **{kind: lambda request, peer: None for kind in ignored},
            },
            self._identity,
        )
        await self._server.start(self.address)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = self.peer = None

    def _register(self, request: Register, peer: Peer) -> WorkerSettings:
        self.registered.append(request)
        self.peer = peer
        return WorkerSettings(0.05, 10.0, self.epoch)

    def _heartbeat(self, request: Heartbeat, peer: Peer) -> bool:
        self.news += request.attempts
        return True

    def _ended(self, request: AttemptEnded, peer: Peer) -> None:
        self.ended.append(request)
        if self.loses_answers:
            self.loses_answers = False
            peer.transport.abort()  # what was said is known here, but nobody hears that it is

    def push(self, message: Message) -> None:
        assert self.peer is not None
        self.peer.push(message)


class Room:
    """A worker and its master on one loop."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory / "out"
        address = own_address()
        host = HostConfig("h1", address, slots=4)
        self.config = ClusterConfig("test", "h1", (host,))
        cluster = Cluster(self.config, Secret("c1", b"s" * 32))
        self.zygote = Zygote(attempt)
        (directory / WORKER).mkdir()
        daemon = Daemon(WORKER, cluster, host, str(directory))
        self.loop = daemon.loop
        self.worker = Worker(daemon, self.zygote)
        self.master = MasterDouble(daemon, self.config, cluster)
        self.loop.run_until_complete(self.worker.start())

    def start_master(self) -> None:
        self.loop.run_until_complete(self.master.start())
        count = len(self.master.registered)
        self.until(lambda: len(self.master.registered) > count)

    def stop_master(self) -> None:
        self.loop.run_until_complete(self.master.close())
        self.until(lambda: not self.worker._link.is_registered)

    def until(self, holds: Callable[[], object]) -> None:
        """Let the loop run until something holds."""

        async def waiting() -> None:
            while not holds():
                await asyncio.sleep(0.005)

        self.loop.run_until_complete(asyncio.wait_for(waiting(), WAIT_S_MAX))

    def close(self) -> None:
        self.loop.run_until_complete(self.master.close())
        self.loop.run_until_complete(self.worker.stop())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def order(
        self, attempt_id: str, what: str = "go", *, reduces: int = 1, commits: bool = False
    ) -> RunAttempt:
        spec = JobSpec(
            JOB,
            JobConf({}).to_dict(),
            Program(what),
            None,
            None,
            reduces,
            ("/in",),
            f"file:{self.output}",
        )
        directory = f"{self.output}/_temporary/0/_temporary/{attempt_id}"
        return RunAttempt(
            attempt_id, 2, job.encode(spec), output_directory=f"file:{directory}" if commits else ""
        )

    def run(self, order: RunAttempt) -> AttemptEnded:
        """Have it run to its end."""
        self.master.push(order)
        self.until(lambda: self.master.ended)
        return self.master.ended.pop(0)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def test_an_order_is_run_and_its_end_told_with_what_it_left(room: Room) -> None:
    room.start_master()

    ended = room.run(room.order(MAP))

    assert ended.done is not None and ended.done.counters == {"Mine": {"seen": 1}}
    assert [name for name, _ in room.worker._store.held()] == [MAP]
    assert room.master.registered[0].worker_id == "h1"


def test_an_order_that_is_said_again_while_it_runs_is_one_attempt(room: Room) -> None:
    room.start_master()
    for _ in range(3):
        room.master.push(room.order(MAP, "hang"))
    room.until(lambda: room.master.news)

    room.master.push(StopRunning(MAP, "enough"))
    room.until(lambda: room.master.ended)

    assert [(each.attempt_id, each.killed) for each in room.master.ended] == [(MAP, "enough")]


def test_an_end_whose_answer_was_lost_is_told_again(room: Room) -> None:
    room.start_master()
    room.master.loses_answers = True

    room.master.push(room.order(MAP, "fail"))
    room.until(lambda: len(room.master.ended) == 2)

    first, second = room.master.ended
    assert first == second and first.failure is not None and first.failure.message == "it broke"
    assert room.master.registered[-1].running == (MAP,), "it is not over until that is known"
    room.until(lambda: not room.worker._link.unacknowledged)


def test_a_process_that_dies_without_a_word_is_a_failure_with_its_signal(room: Room) -> None:
    room.start_master()

    ended = room.run(room.order(MAP, "die"))

    assert ended.failure is not None
    assert "was ended by SIGKILL before it could say why" in ended.failure.message


def test_attempts_outlive_a_master_and_are_shown_to_the_next(room: Room) -> None:
    room.start_master()
    room.run(room.order(MAP, "hang second"))
    room.master.push(room.order(OTHER, "hang second"))
    room.until(lambda: any(news.attempt_id == OTHER for news in room.master.news))

    room.stop_master()
    room.start_master()

    shown = room.master.registered[-1]
    assert shown.running == (OTHER,)
    assert [kept.attempt_id for kept in shown.segments] == [MAP]


def test_a_commit_waits_for_its_right_and_asks_again_of_a_new_master(room: Room) -> None:
    room.start_master()
    room.master.push(room.order(REDUCE, commits=True))
    room.until(lambda: room.master.wants == [REDUCE])

    room.stop_master()
    assert not (room.output / "part-00000").exists()
    room.start_master()
    room.until(lambda: room.master.wants == [REDUCE] * 2)
    room.master.push(AllowCommit(REDUCE))
    room.until(lambda: room.master.ended)

    assert room.master.ended[0].done is not None
    assert list(room.output.rglob("part-00000"))


def test_a_right_from_a_leader_of_before_is_void(room: Room) -> None:
    """F2: a worker obeys none of an epoch below the highest that it met."""
    room.master.epoch = 7
    room.start_master()
    room.master.push(msgspec.structs.replace(room.order(REDUCE, commits=True), epoch=7))
    room.until(lambda: room.master.wants == [REDUCE])

    room.master.push(AllowCommit(REDUCE, epoch=6))
    room.master.push(StopRunning(REDUCE, "the leader's word", epoch=7))
    room.until(lambda: room.master.ended)

    assert room.master.ended[0].killed == "the leader's word"
    assert not list(room.output.rglob("part-00000"))


def test_output_that_the_master_took_away_is_not_committed(room: Room) -> None:
    """Another attempt of the task was let commit meanwhile: this one is killed, not failed."""
    room.start_master()
    order = room.order(REDUCE, commits=True)
    room.master.push(order)
    room.until(lambda: room.master.wants == [REDUCE])
    directory = Path(local_path(order.output_directory))
    (directory / "part-00000").unlink()
    directory.rmdir()

    room.master.push(AllowCommit(REDUCE))
    room.until(lambda: room.master.ended)

    (ended,) = room.master.ended
    assert ended.done is None and ended.failure is None
    assert "another attempt may commit" in ended.killed


def test_to_stop_what_is_over_drops_its_segment_and_is_answered(room: Room) -> None:
    """The order may come late, or twice."""
    room.start_master()
    room.run(room.order(MAP))

    room.master.push(StopRunning(MAP, "lost meanwhile"))
    room.until(lambda: room.master.ended)
    room.until(lambda: not room.worker._store.held())

    assert room.master.ended[0].killed == "lost meanwhile"


def test_a_job_that_is_over_leaves_nothing(room: Room) -> None:
    room.start_master()
    room.run(room.order(MAP))

    room.master.push(ForgetJob(JOB, True))
    room.until(lambda: not room.worker._store.held() and JOB not in room.worker._jobs)

    assert not (room.directory / WORKER / "jobs" / JOB).exists()


def test_attempts_of_a_master_that_stays_away_are_killed(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mrstream.mapreduce.worker.worker.MASTER_GONE_S", 0.2)
    room.start_master()
    room.master.push(room.order(MAP, "hang"))
    room.until(lambda: room.master.news)

    room.stop_master()
    room.until(lambda: MAP in room.worker._link.unacknowledged)
    room.start_master()
    room.until(lambda: room.master.ended)

    assert "the master was away for more than 0.2 s" in room.master.ended[0].killed
