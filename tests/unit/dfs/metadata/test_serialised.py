"""Serialised appends (EV-08) as the master sees them: a rule of directories, and a length on which
all replicas agree before every lease."""

from __future__ import annotations

from typing import Any

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.errors import BadRequest, FileBusy
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import CHUNK, Model

PATH = "/exact/log"


def serialised(servers: int = 3) -> Model:
    model = Model(servers)
    model.call(p.MakeDirectory("/exact", "me"))
    model.call(p.SetPolicy("/exact", "me", appends=1))
    opened = model.create(PATH)
    model.call(p.CloseFile(opened.status.file_id, opened.epoch, 0))
    return model


def target(model: Model, **fields: Any) -> p.ChunkGrant:
    grant: p.ChunkGrant = model.call(p.AppendTarget(PATH, "me", once=True, **fields))
    return grant


def lengths(model: Model, grant: p.ChunkGrant) -> list[int]:
    return [model.servers[s.server].chunks[grant.handle].length for s in grant.replicas]


def set_lengths(model: Model, grant: p.ChunkGrant, *sizes: int) -> None:
    for server, size in zip(grant.replicas, sizes, strict=True):
        model.servers[server.server].chunks[grant.handle].length = size


class TestTheRule:
    def test_it_holds_below_its_directory_over_a_crash_and_a_checkpoint(self) -> None:
        model = serialised()
        model.call(p.MakeDirectory("/exact/deep", "me"))

        model.crash()
        again = model._new_brain()
        load_image(again, [b"".join(pack_image(model.brain))])

        for brain in (model.brain, again):
            rules = brain.query(p.GetPolicy("/exact/deep"), model.now_s)
            assert (rules.serialised, rules.appends_from) == (True, "/exact")
            assert not brain.query(p.GetPolicy("/"), model.now_s).serialised

    def test_it_is_set_and_taken_away_beside_the_others(self) -> None:
        model = serialised()
        model.call(p.SetPolicy("/exact", "me", replication=2))
        model.call(p.MakeDirectory("/exact/plain", "me"))
        model.call(p.SetPolicy("/exact/plain", "me", appends=0))

        assert model.call(p.GetPolicy("/exact")).serialised
        assert not model.call(p.GetPolicy("/exact/plain")).serialised
        model.call(p.SetPolicy("/exact", "me", appends=-2))
        rules = model.call(p.GetPolicy("/exact"))
        assert (rules.serialised, rules.replication) == (False, 2)

    def test_what_is_no_rule_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="appends is 7; it must be 0"):
            serialised().call(p.SetPolicy("/exact", "me", appends=7))

    def test_elsewhere_nothing_is_different(self) -> None:
        model = serialised()
        opened = model.create("/plain")
        model.call(p.CloseFile(opened.status.file_id, opened.epoch, 0))

        grant = model.call(p.AppendTarget("/plain", "me"))

        assert not grant.serialised
        failed = model.call(p.AppendTarget("/plain", "me", version=grant.version))
        assert failed.version == grant.version + 1
        assert all(c.cut_to == -1 for _, c in model.sent if isinstance(c, p.SetVersion))
        assert all(c.before is None for _, c in model.sent if isinstance(c, p.CreateChunk))


class TestGrants:
    def test_after_a_failure_all_are_cut_to_what_all_have(self) -> None:
        model = serialised()
        first = target(model)
        assert first.serialised
        set_lengths(model, first, 130, 100, 130)

        again = target(model, version=first.version, handle=first.handle)

        assert again.handle == first.handle and again.version > first.version
        assert lengths(model, again) == [100, 100, 100]

    def test_whoever_failed_is_left_out_and_does_not_hold_the_others_up(self) -> None:
        model = serialised()
        first = target(model)
        set_lengths(model, first, 130, 130, 100)
        failed = first.replicas[2].server
        model.servers[failed].is_mute = True

        again = target(model, version=first.version, handle=first.handle, failed=(failed,))

        assert [s.server for s in again.replicas] == [s.server for s in first.replicas[:2]]
        assert lengths(model, again) == [130, 130]

    def test_a_version_of_a_chunk_that_is_gone_means_nothing(self) -> None:
        """Sealed while empty it was taken off; the new one has the same first version."""
        model = serialised()
        first = target(model)

        second = target(model, version=first.version, handle=first.handle)
        third = target(model, version=first.version, handle=first.handle)

        assert second.handle != first.handle and third.handle == second.handle

    def test_the_next_chunk_begins_with_the_table_of_the_full_one(self) -> None:
        model = serialised()
        first = target(model)
        set_lengths(model, first, CHUNK, CHUNK, CHUNK)

        second = target(model, full=first.handle, version=first.version, handle=first.handle)

        assert second.index == 1
        made = [c for _, c in model.sent if isinstance(c, p.CreateChunk)][-1]
        assert made.before is not None
        assert (made.before.handle, made.before.length_bytes) == (first.handle, CHUNK)
        assert len(made.before.sources) == 3

    def test_a_lease_from_before_the_rule_does_not_count(self) -> None:
        model = serialised()
        model.call(p.SetPolicy("/exact", "me", appends=-2))
        plain = target(model)
        set_lengths(model, plain, 10, 20, 20)
        model.call(p.SetPolicy("/exact", "me", appends=1))

        grant = target(model)

        assert (plain.serialised, grant.serialised) == (False, True)
        assert grant.version > plain.version
        assert lengths(model, grant) == [10, 10, 10]

    def test_a_master_that_took_over_has_them_agree_anew(self) -> None:
        model = serialised()
        first = target(model)
        set_lengths(model, first, 100, 130, 130)
        model.crash()

        again = target(model)

        assert again.version > first.version and lengths(model, again) == [100, 100, 100]


class TestWhoElseWrites:
    def test_a_client_that_cannot_say_whose_an_append_is_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="this client is of a version that cannot say"):
            serialised().call(p.AppendTarget(PATH, "me"))

    def test_nobody_overwrites_what_others_append_to(self) -> None:
        model = serialised()
        target(model)

        with pytest.raises(BadRequest, match="appends are serialised there"):
            model.call(p.FindLease(PATH, 0))

    def test_an_exclusive_writer_says_itself_what_goes_where(self) -> None:
        model = serialised()
        set_lengths(model, target(model), 50, 50, 50)
        opened = model.call(p.OpenAppend(PATH, "c", "me"))
        assert opened.status.length_bytes == 50

        grant = model.call(p.FindLease(PATH, 0, opened.status.file_id, opened.epoch))

        assert not grant.serialised
        with pytest.raises(FileBusy):
            target(model)
        model.write(grant, 80)
        model.call(p.CloseFile(opened.status.file_id, opened.epoch, 80))
        after = target(model)
        assert after.serialised and lengths(model, after) == [80, 80, 80]
