"""What can go wrong while a job runs, by what happens next.

UserError
├── LaunchFailed     the job cannot start: input, output or settings   → exit status 5, nothing ran
├── JobFailed        a task failed for good                            → the report, exit status 1
├── TaskFailed       an attempt failed (`program/errors.py`)           → another attempt, or the end
│     ├── CommandFailed     the user's program did it (exit status, unread input)
│     ├── TaskTimedOut      no progress for too long
│     ├── TaskOutOfMemory   its processes hold more than they may
│     └── TooManyCounters   the program made more counters than a job may have
├── NoSuchJob        the cluster has no job of that id
├── NoStateDirectory no place to keep jobs                             → exit status 1
└── NoSuchAttempt    nothing is kept under that attempt id
"""

from __future__ import annotations

from typing import ClassVar

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.program.errors import TaskFailed


class LaunchFailed(UserError):
    """The job cannot start as asked: input, output or a setting is wrong; nothing has run."""

    exit_status: ClassVar[int] = 5


class JobFailed(UserError):
    """A task failed for good, and the job with it."""


class TooManyCounters(TaskFailed):
    """A program made more counters, or groups of them, than a job may have."""


class NoSuchJob(UserError):
    """The cluster has no job of this id, or forgot it."""


class NoStateDirectory(UserError):
    """There is no place to keep jobs and their temporary files."""


class NoSuchAttempt(UserError):
    """Nothing is kept under this attempt id: it succeeded, it is too old, or it never was."""
