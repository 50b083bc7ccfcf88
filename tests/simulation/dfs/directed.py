"""Short histories of the brain, each of which asserts one rule: what a wrong brain fails at."""

from __future__ import annotations

from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.dfs import protocol as p
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.oplog import decode_record
from tests.support.dfs_model import CHUNK, Model


def refused(model: Model, request: Any, request_id: tuple[int, int] = (0, 0)) -> str:
    """The name of the refusal, empty if there is none."""
    try:
        model.call(request, request_id)
    except ClusterError as error:
        return type(error).__name__
    return ""


def restarted(model: Model) -> None:
    """The master comes back from a checkpoint."""
    brain = model._new_brain()
    load_image(brain, [b"".join(pack_image(model.brain))])
    model.lead(brain)
    for server in model.servers.values():
        model.register(server)


def repeats() -> None:
    """F5, over a crash and over a checkpoint."""
    for back in (Model.crash, restarted):
        model = Model()
        model.put("/f", 5)
        mode, close = p.SetMode("/f", 0o600, "me"), model.create("/g", hidden=True)
        model.call(mode, (7, 1))
        model.call(p.SetMode("/f", 0o640, "other"))
        ending = p.CloseFile(close.status.file_id, close.epoch, 0, "/g")
        model.call(ending, (7, 2))
        model.call(p.Rename("/g", "/h", "other"))
        count = model.call(p.SetReplication("/", 2, "me"), (7, 3))
        model.call(p.Delete("/h", "other"))
        back(model)
        model.call(mode, (7, 1))
        model.call(ending, (7, 2))
        assert model.call(p.Stat("/f")).mode == 0o640
        assert model.paths() == ["/", "/f"], "what another renamed and deleted is back"
        assert model.call(p.SetReplication("/", 2, "me"), (7, 3)) == count


def fences() -> None:
    """F6: refused, taken over, over a checkpoint too."""
    model = Model()
    opened = model.create("/out", fence=("jobs", 1))
    model.call(p.RaiseFence(("jobs", 2)))
    assert model.call(p.KeepAlive("c", (opened.epoch,))) == (opened.epoch,)
    assert refused(model, p.MakeDirectory("/late", "me", fence=("jobs", 1))) == "FencedOff"
    restarted(model)
    assert refused(model, p.MakeDirectory("/late", "me", fence=("jobs", 1))) == "FencedOff"
    other = model.create("/other", fence=("jobs", 2))
    restarted(model)
    model.call(p.MakeDirectory("/now", "me", fence=("jobs", 3)))
    assert model.call(p.KeepAlive("c", (other.epoch,))) == (other.epoch,)


def several_fences() -> None:
    """F6 for each of two: refused by either, taken over for either, and raised both or none."""
    for lost in range(2):
        model = Model()
        both = (("jobs", 1), ("/ls/local/nightly", 1))
        under: Any = {"fence": both[0], "more_fences": both[1:]}
        opened = model.create("/out", **under)
        restarted(model)
        model.call(p.RaiseFence((both[lost][0], 2)))
        assert model.call(p.KeepAlive("c", (opened.epoch,))) == (opened.epoch,)
        assert refused(model, p.MakeDirectory("/late", "me", **under)) == "FencedOff"
        newer = tuple((name, 1 if n == lost else 9) for n, (name, _) in enumerate(both))
        late = p.MakeDirectory("/late", "me", fence=newer[0], more_fences=newer[1:])
        assert refused(model, late) == "FencedOff"
        model.call(p.MakeDirectory("/now", "me", fence=both[1 - lost]))
        model.create("/later", fence=("jobs", 3), more_fences=(("/ls/local/nightly", 3),))
        model.log.pop()  # power fails before the decision is on disk: all of it, or nothing
        model.crash()
        known = {fact.name: fact.generation for fact in model.call(p.ListFences())}
        assert known == {both[lost][0]: 2, both[1 - lost][0]: 1}


def joins() -> None:
    """N1, and no chunk is lost or left."""
    model = Model()
    odd = tuple(model.put(f"/o/{n}", 5).file_id for n in range(2))
    assert refused(model, p.JoinFiles("/k", odd, "me")) == "NotAligned"
    sources = tuple(model.put(f"/u/{n}", CHUNK, replication=3 - n).file_id for n in range(2))
    model.call(p.JoinFiles("/k", sources, "me"))
    model.pass_time(5)
    assert all(len(chunk.replicas) == 3 for chunk in model.locate("/k"))
    assert len(model.locate("/k")) == 2 and "/u/1" not in model.paths()
    model.write(model.call(p.FindLease("/k", 1)), CHUNK)
    model.pass_time(80)
    assert model.call(p.Stat("/k")).length_bytes == 2 * CHUNK
    model.crash()
    assert all(len(chunk.replicas) == 3 for chunk in model.locate("/k"))


def copies_on_write() -> None:
    """GFS §3.4: who writes to a file of a snapshot gets a chunk of its own."""
    model = Model()
    model.put("/a", 100)
    model.call(p.Snapshot("/a", "/b", "me"))
    shared = model.locate("/a")[0].handle
    grant = model.call(p.FindLease("/b", 0))
    assert grant.handle != shared == model.locate("/a")[0].handle
    model.write(grant, 200)
    model.pass_time(80)
    assert model.call(p.Stat("/a")).length_bytes == 100


