"""The one retry policy of the file system's clients: only for `Unavailable`, and for so long.

for attempt in policy.attempts():
    try:
        return do_it()
    except Unavailable as error:
        attempt.failed(error)     # waits, or raises the error when the time is over
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from mrstream.cluster.errors import Unavailable


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to go on trying, and how the waits between grow."""

    total_s: float = 30.0
    first_s: float = 0.05
    longest_s: float = 1.0

    def attempts(self) -> Iterator[Attempt]:
        """Yield attempts without end; `Attempt.failed` ends them."""
        deadline_s = time.monotonic() + self.total_s
        wait_s = self.first_s
        number = 0
        while True:
            number += 1
            yield Attempt(number, wait_s, deadline_s)
            wait_s = min(wait_s * 2, self.longest_s)


@dataclass(slots=True)
class Attempt:
    """One try; counts from 1."""

    number: int
    wait_s: float
    deadline_s: float

    def failed(self, error: Unavailable) -> None:
        """Wait before the next try; raise `error` if there is no time for one."""
        # Spread out those who fail together, so that they do not come back together.
        wait_s = self.wait_s * random.uniform(0.5, 1.0)
        if time.monotonic() + wait_s >= self.deadline_s:
            raise error
        time.sleep(wait_s)
