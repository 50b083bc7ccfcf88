"""Time as a seam: daemons take it from the kernel, tests and simulators set it by hand.

`now_s` counts since boot and goes on while the machine sleeps (CLOCK_BOOTTIME), so a lease that
ended during a suspend is over on waking; it never jumps with the wall clock. `wall_s` is for
people and file times only: no decision rests on it.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a shell asks the time of."""

    def now_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def wall_s(self) -> float:
        """Seconds since 1970 as the host believes; may jump either way."""


class SystemClock:
    """The host's clocks."""

    def now_s(self) -> float:
        return time.clock_gettime(_STEADY_CLOCK)

    def wall_s(self) -> float:
        return time.time()


# Systems without CLOCK_BOOTTIME do not count sleep; leases there are as good as CLOCK_MONOTONIC.
_STEADY_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
