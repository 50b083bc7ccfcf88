"""Quotas (EV-04, GFS-85): names and bytes of a directory, in Hadoop's way of counting.

The sums are compared with a count anew after every event (`check_invariants` in the model).
"""

from __future__ import annotations

from typing import Any

import pytest

from mrstream.cluster.wire.messages import ErrorReply
from mrstream.dfs import protocol as p
from mrstream.dfs.errors import (
    BadPath,
    BadRequest,
    NameQuotaExceeded,
    NotADirectory,
    SpaceQuotaExceeded,
)
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import CHUNK, Model


def limited(**limits: int) -> Model:
    model = Model()
    model.call(p.MakeDirectory("/q", "me"))
    model.call(p.SetQuota("/q", "me", **limits))
    return model


def used(model: Model, path: str = "/q") -> tuple[int, int]:
    reply = model.call(p.GetQuota(path))
    return reply.names_used, reply.space_used_bytes


class TestNames:
    def test_a_directory_counts_against_its_own_quota(self) -> None:
        """As in HDFS: a quota of one keeps it empty."""
        model = limited(names=1)

        with pytest.raises(NameQuotaExceeded, match="/q: may hold 1 files and directories, has 1"):
            model.create("/q/f")

        assert used(model) == (1, 0)

    def test_the_error_crosses_the_wire_with_directory_limit_and_use(self) -> None:
        model = limited(names=1)

        with pytest.raises(NameQuotaExceeded) as refusal:
            model.create("/q/f")

        error = ErrorReply.of(refusal.value).error()
        assert type(error) is NameQuotaExceeded
        assert error.details == {"path": "/q", "limit": 1, "used": 1}

    def test_parents_that_are_made_on_the_way_count(self) -> None:
        model = limited(names=3)

        with pytest.raises(NameQuotaExceeded, match="3 more"):
            model.put("/q/a/b/f", 0)
        assert model.paths() == ["/", "/q"], "nothing of it was made"
        model.put("/q/a/f", 0)

        assert used(model)[0] == 3

    def test_every_quota_above_counts_and_the_nearest_is_not_the_only_one(self) -> None:
        model = limited(names=5)
        model.call(p.MakeDirectory("/q/in", "me"))
        model.call(p.SetQuota("/q/in", "me", names=100))
        for number in range(3):
            model.put(f"/q/in/{number}", 0)

        with pytest.raises(NameQuotaExceeded, match="/q: "):
            model.put("/q/in/more", 0)

        assert used(model, "/q/in")[0] == 4

    def test_what_replaces_counts_once(self) -> None:
        model = limited(names=2)
        model.put("/q/f", 5)

        model.put("/q/f", 6, overwrite=True)

        assert used(model) == (2, 18)

    def test_a_quota_below_what_is_there_stops_what_is_new_and_nothing_else(self) -> None:
        model = Model()
        model.put("/q/a", 5)
        model.put("/q/b", 5)
        model.call(p.SetQuota("/q", "me", names=1))

        with pytest.raises(NameQuotaExceeded):
            model.put("/q/c", 0)
        model.call(p.Rename("/q/a", "/q/z", "me"))
        model.call(p.Delete("/q/b", "me"))

        assert used(model) == (2, 15)


