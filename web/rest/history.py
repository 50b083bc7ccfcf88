"""Job history as Hadoop's history server gives it: its paths, its field names, from our reports.

    /ws/v1/history/info
    /ws/v1/history/mapreduce/jobs[/J[/conf|counters|jobattempts|tasks[/T[/counters|attempts[/A…]]]]]

Pure: takes rows and reports, gives values for JSON. Jobs that still run are in it too, in state
RUNNING. What is not known here is left out, never invented: counters are kept of jobs, and of an
attempt only the records that it read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mrstream.mapreduce.protocol import AttemptRecord, JobReport
from mrstream.mapreduce.snapshot import JobRow

Value = dict[str, Any]

STATES = {
    "waiting": "NEW",
    "running": "RUNNING",
    "succeeded": "SUCCEEDED",
    "failed": "FAILED",
    "killed": "KILLED",
}
_TIMES = ("startedTimeBegin", "startedTimeEnd", "finishedTimeBegin", "finishedTimeEnd")
_KINDS = {"m": "MAP", "r": "REDUCE"}
TASK_COUNTERS = "org.apache.hadoop.mapreduce.TaskCounter"


class BadQuery(Exception):
    """A word of the query has a value that it cannot have."""


class NotFound(Exception):
    """There is no such job, task or attempt."""


def info(version: str, started_at_s: float) -> Value:
    """What the server says of itself."""
    return {"historyInfo": {"startedOn": _ms(started_at_s), "hadoopVersion": f"mrstream {version}"}}


def jobs(rows: Iterable[JobRow], query: Mapping[str, str]) -> Value:
    """The list of jobs, newest last, as far as the query wants them."""
    for name in (*_TIMES, "limit"):
        if query.get(name) and not (query[name].isascii() and query[name].isdigit()):
            raise BadQuery(f"{name} is {query[name]!r}; it must be a whole number")
    state = query.get("state", "")
    if state and state not in STATES.values():
        raise BadQuery(f"state is {state!r}; one of {', '.join(STATES.values())}")
    found = [row for row in rows if _is_wanted(row, query)]
    if query.get("limit"):
        limit = int(query["limit"])
        found = found[-limit:] if limit else []
    return {"jobs": {"job": [_listed(row) for row in found]}}


def _is_wanted(row: JobRow, query: Mapping[str, str]) -> bool:
    started, finished = _ms(row.submitted_at_s), _ms(row.finished_at_s)
    return (
        query.get("user", row.user) == row.user
        and query.get("queue", "default") == "default"
        and query.get("state", STATES[row.state]) == STATES[row.state]
        and int(query.get("startedTimeBegin") or 0) <= started
        and started <= int(query.get("startedTimeEnd") or started)
        and int(query.get("finishedTimeBegin") or 0) <= finished
        and finished <= int(query.get("finishedTimeEnd") or finished)
    )


def _listed(row: JobRow) -> Value:
    return {
        "submitTime": _ms(row.submitted_at_s),
        "startTime": _ms(row.submitted_at_s),
        "finishTime": _ms(row.finished_at_s),
        "id": row.key,
        "name": row.name,
        "queue": "default",
        "user": row.user,
        "state": STATES[row.state],
        "mapsTotal": row.maps,
        "mapsCompleted": row.maps_done,
        "reducesTotal": row.reduces,
        "reducesCompleted": row.reduces_done,
    }


def job(report: JobReport) -> Value:
    told = _listed(report.job) | {
        "uberized": False,
        "diagnostics": report.job.diagnosis,
        "acls": [],
    }
    for kind, word in (("m", "Map"), ("r", "Reduce")):
        mine = [each for each in report.attempts if _kind(each) == kind]
        done = [each for each in mine if each.state == "succeeded"]
        spans = [each.finished_at_s - each.started_at_s for each in done]
        told[f"avg{word}Time"] = _ms(sum(spans) / len(spans)) if spans else 0
        for state, name in (
            ("succeeded", "successful"),
            ("failed", "failed"),
            ("killed", "killed"),
        ):
            told[f"{name}{word}Attempts"] = sum(each.state == state for each in mine)
    return {"job": told}


def conf(report: JobReport) -> Value:
    named = [
        {"name": name, "value": value, "source": []} for name, value in report.properties.items()
    ]
    return {"conf": {"path": report.job.key, "property": named}}


def counters(report: JobReport) -> Value:
    """What a job counted, maps and reduces together."""
    groups = [
        {
            "counterGroupName": group,
            "counter": [
                {"name": name, "totalCounterValue": value} for name, value in counted.items()
            ],
        }
        for group, counted in report.counters.items()
    ]
    return {"jobCounters": {"id": report.job.key, "counterGroup": groups}}


def job_attempts(report: JobReport) -> Value:
    """The attempts to run the job's master: there is one, which outlives every job."""
    first = {"id": 1, "startTime": _ms(report.job.submitted_at_s)}
    return {"jobAttempts": {"jobAttempt": [first]}}


