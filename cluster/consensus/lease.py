"""Time: how long a leader may answer, how long an elector votes for nobody, when a member stands.

An elector that hears a beat promises its leader `lease_s`, stretched by the most that its clock may
be fast; the leader counts from when it *sent* the beat, shortened by the most that its own clock
may be slow. So the leader's time is over before a majority may vote for another (C4), whatever the
message and its answer took. Only rates are trusted: clocks of two hosts are never compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mrstream.cluster.consensus.messages import NEVER_S


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things take; the same for all members of a group."""

    lease_s: float = 3.0
    beat_s: float = 0.5
    clock_rate_error_max: float = 0.01
    stand_spread: tuple[float, float] = (1.1, 1.6)
    """A follower stands so many leases after the last beat."""
    retry_spread: tuple[float, float] = (0.1, 0.4)
    """A candidate without a majority tries again after so many leases."""
    cold_spread_s: tuple[float, float] = (0.05, 0.3)
    """A member that starts, and has promised nobody anything, stands after so long."""
    transfer_s_max: float = 1.0
    learner_silence_s_max: float = 3.0
    """A group of one voter waits so long for its learner before it goes on alone."""

    @property
    def promise_s(self) -> float:
        """What an elector promises, on its own clock."""
        return self.lease_s * (1 + self.clock_rate_error_max)

    @property
    def usable_s(self) -> float:
        """What a leader may use of it, on its own clock."""
        return self.lease_s * (1 - self.clock_rate_error_max)


def lease_end_s(
    timing: Timing, heard_s: Mapping[str, float], voters: Sequence[str], released_s: float
) -> float:
    """Return until when a leader may answer, given the send time of the newest beat that each
    voter has answered; beats up to the last release count for nothing."""
    if len(voters) == 1 and voters[0] in heard_s:
        return math.inf
    sent = sorted((heard_s.get(voter, NEVER_S) for voter in voters), reverse=True)
    newest_of_majority = sent[len(voters) // 2] if voters else NEVER_S
    if newest_of_majority <= max(released_s, NEVER_S):
        return -math.inf
    return newest_of_majority + timing.usable_s
