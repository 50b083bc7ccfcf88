"""A client of a group whose leader is cut off: connections that are open, and dead."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.standing import NotLeader, Standing, WhoLeads
from mrstream.cluster.errors import CallTimedOut, HostUnreachable
from mrstream.cluster.leader import connection
from mrstream.cluster.leader.connection import LeaderConnection
from mrstream.cluster.leader.finding import Finding, Superseded
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Connection, Identity, Peer, Server, new_event_loop

SECRET = b"k" * 32


class Ask(Request, frozen=True):
    reply: ClassVar[Any] = str
    mutates: ClassVar[bool] = True


class Member:
    """Answers as it is told; a silent one is what a host that was cut off looks like."""

    def __init__(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.is_silent = self.is_serving = False
        self.leader, self.epoch = "", 1
        self.refusals_left = 0
        self.thinks_s = 0.0
        """Before it says who leads."""
        self.asked: list[tuple[int, int]] = []
        self._loop = loop
        self._identity = Identity("c", SECRET, "dfs.master", host)
        self._server = Server(
            {Ask: self._ask, WhoLeads: self._who_leads},
            self._identity,
            epoch=lambda: self.epoch if self.is_serving else 0,
        )
        self.address = self._do(self._server.start("127.0.0.1:0"))

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self._do(self._server.close())

    def _ask(self, request: Ask, peer: Peer) -> Any:
        self.asked.append(peer.request_id)
        if self.is_silent:
            return self._loop.create_future()
        if self.is_serving and not self.refusals_left:
            return self.host
        self.refusals_left = max(0, self.refusals_left - 1)
        raise NotLeader(f"{self.host} does not lead", leader=self.leader, epoch=self.epoch)

    def _who_leads(self, request: WhoLeads, peer: Peer) -> Any:
        if self.is_silent:
            return self._loop.create_future()
        return self._think()

    async def _think(self) -> Standing:
        await asyncio.sleep(self.thinks_s)
        me, leader = MemberId(f"{self.host}/j"), MemberId(f"{self.leader}/j" if self.leader else "")
        return Standing(me, leader, self.epoch, 0, 0, is_serving=self.is_serving)


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Member]]:
    monkeypatch.setattr(connection, "ASK_S_MAX", 1.0)
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = {host: Member(host, loop) for host in ("h1", "h2", "h3")}
    yield made
    for member in made.values():
        member.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def client_of(members: dict[str, Member], first: str) -> LeaderConnection:
    finding = Finding({host: member.address for host, member in members.items()}, first)
    return LeaderConnection(finding, Identity("c", SECRET, "client", "here"))


def call(client: LeaderConnection, timeout_s: float = 60.0, number: int | None = None) -> str:
    return str(client.call(Ask(), timeout_s, number, patience_s=0.1, look_s=0.1))


def test_a_leader_that_was_asked_a_moment_too_early_is_found_again(
    members: dict[str, Member],
) -> None:
    """h1 is cut off; h3 is asked when it was elected and did not serve yet, so the client turns to
    the next: h1, over a connection that is open and dead. What h3 says of itself then counts."""
    members["h1"].is_silent = True
    members["h2"].leader, members["h2"].epoch = "h3", 6
    members["h3"].leader, members["h3"].epoch, members["h3"].is_serving = "h3", 6, True
    with client_of(members, "h2") as client:
        assert client.finding.refused(members["h2"].address, NotLeader("", leader="h3", epoch=6))
        assert client.finding.refused(members["h3"].address, NotLeader("", leader="", epoch=6))
        assert client.finding.host == "h1"

        assert call(client) == "h3"
        assert members["h1"].asked, "it was asked first, and nobody else knew better"


def test_a_question_to_one_member_has_a_number_that_no_call_has(
    members: dict[str, Member],
) -> None:
    """The member took it for a repeat of the call before, and gave that one's answer again."""
    h1 = members["h1"]
    h1.is_serving = True
    with client_of(members, "h1") as client:
        call(client)
        client.ask_member(h1.address, Ask(), 60.0)

    assert len(h1.asked) == 2 and len(set(h1.asked)) == 2


def test_one_that_is_about_to_lead_is_asked_again_and_nobody_else(
    members: dict[str, Member],
) -> None:
    members["h1"].is_silent = members["h2"].is_silent = True
    h3 = members["h3"]
    h3.leader, h3.epoch, h3.is_serving, h3.refusals_left = "h3", 6, True, 1
    with client_of(members, "h3") as client:
        with pytest.raises(NotLeader):  # the caller waits, as its policy says
            call(client)
        assert call(client) == "h3"
        assert not members["h1"].asked and not members["h2"].asked


def test_a_silent_host_is_left_even_if_nobody_knows_another_leader(
    members: dict[str, Member],
) -> None:
    """And its connection with it: after that a call begins with a new one, and keeps its number."""
    members["h1"].is_silent = True
    members["h2"].leader = members["h3"].leader = "h1"  # they have not noticed yet
    with client_of(members, "h1") as client:
        number = client.next_number()
        with pytest.raises(CallTimedOut):
            call(client, 0.5, number)
        assert client.finding.host == "h2"
        members["h3"].is_serving, members["h3"].leader, members["h3"].epoch = True, "h3", 2
        members["h2"].leader, members["h2"].epoch = "h3", 2

        assert call(client, number=number) == "h3"
        assert {asked[1] for member in members.values() for asked in member.asked} == {number}


