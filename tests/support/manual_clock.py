"""A clock for tests: it moves only when told."""

from __future__ import annotations


class ManualClock:
    """Takes the place of the system's clock."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        return self._now_s

    def wall_s(self) -> float:
        return 1_000_000_000.0 + self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds >= 0.0, f"time does not go back ({seconds} s)"
        self._now_s += seconds
