"""F6: a change under an older fence is refused; what was opened under it is taken over (CH-20)."""

from __future__ import annotations

import pytest

from mrstream.cluster.wire.messages import ErrorReply
from mrstream.dfs import protocol as p
from mrstream.dfs.client.fence import format_fence, parse_fence
from mrstream.dfs.errors import BadRequest, FencedOff, NoSuchFile, WriterFenced
from mrstream.dfs.metadata import fences
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import Model


def mkdir(model: Model, path: str, generation: int, name: str = "jobs") -> None:
    model.call(p.MakeDirectory(path, "me", fence=(name, generation)))


def test_who_comes_later_with_an_older_generation_is_refused_and_nothing_changes() -> None:
    model = Model()
    mkdir(model, "/a", 5)
    mkdir(model, "/b", 6)

    with pytest.raises(FencedOff, match="jobs: generation 5 is over, 6 has come") as refusal:
        mkdir(model, "/c", 5)
    mkdir(model, "/d", 6)

    assert model.paths() == ["/", "/a", "/b", "/d"]
    assert type(ErrorReply.of(refusal.value).error()) is FencedOff


def test_other_names_and_changes_without_a_fence_are_not_concerned() -> None:
    model = Model()
    mkdir(model, "/a", 9)

    mkdir(model, "/b", 1, "other")
    model.call(p.MakeDirectory("/c", "me"))

    assert model.paths() == ["/", "/a", "/b", "/c"]


@pytest.mark.parametrize("way", ["log", "image"])
def test_a_fence_outlives_the_master(way: str) -> None:
    model = Model()
    model.call(p.RaiseFence(("jobs", 7)))
    if way == "log":
        model.crash()
    else:
        brain = model._new_brain()
        load_image(brain, [b"".join(pack_image(model.brain))])
        model.lead(brain)

    with pytest.raises(FencedOff):
        mkdir(model, "/a", 6)
    (fact,) = model.call(p.ListFences())
    assert (fact.name, fact.generation) == ("jobs", 7)


def test_a_refused_change_raises_the_fence_all_the_same() -> None:
    """Who sent it has the lock: the one before may not go on, whatever was wrong with this."""
    model = Model()

    with pytest.raises(NoSuchFile):
        model.call(p.Delete("/nothing", "me", fence=("jobs", 3)))

    with pytest.raises(FencedOff):
        mkdir(model, "/a", 2)


def test_files_opened_under_an_older_fence_are_taken_over() -> None:
    """A paused job master wakes up and wants to finish what it was writing."""
    model = Model()
    old = model.create("/out", first_chunk=True, fence=("jobs", 1))
    hidden = model.create("/whole", hidden=True, fence=("jobs", 1))
    other = model.create("/other", fence=("backup", 1))
    assert old.grant is not None
    model.write(old.grant, 50)

    model.call(p.RaiseFence(("jobs", 2)))

    with pytest.raises(FencedOff):
        model.call(p.CloseFile(old.status.file_id, old.epoch, 50, fence=("jobs", 1)))
    with pytest.raises(WriterFenced):
        model.close(old, 51)
    with pytest.raises(WriterFenced):
        model.close(hidden, 0)
    model.pass_time(5)
    assert model.call(p.Stat("/out")).length_bytes == 50
    assert not model.call(p.Stat("/out")).is_open
    assert model.call(p.KeepAlive("c", (other.epoch,))) == ()
    assert len(model.brain.space.nodes.hidden) == 0


def test_a_file_opened_under_a_fence_is_taken_over_also_after_a_restart() -> None:
    model = Model()
    opened = model.create("/out", fence=("jobs", 1))
    brain = model._new_brain()
    load_image(brain, [b"".join(pack_image(model.brain))])
    model.lead(brain)

    model.call(p.RaiseFence(("jobs", 2)))

    assert model.call(p.KeepAlive("c", (opened.epoch,))) == (opened.epoch,)


def test_what_was_done_under_the_fence_is_answered_again_when_it_is_over() -> None:
    model = Model()
    ask = p.MakeDirectory("/a", "me", fence=("jobs", 1))
    model.call(ask, (7, 1))
    model.call(p.RaiseFence(("jobs", 2)))
    model.crash()

    assert model.call(ask, (7, 1)) is None


def test_a_request_that_waited_is_looked_at_again_when_its_turn_comes() -> None:
    """A snapshot waits for seals; meanwhile the lock goes to somebody else."""
    model = Model()
    opened = model.create("/f", first_chunk=True)
    assert opened.grant is not None
    model.write(opened.grant, 5)
    for server in model.servers.values():
        server.is_mute = True
    call = model.begin(p.Snapshot("/f", "/g", "me", fence=("jobs", 1)), (7, 1))
    model.call(p.RaiseFence(("jobs", 2)))

    for server in model.servers.values():
        server.is_mute = False
    model.pass_time(8)

    with pytest.raises(FencedOff):
        model.answer(call)
    # Nothing below the source waits for the snapshot that is not going to be.
    assert model.call(p.FindLease("", 0, opened.status.file_id, opened.epoch)).handle


@pytest.mark.parametrize("fence", [("", 1), ("x" * 300, 1), ("jobs", -1), ("jobs", 1 << 63)])
def test_a_fence_that_cannot_be_is_refused(fence: tuple[str, int]) -> None:
    model = Model()

    with pytest.raises(BadRequest, match="fence"):
        model.call(p.RaiseFence(fence))


def test_names_are_bounded_and_only_what_was_long_unused_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To forget a name is to let an older holder through: not before nobody can be waiting."""
    monkeypatch.setattr(fences, "FENCES_MAX", 2)
    model = Model()
    model.call(p.RaiseFence(("a", 5)))
    model.call(p.RaiseFence(("b", 5)))

    with pytest.raises(BadRequest, match="2 names are known"):
        model.call(p.RaiseFence(("c", 1)))
    model.wall_s += fences.FORGOTTEN_AFTER_S
    model.call(p.RaiseFence(("b", 6)))
    model.call(p.RaiseFence(("c", 1)))

    assert [fact.name for fact in model.call(p.ListFences())] == ["b", "c"]


def test_the_environment_holds_a_fence_as_text() -> None:
    assert parse_fence("/ls/local/a:b:17") == ("/ls/local/a:b", 17)
    assert parse_fence("/ls/local/nightly:17:exclusive") == ("/ls/local/nightly", 17)
    assert parse_fence("/ls/local/nightly:17:shared") == ("/ls/local/nightly", 17)
    assert parse_fence(format_fence(("x", 3))) == ("x", 3)
    for text in ("x", ":3", "x:", "x:-1", "x:3a", "x:²", "x:3:mine", "x:" + "9" * 20):
        with pytest.raises(Exception, match="NAME:GENERATION"):
            parse_fence(text)
