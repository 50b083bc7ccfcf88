"""Which silence of a worker means that it is lost, and which is the master's own."""

from __future__ import annotations

from mrstream.mapreduce.scheduler.commands import Command, LoseWorker, StartAttempt
from mrstream.mapreduce.scheduler.events import FetchFailed, Tick, WorkerHeard, WorkerRegistered
from mrstream.mapreduce.scheduler.ids import HostName, WorkerId
from mrstream.mapreduce.scheduler.limits import SchedulerLimits
from tests.support.scheduler_bench import (
    Bench,
    map_attempt,
    of_type,
    reduce_attempt,
    starts,
)

LIMITS = SchedulerLimits(silence_s_max=10.0)


def ticking(bench: Bench, seconds: int, *heard: str) -> list[LoseWorker]:
    """Let time pass as a shell does, while some workers beat; give who was lost."""
    lost: list[LoseWorker] = []
    for _ in range(seconds):
        bench.now_s += 1.0
        for name in heard:
            bench.tell(WorkerHeard(WorkerId(name)))
        lost += of_type(bench.tell(Tick()), LoseWorker)
    return lost


def test_a_worker_that_is_silent_for_too_long_is_lost_and_its_maps_run_elsewhere() -> None:
    """MapReduce §3.3: the master pings workers; no response in a certain time means failed."""
    bench = Bench(LIMITS)
    bench.workers("a", "b")
    bench.submit(2)
    at_a = next(a for a, start in bench.running.items() if start.worker_id == "a")

    assert ticking(bench, 10, "b") == []
    bench.now_s += 1.0
    bench.tell(WorkerHeard(WorkerId("b")))
    commands = bench.tell(Tick())

    assert commands == [LoseWorker(WorkerId("a"), "no heartbeat for 11.0 s")]
    assert not bench.scheduler.knows(WorkerId("a")) and bench.scheduler.knows(WorkerId("b"))
    at_b = map_attempt(1 - at_a.task_id.task_index)
    (again,) = of_type(bench.succeed(at_b), StartAttempt)
    assert again.attempt_id == map_attempt(at_a.task_id.task_index, 1)


def test_a_worker_that_beats_is_not_lost() -> None:
    bench = Bench(LIMITS)
    bench.workers("a")

    assert ticking(bench, 100, "a") == []


def test_registering_is_a_sign_of_life() -> None:
    bench = Bench(LIMITS)
    bench.workers("a")
    ticking(bench, 8)

    bench.workers("a")

    assert ticking(bench, 8) == []
    assert len(ticking(bench, 3)) == 1


def test_a_lost_worker_may_register_again_and_gets_work() -> None:
    bench = Bench(LIMITS)
    bench.workers("a")
    bench.submit(1)
    ticking(bench, 11)
    bench.running.clear()

    assert starts(bench.workers("a")) == [("m_000000_1", "a")]


def test_a_sign_of_life_of_a_worker_that_is_lost_says_nothing() -> None:
    """It must register, and say what it has."""
    bench = Bench(LIMITS)
    bench.workers("a")
    ticking(bench, 11)

    assert bench.tell(WorkerHeard(WorkerId("a"))) == []
    assert not bench.scheduler.knows(WorkerId("a"))


def test_the_time_in_which_the_master_was_stopped_is_nobody_s_silence() -> None:
    """A suspended or starved master must not call its whole cluster dead when it wakes."""
    bench = Bench(LIMITS)
    bench.workers("a", "b")
    ticking(bench, 5, "a", "b")

    bench.now_s += 3600.0
    woken = bench.tell(Tick())

    assert of_type(woken, LoseWorker) == []
    assert ticking(bench, 9, "a") == []
    assert [lost.worker_id for lost in ticking(bench, 3, "a")] == ["b"]


def test_a_tick_between_the_seconds_forgives_nothing() -> None:
    """The shell also ticks when the brain wants to be woken; silence goes on."""
    bench = Bench(LIMITS)
    bench.workers("a")
    lost = []
    for _ in range(33):
        bench.now_s += 0.33
        lost += of_type(bench.tell(Tick()), LoseWorker)

    assert [each.worker_id for each in lost] == ["a"]


def test_a_shell_that_knows_of_deaths_itself_sets_no_limit() -> None:
    bench = Bench()
    bench.workers("a")

    assert ticking(bench, 1000) == []


def fetches_that_fail(bench: Bench, seconds: int, *heard: str) -> list[Command]:
    """Three reduces ask for a map in vain, once a second, while some workers beat."""
    commands: list[Command] = []
    for _ in range(seconds):
        ticking(bench, 1, *heard)
        for index in range(3):
            commands += bench.tell(FetchFailed(reduce_attempt(index), map_attempt(0)))
    return commands


def finished_map(bench: Bench) -> str:
    """A job of one map, which is done, and three reduces that want it; give the map's worker."""
    bench.workers("a", "b", slots=3)
    bench.submit(1, 3)
    name = bench.where(map_attempt(0))
    bench.succeed(map_attempt(0))
    return name


def test_a_worker_that_starts_again_within_its_time_repeats_no_map() -> None:
    """However many reduces ask for its segments while it is away: they are on its disk."""
    bench = Bench(LIMITS)
    away = finished_map(bench)
    other = "b" if away == "a" else "a"

    commands = fetches_that_fail(bench, 9, other)
    back = WorkerRegistered(WorkerId(away), HostName(away), 3, 3, 3, segments=(map_attempt(0),))
    commands += bench.tell(back)

    assert "m_000000_1" not in [attempt for attempt, _ in starts(commands)]
    assert bench.scheduler.knows(WorkerId(away))


def test_a_worker_that_speaks_and_gives_nothing_has_its_map_run_again() -> None:
    """Its way to the reduces is broken, and the one to the master is not."""
    bench = Bench(LIMITS)
    deaf = finished_map(bench)

    before = fetches_that_fail(bench, 2, "a", "b")
    third = fetches_that_fail(bench, 1, "a", "b")

    assert before == []
    assert ("m_000000_1", "b" if deaf == "a" else "a") in starts(third)
