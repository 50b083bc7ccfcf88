"""Three masters under faults: F1 to F6 in every history, and wrong brains that each break one rule.

A seed that fails prints the command that replays it; `MRSTREAM_FAILOVER_SEEDS=FROM:TO` runs others.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mrstream.cluster.leader.gate import Gate
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, ServerId, first_command_id
from mrstream.dfs.chunks import allegiance
from mrstream.dfs.chunks.allegiance import Allegiance
from mrstream.dfs.chunks.chunk_store import ChunkStore
from mrstream.dfs.errors import NotRegistered, StaleMaster
from mrstream.dfs.metadata.events import LeadershipBegan
from mrstream.dfs.metadata.grants import Grants
from mrstream.dfs.metadata.membership import Membership
from mrstream.dfs.protocol import HeartbeatReply
from tests.simulation.dfs.failover import Failover, play
from tests.simulation.dfs.group import Member
from tests.simulation.dfs.run import SETTINGS
from tests.simulation.dfs.server import SimServer
from tests.support.dfs_model import Model
from tests.support.forgetful_disk import ForgetfulDisk
from tests.unit.dfs.metadata import test_epochs, test_shadow

SEEDS = range(*map(int, os.environ.get("MRSTREAM_FAILOVER_SEEDS", "5:10").split(":")))
MORE = 12
"""Seeds that are tried besides the kept one: a change may give that another history."""
Patch = Callable[[pytest.MonkeyPatch], None]
S_MAX = 3.0
"""In so much time a wrong brain is to be caught."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_fault_of_masters_loses_repeats_or_falsifies_anything(seed: int) -> None:
    run = play(seed)

    assert len(run.group.oracle.leaders) > 1, "a run without a fail-over proves nothing"


def test_masters_hand_over_and_lose_their_disks_in_it() -> None:
    """A simulator in which that does not happen proves nothing of it."""
    text = "\n".join(play(9).world.trace)
    assert "gets an empty disk" in text and "fault 11 at" in text


# --- wrong brains --------------------------------------------------------------------------------


def obeys_any_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Allegiance, "check", lambda self, epoch, what: None)


def forgets_whom_it_met(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(allegiance, "read_epoch", lambda disk, name: 0)


def obeys_however_old(patch: pytest.MonkeyPatch) -> None:
    right = Allegiance.admit
    patch.setattr(
        Allegiance, "admit", lambda self, command, now_s, contact_s: right(
            self, command, now_s, 1e9
        )
    )  # fmt: skip


def leases_before_all_have_registered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grants, "_may_be_leased", lambda self, handle: False)


def takes_watchers_for_registered(patch: pytest.MonkeyPatch) -> None:
    """Beats go on after a take-over as if nothing had happened; leases are never told."""

    def take_over(self: Membership) -> None:
        for server in self._t.servers.all():
            server.epoch, server.has_registered, server.is_connected = self._t.epoch, True, True

    patch.setattr(Membership, "take_over", take_over)


def shadow_calls_garbage(patch: pytest.MonkeyPatch) -> None:
    right = Membership.heartbeat

    def heartbeat(self: Membership, called: Any, ask: Any) -> None:
        right(self, called, ask)
        if not self._t.outbox.leads:
            garbage = self._sampled(self._registered(ask.server, ask.incarnation), ask.sample)
            self._t.outbox._commands.pop()
            self._t.outbox.reply(called.call, HeartbeatReply((), garbage))

    patch.setattr(Membership, "heartbeat", heartbeat)


def answers_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def say(self: Gate[Any], commands: Any) -> None:
        for command in commands if self._may_speak() else ():
            self._carry_out(command)

    patch.setattr(Gate, "say", say)


def answers_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "may_answer", lambda self: True)


def shadow_skips_a_record(patch: pytest.MonkeyPatch) -> None:
    right = Member.apply_one

    def apply_one(self: Member, payload: bytes) -> None:
        if self.records_seen % 7 == 6:
            self.records_seen += 1
        else:
            right(self, payload)

    patch.setattr(Member, "apply_one", apply_one)


# --- directed histories --------------------------------------------------------------------------


def busy_run() -> Failover:
    """Three masters, and some files."""
    run = Failover(3)
    run.world.run(5.0)
    run._make_shared()
    for client in run.clients:
        client.run(client.program(run.world.now_s + 3.0))
    run.world.run(run.world.now_s + 8.0)
    return run


