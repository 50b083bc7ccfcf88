"""How long attempts usually take to get how far, and how slow one attempt goes against that.

Progress is not linear in time (a reduce fetches, sorts and writes at different speeds), so
time left is not judged by progress alone: the usual moment of each step of progress is
learned from all attempts of a phase, and an attempt's pace is how many times longer it
takes from one report to the next. Never sees a worker or a clock.
"""

from __future__ import annotations

from mapreduce.scheduler.task import Attempt

STEPS = 20
# A pace is smoothed over this share of the usual time of an attempt.
SMOOTHING_SHARE = 0.1
# An attempt that makes no progress at all goes at this pace.
PACE_MAX = 20.0


class Pace:
    """The usual course of the attempts of one phase."""

    __slots__ = ("_counts", "_means_s", "count", "mean_s")

    def __init__(self) -> None:
        self.count = 0
        """Committed attempts."""
        self.mean_s = 0.0
        """The usual time of a committed attempt."""
        self._counts = [0] * (STEPS + 1)
        self._means_s = [0.0] * (STEPS + 1)

    def learn_end(self, elapsed_s: float) -> None:
        """An attempt committed after this time."""
        self.count += 1
        self.mean_s += (elapsed_s - self.mean_s) / self.count
        self._learn(STEPS, elapsed_s)

    def hear(self, attempt: Attempt, progress: float, began_at_s: float, now_s: float) -> None:
        """Learn from a report of progress, and bring the attempt's pace up to date."""
        step = int(progress * STEPS)
        if step > int(attempt.progress * STEPS) and now_s > began_at_s:
            self._learn(step, now_s - began_at_s)
        waited_s = now_s - max(attempt.heard_at_s, began_at_s)
        if self.count and waited_s > 0.0:
            usual_s = self.usual_s(progress) - self.usual_s(attempt.progress)
            pace = min(PACE_MAX, waited_s / usual_s) if usual_s > 0.0 else PACE_MAX
            weight = min(1.0, waited_s / (SMOOTHING_SHARE * self.mean_s + 1e-9))
            attempt.pace += weight * (pace - attempt.pace)
        attempt.progress = progress
        attempt.heard_at_s = now_s

    def time_left_s(self, attempt: Attempt, now_s: float) -> float:
        """Estimate how long an attempt will still take if it goes on as it did of late."""
        ahead_s = max(0.0, self.mean_s - self.usual_s(attempt.progress))
        silent_s = now_s - attempt.heard_at_s
        left_s = attempt.pace * ahead_s - silent_s
        # Beyond the moment at which it should have ended, silence speaks against it.
        return left_s if left_s >= 0.0 else -left_s

    def usual_s(self, progress: float) -> float:
        """When an attempt usually has got this far."""
        position = min(1.0, max(0.0, progress)) * STEPS
        step = int(position)
        if step >= STEPS:
            return self.mean_s
        low_s = self._at_step_s(step)
        return low_s + (position - step) * max(0.0, self._at_step_s(step + 1) - low_s)

    def _at_step_s(self, step: int) -> float:
        if step == 0:
            return 0.0
        if step == STEPS or not self._counts[step]:
            return self.mean_s * step / STEPS
        return self._means_s[step]

    def _learn(self, step: int, elapsed_s: float) -> None:
        if 0 < step <= STEPS:
            self._counts[step] += 1
            self._means_s[step] += (elapsed_s - self._means_s[step]) / self._counts[step]
