"""`mrstream job …` for jobs that ran on this machine; on a cluster the job master answers instead.

Reads what history keeps; changes nothing. The verbs and their words are those of `mapred job`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from mrstream.cluster.errors import UserError
from mrstream.cluster.terminal import show
from mrstream.cluster.units import duration
from mrstream.mapreduce import history
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.job.counters import dump_of, find_counter
from mrstream.mapreduce.job.errors import NoSuchJob
from mrstream.mapreduce.scheduler.ids import JobId

USAGE = """usage: mrstream job -list [all]                 jobs that ran on this machine
       mrstream job -status JOB                 how a job went
       mrstream job -counter JOB GROUP NAME     one counter
       mrstream job -logs JOB [ATTEMPT]         what its programs said
       mrstream job -history JOB                the whole report of a job
--json after -list, -status or -history: the same for programs
There is no current cluster; with one there are more verbs."""


def main(argv: Sequence[str]) -> int:
    """Do what the words ask for; give the exit status."""
    verbs: dict[str, Callable[[list[str]], int]] = {
        "-list": _list,
        "-status": _status,
        "-counter": _counter,
        "-logs": _logs,
        "-history": _history,
    }
    verb = argv[0] if argv else ""
    if verb in ("-help", "-h"):
        print(USAGE)
        return 0
    if verb not in verbs:
        if verb:
            print(f"mrstream job has no {verb!r}", file=sys.stderr)
        print(USAGE, file=sys.stderr)
        return 1
    words = [word for word in argv[1:] if word != "--json"]
    if len(words) + 1 < len(argv):
        return _json(verb, words)
    return verbs[verb](words)


def _json(verb: str, words: list[str]) -> int:
    """Print what is kept of a job, or of all, as JSON."""
    if verb == "-list":
        print(json.dumps([_document(record) for record in history.all_jobs()], indent=2))
    elif verb in ("-status", "-history"):
        print(json.dumps(_document(_record(words, f"{verb} JOB")), indent=2))
    else:
        raise UserError(f"--json is for -list, -status, -history; {verb} has no such form")
    return 0


def _document(record: JobRecord) -> dict[str, Any]:
    return {"job_id": record.job_id, "state": "running", **record.read_report()}


def _record(words: list[str], usage: str) -> JobRecord:
    if not words:
        raise UserError(f"usage: mrstream job {usage}")
    record = history.find(JobId(words[0]))
    if record is None:
        raise NoSuchJob(
            f"Could not find job {words[0]}: nothing is kept of it in {history.home()}/jobs"
        )
    return record


def _list(words: list[str]) -> int:
    jobs = list(history.all_jobs())
    print(f"Total jobs:{len(jobs)}")
    print(f"{'JobId':>32}{'State':>12}{'StartTime':>22}{'Took':>10}  Name")
    for record in jobs:
        report = record.read_report()
        state = report.get("state", "running").upper()
        took = duration(report["elapsed_s"]) if "elapsed_s" in report else ""
        print(
            f"{record.job_id:>32}{state:>12}{_started(record.job_id):>22}{took:>10}  "
            f"{report.get('name', '')}"
        )
    return 0


def _started(job_id: str) -> str:
    """Read the start of a local job off its id."""
    number = job_id.removeprefix("job_local").partition("_")[0]
    if not number.isdigit():
        return ""
    return datetime.fromtimestamp(int(number) / 1000).strftime("%Y-%m-%d %H:%M:%S")


def _status(words: list[str]) -> int:
    record = _record(words, "-status JOB")
    report = record.read_report()
    print(f"Job: {record.job_id}")
    print(f"Job state: {report.get('state', 'running').upper()}")
    for failure in report.get("failures", []):
        print(f"{failure['attempt_id']}: {failure['message']}")
    if "counters" in report:
        print(dump_of(report["counters"]))
    return 0


def _counter(words: list[str]) -> int:
    record = _record(words, "-counter JOB GROUP NAME")
    if len(words) != 3:
        raise UserError("usage: mrstream job -counter JOB GROUP NAME")
    group, name = words[1:]
    print(find_counter(record.read_report().get("counters", {}), group, name) or 0)
    return 0


def _logs(words: list[str]) -> int:
    record = _record(words, "-logs JOB [ATTEMPT]")
    directory = os.path.join(record.directory, "logs")
    if not os.path.isdir(directory):
        print(f"{record.job_id}: no logs are kept of a job that succeeded", file=sys.stderr)
        return 0
    for attempt_id in sorted(os.listdir(directory)):
        path = os.path.join(directory, attempt_id, "stderr")
        if words[1:] not in ([], [attempt_id]) or not os.path.exists(path):
            continue
        print(f"==> {attempt_id} <==", flush=True)
        with open(path, "rb") as log:
            while data := log.read(1 << 20):
                show(sys.stdout, data)
    return 0


def _history(words: list[str]) -> int:
    record = _record(words, "-history JOB")
    report = record.read_report()
    print(f"Job: {record.job_id}")
    print(f"Job name: {report.get('name', '')}")
    print(f"Launched at: {_started(record.job_id)} ({duration(report.get('elapsed_s', 0.0))})")
    print(f"Status: {report.get('state', 'running').upper()}")
    for name, task in report.get("tasks", {}).items():
        print(f"  {name}: {duration(task['seconds'])}, {task['records']} records")
    for failure in report.get("failures", []):
        print(f"  failed: {failure['attempt_id']}: {failure['message']}")
    return 0
