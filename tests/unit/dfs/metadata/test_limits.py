"""Large and odd things: many entries, many chunks, full references."""

from __future__ import annotations

import random
import time

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import CHUNK_BYTES_MIN, ChunkHandle, ChunkVersion, Epoch
from mrstream.dfs.errors import BadRequest
from mrstream.dfs.metadata import changes
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.changes import CHUNK_SIZES_MAX
from mrstream.dfs.metadata.listing import SLICE_NODES
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.repair import LOOKED_AT_PER_TICK
from mrstream.dfs.metadata.settings import Settings
from tests.support.dfs_model import Model

ENTRIES = 200_000


def big_directory() -> Metadata:
    brain = Metadata(Settings(), random.Random(1))
    brain.apply(op.DirectoryMade("/d", brain.space.nodes.next_id(), "me", "g", 0o755, 1.0))
    row = brain.space.row("/d")
    for number in range(ENTRIES):
        brain.space.nodes.add(2, row, b"e%06d" % (number * 7919 % ENTRIES), 1.0)
    return brain


def test_a_page_of_a_huge_directory_costs_what_the_page_holds() -> None:
    """GFS-56: after the first look neither a page nor a new entry is linear."""
    brain = big_directory()
    brain.query(p.ListDirectory("/d", limit=1), 1.0)

    began_s = time.process_time()
    for number in range(100):
        page = brain.query(p.ListDirectory("/d", f"e{number * 1000:06d}", 10), 1.0)
        assert next(e.path for e in page.entries) == f"/d/e{number * 1000 + 1:06d}"
        brain.apply(
            op.DirectoryMade(f"/d/x{number}", brain.space.nodes.next_id(), "me", "g", 0o755, 1.0)
        )
    spent_s = time.process_time() - began_s

    assert spent_s < 1.0, f"100 pages and 100 entries took {spent_s:.2f} s"
    assert brain.query(p.Summarise("/d"), 1.0)[0].directory_count == ENTRIES + 101


def test_a_new_chunk_size_is_refused_when_there_are_many() -> None:
    """A node names its own in one byte: one client with ever new sizes ended the master."""
    model = Model()
    for number in range(1, CHUNK_SIZES_MAX + 1):
        model.create(f"/{number}", chunk_bytes=number * CHUNK_BYTES_MIN)

    with pytest.raises(BadRequest, match="200 different ones already"):
        model.create("/more", chunk_bytes=(CHUNK_SIZES_MAX + 1) * CHUNK_BYTES_MIN)
    model.create("/known", chunk_bytes=7 * CHUNK_BYTES_MIN)
    model.create("/default")


def test_a_new_owner_is_refused_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node names its own in two bytes: as for chunk sizes."""
    monkeypatch.setattr(changes, "PRINCIPALS_MAX", 5)
    model = Model()
    for name in ("a", "b", "c", "d"):
        model.call(p.MakeDirectory(f"/{name}", name, "a"))

    for ask in (
        p.MakeDirectory("/x", "new"),
        p.CreateFile("/x", "c", "a", group="new"),
        p.SetOwner("/a", "a", "new"),
    ):
        with pytest.raises(BadRequest, match="5 users and groups already"):
            model.call(ask)
    model.call(p.SetOwner("/a", "a", "d", "c"))


@pytest.mark.parametrize("time_s", [-2.0, -0.5, 1e12, float("inf"), float("-inf"), float("nan")])
def test_a_time_that_no_calendar_has_is_refused(time_s: float) -> None:
    """`ls` of a client that shows it would fail for the whole directory."""
    model = Model()
    model.put("/f", 5)
    before = model.call(p.Stat("/f"))

    for times in ((time_s, -1.0), (-1.0, time_s)):
        with pytest.raises(BadRequest, match="out of range"):
            model.call(p.SetTimes("/f", "me", *times))

    assert model.call(p.Stat("/f")) == before


def test_a_lookup_in_a_huge_directory_is_not_linear() -> None:
    brain = big_directory()

    began_s = time.process_time()
    for number in range(1000):
        brain.query(p.Stat(f"/d/e{number:06d}"), 1.0)

    assert time.process_time() - began_s < 0.5


def test_a_file_costs_little_memory() -> None:
    """GFS-23: packed; the target is 300 MB for a million files of a chunk each."""
    import tracemalloc

    brain = Metadata(Settings(), random.Random(1))
    brain.apply(op.DirectoryMade("/d", brain.space.nodes.next_id(), "me", "g", 0o755, 1.0))
    count = 20_000
    tracemalloc.start()
    for number in range(count):
        file_id = brain.space.nodes.next_id()
        epoch = Epoch(number + 1)
        path = f"/d/part-{number:07d}"
        brain.apply(op.FileCreated(path, file_id, epoch, "c", "me", "g", 0o644, 3, 1 << 26, 1.0))
        brain.apply(op.ChunkAdded(file_id, ChunkHandle(number + 1)))
        brain.apply(op.FileClosed(file_id, epoch, 1000, 2.0))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert used / count < 260, f"{used / count:.0f} bytes a file"


def test_the_sums_of_a_huge_tree_leave_room_for_others_in_between() -> None:
    """`du` of a million files takes a second; nobody else waits for more than a slice of it."""
    brain = big_directory()
    brain.apply(op.DirectoryMade("/e", brain.space.nodes.next_id(), "me", "g", 0o755, 1.0))
    slices = brain.summarise(p.Summarise("/"))

    count = 0
    while True:
        try:
            next(slices)
        except StopIteration as done:
            (whole,) = done.value
            break
        count += 1
        if count == 1:
            brain.apply(op.Removed("/d/e000000", 1.0))  # what goes meanwhile does no harm

    assert count >= ENTRIES // SLICE_NODES
    assert ENTRIES + 2 <= whole.directory_count <= ENTRIES + 3
    (again,) = brain.query(p.Summarise("/"), 1.0)
    assert again.directory_count == ENTRIES + 2


def test_after_a_start_chunks_are_looked_at_in_slices_that_follow_closely() -> None:
    """What is under-replicated is known in seconds, also of a million chunks, and no slice holds
    the master up for long."""
    brain = Metadata(Settings(), random.Random(1))
    chunks = brain.tables.chunks
    for number in range(1, 3 * LOOKED_AT_PER_TICK):
        chunks.add(ChunkHandle(number), 1, 0, 3)
        chunks.seal(ChunkHandle(number), ChunkVersion(1), 100)

    hurried = []
    while chunks.dirty:
        hurried.append(brain.repair.is_behind)
        brain.repair.look()

    assert hurried == [True, True, False]
    assert brain.repair.under_replicated == chunks.count