def test_a_member_that_is_slow_to_say_who_leads_is_heard(members: dict[str, Member]) -> None:
    """On a crowded machine an answer takes longer than a second: whoever waited no longer for any
    of them stayed with a leader that was gone until the call itself was given up."""
    members["h1"].is_silent = True
    for host in ("h2", "h3"):
        members[host].leader, members[host].epoch, members[host].thinks_s = "h3", 6, 0.5
    members["h3"].is_serving = True
    with client_of(members, "h1") as client:
        assert call(client) == "h3"


def test_whoever_waits_hears_of_each_member_that_cannot_be_reached(
    members: dict[str, Member],
) -> None:
    """Each may take its time to be silent: people hear of it before all have been asked."""
    members["h3"].is_serving, members["h3"].leader = True, "h3"
    gone = {"h0": "127.0.0.1:1", "h00": "127.0.0.2:1"}
    seeds = {**gone, "h3": members["h3"].address}
    lost: list[str] = []
    with LeaderConnection(Finding(seeds, "h0"), Identity("c", SECRET, "client", "here")) as client:
        answer = client.call(Ask(), 60.0, on_lost=lambda error: lost.append(str(error)))

    assert answer == "h3"
    assert lost == [f"{address}: Connection refused" for address in gone.values()]


def test_a_slow_leader_that_lives_keeps_its_clients(members: dict[str, Member]) -> None:
    members["h1"].is_serving = True
    slow: list[Any] = []

    def ask(request: Ask, peer: Peer) -> Any:
        slow.append(asyncio.get_running_loop().create_future())
        return slow[-1]

    members["h1"]._server._handlers[Ask] = ask
    with client_of(members, "h1") as client:
        began_s = time.monotonic()
        with pytest.raises(CallTimedOut):
            call(client, 2.0)
        assert time.monotonic() - began_s >= 2.0
        assert client.finding.host == "h1" and len(slow) == 1
        assert client._connection(members["h1"].address).is_open


def test_a_master_of_an_epoch_below_the_highest_seen_is_not_listened_to(
    members: dict[str, Member],
) -> None:
    """Reads never go back in time: one that was cut off and believes in itself still answers."""
    old, new = members["h1"], members["h2"]
    old.leader, old.epoch, old.is_serving = "h1", 5, True
    new.leader, new.epoch, new.is_serving = "h2", 6, True
    seeds = {host: member.address for host, member in members.items()}
    with client_of(members, "h2") as client:
        assert call(client) == "h2"
        assert client.finding.epoch == 6
        members["h2"].is_serving = False
        members["h2"].leader = ""
        with pytest.raises(HostUnreachable):
            call(client)
        assert not old.asked
    # A later process knows it from the hint that this one left.
    finding = Finding(seeds, "h1", 6)
    with LeaderConnection(finding, Identity("c", SECRET, "client", "here")) as later:
        with pytest.raises(Superseded, match="leads epoch 5, and epoch 6 was heard of"):
            later._connection(old.address).call(Ask(), 60.0)
        new.is_serving, new.leader = True, "h2"
        assert call(later) == "h2"
        assert not old.asked


def test_a_connection_that_began_under_an_earlier_epoch_is_made_anew(
    members: dict[str, Member],
) -> None:
    h1 = members["h1"]
    h1.leader, h1.epoch, h1.is_serving = "h1", 5, True
    heard: list[tuple[str, int]] = []
    seeds = {host: member.address for host, member in members.items()}
    finding = Finding(seeds, "h1")
    identity = Identity("c", SECRET, "client", "here")
    with LeaderConnection(
        finding, identity, on_leader=lambda host, epoch: heard.append((host, epoch))
    ) as client:
        assert call(client) == "h1" and client._connection(h1.address).peer.epoch == 5
        assert finding.accepts(7), "another thread has met a later one"
        h1.epoch = 8
        assert call(client) == "h1" and client._connection(h1.address).peer.epoch == 8
    assert heard == [("h1", 5), ("h1", 8)]


def test_a_lone_master_is_believed_whatever_it_says() -> None:
    """There is nobody else, and one that was restored elsewhere may begin to count anew."""
    finding = Finding({"h1": "h1:1"}, epoch=9)
    assert finding.accepts(1)
    assert not Finding({"h1": "h1:1", "h2": "h2:1"}, epoch=9).accepts(1)


def test_a_request_that_another_answers_does_not_arrive_late_where_it_went_first(
    members: dict[str, Member],
) -> None:
    """Over a cut network it would be sent again and again until that is whole, and be carried out
    by a member that leads once more: after a refusal, which nobody remembers over leaders."""
    h1, h2 = members["h1"], members["h2"]
    h1.is_silent = True
    h2.leader, h2.epoch, h2.is_serving = "h2", 6, True
    with client_of(members, "h1") as client:
        assert call(client) == "h2"
        assert h1.asked, "it went there first"
        assert not client._connection(h1.address).is_open


def test_what_is_given_up_is_not_sent_any_more() -> None:
    """A socket that is closed goes on sending what it has; one that is aborted does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        sent = Connection(f"{host}:{port}", Identity("c", SECRET, "client", "here"))
        ours = socket.create_connection((host, port))
        theirs, _ = listener.accept()
        with theirs:
            while True:  # nobody reads there, until nothing more fits
                try:
                    ours.setblocking(False)
                    ours.send(b"x" * 65536)
                except BlockingIOError:
                    break
            sent._sock = ours
            sent.abort()
            taken = 0
            with pytest.raises(ConnectionResetError):
                while chunk := theirs.recv(65536):
                    taken += len(chunk)
                raise AssertionError(f"all of it came, {taken} bytes, and an orderly end")
