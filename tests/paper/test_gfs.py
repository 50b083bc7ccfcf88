"""Does the master do what the paper says? One test a requirement, named after its section.

The brain is the real one; the chunkservers are the small ones of `tests/support/dfs_model.py`. What
chunkservers and clients must do is in `test_gfs_chunks.py`.
"""

from __future__ import annotations

import msgspec
import pytest

from mrstream.cluster.errors import Unavailable
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, Epoch
from mrstream.dfs.errors import (
    FileBusy,
    FileExists,
    NoReplica,
    NoServers,
    NoSuchFile,
    NotRegistered,
    SafeMode,
    WriterFenced,
)
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.metadata.operations import (
    ChunkAdded,
    ChunkGranted,
    ChunkSealed,
    Renamed,
    Snapshotted,
    Trashed,
    parts_of,
)
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import encode_record
from tests.support.dfs_model import CHUNK, DISK_BYTES, Model


def grant_of(model: Model, opened: p.OpenFile, index: int = 0, **fields: object) -> p.ChunkGrant:
    """What a writer asks when a mutation failed."""
    ask = p.FindLease(
        "",
        index,
        opened.status.file_id,
        opened.epoch,
        **fields,  # type: ignore[arg-type]
    )
    grant: p.ChunkGrant = model.call(ask)
    return grant


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
        from tests.support.dfs_model import Held

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

        from tests.support.dfs_model import Held

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
