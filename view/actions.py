"""What a user may have done to a cluster, each with the question to put first.

Values that users type are checked here, before anyone is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mrstream.cluster.errors import UserError
from mrstream.view.source import Source

PRIORITIES = ("VERY_HIGH", "HIGH", "NORMAL", "LOW", "VERY_LOW")
REPLICATION_MAX = 100


@dataclass(frozen=True, slots=True)
class Action:
    """A question, and what is done if the answer is yes; that says in words how it ended."""

    question: str
    act: Callable[[Source], str]


def kill_job(job_id: str) -> Action:
    return Action(f"Kill {job_id}?", lambda source: source.kill_job(job_id))


def kill_attempt(attempt_id: str) -> Action:
    """End an attempt, as if it had never run."""
    return Action(
        f"Kill {attempt_id}? It runs again and does not count as failed.",
        lambda source: source.kill_attempt(attempt_id, fail=False),
    )


def fail_attempt(attempt_id: str) -> Action:
    """End an attempt as a failed one."""
    return Action(
        f"Fail {attempt_id}? It counts as a failed attempt.",
        lambda source: source.kill_attempt(attempt_id, fail=True),
    )


def set_priority(job_id: str, value: str) -> Action:
    """Let a job go before others, or after."""
    priority = value.upper()
    if priority not in PRIORITIES:
        raise UserError(f"{value!r} is no priority; one of {', '.join(PRIORITIES)}")
    return Action(
        f"Make the priority of {job_id} {priority}?",
        lambda source: source.set_priority(job_id, priority),
    )


def set_replication(path: str, value: str) -> Action:
    """Have another number of copies of a file."""
    if not value.isdecimal() or not 1 <= int(value) <= REPLICATION_MAX:
        raise UserError(f"{value!r} is no number of copies; 1 to {REPLICATION_MAX}")
    return Action(
        f"Keep {value} copies of {path}?",
        lambda source: source.set_replication(path, int(value)),
    )


def undelete(path: str) -> Action:
    """Bring a file back from the trash."""
    return Action(f"Bring back {path}?", lambda source: source.undelete(path))


def make_directory(parent: str, name: str) -> Action:
    path = inside(parent, name)
    return Action(f"Make the directory {path}?", lambda source: source.make_directory(path))


def rename(path: str, target: str) -> Action:
    """Rename a file or a tree; a name without a slash stays in its directory."""
    if "/" not in target:
        target = inside(path.rpartition("/")[0] or "/", target)
    if not target.startswith("/"):
        raise UserError(f"{target!r} is no path; it must begin with /")
    return Action(f"Rename {path} to {target}?", lambda source: source.rename(path, target))


def delete(path: str) -> Action:
    """Put a file or a tree into the trash."""
    return Action(
        f"Delete {path}? It goes to the trash, and can be brought back from there for a while.",
        lambda source: source.delete(path),
    )


def inside(directory: str, name: str) -> str:
    """Return the path of a new name in a directory."""
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise UserError(f"{name!r} is no name for a file; it needs letters, and none may be a /")
    return f"{directory.rstrip('/')}/{name}"
