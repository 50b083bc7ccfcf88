"""A session as its client sees it: its lease, jeopardy, grace, safe or expired (Chubby §2.8).

    SAFE ── lease over ──▸ JEOPARDY ── contact within the grace ──▸ SAFE
                              └─────── grace over, or told so ────▸ EXPIRED
    SAFE ── nothing was done with it ──▸ ENDED

The client's lease ends before the cell's: it counts from when the KeepAlive was sent, and shorter
by how far a clock may be off. What is lost with a session is lost for good: EXPIRED is never left,
so the calls that failed are a suffix of all (CH-35). Never does any IO, never reads a clock.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.lock import protocol as p
from mrstream.lock.client.cache import Cache
from mrstream.lock.errors import SessionExpired, WrongEpoch


class Standing(enum.Enum):
    """Where a session is in its life."""

    SAFE = "safe"
    JEOPARDY = "jeopardy"
    EXPIRED = "expired"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Jeopardy:
    """The lease is over and nobody answers: locks may be lost or not; calls wait."""


@dataclass(frozen=True, slots=True)
class Safe:
    """All is as before; nothing was lost."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Locks, handles and ephemeral nodes are gone."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The cell ended a session that nobody did anything with; a new one can be opened."""


@dataclass(frozen=True, slots=True)
class FailedOver:
    """The cell has a new leader: events may have been missed, handles must be refreshed."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event that some handle asked for."""

    event: p.Happened


News = Jeopardy | Safe | Expired | Ended | FailedOver | Told


class Session:
    """One session from its opening to its end."""

    def __init__(self, granted: p.SessionGranted, sent_at_s: float) -> None:
        self.id = granted.session
        self.epoch = granted.epoch
        self.standing = Standing.SAFE
        self.cache = Cache()
        self.lease_s = granted.lease_s
        """The lease that the cell gives at present: a new leader waits for us for so long."""
        self.lease_end_s = sent_at_s + granted.lease_s * (1 - p.CLOCK_RATE)
        self._grace_s = granted.grace_s
        self._acked = 0

    @property
    def is_over(self) -> bool:
        return self.standing in (Standing.EXPIRED, Standing.ENDED)

    @property
    def grace_end_s(self) -> float:
        """When jeopardy ends, one way or the other."""
        return self.lease_end_s + self._grace_s

    # --- KeepAlives

    def keep_alive(self) -> p.KeepAlive:
        """What to send now; there is always one under way."""
        return p.KeepAlive(self.id, self.epoch, self._acked)

    def kept(self, asked: p.KeepAlive, kept: p.Kept, sent_at_s: float, now_s: float) -> list[News]:
        """Take in the answer to a KeepAlive."""
        if self.is_over or asked.epoch != self.epoch:
            return []  # a late word of an earlier leader
        if kept.ended:
            return self._over(Standing.ENDED, Ended())
        news: list[News] = []
        for event in kept.events:
            if event.number > self._acked:
                self._acked = event.number
                news += self._hear(event)
        if kept.lease_s > 0.0:
            lease_end_s = sent_at_s + kept.lease_s * (1 - p.CLOCK_RATE)
            self.lease_end_s = max(self.lease_end_s, lease_end_s)
        if kept.given_s > 0.0:
            self.lease_s = kept.given_s
        return news + self.pass_time(now_s)

    def _hear(self, event: p.Happened) -> list[News]:
        if event.kind == p.INVALIDATE:
            self.cache.invalidate(event.path)
            return []
        if event.kind == p.FAILED_OVER:
            self.cache.empty()
            return [FailedOver()]
        return [Told(event)]

    def refused(self, error: ClusterError) -> list[News]:
        """A call, or a KeepAlive, was refused: a new epoch is adopted, an end is an end. Anything
        else says nothing of the session."""
        if self.is_over:
            return []
        if isinstance(error, WrongEpoch):
            epoch = error.details.get("epoch")
            if isinstance(epoch, int) and epoch > self.epoch:
                self.epoch, self._acked = epoch, 0
        elif isinstance(error, SessionExpired):
            return self._over(Standing.EXPIRED, Expired())
        return []

    # --- time

    def pass_time(self, now_s: float) -> list[News]:
        """Compare the clock with lease and grace."""
        if self.is_over:
            return []
        if now_s < self.lease_end_s:
            if self.standing is Standing.SAFE:
                return []
            self.standing = Standing.SAFE
            self.cache.switch(True)
            return [Safe()]
        news: list[News] = []
        if self.standing is Standing.SAFE:
            self.standing = Standing.JEOPARDY
            self.cache.switch(False)
            news.append(Jeopardy())
        if now_s >= self.grace_end_s:
            news += self._over(Standing.EXPIRED, Expired())
        return news

    def end(self) -> None:
        """The application wants no more of it."""
        if not self.is_over:
            self._over(Standing.ENDED, Ended())

    def _over(self, standing: Standing, news: News) -> list[News]:
        self.standing = standing
        self.cache.switch(False)
        return [news]


def is_repeated(error: ClusterError) -> bool:
    """Is a call that failed so sent again, with the number that it had? Else it has failed."""
    return isinstance(error, Unavailable)