def late_delete(run: Failover) -> tuple[SimServer, p.DeleteChunk, str]:
    """What the leader could send right now, on its way for a while."""
    leader = run.group.leader
    assert leader is not None
    server = run.servers["s1"]
    handle = server.store.handles()[0]
    known = leader.brain.tables.servers.get(ServerId("s1"))
    assert known is not None and handle in leader.brain.tables.chunks
    version = ChunkVersion(server.store.get(handle).version)
    number = first_command_id(leader.serving_epoch) + (1 << 20)
    command = p.DeleteChunk(number, ChunkHandle(handle), version, "surplus", known.number)
    return server, command, leader.host.name


def a_late_order_meets_a_server_that_knows_the_successor() -> None:
    """F2 by epoch: fresh, and of a master that is no more."""
    run = busy_run()
    server, command, name = late_delete(run)
    epoch = server.met
    run.group.hosts[name].end(power=False)
    until_s = run.world.now_s + 60.0
    while server.met == epoch and run.world.now_s < until_s:
        run.world.run(run.world.now_s + 0.05)
    assert server.met > epoch, "nobody took over"
    # As if the clock of the server had hardly moved: age does not save it.
    since = msgspec.structs.replace(command, since=server.allegiance.numbered(server.clock.now_s()))

    server.pushed(since, name)

    assert command.handle in server.store.handles(), "F2: deleted for a deposed master"


def a_late_order_meets_a_server_that_knows_of_nobody_else() -> None:
    """F2 by age: the leader was stopped; this server is cut off from all others."""
    run = busy_run()
    server, command, name = late_delete(run)
    for other in run.group.names:
        run._cut({("s1", other), (other, "s1")})
    run.group.hosts[name].stop(30.0)
    run.world.run(run.world.now_s + SETTINGS.contact_s + 0.5)

    server.pushed(command, name)

    assert command.handle in server.store.handles(), "F2: deleted by an order of long ago"


def a_power_cut_takes_nothing_of_whom_was_met() -> None:
    """F2 over lives of the server."""
    disk = ForgetfulDisk(name="d")
    allegiance.allegiance_of(ChunkStore([disk], cluster="c", server="s")).meet(7)
    disk.crash(random.Random(1))
    again = allegiance.allegiance_of(ChunkStore([disk], cluster="c", server="s"))
    try:
        again.meet(6)
    except StaleMaster:
        return
    raise AssertionError("F2: a deposed master is obeyed after a power cut")


def a_lease_of_before_is_waited_for() -> None:
    """F3: the server that may hold it has not come yet."""
    test_epochs.TestLeases().test_a_server_that_has_yet_to_register_may_hold_it()


def who_watched_registers_anew() -> None:
    """F3: a shadow did not look at leases; its successor in the same process must be told them."""
    model = Model()
    shadow = test_shadow.Shadow(model)
    shadow.follow()
    shadow.watch()
    shadow.brain.handle(LeadershipBegan(2), model.now_s, model.wall_s)
    try:
        shadow.beat(model.servers["s1"])
    except NotRegistered:
        return
    raise AssertionError("F3: nobody has told the new leader of leases")


DIRECTED: list[tuple[Patch, Callable[[], None], str]] = [
    (obeys_any_epoch, a_late_order_meets_a_server_that_knows_the_successor, "^F2: "),
    (obeys_however_old, a_late_order_meets_a_server_that_knows_of_nobody_else, "^F2: "),
    (forgets_whom_it_met, a_power_cut_takes_nothing_of_whom_was_met, "^F2: "),
    (leases_before_all_have_registered, a_lease_of_before_is_waited_for, "^F3: "),
    (takes_watchers_for_registered, who_watched_registers_anew, "^F3: "),
]


@pytest.mark.parametrize(
    ("wrong", "history", "why"), DIRECTED, ids=lambda x: getattr(x, "__name__", None)
)
def test_a_wrong_brain_fails_a_directed_history(
    wrong: Patch, history: Callable[[], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history()
    wrong(monkeypatch)
    began_s = time.process_time()

    with pytest.raises(AssertionError, match=why):
        history()

    assert time.process_time() - began_s < S_MAX


WRONG: list[tuple[Patch, int, str]] = [
    (shadow_calls_garbage, 1, "F4: a shadow says"),
    (answers_before_it_is_committed, 10, "was acknowledged and is not in"),
    (answers_without_a_lease, 15, "C4: .* answers in epoch"),
    (shadow_skips_a_record, 5, "F4: .* has another state"),
]


@pytest.mark.parametrize(
    ("wrong", "seed", "why"), WRONG, ids=lambda x: getattr(x, "__name__", None)
)
def test_a_wrong_brain_is_caught(
    wrong: Patch, seed: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch)
    began_s = time.process_time()

    with pytest.raises(AssertionError, match=why):
        for one in (seed, *range(MORE)):
            play(one)

    assert time.process_time() - began_s < S_MAX
