"""Record append (GFS 3.3), as the master sees it; clients are in `test_gfs_client.py`.

The brain is the real one; the chunkservers are the small ones of `tests/support/dfs_model.py`.
"""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.errors import FileBusy
from tests.support.dfs_model import CHUNK, Model


class TestRecordAppend:
    def test_3_3_many_clients_share_the_last_chunk_and_go_on_to_the_next_when_it_is_full(
        self,
    ) -> None:
        """GFS-43, GFS-44, GFS-47."""
        model = Model()
        model.put("/log", 0)

        first = model.call(p.AppendTarget("/log", "me"))
        assert model.call(p.AppendTarget("/log", "you")) == first
        model.write(first, CHUNK)
        second = model.call(p.AppendTarget("/log", "me", first.handle))

        assert second.index == 1
        assert model.call(p.Stat("/log")).length_bytes == CHUNK
        model.write(second, 77)
        model.pass_time(130)  # nobody extends: idle, and so sealed
        for server in model.servers.values():
            server.leases.clear()
        model.pass_time(130)
        assert model.call(p.Stat("/log")).length_bytes == CHUNK + 77

    def test_3_3_a_chunk_that_only_a_client_calls_full_is_not_left_behind(self) -> None:
        model = Model()
        model.put("/log", 0)
        first = model.call(p.AppendTarget("/log", "me"))
        model.write(first, 1000)

        grant = model.call(p.AppendTarget("/log", "me", first.handle, first.version))

        assert grant.handle == first.handle and grant.version > first.version

    def test_3_3_an_idle_file_is_sealed_at_the_length_that_all_replicas_have(self) -> None:
        """GFS-46: failed tries may leave replicas that differ at the end."""
        model = Model()
        model.put("/log", 0)
        grant = model.call(p.AppendTarget("/log", "me"))
        model.write(grant, 500)
        model.servers[grant.replicas[1].server].chunks[grant.handle].length = 900
        for server in model.servers.values():
            server.leases.clear()

        model.pass_time(70)

        assert model.call(p.Stat("/log")).length_bytes == 500
        assert {s.chunks[grant.handle].length for s in model.servers.values()} == {500}

    def test_3_3_an_exclusive_writer_keeps_appenders_out(self) -> None:
        model = Model()
        model.create("/f", first_chunk=True)

        with pytest.raises(FileBusy, match="exclusive writer"):
            model.call(p.AppendTarget("/f", "me"))
