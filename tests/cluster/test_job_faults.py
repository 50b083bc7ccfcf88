"""Fault gates of jobs on real processes: kill -9 of workers and master at every stage.

Each time the output is byte for byte that of local mode for the same splits, each task is
committed once, and no process is left behind (MapReduce §3.3; MR-13 … MR-19). The same on hosts of
their own: test_job_stages_on_hosts.py and test_job_faults_on_hosts.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.job_faults import (
    GATED_REDUCE,
    JOB_MASTER,
    MAPS,
    NO_BACKUPS,
    REDUCES,
    REDUCES_LATE,
    ROLES,
    ROOM_DFS,
    SLOTS,
    WORKER,
    JobRoom,
    host_of,
)
from tests.cluster.local import CHUNKSERVER, LocalCluster, wait_for
from tests.cluster.preludes import MASTER_MOMENTS, STAGES
from tests.support.local_jobs import processes_with


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRoom]:
    """One cluster for all tests here, whose processes can be stopped at any stage."""
    directory = tmp_path_factory.mktemp("jobs")
    with LocalCluster(directory, 3, roles=ROLES, dfs=ROOM_DFS, slots=SLOTS) as cluster:
        room = JobRoom(cluster, directory)
        room.restart_with(room.stops(STAGES), WORKER)
        yield room


@pytest.fixture
def room(shared: JobRoom) -> Iterator[JobRoom]:
    shared.heal()
    yield shared
    shared.clear()


def test_a_job_that_nobody_disturbs_gives_the_bytes_of_local_mode(room: JobRoom) -> None:
    """MR-18: the ground that the other tests stand on; all maps run beside their data (MR-21)."""
    ended = room.check(room.start(*NO_BACKUPS))

    assert ended.count("Data-local map tasks") == ended.count("Launched map tasks") == MAPS


@pytest.mark.parametrize("stage", list(STAGES))
def test_a_worker_killed_at_any_stage_costs_time_only(room: JobRoom, stage: str) -> None:
    """Gate 18, MR-13: it is missed after a while, and others do its work; one commit per task."""
    room.stop_at(stage)
    job = room.start()
    victim = room.arrival(stage, job).host

    room.cluster.kill(WORKER, victim)
    room.send_on(stage)

    room.check(job)


def test_maps_of_a_host_that_dies_before_reduces_fetch_are_run_again(room: JobRoom) -> None:
    """Gate 19, MR-14: their output died with it."""
    job, hosts = room.start_held_maps(*NO_BACKUPS, *REDUCES_LATE)
    victim = hosts["000000"]
    last = next(task for task, host in hosts.items() if host != victim)
    room.release_maps(*(task for task in hosts if task != last))
    room.wait_for_attempts(job, "m", "succeeded", MAPS - 1)

    room.cluster.kill(WORKER, victim)
    room.cluster.kill(CHUNKSERVER, victim)
    again = MAPS + list(hosts.values()).count(victim)
    wait_for(lambda: len(room.noted("map-")) >= again, 60.0, "lost maps to be run again")
    room.release_maps(last)

    room.check(job)


def test_a_host_that_dies_in_its_reduce_loses_only_that(room: JobRoom) -> None:
    """MR-14: a running reduce goes back to idle, committed ones stay."""
    reducer = room.program("held_reduce.py", GATED_REDUCE)
    room.hold("hold-reduce")
    job = room.start(*NO_BACKUPS, reducer=reducer)
    wait_for(lambda: len(room.noted("reduce-")) >= REDUCES, 60.0, "all reduces to run")
    victim = host_of(room.noted("reduce-")[0])
    lost = [name for name in room.noted("reduce-") if host_of(name) == victim]

    room.cluster.kill(WORKER, victim)
    room.release("hold-reduce")

    room.check(job)
    assert len(room.noted("reduce-")) == REDUCES + len(lost)


def test_a_worker_that_is_stopped_and_goes_on_too_late_changes_nothing(room: JobRoom) -> None:
    """Gates 12 and 18: its attempts are given to others, and what it brings late is dropped."""
    reducer = room.program("held_reduce.py", GATED_REDUCE)
    room.hold("hold-reduce")
    job = room.start(*NO_BACKUPS, reducer=reducer)
    wait_for(lambda: len(room.noted("reduce-")) >= REDUCES, 60.0, "all reduces to run")
    # The scheduler may have left a host without a reduce: the victim is one that has one.
    victim = host_of(room.noted("reduce-")[0])

    room.cluster.signal(WORKER, victim, signal.SIGSTOP)
    wait_for(lambda: len(room.noted("reduce-")) > REDUCES, 60.0, "its reduce to be run elsewhere")
    room.cluster.signal(WORKER, victim, signal.SIGCONT)
    room.release("hold-reduce")

    room.check(job)


def test_a_killed_master_goes_on_and_repeats_no_finished_map(room: JobRoom) -> None:
    """Gate 22, MR-17: the client that waits hears of the end all the same."""
    job, hosts = room.start_held_maps(*NO_BACKUPS)
    first, *others = hosts
    room.release_maps(*others)
    room.wait_for_attempts(job, "m", "succeeded", len(others))

    room.cluster.kill(JOB_MASTER, "h1")
    room.start_daemon(JOB_MASTER, "h1")
    room.release_maps(first)

    room.check(job)
    ran = [name.rpartition("@")[0].rpartition("_")[0] for name in room.noted("map-")]
    assert len(ran) == len(set(ran)), f"a map was run twice: {room.noted('map-')}"


@pytest.mark.parametrize(
    "moment", ["record 2", "record 4", "record 6", "record 9", "output is made", "output is final"]
)
def test_a_master_killed_at_any_moment_goes_on(room: JobRoom, moment: str) -> None:
    """Gate 22: before that record is written, so that nothing of it was ever said; before the
    output directory is made, after the job is accepted; and before it is made final."""
    room.restart_with(room.stops(MASTER_MOMENTS), JOB_MASTER)
    for host in room.cluster.hosts:
        room.cluster.wait_ready(WORKER, host)
    room.stop_at(moment)
    job = room.start()
    room.arrival(moment, job)

    room.cluster.kill(JOB_MASTER, "h1")
    room.send_on(moment)
    room.start_daemon(JOB_MASTER, "h1")

    room.check(job)


def test_master_and_workers_killed_together_go_on(room: JobRoom) -> None:
    """A power cut of all job daemons in the middle of a job; segments on disk are used again."""
    job, hosts = room.start_held_maps(*NO_BACKUPS)
    first, *others = hosts
    room.release_maps(*others)
    room.wait_for_attempts(job, "m", "succeeded", len(others))

    for host in room.cluster.hosts:
        room.cluster.kill(WORKER, host)
    room.cluster.kill(JOB_MASTER, "h1")
    wait_for(lambda: _is_alone(job.mark), 60.0, "no attempt to outlive its worker")
    # Workers first: how long a process takes to start must not look like a worker's silence.
    for host in room.cluster.hosts:
        room.cluster.launch(WORKER, host)
    for host in room.cluster.hosts:
        wait_for(lambda host=host: room.cluster.health(WORKER, host), 60.0, "workers")  # type: ignore[misc]
    room.heal()

    room.check(job)
    again = [name.split("_")[4] for name in room.noted("map-")]
    assert again == [first], "finished maps were run again"


def test_a_failing_mapper_ends_the_job_with_its_report(room: JobRoom) -> None:
    """Gate 23 and 24: bounded attempts, on several hosts, and the record's place in the report."""
    mapper = room.program(
        "poisoned.py",
        "for line in sys.stdin:\n"
        "    if 'line 40000' in line: sys.exit(3)\n"
        "    sys.stdout.write(line)\n",
    )

    job = room.start("-D", "mapreduce.map.maxattempts=2", mapper=mapper)
    ended = job.wait()

    assert ended.status == 1
    assert "subprocess failed with code 3" in ended.stderr
    assert "/in" in ended.stderr
    room.check_nothing_runs(job)


def _is_alone(mark: str) -> bool:
    """Whether only the waiting client carries the mark."""
    return all(b"mrstream.streaming.cli" in _command(pid) for pid in processes_with(mark))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"mrstream.streaming.cli"  # it has just ended
