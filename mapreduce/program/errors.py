"""How a task's program can fail it, by what happens next: another attempt, or the end of the job.

TaskFailed (a UserError; the tree is drawn in `mapreduce/job/errors.py`)
├── CommandFailed     the user's program did it (exit status, unread input)
├── TaskTimedOut      no progress for too long
└── TaskOutOfMemory   its processes hold more than they may
"""

from __future__ import annotations

from mrstream.cluster.errors import UserError


class TaskFailed(UserError):
    """An attempt failed; another attempt may still succeed."""


class CommandFailed(TaskFailed):
    """The user's program failed: `exit_code` in the details, as a shell would show it."""


class TaskTimedOut(TaskFailed):
    """The program neither read, wrote nor reported for longer than it may."""


class TaskOutOfMemory(TaskFailed):
    """The attempt's processes together hold more memory than the job allows."""
