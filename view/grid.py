"""The tasks of a job folded into cells: one task a cell, or a block where they are more.

Takes one byte a task; gives cells that say what to look at first. How many cells there are, and
what a cell looks like, is the medium's business.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from mrstream.mapreduce.snapshot import BACKUP, COMMITTED, FAILED, IDLE, RUNNING, JobBoard
from mrstream.view.palette import TASK_MARKS

MAPS, REDUCES = "m", "r"


class GridCell(NamedTuple):
    """A block of neighbouring tasks: the state to show, and how many of them are done."""

    state: int
    done: int
    tasks: int

    def level(self, levels: int) -> int:
        """Return how far the block is, from 0 to `levels` - 1; the last only if all is done."""
        return self.done * (levels - 1) // self.tasks


def task_states(board: JobBoard, kind: str, tasks: int) -> bytes:
    """Return one byte a task of this kind, in order of number."""
    states = bytearray(tasks)
    for row in board.tasks:
        if row.key[0] == kind:
            number = int(row.key[1:])
            if number < tasks:
                states[number] = row.state
    return bytes(states)


def block_size(tasks: int, cells: int) -> int:
    """Return how many tasks share a cell so that no more than `cells` are needed."""
    return max(1, -(-tasks // max(1, cells)))


def fold(states: bytes, block: int) -> list[GridCell]:
    """Return the cells of a grid with `block` tasks a cell, in order of number."""
    return [block_cell(states[start : start + block]) for start in range(0, len(states), block)]


# Neighbours mostly are alike: of 15,000 tasks in blocks of three few are not seen before.
@lru_cache(maxsize=4096)
def block_cell(states: bytes) -> GridCell:
    """Return the cell of a block: what needs a look first, else what goes on in it."""
    done = states.count(COMMITTED)
    if done == len(states):
        state = COMMITTED
    else:
        state = next((each for each in (FAILED, BACKUP, RUNNING) if each in states), IDLE)
    return GridCell(state, done, len(states))


def tally(states: bytes) -> list[tuple[int, int]]:
    """Return each state that occurs and how many tasks are in it, in the order of the legend."""
    numbers = [(state, states.count(state)) for state in TASK_MARKS]
    return [(state, number) for state, number in numbers if number]
