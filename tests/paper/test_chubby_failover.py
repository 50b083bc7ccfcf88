"""The nine steps of a new leader (Chubby §2.9), each test named after its step."""

from __future__ import annotations

import pytest

from mrstream.lock import protocol as p
from mrstream.lock.cell import records as r
from mrstream.lock.errors import (
    CellFailingOver,
    HandleInvalid,
    LockHeld,
    SessionExpired,
    WrongEpoch,
)
from tests.support.lock_model import Client, Model, changed, keep, settle

F = "/ls/local/f"


def test_step_1_calls_of_an_earlier_epoch_are_rejected_and_told_the_new_one() -> None:
    """CH-37: a very old packet that the client sent to an earlier leader does nothing."""
    model = Model()
    client = Client(model)
    handle = client.make(F)
    late = client.on(p.SetContents, handle, contents=b"late")
    model.crash()

    for request in (late, p.KeepAlive(client.session, client.epoch, 0)):
        with pytest.raises(WrongEpoch) as refused:
            model.call(request)
        assert refused.value.details["epoch"] == 2


def test_step_2_before_anything_is_known_of_sessions_nothing_of_them_is_answered() -> None:
    """CH-37: a brain that does not lead takes no call at all; who leads is the shell's to say."""
    from mrstream.lock.cell.cell import Cell
    from mrstream.lock.cell.events import Called
    from mrstream.lock.cell.settings import Settings

    cell = Cell(Settings(), b"secret")

    assert cell.step == 0
    with pytest.raises(AssertionError, match="before its time"):
        cell.handle(Called(1, p.KeepAlive(1, 1, 0)), 0.0, 0.0)
    cell.failover.step_1_pick_a_new_epoch(5)
    cell.failover.step_2_answer_only_who_leads()
    with pytest.raises(CellFailingOver):
        cell.failover.check(5, is_keep_alive=True)


def test_step_3_sessions_and_locks_are_rebuilt_with_the_longest_lease() -> None:
    """CH-37, CH-22: locks survive; a lease goes on as if the last leader had just given it."""
    model = Model()
    client = Client(model)
    sequencer = client.acquire(client.make(F))
    model.wait(11.0)
    model.crash()

    live = model.cell.sessions.live[client.session]
    assert live.lease_end_s - model.now_s >= 12.0
    assert model.call(p.CheckSequencer(sequencer))


def test_step_3_a_lock_delay_begins_anew_in_full() -> None:
    """L3: nobody knows how much of it the last leader has seen."""
    model = Model()
    dead, heir = Client(model), Client(model)
    dead.acquire(dead.make(F, lock_delay_s=20.0))
    handle = heir.make(F)
    keep(model, 30.0, heir)
    with pytest.raises(LockHeld):
        heir.acquire(handle)
    model.crash()
    heir.follow()

    keep(model, 19.0, heir)
    with pytest.raises(LockHeld):
        heir.acquire(handle)
    keep(model, 2.0, heir)

    assert heir.acquire(handle)


def test_step_3_a_lock_delay_that_is_over_is_over_for_every_leader() -> None:
    model = Model()
    dead, heir = Client(model), Client(model)
    dead.acquire(dead.make(F, lock_delay_s=20.0))
    handle = heir.make(F)
    keep(model, 35.0, heir)
    model.crash()
    heir.follow()
    settle(heir)

    assert heir.acquire(handle)


def test_step_4_keep_alives_are_let_in_and_nothing_else() -> None:
    """CH-37."""
    model = Model()
    one, other = Client(model), Client(model)
    handle = one.make(F)
    model.crash()
    one.follow()
    settle(one)

    assert model.cell.step == 6
    for request in (
        one.on(p.SetContents, handle, contents=b"x"),
        p.Look(one.session, one.epoch, F),
        p.OpenSession(99, "new"),
        one.opening(F),
    ):
        with pytest.raises(CellFailingOver):
            model.call(request)
    assert other.session in model.cell.sessions.live


def test_step_5_every_session_is_told_of_the_fail_over() -> None:
    """CH-37: caches are emptied; applications know that they may have missed something."""
    model = Model()
    clients = [Client(model), Client(model)]
    model.crash()
    for client in clients:
        client.follow()

    settle(*clients)

    assert [client.kinds() for client in clients] == [[p.FAILED_OVER], [p.FAILED_OVER]]