class TestSpace:
    def test_a_chunk_counts_as_a_whole_one_until_it_is_sealed(self) -> None:
        model = limited(space_bytes=6 * CHUNK)
        opened = model.create("/q/f", first_chunk=True)
        assert opened.grant is not None
        assert used(model) == (2, 3 * CHUNK)

        model.write(opened.grant, 100)
        model.close(opened, 100)

        assert used(model) == (2, 300)

    def test_a_chunk_that_does_not_fit_is_refused_and_the_file_keeps_what_it_has(self) -> None:
        model = limited(space_bytes=5 * CHUNK)
        opened = model.create("/q/f", first_chunk=True)
        assert opened.grant is not None
        model.write(opened.grant, CHUNK)

        with pytest.raises(SpaceQuotaExceeded, match="/q: may hold 5242880 bytes"):
            model.call(p.AllocateChunk(opened.status.file_id, opened.epoch, 1))
        model.close(opened, CHUNK)

        assert used(model) == (2, 3 * CHUNK)

    def test_a_file_can_be_created_where_no_byte_can_be_written(self) -> None:
        """As in HDFS: a space quota of 0 permits files without bytes."""
        model = limited(space_bytes=0)
        opened = model.create("/q/f", first_chunk=True)

        assert opened.grant is None
        with pytest.raises(SpaceQuotaExceeded):
            model.call(p.AllocateChunk(opened.status.file_id, opened.epoch, 0))

    def test_of_two_that_ask_at_once_one_gets_the_last_room(self) -> None:
        """The servers answer later; the limit holds when the chunk is the file's."""
        model = limited(space_bytes=3 * CHUNK)
        one, two = model.create("/q/1"), model.create("/q/2")
        for server in model.servers.values():
            server.is_mute = True
        calls = [
            model.begin(p.AllocateChunk(opened.status.file_id, opened.epoch, 0))
            for opened in (one, two)
        ]
        questions = [(n, c) for n, c in model.sent if isinstance(c, p.CreateChunk)]
        for server in model.servers.values():
            server.is_mute = False
        for name, command in questions:
            model.call(model.servers[name].do(command))

        assert model.answer(calls[0]).index == 0
        with pytest.raises(SpaceQuotaExceeded):
            model.answer(calls[1])
        assert used(model) == (3, 3 * CHUNK)

    def test_to_append_takes_the_rest_of_the_chunk(self) -> None:
        model = limited(names=9)
        model.put("/q/f", 10)
        model.put("/q/g", 10)
        model.call(p.SetQuota("/q", "me", space_bytes=3 * CHUNK))
        opened = model.call(p.OpenAppend("/q/f", "c", "me"))

        with pytest.raises(SpaceQuotaExceeded):
            model.call(p.FindLease("", 0, opened.status.file_id, opened.epoch))
        model.call(p.Delete("/q/g", "me"))
        grant = model.call(p.FindLease("", 0, opened.status.file_id, opened.epoch))
        model.write(grant, 20)
        model.close(opened, 20)

        assert used(model) == (2, 60)

    def test_record_append_needs_room_too(self) -> None:
        model = limited(names=9)
        model.put("/q/f", 10)
        model.call(p.SetQuota("/q", "me", space_bytes=3 * CHUNK - 1))

        with pytest.raises(SpaceQuotaExceeded):
            model.call(p.AppendTarget("/q/f", "me"))

    def test_more_replicas_need_more_room(self) -> None:
        model = limited(space_bytes=400)
        model.put("/big", 0)
        model.call(p.SetQuota("/q", "me", space_bytes=10 * CHUNK))
        model.put("/q/f", 100)
        model.call(p.SetQuota("/q", "me", space_bytes=400))

        model.call(p.SetReplication("/q", 4, "me"))
        with pytest.raises(SpaceQuotaExceeded):
            model.call(p.SetReplication("/q/f", 5, "me"))
        model.call(p.SetReplication("/q/f", 1, "me"))

        assert used(model) == (2, 100)

    def test_a_snapshot_counts_as_a_copy(self) -> None:
        model = limited(space_bytes=500)
        model.put("/f", 100)

        model.call(p.Snapshot("/f", "/q/1", "me"))
        with pytest.raises(SpaceQuotaExceeded):
            model.call(p.Snapshot("/f", "/q/2", "me"))

        assert used(model) == (2, 300)


