"""Carries bytes to and from a user's program, and ends it with all that it started.

Takes an argv, a directory, an environment and an iterator of blobs for its standard input; gives
its standard output as blobs of up to 256 KiB, and at the end how it went. Three flows run side by
side: a thread feeds, a thread listens to standard error, and whoever iterates takes the output, so
memory stays bounded whatever the program does. Never looks into the bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from mrstream.mapreduce.program.children import children_of
from mrstream.mapreduce.program.flow import UNREAD_BYTES_MAX, Flow
from mrstream.mapreduce.program.spawn import spawn

# What is read at once stays in the processor's cache until it has been looked at.
OUTPUT_BYTES = 256 << 10
# The time-out counts complete writes as signs of life. Hadoop writes 128 KiB at a time; so do we.
WRITE_BYTES = 128 << 10
# The pipe must hold less than UNREAD_BYTES_MAX: then a program that leaves more than that unread
# always breaks the pipe under our hands, and one that leaves less never does harm.
STDIN_PIPE_BYTES = 128 << 10
_LINGER_S = 1.0

Blob = bytes | bytearray | memoryview


class StderrSink(Protocol):
    """Takes the standard error of a program, in order."""

    def feed(self, data: bytes) -> None:
        """Take some bytes; an exception ends the program."""

    def close(self) -> None:
        """Take the end."""


class Watch(Protocol):
    """Counts signs of life of an attempt, and kills its programs when none come for too long."""

    def touch(self) -> None:
        """Something was read, written or said."""

    def guard(self, running: RunningCommand) -> None:
        """From now on this program is killed when time is up."""

    def release(self, running: RunningCommand) -> None:
        """The program has ended; raises TaskTimedOut if it was the watch that ended it."""


class RunningCommand:
    """A user's program at work, in a process group of its own.

    Use: iterate `output()` to its end, then call `finish()`; or `abandon()` it at any time.
    """

    def __init__(
        self,
        argv: Sequence[str],
        directory: str,
        environment: Mapping[str, str],
        feed: Iterable[Blob],
        *,
        stderr: StderrSink,
        watch: Watch,
        drain: bool = False,
        join_delay_s: float = 0.0,
    ) -> None:
        """Start the program; with `drain`, input that it does not read is still taken in."""
        self.argv = list(argv)
        self._watch = watch
        self._stderr_sink = stderr
        self._drain = drain
        self._join_delay_s = join_delay_s
        self._failure: BaseException | None = None
        self._given_bytes = 0
        self._peek = -1
        self._final_flow: Flow | None = None
        self._left_bytes = 0
        self._is_broken = False
        self._status: int | None = None
        program = spawn(argv, directory, environment)
        self.pid = program.pid
        """The program's process id, which is also its process group's."""
        _running[self.pid] = None
        self._stdin = program.stdin
        self._stdout = program.stdout
        self._stderr = program.stderr
        _resize_pipe(self._stdin, STDIN_PIPE_BYTES)
        _resize_pipe(self._stdout, OUTPUT_BYTES)
        watch.guard(self)
        self._feeder = threading.Thread(target=self._feed, args=(feed,), daemon=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._feeder.start()
        self._listener.start()

    @property
    def flow(self) -> Flow:
        """How far the input got, as of now."""
        if self._final_flow is not None:
            return self._final_flow
        in_pipe = min(self._given_bytes, STDIN_PIPE_BYTES)  # if nobody can tell any more
        with contextlib.suppress(OSError):
            in_pipe = _bytes_in_pipe(self._peek if self._peek >= 0 else self._stdin)
        return Flow(
            self._given_bytes, self._given_bytes - in_pipe, self._left_bytes, self._is_broken
        )

    def output(self) -> Iterator[memoryview]:
        """Yield the program's standard output until it is closed by all who hold it.

        A blob is valid until the next one is asked for: they share one buffer.
        """
        stdout = self._stdout
        if self._join_delay_s > 0:
            yield from self._output_until_exit(stdout)
            return
        buffer = bytearray(OUTPUT_BYTES)
        view = memoryview(buffer)
        while count := os.readv(stdout, [buffer]):
            self._watch.touch()
            yield view[:count]

    def finish(self) -> int:
        """Wait for the end; return the exit code as a shell shows it (128 + n for signal n)."""
        status = self._wait()
        self._end_leftovers()
        self._watch.release(self)
        if self._failure is not None:
            raise self._failure
        return 128 - status if status < 0 else status

    def abandon(self) -> None:
        """Kill the program and forget what it says."""
        self.kill()
        self._wait()
        self._end_leftovers()
        with contextlib.suppress(Exception):  # why it is abandoned is known already
            self._watch.release(self)

    def kill(self) -> None:
        """Kill the program and its process group; `finish` still tells how it ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _wait(self) -> int:
        """Wait for the program's end, if nobody has; return the exit status, or minus the
        signal."""
        if self._status is None:
            _, status, usage = os.wait4(self.pid, 0)
            self._status = os.waitstatus_to_exitcode(status)
            _program_bytes.append(usage.ru_maxrss * 1024)
        return self._status

    # --- the three flows

    def _feed(self, feed: Iterable[Blob]) -> None:
        try:
            blobs = iter(feed)
            for blob in blobs:
                if not self._give(blob):
                    self._count_left(blobs)
                    break
                del blob  # before the next one is made: one huge record in memory is enough
            self._close_stdin()
        except BaseException as error:
            self._fail(error)

    def _give(self, blob: Blob) -> bool:
        """Write a blob; says whether the program still reads."""
        view = memoryview(blob)
        try:
            while view:
                written = os.write(self._stdin, view[:WRITE_BYTES])
                self._given_bytes += written
                self._watch.touch()
                view = view[written:]
        except BrokenPipeError:
            self._is_broken = True
            self._left_bytes = len(view)
            return False
        return True

    def _count_left(self, blobs: Iterator[Blob]) -> None:
        """Count what will never be read, as far as it matters."""
        for blob in blobs:
            self._left_bytes += len(blob)
            self._watch.touch()
            if self._left_bytes > UNREAD_BYTES_MAX and not self._drain:
                return

    def _close_stdin(self) -> None:
        """Give the end of the input; a reading end of ours can still tell what was not read."""
        with contextlib.suppress(OSError):
            path = f"/proc/self/fd/{self._stdin}"
            self._peek = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        stdin, self._stdin = self._stdin, -1
        os.close(stdin)

    def _listen(self) -> None:
        try:
            while data := os.read(self._stderr, 64 << 10):
                self._watch.touch()
                self._stderr_sink.feed(data)
            self._stderr_sink.close()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Keep the first failure of a flow, and end the program: nobody serves it any more."""
        if self._failure is None:
            self._failure = error
        self.kill()

    def _output_until_exit(self, stdout: int) -> Iterator[memoryview]:
        """As `output`, but once the program has ended wait for others no longer than we may."""
        ended = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(stdout, select.POLLIN)
            poll.register(ended, select.POLLIN)
            timeout_ms: float | None = None
            while ready := poll.poll(timeout_ms):
                if any(descriptor == stdout for descriptor, _ in ready):
                    data = os.read(stdout, OUTPUT_BYTES)
                    if not data:
                        return
                    self._watch.touch()
                    yield memoryview(data)
                elif timeout_ms is None:
                    poll.unregister(ended)
                    timeout_ms = self._join_delay_s * 1000
        finally:
            os.close(ended)

    # --- the end

    def _end_leftovers(self) -> None:
        """End what the program left behind in its group; then the threads come to their ends."""
        self.kill()
        for thread in (self._feeder, self._listener):
            thread.join(_LINGER_S)
            if thread.is_alive():
                # Someone left the group (setsid) and still holds a pipe of the program.
                kill_adopted()
                thread.join()
        self._final_flow = self.flow
        for pipe in (self._stdin, self._stdout, self._stderr, self._peek):
            if pipe >= 0:
                os.close(pipe)
        self._stdin = self._stdout = self._stderr = self._peek = -1
        _running.pop(self.pid, None)


_running: dict[int, None] = {}
_program_bytes: deque[int] = deque(maxlen=1000)


def take_largest_program_bytes() -> int:
    """Return the peak memory of the largest program that ended since this was asked last."""
    largest = max(_program_bytes, default=0)
    _program_bytes.clear()
    return largest


def kill_adopted() -> None:
    """Kill orphans that the system gave to this process, but no program that it runs itself."""
    for pid in children_of(os.getpid()):
        if pid in _running:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _resize_pipe(descriptor: int, size_bytes: int) -> None:
    with contextlib.suppress(OSError):  # the user's share of pipe memory may be used up
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, size_bytes)


def _bytes_in_pipe(descriptor: int) -> int:
    answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0")
    return int(struct.unpack("i", answer)[0])
