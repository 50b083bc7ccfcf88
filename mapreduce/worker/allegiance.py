"""Which job master a worker obeys: the latest leader that it ever met (F2).

Every order carries the epoch of the leader that gave it. One of an epoch below the highest that was
met is void, whichever way it came and however late: its giver was deposed. So is a right to commit
that such a leader gave and that was not used yet: the attempt asks again, and the new leader knows
from its log whom the old one had let commit. Kept in memory: what a worker runs dies with it. Never
does any IO.
"""

from __future__ import annotations

from mrstream.cluster.errors import Unavailable


class StaleLeader(Unavailable):
    """A job master of an epoch that is over."""


class Allegiance:
    def __init__(self) -> None:
        self.epoch = 0
        """The highest that was met; 0: of a master that is alone, or nobody yet."""

    def meet(self, epoch: int) -> None:
        """A leader says something; raise `StaleLeader` if a later one was met."""
        if epoch < self.epoch:
            raise StaleLeader(
                f"a job master of epoch {epoch}; one of epoch {self.epoch} was met: its orders are "
                "void (where the group was founded anew, start this worker anew)"
            )
        self.epoch = epoch

    def holds(self, epoch: int) -> bool:
        """Is a right that was given in this epoch still one?"""
        return epoch == self.epoch
