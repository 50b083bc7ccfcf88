"""Work that waits for room on a full disk, instead of giving up.

This protocol has no word for a failure: a task that gives up is reported as finished (R10), and
what a full disk cut off would be taken for all that there is. A task that waits is only slow; no
master gives it to another while its worker lives (P4-23).
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import BinaryIO, TypeVar

T = TypeVar("T")
FIRST_WAIT_S = 1.0
WAIT_S_MAX = 30.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK_BYTES = 4096
_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The master, or the worker, ends; what it was doing is left."""


class Stop:
    """Whether it ends, for what it does in threads."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set

    def check(self) -> None:
        """Raise Stopped if it ends."""
        if self._event.is_set():
            raise Stopped

    def pause(self, wait_s: float) -> None:
        """Wait so long, or until it ends."""
        self._event.wait(wait_s)
        self.check()


def with_room(what: str, work: Callable[[], T], wait: Callable[[float], None]) -> T:
    """Do the work, again and again while the disk has no room for it; `wait` may raise to end it.

    The work leaves nothing behind when it fails.
    """
    wait_s = FIRST_WAIT_S
    while True:
        try:
            return work()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            _log.error("%s: %s; it is tried again in %.0f s", what, error.strerror, wait_s)
        wait(wait_s)
        wait_s = min(2 * wait_s, WAIT_S_MAX)


def check_room(file: BinaryIO) -> None:
    """Raise OSError if a file cannot grow: what wrote to it may have failed for that alone."""
    size = os.fstat(file.fileno()).st_size
    try:
        os.posix_fallocate(file.fileno(), size, _BLOCK_BYTES)
    except OSError as error:
        if error.errno in _FULL:
            raise
        return  # not every file system can tell; then what wrote to it has failed by itself
    os.ftruncate(file.fileno(), size)
