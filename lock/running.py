"""Running a command while a lock is held: for as long as it is, and not a moment longer.

The command has a process group of its own. When the session is lost it gets SIGTERM, and SIGKILL
five seconds later: somebody else may hold the lock from then on. Signals to us go to it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence

from mrstream.lock.client.session import Expired, Jeopardy, News, Safe

NOT_HAD = 75
"""Exit status: the lock was not had in time (EX_TEMPFAIL)."""
LOST = 76
"""Exit status: the session was lost, and the command ended."""
KILL_AFTER_S = 5.0
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Guarded:
    """One command under one lock. `heard` takes the session's news, from any thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._happened: queue.SimpleQueue[News | int | signal.Signals] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None

    def heard(self, news: News) -> None:
        """Take in what happened to the session."""
        if isinstance(news, Jeopardy | Safe | Expired):
            self._happened.put(news)

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run the command; return its exit status, or `LOST`."""
        try:
            process = subprocess.Popen(
                list(command), env={**os.environ, **environment}, process_group=0
            )
        except FileNotFoundError:
            print(f"{command[0]}: there is no such command", file=sys.stderr)
            return 127
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr)
            return 126
        self._process = process
        threading.Thread(target=self._await, args=(process,), daemon=True).start()
        before = {number: signal.signal(number, self._signalled) for number in _FORWARDED}
        try:
            with _foreground(process.pid):
                return self._guard(process)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _guard(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            happened = self._happened.get()
            if isinstance(happened, signal.Signals):
                self._send(process, happened)
            elif isinstance(happened, int):
                return happened if happened >= 0 else 128 - happened
            elif isinstance(happened, Jeopardy):
                _warn(f"{self._path}: no contact with the cell, the lock may be lost; waiting")
            elif isinstance(happened, Safe):
                _warn(f"{self._path}: contact is back; the lock was held all the time")
            else:
                return self._lose(process)

    def _lose(self, process: subprocess.Popen[bytes]) -> int:
        _warn(f"{self._path}: the session is over and the lock with it; the command is ended")
        self._send(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_AFTER_S)
        # What it has started may outlive it, and would go on without the lock.
        self._send(process, signal.SIGKILL)
        process.wait()
        return LOST

    def _send(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def _signalled(self, number: int, frame: object) -> None:
        self._happened.put(signal.Signals(number))

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        self._happened.put(process.wait())


@contextlib.contextmanager
def _foreground(group: int) -> Iterator[None]:
    """Where we have a terminal, let the command read from it; take it back at the end."""
    try:
        terminal = sys.stdin.fileno()
        ours = os.tcgetpgrp(terminal)
        is_ours = ours == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        is_ours = False
    if not is_ours:
        yield
        return
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(terminal, group)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(terminal, ours)
        signal.signal(signal.SIGTTOU, before)


def _warn(text: str) -> None:
    print(f"mrstream lock: {text}", file=sys.stderr, flush=True)
