"""Joins: one file of several, and not a byte moves (N1: every chunk but the last is full)."""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import FileId
from mrstream.dfs.errors import (
    BadRequest,
    FileBusy,
    FileExists,
    FileReplaced,
    IsADirectory,
    NotAligned,
)
from mrstream.dfs.metadata.operations import ChunkSealed
from tests.support.dfs_model import CHUNK, Model


def parts(model: Model, *lengths: int, **fields: int) -> tuple[FileId, ...]:
    return tuple(
        model.put(f"/u/{number:05}", length, **fields).file_id
        for number, length in enumerate(lengths, 1)
    )


def handles(model: Model, path: str) -> list[int]:
    return [chunk.handle for chunk in model.locate(path)]


def test_the_first_has_all_chunks_in_order_and_the_others_are_gone() -> None:
    model = Model()
    sources = parts(model, 2 * CHUNK, CHUNK, 5)
    before = [h for n in (1, 2, 3) for h in handles(model, f"/u/0000{n}")]
    sent = len(model.sent)

    status = model.call(p.JoinFiles("/b/k", sources, "me", parents=True, attributes={"e": b"1"}))

    assert (status.path, status.length_bytes, status.file_id) == ("/b/k", 3 * CHUNK + 5, sources[0])
    assert handles(model, "/b/k") == before
    assert model.paths() == ["/", "/b", "/b/k", "/u"]
    assert len(model.sent) == sent, "no server hears of it"
    assert model.call(p.GetAttributes("/b/k")).values == {"e": b"1"}
    model.crash()
    assert handles(model, "/b/k") == before


def test_what_was_joined_can_be_written_on_snapshot_and_deleted() -> None:
    """The chunks belong to it as if it had written them."""
    model = Model()
    model.call(p.JoinFiles("/k", parts(model, CHUNK, 5), "me"))

    model.call(p.Snapshot("/k", "/copy", "me"))
    opened = model.call(p.OpenAppend("/k", "c", "me"))
    grant = model.call(p.FindLease("", 1, opened.status.file_id, opened.epoch))
    model.write(grant, 50)
    model.close(opened, CHUNK + 50)
    grant = model.call(p.FindLease("/k", 0))
    model.write(grant, CHUNK)
    model.pass_time(80)
    model.call(p.Delete("/copy", "me", skip_trash=True))
    model.pass_time(5)

    assert model.call(p.Stat("/k")).length_bytes == CHUNK + 50
    model.call(p.Delete("/k", "me", skip_trash=True))
    model.pass_time(5)
    assert not any(server.chunks for server in model.servers.values())


def test_shared_chunks_are_joined_too() -> None:
    model = Model()
    first, second = parts(model, CHUNK, 5)
    model.call(p.Snapshot("/u/00002", "/saved", "me"))

    model.call(p.JoinFiles("/k", (first, second), "me"))

    assert handles(model, "/saved") == handles(model, "/k")[1:]
    assert model.call(p.Stat("/saved")).length_bytes == 5


@pytest.mark.parametrize("lengths", [(CHUNK - 1, 5), (CHUNK, 5, 5), (5, 0, CHUNK)], ids=str)
def test_what_does_not_fill_its_chunks_is_refused(lengths: tuple[int, ...]) -> None:
    model = Model()
    sources = parts(model, *lengths)
    before = model.paths()

    with pytest.raises(NotAligned, match="not a multiple of its chunk size"):
        model.call(p.JoinFiles("/k", sources, "me"))

    assert model.paths() == before


def test_empty_files_are_no_hindrance() -> None:
    model = Model()

    status = model.call(p.JoinFiles("/k", parts(model, 0, CHUNK, 0, 5, 0), "me"))

    assert status.length_bytes == CHUNK + 5


def test_two_chunk_sizes_cannot_be_joined() -> None:
    model = Model()
    one, two = model.put("/1", CHUNK), model.put("/2", CHUNK + 1, chunk_bytes=2 * CHUNK)
    three = model.put("/3", 3 * CHUNK, chunk_bytes=2 * CHUNK)

    for other in (two, three):
        with pytest.raises(NotAligned, match=f"chunks of {2 * CHUNK} bytes"):
            model.call(p.JoinFiles("/k", (one.file_id, other.file_id), "me"))


