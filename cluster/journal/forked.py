"""A checkpoint written by a forked child: the state as it is at one moment, beside the service."""

from __future__ import annotations

import os
from collections.abc import Callable


def fork_to_write(write: Callable[[], None]) -> int:
    """Let a child of this process write; return its pid, to be given to `has_written`."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.nice(10)
            # Our parent's sockets must not stay open through us if it is killed now.
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            write()
            status = 0
        finally:
            # Neither the parent's threads nor its exit handlers are ours.
            os._exit(status)
    return child


def has_written(child: int) -> bool:
    """Wait for the child; say whether all is written."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0