def test_step_6_everything_waits_until_each_session_has_acknowledged() -> None:
    """CH-37."""
    model = Model()
    one, two = Client(model), Client(model)
    model.crash()
    one.follow()
    two.follow()

    settle(one)
    assert model.cell.step == 6
    assert two.keep_alive() is not None
    assert model.cell.step == 6  # told, but not acknowledged
    two.keep_alive()

    assert model.cell.step == 7


def test_step_6_or_until_its_session_is_over() -> None:
    """CH-37."""
    model = Model()
    alive, dead = Client(model), Client(model)
    handle = alive.make(F)
    dead.acquire(dead.make(F))
    model.crash()
    alive.follow()

    keep(model, 12.0, alive)
    assert model.cell.step == 6
    keep(model, 1.0, alive)

    assert model.cell.step == 7
    assert alive.acquire(handle)


def test_step_6_a_cell_without_sessions_waits_for_nobody() -> None:
    model = Model()

    assert model.cell.step == 7


def test_step_7_then_everything_goes_on() -> None:
    model = Model()
    client = Client(model)
    handle = client.make(F, b"before")
    model.crash()
    client.follow()
    settle(client)

    assert client.do(p.SetContents, handle, contents=b"after") == 2
    assert client.look(F).contents == b"after"


def test_step_8_a_handle_of_the_last_leader_is_made_again_when_it_is_used() -> None:
    """CH-39; its lock is still its own."""
    model = Model()
    client = Client(model)
    handle = client.make(F, events=p.CONTENTS_CHANGED)
    client.acquire(handle)
    model.crash()
    client.follow()
    settle(client)
    assert not model.cell.sessions.live[client.session].handles

    client.do(p.SetContents, handle, contents=b"x")
    settle(client)

    assert list(model.cell.sessions.live[client.session].handles) == [(1, handle.number)]
    assert p.CONTENTS_CHANGED in client.kinds()
    assert client.do(p.GetSequencer, handle).endswith(":1:exclusive")


def test_step_8_once_closed_it_is_not_made_again_in_this_epoch() -> None:
    """CH-39: a late or repeated packet cannot open what was closed."""
    model = Model()
    client = Client(model)
    handle = client.make(F)
    client.acquire(handle)
    model.crash()
    client.follow()
    settle(client)

    client.do(p.CloseNode, handle)

    with pytest.raises(HandleInvalid):
        client.do(p.SetContents, handle)
    assert not model.cell.state.nodes[F].holders


def test_step_8_a_forged_one_is_not_made_at_all() -> None:
    """CH-14."""
    model = Model()
    client, other = Client(model), Client(model)
    client.make(F)
    reader = client.open(F, p.READ).handle
    model.crash()
    client.follow()
    other.follow()
    settle(client, other)

    for who, handle in (
        (client, changed(reader, mode=7)),
        (client, changed(reader, number=50)),
        (other, reader),
        (client, changed(reader, epoch=2)),
    ):
        with pytest.raises(HandleInvalid):
            who.do(p.SetContents, handle)


def test_step_9_after_a_minute_ephemeral_nodes_that_nobody_came_for_are_removed() -> None:
    """CH-40."""
    model = Model()
    dead, alive = Client(model), Client(model)
    dead.make("/ls/local/dead", is_ephemeral=True)
    handle = alive.make("/ls/local/alive", is_ephemeral=True)
    model.crash()
    alive.follow()

    keep(model, 20.0, alive)
    alive.do(p.RefreshHandle, handle)
    with pytest.raises(SessionExpired):
        dead.follow()
        dead.make("/ls/local/x")
    assert alive.look("/ls/local/dead").stat is not None
    keep(model, 55.0, alive)

    assert alive.look("/ls/local/dead").stat is None
    assert alive.look("/ls/local/alive").stat is not None


def test_two_fail_overs_on_end_leave_nothing_out() -> None:
    """CH-38: a client keeps its lock over leaders that come and go."""
    model = Model()
    client = Client(model)
    handle = client.make(F, lock_delay_s=5.0)
    client.acquire(handle)
    for _ in range(5):
        model.now_s += 10.0
        model.crash()
        client.follow()
        settle(client)
        assert client.do(p.GetSequencer, handle).endswith(":1:exclusive")

    assert len(model.records(r.LockTaken)) == 1
