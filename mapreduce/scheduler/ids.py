"""Names of the things that the scheduler talks about: jobs, tasks, attempts, workers.

Ids are cheap to hash and to compare, and print in the form that people know
from their logs (`attempt_…_m_000003_0`). Never holds state.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple, NewType

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
HostName = NewType("HostName", str)
RackName = NewType("RackName", str)


LOCAL_JOB = "job_local"
"""How the ids of jobs begin that run on one machine, without a cluster."""
_BARE = "[0-9A-Za-z_]{1,80}"
JOB_PATTERN = f"job_{_BARE}"
"""Ids come from outside too, and name directories: nothing else is one."""
TASK_PATTERN = f"task_({_BARE})_([mr])_([0-9]{{1,9}})"
ATTEMPT_PATTERN = f"attempt_({_BARE})_([mr])_([0-9]{{1,9}})_([0-9]{{1,9}})"
_TASK, _ATTEMPT = re.compile(TASK_PATTERN), re.compile(ATTEMPT_PATTERN)


LIFE_ATTEMPTS = 1000
"""Attempt numbers start at this many times the restarts of the master, so that none comes twice."""


class TaskKind(StrEnum):
    """Whether a task maps a split or reduces a partition."""

    MAP = "m"
    REDUCE = "r"


class TaskId(NamedTuple):
    """One map or reduce task of a job, by its number."""

    job_id: JobId
    kind: TaskKind
    task_index: int

    def __str__(self) -> str:
        return f"task_{_bare(self.job_id)}_{self.kind.value}_{self.task_index:06d}"


class AttemptId(NamedTuple):
    """One try at a task; a task's attempts are numbered in the order they were started."""

    task_id: TaskId
    number: int

    def __str__(self) -> str:
        task = self.task_id
        return f"attempt_{_bare(task.job_id)}_{task.kind.value}_{task.task_index:06d}_{self.number}"


def parse_attempt_id(text: str) -> AttemptId:
    """Return the id that prints as `text`; raise ValueError if nothing prints so."""
    found = _ATTEMPT.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:120]!r} is not an attempt id like attempt_1700000000000_0001_m_000000_0"
        )
    bare, kind, index, number = found.groups()
    return AttemptId(TaskId(JobId(f"job_{bare}"), TaskKind(kind), int(index)), int(number))


def parse_task_id(text: str) -> TaskId:
    """Return the id that prints as `text`; raise ValueError if nothing prints so."""
    found = _TASK.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:120]!r} is not a task id like task_1700000000000_0001_m_000000")
    bare, kind, index = found.groups()
    return TaskId(JobId(f"job_{bare}"), TaskKind(kind), int(index))


def job_order(job_id: str) -> tuple[str, int, str]:
    """Sort by this to have jobs in the order of their ids: numbers have no fixed width."""
    head, _, number = job_id.rpartition("_")
    return head, int(number) if number.isdecimal() else -1, job_id


def _bare(job_id: str) -> str:
    return job_id.removeprefix("job_")
