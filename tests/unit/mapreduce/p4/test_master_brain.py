"""The master's brain, event by event: what the specification's paragraphs ask of it."""

from __future__ import annotations

from typing import Any

import pytest

from mrstream.mapreduce.p4.brain.events import (
    Command,
    DeliveryFailed,
    End,
    Event,
    Forget,
    Grouped,
    InputListed,
    ListInput,
    MakeDirectories,
    MergeAndCut,
    PlaceResults,
    ResultsPlaced,
    Say,
    Send,
    TimePassed,
)
from mrstream.mapreduce.p4.brain.layout import EDITIONS, dealt
from mrstream.mapreduce.p4.brain.master import JOBS_WAITING_MAX, MasterBrain
from mrstream.mapreduce.p4.brain.messages import (
    AnyStatus,
    Heartbeat,
    NewMasterJob,
    NewSortJob,
    NewWorkerJob,
    Register,
    RegisterAck,
    Shutdown,
)

MAPPED, SORTED, REDUCED = (f"var/job-0/{n}-output" for n in ("mapper", "grouper", "reducer"))


def job(maps: int = 4, reduces: int = 2) -> NewMasterJob:
    return NewMasterJob("in", "out", "exec/map", "exec/reduce", maps, reduces)


class Told:
    """A brain, and what it said to each event: news apart."""

    def __init__(self, *pids: int, **options: Any) -> None:
        self.brain = MasterBrain(**options)
        self.now_s = 0.0
        for pid in pids:
            self(Register("localhost", 6000 + pid, pid))

    def __call__(self, event: Event) -> list[Command]:
        commands = self.brain.handle(event, self.now_s)
        return [command for command in commands if not isinstance(command, Say)]

    def orders(self, event: Event) -> list[tuple[int, list[str]]]:
        """Who is told to work on which files."""
        sent = [command for command in self(event) if isinstance(command, Send)]
        return [
            (send.pid, send.message.input_files)
            for send in sent
            if isinstance(send.message, NewWorkerJob | NewSortJob)
        ]

    def done(self, pid: int, *paths: str) -> AnyStatus:
        return AnyStatus(pid, "finished", list(paths))

    def mapping(self, files: int, maps: int, reduces: int = 2) -> list[tuple[int, list[str]]]:
        assert self(job(maps, reduces)) == [MakeDirectories(0), ListInput(0, "in")]
        return self.orders(InputListed(0, tuple(f"in/f{n}" for n in range(files))))


@pytest.mark.parametrize(
    ("files", "maps", "pids", "parts"),
    [
        (5, 4, (1, 2), [(1, [0, 4]), (2, [1]), (1, [2]), (2, [3])]),
        (8, 4, (1, 2, 3), [(1, [0, 4]), (2, [1, 5]), (3, [2, 6]), (1, [3, 7])]),
        (2, 4, (1, 2), [(1, [0]), (2, [1])]),
    ],
)
def test_files_and_tasks_are_dealt_evenly(
    files: int, maps: int, pids: tuple[int, ...], parts: list[tuple[int, list[int]]]
) -> None:
    """P4-09, P4-10, P4-11, R7: the source's example and those derived from it."""
    told = Told(*pids)

    assert told.mapping(files, maps) == [(pid, [f"in/f{n}" for n in part]) for pid, part in parts]


def test_grouping_and_reducing_are_dealt_evenly() -> None:
    """P4-11, P4-16, P4-17, P4-19: 5 map outputs on 2 workers are 3 + 2; 4 reduces are 2 each."""
    told = Told(1, 2)
    told.mapping(5, 5, 4)
    for n in range(4):
        assert told(told.done(1 + n % 2, f"{MAPPED}/f{n}")) == []

    sorts = told(told.done(1, f"{MAPPED}/f4"))
    assert sorts == [
        Send(1, "localhost", 6001, NewSortJob(
            [f"{MAPPED}/f0", f"{MAPPED}/f2", f"{MAPPED}/f4"], f"{SORTED}/sorted_0", 1)),
        Send(2, "localhost", 6002, NewSortJob(
            [f"{MAPPED}/f1", f"{MAPPED}/f3"], f"{SORTED}/sorted_1", 2)),
    ]  # fmt: skip
    assert told(told.done(1, f"{SORTED}/sorted_0")) == []
    assert told(told.done(2, f"{SORTED}/sorted_1")) == [
        MergeAndCut(
            0,
            (f"{SORTED}/sorted_0", f"{SORTED}/sorted_1"),
            tuple(f"{SORTED}/input_{n}" for n in range(4)),
        )
    ]
    assert told(Grouped(0)) == [
        Send(1 + n % 2, "localhost", 6001 + n % 2, NewWorkerJob(
            [f"{SORTED}/input_{n}"], "exec/reduce", REDUCED, 1 + n % 2))
        for n in range(4)
    ]  # fmt: skip


