"""Jobs of a flow as one row of a table: the step that runs now, and how many are done.

A job belongs to a flow if its output is a place of one. Takes rows and gives rows; pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from mrstream.mapreduce.snapshot import JobRow

_FLOW = re.compile(r"/_?(flow_\d{8}_\d{6}_[0-9a-f]{4})/")
_RUNNER = "/_flow/run."
"""In the output of the job that runs a detached flow."""
_ORDER = ("running", "waiting")


def flow_of(row: JobRow) -> str:
    """Return the id of the flow that a job is a step of, or that it runs; empty if there is
    none."""
    found = _FLOW.search(f"{row.output}/")
    return found[1] if found else ""


def is_runner(row: JobRow) -> bool:
    """Whether a job is one that runs a detached flow."""
    return _RUNNER in row.output and bool(flow_of(row))


def with_ended_steps(running: Sequence[JobRow], everything: Iterable[JobRow]) -> list[JobRow]:
    """Return the jobs that run, and of the flows among them those that are over: a flow's row
    counts both."""
    keys = {row.key for row in running}
    flows = {flow_of(row) for row in running} - {""}
    return [row for row in everything if row.key in keys or flow_of(row) in flows]


def folded(rows: Iterable[JobRow]) -> list[JobRow]:
    """Return the rows with one for each flow, where its first job was."""
    flows: dict[str, list[JobRow]] = {}
    order: list[str | JobRow] = []
    for row in rows:
        flow_id = flow_of(row)
        if not flow_id:
            order.append(row)
        elif flow_id in flows:
            flows[flow_id].append(row)
        else:
            flows[flow_id] = [row]
            order.append(flow_id)
    return [one if isinstance(one, JobRow) else _one(flows[one]) for one in order]


def _one(rows: list[JobRow]) -> JobRow:
    steps = [row for row in rows if not is_runner(row)]
    runners = [row for row in rows if is_runner(row)]
    if not steps:
        return runners[-1]
    shown = max(steps, key=lambda row: (_rank(row), row.submitted_at_s, row.key))
    running = [row for row in rows if row.state in _ORDER]
    done = sum(row.state == "succeeded" for row in steps)
    last = runners[-1] if runners else shown
    return msgspec.structs.replace(
        shown,
        name=f"{shown.name} (flow, {done} of {len(steps)} jobs done)",
        state="running" if running else last.state,
        submitted_at_s=min(row.submitted_at_s for row in rows),
        finished_at_s=0.0 if running else max(row.finished_at_s for row in rows),
        attempts_failed=sum(row.attempts_failed for row in rows),
    )


def _rank(row: JobRow) -> int:
    """A step that runs is shown before one that waits, and that before one that is over."""
    return len(_ORDER) - _ORDER.index(row.state) if row.state in _ORDER else 0