def conditions() -> None:
    """Compare and swap; hidden until then; a reader stays with its file."""
    model = Model()
    read = model.put("/k", 3).file_id
    opened = [model.create("/k", hidden=True, overwrite=True) for _ in range(2)]
    closes = [
        p.CloseFile(o.status.file_id, o.epoch, 0, "/k", replaces=read, keep_replaced=True)
        for o in opened
    ]
    assert model.paths() == ["/", "/k"]
    assert [refused(model, close) for close in closes] == ["", "FileReplaced"]
    assert model.call(p.Locate("/k", file_id=read)).status.length_bytes == 3
    model.call(p.Expunge("me", now=True))
    assert refused(model, p.Locate("/k", file_id=read)) == "FileReplaced"
    model.pass_time(model.settings.writer_silence_s_max + 5)
    assert model.brain.file_count == 1, "the unfinished one is still there"


def whole_decisions() -> None:
    """Cut after each record, an object is there: the old one or the new."""
    model = Model()
    model.put("/b/k", 3)
    begin = len(model.log)
    opened = model.create("/b/k", hidden=True, overwrite=True)
    model.call(
        p.CloseFile(
            opened.status.file_id, opened.epoch, 0, "/b/k", True, keep_replaced=True,
            attributes={"length": b"0"},
        )
    )  # fmt: skip
    for cut in range(begin, len(model.log) + 1):
        brain = model._new_brain()
        for payload in model.log[:cut]:
            brain.apply(decode_record(payload))
        found = brain.query(p.GetAttributes("/b/k"), 1.0)
        assert found.status.length_bytes == 3 or found.values == {"length": b"0"}


def attributes() -> None:
    """Kept by rename, trash and snapshot, dropped by overwrite."""
    model = Model()
    model.put("/f", 5)
    model.call(p.SetAttributes("/f", {"a": b"1"}, "me"))
    model.call(p.Snapshot("/f", "/g", "me"))
    model.call(p.Delete("/f", "me"))
    model.call(p.Undelete("/f", "me"))
    restarted(model)
    for path in ("/f", "/g"):
        assert model.call(p.GetAttributes(path)).values == {"a": b"1"}
    model.put("/f", 6, overwrite=True)
    assert model.call(p.GetAttributes("/f")).values == {}


def quotas() -> None:
    """Counted on every way in and out, and a limit."""
    model = Model()
    model.call(p.MakeDirectory("/q", "me"))
    model.call(p.SetQuota("/q", "me", names=4, space_bytes=7 * CHUNK))
    model.put("/q/f", CHUNK + 5)
    model.put("/out", 5)
    model.call(p.Rename("/out", "/q/in", "me"))
    model.call(p.SetReplication("/q/in", 2, "me"))
    model.call(p.Snapshot("/q/in", "/q/copy", "me"))
    assert refused(model, p.MakeDirectory("/q/more", "me")) == "NameQuotaExceeded"
    model.call(p.Delete("/q/in", "me"))
    model.call(p.Delete("/q/copy", "me", skip_trash=True))
    restarted(model)
    opened = model.create("/q/g")
    ask = p.AllocateChunk(opened.status.file_id, opened.epoch, 0)
    assert refused(model, ask) == ""
    other = model.create("/q/h")
    ask = p.AllocateChunk(other.status.file_id, other.epoch, 0)
    assert refused(model, ask) == "SpaceQuotaExceeded"


def implicit_directories() -> None:
    """They go with the last thing in them, and not before, nor if they were asked for."""
    model = Model()
    for path in ("/b/x/1", "/b/x/2", "/b/y/1"):
        opened = model.create(path, hidden=True)
        model.call(p.CloseFile(opened.status.file_id, opened.epoch, 0, path, parents=True))
    restarted(model)
    model.call(p.MakeDirectory("/b/y", "me", parents=True))
    for path in ("/b/x/1", "/b/y/1"):
        model.call(p.Delete(path, "me", prune_to="/b"))
    assert model.paths() == ["/", "/b", "/b/x", "/b/x/2", "/b/y"]
    model.call(p.Delete("/b/x/2", "me", prune_to="/b"))
    assert model.paths() == ["/", "/b", "/b/y"]


def keys() -> None:
    """A revoked key is told of; a link is spent once."""
    model = Model()
    name = "MR" + "A" * 18
    model.call(p.MakeKey(name, "k", "ann"))
    version = model.call(p.KeysSince()).version
    model.call(p.RevokeKey("k"))
    restarted(model)
    assert model.call(p.KeysSince(version)).revoked == (name,)
    assert model.call(p.KeysSince()).keys == ()
    for outcome in ("", "AlreadySpent"):
        assert refused(model, p.SpendLink("n", model.wall_s + 9)) == outcome


DIRECTED = [
    repeats, fences, several_fences, joins, conditions, whole_decisions, attributes, quotas,
    implicit_directories, keys, copies_on_write,
]  # fmt: skip
