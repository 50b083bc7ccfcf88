"""A master that starts anew (GFS 5.1): what it knows, whom it serves, what it refuses.

The brain is the real one; the chunkservers are the small ones of `tests/support/dfs_model.py`.
"""

from __future__ import annotations

import pytest

from mrstream.cluster.errors import Unavailable
from mrstream.dfs import protocol as p
from mrstream.dfs.errors import NotRegistered, SafeMode
from mrstream.dfs.metadata.operations import ChunkAdded
from tests.support.dfs_model import CHUNK, Model


class TestFaultTolerance:
    def test_5_1_1_a_restarted_master_serves_as_soon_as_servers_have_reported(self) -> None:
        """GFS-74, and tells what is missing."""
        model = Model()
        model.put("/f", 10, replication=1)
        (holder,) = model.where("/f")
        other = next(name for name in model.servers if name != holder)
        model.restart_brain()

        model.register(model.servers[other])
        assert holder in model.call(p.Report()).safe_mode
        assert model.call(p.Stat("/f")).length_bytes == 10
        with pytest.raises(SafeMode):
            model.locate("/f")
        for server in model.servers.values():
            model.register(server)

        assert model.call(p.Report()).safe_mode == ""
        assert model.where("/f") == [holder]

    def test_5_1_1_safe_mode_ends_by_itself(self) -> None:
        model = Model()
        model.put("/f", 10)
        model.restart_brain()

        model.pass_time(model.settings.safe_mode_s_max + 1, beats=False)

        assert model.call(p.Report()).safe_mode == ""
        assert model.call(p.Report()).missing == 1

    def test_5_1_1_the_master_does_not_know_an_incarnation_from_before_its_restart(self) -> None:
        model = Model()
        model.restart_brain()

        with pytest.raises(NotRegistered, match="register first"):
            model.beat()

    def test_3_1_a_request_that_waits_too_long_is_refused_as_unavailable(self) -> None:
        """GFS-75: the client tries again."""
        model = Model()
        model.put("/f", 10)
        for server in model.servers.values():
            server.is_mute = True

        call = model.begin(p.FindLease("/f", 0))
        model.pass_time(10)

        with pytest.raises(Unavailable, match="no replica answered"):
            model.answer(call)

    def test_5_1_1_an_empty_chunk_that_every_server_forgot_does_not_block_its_file(self) -> None:
        model = Model()
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        for name, server in model.servers.items():
            model.kill(name)
            server.chunks.clear()
            model.restart(name)

        model.pass_time(70)

        status = model.call(p.Stat("/f"))
        assert (status.is_open, status.length_bytes, status.chunk_count) == (False, 0, 0)

    def test_5_3_the_story_of_a_chunk_says_what_happened_and_why(self) -> None:
        """GFS-84."""
        model = Model(servers=4)
        model.put("/f", 10)
        handle = model.locate("/f")[0].handle
        model.kill(model.where("/f")[0])
        model.pass_time(15)

        story = [line.text for line in model.call(p.Story(f"{handle:016x}"))]

        assert story[0].startswith("created as chunk 0 on ")
        assert any("is dead" in line for line in story)
        assert any(line.startswith("cloning version 1 from") for line in story)
        assert any("closed with 10 bytes" in line.text for line in model.call(p.Story("/f")))

    def test_6_2_2_chunks_are_logged_only_as_handles(self) -> None:
        model = Model()
        model.put("/f", 2 * CHUNK)

        added = [record for record in model.records() if isinstance(record, ChunkAdded)]
        assert len(added) == 2
