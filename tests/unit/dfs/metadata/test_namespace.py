"""Names: creating, renaming, deleting, listing; and that the log alone rebuilds them."""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.errors import (
    BadPath,
    BadRequest,
    DirectoryNotEmpty,
    FileExists,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
    NotInTrash,
)
from tests.support.dfs_model import CHUNK, Model


def mkdir(model: Model, path: str, parents: bool = False) -> None:
    model.call(p.MakeDirectory(path, "me", parents=parents))


def test_a_directory_needs_its_parent_unless_parents_are_asked_for() -> None:
    model = Model()

    with pytest.raises(NoSuchFile, match="/a: no such directory"):
        mkdir(model, "/a/b")
    mkdir(model, "/a/b/c", parents=True)

    assert model.paths() == ["/", "/a", "/a/b", "/a/b/c"]
    mkdir(model, "/a/b", parents=True)
    with pytest.raises(FileExists):
        mkdir(model, "/a/b")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("relative", "not absolute"),
        ("/a/../b", r"has '\.\.' in it"),
        ("/a\0b", "NUL"),
        ("/" + "x" * 300, "300 bytes; at most 255"),
        ("/" + "x/" * 5000, "10001 bytes; at most 4096"),
        ("/" + "x/" * 300, "300 deep; at most 255"),
        ("/\ud800", "not valid Unicode"),
        ("/.trash/x", "only deleting fills"),
        ("/", "always exists"),
    ],
)
def test_a_bad_path_is_refused_and_the_reason_names_it(path: str, message: str) -> None:
    model = Model()

    with pytest.raises(BadPath, match=message):
        model.create(path)


def test_paths_are_canonicalised_once() -> None:
    model = Model()

    model.put("//a/./b//c/", 10)

    assert model.call(p.Stat("/a/b/c")).path == "/a/b/c"


def test_create_refuses_what_is_there_unless_told_to_overwrite() -> None:
    model = Model()
    model.put("/f", 10)
    mkdir(model, "/d")

    with pytest.raises(FileExists):
        model.create("/f")
    with pytest.raises(IsADirectory):
        model.create("/d", overwrite=True)
    with pytest.raises(NotADirectory):
        model.create("/f/below")
    model.put("/f", 20, overwrite=True)

    assert model.call(p.Stat("/f")).length_bytes == 20


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"chunk_bytes": 1000}, "multiple of 65536"),
        ({"replication": 100}, "must be 1 to 64"),
        ({"mode": 0o17777}, "mode is 17777"),
    ],
)
def test_create_names_the_limit_that_was_broken(fields: dict[str, int], message: str) -> None:
    model = Model()

    with pytest.raises(BadRequest, match=message):
        model.create("/f", **fields)
    assert model.paths() == ["/"]


def test_rename_moves_a_tree_at_once_and_keeps_its_ids() -> None:
    model = Model()
    model.put("/a/b/f", 10)
    before = model.call(p.Stat("/a/b/f"))

    model.call(p.Rename("/a", "/z", "me"))

    assert model.paths() == ["/", "/z", "/z/b", "/z/b/f"]
    assert model.call(p.Stat("/z/b/f")).file_id == before.file_id


def test_rename_refuses_to_lose_or_to_loop() -> None:
    model = Model()
    model.put("/a/f", 10)
    model.put("/b/g", 10)

    with pytest.raises(FileExists):
        model.call(p.Rename("/a/f", "/b/g", "me"))
    with pytest.raises(BadPath, match="into itself"):
        model.call(p.Rename("/a", "/a/x", "me"))
    with pytest.raises(NoSuchFile):
        model.call(p.Rename("/a/f", "/nowhere/f", "me"))
    with pytest.raises(DirectoryNotEmpty):
        model.call(p.Rename("/a", "/b", "me", overwrite=True))
    with pytest.raises(IsADirectory):
        model.call(p.Rename("/a/f", "/b", "me", overwrite=True))
    model.call(p.Rename("/a/f", "/b/g", "me", overwrite=True))

    assert model.paths() == ["/", "/a", "/b", "/b/g"]


def test_a_repeated_request_is_done_once_and_answered_twice_even_across_a_crash() -> None:
    """Fault gate 30: the client did not hear the answer and asks again."""
    model = Model()
    model.put("/f", 10)
    rename, delete = p.Rename("/f", "/g", "me"), p.Delete("/g", "me")

    assert model.call(rename, (7, 1)) is None
    model.crash()
    assert model.call(rename, (7, 1)) is None
    hidden = model.call(delete, (7, 2))
    model.crash()
    assert model.call(delete, (7, 2)) == hidden

    assert model.paths() == ["/"]


def test_a_repeated_create_gives_the_same_file_again() -> None:
    model = Model()
    create = p.CreateFile("/f", "client", "me", first_chunk=True)

    first = model.call(create, (7, 1))
    model.crash()
    again = model.call(create, (7, 1))

    assert (again.status.file_id, again.epoch) == (first.status.file_id, first.epoch)


