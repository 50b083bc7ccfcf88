"""Snapshots (GFS 3.4): shared chunks, copied by the first write.

The brain is the real one; the chunkservers are the small ones of `tests/support/dfs_model.py`.
"""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.metadata.operations import ChunkSealed, Snapshotted
from tests.support.dfs_model import CHUNK, Model, grant_of


class TestSnapshot:
    def test_3_4_a_snapshot_shares_chunks_and_copies_no_byte(self) -> None:
        """GFS-49, GFS-50."""
        model = Model()
        model.put("/home/user/f", 2 * CHUNK)
        before = len(model.sent)

        model.call(p.Snapshot("/home/user", "/save", "me"))

        assert len(model.sent) == before
        assert [c.handle for c in model.locate("/save/f")] == [
            c.handle for c in model.locate("/home/user/f")
        ]

    def test_3_4_leases_below_the_source_end_before_the_snapshot_is_logged(self) -> None:
        """GFS-35, GFS-50."""
        model = Model()
        opened = model.create("/d/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 100)

        model.call(p.Snapshot("/d", "/save", "me"))

        kinds = [type(record) for record in model.records()]
        assert kinds.index(ChunkSealed) < kinds.index(Snapshotted)
        assert model.call(p.Stat("/save/f")).length_bytes == 100
        with pytest.raises(AssertionError, match="stale"):
            model.write(opened.grant, 200)

    def test_3_4_the_first_write_afterwards_copies_the_chunk_on_the_same_servers(self) -> None:
        """GFS-51, GFS-52, EV-12: both sides are independent then; a snapshot of a snapshot too."""
        model = Model(servers=5)
        model.put("/f", 100)
        model.call(p.Snapshot("/f", "/g", "me"))
        model.call(p.Snapshot("/g", "/h", "me"))
        before = model.where("/f")

        grant = model.call(p.FindLease("/g", 0))
        model.write(grant, 100)

        assert sorted(address.server for address in grant.replicas) == before
        kinds = {type(command) for _, command in model.sent}
        assert p.CopyChunk in kinds and p.CloneChunk not in kinds
        assert model.locate("/f")[0].handle == model.locate("/h")[0].handle != grant.handle
        assert model.brain.tables.chunks.references(model.locate("/f")[0].handle) == 2

    def test_3_4_a_writer_goes_on_after_a_snapshot_in_a_copy_of_its_own(self) -> None:
        model = Model()
        opened = model.create("/d/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 100)
        model.call(p.Snapshot("/d", "/save", "me"))

        grant = grant_of(model, opened, version=opened.grant.version)
        model.write(grant, 300)
        model.close(opened, 300)

        assert model.call(p.Stat("/d/f")).length_bytes == 300
        assert model.call(p.Stat("/save/f")).length_bytes == 100
        assert model.locate("/save/f")[0].handle == opened.grant.handle != grant.handle

    def test_4_1_no_file_appears_below_a_tree_while_it_is_snapshot(self) -> None:
        """GFS-53, the paper's example: the two are serialised, whichever is first."""
        model = Model()
        opened = model.create("/home/user/open", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 10)
        for server in model.servers.values():
            server.is_mute = True

        snapshot = model.begin(p.Snapshot("/home/user", "/save", "me"))
        assert not model.is_answered(snapshot)
        model.create("/home/user/foo")
        for server in model.servers.values():
            server.is_mute = False
        model.pass_time(20)

        assert model.answer(snapshot) is None
        assert "/save/foo" in model.paths()  # it was logged before the snapshot was

    def test_3_4_deleting_one_side_leaves_the_other(self) -> None:
        model = Model()
        model.put("/f", 100)
        model.call(p.Snapshot("/f", "/g", "me"))

        model.call(p.Delete("/f", "me", skip_trash=True))
        model.pass_time(5)

        assert len(model.where("/g")) == 3
        assert all(server.chunks for server in model.servers.values())
