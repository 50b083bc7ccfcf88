"""Leases, and who may write (GFS 3.1): does the master do what the paper says?

The brain is the real one; the chunkservers are the small ones of `tests/support/dfs_model.py`.
"""

from __future__ import annotations

import msgspec
import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import Epoch
from mrstream.dfs.errors import FileBusy, FileExists, NoSuchFile, WriterFenced
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.metadata.operations import Renamed, parts_of
from mrstream.dfs.oplog import encode_record
from tests.support.dfs_model import Model, grant_of


class TestLeases:
    def test_3_1_a_lease_is_for_60_s_and_its_holder_is_the_primary(self) -> None:
        """GFS-33."""
        model = Model()

        opened = model.create("/f", first_chunk=True)

        assert opened.grant is not None and opened.grant.lease_s == 60.0
        holders = [s.id for s in model.servers.values() if opened.grant.handle in s.leases]
        assert holders == [opened.grant.primary]

    def test_3_1_extensions_ride_on_heartbeats(self) -> None:
        """GFS-34: a writer of five minutes keeps its lease without another request."""
        model = Model()
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        before = len(model.sent)

        for _ in range(30):
            model.pass_time(10)
            model.call(p.KeepAlive("client", (opened.epoch,)))

        model.write(opened.grant, 100)
        assert len(model.sent) == before
        assert model.close(opened, 100).length_bytes == 100

    def test_3_1_a_lost_primary_is_waited_for_before_another_gets_the_lease(self) -> None:
        """GFS-36, M3: until the old term is over, or the holder is known to have stopped."""
        model = Model(servers=4)
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 100)
        lost = opened.grant.primary
        model.servers[lost].is_up = False  # cut off: it may still act on its lease

        call = model.begin(
            p.FindLease("", 0, opened.status.file_id, opened.epoch, opened.grant.version, (lost,))
        )
        model.pass_time(model.settings.contact_s)
        assert not model.is_answered(call)
        model.pass_time(model.settings.dead_after_s - model.settings.contact_s + 1)

        grant = model.answer(call)
        assert grant.primary != lost
        assert grant.version > opened.grant.version
        model.write(grant, 200)

    def test_3_1_a_writer_goes_on_in_a_new_chunk_when_its_empty_one_was_taken_off(self) -> None:
        """The version that failed it was the old chunk's: the new one begins below that."""
        model = Model(servers=4)
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        one, other = (r.server for r in opened.grant.replicas if r.server != opened.grant.primary)
        grant = grant_of(model, opened, version=opened.grant.version, failed=(one,))

        # One copy is left after this: it is sealed to be cloned, found empty, and taken off.
        ask = p.FindLease("", 0, opened.status.file_id, opened.epoch, grant.version, (other,))
        call = model.begin(ask)
        model.pass_time(2)
        fresh = model.answer(call)

        assert fresh.handle != grant.handle and fresh.version < grant.version
        model.write(fresh, 100)
        assert model.close(opened, 100).length_bytes == 100

    def test_3_1_a_version_far_above_any_is_answered_with_what_there_is(self) -> None:
        """Nothing that a client says makes the master look for a grant without end."""
        model = Model()
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None

        assert grant_of(model, opened, version=1 << 62) == opened.grant

    def test_3_1_a_primary_that_started_anew_has_no_lease_and_is_not_waited_for(self) -> None:
        model = Model()
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 100)

        model.kill(opened.grant.primary)
        model.restart(opened.grant.primary)
        grant = grant_of(model, opened, version=opened.grant.version)

        assert grant.version > opened.grant.version
        assert len(grant.replicas) == 3

    def test_3_1_a_restarted_master_honours_the_leases_that_servers_report(self) -> None:
        """M3 across a restart of the master."""
        model = Model()
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 100)

        model.crash()
        model.write(opened.grant, 200)  # the writer and its primary just go on
        assert model.close(opened, 200).length_bytes == 200

    def test_3_1_a_failed_replica_is_left_out_of_the_next_grant(self) -> None:
        """GFS-38: pipeline repair; the version tells the one left out from the others."""
        model = Model(servers=3)
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 100)
        bad = next(a.server for a in opened.grant.replicas if a.server != opened.grant.primary)

        grant = grant_of(model, opened, version=opened.grant.version, failed=(bad,))
        model.write(grant, 200)
        model.close(opened, 200)

        assert bad not in model.where("/f")
        model.pass_time(5)
        assert len(model.where("/f")) == 3  # repaired in place, since there is no fourth

    def test_3_1_a_chunk_that_never_took_a_byte_is_replaced_by_one_elsewhere(self) -> None:
        model = Model(servers=6)
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        failed = tuple(address.server for address in opened.grant.replicas)
        for name in failed:
            model.kill(name)

        grant = model.call(
            p.AllocateChunk(opened.status.file_id, opened.epoch, 0, "", opened.grant.handle, failed)
        )

        assert grant.handle != opened.grant.handle
        assert not {address.server for address in grant.replicas} & set(failed)
        model.write(grant, 10)
        assert model.close(opened, 10).chunk_count == 1

    def test_3_1_a_second_writer_is_refused_and_a_silent_one_is_fenced(self) -> None:
        """Fault gates 12 and 15: the length is what all replicas agree on."""
        model = Model()
        opened = model.create("/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 100)
        replicas = [address.server for address in opened.grant.replicas]
        model.servers[replicas[0]].chunks[opened.grant.handle].length = 150  # never acknowledged

        with pytest.raises(FileBusy, match="being written by client"):
            model.call(p.OpenAppend("/f", "other", "me"))
        model.pass_time(61)

        status = model.call(p.Stat("/f"))
        assert (status.length_bytes, status.is_open) == (100, False)
        assert all(model.servers[r].chunks[opened.grant.handle].length == 100 for r in replicas)
        with pytest.raises(WriterFenced):
            model.close(opened, 150)
        with pytest.raises(AssertionError, match="stale"):
            model.write(opened.grant, 200)

    def test_3_1_a_writer_that_keeps_in_touch_is_not_fenced(self) -> None:
        model = Model()
        opened = model.create("/f", first_chunk=True)

        for _ in range(10):
            model.pass_time(20)
            assert model.call(p.KeepAlive("client", (opened.epoch, Epoch(99)))) == (Epoch(99),)

        assert model.close(opened, 0).length_bytes == 0

    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_3_1_giving_up_an_append_keeps_what_the_file_had(self, is_restarted: bool) -> None:
        """Nothing acknowledged is lost: only a file that its writer created disappears with it."""
        model = Model()
        model.put("/old", 100)
        appending = model.call(p.OpenAppend("/old", "client", "me"))
        creating = model.create("/new", first_chunk=True)
        model.write(grant_of(model, appending), 150)
        if is_restarted:
            blocks = list(pack_image(model.brain))
            model.restart_brain()
            fresh = model._new_brain()
            load_image(fresh, iter(blocks))
            model.lead(fresh)
            for server in model.servers.values():
                model.register(server)

        for opened in (appending, creating):
            model.call(p.AbandonFile(opened.status.file_id, opened.epoch))
        model.pass_time(5)

        status = model.call(p.Stat("/old"))
        assert (status.length_bytes, status.is_open) == (150, False)
        with pytest.raises(NoSuchFile):
            model.call(p.Stat("/new"))
        with pytest.raises(WriterFenced):
            grant_of(model, appending)

    def test_3_1_a_file_may_get_its_name_when_it_is_closed(self) -> None:
        """Closed and named in one step: until then what was there is there."""
        model = Model()
        model.put("/f", 10)
        opened = model.create("/f.tmp", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 70)
        close = p.CloseFile(opened.status.file_id, opened.epoch, 70, "/f")
        with pytest.raises(FileExists):
            model.call(close)
        assert model.call(p.Stat("/f")).length_bytes == 10

        close = msgspec.structs.replace(close, overwrite=True)
        status = model.call(close, request_id=(7, 7))

        assert (status.path, status.length_bytes) == ("/f", 70)
        assert model.paths() == ["/", "/f"]
        model.crash()
        model.call(p.Rename("/f", "/g", "me"))
        assert model.call(close, request_id=(7, 7)).path == "/g", "a repeat changes nothing"

    def test_3_1_a_master_that_died_between_closing_and_naming_names_it_when_asked_again(
        self,
    ) -> None:
        """The two are one record of the log; in a log of format 1 they are two."""
        model = Model()
        opened = model.create("/f.tmp", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, 70)
        close = p.CloseFile(opened.status.file_id, opened.epoch, 70, "/f")
        model.call(close, request_id=(7, 7))
        closed, named = parts_of(model.records()[-1])
        assert isinstance(named, Renamed)
        model.log[-1] = encode_record(msgspec.structs.replace(closed, request=(0, 0)))
        model.crash()
        assert model.paths() == ["/", "/f.tmp"]

        model.call(close, request_id=(7, 7))

        assert model.paths() == ["/", "/f"]

    def test_3_1_appending_goes_on_at_the_end_of_the_last_chunk(self) -> None:
        model = Model()
        model.put("/f", 100)

        opened = model.call(p.OpenAppend("/f", "other", "me"))
        grant = grant_of(model, opened)
        model.write(grant, 300)
        model.close(opened, 300)

        assert model.locate("/f")[0].length_bytes == 300
        assert model.call(p.Stat("/f")).chunk_count == 1