def test_listing_comes_in_pages_in_name_order_and_hides_the_trash() -> None:
    model = Model()
    for name in ("b", "a", "c", "d"):
        mkdir(model, f"/{name}")
    model.call(p.Delete("/d", "me"))

    first = model.call(p.ListDirectory("/", limit=2))
    second = model.call(p.ListDirectory("/", first.next, limit=2))

    assert [e.path for e in first.entries] == ["/a", "/b"]
    assert [e.path for e in second.entries] == ["/c"]
    assert second.next == ""


def test_find_pages_go_on_where_they_stopped() -> None:
    model = Model()
    for path in ("/a/x/1", "/a/x/2", "/a/y", "/b", "/a/x/1x/z"):
        mkdir(model, path, parents=True)
    whole = model.paths()

    pages, start = [], ""
    while True:
        page = model.call(p.FindTree("/", start, limit=2))
        pages += [entry.path for entry in page.entries]
        if not page.next:
            break
        start = page.next

    assert pages == whole
    assert [e.path for e in model.call(p.FindTree("/a", depth_max=1)).entries] == [
        "/a", "/a/x", "/a/y"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("/logs/*", ["/logs/a1", "/logs/a2", "/logs/b1", "/logs/é"]),
        ("/logs/a?", ["/logs/a1", "/logs/a2"]),
        ("/logs/?", ["/logs/é"]),
        ("/logs/[ab]1", ["/logs/a1", "/logs/b1"]),
        ("/logs/[^a]1", ["/logs/b1"]),
        ("/logs/{a1,b1}", ["/logs/a1", "/logs/b1"]),
        ("/{logs,other}/b*", ["/logs/b1"]),
        ("/*/x/*", []),
        ("/logs", ["/logs"]),
        ("/st\\*r", ["/st*r"]),
        ("/*", ["/logs", "/st*r"]),
    ],
)
def test_globs_are_answered_by_the_master(pattern: str, found: list[str]) -> None:
    """GFS-57; the patterns are Hadoop's."""
    model = Model()
    for path in ("/logs/a1", "/logs/a2", "/logs/b1", "/logs/é", "/st*r"):
        model.put(path, 0)
    model.put("/gone", 0)
    model.call(p.Delete("/gone", "me"))

    assert [entry.path for entry in model.call(p.Glob(pattern)).entries] == found


def test_a_broken_glob_is_refused() -> None:
    model = Model()

    with pytest.raises(BadPath, match="Unclosed group near index 4"):
        model.call(p.Glob("/a{b"))
    with pytest.raises(BadPath, match="Unclosed character class"):
        model.call(p.Glob("/a[b"))


def test_sums_count_files_directories_and_replicated_bytes() -> None:
    model = Model()
    model.put("/d/f", 100, replication=2)
    model.put("/d/e/g", 50)

    whole = model.call(p.Summarise("/d"))[0]
    parts = model.call(p.Summarise("/d", children=True))

    assert (whole.directory_count, whole.file_count) == (2, 2)
    assert (whole.length_bytes, whole.stored_bytes) == (150, 350)
    assert [(s.path, s.length_bytes) for s in parts] == [("/d/e", 50), ("/d/f", 100)]


def test_undelete_brings_back_the_latest_and_makes_missing_parents() -> None:
    model = Model()
    model.put("/d/f", 10)
    model.call(p.Delete("/d/f", "me"))
    model.pass_time(2)
    model.put("/d/f", 20)
    model.call(p.Delete("/d", "me", recursive=True))

    assert model.call(p.Undelete("/d", "me")) == "/d"
    assert model.call(p.Stat("/d/f")).length_bytes == 20
    with pytest.raises(FileExists, match="move it away"):
        model.call(p.Undelete("/d/f", "me"))
    model.call(p.Delete("/d", "me", recursive=True, skip_trash=True))
    assert model.call(p.Undelete("/d/f", "me")) == "/d/f"
    assert model.call(p.Stat("/d/f")).length_bytes == 10
    with pytest.raises(NotInTrash):
        model.call(p.Undelete("/never", "me"))


def test_owner_mode_and_times_are_kept_across_a_restart() -> None:
    model = Model()
    model.put("/d/f", 10, mode=0o600, group="staff")
    model.call(p.SetOwner("/d", "me", "ann", "lab", recursive=True))
    model.call(p.SetMode("/d/f", 0o640, "me"))
    model.call(p.SetTimes("/d/f", "me", 5.0, 6.0))

    model.crash()

    status = model.call(p.Stat("/d/f"))
    assert (status.owner, status.group, status.mode) == ("ann", "lab", 0o640)
    assert (status.modified_at_s, status.accessed_at_s) == (5.0, 6.0)


def test_a_file_of_several_chunks_keeps_them_in_order() -> None:
    model = Model()
    model.put("/f", 3 * CHUNK + 5)

    model.crash()

    chunks = model.locate("/f")
    assert [chunk.length_bytes for chunk in chunks] == [CHUNK, CHUNK, CHUNK, 5]
    assert [chunk.index for chunk in chunks] == [0, 1, 2, 3]


def test_rows_are_used_again_but_ids_are_not() -> None:
    model = Model()
    seen = set()
    for _ in range(5):
        seen.add(model.put("/f", 1).file_id)
        model.call(p.Delete("/f", "me", skip_trash=True))

    assert len(seen) == 5
    assert len(model.brain.space.nodes.kind) == 2
