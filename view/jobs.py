"""Jobs in words: their table, and what a page about one of them says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mrstream.mapreduce.flow_rows import folded
from mrstream.mapreduce.snapshot import EventRow, JobBoard, JobRow
from mrstream.view.cells import NOT_KNOWN, Cell, Column, Row, passes, warning
from mrstream.view.palette import Colour, job_mark
from mrstream.view.words import count, percent, rate, size, span

COLUMNS = (
    Column("State"),
    Column("Job"),
    Column("Map"),
    Column("Shuffle"),
    Column("Reduce"),
    Column("Left", right=True),
    Column("Time", right=True),
    Column("Input", right=True),
    Column("Failed", right=True),
    Column("Name"),
)
COUNTER_COLUMNS = (Column("Group"), Column("Counter"), Column("Value", right=True))
SORTS = ("state", "name", "started", "time left", "failed attempts")
NO_JOBS = """\
No job has been submitted yet. For example:

    mrstream -input /in -mapper m.py -reducer r.py"""

WHY_LINES_MAX = 3
"""Of why a job failed: which task, how many failed, and the task's own words."""
_ORDER = ("running", "waiting", "failed", "killed", "succeeded")


# --- the table


def listed(jobs: Iterable[JobRow], *, sort: str, wanted: str = "") -> list[JobRow]:
    """Return the jobs that the user wants to see, in an order of `SORTS`; a flow is one row, unless
    somebody looks for jobs by a word."""
    seen = jobs if wanted else folded(jobs)
    found = [job for job in seen if passes(wanted, job.key, job.name, job.state)]
    return sorted(found, key=lambda job: _sort_key(job, sort))


def _sort_key(job: JobRow, sort: str) -> tuple[float | str, ...]:
    if sort == "name":
        return (job.name, job.key)
    if sort == "started":
        return (-job.submitted_at_s, job.key)
    if sort == "time left":
        return (-job.seconds_left, job.key)
    if sort == "failed attempts":
        return (-float(job.attempts_failed), job.key)
    order = _ORDER.index(job.state) if job.state in _ORDER else len(_ORDER)
    return (float(order), -job.submitted_at_s, job.key)


def job_cells(job: JobRow, now_s: float) -> tuple[Cell, ...]:
    """Return the cells of one job, in the order of `COLUMNS`."""
    elapsed = max(0.0, elapsed_s(job, now_s))
    known_speed = elapsed and job.state != "waiting"
    return (
        Cell.of(job_mark(job.state)),
        Cell(job.key.removeprefix("job_")),
        _share(job.map_fraction, job.maps),
        _share(job.shuffle_fraction, job.reduces),
        _share(job.reduce_fraction, job.reduces),
        Cell(span(job.seconds_left) if job.state == "running" else NOT_KNOWN),
        Cell(span(elapsed)),
        Cell(rate(job.input_bytes / elapsed) if known_speed else NOT_KNOWN),
        warning(str(job.attempts_failed)) if job.attempts_failed else Cell("0", Colour.FAINT),
        Cell(job.name),
    )


def _share(fraction: float, tasks: int) -> Cell:
    """A phase that the job does not have is not at nought, it is not there."""
    return Cell(percent(fraction), share=fraction) if tasks else Cell(NOT_KNOWN)


def elapsed_s(job: JobRow, now_s: float) -> float:
    """Return how long a job has run, or ran."""
    return (job.finished_at_s or now_s) - job.submitted_at_s


# --- one job


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a job: how far it is, and how many tasks that is."""

    label: str
    fraction: float
    tasks: str


def title(job: JobRow) -> tuple[Cell, ...]:
    """Return what names the job, its state first; only a state that asks for a look has a
    colour."""
    mark = job_mark(job.state)
    colour = mark.colour if mark.colour in (Colour.YELLOW, Colour.VERMILLION) else Colour.PLAIN
    priority = "" if job.priority == "NORMAL" else f"  priority {job.priority}"
    return (
        Cell(mark.text, colour, loud=True),
        Cell(job.name, loud=True),
        Cell(f"{job.key}{priority}  → {job.output or 'stdout'}", Colour.FAINT),
    )


def phases(job: JobRow) -> list[Phase]:
    """Return the phases that the job has, each with how far it is."""
    reduces = (job.reduces, job.reduces_done, job.reduces_running)
    rows = (
        ("map", job.map_fraction, (job.maps, job.maps_done, job.maps_running)),
        ("shuffle", job.shuffle_fraction, reduces),
        ("reduce", job.reduce_fraction, reduces),
    )
    return [
        Phase(label, fraction, f"{count(done)} of {count(tasks)} done, {count(running)} running")
        for label, fraction, (tasks, done, running) in rows
        if tasks
    ]


def figures(job: JobRow, now_s: float) -> list[Cell]:
    """Return the figures of a job: bytes, rate and times; what failed last."""
    elapsed = elapsed_s(job, now_s)
    said = [
        Cell(f"in {size(job.input_bytes)}"),
        Cell(f"shuffled {size(job.shuffle_bytes)}"),
        Cell(f"out {size(job.output_bytes)}"),
        Cell(rate(job.input_bytes / max(elapsed, 0.1))),
        Cell(f"time {span(elapsed)}"),
    ]
    if job.state == "running":
        said.append(Cell(f"left {span(job.seconds_left)}", loud=True))
    if job.attempts_failed:
        said.append(warning(f"✗ {job.attempts_failed} failed attempts"))
    return said


def notes(job: JobRow, remarks: Sequence[str]) -> list[str]:
    """Return why the job failed, and the remarks on stragglers and skew."""
    why = job.diagnosis.split("\n")[:WHY_LINES_MAX] if job.diagnosis else []
    return [*why, *remarks]


def counter_rows(board: JobBoard, wanted: str = "") -> list[Row]:
    """Return the counters that the user wants to see, in the order of `COUNTER_COLUMNS`."""
    return [
        (f"{group}\0{name}", (Cell(group.strip()), Cell(name.strip()), Cell(f"{value:,}")))
        for group, counters in board.counters.items()
        for name, value in counters.items()
        if passes(wanted, group, name)
    ]


def event_age(job: JobRow, event: EventRow) -> str:
    """Return how far into the job something happened."""
    return span(event.at_s - job.submitted_at_s)