# --- tasks and attempts


def tasks(report: JobReport, query: Mapping[str, str]) -> Value:
    """The tasks of a job that have been tried."""
    kind = query.get("type", "")
    if kind not in ("", "m", "r"):
        raise BadQuery(f"tasktype must be either m or r, not {kind!r}")
    found = [
        _task(name, mine)
        for name, mine in _by_task(report).items()
        if kind in ("", name.split("_")[3])
    ]
    return {"tasks": {"task": found}}


def task(report: JobReport, task_id: str) -> Value:
    return {"task": _task(task_id, _attempts_of(report, task_id))}


def task_counters(report: JobReport, task_id: str) -> Value:
    mine = _attempts_of(report, task_id)
    best = next((each for each in mine if each.state == "succeeded"), mine[-1])
    return {"jobTaskCounters": {"id": task_id, "taskCounterGroup": _read(best)}}


def attempts(report: JobReport, task_id: str) -> Value:
    told = [_attempt(each) for each in _attempts_of(report, task_id)]
    return {"taskAttempts": {"taskAttempt": told}}


def attempt(report: JobReport, task_id: str, attempt_id: str) -> Value:
    return {"taskAttempt": _attempt(_found(report, task_id, attempt_id))}


def attempt_counters(report: JobReport, task_id: str, attempt_id: str) -> Value:
    found = _read(_found(report, task_id, attempt_id))
    return {"jobTaskAttemptCounters": {"id": attempt_id, "taskAttemptCounterGroup": found}}


def _task(task_id: str, mine: Sequence[AttemptRecord]) -> Value:
    best = next((each for each in mine if each.state == "succeeded"), None)
    last = best or mine[-1]
    started = min(each.started_at_s for each in mine)
    return {
        "id": task_id,
        "type": _KINDS[task_id.split("_")[3]],
        "state": STATES[last.state],
        "progress": 100.0 if best else 0.0,
        "startTime": _ms(started),
        "finishTime": _ms(last.finished_at_s),
        "elapsedTime": _ms(max(0.0, last.finished_at_s - started)),
        "successfulAttempt": best.attempt_id if best else "",
    }


def _attempt(each: AttemptRecord) -> Value:
    return {
        "id": each.attempt_id,
        "type": _KINDS[_kind(each)],
        "state": STATES[each.state],
        "progress": 100.0 if each.state == "succeeded" else 0.0,
        "startTime": _ms(each.started_at_s),
        "finishTime": _ms(each.finished_at_s),
        "elapsedTime": _ms(max(0.0, each.finished_at_s - each.started_at_s)),
        "nodeHttpAddress": each.host,
        "diagnostics": each.diagnosis,
        "status": each.locality,
    }


def _read(each: AttemptRecord) -> list[Value]:
    name = f"{_KINDS[_kind(each)]}_INPUT_RECORDS"
    return [{"counterGroupName": TASK_COUNTERS, "counter": [{"name": name, "value": each.records}]}]


def _by_task(report: JobReport) -> dict[str, list[AttemptRecord]]:
    found: dict[str, list[AttemptRecord]] = {}
    for each in sorted(report.attempts, key=lambda each: each.attempt_id):
        task_id = "task_" + "_".join(each.attempt_id.split("_")[1:5])
        found.setdefault(task_id, []).append(each)
    return found


def _attempts_of(report: JobReport, task_id: str) -> list[AttemptRecord]:
    mine = _by_task(report).get(task_id)
    if not mine:
        raise NotFound(f"task not found with id {task_id}")
    return mine


def _found(report: JobReport, task_id: str, attempt_id: str) -> AttemptRecord:
    for each in _attempts_of(report, task_id):
        if each.attempt_id == attempt_id:
            return each
    raise NotFound(f"Error getting info on task attempt id {attempt_id}")


def _kind(each: AttemptRecord) -> str:
    return each.attempt_id.split("_")[3]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
