"""What members say over the wire, and the links that carry it.

Each member connects to each other one and asks to be told (`Subscribe`): the brain's words then
come as pushes over that connection, one way, so that no answer is owed for any of them. A host
speaks for its own journal only: the name that it gives must be on the host that its handshake has
proven.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

from mrstream.cluster.consensus.members import MemberId, Members, host_of
from mrstream.cluster.consensus.messages import (
    AppendLog,
    Position,
    PreVote,
    TransferNow,
    Vote,
    Voted,
    Word,
)
from mrstream.cluster.errors import ClusterError, NotTrusted
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Channel, Identity, Peer

log = logging.getLogger(__name__)

RECONNECT_S = 0.2
CONNECT_S_MAX = 2.0
WORDS = (PreVote, Vote, Voted, AppendLog, Position, TransferNow)


class Subscribe(Request, frozen=True):
    """Tell me what you have to say to this member, which I am."""

    reply: ClassVar[Any] = MemberId
    diagnosed: ClassVar[bool] = False
    member: MemberId


class JoinGroup(Request, frozen=True):
    """My disk is new; let me listen under this name."""

    diagnosed: ClassVar[bool] = False
    member: MemberId


class BeginCheckpoint(Request, frozen=True):
    """Here comes the state after `sequence`, a record of that epoch."""

    member: MemberId
    sequence: int
    epoch: int
    members: tuple[tuple[int, Members], ...]


class CheckpointPiece(Request, frozen=True):
    """The next piece of it."""

    diagnosed: ClassVar[bool] = False
    piece: bytes


class EndCheckpoint(Request, frozen=True):
    """That was all: put it in place."""


class Links:
    """The connections of one member to all others."""

    def __init__(
        self,
        identity: Identity,
        addresses: Mapping[str, str],
        on_word: Callable[[MemberId, Word], None],
    ) -> None:
        self._identity = identity
        self._addresses = {h: a for h, a in addresses.items() if h != identity.host}
        self._on_word = on_word
        self._subscribers: dict[MemberId, Peer] = {}
        self.me = MemberId("")

    def start(self, me: MemberId, begin: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Connect to everybody, for ever; whoever `begin`s it minds how it ends."""
        self.me = me
        for host, address in self._addresses.items():
            begin(self._listen(host, address))

    def subscribed(self, request: Subscribe, peer: Peer) -> MemberId:
        """Another member wants to be told."""
        if host_of(request.member) != peer.host:
            raise NotTrusted(f"{peer.host} cannot listen for {request.member[:80]!r}")
        self._subscribers[request.member] = peer
        return self.me

    def send(self, to: MemberId, word: Word) -> None:
        """Say a word to a member, if it listens."""
        peer = self._subscribers.get(to)
        if peer is not None:
            peer.push(word)

    def is_linked(self, member: MemberId) -> bool:
        peer = self._subscribers.get(member)
        return peer is not None and peer.connected

    async def connect(self, host: str) -> Channel:
        return await Channel.connect(self._addresses[host], self._identity, timeout_s=CONNECT_S_MAX)

    async def ask_all(self, request: Request) -> None:
        """Ask everybody, whoever answers or not."""
        for host in self._addresses:
            try:
                channel = await self.connect(host)
                try:
                    await channel.call(request, CONNECT_S_MAX)
                finally:
                    channel.close()
            except ClusterError as error:
                log.debug("ask host=%s error=%s", host, error)

    async def _listen(self, host: str, address: str) -> None:
        """Hear what one host has to say; again whenever the connection ends."""
        while True:
            try:
                await self._listen_once(host, address)
            except ClusterError as error:
                log.debug("link host=%s error=%s", host, error)
            await asyncio.sleep(RECONNECT_S)

    async def _listen_once(self, host: str, address: str) -> None:
        speaker: list[MemberId] = []

        def heard(word: Word) -> None:
            for name in speaker:
                self._on_word(name, word)

        channel = await Channel.connect(
            address, self._identity, on_push=heard, push_types=WORDS, timeout_s=CONNECT_S_MAX
        )
        try:
            name = await channel.call(Subscribe(self.me), CONNECT_S_MAX)
            if host_of(name) == host == channel.peer.host:
                speaker.append(name)
                await channel.closed
            else:
                log.warning("%s answers as %s", host, name[:80])
        finally:
            channel.close()
