"""Which free slot gets which idle task."""

from __future__ import annotations

from mrstream.mapreduce.scheduler.commands import KillAttempt, Locality, StartAttempt
from mrstream.mapreduce.scheduler.events import (
    AttemptKilled,
    AttemptProgress,
    JobPrioritySet,
    JobSettings,
    OutputLost,
    WorkerDraining,
    WorkerLost,
    WorkerRegistered,
    WorkerResumed,
)
from mrstream.mapreduce.scheduler.ids import HostName, JobId, RackName, TaskKind, WorkerId
from tests.support.scheduler_bench import (
    QUICK,
    Bench,
    map_attempt,
    of_type,
    reduce_attempt,
    starts,
)

PATIENT = JobSettings(locality_wait_s=3.0, slowstart=1.0)


def test_a_small_job_spreads_over_the_workers() -> None:
    bench = Bench()
    bench.workers("a", "b", "c", slots=2)

    commands = bench.submit(3)

    assert [worker for _, worker in starts(commands)] == ["a", "b", "c"]


def test_a_map_goes_to_a_host_that_holds_its_split() -> None:
    """MapReduce §3.4."""
    bench = Bench()
    bench.workers("a", "b", "c")

    commands = bench.submit([["c"], ["a"], ["b"]], settings=PATIENT)

    assert sorted(starts(commands)) == [
        ("m_000000_0", "c"),
        ("m_000001_0", "a"),
        ("m_000002_0", "b"),
    ]
    assert all(start.locality is Locality.HOST for start in of_type(commands, StartAttempt))


def test_a_slot_far_from_the_data_waits_then_goes_to_the_rack_then_anywhere() -> None:
    """MapReduce §3.4: on the same switch, failing that; after a short delay."""
    bench = Bench()
    bench.tell(WorkerRegistered(WorkerId("near"), HostName("near"), 1, 1, 1, RackName("r1")))
    bench.tell(WorkerRegistered(WorkerId("far"), HostName("far"), 1, 1, 1, RackName("r2")))
    # Its host has no worker that is free, but its rack is known.
    busy = WorkerRegistered(WorkerId("home"), HostName("home"), 0, 0, 0, RackName("r1"))
    bench.tell(busy)

    at_once = bench.submit([["home"], ["home"]], settings=PATIENT)
    wake_at_s = bench.scheduler.wake_at_s
    after_one_wait = bench.wait(3.0)
    after_two_waits = bench.wait(3.0)

    assert starts(at_once) == []
    assert wake_at_s == 3.0
    assert starts(after_one_wait) == [("m_000000_0", "near")]
    assert starts(after_two_waits) == [("m_000001_0", "far")]
    localities = of_type(after_one_wait + after_two_waits, StartAttempt)
    assert [start.locality for start in localities] == [Locality.RACK, Locality.REMOTE]


def test_a_map_without_a_home_starts_at_once_anywhere() -> None:
    bench = Bench()
    bench.workers("a")

    commands = bench.submit([["elsewhere"]], settings=PATIENT)

    assert starts(commands) == [("m_000000_0", "a")]


def test_jobs_get_slots_in_the_order_of_priority_then_arrival() -> None:
    bench = Bench()
    first, second, third = (JobId(f"job_1_000{number}") for number in (1, 2, 3))
    bench.submit(2, job_id=first)
    bench.submit(2, job_id=second)
    bench.submit(2, settings=JobSettings(priority=5, locality_wait_s=0.0), job_id=third)
    bench.tell(JobPrioritySet(second, 4))

    order = bench.workers("a", slots=6)

    jobs = [start.attempt_id.task_id.job_id for start in of_type(order, StartAttempt)]
    assert jobs == [third, third, second, second, first, first]


def test_reduces_start_when_enough_maps_are_committed() -> None:
    bench = Bench()
    bench.workers("a", slots=2, shared=False)
    bench.submit(4, 1, settings=JobSettings(slowstart=0.5, locality_wait_s=0.0))

    after_one = bench.succeed(map_attempt(0))
    after_two = bench.succeed(map_attempt(1))

    assert ("r_000000_0", "a") not in starts(after_one)
    assert ("r_000000_0", "a") in starts(after_two)


