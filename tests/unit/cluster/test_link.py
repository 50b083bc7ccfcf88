"""cluster.leader.link: a server that keeps in touch with a master over real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from mrstream.cluster.errors import ClusterError, DiskFailed, Unavailable
from mrstream.cluster.leader import link
from mrstream.cluster.leader.link import Link
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Channel, Identity, Peer, Server

SECRET = b"k" * 32
log = logging.getLogger("test.link")


class Hello(Request, frozen=True):
    """Who we are."""


class Beat(Request, frozen=True):
    """What is new; gives whether we are known."""

    reply: ClassVar[Any] = bool


class Master:
    """Knows who has said hello to it since it was last told to forget."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.is_away = False
        self.knows = False
        self.peer: Peer | None = None
        handlers: dict[type[Any], Any] = {Hello: self._hello, Beat: self._beat}
        self.server = Server(handlers, Identity("c", SECRET, "master", "h1"))
        self.address = ""

    def _hello(self, request: Hello, peer: Peer) -> None:
        self.heard.append("hello")
        if self.is_away:
            raise Unavailable("not yet")
        self.knows, self.peer = True, peer

    def _beat(self, request: Beat, peer: Peer) -> bool:
        self.heard.append("beat")
        return self.knows


class Chunky(Link):
    """A server with nothing but a link."""

    beat_s = 0.01

    def __init__(self, master: Master) -> None:
        super().__init__(log)
        self._master = master
        self.partings = 0
        self.aways: list[bool] = []
        self.fault: ClusterError | None = None

    @property
    def address(self) -> str:
        return self._master.address

    async def connect(self) -> Channel:
        return await Channel.connect(self.address, Identity("c", SECRET, "server", "h2"))

    async def register(self, channel: Channel) -> None:
        await channel.call(Hello(), 30.0)
        self.is_registered = True

    async def beat(self, channel: Channel) -> bool:
        if self.fault is not None:
            raise self.fault
        known: bool = await channel.call(Beat(), 30.0)
        return known

    def is_ours(self, error: ClusterError) -> bool:
        return isinstance(error, DiskFailed)

    def parted(self) -> None:
        self.partings += 1

    def away(self, *, was_registered: bool) -> None:
        self.aways.append(was_registered)


def play(story: Callable[[Master, Chunky], Awaitable[None]]) -> None:
    """Let a master and a server be in touch while a story is told."""

    async def run() -> None:
        master = Master()
        master.address = await master.server.start("127.0.0.1:0")
        server = Chunky(master)
        talking = asyncio.ensure_future(server.talk())
        try:
            await story(master, server)
        finally:
            talking.cancel()
            await asyncio.wait([talking])
            await master.server.close()
        if not talking.cancelled() and (error := talking.exception()) is not None:
            raise error

    asyncio.run(asyncio.wait_for(run(), 60))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "RECONNECT_S", 0.01)


def test_who_is_no_longer_known_registers_again_on_the_same_connection() -> None:
    async def story(master: Master, server: Chunky) -> None:
        await until(lambda: master.heard.count("beat") > 2)
        assert master.heard[:2] == ["hello", "beat"] and master.heard.count("hello") == 1

        master.knows = False
        await until(lambda: master.heard.count("hello") == 2)
        await until(lambda: master.knows)
        assert server.partings == 0

    play(story)


def test_a_lost_connection_is_made_again_and_the_server_hears_of_it() -> None:
    async def story(master: Master, server: Chunky) -> None:
        await until(lambda: server.is_registered)
        assert server.channel is not None
        server.channel.close()
        await until(lambda: server.partings == 1 and server.is_registered)
        assert server.aways == [True]
        assert master.heard.count("hello") == 2

    play(story)


def test_a_master_that_is_away_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked five times a second, perhaps for days."""

    async def story(master: Master, server: Chunky) -> None:
        master.is_away = True
        await until(lambda: len(server.aways) > 3)
        master.is_away = False
        await until(lambda: server.is_registered)

    with caplog.at_level(logging.INFO, "test.link"):
        play(story)

    assert [record.getMessage().partition(" ")[2] for record in caplog.records] == [
        "unavailable: not yet"
    ]


def test_a_fault_of_our_own_ends_the_talk() -> None:
    async def story(master: Master, server: Chunky) -> None:
        await until(lambda: server.is_registered)
        server.fault = DiskFailed("the disk is gone")
        await until(lambda: server.partings == 1)
        await asyncio.sleep(0)

    with pytest.raises(DiskFailed):
        play(story)
