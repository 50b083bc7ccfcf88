"""F6: a change under an older fence is refused; what was opened under it is taken over (CH-20)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mrstream.cluster.wire.messages import ErrorReply
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import FENCES_OF_A_CHANGE_MAX, NO_FENCE, Fences
from mrstream.dfs.client.fence import (
    SEQUENCER,
    fences_of_environment,
    format_fences,
    parse_fence,
    within,
)
from mrstream.dfs.errors import BadRequest, FencedOff, NoSuchFile, WriterFenced
from mrstream.dfs.metadata import fences, image
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.oplog import decode_record, encode_record
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
    assert parse_fence(format_fences((("x", 3),))) == ("x", 3)
    for text in ("x", ":3", "x:", "x:-1", "x:3a", "x:²", "x:3:mine", "x:" + "9" * 20):
        with pytest.raises(Exception, match="NAME:GENERATION"):
            parse_fence(text)


# --- several at once: a job master works under its own and under the lock of a job

LOCK = "/ls/local/nightly"
BOTH = (("jobs", 1), (LOCK, 1))


def under(fences: Fences) -> dict[str, Any]:
    """The fields of a request."""
    return {"fence": fences[0], "more_fences": fences[1:]}


ways = pytest.mark.parametrize("raised", [0, 1], ids=["the first", "the second"])
orders = pytest.mark.parametrize("fences", [BOTH, BOTH[::-1]], ids=["jobs first", "lock first"])


@ways
@orders
def test_a_change_under_two_is_refused_when_either_is_over(fences: Fences, raised: int) -> None:
    model = Model()
    model.call(p.MakeDirectory("/a", "me", **under(fences)))
    name = fences[raised][0]
    model.call(p.RaiseFence((name, 2)))

    with pytest.raises(FencedOff, match=f"{name}: generation 1 is over, 2 has come") as refusal:
        model.call(p.MakeDirectory("/b", "me", **under(fences)))

    crossed = ErrorReply.of(refusal.value).error()
    assert isinstance(crossed, FencedOff) and crossed.name == name
    assert model.paths() == ["/", "/a"]


def test_where_both_are_over_the_first_is_named() -> None:
    """A deposed job master must not take the loss of a job's lock for the reason."""
    model = Model()
    model.call(p.RaiseFence(("jobs", 2), more_fences=((LOCK, 2),)))

    with pytest.raises(FencedOff) as refusal:
        model.call(p.MakeDirectory("/a", "me", **under(BOTH)))

    assert refusal.value.name == "jobs"


@pytest.mark.parametrize("restart", ["no", "log", "image"])
def test_two_are_raised_by_one_record_or_none_is(restart: str) -> None:
    """One decision: what raises one of two is no half of an admission."""
    model = Model()
    model.call(p.RaiseFence((LOCK, 5)))

    with pytest.raises(FencedOff):
        model.call(p.MakeDirectory("/a", "me", fence=("jobs", 9), more_fences=((LOCK, 4),)))
    assert model.brain.fences.generation("jobs") == -1, "whoever is refused raises nothing"
    with pytest.raises(NoSuchFile):
        model.call(p.Delete("/nothing", "me", fence=("jobs", 3), more_fences=((LOCK, 6),)))

    record = model.records()[-1]
    assert [type(part) for part in op.parts_of(record)] == [op.FenceRaised, op.FenceRaised]
    if restart == "log":
        model.crash()
    elif restart == "image":
        from_image(model)
    known = [(fact.name, fact.generation) for fact in model.call(p.ListFences())]
    assert known == [(LOCK, 6), ("jobs", 3)]


@ways
@orders
@pytest.mark.parametrize("restart", ["no", "log", "image"])
def test_files_opened_under_two_are_taken_over_when_either_is_raised(
    fences: Fences, raised: int, restart: str
) -> None:
    model = Model()
    model.put("/there", 10)
    created = model.create("/out", **under(fences))
    appended = model.call(p.OpenAppend("/there", "c", "me", **under(fences)))
    other = model.create("/other", fence=("backup", 1))
    if restart == "log":
        model.crash()
    elif restart == "image":
        from_image(model)

    model.call(p.RaiseFence((fences[raised][0], 2)))

    over = (created.epoch, appended.epoch)
    assert model.call(p.KeepAlive("c", (*over, other.epoch))) == over


