"""Chunks, metadata and the namespace (GFS 2.3 to 2.6, 4.1): does the master do what the paper says?

The brain is the real one; the chunkservers are the small ones of `tests/support/dfs_model.py`.
"""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.errors import NoSuchFile, SafeMode
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import CHUNK, Model


class TestChunks:
    def test_2_3_a_file_is_cut_into_chunks_of_fixed_size_with_handles_of_their_own(self) -> None:
        """GFS-02, GFS-03."""
        model = Model()

        model.put("/f", 3 * CHUNK + 8)

        chunks = model.locate("/f")
        assert [chunk.length_bytes for chunk in chunks] == [CHUNK, CHUNK, CHUNK, 8]
        assert len({chunk.handle for chunk in chunks}) == 4

    def test_2_3_a_handle_is_never_given_out_twice_not_even_across_a_restart(self) -> None:
        """GFS-03: also when the master died before the handle was logged."""
        model = Model()
        seen: set[int] = set()
        for name in range(30):
            seen.add(model.put(f"/f{name}", 10).file_id and model.locate(f"/f{name}")[0].handle)
            model.call(p.Delete(f"/f{name}", "me", skip_trash=True))
            if name % 10 == 5:
                for server in model.servers.values():
                    server.is_mute = True
                model.begin(p.CreateFile("/lost", "client", "me", first_chunk=True))
                tried = [c.handle for _, c in model.sent if isinstance(c, p.CreateChunk)]
                assert not seen & set(tried[-3:])
                seen |= set(tried)
                for server in model.servers.values():
                    server.is_mute = False
                model.crash()
                model.call(p.Delete("/lost", "me", skip_trash=True))

        assert len(seen) >= 33

    def test_2_3_replication_is_settable_per_region_of_the_namespace(self) -> None:
        """GFS-04."""
        model = Model(servers=5)
        model.call(p.MakeDirectory("/tmp", "me"))
        model.call(p.SetPolicy("/tmp", "me", replication=2))

        model.put("/tmp/deep/f", 10)
        model.put("/f", 10)

        assert len(model.where("/tmp/deep/f")) == 2
        assert len(model.where("/f")) == 3
        assert model.call(p.GetPolicy("/tmp/deep")).replication_from == "/tmp"

    def test_2_4_one_request_locates_several_chunks(self) -> None:
        """GFS-06, GFS-07."""
        model = Model()
        model.put("/f", 10 * CHUNK)

        located = model.call(p.Locate("/f", 2, 4))

        assert [chunk.index for chunk in located.chunks] == [2, 3, 4, 5]
        assert all(len(chunk.replicas) == 3 for chunk in located.chunks)

    def test_2_5_replication_of_a_live_file_can_be_raised(self) -> None:
        """GFS-12: a hot one-chunk file, 3 → 6."""
        model = Model(servers=7)
        model.put("/hot", 10)

        model.call(p.SetReplication("/hot", 6, "me"))
        model.pass_time(5)

        assert len(model.where("/hot")) == 6


