"""`mrstream job -VERB …` for jobs of the current cluster: the verbs of `mapred job`.

Reads reports and asks for a few things to be done; its output has the shapes of `mapred job`, so
that scripts which read those go on working. Never changes a job but by asking its master.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mrstream.cluster.config.config import current_cluster
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.terminal import show
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.client.job_text import (
    attempts_text,
    events_text,
    history_text,
    list_text,
    status_text,
)
from mrstream.mapreduce.flow_rows import flow_of, folded, with_ended_steps
from mrstream.mapreduce.job.counters import find_counter
from mrstream.mapreduce.job.errors import NoSuchJob
from mrstream.mapreduce.protocol import (
    AttemptRecord,
    JobReport,
    KillJob,
    ListJobs,
    LogPiece,
    ReadLog,
    ReportOfJob,
    SetPriority,
    StopAttempt,
)
from mrstream.mapreduce.snapshot import EventRow, by_name

USAGE = """usage: mrstream job -list [all]                 jobs that run, or all there were
       mrstream job -status JOB                 how a job is doing, or how it went
       mrstream job -counter JOB GROUP NAME     one counter
       mrstream job -events JOB [FROM [COUNT]]  what happened, one line each
       mrstream job -history JOB                the whole report of a job
       mrstream job -logs JOB [TASK|ATTEMPT]    what its programs said, failed attempts first
       mrstream job -list-attempt-ids JOB map|reduce running|completed
       mrstream job -kill JOB                   end a job
       mrstream job -kill-task ATTEMPT          end an attempt; its task is tried again
       mrstream job -fail-task ATTEMPT          the same, counted as a failure of the task
       mrstream job -set-priority JOB VERY_HIGH|HIGH|NORMAL|LOW|VERY_LOW
