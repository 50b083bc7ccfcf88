"""Two hosts: one can lead, the other keeps the log. The first has lost some of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from mrstream.cluster.config.config import DFS_MASTER, Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import NEW_MARK, Secret
from mrstream.cluster.consensus.commands import Command, SendLog
from mrstream.cluster.consensus.events import Event, Promote, Proposed, Received, Synced, Tick
from mrstream.cluster.consensus.following import LogsDiffer
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, Members
from mrstream.cluster.consensus.messages import AppendLog, Position
from mrstream.cluster.consensus.records import EpochBegan, encode_own
from mrstream.cluster.consensus.replica import Replica
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.consensus.state import Remembered
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.leader import log_check
from mrstream.cluster.leader.log_check import LogBehind, compare_with_listeners, may_found
from mrstream.cluster.wire.network import Identity, Server

SECRET = b"k" * 32
VOTER, LEARNER = MemberId("h1/" + "a" * 16), MemberId("h2/" + "b" * 16)


def test_a_listener_never_cuts_what_was_acknowledged() -> None:
    """C2, where no majority guards it: whoever leads alone may have come back with an old log."""
    found = Remembered(
        epoch=1,
        epochs=((1, 1),),
        members=((2, Members((VOTER,), (LEARNER,))),),
        last=10,
        committed=10,
    )
    learner = Replica(LEARNER, found, Timing(), Random(1), 0.0)
    began = encode_own(EpochBegan(2, VOTER))
    forgot = AppendLog(2, 5, 1, 5, 0.5, (began, b"instead"))

    with pytest.raises(LogsDiffer, match="10 is committed, cut after 5"):
        learner.handle(Received(VOTER, forgot), 1.0)
    assert (learner.last, learner.committed) == (10, 10)


def listener_with_ten(*voters: MemberId) -> Replica:
    found = Remembered(
        epoch=1,
        epochs=((1, 1),),
        members=((2, Members(voters, (LEARNER,))),),
        last=10,
        committed=8,
    )
    return Replica(LEARNER, found, Timing(), Random(1), 0.0)


def test_what_a_listener_was_sent_is_not_cut_though_nobody_told_it_that_it_counts() -> None:
    """C8: it was on the disk of the one that leads alone before it was sent, and may have been
    acknowledged: where it is missing now, it was lost there."""
    learner, began = listener_with_ten(VOTER), encode_own(EpochBegan(2, VOTER))

    with pytest.raises(LogsDiffer, match=f"C8: {VOTER} sent us up to 10, and ends at 8"):
        learner.handle(Received(VOTER, AppendLog(2, 8, 1, 8, 0.5, (began,))), 1.0)
    assert learner.last == 10


@pytest.mark.parametrize("leader", [VOTER, MemberId("h1/" + "c" * 16)])
def test_what_a_majority_guards_and_what_a_person_gave_up_is_cut_as_ever(leader: MemberId) -> None:
    """With three voters a record that was not acknowledged may go. And a group that `restore`
    founded anew, under another name, owes nothing to the one before."""
    others = (MemberId("h3/x"), MemberId("h4/x")) if leader == VOTER else ()
    learner, began = listener_with_ten(VOTER, *others), encode_own(EpochBegan(2, leader))

    learner.handle(Received(leader, AppendLog(2, 8, 1, 8, 0.5, (began,))), 1.0)

    assert learner.last == 9


def test_who_decides_alone_sends_what_its_own_disk_has() -> None:
    """C8, also while a second voter is being let in: until that is committed, it may go back."""
    found = Remembered(
        epoch=1, epochs=((1, 1),), members=((2, Members((VOTER,), (LEARNER,))),), last=3
    )
    alone = Replica(VOTER, found, Timing(), Random(1), 0.0)

    def sent(commands: list[Command]) -> list[tuple[int, int]]:
        return [(one.previous, one.last) for one in commands if isinstance(one, SendLog)]

    def step(event: Event, now_s: float) -> list[tuple[int, int]]:
        return sent(alone.handle(event, now_s))

    assert alone.handle(Tick(), 10.0) and alone.is_leading and alone.last == 4
    assert step(Proposed((b"a", b"b")), 10.1) == []
    assert step(Synced(4, 0), 10.2) == [(3, 4)]
    assert step(Received(LEARNER, Position(2, 4, 10.0)), 10.3) == []
    assert step(Synced(6, 0), 10.4) == [(4, 6)]
    assert step(Received(LEARNER, Position(2, 6, 10.4)), 10.5) == [(6, 6)]  # that it is committed
    assert alone.committed == 6
    assert step(Promote(1, LEARNER), 10.5) == []
    assert alone.members.voters == (VOTER, LEARNER) and alone.last == 7
    assert step(Synced(7, 0), 10.6) == [(6, 7)]
    alone.handle(Received(LEARNER, Position(2, 7, 10.5)), 10.7)
    assert alone.committed == 7
    assert step(Proposed((b"c",)), 10.8) == [(7, 8)]  # two decide: at once


class Listener:
    """The member on h2, at the address that h1 asks."""

    def __init__(self, daemon: Daemon, committed: int, last: int) -> None:
        identity = Identity("c1", SECRET, DFS_MASTER, "h2")
        seen = Standing(
            LEARNER, MemberId(""), 4, committed, last, (VOTER,), (LEARNER,),
            synced=last,
        )  # fmt: skip
        self.server = Server({WhoLeads: lambda request, peer: seen}, identity)
        self._address = daemon.config.address("h2", DFS_MASTER)

    async def __aenter__(self) -> Listener:
        await self.server.start(self._address)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.server.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    config = read_config(
        "name: t\nports: {base: 18210}\nhosts: {h1: {address: 127.0.0.1}, "
        "h2: {address: 127.0.0.2}}\n"
    )
    assert config.learner == "h2"
    made = Daemon(
        DFS_MASTER, Cluster(config, Secret("c1", SECRET)), config.host("h1"), str(tmp_path)
    )
    yield made
    made.loop.close()


def compare(daemon: Daemon, last: int, listener: Listener | None) -> None:
    async def do() -> None:
        await compare_with_listeners(daemon, "/there/oplog", last, (LEARNER,))

    async def both() -> None:
        if listener is None:
            await do()
            return
        async with listener:
            await do()

    asyncio.set_event_loop(daemon.loop)
    daemon.loop.run_until_complete(both())


def test_who_can_lead_alone_does_not_with_less_than_was_acknowledged(daemon: Daemon) -> None:
    """Told or not: all that the other has was on this disk first (C8)."""
    for committed in (70, 72):
        with pytest.raises(LogBehind) as refused:
            compare(daemon, 71, Listener(daemon, committed, last=72))
        said = str(refused.value)
        assert "the log on h1 ends at record 71, but h2 has it up to record 72" in said
        assert "nothing was changed; `mrstream cluster restore --master h1` brings back" in said

    compare(daemon, 72, Listener(daemon, committed=70, last=72))


def test_one_that_listens_and_has_just_started_counts_with_all_that_it_has(daemon: Daemon) -> None:
    """What was acknowledged is told, not kept on disk: after a start of both nobody knows it, and a
    log that was cut meanwhile would be taken for whole."""
    with pytest.raises(LogBehind, match="ends at record 8, but h2 has it up to record 17"):
        compare(daemon, 8, Listener(daemon, committed=0, last=17))

    compare(daemon, 17, Listener(daemon, committed=0, last=17))


def test_one_that_listens_and_is_down_does_not_keep_the_other_from_starting(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_check, "LISTENERS_S_MAX", 0.2)
    compare(daemon, 3, None)


def test_without_a_log_every_host_must_have_nothing(daemon: Daemon) -> None:
    way_back = log_check.WayBack(daemon.config, "h1", "/there/oplog")
    may_found({"h1": 0, "h2": 0}, {}, way_back, "chunks")
    with pytest.raises(LogBehind, match="the log on h1 is gone, but h2 has 7 chunks of it"):
        may_found({"h1": 0, "h2": 7}, {}, way_back, "chunks")
    with pytest.raises(LogBehind, match="h2 does not say whether it stores anything"):
        may_found({"h1": 0}, {"h2": "no answer"}, way_back, "chunks")


def test_a_cluster_that_is_new_asks_nobody_and_is_new_once(daemon: Daemon) -> None:
    place = Path(daemon.state_directory)
    place.mkdir()
    (place / NEW_MARK).write_text("")

    asyncio.set_event_loop(daemon.loop)
    founding = log_check.check_founding(daemon, "/there/oplog", 0, "chunks")
    daemon.loop.run_until_complete(founding)

    assert not (place / NEW_MARK).exists()
