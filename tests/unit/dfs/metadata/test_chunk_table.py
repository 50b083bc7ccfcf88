"""Replicas: which are good, which are odd, and what a report does to them (M4)."""

from __future__ import annotations

import pytest

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion
from mrstream.dfs.metadata.chunk_table import ChunkTable
from mrstream.dfs.metadata.handle_set import HandleSet

H = ChunkHandle(5000)
V1, V2, V3 = ChunkVersion(1), ChunkVersion(2), ChunkVersion(3)


def table(version: ChunkVersion = V1, length: int = 100, goal: int = 3) -> ChunkTable:
    """One sealed chunk without replicas."""
    chunks = ChunkTable()
    chunks.add(H, owner=1, index=0, goal=goal)
    chunks.seal(H, version, length)
    return chunks


def test_a_replica_at_the_granted_version_is_good() -> None:
    chunks = table()

    for server in (7, 3, 9, 1, 8, 2):
        chunks.report(H, server, V1, 100)

    assert sorted(chunks.good(H)) == [1, 2, 3, 7, 8, 9]
    chunks.lose(H, 9)
    chunks.lose(H, 8)
    assert sorted(chunks.good(H)) == [1, 2, 3, 7]
    chunks.check_invariants(H)


def test_behind_is_stale_short_is_short_and_neither_is_shown() -> None:
    chunks = table(V2)

    chunks.report(H, 1, V1, 100)
    chunks.report(H, 2, V2, 99)
    chunks.report(H, 3, V2, 100)

    assert chunks.good(H) == [3]
    assert {s: r.state for s, r in chunks.odd(H).items()} == {1: "stale", 2: "short"}
    assert list(chunks.held_by(1)) == [H]


def test_a_higher_version_wins_and_the_lower_is_kept_until_it_is_needed_or_not() -> None:
    """GFS §4.5: the master died while granting."""
    chunks = table()
    chunks.report(H, 1, V1, 100)
    chunks.report(H, 2, V3, 100)
    chunks.report(H, 3, V2, 100)

    assert (chunks.good(H), chunks.version(H), chunks.highest_version(H)) == ([2], V3, V3)
    chunks.lose(H, 2)
    assert (chunks.good(H), chunks.version(H)) == ([3], V2)
    chunks.lose(H, 3)
    assert (chunks.good(H), chunks.version(H)) == ([1], V1)


def test_preparing_a_version_makes_all_others_stale() -> None:
    chunks = table()
    for server in (1, 2, 3):
        chunks.report(H, server, V1, 100)

    chunks.grant(H, V2, owner=1, index=0)
    chunks.prepared(H, V1, [1, 3])

    assert sorted(chunks.good(H)) == [1, 3]
    assert chunks.odd(H)[2].version == V1


def test_what_was_told_to_leave_does_not_come_back_by_an_old_report() -> None:
    chunks = table()
    for server in (1, 2, 3, 4):
        chunks.report(H, server, V1, 100)

    chunks.mark_leaving(H, 4)
    chunks.report(H, 4, V1, 100)
    assert 4 not in chunks.good(H)
    chunks.unsure_of(4)
    chunks.report(H, 4, V1, 100)

    assert 4 in chunks.good(H)


def test_a_corrupt_replica_stays_corrupt_until_it_is_replaced() -> None:
    chunks = table()
    chunks.report(H, 1, V1, 100)

    chunks.mark_corrupt(H, 1)
    chunks.report(H, 1, V1, 100)
    assert chunks.good(H) == []
    chunks.lose(H, 1)
    chunks.report(H, 1, V1, 100)

    assert chunks.good(H) == [1]


def test_the_last_reference_takes_everything_with_it() -> None:
    chunks = table()
    chunks.reference(H, +1)
    chunks.report(H, 1, V1, 100)
    chunks.report(H, 2, V1, 5)

    chunks.reference(H, -1)
    assert H in chunks
    chunks.reference(H, -1)

    assert H not in chunks and chunks.count == 0
    assert list(chunks.held_by(1)) == list(chunks.held_by(2)) == []


def test_a_handle_cannot_be_added_twice() -> None:
    chunks = table()

    with pytest.raises(AssertionError, match="is sealed: it cannot be added"):
        chunks.add(H, owner=2, index=0, goal=3)


def test_losing_a_server_names_all_that_it_held() -> None:
    chunks = ChunkTable()
    handles = [ChunkHandle(n) for n in (1, 1023, 1024, 99_999)]
    for handle in handles:
        chunks.add(handle, owner=1, index=0, goal=1)
        chunks.report(handle, 5, V1, 0)

    assert chunks.held_count(5) == 4
    assert chunks.lose_server(5) == handles
    assert all(not chunks.good(handle) for handle in handles)


def test_a_set_of_handles_is_a_set_in_order() -> None:
    handles = HandleSet()
    for number in (5000, 3, 1023, 1024, 3):
        handles.add(ChunkHandle(number))

    assert list(handles) == [3, 1023, 1024, 5000]
    assert len(handles) == 4 and 3 in handles and 4 not in handles
    handles.discard(ChunkHandle(3))
    handles.discard(ChunkHandle(4))
    assert handles.take(1) == [1023]
    assert handles.take(10) == [1024, 5000]
    assert not handles