def test_reduces_leave_half_of_shared_slots_to_maps_that_wait() -> None:
    bench = Bench()
    bench.workers("a", "b", slots=2)
    bench.submit(20, 4, settings=JobSettings(slowstart=0.0, locality_wait_s=0.0))
    for index in range(8):
        bench.succeed(map_attempt(index))

    kinds = [attempt.task_id.kind for attempt in bench.running]

    assert kinds.count(TaskKind.REDUCE) <= 2


def test_a_job_keeps_to_its_limits_of_workers_and_of_parallel_tasks() -> None:
    """MapReduce appendix A: limits on machines."""
    bench = Bench()
    bench.workers("a", "b", "c", slots=4)

    few_workers = bench.submit(9, settings=JobSettings(workers_max=2))
    few_tasks = bench.submit(9, settings=JobSettings(running_maps_max=3), job_id=JobId("job_1_2"))

    assert len({worker for _, worker in starts(few_workers)}) == 2
    assert len(starts(few_tasks)) == 3


def test_a_map_that_waiting_reduces_keep_out_gets_a_slot_back() -> None:
    """A cluster whose slots are all taken by reduces must still be able to run a lost map."""
    bench = Bench()
    bench.workers("a", "b")
    bench.submit(2, 2)
    bench.succeed(map_attempt(0), map_attempt(1))
    assert sorted(bench.running) == [reduce_attempt(0), reduce_attempt(1)]
    lost = bench.where(reduce_attempt(0))
    other = bench.where(reduce_attempt(1))

    commands = bench.tell(WorkerLost(WorkerId(lost), "silent"))

    victims = of_type(commands, KillAttempt)
    assert [(victim.attempt_id, victim.worker_id) for victim in victims] == [
        (reduce_attempt(1), other)
    ]
    freed = bench.tell(AttemptKilled(reduce_attempt(1), "killed"))
    assert starts(freed)[0][0].startswith("m_")


def test_a_slot_is_taken_back_where_the_map_may_run() -> None:
    """Room on a worker where the map failed is no use to it: reduces there were killed forever."""
    bench = Bench()
    bench.workers("a", "b")
    bench.submit(2, 2)
    failed = bench.where(map_attempt(0))
    bench.succeed(map_attempt(0), map_attempt(1))
    others = {bench.where(reduce_attempt(index)): reduce_attempt(index) for index in (0, 1)}
    del others[failed]
    ((other, waiting),) = others.items()
    bench.tell(AttemptProgress(waiting, 0.2))

    commands = bench.tell(OutputLost(map_attempt(0), "a block is damaged"))

    assert [kill.worker_id for kill in of_type(commands, KillAttempt)] == [other]
    assert starts(bench.bury())[0] == ("m_000000_1", other)


def test_a_slot_is_taken_back_from_a_job_behind_where_only_that_helps() -> None:
    bench = Bench()
    bench.workers("a", "b")
    behind = JobId("1_0002")
    bench.submit(1, 1)
    bench.submit(1, 1, job_id=behind)
    bench.succeed(map_attempt(0), map_attempt(0, job_id=behind))
    lost = bench.where(reduce_attempt(0))
    assert lost != bench.where(reduce_attempt(0, job_id=behind))

    commands = bench.tell(OutputLost(map_attempt(0), "a block is damaged"))

    (kill,) = of_type(commands, KillAttempt)
    assert kill.attempt_id == reduce_attempt(0, job_id=behind)
    assert starts(bench.bury())[0] == ("m_000000_1", kill.worker_id)


def test_a_draining_worker_gets_nothing_new() -> None:
    bench = Bench()
    bench.workers("a")
    bench.tell(WorkerDraining(WorkerId("a")))

    while_draining = bench.submit(1, settings=QUICK)
    after = bench.tell(WorkerResumed(WorkerId("a")))

    assert starts(while_draining) == []
    assert starts(after) == [("m_000000_0", "a")]
