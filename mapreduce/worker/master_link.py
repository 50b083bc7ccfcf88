"""A worker's connection to the job master that leads: made again and again, never missed for long.

Registers, beats, and passes on what the master pushes, unless it comes of a leader that is none any
more. The ends of attempts are said until the master acknowledges them; all else is said once, since
a new connection says all that matters. Where several masters may lead, one that does not answer is
left as soon as another says that it leads. Knows nothing of what attempts do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol

from mrstream.cluster.config.config import MAPREDUCE_MASTER
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.cluster.leader.channel import open_channel
from mrstream.cluster.leader.connection import LeaderMoved
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.leader.link import Link
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Channel
from mrstream.mapreduce.protocol import (
    PUSHED,
    AttemptEnded,
    Heartbeat,
    Order,
    Register,
    WorkerSettings,
)
from mrstream.mapreduce.worker.allegiance import Allegiance, StaleLeader

log = logging.getLogger(__name__)

CALL_S_MAX = 30.0
LOOK_S = 1.0
"""A leader that is silent for so long is no reason to leave it, but one to ask the others."""
ASK_S_MAX = 1.0


class Speaker(Protocol):
    """Who has something to say to the master."""

    def introduction(self, unacknowledged: list[str]) -> Register:
        """What a master that does not know us must hear; it has not acknowledged these ends."""

    def registered(self) -> None:
        """The master knows us: say what it must know of what runs."""

    def heartbeat(self) -> Heartbeat:
        """What is new since the last one."""

    def pushed(self, order: Order) -> None:
        """The master says something."""

    def master_away(self, seconds: float) -> None:
        """The master has been away for so long."""


class MasterLink(Link):
    """The connection, whenever there is one."""

    def __init__(self, daemon: Daemon, speaker: Speaker) -> None:
        super().__init__(log)
        self._finding = Finding(daemon.config.master_addresses(MAPREDUCE_MASTER))
        self.allegiance = Allegiance()
        self.unacknowledged: dict[str, AttemptEnded] = {}
        """Ends of attempts, by attempt id."""
        self._identity = daemon.identity
        self._speaker = speaker
        self._away_since_s = time.monotonic()

    @property
    def address(self) -> str:
        """Where the master is, as far as is known."""
        return self._finding.address

    def away(self, *, was_registered: bool) -> None:
        """Tell for how long."""
        if was_registered:
            self._away_since_s = time.monotonic()
        self._speaker.master_away(time.monotonic() - self._away_since_s)

    def call(self, request: Request) -> asyncio.Future[Any] | None:
        """Tell the master; lost if it is away."""
        if self.channel is None:
            return None
        answer = self.channel.call(request, CALL_S_MAX)
        answer.add_done_callback(_expected)
        return answer

    def end(self, ended: AttemptEnded) -> None:
        """Tell the master of an attempt's end, until it has acknowledged it."""
        self.unacknowledged[ended.attempt_id] = ended
        self._send_end(ended)

    def _send_end(self, ended: AttemptEnded) -> None:
        answer = self.call(ended)
        if answer is not None:
            answer.add_done_callback(lambda done: self._end_answered(ended, done))

    def _end_answered(self, ended: AttemptEnded, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and not isinstance(answer.exception(), Unavailable):
            self.unacknowledged.pop(ended.attempt_id, None)

    async def connect(self) -> Channel:
        if not self._may_move:
            return await Channel.connect(
                self.address, self._identity, role=MAPREDUCE_MASTER, on_push=self._pushed,
                push_types=PUSHED,
            )  # fmt: skip
        return await open_channel(
            self._finding, self._identity, role=MAPREDUCE_MASTER, on_push=self._pushed,
            push_types=PUSHED,
        )  # fmt: skip

    @property
    def _may_move(self) -> bool:
        return len(self._finding.members()) > 1

    async def _answer(self, channel: Channel, request: Request) -> Any:
        """Wait for an answer, as long as no other master says that it leads."""
        answer = channel.call(request, CALL_S_MAX)
        answer.add_done_callback(_expected)
        asked = self.address
        while self._may_move and not answer.done():
            await asyncio.wait([answer], timeout=LOOK_S)
            if not answer.done():
                await self._look_round(asked)
        return await answer

    async def _look_round(self, asked: str) -> None:
        for address in self._finding.others(asked):
            try:
                seen = await self._ask(address)
            except ClusterError as error:
                log.debug("%s says nothing of who leads: %s", address, error)
                continue
            if self._finding.heard(seen, asked):
                raise LeaderMoved(f"{asked} does not lead any more: {seen.leader} does")

    async def _ask(self, address: str) -> Standing:
        channel = await Channel.connect(
            address, self._identity, role=MAPREDUCE_MASTER, timeout_s=ASK_S_MAX
        )
        try:
            seen: Standing = await channel.call(WhoLeads(), ASK_S_MAX)
            return seen
        finally:
            channel.close()

    def _pushed(self, order: Order) -> None:
        """F2: obey the latest leader, and nobody before it."""
        try:
            self.allegiance.meet(order.epoch)
        except StaleLeader as error:
            log.warning("%s is refused: %s", type(order).__name__, error)
        else:
            self._speaker.pushed(order)

    async def beat(self, channel: Channel) -> bool:
        """Say what is new."""
        is_known: bool = await self._answer(channel, self._speaker.heartbeat())
        return is_known

    async def register(self, channel: Channel) -> None:
        """Say who we are, and all that the master has not acknowledged."""
        introduction = self._speaker.introduction(list(self.unacknowledged))
        settings: WorkerSettings = await self._answer(channel, introduction)
        self.allegiance.meet(settings.epoch)
        self.beat_s = settings.heartbeat_s
        self.is_registered = True
        log.info(
            "registered running=%d segments=%d",
            len(introduction.running),
            len(introduction.segments),
        )
        self._speaker.registered()
        for ended in list(self.unacknowledged.values()):
            self._send_end(ended)


def _expected(answer: asyncio.Future[Any]) -> None:
    """Take note of an answer that nobody waits for."""
    error = None if answer.cancelled() else answer.exception()
    if error is not None and not isinstance(error, Unavailable):
        log.warning("the master refused: %s", error)
