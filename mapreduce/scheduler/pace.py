"""How long attempts usually take to get how far, and how slow one attempt goes against that.

Progress is not linear in time (a reduce fetches, sorts and writes at different speeds), so
time left is not judged by progress alone: the usual moment of each step of progress is
learned from all attempts of a phase, and an attempt's pace is how many times longer it
takes from one report to the next. Never sees a worker or a clock.
"""

from __future__ import annotations

from mrstream.mapreduce.scheduler.task import Attempt

STEPS = 20
# A pace is smoothed over this share of the usual time of an attempt.
SMOOTHING_SHARE = 0.1
# The usual course is worked out anew after so many steps were seen.
STEPS_BETWEEN_UPDATES = 32
# An attempt that makes no progress at all goes at this pace.
PACE_MAX = 20.0


class Pace:
    """The usual course of the attempts of one phase."""

    __slots__ = ("_counts", "_learned", "_means_s", "_usual_s", "count", "mean_s")

    def __init__(self) -> None:
        self.count = 0
        """Committed attempts."""
        self.mean_s = 0.0
        """The usual time of a committed attempt."""
        self._counts = [0] * (STEPS + 1)
        self._means_s = [0.0] * (STEPS + 1)
        self._usual_s = [0.0] * (STEPS + 1)
        self._learned = 0

    def learn_end(self, elapsed_s: float) -> None:
        """An attempt committed after this time."""
        self.count += 1
        self.mean_s += (elapsed_s - self.mean_s) / self.count
        self._update()

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

    def time_left_s(self, attempt: Attempt, began_at_s: float, now_s: float) -> float:
        """Estimate how long an attempt will still take if it goes on as it did of late."""
        if attempt.progress >= 1.0:
            # Its program has read everything and works on: all that we know is how long for.
            return max(0.0, now_s - began_at_s - self.mean_s)
        ahead_s = max(0.0, self.mean_s - self.usual_s(attempt.progress))
        silent_s = now_s - attempt.heard_at_s
        left_s = attempt.pace * ahead_s - silent_s
        # Beyond the moment at which it should have ended, silence speaks against it.
        return left_s if left_s >= 0.0 else -left_s

    def usual_s(self, progress: float) -> float:
        """When an attempt usually has got this far."""
        position = min(1.0, max(0.0, progress)) * STEPS
        step = int(position)
        usual_s = self._usual_s
        if step >= STEPS:
            return usual_s[STEPS]
        return usual_s[step] + (position - step) * (usual_s[step + 1] - usual_s[step])

    def _learn(self, step: int, elapsed_s: float) -> None:
        if 0 < step < STEPS:
            self._counts[step] += 1
            self._means_s[step] += (elapsed_s - self._means_s[step]) / self._counts[step]
            self._learned += 1
            if self._learned % STEPS_BETWEEN_UPDATES == 0:
                self._update()

    def _update(self) -> None:
        """Work out the usual course: no step comes later than one after it.

        A straggler is often the only one to report a low step late; those that were quick
        passed it between two reports, and show by their later steps when they must have.
        """
        later_s = self.mean_s
        for step in range(STEPS, 0, -1):
            if step < STEPS and self._counts[step]:
                later_s = min(later_s, self._means_s[step])
            elif step < STEPS:
                later_s = min(later_s, self.mean_s * step / STEPS)
            self._usual_s[step] = later_s
