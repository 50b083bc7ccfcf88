"""Attempts in words: their table, and what a page about one of them says."""

from __future__ import annotations

from mrstream.mapreduce.snapshot import AttemptRow, JobBoard
from mrstream.view.cells import NOT_KNOWN, Cell, Column, passes
from mrstream.view.palette import attempt_mark
from mrstream.view.words import count, percent, size, span

COLUMNS = (
    Column("State"),
    Column("Attempt"),
    Column("Host"),
    Column("Near"),
    Column("Phase"),
    Column("Done", right=True),
    Column("Time", right=True),
    Column("Records", right=True),
    Column("Input", right=True),
    Column("Status"),
)
_ORDER = {"running": 0, "failed": 1, "killed": 2, "succeeded": 3}


def listed(board: JobBoard, *, wanted: str = "") -> list[AttemptRow]:
    """Return the attempts that the user wants to see: running ones first, then what went wrong."""
    found = [
        row
        for row in board.attempts
        if passes(wanted, row.key, row.host, row.state, row.locality, row.diagnosis)
    ]
    return sorted(found, key=lambda row: (_ORDER.get(row.state, 9), -row.started_at_s, row.key))


def attempt_cells(row: AttemptRow, now_s: float) -> tuple[Cell, ...]:
    """Return the cells of one attempt, in the order of `COLUMNS`."""
    went_wrong = row.state in ("failed", "killed")
    return (
        Cell.of(attempt_mark(row.state)),
        Cell("_".join(row.key.split("_")[3:])),
        Cell(row.host),
        Cell(row.locality or NOT_KNOWN),
        Cell(row.phase or NOT_KNOWN),
        Cell(percent(row.progress)),
        Cell(span(_elapsed_s(row, now_s))),
        Cell(count(row.records)),
        Cell(size(row.input_bytes)),
        Cell(row.diagnosis.split("\n")[0] if went_wrong else row.status),
    )


def about(row: AttemptRow, now_s: float) -> list[str]:
    """Return what is known of one attempt, a line each: figures, status, why it failed."""
    words = f"{row.state} on {row.host}  {row.phase}  {percent(row.progress)}"
    words += f"  {span(_elapsed_s(row, now_s))}"
    words += f"  {count(row.records)} records  {size(row.input_bytes)} in"
    lines = [words]
    if row.status:
        lines.append(f"status: {row.status}")
    if row.diagnosis:
        lines.append(row.diagnosis.splitlines()[0])
    return lines


def repeat_command(attempt_id: str) -> str:
    """Return the command that repeats an attempt before the user's eyes."""
    return f"mrstream -repeat {attempt_id}"


def _elapsed_s(row: AttemptRow, now_s: float) -> float:
    return (row.finished_at_s or now_s) - row.started_at_s
