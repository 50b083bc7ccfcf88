"""How a finished file gets its path: hidden until then, under conditions, in one decision."""

from __future__ import annotations

from typing import Any

import pytest

from mrstream.cluster.errors import ClusterError
from mrstream.dfs import protocol as p
from mrstream.dfs.errors import (
    BadPath,
    BadRequest,
    DirectoryNotEmpty,
    FileExists,
    FileReplaced,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
)
from mrstream.dfs.metadata.trash import UNFINISHED_S_MAX, UPLOADS_S_MAX
from tests.support.dfs_model import Model


def begin(model: Model, path: str, length: int = 0, **fields: Any) -> tuple[p.OpenFile, int]:
    opened = model.create(path, hidden=True, first_chunk=length > 0, **fields)
    if length:
        assert opened.grant is not None
        model.write(opened.grant, length)
    return opened, length


def finish(model: Model, begun: tuple[p.OpenFile, int], path: str, **fields: Any) -> p.FileStatus:
    opened, length = begun
    ask = p.CloseFile(opened.status.file_id, opened.epoch, length, path, **fields)
    status: p.FileStatus = model.call(ask)
    return status


class TestHidden:
    def test_nothing_shows_what_is_not_finished(self) -> None:
        model = Model()
        model.put("/d/f", 5)

        opened, _ = begin(model, "/d/g")
        name = opened.status.path

        assert name.startswith("/d/.mrstream-")
        assert model.paths() == ["/", "/d", "/d/f"]
        assert [e.path for e in model.call(p.ListDirectory("/d")).entries] == ["/d/f"]
        assert [e.path for e in model.call(p.Glob("/d/*")).entries] == ["/d/f"]
        assert [e.path for e in model.call(p.Glob("/d/.*")).entries] == []
        assert [e.key for e in model.call(p.FindKeys("/d")).entries] == ["f"]
        assert model.call(p.Stat(name)).is_open
        assert name in [fact.status.path for fact in model.call(p.Fsck("/")).files]

    def test_pages_of_a_listing_pass_over_any_number_of_them(self) -> None:
        model = Model()
        for number in range(30):
            begin(model, "/x")
            model.put(f"/{'-.a'[number % 3]}{number:02}", 0)

        listed, after = [], ""
        while True:
            page = model.call(p.ListDirectory("/", after, 4))
            listed += [e.path for e in page.entries]
            assert len(page.entries) == 4 or not page.next
            if not page.next:
                break
            after = page.next

        assert listed == model.paths()[1:]
        assert len(listed) == 30

    def test_two_writers_of_one_path_do_not_disturb_each_other_and_the_last_wins(self) -> None:
        """S3 allows it; with one temporary name the first was fenced by the second."""
        model = Model()
        first, second = begin(model, "/k", 10), begin(model, "/k", 20)

        finish(model, second, "/k", overwrite=True)
        finish(model, first, "/k", overwrite=True)

        assert model.call(p.Stat("/k")).length_bytes == 10
        assert model.paths() == ["/", "/k"]

    def test_it_lies_in_the_nearest_directory_so_that_rules_there_hold(self) -> None:
        model = Model()
        model.call(p.MakeDirectory("/b", "me"))
        model.call(p.SetPolicy("/b", "me", replication=1))

        opened, _ = begin(model, "/b/x/y/z")

        assert opened.status.path.rpartition("/")[0] == "/b"
        assert opened.status.replication == 1
        assert model.paths() == ["/", "/b"]

    @pytest.mark.parametrize(
        ("path", "fields", "error"),
        [
            ("/d", {}, IsADirectory),
            ("/d/f", {}, FileExists),
            ("/d/f/x", {}, NotADirectory),
            ("/e/x", {"parents": False}, NoSuchFile),
        ],
    )
    def test_what_cannot_be_is_refused_before_a_byte_is_sent(
        self, path: str, fields: dict[str, bool], error: type[Exception]
    ) -> None:
        model = Model()
        model.put("/d/f", 5)

        with pytest.raises(error):
            begin(model, path, **fields)

    def test_a_directory_in_which_something_is_written_is_not_dropped_as_empty(self) -> None:
        model = Model()
        model.call(p.MakeDirectory("/d", "me"))
        begin(model, "/d/f")

        with pytest.raises(DirectoryNotEmpty, match="something in it is being written"):
            model.call(p.Delete("/d", "me"))

    def test_a_silent_writers_unfinished_file_goes(self) -> None:
        """Closed at half its length it would be of no use to anybody."""
        model = Model()
        model.put("/f", 3)
        begin(model, "/f", 10, overwrite=True)

        model.pass_time(model.settings.writer_silence_s_max + 2)

        assert model.call(p.Stat("/f")).length_bytes == 3
        assert not model.brain.space.nodes.hidden
        assert model.brain.file_count == 1

    def test_what_was_left_closed_under_such_a_name_goes_after_a_day(self) -> None:
        model = Model()
        model.put("/f", 3)
        model.call(p.Snapshot("/f", "/.mrstream-copy", "me"))
        model.call(p.SetTimes("/.mrstream-copy", "me", model.wall_s))

        model.pass_time(10)
        assert model.call(p.Stat("/.mrstream-copy"))
        model.wall_s += UNFINISHED_S_MAX
        model.pass_time(10)

        with pytest.raises(NoSuchFile):
            model.call(p.Stat("/.mrstream-copy"))

    def test_uploads_in_parts_stay_for_a_week(self) -> None:
        model = Model()
        model.put("/b/.mrstream-uploads/1/00001", 3)
        model.wall_s += UPLOADS_S_MAX - 60
        model.put("/b/.mrstream-uploads/2/00001", 3)
        model.pass_time(10)
        assert model.call(p.Stat("/b/.mrstream-uploads/1"))

        model.wall_s += 60
        model.pass_time(10)

        left = [e.path for e in model.call(p.ListDirectory("/b/.mrstream-uploads")).entries]
        assert left == ["/b/.mrstream-uploads/2"]


