"""A job as a process of its own: the `mrstream` command, started, heard and ended from Python.

Takes the words of a command line; gives what the command says (job id, how far it is, why it
failed) and, when it is over, its report, wherever it ran. Whatever a job can do, the command does:
nothing here decides about tasks. Never prints.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.mapreduce import history
from mrstream.mapreduce.interrupts import TERMINATED
from mrstream.mapreduce.scheduler.ids import LOCAL_JOB, JobId

LINES_MAX = 20_000
"""Of what a command says so many lines are held, the last ones."""
KILL_S_MAX = 30.0
"""As long a command may clear up before it is ended the hard way."""
# Hadoop's own client, which runs jobs of `-engine hadoop`, says who speaks.
_HADOOPS = "mapreduce.Job: "
_RUNNING = re.compile(rf"INFO ({_HADOOPS})?Running job: (job_\w+)")
_PERCENTS = re.compile(rf"INFO (?:{_HADOOPS})? map ([0-9]{{1,3}})% reduce ([0-9]{{1,3}})%")
_FAILED = re.compile(r"(attempt_\w+) failed$")
_FAILED_THERE = re.compile(rf"{_HADOOPS}Task Id : (attempt_\w+), Status : FAILED")
_CODE_THERE = re.compile(r"subprocess failed with code ([0-9]{1,9})")
_CULPRIT = re.compile(r"due to: Task failed task(_\w+)")
_LOGGED = re.compile(
    r"\d{2,4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d(?:,\d{3})? (INFO|WARN|ERROR) (?:\w+\.\w+: )?(.*)"
)
_COUNTERS = re.compile(r"Counters: \d+\s*$")
_AMOUNT = re.compile(r"-?[0-9]{1,19}")
_ROW = re.compile(r"  ([a-z][a-z ]*):\s+(.*)")
_PR_SET_PDEATHSIG = 1
_PROGRAM = "--program"
"""What no command line begins with."""


class FailureText(msgspec.Struct, frozen=True):
    """The report of a failed attempt, as the command printed it, and what it says."""

    attempt_id: str
    text: str
    why: str = ""
    exit_code: int | None = None
    stderr: str = ""
    repeat: str = ""


class Launch:
    """One run of the command."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        results: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        ends_with_us: bool = False,
    ) -> None:
        """Start it; standard output goes to `results`. With `ends_with_us` it is asked to end when
        this process does, however that happens."""
        self.lines: deque[str] = deque(maxlen=LINES_MAX)
        self.job_id = ""
        self.is_hadoops = False
        """Whether Hadoop's own client runs the job, and says what there is to know of it."""
        self.percents = (0, 0)
        self._process = subprocess.Popen(
            command_words(words, ends_with_us=ends_with_us),
            stdin=subprocess.PIPE if ends_with_us else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if results is None else results,
            stderr=subprocess.PIPE,
            env=None if environment is None else dict(environment),
            process_group=0,  # an interrupt is for us to pass on, once
        )
        self._listener = threading.Thread(target=self._listen, name="mrstream job", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, all of its words included; says whether it came."""
        self._listener.join(timeout_s)
        if self._listener.is_alive():
            return False
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return True

    def report(self, cluster: str | None = None) -> dict[str, Any]:
        """Wait for the end, and give the report of the job, as `report_of` does; of one that Hadoop
        ran, what its client said of it."""
        self.wait()
        if not self.is_hadoops:
            return report_of(self.job_id, cluster) if self.job_id else {}
        lines = list(self.lines)
        failures = [{"message": report.text} for report in _reports(lines)]
        return {
            "job_id": self.job_id,
            "state": "failed" if self.status else "succeeded",
            "failures": failures,
            "counters": counters_in(lines),
        }

    def kill(self) -> None:
        """End the job: ask, as Ctrl-C does; the job and its temporary files go."""
        if self._process.poll() is None:
            self._process.terminate()
            if not self.wait(KILL_S_MAX):
                self._process.kill()
        self.wait()

    def _listen(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        for data in stream:
            line = data.decode("utf-8", "replace").rstrip("\n")
            self.lines.append(line)
            if not self.job_id and (found := _RUNNING.search(line)):
                self.job_id, self.is_hadoops = found.group(2), found.group(1) is not None
            elif found := _PERCENTS.search(line):
                self.percents = int(found.group(1)), int(found.group(2))
        stream.close()


def command_words(words: Sequence[str], *, ends_with_us: bool = False) -> list[str]:
    """Return the words that run the `mrstream` of this very Python."""
    python = [sys.executable, "-P", "-m"]
    if ends_with_us:
        return [*python, "mrstream.mapreduce.launch", *words]
    return [*python, "mrstream.streaming.cli", *words]


def program_words(words: Sequence[str]) -> list[str]:
    """Return the words that run any program, which is asked to end when the thread that starts it
    does."""
    return [
        sys.executable,
        "-P",
        "-m",
        "mrstream.mapreduce.launch",
        _PROGRAM,
        str(os.getpid()),
        *words,
    ]


def failure_in(lines: Sequence[str]) -> FailureText | None:
    """Find the report of why a job failed among the words of a command: of the task that it failed
    for, the last that can be repeated; else of any task.

    The first that was reported may have been tried again, and well.
    """
    task = next((found[1] for line in reversed(lines) if (found := _CULPRIT.search(line))), "")
    reports = list(_reports(lines))
    own = [report for report in reports if task and report.attempt_id.startswith(f"attempt{task}_")]
    chosen = own or reports
    chosen = [report for report in chosen if report.repeat] or chosen
    if not chosen:
        return None
    return chosen[-1 if own else 0]


def _reports(lines: Sequence[str]) -> Iterator[FailureText]:
    for start, line in enumerate(lines):
        found = _FAILED.match(line)
        if found is None:
            if there := _FAILED_THERE.search(line):
                yield _read_failure_there(there[1], lines[start + 1 :])
            continue
        end = start + 1
        while end < len(lines) and lines[end].startswith("  "):
            end += 1
        yield _read_failure(found.group(1), lines[start:end])


def _read_failure(attempt_id: str, block: Sequence[str]) -> FailureText:
    rows = {found[1]: found[2] for line in block if (found := _ROW.match(line))}
    said = [line.strip()[2:] for line in block if line.strip().startswith("| ")]
    code = next(
        (f for line in block if (f := re.search(r"^ +exit code ([0-9]{1,9}): ", line))), None
    )
    return FailureText(
        attempt_id,
        "\n".join(block),
        rows.get("why", ""),
        int(code.group(1)) if code else None,
        "\n".join(said),
        rows.get("repeat it", ""),
    )


def _read_failure_there(attempt_id: str, after: Sequence[str]) -> FailureText:
    """Read what Hadoop's client says of an attempt: all lines until it logs the next one."""
    block = list(itertools.takewhile(lambda line: line and not _LOGGED.match(line), after))
    code = next((found for line in block if (found := _CODE_THERE.search(line))), None)
    text = "\n".join([f"{attempt_id} failed", *(f"  {line}" for line in block)])
    return FailureText(
        attempt_id, text, block[0] if block else "", int(code.group(1)) if code else None
    )


def counters_in(lines: Sequence[str]) -> dict[str, dict[str, int]]:
    """Read the counters of a job where its client printed them; the last, for a local Hadoop prints
    those of tasks before."""
    found: dict[str, dict[str, int]] = {}
    starts = [number for number, line in enumerate(lines) if _COUNTERS.search(line)]
    for line in lines[starts[-1] + 1 :] if starts else ():
        name, equals, amount = line.strip("\t").rpartition("=")
        if line.startswith("\t\t") and equals and found and _AMOUNT.fullmatch(amount):
            found[next(reversed(found))][name] = int(amount)
        elif line.startswith("\t") and not line.startswith("\t\t"):
            found.setdefault(line[1:], {})
        else:
            break
    return found


def complaint_in(lines: Sequence[str]) -> str:
    """Return the words that say why a command did nothing, or ended early."""
    logged = [(entry[1], entry[2]) for line in lines if (entry := _LOGGED.match(line))]
    errors = [text for level, text in logged if level == "ERROR" and text != "Job not successful!"]
    due = [text for _, text in logged if " due to: " in text]
    plain = [line for line in lines if line and not _LOGGED.match(line)]
    if plain and plain[-1] == "Streaming Command Failed!":
        plain.pop()
    found = errors[:1] or due[-1:] or plain[-3:]
    return "\n".join(found).removeprefix("Error Launching job : ")


def report_of(job_id: str, cluster: str | None = None) -> dict[str, Any]:
    """Return the report of a job that is over: its state, counters and failures; empty if none is
    kept. `cluster` names the cluster that ran it, if it is not the current one."""
    if job_id.startswith(LOCAL_JOB):
        record = history.find(JobId(job_id))
        return record.read_report() if record is not None else {}
    from mrstream.cluster.config import config, state
    from mrstream.mapreduce.client.client import JobClient
    from mrstream.mapreduce.protocol import JobReport, ReportOfJob

    chosen = config.current(cluster)
    if chosen is None:
        return {}
    identity = state.read_identity(state.identity_file(chosen.name))
    try:
        with JobClient(config.Cluster(chosen, identity)) as client:
            report: JobReport = client.call_patiently(ReportOfJob(job_id))
    except ClusterError:
        return {}
    facts = dict(report.facts)
    return {
        "job_id": job_id,
        "name": report.job.name,
        "state": report.job.state,
        **facts,
        "failures": [{"message": text} for text in report.failures],
        "counters": report.counters,
    }


def main(argv: Sequence[str]) -> int:
    """Be the command, and end when standard input does; or become a program of `program_words`."""
    if argv[:1] == [_PROGRAM]:
        return _become(int(argv[1]), list(argv[2:]))
    if not _end_with_stdin():
        return TERMINATED
    # By its name: a root may import anything, and nothing imports a root.
    status: int = importlib.import_module("mrstream.streaming.cli").main(list(argv))
    return status


def _end_with_stdin() -> bool:
    """Have the kernel ask us to end when nobody holds the other end of standard input any more;
    says whether somebody does. Programs that we run find nothing there."""
    import fcntl
    import select

    watched = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    fcntl.fcntl(watched, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(watched, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | os.O_ASYNC)
    looking = select.poll()
    looking.register(watched, select.POLLIN)
    return not looking.poll(0)  # it may have gone before we could ask for the signal


def _become(parent: int, words: list[str]) -> int:
    """Become a program that is asked to end when that process, or its thread that started us,
    does."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it went before we could ask for the signal
        return TERMINATED
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
