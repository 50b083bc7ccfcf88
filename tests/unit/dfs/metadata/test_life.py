"""The life of a chunk is one table: nothing happens to a chunk that is not in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion
from mrstream.dfs.metadata.chunk_table import ChunkTable, OddReplica
from mrstream.dfs.metadata.leases import Lease
from mrstream.dfs.metadata.life import (
    BEGUN_BY,
    CHUNK,
    REPLICA,
    WHO,
    Change,
    Chunk,
    ForbiddenChange,
    News,
    Replica,
)
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.metadata.story import Chronicle
from mrstream.dfs.metadata.underway import Underway
from tests.house.tree import ROOT

H = ChunkHandle(5000)
V1, V2, V3 = ChunkVersion(1), ChunkVersion(2), ChunkVersion(3)
LOGGED: dict[Change, Callable[[ChunkTable], None]] = {
    Change.ADD: lambda chunks: chunks.add(H, owner=1, index=0, goal=3),
    Change.GRANT: lambda chunks: chunks.grant(H, V3, owner=1, index=0),
    Change.SEAL: lambda chunks: chunks.seal(H, V3, 100),
    Change.SHARE: lambda chunks: chunks.reference(H, +1),
    Change.DROP: lambda chunks: chunks.reference(H, -1),
}


def table(state: Chunk) -> ChunkTable:
    """A chunk in one of the states that recovery knows."""
    story = Chronicle()
    story.tell("created as chunk 0 on s1", handle=H)
    chunks = ChunkTable(story)
    ways = {Chunk.GONE: "", Chunk.UNSEALED: "a", Chunk.SEALED: "as", Chunk.SHARED: "as+"}
    steps = {"a": Change.ADD, "s": Change.SEAL, "+": Change.SHARE}
    for step in ways[state]:
        LOGGED[steps[step]](chunks)
    assert chunks.state(H) is state
    return chunks


@pytest.mark.parametrize("change", LOGGED)
@pytest.mark.parametrize("state", [Chunk.UNSEALED, Chunk.SEALED, Chunk.SHARED, Chunk.GONE])
def test_the_chunk_table_does_what_the_life_says(state: Chunk, change: Change) -> None:
    """Each change in each state: it ends in a state of the table, or changes nothing."""
    chunks = table(state)
    if state is Chunk.GONE and change is not Change.ADD:
        with pytest.raises(KeyError):
            LOGGED[change](chunks)
        return

    if (allowed := CHUNK[change].get(state)) is None:
        with pytest.raises(ForbiddenChange) as failed:
            LOGGED[change](chunks)
        assert str(failed.value) == (
            f"chunk 0000000000001388 is {state}: it cannot be {change}. "
            "Its story: created as chunk 0 on s1"
        )
        assert chunks.state(H) is state
    else:
        LOGGED[change](chunks)
        assert chunks.state(H) in allowed


def test_what_is_forbidden_is_what_would_lose_bytes() -> None:
    """The rules for which the table is there, said once more: copy on write, no clone of a moving
    chunk, no handle twice."""
    assert Chunk.SHARED not in CHUNK[Change.GRANT]
    assert Chunk.SHARED not in CHUNK[Change.SEAL]
    assert not {Chunk.UNSEALED, Chunk.LEASED} & set(CHUNK[Change.SHARE])
    assert set(CHUNK[Change.MAKE]) == {Chunk.GONE}
    assert not set(CHUNK[Change.ADD]) - {Chunk.GONE, Chunk.BEING_MADE}
    assert set(CHUNK[Change.LEASE]) == {Chunk.BEING_MADE, Chunk.UNSEALED}, "M3: one lease at a time"
    assert set(CHUNK[Change.COPY]) == {Chunk.SHARED}


def test_every_state_can_be_reached_and_left() -> None:
    edges = {(a, b) for rows in CHUNK.values() for a, after in rows.items() for b in after}
    for state in Chunk:
        assert any(b is state and a is not state for a, b in edges)
        assert any(a is state and b is not state for a, b in edges)
    assert set(CHUNK) == set(WHO) == set(Change)
    assert set(BEGUN_BY.values()) < set(Change)


@pytest.mark.parametrize(
    ("news", "before"),
    [
        (news, before)
        for news in News
        for before in Replica
        if before not in REPLICA[news]
        and not (news is News.FELL_BACK and before in (Replica.NONE, Replica.GOOD))
    ],
)
def test_a_replica_cannot_change_against_the_table(news: News, before: Replica) -> None:
    """A damaged or leaving one never becomes good by a version that it took; a stale one is not
    made stale; what is not held cannot be damaged."""
    chunks = table(Chunk.SEALED)
    if before is Replica.GOOD:
        chunks.report(H, 7, V3, 100)
    elif before is not Replica.NONE:
        chunks._odd[H] = {7: OddReplica(before, V3, 5)}
        chunks._hold(7, H)
    after = next(iter(next(iter(REPLICA[news].values()))))
    set_it = (
        (lambda: chunks._set_good(H, 7, news))
        if after is Replica.GOOD
        else (lambda: chunks._set_odd(H, 7, news, OddReplica(after, V3, 5)))
    )

    with pytest.raises(ForbiddenChange, match=rf"is {before} on server 7: .*created as chunk 0"):
        set_it()
    assert chunks.replica(H, 7) is before


def test_a_replica_that_is_to_be_deleted_stays_that_when_it_is_found_damaged() -> None:
    """Otherwise a clone could be put in its place before it is deleted, and be deleted instead."""
    chunks = table(Chunk.SEALED)
    chunks.report(H, 7, V3, 100)
    chunks.mark_leaving(H, 7)

    with pytest.raises(ForbiddenChange, match="leaving on server 7: it cannot be found damaged"):
        chunks.mark_corrupt(H, 7)


@pytest.mark.parametrize(
    ("kind", "state"),
    [(k, s) for k, c in BEGUN_BY.items() for s in Chunk if s not in CHUNK[c]],
)
def test_work_begins_only_where_it_may_end(kind: str, state: Chunk) -> None:
    brain = Metadata(Settings(), Random(1))
    chunks, leases = brain.tables.chunks, brain.tables.leases
    if state is Chunk.BEING_MADE:
        brain.underways.begin(Underway("create", H))
        with pytest.raises(AssertionError, match="two changes at once"):
            brain.underways.begin(Underway(kind, H))
        return
    for step in {Chunk.GONE: "", Chunk.SEALED: "as", Chunk.SHARED: "as+"}.get(state, "a"):
        LOGGED[{"a": Change.ADD, "s": Change.SEAL, "+": Change.SHARE}[step]](chunks)
    if state is Chunk.LEASED:
        leases.begin(Lease(H, V1, 1, 60.0), 0.0)
    assert brain.underways.state_of(H) is state

    with pytest.raises(ForbiddenChange, match=f"is {state}"):
        brain.underways.begin(Underway(kind, H))
    assert brain.underways.of(H) is None


def test_only_those_change_a_chunk_who_may() -> None:
    """The log's changes come from the modules that fold the log; leases are given by one."""
    calls = {
        Change.ADD: r"chunks\.add\(",
        Change.GRANT: r"chunks\.grant\(",
        Change.SEAL: r"chunks\.seal\(",
        Change.SHARE: r"chunks\.reference\([^)]*\), \+1\)",
        Change.DROP: r"chunks\.reference\(.*-1\)",
        Change.LEASE: r"check\(.*Change\.LEASE\)",
        Change.MAKE: r'Underway\("(create|copy-target)"',
        Change.COPY: r'Underway\("copy"',
        Change.GIVE_UP: r"def _discard\(",
        Change.EXPIRE: r"def expire\(self, now_s",
    }
    folder = ROOT / "dfs" / "metadata"
    for change, call in calls.items():
        found = {p.stem for p in folder.glob("*.py") if re.search(call, p.read_text())}
        assert found == set(WHO[change]), change