class TestConditions:
    def test_compare_and_swap(self) -> None:
        """If-Match: of two that read the same version only one may replace it."""
        model = Model()
        read = model.put("/k", 3).file_id
        first, second = (
            begin(model, "/k", 10, overwrite=True),
            begin(model, "/k", 20, overwrite=True),
        )

        finish(model, first, "/k", replaces=read)
        with pytest.raises(FileReplaced):
            finish(model, second, "/k", replaces=read)

        assert model.call(p.Stat("/k")).length_bytes == 10
        assert second[0].epoch in model.brain.space.epochs, "it may try otherwise, or give up"

    def test_only_if_nothing_is_there(self) -> None:
        model = Model()
        first, second = begin(model, "/k", 10), begin(model, "/k", 20)

        finish(model, first, "/k", replaces=p.NO_FILE)
        with pytest.raises(FileExists):
            finish(model, second, "/k", replaces=p.NO_FILE, overwrite=True)

        assert model.call(p.Stat("/k")).length_bytes == 10

    def test_only_if_it_is_still_there(self) -> None:
        model = Model()
        read = model.put("/k", 3).file_id
        begun = begin(model, "/k", 10, overwrite=True)
        model.call(p.Delete("/k", "me"))

        with pytest.raises(NoSuchFile):
            finish(model, begun, "/k", replaces=read)

    def test_what_is_replaced_is_kept_where_the_policy_says_so(self) -> None:
        model = Model()
        model.put("/a/k", 3)
        model.put("/b/k", 3)
        model.call(p.SetPolicy("/b", "me", trash_after_s=0))
        for path in ("/a/k", "/b/k"):
            begun = begin(model, path, 10, overwrite=True)
            finish(model, begun, path, overwrite=True, keep_replaced=True)

        assert [t.original_path for t in model.call(p.ListTrash())] == ["/a/k"]

    def test_conditions_need_a_path(self) -> None:
        model = Model()
        opened = model.create("/f")

        with pytest.raises(BadRequest, match="rename_to"):
            model.call(p.CloseFile(opened.status.file_id, opened.epoch, 0, replaces=p.NO_FILE))


