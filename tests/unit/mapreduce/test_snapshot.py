"""Rows that know when they last changed (mapreduce/snapshot.py)."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mrstream.mapreduce.snapshot import (
    AttemptRow,
    Board,
    Changes,
    EventRow,
    JobBoard,
    JobRow,
    JobSeen,
    JobSnapshot,
    RatePoint,
    TaskRow,
    remarks,
)


def test_a_row_that_did_not_change_is_not_told_again() -> None:
    board: Board[TaskRow] = Board()
    board.put(TaskRow("m0", 0))
    board.put(TaskRow("m1", 0))
    seen = board.version

    board.put(TaskRow("m0", 0))
    board.put(TaskRow("m1", 1))

    assert board.since(seen).rows == (TaskRow("m1", 1),)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3) | st.none(), st.booleans()), max_size=60
    )
)
def test_a_watcher_that_asks_at_any_moments_ends_with_the_same_rows(
    steps: list[tuple[int, int | None, bool]],
) -> None:
    board: Board[TaskRow] = Board()
    watcher: Board[TaskRow] = Board()
    for key, state, asks in steps:
        if state is None:
            board.drop(f"m{key}")
        else:
            board.put(TaskRow(f"m{key}", state))
        if asks:
            watcher.apply(board.since(watcher.version))

    watcher.apply(board.since(watcher.version))

    assert sorted(watcher, key=lambda row: row.key) == sorted(board, key=lambda row: row.key)


def test_a_watcher_of_an_earlier_master_forgets_what_it_saw() -> None:
    """A restarted master counts from one again: a version from before means nothing to it."""
    watcher: Board[TaskRow] = Board()
    watcher.apply(Changes(900, (TaskRow("old", 1),)))
    restarted: Board[TaskRow] = Board()
    restarted.put(TaskRow("new", 1))

    watcher.apply(restarted.since(watcher.version))

    assert [row.key for row in watcher] == ["new"]


def test_a_job_snapshot_crosses_the_wire_and_brings_only_news() -> None:
    board = JobBoard(JobRow("job_1"))
    board.tasks.put(TaskRow("m0", 1))
    board.events.append(EventRow(1.0, "started"))
    watcher = JobBoard(JobRow("job_1"))
    first = board.since(JobSeen(), 2.0)
    watcher.apply(first, JobSeen())
    board.events.append(EventRow(3.0, "m0 done"))
    board.rates.append(RatePoint(3.0, 1.0, 2.0, 3.0))

    wire = msgspec.msgpack.encode(board.since(first.seen, 4.0))
    news = msgspec.msgpack.decode(wire, type=JobSnapshot)
    watcher.apply(news, first.seen)

    assert news.tasks.rows == ()
    assert [event.text for event in watcher.events] == ["started", "m0 done"]
    assert len(watcher.rates) == 1


def test_a_straggler_and_a_skewed_reduce_are_pointed_out_in_words() -> None:
    board = JobBoard(JobRow("job_1"))
    for i in range(5):
        board.attempts.put(
            AttemptRow(f"a{i}", f"m{i}", "h1", "succeeded", "", 0.0, 10.0, records=100)
        )
        board.attempts.put(
            AttemptRow(
                f"b{i}", f"r{i}", "h1", "succeeded", "", 0.0, 10.0, records=10 + 900 * (i == 4)
            )
        )
    board.attempts.put(AttemptRow("a9", "m9", "h7", "running", "", 0.0))

    said = remarks(board, now_s=60.0)

    assert any("m9 on h7" in text for text in said)
    assert any("r4 had 910 records" in text for text in said)
