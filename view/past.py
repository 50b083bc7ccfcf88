"""A job that ended long ago, out of its report: as much of a board as history keeps.

The master forgets the boards of all but the last ended jobs; their reports stay. There are no
curves in them, and of the tasks only those that were tried.
"""

from __future__ import annotations

from mrstream.mapreduce.protocol import AttemptRecord, JobReport
from mrstream.mapreduce.snapshot import (
    COMMITTED,
    FAILED,
    IDLE,
    RUNNING,
    AttemptRow,
    JobBoard,
    TaskRow,
)

_STATES = {"succeeded": COMMITTED, "failed": FAILED, "running": RUNNING}


def board_of(report: JobReport) -> JobBoard:
    """Return the board that a report can fill."""
    board = JobBoard(report.job)
    board.counters = report.counters
    board.events = list(report.events)
    tasks: dict[str, TaskRow] = {}
    for record in report.attempts:
        row = _attempt(record)
        board.attempts.put(row)
        state = _STATES.get(row.state, IDLE)
        before = tasks.get(row.task)
        if before is None or before.state != COMMITTED:
            done = float(state == COMMITTED)
            tasks[row.task] = TaskRow(row.task, state, row.host, row.started_at_s, done)
    for task in tasks.values():
        board.tasks.put(task)
    return board


def _attempt(record: AttemptRecord) -> AttemptRow:
    kind, number = record.attempt_id.split("_")[3:5]
    return AttemptRow(
        record.attempt_id,
        f"{kind}{number}",
        record.host,
        record.state,
        record.locality,
        record.started_at_s,
        record.finished_at_s,
        float(record.state == "succeeded"),
        records=record.records,
        diagnosis=record.diagnosis,
    )
