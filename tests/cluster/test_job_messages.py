"""Fault gates of jobs: messages that come twice, too late or not at all, and stragglers.

As in test_job_faults.py: the output is local mode's, and nothing is left behind.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.cluster.job_faults import (
    JOB_MASTER,
    NO_BACKUPS,
    ROLES,
    ROOM_DFS,
    SLOTS,
    WORKER,
    JobRoom,
)
from tests.cluster.local import LocalCluster
from tests.cluster.preludes import CUT_AT, SAID_TWICE, TOLD_TWICE

MASTER_KILLS = 5


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRoom]:
    """One cluster for all tests here; each starts the daemons that it disturbs anew."""
    directory = tmp_path_factory.mktemp("jobs")
    with LocalCluster(directory, 3, roles=ROLES, dfs=ROOM_DFS, slots=SLOTS) as cluster:
        yield JobRoom(cluster, directory)


@pytest.fixture
def room(shared: JobRoom) -> Iterator[JobRoom]:
    shared.heal()
    yield shared
    shared.clear()


@pytest.fixture
def no_faults_after(room: JobRoom) -> Iterator[None]:
    """Start what a test has started with a fault once more without it."""
    yield
    for role in list(room.preludes):
        room.restart_with("", role)


def test_reports_that_come_twice_count_once(room: JobRoom, no_faults_after: None) -> None:
    """Gate 30; MR-34: counters count each task once."""
    plain = room.check(room.start(*NO_BACKUPS))
    room.restart_with(SAID_TWICE, WORKER)

    doubled = room.check(room.start(*NO_BACKUPS))

    for counter in ("Map input records", "Reduce output records", "Launched map tasks"):
        assert doubled.count(counter) == plain.count(counter) > 0


def test_orders_that_come_twice_are_carried_out_once(room: JobRoom, no_faults_after: None) -> None:
    """Gate 30."""
    room.restart_with(TOLD_TWICE, JOB_MASTER)
    for host in room.cluster.hosts:
        room.cluster.wait_ready(WORKER, host)
    mapper = room.program("noting.py", "note('ran-' + attempt)\nsys.stdout.writelines(sys.stdin)\n")

    ended = room.check(room.start(mapper=mapper))

    assert len(room.noted("ran-")) == ended.count("Launched map tasks")


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 8])
def test_a_connection_cut_before_any_message_loses_nothing(
    room: JobRoom, no_faults_after: None, number: int
) -> None:
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


def test_stragglers_do_not_hold_up_the_job(room: JobRoom) -> None:
    """Gate 21, §3.6 (MR-24): a map and a reduce that would never end lose against their backups,
    and are killed. A host that is slow: test_job_faults_on_hosts.py."""
    endless = (
        "if attempt.endswith(('_m_000001_0', '_r_000001_0')): hold('hold-straggler')\n"
        "sys.stdout.writelines(sys.stdin)\n"
    )
    program = room.program("endless.py", endless)
    room.hold("hold-straggler")

    job = room.start(mapper=program, reducer=program)

    room.check(job)


def test_a_task_that_says_nothing_for_too_long_is_killed_and_tried_elsewhere(
    room: JobRoom,
) -> None:
    """A hanging program costs its timeout, once."""
    hanging = (
        "if attempt.endswith('_m_000002_0'): time.sleep(600)\nsys.stdout.writelines(sys.stdin)\n"
    )
    program = room.program("hanging.py", hanging)

    job = room.start(
        "-D", "mapreduce.task.timeout=6000", "-D", "mapreduce.map.speculative=false",
        mapper=program,
    )  # fmt: skip
    ended = room.check(job)

    assert ended.count("Failed map tasks") == 1
