"""The notice board of a job master agrees with the scheduler (mapreduce/notices.py)."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.notices import Notices
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    FailAttemptRequested,
    WorkerLost,
)
from mrstream.mapreduce.scheduler.ids import WorkerId
from mrstream.mapreduce.simulation import ClusterPlan, SimulatedCluster, Workload
from mrstream.mapreduce.snapshot import COMMITTED, JobRow, JobSeen
from mrstream.mapreduce.tally import JobTally


def watched_cluster(**plan: float) -> tuple[SimulatedCluster, Notices]:
    cluster = SimulatedCluster(
        ClusterPlan(hosts=6, start_up_s=2.0, **plan),  # type: ignore[arg-type]
        Workload(maps=40, reduces=5),
        seed=3,
    )
    notices = Notices(lambda job_id: (cluster.scheduler.known(job_id) or (None,))[0])
    job_id = cluster.workload.job_id
    row = JobRow(job_id, "test", "ann", maps=40, reduces=5)
    notices.job_submitted(row, JobTally(job_id, 40, 5, 0.0))
    cluster.observer = notices.observe
    return cluster, notices


@pytest.mark.parametrize("killed", [0, 2])
def test_the_rows_count_what_the_scheduler_counts_at_every_moment(killed: int) -> None:
    cluster, notices = watched_cluster(kill_workers=killed, kill_at_s=60.0)
    job_id = cluster.workload.job_id

    at_s = 0.0
    while cluster.finished is None and at_s < 3000:
        at_s += 5.0
        cluster.run_until(at_s)
        notices.tick(cluster.now_s)
        view, row = cluster.scheduler.job(job_id), notices.jobs.get(job_id)
        assert row is not None
        if view is not None:
            assert (row.maps_done, row.reduces_done) == (
                view.maps_committed,
                view.reduces_committed,
            )
            assert 0.0 <= row.map_fraction <= 1.0

    board = notices.job(job_id, JobSeen(), cluster.now_s)
    assert board is not None
    assert board.job.state == "succeeded"
    assert all(row.state == COMMITTED for row in board.tasks.rows)
    assert len(board.tasks.rows) == 45
    assert (board.job.map_fraction, board.job.reduce_fraction) == (1.0, 1.0)
    for host in notices.hosts:  # twins that lost may still be dying
        running = cluster.scheduler.running_on(WorkerId(host.key))
        assert sorted(host.running) == sorted(str(attempt) for attempt in running)


def test_a_lost_host_says_why_and_its_attempts_are_gone() -> None:
    cluster, notices = watched_cluster()
    cluster.run_until(20.0)
    row = notices.hosts.get("h0001")
    assert row is not None and row.running

    cluster.tell(WorkerLost(WorkerId("h0001"), "silent for 10 s"))

    row = notices.hosts.get("h0001")
    assert row is not None
    assert (row.state, row.reason, row.running) == ("lost", "silent for 10 s", ())


def test_an_attempt_that_was_failed_on_request_stays_failed() -> None:
    """Its process is killed then, but `mapred job -fail-task` counts it as a failure."""
    cluster, notices = watched_cluster()
    cluster.run_until(20.0)
    attempt_id = next(iter(cluster.attempts))

    notices.observe(FailAttemptRequested(attempt_id), [], 21.0)
    notices.observe(AttemptKilled(attempt_id, "failed on request"), [], 22.0)

    board = notices.job(cluster.workload.job_id, JobSeen(), 22.0)
    assert board is not None
    (row,) = (row for row in board.attempts.rows if row.key == str(attempt_id))
    assert (row.state, row.diagnosis) == ("failed", "failed on request")


def test_a_failed_attempt_is_counted_and_told() -> None:
    cluster, notices = watched_cluster()
    cluster.run_until(20.0)
    attempt_id = next(iter(cluster.attempts))

    notices.observe(AttemptFailed(attempt_id, "exit code 1"), [], 21.0)
    notices.tick(22.0)

    row = notices.jobs.get(cluster.workload.job_id)
    board = notices.job(cluster.workload.job_id, JobSeen(), 22.0)
    assert row is not None and row.attempts_failed == 1
    assert board is not None and "exit code 1" in board.events[-1].text
