"""Repair: what is told to servers and what their answers mean."""

from __future__ import annotations

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkReport, ChunkVersion, ServerId, pack_reports
from mrstream.dfs.metadata.events import Event, Tick
from tests.support.dfs_model import DISK_BYTES, Model


def test_the_answer_to_one_deletion_is_not_taken_for_that_of_a_later_one() -> None:
    """A stale replica was to be deleted; before that arrived it was brought to the present version
    (an old request, late), reported, and was surplus. The refusal of the first deletion made the
    master forget the second: a report from before it then made good what was gone (seed 1046 of the
    simulator)."""
    model = Model(2)
    model.put("/f", 10, replication=1)
    model.write(model.call(p.FindLease("/f", 0)), 10)
    model.call(p.RecoverFile("/f", "me"))
    (keeper,) = model.where("/f")
    late = model.servers["s2" if keeper == "s1" else "s1"]
    (chunk,) = model.locate("/f")
    late.is_mute, late.used_bytes = True, DISK_BYTES // 2

    def reports(version: int) -> bytes:
        return pack_reports([ChunkReport(chunk.handle, ChunkVersion(version), 10)])

    def beat(version: int) -> None:
        model.call(p.Heartbeat(late.id, 1, model.number(), late.disks, changed=reports(version)))
        model.happens(Tick())

    def deletions() -> list[p.DeleteChunk]:
        return [c for name, c in model.sent if name == late.id and isinstance(c, p.DeleteChunk)]

    beat(1)
    beat(chunk.version)
    first, second = deletions()
    assert (first.version, second.version) == (1, chunk.version)

    model.call(p.CommandDone(late.id, 1, first.command_id, False, error="StaleReplica: newer"))
    before = p.Heartbeat(late.id, 1, model.number(), late.disks, changed=reports(chunk.version))
    model.call(before)

    assert model.where("/f") == [keeper]
    model.call(p.CommandDone(late.id, 1, second.command_id, True))
    assert model.where("/f") == [keeper]


class Watched(Model):
    """A model that knows the fewest good replicas that any chunk ever had."""

    fewest = 99

    def _event(self, event: Event) -> None:
        super()._event(event)
        chunks = self.brain.tables.chunks
        self.fewest = min([self.fewest, *(len(chunks.good(handle)) for handle in chunks)])


def test_a_server_is_drained_without_a_moment_of_fewer_good_replicas() -> None:
    """`cluster remove` (fault gate 28): its replicas are read until others are there."""
    model = Watched(servers=4)
    for number in range(12):
        model.put(f"/f{number}", 10)
    model.fewest = 99

    model.call(p.DrainServer("s1"))
    model.pass_time(30)

    state = next(s for s in model.call(p.Report()).servers if s.address.server == "s1")
    assert (state.state, state.chunks_to_drain) == ("drained", 0)
    assert model.fewest == 3


class TestAWriterWhoDistrustsTheLastCopy:
    """The host of one of two replicas is gone, and the primary at the other did not answer in time,
    since it waited for that host: the writer leaves it out. The master then gave the lease without
    it, found one copy left, sealed the chunk to clone it there, gave the lease without it, and so
    on while the writer waited."""

    def blamed(self) -> tuple[Model, p.OpenFile, p.ChunkGrant, str]:
        """A model in which that has happened, and who is left."""
        model = Model(3)
        opened = model.create("/f", first_chunk=True, replication=2)
        grant = opened.grant
        assert grant is not None
        model.write(grant, 50)
        (dead,) = (a.server for a in grant.replicas if a.server != grant.primary)
        model.kill(dead)
        model.pass_time(model.settings.dead_after_s + 1)
        return model, opened, grant, grant.primary

    def ask(
        self, model: Model, opened: p.OpenFile, version: ChunkVersion, failed: str
    ) -> p.ChunkGrant:
        """What the writer hears in the end."""
        status = opened.status
        ask = p.FindLease("", 0, status.file_id, opened.epoch, version, (ServerId(failed),))
        call = model.begin(ask)
        for _ in range(10):
            if model.is_answered(call):
                break
            model.pass_time(1)
        grant: p.ChunkGrant = model.answer(call)
        return grant

    def test_is_sent_to_two_again(self) -> None:
        """The last copy was good enough to make another of it: it is not to be left out."""
        model, opened, grant, blamed = self.blamed()

        again = self.ask(model, opened, grant.version, blamed)

        assert len(again.replicas) == 2 and blamed in {a.server for a in again.replicas}
        model.write(again, 80)
        assert model.close(opened, 80).length_bytes == 80

    def test_who_still_cannot_reach_it_goes_on_without_it(self) -> None:
        """Another one would do; where there is none, the client comes first."""
        model, opened, grant, blamed = self.blamed()
        again = self.ask(model, opened, grant.version, blamed)

        alone = self.ask(model, opened, again.version, blamed)

        assert [a.server for a in alone.replicas] != [] and blamed not in {
            a.server for a in alone.replicas
        }
        model.write(alone, 80)
        assert model.close(opened, 80).length_bytes == 80
        model.pass_time(5)
        assert len(model.where("/f")) == 2

    def test_another_server_takes_the_place_of_the_one_that_it_cannot_reach(self) -> None:
        model, opened, grant, blamed = self.blamed()
        again = self.ask(model, opened, grant.version, blamed)
        model.add_server("s4")

        elsewhere = self.ask(model, opened, again.version, blamed)

        assert len(elsewhere.replicas) == 2
        assert blamed not in {a.server for a in elsewhere.replicas}
