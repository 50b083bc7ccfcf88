"""What a function says beside its records: counters and a status, as lines on standard error.

Counts are added up and told now and then, so that counting every record costs next to nothing. In
a program that is no task of a job they are added up all the same, for tests to look at.
"""

from __future__ import annotations

import atexit
import os
import sys

_amounts: dict[tuple[str, str], int] = {}
_PREFIX_VARIABLE = "stream_stderr_reporter_prefix"
_TASK_VARIABLE = "mapreduce_task_attempt_id"


def count(group: str, name: str, amount: int = 1) -> None:
    """Add to a counter of the job; names hold no comma."""
    key = group, name
    if key not in _amounts:
        _check(group, name)
    _amounts[key] = _amounts.get(key, 0) + amount


def status(text: str) -> None:
    """Say what the task is doing; `mrstream top` and `job -status` show it."""
    if is_task():
        _write(f"{_prefix()}status:{' '.join(str(text).split())}\n")


def is_task() -> bool:
    """Whether this process is a program of a job."""
    return _TASK_VARIABLE in os.environ


def tell() -> None:
    """Write what was counted since the last time."""
    if not _amounts or not is_task():
        return
    prefix = _prefix()
    lines = [f"{prefix}counter:{g},{n},{amount}\n" for (g, n), amount in _amounts.items()]
    _amounts.clear()
    _write("".join(lines))


def take() -> dict[str, dict[str, int]]:
    """Return what was counted, by group and name, and begin anew."""
    counters: dict[str, dict[str, int]] = {}
    for (group, name), amount in _amounts.items():
        counters.setdefault(group, {})[name] = amount
    _amounts.clear()
    return counters


def _check(group: str, name: str) -> None:
    for word in (group, name):
        if not isinstance(word, str) or not word or set(word) & set(",\r\n"):
            raise ValueError(f"{word!r} cannot name a counter: text without commas and newlines")


def _prefix() -> str:
    return os.environ.get(_PREFIX_VARIABLE) or "reporter:"


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


atexit.register(tell)
