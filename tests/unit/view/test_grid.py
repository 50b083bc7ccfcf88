"""Tasks folded into cells (view/grid.py)."""

from __future__ import annotations

from mrstream.mapreduce.snapshot import (
    BACKUP,
    COMMITTED,
    FAILED,
    IDLE,
    RUNNING,
    JobBoard,
    JobRow,
    TaskRow,
)
from mrstream.view.grid import (
    MAPS,
    REDUCES,
    GridCell,
    block_cell,
    block_size,
    fold,
    tally,
    task_states,
)


def test_a_block_of_tasks_shows_what_needs_a_look_first() -> None:
    shown = {
        block: block_cell(bytes(block)).state
        for block in [
            (COMMITTED, FAILED, BACKUP, RUNNING),
            (COMMITTED, BACKUP, RUNNING),
            (COMMITTED, RUNNING, IDLE),
            (COMMITTED, IDLE),
            (COMMITTED, COMMITTED),
        ]
    }

    assert list(shown.values()) == [FAILED, BACKUP, RUNNING, IDLE, COMMITTED]


def test_a_block_is_at_its_last_level_only_when_all_of_it_is_done() -> None:
    levels = [GridCell(RUNNING, done, 200).level(5) for done in (0, 49, 50, 100, 199, 200)]

    assert levels == [0, 0, 1, 2, 3, 4]


def test_tasks_share_a_cell_only_when_they_are_more_than_the_cells() -> None:
    assert [block_size(tasks, 4096) for tasks in (0, 1, 4096, 4097, 15_000)] == [1, 1, 1, 2, 4]
    assert block_size(10, 0) == 10


def test_the_paper_s_sort_folds_into_cells_that_lose_no_task() -> None:
    """MapReduce §5.3: 15,000 maps, and a page draws 4,096 cells at most."""
    states = bytes([COMMITTED] * 10_000 + [RUNNING] * 3_000 + [IDLE] * 2_000)

    cells = fold(states, block_size(len(states), 4096))

    assert len(cells) <= 4096
    assert sum(cell.tasks for cell in cells) == 15_000
    assert sum(cell.done for cell in cells) == 10_000
    assert fold(b"", 1) == []


def test_a_tally_has_only_states_that_occur_in_the_order_of_the_legend() -> None:
    assert tally(bytes([FAILED, IDLE, COMMITTED, IDLE])) == [(IDLE, 2), (COMMITTED, 1), (FAILED, 1)]


def test_states_are_in_order_of_number_whatever_changed_last() -> None:
    board = JobBoard(JobRow("job_1_0001"))
    for key, state in [("m000002", FAILED), ("r000000", COMMITTED), ("m000000", RUNNING)]:
        board.tasks.put(TaskRow(key, state))
    board.tasks.put(TaskRow("m000009", COMMITTED))  # of a job that now has fewer

    assert task_states(board, MAPS, 3) == bytes([RUNNING, IDLE, FAILED])
    assert task_states(board, REDUCES, 1) == bytes([COMMITTED])
