"""What a task's programs say on standard error: counters and status for us, the rest for people.

Takes the bytes; gives user counters, the last status, the last lines for a failure report, a log
file of bounded size, and a bounded echo for the console. A gigabyte of complaints costs a search
and no memory. Never reads a pipe.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from mrstream.mapreduce.attempt.attempt_report import Message, Noted, Said
from mrstream.mapreduce.job.counters import Counters
from mrstream.streaming.task.reporter import Counter, Reporter, Status, Text, Warning

LOG_BYTES_MAX = 16 << 20
TAIL_BYTES = 64 << 10
TAIL_LINES_MAX = 20
ECHO_BYTES_MAX = 64 << 10
WARNINGS_MAX = 100
OUTPUT_SAMPLE_BYTES = 64 << 10


class TaskLog:
    """Everything that the programs of one attempt say, in the order in which they say it."""

    def __init__(
        self,
        path: str,
        tell: Callable[[Message], None],
        *,
        prefix: bytes,
        user_counters_max: int,
        echo_bytes_max: int = ECHO_BYTES_MAX,
    ) -> None:
        """Log to `path`; it is made when there is a first byte to log."""
        self._echo_bytes_max = echo_bytes_max
        self.path = path
        self.status = ""
        self._tell = tell
        self._prefix = prefix
        self._counters = Counters(user_counters_max=user_counters_max)
        self._lock = threading.Lock()
        self._file = -1
        self._logged_bytes = 0
        self._dropped_bytes = 0
        self._echoed_bytes = 0
        self._warnings_count = 0
        self._tail = b""

    def ear(self) -> Ear:
        """Return the sink for one program; programs of one attempt share the log, not the line."""
        return Ear(self, Reporter(self._prefix))

    def user_counters(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return self._counters.as_dict()

    def tail(self) -> tuple[str, ...]:
        """Return the last lines that were said."""
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return tuple(line[:2000] for line in lines[-TAIL_LINES_MAX:])

    def close(self) -> None:
        """Close the log file; the end of what did not fit goes to its end."""
        if self._file < 0:
            return
        if self._dropped_bytes:
            left_out = max(0, self._dropped_bytes - len(self._tail))
            note = f"\n[… {left_out} bytes are left out here …]\n".encode()
            os.write(self._file, note + self._tail[-self._dropped_bytes :])
        os.close(self._file)
        self._file = -1

    def take(self, event: Counter | Status | Warning | Text) -> None:
        """Take one event; TooManyCounters if it is a counter too many."""
        with self._lock:
            match event:
                case Counter(group=group, name=name, amount=amount):
                    self._counters.add_user(group, name, amount)
                case Status(text=text):
                    self.status = text
                case Warning(text=text):
                    self._warn(text)
                case Text(data=data):
                    self._log(data)

    def _warn(self, text: str) -> None:
        self._warnings_count += 1
        if self._warnings_count <= WARNINGS_MAX:
            self._tell(Noted("WARN", text[:2000]))
        if self._warnings_count == WARNINGS_MAX:
            self._tell(Noted("WARN", "more such lines are not shown"))

    def _log(self, data: bytes) -> None:
        if self._file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o600)
        room = LOG_BYTES_MAX - self._logged_bytes
        kept = data[: max(0, room)]
        if kept:
            self._logged_bytes += os.write(self._file, kept)
        self._dropped_bytes += len(data) - len(kept)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self._echo(data)

    def _echo(self, data: bytes) -> None:
        room = self._echo_bytes_max - self._echoed_bytes
        if room <= 0:
            return
        self._echoed_bytes += len(data)
        self._tell(Said(data[:room]))
        if self._echoed_bytes >= self._echo_bytes_max:
            self._tell(Said(f"\n[more of this program's stderr is in {self.path}]\n".encode()))


class OutputSample:
    """The first bytes of what a program writes on standard output, for people who watch it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._left_bytes = OUTPUT_SAMPLE_BYTES

    def __call__(self, data: memoryview) -> None:
        """Take the next bytes; once the sample is full this costs nothing."""
        if self._left_bytes > 0:
            kept = data[: self._left_bytes]
            self._left_bytes -= len(kept)
            with open(self._path, "ab") as file:
                file.write(kept)


class Ear:
    """The sink for the standard error of one program."""

    def __init__(self, log: TaskLog, reporter: Reporter) -> None:
        self._log = log
        self._reporter = reporter

    def feed(self, data: bytes) -> None:
        for event in self._reporter.feed(data):
            self._log.take(event)

    def close(self) -> None:
        """Take the end: the last line may have none."""
        for event in self._reporter.close():
            self._log.take(event)
