"""How fast a leader's clock runs beside our own, by the beats that it sends.

Leases lean on rates that differ by 1 % at most (C4). A beat says when it was sent; what it took to
come is unknown, but never less than nothing: of many beats, the one that was quickest says most. So
the quickest of one minute is held against the quickest of a later one. Pure.
"""

from __future__ import annotations

SPAN_S = 60.0
"""A delay of 0.1 s more or less is 0.2 % of it."""


class ClockRate:
    """What is known of one leader at a time."""

    def __init__(self) -> None:
        self._of = ""
        """Whose clock; what is known of another's counts for nothing."""
        self._first: tuple[float, float] | None = None
        """The quickest beat of the span before: sent then by that clock, heard then by ours."""
        self._best: tuple[float, float] | None = None
        """That of this span so far."""
        self._began_at_s = 0.0
        """When this span began, by our clock."""
        self.faster = 0.0
        """By how much our clock is; 0.0: not known yet."""

    def heard(self, sender: str, sent_at_s: float, now_s: float) -> None:
        """A beat of our leader came."""
        if sender != self._of:
            self._of, self.faster = sender, 0.0
            self._first = self._best = None
        if self._best is None:
            self._best, self._began_at_s = (sent_at_s, now_s), now_s
        elif now_s - sent_at_s < self._best[1] - self._best[0]:
            self._best = (sent_at_s, now_s)
        if now_s - self._began_at_s >= SPAN_S:
            if self._first is not None and self._best[0] > self._first[0]:
                sent_s = self._best[0] - self._first[0]
                passed_s = self._best[1] - self._first[1]
                if sent_s >= SPAN_S / 2:
                    self.faster = passed_s / sent_s - 1.0
            self._first, self._best = self._best, None
