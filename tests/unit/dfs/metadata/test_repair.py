"""Repair: what is told to servers and what their answers mean."""

from __future__ import annotations

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkReport, ChunkVersion, pack_reports
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
