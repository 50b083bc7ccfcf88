"""When an ended daemon is started again: after 1, 2, 4 … 60 s, and not at all after bug upon bug.

What a guard decides about one role, without a clock and without processes.
"""

from __future__ import annotations

import signal

EXIT_BUG = 70
"""What a daemon ends with that found a bug in itself."""
DELAY_S_MIN = 1.0
DELAY_S_MAX = 60.0
STEADY_S = 60.0
"""A daemon that has run for so long is well: its next end counts as the first again."""
BUGS_MAX = 5
BUGS_WITHIN_S = 600.0
_CRASHES = frozenset(
    -number
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
)


class Watch:
    """One role of a host, as its guard sees it."""

    def __init__(self) -> None:
        self.restarts = 0
        """So often was it started again since the guard began."""
        self.left_down = ""
        """Why it is not started any more; empty: it is."""
        self.due_s: float | None = 0.0
        """When to start it; None: it runs."""
        self._began_s = 0.0
        self._delay_s = DELAY_S_MIN
        self._bugs_at_s: list[float] = []

    def runs(self, now_s: float) -> None:
        """It is there."""
        if self.due_s is not None:
            self.due_s, self._began_s = None, now_s
        elif now_s - self._began_s >= STEADY_S:
            self._delay_s = DELAY_S_MIN

    def ended(self, status: int | None, now_s: float) -> str:
        """It is not there any more; return what is done about it, in words. `status` is as
        `subprocess` has it; None: nobody knows."""
        how = words_of(status)
        if is_bug(status):
            recent = [at_s for at_s in self._bugs_at_s if now_s - at_s < BUGS_WITHIN_S]
            self._bugs_at_s = [*recent, now_s]
            if len(self._bugs_at_s) >= BUGS_MAX:
                count, minutes = len(self._bugs_at_s), BUGS_WITHIN_S / 60
                self.left_down = f"{how}, {count} times within {minutes:.0f} minutes"
                self.due_s = now_s
                return f"{how}: it is left down, having done so {count} times"
        delay_s = self._delay_s
        self._delay_s = min(DELAY_S_MAX, 2 * delay_s)
        self.due_s = now_s + delay_s
        return f"{how}: it is started again in {delay_s:g} s"

    def is_due(self, now_s: float) -> bool:
        return not self.left_down and self.due_s is not None and now_s >= self.due_s

    def started(self, now_s: float) -> None:
        self.restarts += 1
        self.due_s, self._began_s = None, now_s


def is_bug(status: int | None) -> bool:
    """Did a daemon end by a fault of its own, which starting it again does not mend?"""
    return status == EXIT_BUG or status in _CRASHES


def words_of(status: int | None) -> str:
    if status is None:
        return "ended"
    if status == EXIT_BUG:
        return f"ended by a bug (status {EXIT_BUG})"
    if status < 0:
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"
    return f"ended with status {status}"
