"""A session whose leader hangs: its client finds the next one while that still waits for it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.leader import connection
from mrstream.cluster.leader.connection import LeaderConnection
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Identity, Peer, Server, new_event_loop
from mrstream.lock import protocol as p
from mrstream.lock.cell.sessions import HOLD_SHARE
from mrstream.lock.client import link as link_module
from mrstream.lock.client.link import Link
from mrstream.lock.errors import CellFailingOver, WrongEpoch

SECRET = b"k" * 32
LEASE_S = 4.0


class Member:
    """Grants sessions and holds KeepAlives; one that hangs says nothing at all."""

    def __init__(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.hangs = self.is_serving = False
        self.leader, self.epoch = "h1", 1
        self.kept: list[p.KeepAlive] = []
        self.ended: list[int] = []
        self.is_new = False
        self.holds_s: list[float] = []
        """For how long the first KeepAlives are held back; later ones are for good."""
        self._loop = loop
        identity = Identity("c", SECRET, "lock.master", host)
        handlers = {
            p.OpenSession: self._open,
            p.KeepAlive: self._keep,
            p.EndSession: self._end,
            WhoLeads: self._who_leads,
        }
        self._server = Server(handlers, identity)
        self.address = self._do(self._server.start("127.0.0.1:0"))

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self._do(self._server.close())

    def _open(self, request: p.OpenSession, peer: Peer) -> p.SessionGranted:
        return p.SessionGranted(1, self.epoch, LEASE_S, 45.0)

    def _keep(self, request: p.KeepAlive, peer: Peer) -> Any:
        self.kept.append(request)
        if request.epoch != self.epoch:
            raise WrongEpoch("another", epoch=self.epoch)
        if self.holds_s:
            return self._answer_after(self.holds_s.pop(0))
        return self._loop.create_future()

    async def _answer_after(self, held_s: float) -> p.Kept:
        await asyncio.sleep(held_s)
        return p.Kept(held_s + LEASE_S, given_s=LEASE_S)

    def _end(self, request: p.EndSession, peer: Peer) -> None:
        """A new leader lets calls in when its clients have acknowledged that it is one."""
        if request.epoch != self.epoch:
            raise WrongEpoch("another", epoch=self.epoch)
        if self.is_new and not any(kept.epoch == self.epoch for kept in self.kept):
            raise CellFailingOver("it waits for its clients")
        self.ended.append(request.session)

    def _who_leads(self, request: WhoLeads, peer: Peer) -> Any:
        if self.hangs:
            return self._loop.create_future()
        me, leader = MemberId(f"{self.host}/j"), MemberId(f"{self.leader}/j")
        return Standing(me, leader, self.epoch, 0, 0, is_serving=self.is_serving)


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Member]]:
    monkeypatch.setattr(connection, "ASK_S_MAX", 0.2)
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = {host: Member(host, loop) for host in ("h1", "h2")}
    made["h1"].is_serving = True
    yield made
    for member in made.values():
        member.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


class Recorded(LeaderConnection):
    """Notes how patiently it was asked to wait."""

    waits: ClassVar[list[tuple[float, float]]] = []
    limits: ClassVar[list[float]] = []

    def call(
        self,
        request: Request,
        timeout_s: float = 30.0,
        number: int | None = None,
        patience_s: float = 3.0,
        look_s: float = 3.0,
    ) -> Any:
        if isinstance(request, p.KeepAlive):
            self.waits.append((patience_s, look_s))
            self.limits.append(timeout_s)
        return super().call(request, timeout_s, number, patience_s, look_s)


def test_an_idle_session_looks_after_its_leader_before_its_keep_alive_is_overdue(
    members: dict[str, Member],
) -> None:
    """The next leader gives a session the time of a lease: whoever waited until a KeepAlive was
    overdue came too late where everything was slow, and lost its locks."""
    h1, h2 = members["h1"], members["h2"]
    seeds = {host: member.address for host, member in members.items()}
    Recorded.waits.clear()

    def connect(finding: Finding | None) -> LeaderConnection:
        return Recorded(finding or Finding(seeds, "h1"), Identity("c", SECRET, "client", "here"))

    link = Link(connect, user="u", host="here", program="test", on_news=lambda news: None)
    link.open()
    _until(lambda: bool(h1.kept))
    h1.hangs = True
    h2.leader, h2.epoch, h2.is_serving = "h2", 2, True

    _until(lambda: bool(h2.kept))
    link.close()
    assert _first_look_s(Recorded.waits[0]) <= 0.5 * LEASE_S < HOLD_SHARE * LEASE_S


def test_a_keep_alive_that_was_held_back_makes_the_next_no_more_patient(
    members: dict[str, Member],
) -> None:
    """Its answer counts from when it was sent: what it was held back is no part of a lease. Taken
    for one, a client looked for its next leader when that had given it up."""
    h1 = members["h1"]
    h1.holds_s = [0.4 * LEASE_S, 0.2 * LEASE_S]
    seeds = {host: member.address for host, member in members.items()}
    Recorded.waits.clear()

    def connect(finding: Finding | None) -> LeaderConnection:
        return Recorded(finding or Finding(seeds, "h1"), Identity("c", SECRET, "client", "here"))

    link = Link(connect, user="u", host="here", program="test", on_news=lambda news: None)
    link.open()
    _until(lambda: len(h1.kept) == 3)
    link.close()

    for wait in Recorded.waits:
        assert _first_look_s(wait) <= 0.5 * LEASE_S, Recorded.waits
    for limit_s in Recorded.limits:  # an answer that extends the lease in time is heard
        assert limit_s >= (1.0 + HOLD_SHARE) * LEASE_S, Recorded.limits


def _first_look_s(wait: tuple[float, float]) -> float:
    patience_s, look_s = wait
    return math.ceil(patience_s / look_s) * look_s


def test_a_session_is_ended_also_if_the_leader_has_changed_at_that_moment(
    members: dict[str, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next change of leaders waits for a client that is no more, for a whole lease."""
    monkeypatch.setattr(link_module, "END_S_MAX", 60.0)  # on a busy machine too
    h1, h2 = members["h1"], members["h2"]
    seeds = {host: member.address for host, member in members.items()}

    def connect(finding: Finding | None) -> LeaderConnection:
        return LeaderConnection(
            finding or Finding(seeds, "h1"), Identity("c", SECRET, "client", "here")
        )

    link = Link(connect, user="u", host="here", program="test", on_news=lambda news: None)
    link.open()
    _until(lambda: bool(h1.kept))
    h2.leader, h2.epoch, h2.is_serving, h2.is_new = "h2", 2, True, True
    h1.close()

    link.close()

    assert h2.ended == [1]


def test_a_closed_link_asks_for_no_more_keep_alives(members: dict[str, Member]) -> None:
    """The connection that close() ends was taken for one that was lost: the KeepAlive went out
    again, was held back, and close() waited for it."""
    h1 = members["h1"]
    finding = Finding({"h1": h1.address}, "h1")

    def connect(_: Finding | None) -> LeaderConnection:
        return LeaderConnection(finding, Identity("c", SECRET, "client", "here"))

    link = Link(connect, user="u", host="here", program="test", on_news=lambda news: None)
    link.open()
    _until(lambda: bool(h1.kept))
    link.close()

    assert not [thread for thread in link._threads if thread.is_alive()]
    assert len(h1.kept) == 1


def _until(true: Any) -> None:
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