def test_what_was_done_under_two_is_answered_again_when_both_are_over() -> None:
    model = Model()
    ask = p.MakeDirectory("/a", "me", **under(BOTH))
    model.call(ask, (7, 1))
    model.call(p.RaiseFence(("jobs", 2), more_fences=((LOCK, 2),)), (8, 1))
    count = len(model.log)
    model.crash()

    assert model.call(ask, (7, 1)) is None
    model.call(p.RaiseFence(("jobs", 2), more_fences=((LOCK, 2),)), (8, 1))
    asked = [part.request for part in op.parts_of(model.records()[count - 1])]  # type: ignore[union-attr]
    assert asked == [op.NO_REQUEST, (8, 1)], "at most one record has the request"


def test_more_than_the_limit_and_a_name_twice_are_refused() -> None:
    model = Model()
    many = tuple((f"lock{n}", 1) for n in range(FENCES_OF_A_CHANGE_MAX + 1))
    model.call(p.MakeDirectory("/a", "me", **under(many[:-1])))

    with pytest.raises(BadRequest, match="under 9 fences: it may have 8"):
        model.call(p.MakeDirectory("/b", "me", **under(many)))
    with pytest.raises(BadRequest, match="a name may be there once"):
        model.call(p.MakeDirectory("/b", "me", **under((("x", 1), ("x", 2)))))

    assert model.paths() == ["/", "/a"] and model.brain.fences.generation("x") == -1


def test_of_several_new_names_each_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "FENCES_MAX", 3)
    model = Model()
    for name in "abc":
        model.call(p.RaiseFence((name, 5)))
    model.wall_s += fences.FORGOTTEN_AFTER_S
    model.call(p.RaiseFence(("b", 6)))

    # Only a and c may be forgotten, and one that is raised along with them never is.
    with pytest.raises(BadRequest, match="fence d: 3 names are known"):
        model.call(p.RaiseFence(("d", 1), more_fences=(("e", 1), ("f", 1))))
    model.call(p.RaiseFence(("d", 1), more_fences=(("a", 6),)))

    assert [fact.name for fact in model.call(p.ListFences())] == ["a", "b", "d"]


def from_image(model: Model) -> None:
    brain = model._new_brain()
    load_image(brain, [b"".join(pack_image(model.brain))])
    model.lead(brain)


class FileCreated(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """As the version before had it, which knew one fence."""

    path: str
    file_id: int
    epoch: int
    client: str
    owner: str
    group: str
    mode: int
    replication: int
    chunk_bytes: int
    at_s: float
    request: tuple[int, int] = (0, 0)
    fence: tuple[str, int] = ("", 0)


def test_records_of_the_version_before_are_read_and_it_reads_ours() -> None:
    model = Model()
    model.create("/out", **under(BOTH))
    (ours,) = [part for r in model.records() for part in op.parts_of(r)
               if isinstance(part, op.FileCreated)]  # fmt: skip

    before = msgspec.msgpack.decode(encode_record(ours), type=FileCreated)
    assert before.fence == BOTH[0]
    record = decode_record(msgspec.msgpack.encode(before))

    assert record == msgspec.structs.replace(ours, more_fences=())
    brain = Model(servers=0)._new_brain()
    brain.apply(record)
    (writer,) = brain.space.writers.values()
    assert writer.fences == BOTH[:1]


def test_images_of_the_version_before_are_read_and_it_reads_ours() -> None:
    """A writer there is row, epoch, client, whether it is the first, and one fence."""
    model = Model()
    model.create("/both", **under(BOTH))
    model.create("/none")
    small = image._small(model.brain.space, model.brain)
    rows = [row[4] for row in small["writers"]]
    assert rows == [BOTH[0], NO_FENCE], "what the version before looks at"
    small["writers"] = [row[:5] for row in small["writers"]]
    brain = model._new_brain()

    image._load_small(brain, msgspec.msgpack.decode(msgspec.msgpack.encode(small)))

    assert [writer.fences for writer in brain.space.writers.values()] == [BOTH[:1], ()]


def test_the_environment_holds_one_fence_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEQUENCER, format_fences(BOTH))
    assert fences_of_environment() == BOTH
    monkeypatch.setenv(SEQUENCER, f"{LOCK}:7:shared")
    assert fences_of_environment() == ((LOCK, 7),)
    monkeypatch.setenv(SEQUENCER, "")
    assert fences_of_environment() == ()
    monkeypatch.setenv(SEQUENCER, f"{LOCK}:7\n")
    with pytest.raises(Exception, match="MRSTREAM_SEQUENCER: '' is not NAME:GENERATION"):
        fences_of_environment()


def test_who_has_a_fence_of_its_own_works_under_those_around_it_as_well() -> None:
    assert within(BOTH[:1], BOTH[1:]) == BOTH
    assert within(((LOCK, 2),), BOTH) == ((LOCK, 2), ("jobs", 1)), "of one lock the later holder"
    assert within((), ()) == ()