def test_fewer_map_outputs_than_workers_leave_some_idle() -> None:
    """P4-05, P4-11: 2 outputs on 3 workers are two sorts of one file."""
    told = Told(1, 2, 3)
    told.mapping(2, 2)
    told(told.done(1, f"{MAPPED}/f0"))

    assert told.orders(told.done(2, f"{MAPPED}/f1")) == [
        (1, [f"{MAPPED}/f0"]),
        (2, [f"{MAPPED}/f1"]),
    ]
    assert told.brain.states() == {1: "busy", 2: "busy", 3: "ready"}


def test_a_job_that_comes_first_waits_for_the_first_worker() -> None:
    """P4-06: its directories are made at once."""
    told = Told()

    assert told(job()) == [MakeDirectories(0)]
    assert told(Register("here", 6001, 1)) == [
        Send(1, "here", 6001, RegisterAck("here", 6001, 1)),  # P4-03
        ListInput(0, "in"),
    ]


def reduced(told: Told) -> list[Command]:
    """Bring job 0, of one file and one reduce, to the placing of its results."""
    told.mapping(1, 1, 1)
    told(told.done(1, f"{MAPPED}/f0"))
    told(told.done(1, f"{SORTED}/sorted_0"))
    told(Grouped(0))
    return told(told.done(1, f"{REDUCED}/input_0"))


def test_results_are_placed_and_the_next_job_begins() -> None:
    """P4-08, P4-20: in the order of arrival, right after."""
    told = Told(1)

    assert reduced(told) == [PlaceResults(0, (f"{REDUCED}/input_0",), ("input_0",), "out")]
    assert told(job()) == [MakeDirectories(1)]
    assert told(job()) == [MakeDirectories(2)]
    assert told(ResultsPlaced(0)) == [ListInput(1, "in")]
    assert told(InputListed(1, (), "no such directory")) == [ListInput(2, "in")]


def test_a_worker_that_joins_waits_for_the_next_phase() -> None:
    """P4-07; with a limit it takes what waits already (R6)."""
    told = Told(1)
    told.mapping(3, 3)
    limited = Told(1, outstanding_max=1)
    limited.mapping(3, 3)

    assert told.orders(Register("localhost", 6002, 2)) == []
    assert limited.orders(Register("localhost", 6002, 2)) == [(2, ["in/f1"])]
    assert limited.orders(limited.done(2, f"{MAPPED}/f1")) == [(2, ["in/f2"])]


def test_a_worker_is_dead_when_its_sixth_heartbeat_is_overdue_and_its_tasks_go_on() -> None:
    """P4-22, P4-23, P4-24: not sooner, and what it finished stays finished."""
    told = Told(1, 2)
    told.mapping(4, 4)
    told(told.done(1, f"{MAPPED}/f0"))
    orders: list[tuple[int, list[str]]] = []
    while told.now_s < 11.5:
        told.now_s += 0.5
        told(Heartbeat(2))
        orders += told.orders(TimePassed())
    assert orders == []

    told.now_s = 12.0
    assert told.orders(TimePassed()) == [(2, ["in/f2"])]
    assert told.brain.states() == {1: "dead", 2: "busy"}


def dead_and_given_on() -> Told:
    """Worker 1 had f0 and f2; it is taken for dead, and they are with worker 2."""
    told = Told(1, 2)
    told.mapping(4, 4)
    for _ in range(24):
        told.now_s += 0.5
        told(Heartbeat(2))
        told(TimePassed())
    return told


def test_a_late_status_counts_but_the_phase_waits_for_who_still_writes() -> None:
    """P4-29: and if that one dies too, nobody runs it a third time."""
    told = dead_and_given_on()
    told(told.done(1, f"{MAPPED}/f0"))
    for n in (1, 3, 2):
        assert told.orders(told.done(2, f"{MAPPED}/f{n}")) == []

    told(Register("localhost", 6003, 3))
    assert told.brain.states()[2] == "busy"
    for _ in range(24):
        told.now_s += 0.5
        told(Heartbeat(3))
        found = told.orders(TimePassed())
    assert found == [(3, [f"{MAPPED}/f{n}" for n in range(4)])]  # the grouping, at once


