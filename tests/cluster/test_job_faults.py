"""Fault gates of jobs on real processes: kill -9 of every process at every stage.

Each time the output is byte for byte that of local mode for the same splits, each task is
committed once, and no process is left behind (MapReduce §3.3; MR-13 … MR-19).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.job_faults import (
    CHUNK_BYTES,
    JOB_MASTER,
    MAPS,
    ROLES,
    STAGES,
    WORKER,
    JobRoom,
    wait_for_strike,
)
from tests.cluster.local import CHUNKSERVER, LocalCluster, wait_for

GATED_MAP = (
    "note('map-' + attempt + '@' + host)\n"
    "lines = sys.stdin.readlines()\n"
    "if '_m_000001_' in attempt: hold('hold-map')\n"
    "sys.stdout.writelines(lines)\n"
)
GATED_REDUCE = (
    "note('reduce-' + attempt + '@' + host)\n"
    "first = sys.stdin.readline()\n"
    "hold('hold-reduce')\n"
    "sys.stdout.write(first)\n"
    "sys.stdout.writelines(sys.stdin)\n"
)
# Reduces that start together spread over the workers, so that each gets one.
REDUCES_TOGETHER = ("-D", "mapreduce.job.reduce.slowstart.completedmaps=1.0")
NO_BACKUPS = ("-D", "mapreduce.map.speculative=false", "-D", "mapreduce.reduce.speculative=false")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRoom]:
    """One cluster for all tests here; each heals it before it begins."""
    directory = tmp_path_factory.mktemp("jobs")
    dfs = {"chunk_size": f"{CHUNK_BYTES // 1024}KiB"}
    with LocalCluster(directory, 3, roles=ROLES, dfs=dfs) as cluster:
        yield JobRoom(cluster, directory)


@pytest.fixture
def room(shared: JobRoom) -> Iterator[JobRoom]:
    shared.heal()
    shared.clear_gate()
    yield shared
    shared.clear_gate()


def test_a_job_on_the_cluster_gives_the_bytes_of_local_mode(room: JobRoom) -> None:
    """MR-18, without any fault; and the maps ran beside their data (MR-21)."""
    ended = room.check(room.start())

    assert ended.count("Data-local map tasks") == ended.count("Launched map tasks") == MAPS


@pytest.mark.parametrize("stage", list(STAGES))
def test_a_worker_killed_at_any_stage_costs_time_only(room: JobRoom, stage: str) -> None:
    """Gate 18: exactly one commit per task, output identical."""
    mark = room.restart_with(STAGES[stage], WORKER, "h2")

    job = room.start(*REDUCES_TOGETHER)
    wait_for_strike(mark, job)
    room.cluster.wait_exit(WORKER, "h2")

    room.check(job)


@pytest.mark.parametrize("stage", ["map", "shuffle", "after commit"])
def test_a_worker_that_is_started_again_at_once_goes_on(room: JobRoom, stage: str) -> None:
    """§5.5: "immediately restarted new worker processes on these machines"."""
    mark = room.restart_with(STAGES[stage], WORKER, "h2")

    job = room.start(*REDUCES_TOGETHER)
    wait_for_strike(mark, job)
    room.cluster.wait_exit(WORKER, "h2")
    room.cluster.start(WORKER, "h2")

    room.check(job)


def test_maps_of_a_host_that_dies_before_reduces_fetch_are_run_again(room: JobRoom) -> None:
    """Gate 19, MR-14: their output died with it."""
    mapper = room.program("held_map.py", GATED_MAP)
    room.hold("hold-map")
    job = room.start(*NO_BACKUPS, *REDUCES_TOGETHER, mapper=mapper)
    wait_for(lambda: len(room.noted("map-")) >= MAPS, 30.0, "all maps to have started")
    holder = next(name for name in room.noted("map-") if "_m_000001_" in name).rpartition("@")[2]
    victim = next(
        host
        for host in ("h2", "h3", "h1")
        if host != holder and any(name.endswith(f"@{host}") for name in room.noted("map-"))
    )
    lost = [name for name in room.noted("map-") if name.endswith(f"@{victim}")]
    wait_for(lambda: _segments(room, victim) >= len(lost), 30.0, "maps there to be committed")

    room.cluster.kill(WORKER, victim)
    room.cluster.kill(CHUNKSERVER, victim)
    again = len(room.noted("map-")) + len(lost)
    wait_for(lambda: len(room.noted("map-")) >= again, 30.0, "lost maps to be run again")
    room.release("hold-map")

    room.check(job)


def test_a_host_that_dies_in_its_reduce_loses_only_that(room: JobRoom) -> None:
    """MR-14: a running reduce goes back to idle, committed ones stay."""
    reducer = room.program("held_reduce.py", GATED_REDUCE)
    room.hold("hold-reduce")
    job = room.start(*NO_BACKUPS, reducer=reducer)
    wait_for(lambda: len(room.noted("reduce-")) == 3, 60.0, "all reduces to run")
    victim = room.noted("reduce-")[0].rpartition("@")[2]
    lost = [name for name in room.noted("reduce-") if name.endswith(f"@{victim}")]

    room.cluster.kill(WORKER, victim)
    room.release("hold-reduce")

    room.check(job)
    assert len(room.noted("reduce-")) == 3 + len(lost)


def test_a_worker_that_is_stopped_and_goes_on_too_late_changes_nothing(room: JobRoom) -> None:
    """Gates 12 and 18: its attempts are given to others, and what it brings late is dropped."""
    reducer = room.program("held_reduce.py", GATED_REDUCE)
    room.hold("hold-reduce")
    job = room.start(*NO_BACKUPS, reducer=reducer)
    wait_for(lambda: len(room.noted("reduce-")) == 3, 60.0, "all reduces to run")
    # The scheduler may have left a host without a reduce: the victim is one that has one.
    victim = room.noted("reduce-")[0].rpartition("@")[2]

    room.cluster.signal(WORKER, victim, signal.SIGSTOP)
    wait_for(lambda: len(room.noted("reduce-")) > 3, 60.0, "its reduce to be run elsewhere")
    room.cluster.signal(WORKER, victim, signal.SIGCONT)
    room.release("hold-reduce")

    room.check(job)


def test_a_killed_master_goes_on_and_repeats_no_finished_map(room: JobRoom) -> None:
    """Gate 22, MR-17: the client that waits hears of the end all the same."""
    mapper = room.program("held_map.py", GATED_MAP)
    room.hold("hold-map")
    job = room.start(*NO_BACKUPS, mapper=mapper)
    wait_for(lambda: len(room.noted("map-")) >= MAPS, 30.0, "all maps to have started")
    others = len(room.noted("map-")) - 1
    hosts = room.cluster.hosts
    wait_for(lambda: sum(_segments(room, host) for host in hosts) >= others, 30.0, "maps to end")

    room.cluster.kill(JOB_MASTER, "h1")
    room.cluster.start(JOB_MASTER, "h1")
    room.release("hold-map")

    room.check(job)
    ran = [name.rpartition("@")[0].rpartition("_")[0] for name in room.noted("map-")]
    assert len(ran) == len(set(ran)), f"a map was run twice: {room.noted('map-')}"


@pytest.mark.parametrize("record", [2, 4, 6, 9])
def test_a_master_killed_at_a_journal_record_goes_on(room: JobRoom, record: int) -> None:
    """Gate 22: before that record is written, so that nothing of it was ever said."""
    fault = (
        "from cluster.journal import Journal\n"
        "seen = 0\n"
        "whole = Journal.append\n"
        "def append(*words):\n"
        "    global seen\n"
        "    seen += 1\n"
        f"    if seen == {record}: strike()\n"
        "    return whole(*words)\n"
        "Journal.append = append\n"
    )
    mark = room.restart_with(fault, JOB_MASTER, "h1")
    wait_for(lambda: room.cluster.health(WORKER, "h2").ready, 20.0, "workers to come back")

    job = room.start()
    wait_for_strike(mark, job)
    room.cluster.wait_exit(JOB_MASTER, "h1")
    room.cluster.start(JOB_MASTER, "h1")

    room.check(job)


@pytest.mark.parametrize("moment", ["set_up", "commit_job"])
def test_a_master_killed_while_it_touches_the_output_goes_on(room: JobRoom, moment: str) -> None:
    """Gate 22: the directory is made after the job is accepted, and made final once it is over."""
    fault = f"from mapreduce.job_output import JobOutput; before(JobOutput, {moment!r})"
    mark = room.restart_with(fault, JOB_MASTER, "h1")
    wait_for(lambda: room.cluster.health(WORKER, "h2").ready, 20.0, "workers to come back")

    job = room.start()
    wait_for_strike(mark, job)
    room.cluster.wait_exit(JOB_MASTER, "h1")
    room.cluster.start(JOB_MASTER, "h1")

    room.check(job)


def test_master_and_workers_killed_together_go_on(room: JobRoom) -> None:
    """A power cut of all job daemons in the middle of a job; segments on disk are used again."""
    mapper = room.program("held_map.py", GATED_MAP)
    room.hold("hold-map")
    job = room.start(*NO_BACKUPS, mapper=mapper)
    wait_for(lambda: len(room.noted("map-")) >= MAPS, 30.0, "all maps to have started")

    for host in room.cluster.hosts:
        room.cluster.kill(WORKER, host)
    room.cluster.kill(JOB_MASTER, "h1")
    wait_for(lambda: _is_alone(job.mark), 10.0, "no attempt to outlive its worker")
    room.release("hold-map")
    for role in (JOB_MASTER, WORKER):
        for host in room.cluster.hosts_of(role):
            room.cluster.launch(role, host)

    room.check(job)


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


def _segments(room: JobRoom, host: str) -> int:
    """How many complete segments a worker has on its disks."""
    words = room.cluster.health(WORKER, host).detail
    return int(words.split(" segments")[0].rpartition(" ")[2])


def _is_alone(mark: str) -> bool:
    """Whether only the waiting client carries the mark."""
    from tests.local_jobs import processes_with

    return all(b"streaming.cli" in _command(pid) for pid in processes_with(mark))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"streaming.cli"  # it has just ended
