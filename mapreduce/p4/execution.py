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
from functools import partial
from typing import BinaryIO

from mrstream.mapreduce.p4 import grouping
from mrstream.mapreduce.p4.brain.messages import NewSortJob
from mrstream.mapreduce.p4.brain.worker import Order
from mrstream.mapreduce.p4.output_file import whole_file
from mrstream.mapreduce.p4.room import Stop, check_room, with_room

TRIES_MAX = 2
"""There is no message for a failure, and silence would stop a foreign master for ever (R10)."""
_log = logging.getLogger(__name__)


class ProgramFailed(Exception):
    """An executable ended badly, and may be tried again."""


class Execution:
    """What a worker runs, one task at a time, in a thread; `stop` may come from another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stop = Stop()

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
            self._stop.set()
            if self._child is not None and self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)

    def _sort(self, order: NewSortJob) -> None:
        target = order.output_file
        work = partial(grouping.sort_files, order.input_files, target, self._stop.check)
        for number in range(1, TRIES_MAX + 1):
            try:
                with_room(f"sorting into {target}", work, self._stop.pause)
                return
            except OSError as error:
                _log.error("sorting into %s (try %d): %s", target, number, error)
        self._leave_empty(target)

    def _run_on(self, executable: str, source: str, target: str) -> None:
        for number in range(1, TRIES_MAX + 1):
            attempt = partial(self._try, executable, source, target, is_last=number == TRIES_MAX)
            try:
                with_room(f"{executable} on {source}", attempt, self._stop.pause)
                return
            except (OSError, ProgramFailed) as error:
                _log.error("%s on %s (try %d): %s", executable, source, number, error)
        self._leave_empty(target)

    def _try(self, executable: str, source: str, target: str, *, is_last: bool) -> None:
        with open(source, "rb") as stdin, whole_file(target) as stdout:
            status = self._wait(executable, stdin, stdout)
            self._stop.check()
            if status:
                check_room(stdout)
                if not is_last:
                    raise ProgramFailed(_ended(status))
                # What a program that fails has written is all that there will be.
                _log.error("%s on %s (the last try): %s", executable, source, _ended(status))

    def _wait(self, executable: str, stdin: BinaryIO, stdout: BinaryIO) -> int:
        with self._lock:
            self._stop.check()
            child = self._child = _started(executable, stdin, stdout)
        try:
            return child.wait()
        finally:
            with self._lock:
                self._child = None

    def _leave_empty(self, target: str) -> None:
        """Make what the next phase looks for: this protocol cannot say that it is not there."""
        try:
            with_room(target, lambda: _make_empty(target), self._stop.pause)
        except OSError as error:
            _log.error("%s cannot be written: %s", target, error)


def _make_empty(path: str) -> None:
    with whole_file(path):
        return


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
