"""Runs an executable once for each file of a task: the file on stdin, stdout to a file (P4-13).

The executable may be in any language: a path, a name on the PATH, a script without `#!`. It runs
in a process group of its own, which ends with the worker. Never tells a map from a reduce.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import BinaryIO

from mrstream.mapreduce.p4 import grouping
from mrstream.mapreduce.p4.brain.messages import NewSortJob
from mrstream.mapreduce.p4.brain.worker import Order
from mrstream.mapreduce.p4.output_file import whole_file

TRIES_MAX = 2
"""There is no message for a failure, and silence would stop a foreign master for ever (R10)."""
_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The worker ends; what it was doing is left."""


class ProgramFailed(Exception):
    """An executable ended badly, and may be tried again."""


class Execution:
    """What a worker runs, one task at a time, in a thread; `stop` may come from another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self, order: Order, outputs: Sequence[str]) -> None:
        """Do a task to its end, whatever that is; Stopped if the worker ends meanwhile."""
        if isinstance(order, NewSortJob):
            self._sort(order)
            return
        for source, target in zip(order.input_files, outputs, strict=True):
            self._run_on(order.executable, source, target)

    def stop(self) -> None:
        """End what runs, and let nothing begin."""
        with self._lock:
            self._is_stopped = True
            if self._child is not None and self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)

    def check(self) -> None:
        """Raise Stopped if the worker ends."""
        if self._is_stopped:
            raise Stopped

    def _sort(self, order: NewSortJob) -> None:
        for number in range(1, TRIES_MAX + 1):
            try:
                grouping.sort_files(order.input_files, order.output_file, self.check)
                return
            except OSError as error:
                _log.error("sorting into %s (try %d): %s", order.output_file, number, error)
        _leave_empty(order.output_file)

    def _run_on(self, executable: str, source: str, target: str) -> None:
        for number in range(1, TRIES_MAX + 1):
            try:
                self._try(executable, source, target, is_last=number == TRIES_MAX)
                return
            except (OSError, ProgramFailed) as error:
                _log.error("%s on %s (try %d): %s", executable, source, number, error)
        _leave_empty(target)

    def _try(self, executable: str, source: str, target: str, *, is_last: bool) -> None:
        with open(source, "rb") as stdin, whole_file(target) as stdout:
            status = self._wait(executable, stdin, stdout)
            self.check()
            if status and not is_last:
                raise ProgramFailed(_ended(status))
            if status:
                # What a program that fails has written is all that there will be.
                _log.error("%s on %s (the last try): %s", executable, source, _ended(status))

    def _wait(self, executable: str, stdin: BinaryIO, stdout: BinaryIO) -> int:
        with self._lock:
            self.check()
            child = self._child = _started(executable, stdin, stdout)
        try:
            return child.wait()
        finally:
            with self._lock:
                self._child = None


def _started(executable: str, stdin: BinaryIO, stdout: BinaryIO) -> subprocess.Popen[bytes]:
    path = executable
    if "/" not in path and os.path.isfile(path):
        path = f"./{path}"  # a file of the project, before a program of the PATH

    def start(words: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, stdin=stdin, stdout=stdout, process_group=0)

    try:
        return start([path])
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        return start(["/bin/sh", path])


def _ended(status: int) -> str:
    return f"it ended with status {status}" if status > 0 else f"signal {-status} ended it"


def _leave_empty(target: str) -> None:
    """Make what the next phase will look for: this protocol cannot say that it is not there."""
    try:
        with whole_file(target):
            return
    except OSError as error:
        _log.error("%s cannot be written: %s", target, error)
