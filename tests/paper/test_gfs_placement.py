"""Placement, re-replication and balance (GFS 4.2, 4.3), and what is repaired when (5.2).

The brain is the real one; the chunkservers are the small ones of `tests/support/dfs_model.py`.
"""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.errors import NoReplica, NoServers
from mrstream.dfs.metadata.settings import Settings
from tests.support.dfs_model import CHUNK, DISK_BYTES, Model


class TestPlacement:
    def test_4_2_replicas_span_racks(self) -> None:
        """GFS-58: whichever rack is lost, every chunk can be read."""
        model = Model(servers=6, racks=2)

        for number in range(20):
            model.put(f"/f{number}", 10)

        racks = {server.id: server.rack for server in model.servers.values()}
        for number in range(20):
            assert len({racks[name] for name in model.where(f"/f{number}")}) == 2

    def test_4_2_chunks_made_while_one_rack_was_up_are_spread_later(self) -> None:
        model = Model(servers=0)
        for number in range(3):
            model.add_server(f"a{number}", "ra")
        model.put("/f", 10)

        model.add_server("b1", "rb")
        model.pass_time(10)

        assert "b1" in model.where("/f") and len(model.where("/f")) == 3

    def test_4_3_new_chunks_prefer_servers_below_the_average_and_limit_recent_creations(
        self,
    ) -> None:
        """GFS-59."""
        model = Model(servers=6)
        model.servers["s1"].used_bytes = int(0.9 * DISK_BYTES)
        model.beat()

        for number in range(20):
            model.put(f"/f{number}", 10)

        counts = {name: len(server.chunks) for name, server in model.servers.items()}
        assert counts["s1"] == 0
        assert all(10 <= counts[f"s{n}"] <= 14 for n in range(2, 7))

    def test_4_3_a_full_server_gets_nothing_and_none_left_is_an_error(self) -> None:
        """Fault gate 7."""
        model = Model(servers=2)
        model.servers["s1"].used_bytes = DISK_BYTES
        model.beat()
        model.put("/f", 10)
        assert model.where("/f") == ["s2"]

        model.servers["s2"].used_bytes = DISK_BYTES
        model.beat()
        opened = model.create("/g", first_chunk=True)

        assert opened.grant is None
        with pytest.raises(NoServers, match="no chunkserver has 1048576 bytes free"):
            model.call(p.AllocateChunk(opened.status.file_id, opened.epoch, 0))


