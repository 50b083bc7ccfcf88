"""Masters that come after one another: leases, orders and registrations over epochs (F2, F3)."""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ServerId, epoch_of_command
from mrstream.dfs.errors import StaleMaster
from tests.support.dfs_model import FakeServer, Model


def register(model: Model, name: str, **fields: object) -> p.ServerSettings:
    """Register, and report nothing yet."""
    server = model.servers[name]
    address = p.ServerAddress(server.id, server.id, 1, 2, server.rack)
    held = tuple(p.HeldLease(h, v, 30.0) for h, v in server.leases.items())  # type: ignore[arg-type]
    ask = p.Register(address, server.incarnation, "cluster", server.disks, held, **fields)  # type: ignore[arg-type]
    settings: p.ServerSettings = model.call(ask)
    return settings


def report(model: Model, server: FakeServer) -> None:
    model.call(p.ReportChunks(server.id, server.incarnation, 0, server.reports(), True))


class TestRegistration:
    def test_a_chunkserver_is_told_the_masters_epoch(self) -> None:
        model = Model()
        model.crash()

        assert register(model, "s1").epoch == 2

    def test_who_has_met_a_later_master_is_refused_and_says_so(self) -> None:
        """A restored log on a new host, or a master back from the dead."""
        model = Model()

        with pytest.raises(StaleMaster, match="has obeyed a master of epoch 9; this is 1"):
            register(model, "s1", epoch=9)

        assert model.outrun_by == 9

    def test_nothing_is_logged_for_who_is_refused(self) -> None:
        model = Model(servers=1)
        before = len(model.log)
        model.servers["new"] = FakeServer(ServerId("new"))

        with pytest.raises(StaleMaster):
            register(model, "new", epoch=9)

        assert len(model.log) == before and model.brain.tables.servers.get(ServerId("new")) is None


class TestOrders:
    def test_commands_carry_the_epoch_and_the_news_they_rest_on(self) -> None:
        model = Model()
        model.crash()
        model.beat()
        model.sent.clear()

        model.put("/f", 10)

        numbers = {s.id: s.number for s in model.brain.tables.servers.all()}
        assert model.sent
        for name, command in model.sent:
            assert epoch_of_command(command.command_id) == 2
            assert command.since == numbers[ServerId(name)] > 0  # type: ignore[attr-defined]


class TestLeases:
    """F3: a lease that a master of before gave is known before another is given."""

    def written(self) -> tuple[Model, str]:
        model = Model()
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 10)
        model.restart_brain()
        return model, opened.grant.primary

    def find(self, model: Model) -> int:
        row = model.brain.space.row("/f")
        file_id = model.brain.space.nodes.id_of(row)
        return model.begin(p.FindLease("/f", 0, file_id=file_id, epoch=model.epoch("/f")))

    def test_a_server_that_has_yet_to_register_may_hold_it(self) -> None:
        model, primary = self.written()
        for server in model.servers.values():
            if server.id != primary:
                register(model, server.id)
                report(model, server)

        call = self.find(model)

        assert not model.is_answered(call), "F3: it may hold the lease still"
        assert register(model, primary).void, "the others are at a higher version by now"
        assert not model.is_answered(call), "it may not have heard so yet"
        report(model, model.servers[primary])
        assert model.answer(call).primary != primary

    def test_a_server_that_has_registered_has_said_so(self) -> None:
        """The report of a hundred thousand chunks takes seconds; leases do not wait for it."""
        model, primary = self.written()
        model.servers[primary].leases.clear()  # it restarted: the lease is nobody's
        others = [server for server in model.servers.values() if server.id != primary]
        register(model, primary)
        for server in others:
            register(model, server.id)
            report(model, server)
        assert not model.brain.tables.servers.get(ServerId(primary)).has_reported  # type: ignore[union-attr]

        grant = model.answer(self.find(model))

        assert grant.primary in {server.id for server in others}

    def test_a_server_that_never_comes_is_waited_for_until_it_must_have_stopped(self) -> None:
        model, primary = self.written()
        model.servers[primary].is_up = False
        for server in model.servers.values():
            if server.id != primary:
                register(model, server.id)
                report(model, server)
        call = self.find(model)

        model.pass_time(model.settings.dead_after_s - 1.0)
        assert not model.is_answered(call)
        model.pass_time(2.0)
        assert model.answer(call).primary != primary

    def test_a_holder_that_does_not_take_the_next_version_is_asked_to_give_it_up(self) -> None:
        """It had just registered, and took nobody's orders yet: its lease would be waited for to
        its end, a minute, by every writer of the chunk."""
        model, primary = self.written()
        for server in model.servers.values():
            register(model, server.id)
            report(model, server)
        holder = model.servers[primary]
        do = holder.do
        refused: list[p.Command] = []

        def not_yet(command: p.Command) -> p.CommandDone:
            if isinstance(command, p.SetVersion) and not refused:
                refused.append(command)
                return holder._done(command, False, error="StaleMaster: it is not here yet")
            return do(command)

        holder.do = not_yet  # type: ignore[method-assign]

        grant = model.answer(self.find(model))

        assert refused and grant.primary != primary
        assert not holder.leases, "it was told that its lease is over"