class TestMoving:
    def test_the_trash_counts_nothing_and_to_undelete_needs_room(self) -> None:
        model = limited(names=3, space_bytes=3 * CHUNK)
        model.put("/q/d/f", 100)
        model.call(p.Delete("/q/d", "me", recursive=True))
        assert used(model) == (1, 0)
        model.put("/q/g", 0)

        with pytest.raises(NameQuotaExceeded):
            model.call(p.Undelete("/q/d", "me"))
        model.call(p.Delete("/q/g", "me"))
        model.call(p.Undelete("/q/d", "me"))

        assert used(model) == (3, 300)

    def test_a_root_with_a_quota_does_not_count_the_trash(self) -> None:
        model = Model()
        model.call(p.SetQuota("/", "me", names=100, space_bytes=1 << 40))
        model.put("/a/f", 100)
        model.call(p.Delete("/a/f", "me"))

        assert used(model, "/") == (2, 0)

    def test_a_tree_is_moved_only_where_there_is_room(self) -> None:
        model = limited(names=3, space_bytes=3 * CHUNK)
        model.put("/t/a/f", 100)
        model.put("/s/f", 100)

        with pytest.raises(NameQuotaExceeded):
            model.call(p.Rename("/t", "/q/t", "me"))
        model.call(p.Rename("/s", "/q/s", "me"))
        model.call(p.Rename("/q/s/f", "/f", "me"))

        assert used(model) == (2, 0)

    def test_a_quota_goes_with_its_directory_through_the_trash_too(self) -> None:
        """Also when something in it is dropped there."""
        model = limited(names=10)
        model.put("/q/f", 100)
        model.put("/q/g", 100)
        model.call(p.Rename("/q", "/r", "me"))
        hidden = model.call(p.Delete("/r", "me", recursive=True))
        model.call(p.Delete(f"{hidden}/g", "me"))

        model.call(p.Undelete("/r", "me"))

        assert used(model, "/r") == (2, 300)
        model.call(p.Delete("/r", "me", recursive=True, skip_trash=True))
        assert not model.brain.space.quotas.by_row

    def test_what_is_finished_and_joined_counts_where_it_goes(self) -> None:
        model = limited(names=4, space_bytes=20 * CHUNK)
        parts = tuple(model.put(f"/u/{n}", CHUNK).file_id for n in range(2))
        model.call(p.JoinFiles("/q/k", parts, "me"))
        opened = model.create("/q/a/b", hidden=True)
        assert used(model) == (3, 6 * CHUNK)

        close = p.CloseFile(opened.status.file_id, opened.epoch, 0, "/q/a/b", parents=True)
        model.call(close)

        assert used(model) == (4, 6 * CHUNK)
        late = model.put("/late", 5)
        with pytest.raises(NameQuotaExceeded):
            model.call(p.JoinFiles("/q/z", (late.file_id,), "me"))
        model.call(p.JoinFiles("/q/a/b", (late.file_id,), "me", overwrite=True))
        assert used(model) == (4, 6 * CHUNK + 15)


class TestSetting:
    @pytest.mark.parametrize("way", ["log", "image"])
    def test_it_outlives_the_master(self, way: str) -> None:
        model = limited(names=10, space_bytes=30 * CHUNK)
        model.put("/q/f", CHUNK + 5)
        before = model.call(p.GetQuota("/q"))
        if way == "log":
            model.crash()
        else:
            brain = model._new_brain()
            load_image(brain, [b"".join(pack_image(model.brain))])
            model.lead(brain)

        assert model.call(p.GetQuota("/q")) == before
        assert before == p.QuotaReply(10, 2, 30 * CHUNK, 3 * (CHUNK + 5))

    def test_one_limit_is_set_and_taken_away_without_the_other(self) -> None:
        model = limited(names=10)
        model.call(p.SetQuota("/q", "me", space_bytes=5 * CHUNK))
        model.call(p.ClearQuota("/q", "me", names=True))
        assert model.call(p.GetQuota("/q")) == p.QuotaReply(-1, 1, 5 * CHUNK, 0)

        model.call(p.ClearQuota("/q", "me", space=True))

        assert model.call(p.GetQuota("/q")) == p.QuotaReply(-1, 0, -1, 0)
        model.put("/q/f", 5)

    @pytest.mark.parametrize(
        ("path", "limits", "error"),
        [
            ("/q", {"names": 0}, BadRequest),
            ("/q", {"names": -5}, BadRequest),
            ("/q", {"space_bytes": -2}, BadRequest),
            ("/q", {"names": 1 << 63}, BadRequest),
            ("/f", {"names": 5}, NotADirectory),
            ("/.trash", {"names": 5}, BadPath),
        ],
    )
    def test_what_cannot_be_a_quota_is_refused(
        self, path: str, limits: dict[str, int], error: type[Exception]
    ) -> None:
        model = limited(names=9)
        model.put("/f", 5)
        model.put("/g", 5)
        model.call(p.Delete("/g", "me"))

        with pytest.raises(error):
            model.call(p.SetQuota(path, "me", **limits))

    def test_without_a_quota_nothing_is_counted(self) -> None:
        """A million files cost nothing more."""
        model = Model()
        model.put("/d/f", 5)

        summed: list[Any] = []
        model.brain.space.quotas.sums = summed.append  # type: ignore[method-assign,assignment]
        model.put("/d/g", 5)
        model.call(p.Rename("/d", "/e", "me"))
        model.call(p.Delete("/e", "me", recursive=True))

        assert not summed