def test_all_dead_means_to_wait_for_a_registration() -> None:
    """P4-25; a late status finishes what nobody has (P4-29)."""
    told = Told(1)
    told.mapping(3, 3)
    told.now_s = 1.0
    told(TimePassed())
    while told.brain.states()[1] != "dead":
        told.now_s += 1
        told(TimePassed())
    told(told.done(1, f"{MAPPED}/f1"))

    assert told.orders(Register("localhost", 6002, 2)) == [(2, ["in/f0"]), (2, ["in/f2"])]


def test_a_worker_that_is_heard_again_is_alive_but_not_one_that_takes_no_messages() -> None:
    told = dead_and_given_on()

    told(Heartbeat(1))
    assert told.brain.states()[1] == "ready"
    assert Forget(2) in told(DeliveryFailed(2))
    told(Heartbeat(2))
    assert told.brain.states()[2] == "dead"


def test_rubbish_changes_nothing() -> None:
    """P4-28: unknown pids, statuses of other jobs and phases, twice the same."""
    told = Told(1, 2)
    told.mapping(2, 2)
    before = told.brain.states()

    for event in (
        Heartbeat(99),
        told.done(99, f"{MAPPED}/f0"),
        told.done(2, f"{MAPPED}/f0"),  # never given to it
        told.done(1, "var/job-7/mapper-output/f0"),
        told.done(1, f"{REDUCED}/input_0"),
    ):
        assert told(event) == []
    assert told.brain.states() == before
    told(told.done(1, f"{MAPPED}/f0"))
    assert told(told.done(1, f"{MAPPED}/f0")) == []
    assert told.brain.states() == {1: "ready", 2: "busy"}


def test_a_status_is_matched_by_names_then_by_order() -> None:
    """R1, R3: either key, a string or a list, any directory; unknown names mean the oldest."""
    told = Told(1)
    told.mapping(3, 3)

    told(AnyStatus(1, "finished", output_file="/somewhere/else/f2"))
    told(AnyStatus(1, "finished", output_files=["who knows"]))
    assert told.orders(AnyStatus(1, "finished", output_file=["f1"])) == [
        (1, [f"{MAPPED}/f0", f"{MAPPED}/f1", f"{MAPPED}/f2"])
    ]


def test_a_shutdown_goes_to_all_that_ever_registered_and_then_nothing_happens() -> None:
    """P4-21, M9."""
    told = dead_and_given_on()

    assert told(Shutdown()) == [
        Send(1, "localhost", 6001, Shutdown()),
        Send(2, "localhost", 6002, Shutdown()),
        End(),
    ]
    assert told(job()) == []


def test_a_process_id_that_comes_again_is_another_worker() -> None:
    told = Told(1, 2)
    told.mapping(2, 2)

    assert told.orders(Register("localhost", 6009, 1)) == [(1, ["in/f0"])]
    assert told(Register("localhost", 6009, 1)) == [
        Send(1, "localhost", 6009, RegisterAck("localhost", 6009, 1))
    ]


def test_jobs_without_end_are_refused() -> None:
    told = Told()
    for _ in range(JOBS_WAITING_MAX):
        told(job())

    assert told(job()) == []


def test_an_empty_input_directory_still_gives_all_results() -> None:
    told = Told(1)

    told(job(3, 2))
    assert told(InputListed(0, ())) == [
        MergeAndCut(0, (), (f"{SORTED}/input_0", f"{SORTED}/input_1"))
    ]


def test_a_later_edition_has_other_names() -> None:
    """R12."""
    edition = EDITIONS["2019"]

    assert edition.job(0) == "tmp/job-0"
    assert edition.sorted_file(1, 0) == "tmp/job-1/grouper-output/sorted01"
    assert edition.reduce_input(1, 9) == "tmp/job-1/grouper-output/reduce10"
    assert edition.result(0) == "outputfile01"


def test_dealing_never_gives_an_empty_part() -> None:
    assert dealt([], 3) == []
    assert dealt(["a", "b", "c"], 2) == [("a", "c"), ("b",)]
