"""F5: a repeated request has no second effect, and the first answer, whatever others changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from mrstream.cluster.wire.messages import Request
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import NO_FENCE
from mrstream.dfs.errors import WriterFenced
from mrstream.dfs.metadata import entries
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import Model

Prepare = Callable[[Model], object]


def from_checkpoint(model: Model) -> None:
    """The master dies, and comes back from an image instead of the log."""
    image = b"".join(pack_image(model.brain))
    brain = model._new_brain()
    load_image(brain, [image])
    model.lead(brain)
    for server in model.servers.values():
        model.register(server)


CHANGES: list[tuple[Request, Request]] = [
    (p.SetMode("/d/f", 0o600, "me"), p.SetMode("/d/f", 0o640, "other")),
    (p.SetOwner("/d/f", "me", "ann"), p.SetOwner("/d/f", "other", "bob")),
    (p.SetTimes("/d/f", "me", 5.0, 6.0), p.SetTimes("/d/f", "other", 7.0, 8.0)),
    (p.SetReplication("/d", 2, "me"), p.SetReplication("/d/f", 1, "other")),
    (p.SetPolicy("/d", "me", replication=2), p.SetPolicy("/d", "other", replication=1)),
    (
        p.SetAttributes("/d/f", {"a": b"1"}, "me"),
        p.SetAttributes("/d/f", {"a": b"2"}, "other"),
    ),
    (p.Rename("/d/f", "/d/g", "me"), p.Rename("/d/g", "/d/f", "other")),
    (p.Delete("/d/f", "me"), p.Undelete("/d/f", "other")),
    (p.Delete("/d/f", "me", skip_trash=True), p.CreateFile("/d/f", "c", "other")),
    (p.Undelete("/gone", "me"), p.Delete("/gone", "other")),
    (p.Expunge("me", now=True), p.Delete("/d/f", "other")),
    (p.MakeDirectory("/new", "me"), p.Rename("/new", "/newer", "other")),
    (p.Snapshot("/d", "/copy", "me"), p.Rename("/copy", "/kept", "other")),
    (p.DrainServer("s1"), p.DrainServer("s1", False)),  # type: ignore[arg-type]
    (p.RaiseFence(("jobs", 3)), p.RaiseFence(("jobs", 4))),
    (p.SpendLink("once", 1_700_000_100.0), p.MakeDirectory("/x", "other")),
]


@pytest.mark.parametrize("back", [Model.crash, from_checkpoint], ids=["log", "checkpoint"])
@pytest.mark.parametrize(("first", "others"), CHANGES, ids=lambda r: type(r).__name__)
def test_a_repeat_does_not_undo_what_another_did_since(
    first: Request, others: Request, back: Callable[[Model], None]
) -> None:
    """The answer was lost with the master; before the client asks again somebody changes it."""
    model = Model()
    model.put("/d/f", 10)
    model.put("/gone", 10)
    model.call(p.Delete("/gone", "me"))
    answer = model.call(first, (7, 1))
    model.call(others, (8, 1))
    back(model)
    before = b"".join(pack_image(model.brain))

    again = model.call(first, (7, 1))

    assert again == answer
    assert b"".join(pack_image(model.brain)) == before


def test_a_repeated_close_says_what_became_of_the_file_even_when_another_replaced_it() -> None:
    model = Model()
    opened = model.create("/f", hidden=True, overwrite=True)
    close = p.CloseFile(opened.status.file_id, opened.epoch, 0, "/f", True)
    first = model.call(close, (7, 1))
    model.put("/f", 5, overwrite=True)
    model.crash()

    again = model.call(close, (7, 1))

    assert (again.file_id, again.path) == (first.file_id, "/f")
    assert again.modified_at_s == first.modified_at_s
    assert model.call(p.Stat("/f")).length_bytes == 5


@pytest.mark.parametrize("ask", [p.CreateFile("/f", "A", "me", overwrite=True),
                                 p.OpenAppend("/f", "A", "me")])  # fmt: skip
def test_a_repeat_of_an_opening_that_is_over_neither_opens_again_nor_hands_out_anothers(
    ask: Request,
) -> None:
    """The first try of A was taken over by B: A must not get B's epoch, nor replace B's file."""
    model = Model()
    model.put("/f", 5)
    opened = model.call(ask, (7, 1))
    model.call(p.RecoverFile("/f", "me", force=True))
    theirs = model.call(p.OpenAppend("/f", "B", "me"))
    model.crash()

    with pytest.raises(WriterFenced):
        model.call(ask, (7, 1))

    assert theirs.epoch != opened.epoch
    assert model.epoch("/f") == theirs.epoch


def test_a_repeated_recovery_does_not_fence_the_next_writer() -> None:
    model = Model()
    model.create("/f")
    recover = p.RecoverFile("/f", "me", force=True)
    model.call(recover, (7, 1))
    theirs = model.call(p.OpenAppend("/f", "B", "me"))
    model.crash()

    model.call(recover, (7, 1))

    assert model.epoch("/f") == theirs.epoch


def test_all_that_one_request_changes_is_one_record() -> None:
    """A crash leaves all of it or nothing."""
    model = Model()
    model.put("/d/f", 5)
    opened = model.create("/d/x", hidden=True)
    before = len(model.log)

    model.call(
        p.CloseFile(
            opened.status.file_id, opened.epoch, 0, "/d/f", True, keep_replaced=True,
            attributes={"a": b"1"}, fence=("jobs", 1),
        )
    )  # fmt: skip

    (record,) = model.records()[before:]
    assert [type(part) for part in op.parts_of(record)] == [
        op.FenceRaised, op.FileClosed, op.Trashed, op.Renamed, op.AttributesSet
    ]  # fmt: skip


def test_every_record_that_a_client_causes_names_the_request() -> None:
    """What is left out names what it expects (index, version, handle): its repeat finds it done."""
    others = {
        op.HandlesReserved, op.ChunkAdded, op.ChunkGranted, op.ChunkSealed, op.ChunkReplaced,
        op.ChunkDropped, op.ServerKnown,
    }  # fmt: skip
    for kind in get_args(op.OneRecord):
        assert ("request" in kind.__struct_fields__) == (kind not in others), kind


def test_every_change_can_be_made_under_a_fence_and_says_so_at_its_end() -> None:
    kinds = [k for k in vars(p).values() if isinstance(k, type) and issubclass(k, Request)]
    changing = [kind for kind in kinds if kind.mutates]
    assert len(changing) > 20
    for kind in changing:
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        assert "fence" in fields, kind
        assert kind is p.RaiseFence or fields["fence"].default == NO_FENCE
        # What the version before knows comes first: it reads that, and skips this.
        assert kind.__struct_fields__[-1] == "more_fences" and fields["more_fences"].default == ()


def test_only_so_many_are_remembered_the_latest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "REQUESTS_REMEMBERED_MAX", 3)
    model = Model()
    for number in range(1, 6):
        model.call(p.MakeDirectory(f"/d{number}", "me"), (7, number))

    remembered: Any = model.brain.space.requests

    assert [(7, n) in remembered for n in range(1, 6)] == [False, False, True, True, True]
