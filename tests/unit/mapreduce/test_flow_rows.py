"""A flow is one row of a table, whatever jobs it has."""

from __future__ import annotations

from mrstream.mapreduce.flow_rows import flow_of, folded, is_runner, with_ended_steps
from mrstream.mapreduce.snapshot import JobRow
from mrstream.view import jobs

FLOW = "flow_20261117_201615_de7c"
PLACES = f"dfs://c/.mrstream/flows/{FLOW}"
RUNNER = JobRow(
    "job_1", name="flow top", state="running", submitted_at_s=1.0, output=f"{PLACES}/_flow/run.1"
)
DONE = JobRow(
    "job_2", name="top: words", state="succeeded", submitted_at_s=2.0, finished_at_s=3.0,
    attempts_failed=2, output=f"{PLACES}/words.1",
)  # fmt: skip
NOW = JobRow(
    "job_3", name="top: last", state="running", submitted_at_s=4.0, maps=7,
    output=f"dfs://c/top/_{FLOW}/last.2",
)  # fmt: skip
OTHER = JobRow("job_9", name="other", state="running", output=f"dfs://c/about/{FLOW}.txt")


def test_a_job_is_of_the_flow_that_its_output_is_a_place_of() -> None:
    assert [flow_of(row) for row in (RUNNER, DONE, NOW, OTHER)] == [FLOW, FLOW, FLOW, ""]
    assert [is_runner(row) for row in (RUNNER, DONE, NOW, OTHER)] == [True, False, False, False]


def test_the_step_that_runs_stands_for_the_flow() -> None:
    flow, other = folded([RUNNER, DONE, OTHER, NOW])

    assert other == OTHER
    assert (flow.key, flow.name) == ("job_3", "top: last (flow, 1 of 2 jobs done)")
    assert (flow.state, flow.maps, flow.submitted_at_s) == ("running", 7, 1.0)
    assert flow.attempts_failed == 2


def test_of_a_flow_that_runs_the_steps_that_are_over_count_too() -> None:
    """`job -list` asked for what runs alone, and said that nothing of the flow was done."""
    ended = JobRow("job_8", name="other", state="succeeded", output="dfs://c/other")

    rows = with_ended_steps([RUNNER, NOW, OTHER], [RUNNER, DONE, NOW, ended, OTHER])

    assert rows == [RUNNER, DONE, NOW, OTHER]
    assert folded(rows)[0].name == "top: last (flow, 1 of 2 jobs done)"


def test_between_two_steps_a_detached_flow_runs() -> None:
    (flow,) = folded([RUNNER, DONE])

    assert (flow.key, flow.state, flow.finished_at_s) == ("job_2", "running", 0.0)


def test_a_flow_that_has_only_begun_is_the_job_that_runs_it() -> None:
    assert folded([RUNNER]) == [RUNNER]


def test_the_monitor_and_the_pages_show_one_row_and_all_jobs_to_who_looks_for_them() -> None:
    rows = [RUNNER, DONE, NOW, OTHER]

    assert [row.key for row in jobs.listed(rows, sort="started")] == ["job_3", "job_9"]
    found = jobs.listed(rows, sort="started", wanted="top")
    assert [row.key for row in found] == ["job_3", "job_2", "job_1"]
