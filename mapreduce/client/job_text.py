"""Reports of jobs as text, in the shapes that `mapred job` prints. Takes data; never prints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from mrstream.cluster.units import decimal_size, duration, with_commas
from mrstream.mapreduce.job.counters import dump_of
from mrstream.mapreduce.protocol import JobReport
from mrstream.mapreduce.snapshot import EventRow, JobRow

_STATES = {"waiting": "PREP", "running": "RUNNING"}
_COLUMNS = ("JobId", "JobName", "State", "StartTime", "UserName", "Queue", "Priority",
            "Maps", "Reduces", "Output")  # fmt: skip


def state_word(row: JobRow) -> str:
    """Return the state as Hadoop names it."""
    return _STATES.get(row.state, row.state.upper())


def list_text(rows: Sequence[JobRow], *, for_people: bool = False) -> str:
    """Return the table of `-list`: with Hadoop's milliseconds, or for people with moments."""
    table = [_COLUMNS] + [
        (
            row.key,
            row.name,
            state_word(row),
            _moment(row.submitted_at_s) if for_people else str(int(row.submitted_at_s * 1000)),
            row.user,
            "default",
            row.priority,
            f"{row.maps_done}/{row.maps}",
            f"{row.reduces_done}/{row.reduces}",
            row.output,
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in table) for column in range(len(_COLUMNS))]
    lines = [
        "  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]
    return "\n".join([f"Total jobs:{len(rows)}", *lines])


def status_text(report: JobReport) -> str:
    row = report.job
    lines = [
        "",
        f"Job: {row.key}",
        f"Job Name: {row.name}",
        f"User: {row.user}",
        f"Output: {row.output}",
        f"Submitted: {_moment(row.submitted_at_s)}",
        f"Number of maps: {row.maps} ({row.maps_done} done, {row.maps_running} running)",
        f"Number of reduces: {row.reduces} ({row.reduces_done} done, "
        f"{row.reduces_running} running)",
        f"map() completion: {_fraction(row, row.map_fraction)}",
        f"reduce() completion: {_fraction(row, row.reduce_fraction)}",
        f"Job state: {state_word(row)}",
        f"retired: {'true' if row.finished_at_s else 'false'}",
        f"reason for failure: {row.diagnosis if row.state in ('failed', 'killed') else ''}",
        dump_of(report.counters),
    ]
    return "\n".join(lines)


def events_text(report: JobReport, events: Iterable[EventRow]) -> str:
    """Return what `-events` shows: a line for each, with its moment."""
    shown = [f"{_moment(event.at_s)} {event.text}" for event in events]
    return "\n".join([f"Task completion events for {report.job.key}", *shown])


def history_text(report: JobReport) -> str:
    """Return the whole report: times, the columns of the paper's Table 1, failures, counters."""
    row, facts = report.job, report.facts
    finished = row.finished_at_s
    lines = [
        f"Hadoop job: {row.key}",
        "=====================================",
        f"User: {row.user}",
        f"JobName: {row.name}",
        f"Output: {row.output}",
        f"Submitted At: {_moment(row.submitted_at_s)}",
        f"Finished At: {_moment(finished)} ({duration(finished - row.submitted_at_s)})"
        if finished
        else "Finished At: it still runs",
        f"Status: {state_word(row)}" + (f" ({row.diagnosis})" if row.diagnosis else ""),
        "=====================================",
        *table_lines(facts),
        "=====================================",
        "",
    ]
    lines += _task_lines(report)
    if report.failures:
        lines += ["", "Failures:", *report.failures]
    if report.closing:
        lines += ["", report.closing]
    lines += ["", dump_of(report.counters)]
    return "\n".join(lines)


def attempts_text(report: JobReport, kind: str, state: str) -> list[str]:
    letter = f"_{kind[0]}_"
    return [
        each.attempt_id
        for each in report.attempts
        if letter in each.attempt_id
        and ((each.state == "running") == (state == "running"))
        and each.state in ("running", "succeeded")
    ]


def table_lines(facts: Mapping[str, float]) -> list[str]:
    """Return Table 1 of the paper for one job (MapReduce §6)."""
    return [
        f"Completion time: {duration(facts.get('elapsed_s', 0.0))}",
        f"Start-up: {duration(facts.get('start_up_s', 0.0))}, of which to plan the input and ship "
        f"programs: {duration(facts.get('prepared_s', 0.0))}",
        f"Mean task time: {duration(facts.get('task_s_mean', 0.0))}",
        f"Machine days used: {facts.get('machine_days', 0.0):.6f}",
        f"Input data read: {decimal_size(facts.get('input_bytes', 0.0))}",
        f"Intermediate data: {decimal_size(facts.get('intermediate_bytes', 0.0))}",
        f"Output data written: {decimal_size(facts.get('output_bytes', 0.0))}",
        f"Workers: {_whole(facts, 'workers')}",
        f"Worker deaths: {_whole(facts, 'worker_deaths')}",
        f"Map tasks: {_whole(facts, 'maps')}",
        f"Reduce tasks: {_whole(facts, 'reduces')}",
        f"Maps on a host of their data: {_whole(facts, 'maps_host_local')}, "
        f"on its rack: {_whole(facts, 'maps_rack_local')}, "
        f"elsewhere: {_whole(facts, 'maps_remote')}",
        f"Maps run again for lost output: {_whole(facts, 'maps_rerun')}",
        f"Backup attempts: {_whole(facts, 'backups')}, of which won: "
        f"{_whole(facts, 'backups_that_won')}",
        f"Time of attempts that counted: {duration(facts.get('useful_s', 0.0))}, "
        f"that did not: {duration(facts.get('wasted_s', 0.0))}",
    ]


def _task_lines(report: JobReport) -> list[str]:
    lines = ["Attempts (slowest first):"]
    over = [each for each in report.attempts if each.finished_at_s]
    over.sort(key=lambda each: each.started_at_s - each.finished_at_s)
    for each in over[:20]:
        took = duration(each.finished_at_s - each.started_at_s)
        text = f"  {each.attempt_id}  {each.state.upper()}  {each.host}  {took}"
        text += f"  {with_commas(each.records)} records" if each.records else ""
        lines.append(text + (f"  {each.diagnosis}" if each.diagnosis else ""))
    if len(over) > 20:
        lines.append(f"  … and {len(over) - 20} more")
    return lines


def _whole(facts: Mapping[str, float], name: str) -> str:
    return with_commas(int(facts.get(name, 0.0)))


def _moment(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s)) if at_s else "-"


def _fraction(row: JobRow, fraction: float) -> float:
    return 1.0 if row.state == "succeeded" else fraction
