"""kill -9 of processes at each stage of a running sort, on five hosts (gate 18).

They die while some task is exactly there, one after the other, and are started again: a worker and
one of a chunkserver and both masters in turn, in `make soak` all four. The output is that of local
mode, and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import KINDS
from tests.cluster.job_faults import JOB_MASTER, WORKER, JobRoom
from tests.cluster.local import CHUNKSERVER, MASTER
from tests.cluster.preludes import STAGES

PLACES = [
    *((kind, stage) for kind in KINDS for stage in STAGES),
    *(() if "docker" in KINDS else (("docker", "before commit"),)),
]
"""Containers have one stage in the gate, and all in `make soak`."""
OTHERS = (CHUNKSERVER, JOB_MASTER, MASTER)


@pytest.fixture(scope="module")
def shared(hosted_room: JobRoom) -> JobRoom:
    hosted_room.restart_with(hosted_room.stops(STAGES), WORKER)
    return hosted_room


@pytest.fixture
def room(shared: JobRoom) -> Iterator[JobRoom]:
    shared.heal()
    yield shared
    shared.clear()


@pytest.mark.parametrize(("hosted_room", "stage"), PLACES, indirect=["hosted_room"])
def test_processes_killed_at_a_stage_cost_time_only(room: JobRoom, stage: str) -> None:
    """Gates 18 and 22; MapReduce §3.3, §5.5: "immediately restarted new worker processes"."""
    room.stop_at(stage)
    job = room.start()

    turn = list(STAGES).index(stage) % len(OTHERS)
    for role in (WORKER, *(OTHERS if "docker" in KINDS else OTHERS[turn : turn + 1])):
        there = room.arrival(stage, job)
        victim = there.host if there.host in room.cluster.hosts_of(role) else "h1"
        room.cluster.kill(role, victim)
        if role == WORKER:
            room.forget_arrivals(victim)
        room.start_daemon(role, victim)
        there.go_on()
    room.send_on(stage)

    room.check(job)
