"""Processes that came from this one: found, adopted when they lose their parent, and ended.

Reads /proc. Never ends a process that came from somebody else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

SWEEP_S_MAX = 5.0
"""Processes that make others faster than we end them are given up after so long."""
_PR_SET_CHILD_SUBREAPER = 36


def children_of(pid: int) -> list[int]:
    """Return the direct children of a process, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as listing:
                found += [int(word) for word in listing.read().split()]
    return found


def kill_descendants(own_pid: int) -> None:
    """Kill all that came from this process; what loses its parent meanwhile comes back to us."""
    until = time.monotonic() + SWEEP_S_MAX
    while time.monotonic() < until:
        pids = children_of(own_pid)
        if not pids:
            return
        kill_and_wait(pids)


def kill_and_wait(children: list[int]) -> None:
    """Kill children of ours, and wait until they are gone."""
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def become_subreaper() -> bool:
    """Ask the system to give us the orphans among our descendants; says whether it will."""
    try:
        import ctypes  # here, since only the zygote and attempts need it

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False