def test_a_file_of_one_chunk_joins_whatever_its_chunk_size() -> None:
    """The last part of an upload is short, and fills no chunk by which its size could be told."""
    model = Model()
    one, two = model.put("/1", 2 * CHUNK), model.put("/2", CHUNK, chunk_bytes=2 * CHUNK)
    last = model.put("/3", 5, chunk_bytes=4 * CHUNK)

    sources = (one.file_id, two.file_id, last.file_id)
    status = model.call(p.JoinFiles("/k", sources, "me"))

    assert (status.length_bytes, status.chunk_bytes) == (3 * CHUNK + 5, CHUNK)
    opened = model.call(p.OpenAppend("/k", "c", "me"))
    grant = model.call(p.FindLease("", 3, opened.status.file_id, opened.epoch))
    assert grant.chunk_bytes == CHUNK
    model.write(grant, 50)
    model.close(opened, 3 * CHUNK + 50)
    assert model.call(p.Stat("/k")).length_bytes == 3 * CHUNK + 50
    model.crash()
    assert model.call(p.Stat("/k")).length_bytes == 3 * CHUNK + 50


def test_each_source_is_a_file_of_its_own_that_is_there() -> None:
    model = Model()
    model.call(p.MakeDirectory("/d", "me"))
    directory = model.call(p.Stat("/d")).file_id
    (one,) = parts(model, CHUNK)

    for sources, error in (
        ((), BadRequest),
        ((one, one), BadRequest),
        ((one, directory), IsADirectory),
        ((one, FileId(one + (1 << 32))), FileReplaced),
    ):
        with pytest.raises(error):
            model.call(p.JoinFiles("/k", sources, "me"))


def test_a_file_that_is_being_written_is_not_joined() -> None:
    model = Model()
    (one,) = parts(model, CHUNK)
    opened = model.create("/open", first_chunk=True)

    with pytest.raises(FileBusy):
        model.call(p.JoinFiles("/k", (one, opened.status.file_id), "me"))


def test_a_join_waits_until_the_length_of_what_is_shared_is_certain() -> None:
    """Somebody overwrites bytes of a part: its last chunk is sealed first."""
    model = Model()
    sources = parts(model, CHUNK, 5)
    model.write(model.call(p.FindLease("/u/00002", 0)), 9)
    assert len(model.brain.tables.chunks.unsealed) == 1

    status = model.call(p.JoinFiles("/k", sources, "me"))

    assert status.length_bytes == CHUNK + 9
    assert any(isinstance(record, ChunkSealed) for record in model.records())


def test_the_target_is_replaced_under_the_conditions_of_a_close() -> None:
    model = Model()
    old = model.put("/k", 3).file_id
    sources = parts(model, CHUNK, 5)

    with pytest.raises(FileExists):
        model.call(p.JoinFiles("/k", sources, "me"))
    with pytest.raises(FileReplaced):
        model.call(p.JoinFiles("/k", sources, "me", replaces=sources[0]))
    model.call(p.JoinFiles("/k", sources, "me", replaces=old, keep_replaced=True))

    assert model.call(p.Stat("/k")).length_bytes == CHUNK + 5
    assert [t.original_path for t in model.call(p.ListTrash())] == ["/k"]


@pytest.mark.parametrize("target", ["/u/00001", "/u/00002"])
def test_the_target_may_be_one_of_the_sources(target: str) -> None:
    """As HDFS's concat."""
    model = Model()
    sources = parts(model, CHUNK, 5)

    model.call(p.JoinFiles(target, sources, "me", overwrite=True))

    assert model.paths() == ["/", "/u", target]
    assert model.call(p.Stat(target)).length_bytes == CHUNK + 5


def test_a_repeated_join_is_answered_again() -> None:
    model = Model()
    ask = p.JoinFiles("/k", parts(model, CHUNK, 5), "me")
    first = model.call(ask, (7, 1))
    model.crash()

    again = model.call(ask, (7, 1))

    assert (again.path, again.length_bytes) == (first.path, first.length_bytes)
