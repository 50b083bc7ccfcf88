"""Fault gates of jobs: messages that come twice, too late or not at all, and hosts that are slow.

As in test_job_faults.py: the output is local mode's, and nothing is left behind.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.cluster.job_faults import CHUNK_BYTES, JOB_MASTER, ROLES, WORKER, JobRoom
from tests.cluster.local import LocalCluster, wait_for

MASTER_KILLS = 5
SLOW_S = 60.0

# Everything that a worker reports is said twice; each saying is a request of its own.
TWICE = """
from cluster.channel import Channel
said = {"AttemptEnded", "AttemptWantsCommit", "AttemptShuffled", "FetchTrouble", "Register"}
whole = Channel.call
def call(self, request, *words, **more):
    if type(request).__name__ in said:
        whole(self, request, *words, **more).add_done_callback(lambda done: done.exception())
    return whole(self, request, *words, **more)
Channel.call = call
"""

# Everything that the master tells a worker is told twice.
PUSHED_TWICE = """
from cluster.server import Peer
whole = Peer.push
def push(self, message):
    whole(self, message)
    whole(self, message)
Peer.push = push
"""

# The connection breaks just before a certain call that is no heartbeat.
CUT_AT = """
from cluster.channel import Channel
whole = Channel.call
calls = 0
def call(self, request, *words, **more):
    global calls
    if type(request).__name__ != "Heartbeat":
        calls += 1
        if calls == {number}: self.close()
    return whole(self, request, *words, **more)
Channel.call = call
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRoom]:
    """One cluster for all tests here; each starts the daemons that it disturbs anew."""
    directory = tmp_path_factory.mktemp("jobs")
    dfs = {"chunk_size": f"{CHUNK_BYTES // 1024}KiB"}
    with LocalCluster(directory, 3, roles=ROLES, dfs=dfs) as cluster:
        yield JobRoom(cluster, directory)


@pytest.fixture
def room(shared: JobRoom) -> Iterator[JobRoom]:
    shared.heal()
    shared.clear_gate()
    yield shared
    for host in shared.cluster.hosts:
        shared.restart_with("", WORKER, host)


def test_reports_that_come_twice_count_once(room: JobRoom) -> None:
    """Gate 30; MR-34: counters count each task once."""
    plain = room.check(room.start())
    for host in room.cluster.hosts:
        room.restart_with(TWICE, WORKER, host)

    doubled = room.check(room.start())

    for counter in ("Map input records", "Reduce output records", "Launched map tasks"):
        assert doubled.count(counter) == plain.count(counter) > 0


def test_orders_that_come_twice_are_carried_out_once(room: JobRoom) -> None:
    """Gate 30."""
    room.restart_with(PUSHED_TWICE, JOB_MASTER, "h1")
    for host in room.cluster.hosts:
        wait_for(lambda host=host: room.cluster.health(WORKER, host).ready, 20.0, "workers")  # type: ignore[misc]
    mapper = room.program("noting.py", "note('ran-' + attempt)\nsys.stdout.writelines(sys.stdin)\n")

    ended = room.check(room.start(mapper=mapper))
    room.restart_with("", JOB_MASTER, "h1")

    assert len(room.noted("ran-")) == ended.count("Launched map tasks")


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 8])
def test_a_connection_cut_before_any_message_loses_nothing(room: JobRoom, number: int) -> None:
    """Gate 30, after HDFS's way: drop each message in turn (the first registers the worker)."""
    room.restart_with(CUT_AT.format(number=number), WORKER, "h2")

    room.check(room.start())


def test_a_master_killed_again_and_again_finishes_the_job(room: JobRoom) -> None:
    """Gate 22, at random moments."""
    chance = random.Random(20041206)
    mapper = room.program("slow.py", "time.sleep(1.5)\nsys.stdout.writelines(sys.stdin)\n")
    job = room.start(mapper=mapper)

    for _ in range(MASTER_KILLS):
        time.sleep(chance.uniform(0.2, 2.0))
        room.cluster.kill(JOB_MASTER, "h1")
        room.cluster.start(JOB_MASTER, "h1")

    room.check(job)


def test_a_slow_host_does_not_hold_up_the_job(room: JobRoom) -> None:
    """Gates 14 and 21, §3.6: backup tasks on other hosts win, and the slow ones are killed."""
    slow = f"if host == 'h2': time.sleep({SLOW_S})\nsys.stdout.writelines(sys.stdin)\n"
    program = room.program("slow_on_h2.py", slow)
    began_s = time.monotonic()

    job = room.start(mapper=program, reducer=program)
    room.check(job)

    assert time.monotonic() - began_s < SLOW_S


def test_a_task_that_says_nothing_for_too_long_is_killed_and_tried_elsewhere(
    room: JobRoom,
) -> None:
    """A hanging program costs its timeout, once."""
    hanging = (
        "if attempt.endswith('_m_000002_0'): time.sleep(600)\nsys.stdout.writelines(sys.stdin)\n"
    )
    program = room.program("hanging.py", hanging)

    job = room.start(
        "-D", "mapreduce.task.timeout=3000", "-D", "mapreduce.map.speculative=false",
        mapper=program,
    )  # fmt: skip
    ended = room.check(job)

    assert ended.count("Failed map tasks") == 1
