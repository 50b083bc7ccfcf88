"""The other life of an attempt: a thread that reports, watches the clock, and ends orphans.

Takes signs of life from whoever moves bytes; every half second it sends progress if there was any,
kills the attempt's programs if there was none for too long, and ends everything if the zygote is
gone. Never touches a record.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from mrstream.mapreduce.program.children import kill_descendants
from mrstream.mapreduce.program.errors import TaskFailed, TaskTimedOut
from mrstream.mapreduce.program.pump import RunningCommand, kill_adopted

REPORT_EVERY_S = 0.5


class AttemptWatch:
    """Signs of life of one attempt.

    `touch` is called for every blob, so it only counts; the thread looks at the clock.
    """

    def __init__(self, attempt_id: str, timeout_s: float, lifeline: int | None) -> None:
        """`timeout_s` 0 is for ever; `lifeline` becomes readable when nobody wants us any more."""
        self._attempt_id = attempt_id
        self._timeout_s = timeout_s
        self._lifeline = lifeline
        self._touches = 0
        self._guarded: list[RunningCommand] = []
        self._lock = threading.Lock()
        self._expired: TaskFailed | None = None
        self.check: Callable[[], TaskFailed | None] | None = None
        """Asked twice a second whether the attempt must end, and why."""
        self._report: Callable[[], None] = lambda: None
        self._on_expiry: Callable[[TaskFailed], NoReturn] | None = None
        self._stop, self._stop_held = os.pipe()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(
        self, report: Callable[[], None], on_expiry: Callable[[TaskFailed], NoReturn]
    ) -> None:
        """Begin: `report` is called when something moved; `on_expiry` if no program is to blame."""
        self._report = report
        self._on_expiry = on_expiry
        self._thread.start()

    def stop(self) -> None:
        """End the thread; no report is sent after this."""
        os.close(self._stop_held)
        self._thread.join()
        os.close(self._stop)

    def touch(self) -> None:
        self._touches += 1

    def guard(self, running: RunningCommand) -> None:
        """Kill this program when time is up."""
        with self._lock:
            self._guarded.append(running)

    def release(self, running: RunningCommand) -> None:
        """Forget a program that has ended; raises why if it was we who ended it."""
        with self._lock:
            self._guarded.remove(running)
        if self._expired is not None:
            raise self._expired

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        if self._lifeline is not None:
            poll.register(self._lifeline, select.POLLIN)
        seen, seen_at_s = 0, time.monotonic()
        interval_s = min(REPORT_EVERY_S, self._timeout_s / 4 or REPORT_EVERY_S)
        while True:
            for descriptor, _ in poll.poll(interval_s * 1000):
                if descriptor == self._lifeline:
                    _end_orphan()
                return
            if self._touches != seen:
                seen, seen_at_s = self._touches, time.monotonic()
                self._report()
            elif self._timeout_s and time.monotonic() - seen_at_s > self._timeout_s:
                self._expire(self._timed_out())
                return
            if self.check is not None and (error := self.check()) is not None:
                self._expire(error)
                return

    def _expire(self, error: TaskFailed) -> None:
        self._expired = error
        with self._lock:
            guarded = list(self._guarded)
        if not guarded:
            assert self._on_expiry is not None
            self._on_expiry(error)
        for running in guarded:
            running.kill()
        kill_adopted()

    def _timed_out(self) -> TaskTimedOut:
        return TaskTimedOut(
            f"AttemptID:{self._attempt_id} task timeout set: {self._timeout_s:g}s, "
            "taskTimedOut: true; the program neither read, wrote nor reported for that long "
            "(mapreduce.task.timeout sets the limit; a line on stderr counts as life)"
        )


def _end_orphan() -> NoReturn:
    with contextlib.suppress(Exception):
        kill_descendants(os.getpid())
    os._exit(1)
