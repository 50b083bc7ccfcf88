"""MapReduce, sections 3.1–3.6 and 5: what the master decides. A test a requirement.

The requirements (MR-…) about what programs see are in test_mapreduce_jobs.py; those about real
processes that die are in tests/cluster/test_job_faults.py.
"""

from __future__ import annotations

import gc
import tracemalloc

import msgspec

from mrstream.mapreduce.scheduler.commands import (
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    Locality,
    PublishSegment,
    RecordCommit,
    StartAttempt,
    WithdrawSegment,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptProgress,
    AttemptSucceeded,
    CommitRequested,
    JobRestored,
    JobSettings,
    JobSubmitted,
    MapTaskSpec,
    WorkerLost,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import HostName, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from mrstream.mapreduce.simulation import ClusterPlan, SimulatedCluster, Workload
from tests.support.scheduler_bench import (
    JOB,
    QUICK,
    Bench,
    map_attempt,
    of_type,
    reduce_attempt,
    starts,
)


def test_the_master_hands_map_and_reduce_tasks_to_idle_workers() -> None:
    """§3.1 step 2 (MR-05)."""
    bench = Bench()
    bench.workers("a", "b")

    maps = bench.submit(2, 2)
    reduces = bench.succeed(map_attempt(0), map_attempt(1))

    assert sorted(starts(maps)) == [("m_000000_0", "a"), ("m_000001_0", "b")]
    assert sorted(worker for attempt, worker in starts(reduces)) == ["a", "b"]


def test_a_task_is_idle_in_progress_or_completed_on_a_known_worker() -> None:
    """§3.2 (MR-11)."""
    bench = Bench()
    bench.workers("a")
    bench.submit(2, 1)

    (running,) = bench.running.values()
    committed = of_type(bench.succeed(map_attempt(0)), RecordCommit)

    assert running.worker_id == "a"
    assert committed == [RecordCommit(map_attempt(0), WorkerId("a"))]
    view = bench.scheduler.job(JOB)
    assert view is not None
    assert (view.maps_committed, view.maps_running, view.reduces_committed) == (1, 1, 0)


def test_reducers_hear_of_each_finished_map_and_start_before_the_last_one_ends() -> None:
    """§3.2, §5.3: "this shuffling starts as soon as the first map task completes" (MR-12)."""
    bench = Bench()
    bench.workers("a", slots=2, shared=False)
    bench.submit(4, 1, settings=JobSettings(slowstart=0.25, locality_wait_s=0.0))

    first = bench.succeed(map_attempt(0))
    second = bench.succeed(map_attempt(1))

    assert of_type(first, PublishSegment) == [PublishSegment(map_attempt(0), WorkerId("a"))]
    assert ("r_000000_0", "a") in starts(first)
    assert of_type(second, PublishSegment) == [PublishSegment(map_attempt(1), WorkerId("a"))]


def test_a_failed_workers_completed_and_running_maps_and_running_reduces_go_back_to_idle() -> None:
    """§3.3 (MR-13, MR-14): its completed reduces do not."""
    bench = Bench()
    bench.workers("a", slots=4)
    bench.submit(2, 2, settings=JobSettings(slowstart=0.0, locality_wait_s=0.0))
    bench.succeed(map_attempt(0), map_attempt(1))
    bench.succeed(reduce_attempt(0))
    bench.workers("b", slots=4)

    commands = bench.tell(WorkerLost(WorkerId("a"), "no answer for 10 s"))

    assert sorted(attempt for attempt, _ in starts(commands)) == [
        "m_000000_1",
        "m_000001_1",
        "r_000001_1",
    ]


def test_reducers_are_told_to_fetch_from_the_worker_that_ran_the_map_again() -> None:
    """§3.3: "any reduce task that has not already read the data from worker A …" (MR-15)."""
    bench = Bench()
    bench.workers("a")
    bench.submit([["a"]], 1)
    bench.workers("b", "c")
    bench.succeed(map_attempt(0))

    lost = bench.tell(WorkerLost(WorkerId("a"), "no answer for 10 s"))
    again = bench.succeed(map_attempt(0, 1))

    assert of_type(lost, WithdrawSegment) == [WithdrawSegment(map_attempt(0), WorkerId("a"))]
    (published,) = of_type(again, PublishSegment)
    assert published.attempt_id == map_attempt(0, 1)
    assert published.worker_id != "a"


def test_a_job_survives_groups_of_80_workers_that_are_away_for_minutes() -> None:
    """§3.3, network maintenance (MR-16)."""
    plan = ClusterPlan(
        hosts=240, kill_workers=80, kill_at_s=150.0, revive_after_s=180.0, start_up_s=10.0
    )

    outcome = SimulatedCluster(plan, Workload(maps=2_000, reduces=240), seed=5).run()

    assert outcome.outcome is JobOutcome.SUCCEEDED
    assert outcome.totals.rerun_maps > 0


def test_a_new_master_goes_on_from_what_the_old_one_wrote_down() -> None:
    """§3.3, master failure (MR-17): the journal holds jobs and commits, workers the rest."""
    bench = Bench()
    specs = (MapTaskSpec(1),) * 3
    bench.tell(JobRestored(JOB, specs, 0, QUICK, (), attempt_number_first=1000))

    bench.tell(WorkerRegistered(WorkerId("a"), HostName("a"), 4, 4, 4, running=(map_attempt(0),)))
    started = bench.wait(3.0)

    assert sorted(starts(started)) == [("m_000001_1000", "a"), ("m_000002_1000", "a")]


def test_a_second_completion_of_a_map_is_ignored() -> None:
    """§3.3, semantics in the presence of failures (MR-19)."""
    bench = Bench()
    bench.workers("a", "b")
    bench.submit(1, 1)
    bench.succeed(map_attempt(0))

    again = bench.tell(AttemptSucceeded(map_attempt(0)))

    assert again == []


def test_exactly_one_of_two_executions_of_a_reduce_may_commit() -> None:
    """§3.3 (MR-19): the first that asks; the other is killed when the first has committed."""
    bench = Bench()
    straggling = _job_with_a_straggler(bench)
    backup = next(attempt for attempt in bench.running if attempt != straggling)

    first = bench.tell(CommitRequested(backup))
    second = bench.tell(CommitRequested(straggling))
    end = bench.succeed(backup)

    assert [grant.attempt_id for grant in of_type(first, GrantCommit)] == [backup]
    assert of_type(second, GrantCommit) == []
    assert [kill.attempt_id for kill in of_type(end, KillAttempt)] == [straggling]
    assert len(of_type(end, RecordCommit)) == 1


def test_a_map_runs_where_its_data_is_or_near_it() -> None:
    """§3.4 (MR-21): shares of local, rack and remote maps of a job on the whole cluster."""
    plan = ClusterPlan(hosts=120, start_up_s=5.0)

    totals = SimulatedCluster(plan, Workload(maps=1_500, reduces=0), seed=3).run().totals

    assert totals.host_local_maps > 0.95 * totals.launched_maps
    assert totals.host_local_maps + totals.rack_local_maps + totals.remote_maps == (
        totals.launched_maps
    )


def test_faster_workers_take_more_tasks() -> None:
    """§3.5: many more tasks than workers balance the load (MR-22)."""
    plan = ClusterPlan(
        hosts=10, start_up_s=0.0, slow_hosts_share=0.1, slow_within_s=0.0, slow_factor=4.0
    )
    ran: dict[str, int] = {}
    cluster = SimulatedCluster(plan, Workload(maps=400, reduces=0), seed=1)
    count_starts(cluster, ran)

    cluster.run()

    assert min(ran.values()) < 0.5 * max(ran.values())


def test_the_masters_state_is_small() -> None:
    """§3.5 (MR-23): with M = 20,000 and R = 500, far below a byte for each pair."""
    tracemalloc.start()
    scheduler = Scheduler()
    hosts = [HostName(f"h{number}") for number in range(20)]
    for host in hosts:
        scheduler.handle(WorkerRegistered(WorkerId(host), host, 4, 4, 4), 0.0)
    specs = tuple(
        MapTaskSpec(1, (hosts[number % 20], hosts[(number + 7) % 20])) for number in range(20_000)
    )
    scheduler.handle(JobSubmitted(JOB, specs, 500, JobSettings()), 0.0)
    gc.collect()
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept_bytes < 20_000 * 500
    assert kept_bytes < 20_500 * 1_024


def test_the_last_running_tasks_get_backups_and_the_first_to_finish_counts() -> None:
    """§3.6 (MR-24)."""
    bench = Bench()
    straggling = _job_with_a_straggler(bench)

    (backup,) = [attempt for attempt in bench.running if attempt != straggling]
    end = bench.succeed(backup)

    assert backup.task_id == straggling.task_id
    assert [kill.attempt_id for kill in of_type(end, KillAttempt)] == [straggling]
    assert of_type(end, FinishJob)[0].outcome is JobOutcome.SUCCEEDED
    assert bench.scheduler.totals(JOB).backups_that_won == 1


def test_a_program_that_has_read_everything_and_works_on_gets_a_backup_too() -> None:
    """§3.6 (MR-24): its progress by input says nothing any more, only its time does."""
    bench = Bench()
    bench.workers("a", "b", "c", "d")
    bench.submit(4, 0)
    slow = map_attempt(3)
    for number in range(4):
        bench.tell(AttemptProgress(map_attempt(number), 1.0))
    bench.now_s += 10.0
    bench.succeed(map_attempt(0), map_attempt(1), map_attempt(2))

    started = []
    for _ in range(15):
        bench.now_s += 1.0
        started += starts(bench.tell(AttemptProgress(slow, 1.0)))
        started += starts(bench.wait(0.0))

    assert [attempt for attempt, _ in started] == ["m_000003_1"]


def test_backups_can_be_switched_off() -> None:
    """§5.4 (MR-24)."""
    bench = Bench()
    settings = JobSettings(backup_maps=False, backup_reduces=False, locality_wait_s=0.0)

    straggling = _job_with_a_straggler(bench, settings)

    assert list(bench.running) == [straggling]


def test_backups_cost_a_few_percent_of_the_work() -> None:
    """§3.6 (MR-24); the paper's own size is in tests/simulation."""
    plan = ClusterPlan(hosts=150, slow_hosts_share=0.03)

    on = SimulatedCluster(plan, Workload(maps=1_300, reduces=340), seed=7).run()
    off_settings = JobSettings(backup_maps=False, backup_reduces=False)
    off = SimulatedCluster(
        plan, Workload(maps=1_300, reduces=340, settings=off_settings), seed=7
    ).run()

    assert on.totals.backup_wasted_s <= 0.05 * on.totals.useful_s
    assert on.elapsed_s < off.elapsed_s


def test_a_job_may_be_limited_to_so_many_machines() -> None:
    """Appendix A (MR-36)."""
    bench = Bench()
    bench.workers("a", "b", "c", slots=2)

    commands = bench.submit(6, settings=msgspec.structs.replace(QUICK, workers_max=1))

    assert len({worker for _, worker in starts(commands)}) == 1


def test_a_task_that_always_fails_does_not_hang_the_job() -> None:
    """§7 (MR-43): bounded attempts."""
    bench = Bench()
    bench.workers("a", "b", "c")
    bench.submit(1)
    commands = []

    for number in range(4):
        bench.running.clear()
        commands = bench.tell(AttemptFailed(map_attempt(0, number), "exit status 1"))

    (finish,) = of_type(commands, FinishJob)
    assert finish.outcome is JobOutcome.FAILED
    assert finish.culprit == map_attempt(0, 3)


def test_locality_is_reported_for_each_map() -> None:
    """§3.4 (MR-21, MR-33)."""
    bench = Bench()
    bench.workers("a", "b")

    commands = bench.submit([["a"], ["a"]], settings=QUICK)

    seen = [start.locality for start in of_type(commands, StartAttempt)]
    assert sorted(seen) == [Locality.HOST, Locality.RACK]


def _job_with_a_straggler(bench: Bench, settings: JobSettings = QUICK):  # type: ignore[no-untyped-def]
    """Run a job of four reduces to the point where one of them lags far behind."""
    bench.workers("a", "b", "c", "d")
    bench.submit(1, 4, settings=settings)
    bench.succeed_all(TaskKind.MAP)
    assert len(bench.running) == 4
    slow = reduce_attempt(3)
    for progress in (0.25, 0.5, 0.75):
        bench.now_s += 10.0
        for attempt in list(bench.running):
            pace = 0.1 if attempt == slow else 1.0
            bench.tell(AttemptProgress(attempt, progress * pace))
    bench.now_s += 10.0
    bench.succeed(reduce_attempt(0), reduce_attempt(1), reduce_attempt(2))
    for _ in range(3):
        bench.wait(5.0)
        bench.tell(AttemptProgress(slow, 0.1))
    return slow


def count_starts(cluster: SimulatedCluster, ran: dict[str, int]) -> None:
    """Count the attempts that each worker gets."""
    start = cluster._start

    def counted(command: StartAttempt) -> None:
        ran[command.worker_id] = ran.get(command.worker_id, 0) + 1
        start(command)

    cluster._start = counted  # type: ignore[method-assign]
