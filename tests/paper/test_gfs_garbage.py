"""Deleting, garbage and stale replicas (GFS 4.4, 4.5).

The brain is the real one; the chunkservers are the small ones of `tests/support/dfs_model.py`.
"""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion
from mrstream.dfs.errors import NoSuchFile
from mrstream.dfs.metadata.operations import ChunkGranted, Trashed
from tests.support.dfs_model import Held, Model


class TestGarbage:
    def test_4_4_1_deleting_is_a_logged_rename_to_a_hidden_name_with_the_time_in_it(self) -> None:
        """GFS-65, GFS-66: readable and recoverable until its time is over."""
        model = Model()
        model.put("/f", 10)

        hidden = model.call(p.Delete("/f", "me"))

        assert isinstance(model.records()[-1], Trashed)
        assert hidden.startswith("/.trash/20231114T221320Z-")
        assert len(model.where(hidden)) == 3
        with pytest.raises(NoSuchFile):
            model.locate("/f")
        entries = model.call(p.ListTrash())
        assert [(e.original_path, e.hidden_path) for e in entries] == [("/f", hidden)]

    def test_4_4_1_after_three_days_it_is_gone_and_its_chunks_are_garbage(self) -> None:
        """GFS-66, GFS-67."""
        model = Model()
        model.put("/f", 10)
        model.call(p.Delete("/f", "me"))

        model.wall_s += 3 * 86_400 - 10
        model.pass_time(5)
        assert len(model.call(p.ListTrash())) == 1
        model.wall_s += 10
        model.pass_time(5)

        assert model.call(p.ListTrash()) == ()
        assert not any(server.chunks for server in model.servers.values())

    def test_4_4_1_a_clock_that_is_days_ahead_at_the_start_does_not_empty_the_trash(self) -> None:
        """A host may come up with a wrong clock, which is set a little later."""
        model = Model()
        model.put("/f", 10)
        model.call(p.Delete("/f", "me"))

        model.wall_s += 4 * 86_400
        model.crash()
        model.pass_time(600)
        assert len(model.call(p.ListTrash())) == 1
        model.wall_s -= 4 * 86_400
        model.pass_time(3600)
        assert len(model.call(p.ListTrash())) == 1

        model.wall_s += 4 * 86_400  # this time they did pass
        model.pass_time(10)
        assert model.call(p.ListTrash()) == ()

    def test_4_4_1_a_chunk_that_no_file_has_is_named_in_the_reply_to_a_heartbeat(self) -> None:
        """GFS-67, M5: an alien chunk."""
        model = Model()
        model.put("/f", 10)
        model.servers["s1"].chunks[0xBAD] = Held(3, 10)

        replies = model.beat()

        assert replies["s1"].garbage == ((ChunkHandle(0xBAD), ChunkVersion(3)),)
        assert replies["s2"].garbage == ()

    def test_4_4_2_deleting_the_deleted_frees_space_early_and_policies_hold_per_subtree(
        self,
    ) -> None:
        """GFS-68, GFS-69."""
        model = Model()
        model.put("/f", 10)
        model.put("/scratch/g", 10)
        model.call(p.SetPolicy("/scratch", "me", trash_after_s=0))

        hidden = model.call(p.Delete("/f", "me"))
        assert model.call(p.Delete(hidden, "me")) == ""
        assert model.call(p.Delete("/scratch/g", "me")) == ""
        model.pass_time(3)

        assert not any(server.chunks for server in model.servers.values())

    def test_4_3_chunks_being_created_are_not_garbage(self) -> None:
        model = Model()
        for server in model.servers.values():
            server.is_mute = True
        model.begin(p.CreateFile("/f", "client", "me", first_chunk=True))
        handle = next(c.handle for _, c in model.sent if isinstance(c, p.CreateChunk))

        model.servers["s1"].chunks[handle] = Held(1, 0)

        assert model.beat()["s1"].garbage == ()


class TestStaleReplicas:
    def test_4_5_the_version_is_on_the_replicas_and_in_the_log_before_a_client_hears_of_it(
        self,
    ) -> None:
        """GFS-70, GFS-73."""
        model = Model()
        model.put("/f", 10)

        grant = model.call(p.FindLease("/f", 0))

        assert grant.version == 2
        assert all(s.chunks[grant.handle].version == 2 for s in model.servers.values())
        assert ChunkGranted in [type(record) for record in model.records()]
        sets = [c for _, c in model.sent if isinstance(c, p.SetVersion)]
        assert all((c.from_version, c.version) == (1, 2) for c in sets)

    def test_4_5_a_server_that_missed_a_mutation_is_stale_excluded_and_collected(self) -> None:
        """GFS-27, GFS-71, M4."""
        model = Model(servers=3)
        model.put("/f", 10)
        model.kill("s1")
        model.pass_time(11)
        grant = model.call(p.FindLease("/f", 0))
        model.write(grant, 50)

        model.restart("s1")

        assert model.where("/f") == ["s2", "s3"]
        fact = model.call(p.Fsck("/f")).files[0].chunks[0]
        assert ("s1", "stale") in [(r.server, r.state) for r in fact.replicas]
        for server in model.servers.values():
            server.leases.clear()
        model.pass_time(75)
        assert model.where("/f") == ["s1", "s2", "s3"]
        assert model.servers["s1"].chunks[grant.handle].length == 50

    def test_4_5_a_higher_version_than_the_masters_is_taken_to_be_up_to_date(self) -> None:
        """GFS-72: the master died between the replicas and its log; nothing was acknowledged."""
        model = Model(servers=4)
        model.put("/f", 10)
        handle = model.locate("/f")[0].handle
        holders = model.where("/f")
        for name in holders[1:]:
            model.servers[name].is_mute = True
        model.begin(p.FindLease("/f", 0))
        model.restart_brain()
        for name in holders:
            model.servers[name].is_mute = False
            model.servers[name].chunks[handle].version = 2 if name == holders[0] else 1
        for server in model.servers.values():
            model.register(server)

        assert model.where("/f") == [holders[0]]
        call = model.begin(p.FindLease("/f", 0))
        model.pass_time(2)  # one copy is left: it gets company before anybody writes to it

        grant = model.answer(call)
        assert grant.version == 3 and len(grant.replicas) > 1

    def test_4_5_if_the_higher_version_is_lost_the_granted_one_is_still_good(self) -> None:
        """Nothing was written at a version that no client ever heard of."""
        model = Model(servers=3)
        model.put("/f", 10)
        handle = model.locate("/f")[0].handle
        model.servers["s1"].chunks[handle].version = 2
        model.restart("s1")
        assert model.where("/f") == ["s1"]

        model.servers["s1"].chunks.clear()
        model.restart("s1")

        assert model.where("/f") == ["s2", "s3"]

    def test_4_5_a_replica_that_is_too_short_is_not_good(self) -> None:
        model = Model(servers=4)
        model.put("/f", 1000)
        handle = model.locate("/f")[0].handle
        bad = model.where("/f")[0]
        model.servers[bad].chunks[handle].length = 999

        model.restart(bad)

        assert bad not in model.where("/f")
        model.pass_time(5)
        assert len(model.where("/f")) == 3