class TestMetadata:
    def test_2_6_locations_are_not_persisted_and_come_back_from_the_servers(self) -> None:
        """GFS-14, GFS-15."""
        model = Model()
        model.put("/f", 10)
        before = model.where("/f")

        model.restart_brain()

        with pytest.raises(SafeMode, match="chunkservers to report: s1, s2, s3"):
            model.locate("/f")
        for server in model.servers.values():
            model.register(server)
        assert model.where("/f") == before
        assert not any(b"s1" in payload for payload in model.log if b"ServerKnown" not in payload)

    def test_2_6_2_the_server_has_the_last_word_on_what_it_holds(self) -> None:
        """GFS-15: a chunk file deleted by hand, and a data directory moved to another host."""
        model = Model(servers=4)
        model.put("/f", 10, replication=1)
        (holder,) = model.where("/f")
        moved = model.servers[holder].chunks.copy()

        model.servers[holder].chunks.clear()
        model.restart(holder)
        assert model.where("/f") == []
        newcomer = model.add_server("s9")
        newcomer.chunks.update(moved)
        model.restart("s9")

        assert model.where("/f") == ["s9"]

    def test_2_6_3_recovery_is_the_checkpoint_and_the_log_after_it(self) -> None:
        """GFS-18, GFS-22."""
        model = Model(servers=4)
        model.put("/a/f", 3 * CHUNK)
        model.put("/b/g", 5)
        model.call(p.Delete("/b/g", "me"))
        model.call(p.SetPolicy("/a", "me", replication=2, trash_after_s=9))
        model.call(p.Snapshot("/a", "/c", "me"))
        model.create("/open", first_chunk=True)
        model.call(p.DrainServer("s4"))
        image = b"".join(pack_image(model.brain))

        loaded = model._new_brain()
        load_image(loaded, [image[i : i + 1000] for i in range(0, len(image), 1000)])

        assert b"".join(pack_image(loaded)) == image
        loaded.check_invariants(everything=True)
        assert loaded.tables.chunks.unsealed == model.brain.tables.chunks.unsealed

    def test_2_6_3_what_the_log_says_is_exactly_what_was_answered(self) -> None:
        """GFS-25, M2: a replay of the log is the state."""
        model = Model(servers=4)
        model.put("/a/f", 3 * CHUNK)
        model.call(p.Rename("/a", "/z", "me"))
        model.put("/z/f", 5, overwrite=True)
        model.call(p.Delete("/z/f", "me"))
        before = b"".join(pack_image(model.brain))

        model.restart_brain()

        assert b"".join(pack_image(model.brain)) == before


class TestNamespace:
    def test_4_1_names_are_full_paths_and_nothing_else_leads_to_a_file(self) -> None:
        """GFS-55: a path is looked up as a whole; there are no links, so that a file has one name,
        and a deleted name leads nowhere."""
        model = Model()
        model.call(p.MakeDirectory("/a/b", "me", parents=True))
        model.put("/a/b/f")
        file_id = model.call(p.Stat("/a/b/f")).file_id

        model.call(p.Rename("/a/b", "/c", "me"))

        assert model.call(p.Stat("/c/f")).file_id == file_id
        with pytest.raises(NoSuchFile):
            model.call(p.Stat("/a/b/f"))
        assert [path for path in model.paths() if path.endswith("f")] == ["/c/f"]
        assert not any("Link" in name for name in dir(p) if name != "SpendLink")  # of a web page

    def test_4_1_changes_in_one_directory_are_independent_and_none_waits_for_another(self) -> None:
        """GFS-53, GFS-54: the brain takes one request at a time, so that there is no lock to take
        in a wrong order; a request that has to wait for servers holds up no other."""
        model = Model()
        for server in model.servers.values():
            server.is_mute = True
        stuck = model.begin(
            p.CreateFile("/d/stuck", "client", "me", parents=True, first_chunk=True)
        )
        assert not model.is_answered(stuck)

        model.create("/d/other", first_chunk=False)
        model.call(p.Rename("/d/other", "/d/renamed", "me"))
        model.call(p.Delete("/d/renamed", "me"))

        assert not model.is_answered(stuck)

    def test_2_6_1_a_scan_of_all_that_changed_drives_repair_and_collection(self) -> None:
        """GFS-24: nobody asks for it; ticks and heartbeats are enough."""
        model = Model(servers=4)
        model.put("/kept", 10)
        model.put("/gone", 10)
        (gone,) = (chunk.handle for chunk in model.locate("/gone"))
        model.kill(model.where("/kept")[0])
        model.call(p.Delete("/gone", "me", skip_trash=True))

        model.pass_time(20)

        assert len(model.where("/kept")) == 3
        up = [server for server in model.servers.values() if server.is_up]
        assert not any(gone in server.chunks for server in up)
