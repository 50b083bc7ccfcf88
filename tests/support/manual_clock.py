"""A clock that moves only when told."""

from __future__ import annotations

EPOCH_S = 1_000_000_000.0
"""The wall clock where the other one says 0."""


class ManualClock:
    """Both clocks of a daemon, moved by a test."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        return self._now_s

    def wall_s(self) -> float:
        return EPOCH_S + self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        assert seconds >= 0.0, f"time does not go back ({seconds} s)"
        self._now_s += seconds