class TestRepair:
    def test_4_3_a_lost_server_is_made_up_for(self) -> None:
        """GFS-60, GFS-62."""
        model = Model(servers=5)
        model.put("/f", 2 * CHUNK)
        lost = model.where("/f")[0]

        model.kill(lost)
        model.pass_time(15)

        assert all(
            len(model.where("/f", i)) == 3 and lost not in model.where("/f", i) for i in (0, 1)
        )
        assert model.call(p.Report()).under_replicated == 0

    def test_4_3_what_has_one_copy_left_goes_first(self) -> None:
        """GFS-61, fault gate 2."""
        settings = Settings(chunk_bytes=CHUNK, clones_per_server_max=1, clones_share_of_servers=0.1)
        model = Model(servers=8, settings=settings)
        for number in range(40):
            model.put(f"/f{number}", 10)
        model.put("/dead", 10)
        model.call(p.Delete("/dead", "me"))
        lost = model.where("/f0")[:2]
        single = {
            model.locate(f"/f{n}")[0].handle
            for n in range(40)
            if set(lost) <= set(model.where(f"/f{n}"))
        }

        for name in lost:
            model.kill(name)
        model.pass_time(30)

        clones = [c.handle for _, c in model.sent if isinstance(c, p.CloneChunk)]
        assert set(clones[: len(single)]) == single
        assert model.call(p.Report()).under_replicated == 0

    def test_4_3_clones_are_capped_per_server_and_in_the_cluster(self) -> None:
        """GFS-63."""
        model = Model(servers=10)
        for number in range(60):
            model.put(f"/f{number}", 10)
        for server in model.servers.values():
            server.is_mute = True

        model.kill("s1")
        model.pass_time(12)

        assert model.call(p.Report()).clones_active <= 4
        assert all(s.clones_active <= 2 for s in model.call(p.Report()).servers)

    def test_4_3_too_many_replicas_are_removed_but_never_below_the_goal(self) -> None:
        """M6."""
        model = Model(servers=5)
        model.put("/f", 10)
        lost = model.where("/f")[0]
        model.kill(lost)
        model.pass_time(15)

        model.restart(lost)
        model.pass_time(5)

        assert len(model.where("/f")) == 3
        assert sum(len(server.chunks) for server in model.servers.values()) == 3

    def test_4_3_a_new_server_is_filled_gradually(self) -> None:
        """GFS-64: rebalancing moves a few chunks at a time."""
        model = Model(servers=3)
        for number in range(12):
            model.put(f"/f{number}", 10)
        for server in model.servers.values():
            server.used_bytes = DISK_BYTES // 2

        model.add_server("s4")
        model.pass_time(12)

        moved = len(model.servers["s4"].chunks)
        assert 1 <= moved <= 6
        assert all(len(model.where(f"/f{n}")) == 3 for n in range(12))

    def test_4_3_a_drained_server_can_be_taken_away_without_a_loss(self) -> None:
        """Fault gate 28."""
        model = Model(servers=5)
        for number in range(10):
            model.put(f"/f{number}", 10)

        model.call(p.DrainServer("s1"))
        model.pass_time(20)

        state = next(s for s in model.call(p.Report()).servers if s.address.server == "s1")
        assert (state.state, state.chunks_to_drain) == ("drained", 0)
        model.kill("s1")
        model.pass_time(11)
        model.call(p.ForgetServer("s1"))
        assert all(len(model.where(f"/f{n}")) == 3 for n in range(10))
        assert "s1" not in {a.address.server for a in model.call(p.Report()).servers}
        model.crash()
        assert model.call(p.Report()).safe_mode == ""

    def test_4_3_a_server_may_be_forgotten_while_something_is_copied_from_it(self) -> None:
        model = Model(servers=4)
        model.put("/f", 10)
        source, lost = model.where("/f")[:2]
        target = next(name for name in model.servers if name not in model.where("/f"))
        model.servers[target].is_mute = True
        model.kill(lost)
        model.pass_time(11)
        clone = next(c for _, c in model.sent if isinstance(c, p.CloneChunk))
        source = clone.sources[0].server

        model.kill(source)
        model.pass_time(11)
        model.call(p.ForgetServer(source))
        model.servers[target].is_mute = False
        model.pass_time(60)

        assert model.call(p.Report()).clones_active == 0
        model.crash()
        assert source not in {s.address.server for s in model.call(p.Report()).servers}

    def test_5_2_a_corrupt_replica_is_deleted_only_after_its_copy_is_in_place(self) -> None:
        """GFS-79."""
        model = Model(servers=4)
        model.put("/f", 10)
        handle, version = model.locate("/f")[0].handle, model.locate("/f")[0].version
        bad = model.where("/f")[0]
        for server in model.servers.values():
            server.is_mute = True

        ask = p.Heartbeat(
            model.servers[bad].id,
            1,
            model.number(),
            model.servers[bad].disks,
            corrupt=((handle, version),),
        )
        model.call(ask)
        assert bad not in model.where("/f")
        assert model.call(p.Report()).corrupt == 1
        model.pass_time(2)
        sent = [type(c) for _, c in model.sent]
        assert p.CloneChunk in sent and p.DeleteChunk not in sent
        for server in model.servers.values():
            server.is_mute = False
        model.pass_time(60)

        assert len(model.where("/f")) == 3 and bad not in model.where("/f")
        assert handle not in model.servers[bad].chunks
        assert model.call(p.Report()).corrupt == 0

    def test_5_2_where_no_other_server_is_left_the_corrupt_replica_is_replaced_in_place(
        self,
    ) -> None:
        model = Model(servers=3)
        model.put("/f", 10)
        handle, version = model.locate("/f")[0].handle, model.locate("/f")[0].version

        ask = p.Heartbeat(
            model.servers["s1"].id,
            1,
            model.number(),
            model.servers["s1"].disks,
            corrupt=((handle, version),),
        )
        model.call(ask)
        model.pass_time(5)

        assert model.where("/f") == ["s1", "s2", "s3"]
        assert not [c for _, c in model.sent if isinstance(c, p.DeleteChunk)]

    def test_2_7_1_all_replicas_gone_is_a_clear_error(self) -> None:
        """GFS-29."""
        model = Model(servers=3)
        model.put("/f", 10)
        for name in list(model.servers):
            model.kill(name)
        model.pass_time(11)

        assert model.where("/f") == []
        assert model.call(p.Report()).missing == 1
        with pytest.raises(NoReplica, match="no server that is up holds a good replica"):
            model.call(p.FindLease("/f", 0))
