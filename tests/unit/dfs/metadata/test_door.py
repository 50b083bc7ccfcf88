"""The one door of the brain: what a master tells it of its own life, and what that changes."""

from __future__ import annotations

import random

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.events import Called, Founded, LeadershipBegan, Log, Tick
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.settings import Settings
from tests.support.dfs_model import Model


def new_brain() -> Metadata:
    return Metadata(Settings(), random.Random(1))


def states(model: Model) -> dict[str, str]:
    return {s.address.server: s.state for s in model.call(p.Report()).servers}


class TestBeginning:
    def test_nothing_is_taken_in_before_leadership_begins(self) -> None:
        """A brain that is still being folded out of the log knows half of what was said."""
        with pytest.raises(AssertionError, match="before its time"):
            new_brain().handle(Called(1, p.MakeDirectory("/d", "me")), 1.0, 2.0)

    def test_nothing_is_folded_in_once_leadership_has_begun(self) -> None:
        """M2: from then on a change that is not in the log would be lost by a restart."""
        brain = new_brain()
        brain.handle(LeadershipBegan(1), 1.0, 2.0)

        with pytest.raises(AssertionError, match="by events"):
            brain.apply(op.OwnerSet("/", "me", "us", False))

    def test_leadership_begins_once(self) -> None:
        brain = new_brain()
        brain.handle(LeadershipBegan(1), 1.0, 2.0)

        with pytest.raises(AssertionError, match="once"):
            brain.handle(LeadershipBegan(2), 1.0, 2.0)

    def test_commands_are_numbered_from_where_leadership_says(self) -> None:
        """A chunkserver answers a command id that it knows without doing anything."""
        model = Model(servers=1)
        model.put("/f", 10, replication=1)
        before = {command.command_id for _, command in model.sent}

        model.crash()
        model.put("/g", 10, replication=1)

        after = {command.command_id for _, command in model.sent} - before
        assert after and min(after) > max(before)

    def test_safe_mode_counts_from_the_beginning_of_leadership(self) -> None:
        """GFS-74: reading a large log takes time, in which nobody can report."""
        brain = new_brain()
        brain.apply(op.ServerKnown("s1"))  # type: ignore[arg-type]

        brain.handle(LeadershipBegan(1), 1000.0, 2.0)

        assert "up to 30 s more for 1 of 1" in brain.safe_mode


class TestFounding:
    def test_the_root_of_a_new_file_system_belongs_to_whoever_runs_it(self) -> None:
        brain = new_brain()
        brain.handle(LeadershipBegan(1), 1.0, 2.0)

        commands = brain.handle(Founded("ann", "lab"), 1.0, 2.0)

        assert commands == [Log(op.OwnerSet("/", "ann", "lab", False))]
        root = brain.query(p.Stat("/"), 1.0)
        assert (root.owner, root.group) == ("ann", "lab")

    def test_a_file_system_is_not_founded_again(self) -> None:
        model = Model()
        model.put("/f", 10)

        with pytest.raises(AssertionError, match="already"):
            model.brain.handle(Founded("eve", "lab"), model.now_s, model.wall_s)


class TestLateness:
    def test_a_master_that_was_stopped_does_not_give_up_servers_for_its_own_silence(self) -> None:
        """Their heartbeats wait in its sockets; all of them dead at once would be a repair of
        everything, and no file to be read until they have registered and reported again."""
        model = Model()
        model.put("/f", 10)

        model.stall(model.settings.dead_after_s + 20)

        assert set(states(model).values()) == {"up"}
        assert len(model.where("/f")) == 3
        model.beat()

    def test_silence_before_the_stop_counts(self) -> None:
        model = Model(servers=4)
        dead_after_s = model.settings.dead_after_s
        model.servers["s1"].is_up = False
        model.pass_time(dead_after_s - 1)

        model.stall(30)
        assert states(model)["s1"] == "up"
        model.pass_time(1.5)

        assert states(model) == {"s1": "dead", "s2": "up", "s3": "up", "s4": "up"}

    def test_no_more_is_forgiven_than_the_silence(self) -> None:
        """A server that was heard of after the stop, before the tick, and then dies, is dead as
        soon as any other; the stop was added to that moment once, and it lived on for so long."""
        model = Model(servers=4)
        model.now_s += 30
        model.beat()
        model._event(Tick(late_s=30))

        model.servers["s1"].is_up = False
        model.pass_time(model.settings.dead_after_s + 0.5)

        assert states(model)["s1"] == "dead"

    def test_a_tick_that_is_a_little_late_forgives_nothing(self) -> None:
        """A busy master hears all the same; else a server that died would live on under load."""
        model = Model(servers=4)
        model.servers["s1"].is_up = False

        for _ in range(7):
            model.stall(1.5)
            model.beat()

        assert states(model)["s1"] == "dead"

    def test_a_writer_is_not_fenced_for_the_silence_of_the_master(self) -> None:
        """Fault gate 15 is for writers that died; this one is alive and gets to write on."""
        model = Model()
        opened = model.create("/f", first_chunk=True)
        model.pass_time(5)

        model.stall(model.settings.writer_silence_s_max + 20)
        model.pass_time(5)

        assert model.call(p.KeepAlive("client", (opened.epoch,))) == ()
        assert model.call(p.Stat("/f")).is_open
        model.pass_time(model.settings.writer_silence_s_max + 5)
        assert model.call(p.KeepAlive("client", (opened.epoch,))) == (opened.epoch,)

    def test_a_lease_lasts_no_longer_for_it(self) -> None:
        """M3: its holder counts the time too, and was not stopped."""
        model = Model()
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None

        model.stall(model.settings.lease_s + 1)

        assert model.call(p.Report()).leases == 0


class TestSafeMode:
    def test_to_ask_does_not_end_it(self) -> None:
        model = Model()
        model.restart_brain()
        later_s = model.now_s + model.settings.safe_mode_s_max

        assert model.brain.query(p.Report(), later_s).safe_mode == ""

        assert "3 of 3 chunkservers" in model.brain.query(p.Report(), model.now_s).safe_mode

    def test_it_does_not_come_back(self) -> None:
        """A server that registers anew right after the start is no reason to wait again."""
        model = Model()
        model.crash()
        server = model.servers["s1"]
        address = p.ServerAddress(server.id, server.id, 1, 2, "")

        model.call(p.Register(address, server.incarnation, "cluster", server.disks, ()))

        assert not model.brain.tables.servers.all()[0].has_reported
        assert model.brain.safe_mode == ""
