"""Jobs in words (view/jobs.py)."""

from __future__ import annotations

from mrstream.mapreduce.snapshot import EventRow, JobBoard, JobRow
from mrstream.view.jobs import (
    COLUMNS,
    COUNTER_COLUMNS,
    counter_rows,
    event_age,
    figures,
    job_cells,
    listed,
    notes,
    phases,
    title,
)
from mrstream.view.palette import Colour
from tests.support.tui_states import NOW_S, busy, failing


def job(**more: object) -> JobRow:
    return JobRow("job_1_0001", "sort", **more)  # type: ignore[arg-type]


def test_a_job_has_a_cell_for_every_column() -> None:
    cells = {
        column.title: cell.text
        for column, cell in zip(
            COLUMNS,
            job_cells(
                job(
                    state="running",
                    maps=4,
                    map_fraction=0.5,
                    submitted_at_s=100.0,
                    seconds_left=61.0,
                    input_bytes=10 << 20,
                    attempts_failed=2,
                ),
                now_s=110.0,
            ),
            strict=True,
        )
    }

    assert cells == {
        "State": "▸ running",
        "Job": "1_0001",
        "Map": " 50%",
        "Shuffle": "–",
        "Reduce": "–",
        "Left": "1:01",
        "Time": "10s",
        "Input": "1.0M/s",
        "Failed": "2",
        "Name": "sort",
    }


def test_a_job_that_waits_has_no_rate_and_one_that_ended_has_no_time_left() -> None:
    waiting = job_cells(job(state="waiting", submitted_at_s=1.0), now_s=9.0)
    ended = job_cells(job(state="killed", finished_at_s=31.0, seconds_left=5.0), now_s=99.0)

    assert [waiting[i].text for i in (5, 6, 7)] == ["–", "8s", "–"]
    assert [ended[i].text for i in (5, 6, 7)] == ["–", "31s", "0B/s"]


def test_running_jobs_come_first_and_other_orders_are_to_be_had() -> None:
    jobs = [
        JobRow("j1", "b", state="succeeded", submitted_at_s=5.0, attempts_failed=9),
        JobRow("j2", "c", state="running", submitted_at_s=1.0, seconds_left=4.0),
        JobRow("j3", "a", state="running", submitted_at_s=2.0, seconds_left=3.0),
        JobRow("j4", "d", state="unheard-of"),
    ]
    orders = {
        sort: "".join(row.key[1] for row in listed(jobs, sort=sort))
        for sort in ("state", "name", "started", "time left", "failed attempts")
    }

    assert orders == {
        "state": "3214",
        "name": "3124",
        "started": "1324",
        "time left": "2314",
        "failed attempts": "1234",
    }
    assert [row.key for row in listed(jobs, sort="name", wanted="RUNN")] == ["j3", "j2"]


def test_the_title_has_a_colour_only_if_the_state_asks_for_a_look() -> None:
    colours = [
        title(job(state=state))[0].colour for state in ("running", "failed", "succeeded", "waiting")
    ]

    assert colours == [Colour.YELLOW, Colour.VERMILLION, Colour.PLAIN, Colour.PLAIN]
    assert title(job(priority="HIGH"))[2].text == "job_1_0001  priority HIGH  → stdout"


def test_a_job_without_reduces_has_one_phase() -> None:
    (phase,) = phases(job(maps=20_000, maps_done=5, maps_running=2, map_fraction=0.1))

    assert (phase.label, phase.fraction, phase.tasks) == (
        "map",
        0.1,
        "5 of 20.0k done, 2 running",
    )
    assert [each.label for each in phases(job(maps=1, reduces=1))] == ["map", "shuffle", "reduce"]


def test_figures_end_with_what_went_wrong() -> None:
    words = [
        cell.text
        for cell in figures(
            job(state="running", input_bytes=1 << 20, seconds_left=7.0, attempts_failed=3), 4.0
        )
    ]

    assert words == [
        "in 1.0M",
        "shuffled 0B",
        "out 0B",
        "256K/s",
        "time 4s",
        "left 7s",
        "✗ 3 failed attempts",
    ]


def test_why_a_job_failed_comes_before_the_remarks() -> None:
    why = "Task failed task_1_0001_m_000003\nfailedMaps:1\nThe last failure: a\nlong\nstory"

    assert notes(job(diagnosis=why), ["slow"]) == [*why.split("\n")[:3], "slow"]
    assert notes(job(), ["slow"]) == ["slow"]


def test_counters_and_events_of_a_recorded_job() -> None:
    board: JobBoard = failing().boards["job_1700000000_0005"]

    rows = counter_rows(board, "odd")

    assert [[cell.text for cell in cells] for _, cells in rows] == [["words", "odd", "3"]]
    assert len(counter_rows(board)) == 3 and len(rows[0][1]) == len(COUNTER_COLUMNS)
    assert event_age(board.job, EventRow(NOW_S, "now")) == "5:00"


def test_every_recorded_job_can_be_told() -> None:
    for row in busy().jobs:
        assert len(job_cells(row, NOW_S)) == len(COLUMNS)
