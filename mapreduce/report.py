"""Words for people when a job ends: why it failed and what to do, or what it took.

Takes facts; gives text. Never prints, never reads a file.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

import msgspec

from mrstream.cluster.units import decimal_size, duration, with_commas
from mrstream.mapreduce.attempt.attempt_report import Failure
from mrstream.mapreduce.program.flow import InputRange

_SIGNAL_MEANS = {
    signal.SIGINT: "interrupted from the keyboard",
    signal.SIGILL: "an instruction that this processor does not know: built for another machine?",
    signal.SIGABRT: "it aborted itself: a failed assertion, or damaged memory",
    signal.SIGBUS: "a bad memory access: a mapped file that shrank, or a full /dev/shm",
    signal.SIGFPE: "an arithmetic error, such as a division by zero",
    signal.SIGKILL: "killed from outside, most often by the kernel because memory ran out "
    "(`dmesg` tells)",
    signal.SIGSEGV: "a crash: it touched memory that is not its own",
    signal.SIGPIPE: "it wrote into a pipe whose reader was gone, such as `… | head` in a script",
    signal.SIGALRM: "an alarm that it set for itself rang",
    signal.SIGTERM: "asked to end by someone",
    signal.SIGXCPU: "it used up its CPU time limit (ulimit -t)",
    signal.SIGXFSZ: "it used up its file size limit (ulimit -f)",
}
_CODE_MEANS = {
    1: "the program's own word for failure; an uncaught exception in Python, for one",
    2: "bad usage: a wrong option, or a syntax error in a shell script",
    126: "the program was found but could not be run: no execute permission, or not a program",
    127: "a program was not found: not shipped, not on PATH, or its interpreter (#!) is missing",
    255: "exit status -1, or out of range",
}


def exit_code_means(code: int) -> str:
    """Say what an exit code, as a shell shows it, tells."""
    if code in _CODE_MEANS:
        return _CODE_MEANS[code]
    if code > 128:
        try:
            ended_by = signal.Signals(code - 128)
        except ValueError:
            return "the program chose this number itself"
        means = _SIGNAL_MEANS.get(ended_by, "ended by a signal")
        return f"{ended_by.name}: {means}"
    return "the program chose this number itself"


def failure_text(attempt_id: str, failure: Failure, *, repeatable: bool, host: str = "") -> str:
    """Return the report of one failed attempt; `host` if it may have run elsewhere."""
    rows: list[tuple[str, str]] = [("why", failure.message)]
    if failure.exit_code is not None and failure.exit_code != 0:
        rows.append(("", f"exit code {failure.exit_code}: {exit_code_means(failure.exit_code)}"))
    if host:
        rows.append(("host", host))
    if failure.command:
        whose = f"{failure.stage} command" if failure.stage else "command"
        rows.append((whose, failure.command))
    if failure.stderr_tail:
        rows.append(("stderr", f"its last {len(failure.stderr_tail)} lines:"))
        rows += [("", f"| {line}") for line in failure.stderr_tail]
    elif failure.stage:
        rows.append(("stderr", "(it said nothing)"))
    if failure.input is not None:
        rows += _input_rows(failure.input)
    if failure.trace:
        rows.append(("trace", "this may be a bug of mrstream:"))
        rows += [("", f"| {line}") for line in failure.trace.rstrip().splitlines()]
    if failure.log_directory:
        rows.append(("logs", failure.log_directory))
    if repeatable:
        rows.append(("repeat it", f"mrstream -repeat {attempt_id}"))
        if _may_be_a_record(failure):
            rows.append(("find the record", f"mrstream -bisect {attempt_id}"))
    width = max(len(name) for name, _ in rows) + 1
    lines = [f"{(name + ':' if name else ''):<{width}} {text}" for name, text in rows]
    return "\n".join([f"{attempt_id} failed", *(f"  {line}" for line in lines)])


class FailuresTold:
    """What whoever waits for a job hears of its failed attempts: all of the first, and of the first
    that can be repeated; of each other one a line."""

    def __init__(self, output_filter: str) -> None:
        self._is_heard = output_filter.upper() in ("FAILED", "ALL")
        self._has_told = False
        self._has_told_repeatable = False

    def tell(
        self, attempt_id: str, failure: Failure, *, repeatable: bool, host: str = ""
    ) -> tuple[str, str] | None:
        """Return the line that Hadoop's client logs, and what follows it; None if the user does not
        want to hear it."""
        in_full = not self._has_told or (repeatable and not self._has_told_repeatable)
        self._has_told = True
        self._has_told_repeatable |= repeatable
        if not self._is_heard:
            return None
        if in_full:
            text = failure_text(attempt_id, failure, repeatable=repeatable, host=host)
        else:
            text = f"{attempt_id} failed{f' on {host}' if host else ''}: {failure.message}"
            text += f" (mrstream -repeat {attempt_id})" if repeatable else ""
        return f"Task Id : {attempt_id}, Status : FAILED", text


def _may_be_a_record(failure: Failure) -> bool:
    """Whether a program failed that ran and was given input: else no record can be why."""
    given = failure.input is None or failure.input.given_to > failure.input.start
    return bool(failure.stage) and failure.exit_code not in (126, 127) and given


def _input_rows(at: InputRange) -> list[tuple[str, str]]:
    return [
        ("input", f"{at.source}, bytes {at.start} to {at.end}"),
        ("", f"surely read up to byte {at.read_to}; was given up to byte {at.given_to}"),
    ]


class TaskTime(msgspec.Struct, frozen=True):
    """One finished task, for the closing report."""

    name: str
    seconds: float
    records: int
    size_bytes: int
    largest_key: bytes = b""
    largest_key_records: int = 0


class JobFacts(msgspec.Struct, frozen=True):
    """What a finished job took."""

    elapsed_s: float
    input_bytes: int
    shuffled_bytes: int
    output_bytes: int
    maps: Sequence[TaskTime]
    reduces: Sequence[TaskTime]


# A reduce is worth naming when it got this much more than its share.
SKEW_RATIO_MIN = 2.0
SKEW_RECORDS_MIN = 1000


def closing_text(facts: JobFacts) -> str:
    """Return the closing report of a job that succeeded."""
    rate = facts.input_bytes / facts.elapsed_s if facts.elapsed_s > 0 else 0.0
    sentences = [
        f"Took {duration(facts.elapsed_s)}: read {decimal_size(facts.input_bytes)} "
        f"({decimal_size(rate)}/s)"
        + (f", shuffled {decimal_size(facts.shuffled_bytes)}" if facts.reduces else "")
        + f", wrote {decimal_size(facts.output_bytes)}."
    ]
    tasks = [*facts.maps, *facts.reduces]
    if len(tasks) > 1:
        slowest = max(tasks, key=lambda task: task.seconds)
        sentences.append(
            f"Slowest task: {slowest.name}, {duration(slowest.seconds)} for "
            f"{with_commas(slowest.records)} records."
        )
    if (skew := _skew_text(facts.reduces)) is not None:
        sentences.append(skew)
    return " ".join(sentences)


def _skew_text(reduces: Sequence[TaskTime]) -> str | None:
    """Name the reduce that got more than its share, and the key to blame."""
    if len(reduces) < 2:
        return None
    share = sum(task.records for task in reduces) / len(reduces)
    worst = max(reduces, key=lambda task: task.records)
    if worst.records < SKEW_RECORDS_MIN or worst.records < SKEW_RATIO_MIN * share:
        return None
    text = (
        f"Most skewed: {worst.name} got {with_commas(worst.records)} records, "
        f"{worst.records / share:.1f} times its share"
    )
    if worst.largest_key_records * 2 > worst.records - share:
        key = worst.largest_key[:60].decode("utf-8", "replace")
        text += f"; key {key!r} alone has {with_commas(worst.largest_key_records)}"
    return text + "."
