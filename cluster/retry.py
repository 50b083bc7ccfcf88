"""The one retry policy of whoever asks somebody else: only for `Unavailable`, and for so long.

for attempt in policy.attempts():
    try:
        return do_it()
    except Unavailable as error:
        attempt.failed(error)     # waits, or raises the error when the time is over
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mrstream.cluster.errors import Unavailable

SILENCE_S = 3.0
"""Who waits for longer than this is told why."""
_log = logging.getLogger(__name__)  # where nobody set logging up, Python prints it to stderr


def _sleep(seconds: float) -> None:
    """By the clock that is here when it is called: in a simulator that is another one."""
    time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to go on trying, and how the waits between grow."""

    total_s: float = 60.0
    first_s: float = 0.05
    longest_s: float = 1.0
    wait: Callable[[float], bool | None] = _sleep
    """True: it was cut short, and there shall be no other try."""

    def attempts(self) -> Iterator[Attempt]:
        """Yield attempts without end; `Attempt.failed` ends them."""
        began_s = time.monotonic()
        wait_s = self.first_s
        number = 0
        has_said = False
        while True:
            number += 1
            attempt = Attempt(number, wait_s, began_s, self, has_said)
            yield attempt
            has_said = attempt.has_said
            wait_s = min(wait_s * 2, self.longest_s)


@dataclass(slots=True)
class Attempt:
    """One try; counts from 1."""

    number: int
    wait_s: float
    began_s: float
    policy: RetryPolicy
    has_said: bool = False

    def failed(self, error: Unavailable, said: str = "") -> None:
        """Wait before the next try; raise `error` if there is no time for one. `said` is a line
        for people, as `tell` has it."""
        # Spread out those who fail together, so that they do not come back together.
        wait_s = self.wait_s * random.uniform(0.5, 1.0)
        deadline_s = self.began_s + self.policy.total_s
        if time.monotonic() + wait_s >= deadline_s:
            raise error
        self.tell(said)
        if self.policy.wait(wait_s):
            raise error

    def tell(self, said: str) -> None:
        """Say a line to people, once, when they have waited for a while; this try may go on."""
        waited_s = time.monotonic() - self.began_s
        if said and not self.has_said and waited_s >= SILENCE_S:
            self.has_said = True
            left_s = max(0.0, self.policy.total_s - waited_s)
            _log.warning("%s; trying for another %.0f s", said, left_s)
