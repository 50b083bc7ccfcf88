"""A master that does not lead: it watches the chunkservers and answers questions (GFS §5.1.3).

What chunkservers tell goes into the brain, which takes notice and decides nothing (F4); questions
are answered from what is committed as far as it is known here, each with a bound on its age. The
shell of `dfs.master` hands over here while it follows.
"""

from __future__ import annotations

from typing import Any

from mrstream.cluster.clock import Clock
from mrstream.cluster.errors import Unavailable
from mrstream.cluster.leader.office import Office
from mrstream.cluster.wire.messages import pack
from mrstream.cluster.wire.network import Handler, Peer
from mrstream.dfs.metadata.events import Called, Refuse, Reply
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.protocol import AskShadow, ShadowAnswer


class Shadow:
    """The part of a master that works while it does not lead."""

    def __init__(self, brain: Metadata, office: Office, clock: Clock, lease_s: float) -> None:
        self._brain = brain
        self._office = office
        self._clock = clock
        self._lease_s = lease_s

    def or_watch(self, as_leader: Handler) -> Handler:
        """What chunkservers tell: to the leader, or to a shadow."""

        def heard(request: Any, peer: Peer) -> Any:
            if self._office.epoch:
                return as_leader(request, peer)
            event = Called(0, request)
            (said,) = self._brain.handle(event, self._clock.now_s(), self._clock.wall_s())
            if isinstance(said, Refuse):
                raise said.error
            assert isinstance(said, Reply), f"F4: a shadow only answers: {said}"
            return said.value

        return heard

    def answer(self, ask: AskShadow, peer: Peer) -> ShadowAnswer:
        """Answer a question with its age, or say why not."""
        if self._office.epoch:
            # What it has applied may not be committed yet; the way to ask a leader is another.
            raise self._office.not_leader()
        standing = self._office.standing()
        if standing.behind_s < 0.0:
            raise Unavailable("this master has not heard of a leader since it started")
        # A leader that lost its majority, and does not know it yet, called nothing more committed,
        # while a successor may have: for a lease at most.
        behind_s = standing.behind_s + self._lease_s
        value = self._brain.query(ask.query, self._clock.now_s())
        return ShadowAnswer(standing.committed, behind_s, pack(value))
