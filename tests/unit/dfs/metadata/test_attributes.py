"""Attributes: a few names with bytes each, which stay with a file whatever it is called."""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.errors import BadRequest, FileReplaced
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import Model


def attributes(model: Model, path: str) -> dict[str, bytes]:
    values: dict[str, bytes] = model.call(p.GetAttributes(path)).values
    return values


def tell(model: Model, path: str, changed: dict[str, bytes | None], **fields: object) -> None:
    model.call(p.SetAttributes(path, changed, "me", **fields))  # type: ignore[arg-type]


def test_they_are_changed_one_by_one_or_all_at_once() -> None:
    model = Model()
    model.put("/f", 5)

    tell(model, "/f", {"a": b"1", "b": b"2"})
    tell(model, "/f", {"a": None, "c": b"\x00\xff"})
    assert attributes(model, "/f") == {"b": b"2", "c": b"\x00\xff"}
    tell(model, "/f", {"d": b""}, replace_all=True)

    assert attributes(model, "/f") == {"d": b""}
    assert model.call(p.GetAttributes("/f")).status.length_bytes == 5


@pytest.mark.parametrize("way", ["log", "image"])
def test_they_outlive_rename_trash_snapshot_and_the_master(way: str) -> None:
    model = Model()
    model.put("/d/f", 5)
    tell(model, "/d/f", {"a": b"1"})
    tell(model, "/d", {"kind": b"place"})

    model.call(p.Snapshot("/d", "/copy", "me"))
    model.call(p.Rename("/d", "/e", "me"))
    hidden = model.call(p.Delete("/e/f", "me"))
    assert attributes(model, hidden) == {"a": b"1"}
    model.call(p.Undelete("/e/f", "me"))
    if way == "log":
        model.crash()
    else:
        brain = model._new_brain()
        load_image(brain, [b"".join(pack_image(model.brain))])
        model.lead(brain)

    for path in ("/e/f", "/copy/f"):
        assert attributes(model, path) == {"a": b"1"}
    for path in ("/e", "/copy"):
        assert attributes(model, path) == {"kind": b"place"}


def test_they_go_with_what_is_overwritten_and_cost_nothing_then() -> None:
    model = Model()
    model.put("/f", 5)
    tell(model, "/f", {"a": b"1"})

    model.put("/f", 6, overwrite=True)

    assert attributes(model, "/f") == {}
    assert model.brain.space.attributes == {}


def test_they_are_set_only_on_the_file_that_is_meant() -> None:
    model = Model()
    old = model.put("/f", 5).file_id
    new = model.put("/f", 6, overwrite=True).file_id

    with pytest.raises(FileReplaced):
        tell(model, "/f", {"a": b"1"}, file_id=old)
    tell(model, "/f", {"a": b"1"}, file_id=new)

    assert attributes(model, "/f") == {"a": b"1"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({f"n{i}": b"" for i in range(17)}, "17 attributes; at most 16"),
        ({"a": b"x" * 5000}, "bytes in all; at most 4096"),
        ({"": b"x"}, "cannot be"),
        ({"x" * 256: b""}, "cannot be"),
        ({"a\0": b""}, "cannot be"),
    ],
)
def test_what_is_too_much_is_refused_with_the_limit(
    changed: dict[str, bytes | None], message: str
) -> None:
    model = Model()
    model.put("/f", 5)

    with pytest.raises(BadRequest, match=message):
        tell(model, "/f", changed)
    opened = model.create("/g")
    with pytest.raises(BadRequest, match=message):
        model.call(
            p.CloseFile(opened.status.file_id, opened.epoch, 0, attributes=changed)  # type: ignore[arg-type]
        )

    assert attributes(model, "/f") == {}


def test_sixteen_of_them_are_not_too_many_however_often_they_are_set() -> None:
    model = Model()
    model.put("/f", 5)
    names = {f"n{i}": b"x" for i in range(16)}

    for _ in range(3):
        tell(model, "/f", dict(names))
    with pytest.raises(BadRequest):
        tell(model, "/f", {"one more": b""})

    assert attributes(model, "/f") == names


def test_a_directory_that_only_attributes_keep_goes_without_them() -> None:
    """A mark on the way to other keys is one, and the way is free again when it is taken off."""
    model = Model()
    model.call(p.MakeDirectory("/b", "me"))
    model.call(p.MakeDirectory("/b/x/y", "me", parents=True, implicit=True))
    model.call(p.SetAttributes("/b/x/y", {"mark": b""}, "me"))
    model.put("/b/x/y/f", 5)

    model.call(p.Delete("/b/x/y/f", "me", prune_to="/b"))
    assert "/b/x/y" in model.paths(), "the mark keeps it"
    model.put("/b/x/y/f", 5)
    model.call(p.SetAttributes("/b/x/y", {}, "me", replace_all=True))
    model.crash()
    model.call(p.Delete("/b/x/y/f", "me", prune_to="/b"))

    assert [path for path in model.paths() if path.startswith("/b")] == ["/b"]


def test_an_implicit_directory_that_is_asked_for_by_name_stays() -> None:
    model = Model()
    model.call(p.MakeDirectory("/b/x", "me", parents=True, implicit=True))
    model.call(p.MakeDirectory("/b/x", "me", parents=True, implicit=True))
    model.call(p.MakeDirectory("/b/x", "me", parents=True))
    model.put("/b/x/f", 5)

    model.call(p.Delete("/b/x/f", "me", prune_to="/b"))

    assert "/b/x" in model.paths()


def test_where_a_file_is_may_be_told_with_its_attributes() -> None:
    model = Model()
    model.put("/f", 3)
    model.call(p.SetAttributes("/f", {"a": b"1"}, "me"))

    assert model.call(p.Locate("/f")).values == {}
    both = model.call(p.Locate("/f", attributes=True))
    assert both.values == {"a": b"1"} and len(both.chunks) == 1