class TestImplicitDirectories:
    def put(self, model: Model, path: str) -> None:
        finish(model, begin(model, path), path, parents=True)

    def test_they_come_with_a_key_and_go_with_the_last(self) -> None:
        """No ghost prefixes: an object store has no directories."""
        model = Model()
        model.call(p.MakeDirectory("/b", "me"))
        self.put(model, "/b/x/y/1")
        self.put(model, "/b/x/2")

        model.call(p.Delete("/b/x/y/1", "me", prune_to="/b"))
        assert model.paths() == ["/", "/b", "/b/x", "/b/x/2"]
        model.call(p.Delete("/b/x/2", "me", skip_trash=True, prune_to="/b"))

        assert model.paths() == ["/", "/b"]
        model.crash()
        assert model.paths() == ["/", "/b"]

    @pytest.mark.parametrize(
        "keep",
        [
            p.MakeDirectory("/b/x", "me", parents=True),
            p.SetAttributes("/b/x", {"marker": b""}, "me"),
            p.SetPolicy("/b/x", "me", replication=2),
        ],
        ids=lambda r: type(r).__name__,
    )
    def test_one_that_was_asked_for_stays(self, keep: Any) -> None:
        model = Model()
        self.put(model, "/b/x/y/1")
        model.call(keep)

        model.call(p.Delete("/b/x/y/1", "me", prune_to="/b"))

        assert model.paths() == ["/", "/b", "/b/x"]

    def test_only_what_is_above_can_be_pruned(self) -> None:
        model = Model()
        model.put("/a/f", 1)

        with pytest.raises(BadPath, match="not above"):
            model.call(p.Delete("/a/f", "me", prune_to="/b"))


class TestReadingOn:
    def test_a_file_is_found_by_its_id_whatever_it_is_called(self) -> None:
        model = Model()
        old = model.put("/f", 5).file_id
        model.call(p.Rename("/f", "/g", "me"))
        model.put("/f", 7)

        located = model.call(p.Locate("/f", file_id=old))
        model.call(p.Delete("/g", "me"))
        hidden = model.call(p.Locate("/f", file_id=old))

        assert (located.status.path, located.status.length_bytes) == ("/g", 5)
        assert hidden.status.path.startswith("/.trash/")
        assert hidden.chunks == located.chunks

    def test_one_that_is_gone_is_not_taken_for_the_one_that_has_its_path(self) -> None:
        """A reader got 8 chunks of the old file and 32 of the new."""
        model = Model()
        old = model.put("/f", 5).file_id
        model.put("/f", 7, overwrite=True)

        with pytest.raises(FileReplaced, match="open it again"):
            model.call(p.Locate("/f", file_id=old))
        model.call(p.Delete("/f", "me"))
        with pytest.raises(NoSuchFile):
            model.call(p.Locate("/f", file_id=old))


class TestDeletingUnderConditions:
    def test_only_the_very_file_that_was_meant_goes(self) -> None:
        model = Model()
        model.put("/a/f", 1)
        old = model.call(p.Stat("/a/f")).file_id
        finish(model, begin(model, "/a/f", overwrite=True), "/a/f", overwrite=True)

        with pytest.raises(FileReplaced, match="was to be deleted"):
            model.call(p.Delete("/a/f", "me", file_id=old))

        assert "/a/f" in model.paths()
        found = model.call(p.Stat("/a/f")).file_id
        model.call(p.Delete("/a/f", "me", file_id=found))
        assert "/a/f" not in model.paths()

    def test_what_is_being_written_goes_with_its_directory_if_that_is_asked(self) -> None:
        model = Model()
        model.call(p.MakeDirectory("/b", "me"))
        opened = begin(model, "/b/f")
        with pytest.raises(DirectoryNotEmpty, match="being written"):
            model.call(p.Delete("/b", "me", skip_trash=True))

        model.call(p.Delete("/b", "me", skip_trash=True, unseen=True))

        assert model.paths() == ["/"]
        with pytest.raises(ClusterError):
            finish(model, opened, "/b/f", parents=True)
        assert model.paths() == ["/"], "the writer brings nothing back"

    def test_what_can_be_seen_keeps_its_directory(self) -> None:
        model = Model()
        model.put("/b/f", 1)
        begin(model, "/b/g")

        with pytest.raises(DirectoryNotEmpty, match="not empty"):
            model.call(p.Delete("/b", "me", skip_trash=True, unseen=True))