--json after -list, -status, -events or -history: the same for programs"""

PRIORITIES = {"VERY_LOW": 1, "LOW": 2, "NORMAL": 3, "HIGH": 4, "VERY_HIGH": 5}


class BadJobCommand(UserError):
    """`mrstream job` was asked for something that it does not know, or with too few words."""


def main(argv: Sequence[str]) -> int:
    """Do what the words ask for; give the exit status."""
    if not argv or argv[0] in ("-help", "-h"):
        print(USAGE, file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 1
    verb = "-" + argv[0].lstrip("-")
    known: dict[str, tuple[Callable[[list[str]], int], int, int]] = {
        "-list": (_list, 0, 1),
        "-status": (_status, 1, 1),
        "-counter": (_counter, 3, 3),
        "-events": (_events, 1, 3),
        "-history": (_history, 1, 2),
        "-logs": (_logs, 1, 2),
        "-list-attempt-ids": (_attempt_ids, 3, 3),
        "-kill": (_kill, 1, 1),
        "-kill-task": (partial(_stop, fail=False), 1, 1),
        "-fail-task": (partial(_stop, fail=True), 1, 1),
        "-set-priority": (_set_priority, 2, 2),
    }
    if verb not in known:
        raise BadJobCommand(f"mrstream job has no {argv[0]!r}\n{USAGE}")
    do, words_min, words_max = known[verb]
    words = [word for word in argv[1:] if word != JSON]
    if len(words) + 1 < len(argv):
        if verb not in AS_JSON:
            raise BadJobCommand(f"{JSON} is for {', '.join(AS_JSON)}; {verb} has no such form")
        do = AS_JSON[verb]
    if not words_min <= len(words) <= words_max:
        raise BadJobCommand(f"mrstream job {verb}: wrong number of words\n{USAGE}")
    return do(words)


@contextlib.contextmanager
def _client() -> Iterator[JobClient]:
    cluster = current_cluster()
    if cluster is None:
        raise UserError("there is no current cluster: `mrstream cluster up` makes one")
    with JobClient(cluster) as client:
        yield client


def _report(job_id: str) -> JobReport:
    with _client() as client:
        report: JobReport = client.call(ReportOfJob(job_id))
        return report


# --- looking


def _list(words: list[str]) -> int:
    if words not in ([], ["all"]):
        raise BadJobCommand(f"mrstream job -list {' '.join(words)}: only `all` may follow")
    with _client() as client:
        rows = client.call(ListJobs(bool(words)))
        if not words and any(flow_of(row) for row in rows):
            rows = with_ended_steps(rows, client.call(ListJobs(True)))
    shown = rows if words else folded(rows)  # of all jobs, each
    print(list_text(shown, for_people=sys.stdout.isatty()))
    return 0


def _status(words: list[str]) -> int:
    print(status_text(_report(words[0])))
    return 0


def _counter(words: list[str]) -> int:
    job_id, group, name = words
    # As `mapred job` has it: a counter that nobody counted yet is 0.
    print(find_counter(_report(job_id).counters, group, name) or 0)
    return 0


def _events(words: list[str]) -> int:
    report = _report(words[0])
    print(events_text(report, _chosen_events(report, words)))
    return 0


def _chosen_events(report: JobReport, words: list[str]) -> Sequence[EventRow]:
    first = _number(words[1], "FROM") if len(words) > 1 else 1
    count = _number(words[2], "COUNT") if len(words) > 2 else len(report.events)
    return report.events[max(0, first - 1) :][:count]


def _history(words: list[str]) -> int:
    print(history_text(_report(words[-1])))
    return 0


def _attempt_ids(words: list[str]) -> int:
    job_id, kind, state = words
    if kind.lower() not in ("map", "reduce") or state.lower() not in ("running", "completed"):
        raise BadJobCommand(f"mrstream job -list-attempt-ids {kind} {state}\n{USAGE}")
    for attempt in attempts_text(_report(job_id), kind.lower(), state.lower()):
        print(attempt)
    return 0


def _logs(words: list[str]) -> int:
    report = _report(words[0])
    wanted = words[1] if len(words) > 1 else ""
    attempts = [each for each in report.attempts if _is_meant(each.attempt_id, wanted)]
    if wanted and not attempts:
        raise UserError(f"{words[0]} has no task or attempt {wanted}")
    attempts.sort(key=lambda each: (each.state != "failed", each.started_at_s, each.attempt_id))
    status = 0
    with _client() as client:
        for attempt in attempts:
            status = max(status, _print_log(client, attempt, report))
    return status


def _is_meant(attempt_id: str, wanted: str) -> bool:
    """Whether `wanted` names this attempt or its task: `m3`, `m_000003`, a whole id."""
    bare = wanted.removeprefix("attempt_").removeprefix("task_")
    mine = attempt_id.removeprefix("attempt_")
    if not wanted or mine == bare or mine.rpartition("_")[0] == bare:
        return True
    kind, index = mine.split("_")[-3:-1]
    return wanted.lower() in (f"{kind}_{index}", f"{kind}{index}", f"{kind}{int(index)}")


def _print_log(client: JobClient, attempt: AttemptRecord, report: JobReport) -> int:
    head = f"=== {attempt.attempt_id} on {attempt.host}: {attempt.state} {attempt.diagnosis}"
    print(head.rstrip(), flush=True)
    offset = 0
    try:
        while True:
            piece: LogPiece = client.call(ReadLog(attempt.attempt_id, "stderr", offset))
            if not piece.data:
                return 0
            show(sys.stdout, piece.data)
            offset += len(piece.data)
    except ClusterError as error:
        print(f"(its log cannot be read: {error})")
        if said := report.said.get(attempt.attempt_id):
            print("(what the master had heard of it until then)")
            print(said, end="" if said.endswith("\n") else "\n")
        for text in report.failures:  # the end of its log came with its failure
            if text.startswith(f"{attempt.attempt_id} "):
                print(text)
        return 1


# --- asking for something to be done


def _json_list(words: list[str]) -> int:
    with _client() as client:
        rows = client.call(ListJobs(bool(words)))
    return _print_json([by_name(row) for row in rows])


def _json_report(words: list[str]) -> int:
    return _print_json(by_name(_report(words[-1])))


def _json_events(words: list[str]) -> int:
    report = _report(words[0])
    return _print_json([by_name(event) for event in _chosen_events(report, words)])


def _print_json(value: object) -> int:
    print(json.dumps(value, indent=2))
    return 0


def _kill(words: list[str]) -> int:
    with _client() as client:
        if not client.call_patiently(KillJob(words[0], "killed by mrstream job -kill")):
            client.call(ReportOfJob(words[0]))  # refuses a job that never was
            print(f"{words[0]} has ended already")
            return 0
    print(f"Killed job {words[0]}")
    return 0


def _stop(words: list[str], *, fail: bool) -> int:
    attempt_id = words[0]
    with _client() as client:
        did = client.call_patiently(StopAttempt(attempt_id, fail))
    if not did:
        how = "fail" if fail else "kill"
        print(f"Could not {how} task {attempt_id}: it does not run", file=sys.stderr)
        return 1
    print(f"{'Failed' if fail else 'Killed'} task {attempt_id}")
    return 0


def _set_priority(words: list[str]) -> int:
    job_id, name = words[0], words[1].upper()
    priority = PRIORITIES.get(name) or (int(name) if name.isdecimal() else 0)
    if not 1 <= priority <= 5:
        raise BadJobCommand(f"priority {words[1]!r} is not one of {', '.join(PRIORITIES)}")
    with _client() as client:
        if not client.call_patiently(SetPriority(job_id, priority)):
            raise NoSuchJob(f"{job_id} does not run (any more)")
    print("Changed job priority.")
    return 0


def _number(word: str, what: str) -> int:
    if not word.isdecimal():
        raise BadJobCommand(f"{what} is {word!r}; it must be a whole number")
    return int(word)


JSON = "--json"
AS_JSON: dict[str, Callable[[list[str]], int]] = {
    "-list": _json_list,
    "-status": _json_report,
    "-events": _json_events,
    "-history": _json_report,
}
"""What these verbs show, for programs."""
