"""Keys to the doors: made, revoked, spent; told to gateways as changes. No secret is in any."""

from __future__ import annotations

from typing import Any

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.errors import AlreadySpent, BadPath, BadRequest, FileExists, NoSuchKey
from mrstream.dfs.metadata import keys
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import Model


def key_id(number: int) -> str:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    return (
        "MR" + "A" * 15 + digits[number // 1024] + digits[number // 32 % 32] + digits[number % 32]
    )


def make(model: Model, number: int, **fields: Any) -> None:
    model.call(p.MakeKey(key_id(number), f"key-{number}", "ann", **fields))


def since(model: Model, version: int) -> tuple[bool, list[str], list[str]]:
    table = model.call(p.KeysSince(version))
    return table.is_whole, [key.name for key in table.keys], list(table.revoked)


def test_a_gateway_is_told_what_changed_since_it_last_asked() -> None:
    model = Model()
    make(model, 1, paths=("/data//x/", "/b"), rights="r", expires_at_s=model.wall_s + 10)
    make(model, 2)
    table = model.call(p.KeysSince())
    assert table.is_whole and len(table.keys) == 2
    assert (table.keys[0].paths, table.keys[0].rights) == (("/data/x", "/b"), "r")

    make(model, 3)
    model.call(p.RevokeKey("key-1"))

    assert since(model, table.version) == (False, ["key-3"], [key_id(1)])
    assert since(model, model.call(p.KeysSince()).version) == (False, [], [])


@pytest.mark.parametrize("way", ["log", "image"])
def test_they_outlive_the_master(way: str) -> None:
    model = Model()
    make(model, 1)
    make(model, 2)
    model.call(p.RevokeKey(key_id(2)))
    model.call(p.RevokeKey("token-1", model.wall_s + 50))
    model.call(p.SpendLink("nonce", model.wall_s + 600))
    before = model.call(p.KeysSince())
    if way == "log":
        model.crash()
    else:
        brain = model._new_brain()
        load_image(brain, [b"".join(pack_image(model.brain))])
        model.lead(brain)

    assert model.call(p.KeysSince()) == before
    assert before.revoked == (key_id(2), "token-1")
    with pytest.raises(AlreadySpent):
        model.call(p.SpendLink("nonce", model.wall_s + 600))


def test_a_version_from_the_future_gets_all() -> None:
    """The gateway asked a master whose log went further and is lost."""
    model = Model()
    make(model, 1)

    assert since(model, 99) == (True, ["key-1"], [])


def test_only_so_many_revoked_ones_are_told_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "REVOKED_MAX", 2)
    model = Model()
    for number in range(4):
        make(model, number)
    version = model.call(p.KeysSince()).version
    for number in range(3):
        model.call(p.RevokeKey(key_id(number)))

    assert since(model, version) == (True, ["key-3"], [key_id(1), key_id(2)])
    assert since(model, version + 1) == (False, [], [key_id(1), key_id(2)])


def test_a_void_token_is_remembered_until_its_own_end_and_not_pushed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "REVOKED_MAX", 2)
    model = Model()
    make(model, 1)
    model.call(p.RevokeKey("t1", model.wall_s + 10))
    model.call(p.RevokeKey("t2", model.wall_s + 20))
    with pytest.raises(BadRequest, match="2 tokens are void"):
        model.call(p.RevokeKey("t3", model.wall_s + 20))
    model.call(p.RevokeKey("key-1"))
    assert since(model, 0)[2] == ["t1", "t2"]

    model.wall_s += 11
    model.call(p.RevokeKey("t3", model.wall_s + 20))

    assert set(since(model, 0)[2]) >= {"t2", "t3"}
    assert "t1" not in since(model, 0)[2]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"id": "MRSHORT"}, BadRequest),
        ({"id": "XX" + "A" * 18}, BadRequest),
        ({"name": "No Spaces"}, BadRequest),
        ({"name": ""}, BadRequest),
        ({"user": ""}, BadRequest),
        ({"rights": "everything"}, BadRequest),
        ({"paths": ()}, BadRequest),
        ({"paths": ("relative",)}, BadPath),
        ({"paths": ("/a/../b",)}, BadPath),
        ({"expires_at_s": 5.0}, BadRequest),
        ({"expires_at_s": float("nan")}, BadRequest),
        ({"id": key_id(1)}, FileExists),
        ({"name": "key-1"}, FileExists),
    ],
)
def test_what_cannot_be_a_key_is_refused(fields: dict[str, Any], error: type[Exception]) -> None:
    model = Model()
    make(model, 1)

    with pytest.raises(error):
        model.call(p.MakeKey(**{"id": key_id(2), "name": "two", "user": "ann", **fields}))

    assert len(model.call(p.KeysSince()).keys) == 1


def test_an_id_is_never_used_again_and_a_name_may_be() -> None:
    """The secret follows from the id: a new key with an old id would be the old one."""
    model = Model()
    make(model, 1)
    model.call(p.RevokeKey("key-1"))

    with pytest.raises(FileExists):
        make(model, 1)
    model.call(p.MakeKey(key_id(2), "key-1", "ann"))
    with pytest.raises(NoSuchKey):
        model.call(p.RevokeKey("nobody"))


def test_there_are_at_most_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "KEYS_MAX", 2)
    model = Model()
    make(model, 1)
    make(model, 2)

    with pytest.raises(BadRequest, match="2 keys, the most"):
        make(model, 3)


def test_a_link_is_spent_once_and_forgotten_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "LINKS_MAX", 2)
    model = Model()
    model.call(p.SpendLink("a", model.wall_s + 10))
    model.call(p.SpendLink("b", model.wall_s + 10))

    with pytest.raises(AlreadySpent):
        model.call(p.SpendLink("a", model.wall_s + 10))
    with pytest.raises(BadRequest, match="2 links"):
        model.call(p.SpendLink("c", model.wall_s + 10))
    for end_s in (model.wall_s - 1, model.wall_s + 1e9, float("nan")):
        with pytest.raises(BadRequest, match="its end"):
            model.call(p.SpendLink("d", end_s))
    model.wall_s += 11
    model.call(p.SpendLink("c", model.wall_s + 10))

    assert list(model.brain.doors.spent) == ["c"]
