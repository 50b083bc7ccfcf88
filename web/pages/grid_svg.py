"""All tasks of a kind as one drawing: a cell a task, or a block of tasks where they are more.

One path a state, a stroke a run of neighbours: dashes make the cells, so that a thousand tasks in
the same state cost a few bytes. A state differs from the others by form as well as by colour: idle
is a point, running a bar, done a square, failed a square with a bar across, backup one with a hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup

from mrstream.mapreduce.snapshot import BACKUP, FAILED
from mrstream.view.grid import GridCell, block_size, fold, tally
from mrstream.view.palette import TASK_MARKS
from mrstream.web.pages.markup import element, url

CELLS_MAX = 4096
COLUMNS = (64, 128)
"""Of a job with few tasks, and with many."""
FEW = 1024
UNITS = 10
"""Of the drawing, a cell."""
_OVERLAYS = {FAILED: "across", BACKUP: "hole"}


def drawn(label: str, kind: str, states: bytes, tasks_path: str) -> Markup:
    """Return the grid of the tasks of one kind; a row leads to the list of its tasks."""
    block = block_size(len(states), CELLS_MAX)
    cells = fold(states, block)
    columns = COLUMNS[len(cells) > FEW]
    rows = -(-len(cells) // columns)
    each = "" if block == 1 else f", {block} a cell"
    return element(
        "figure",
        element(
            "figcaption",
            element("strong", f"{label} {len(states):,}{each}"),
            element("span", _legend(kind, states, tasks_path), cls="legend"),
        ),
        element(
            "div",
            element(
                "svg",
                [_paths(cells, columns, state) for state in TASK_MARKS],
                [_row_link(label, kind, row, columns * block, len(states), tasks_path, columns)
                 for row in range(rows)],
                cls="grid" if columns == COLUMNS[0] else "grid fine",
                viewBox=f"0 0 {columns * UNITS} {max(1, rows) * UNITS}",
                role="group",
                aria_label=f"{label}, a link a row of cells",
            ),
            cls="wide",
        ),
        cls="tasks",
    )  # fmt: skip


def _legend(kind: str, states: bytes, tasks_path: str) -> list[Markup]:
    return [
        element(
            "a",
            element("span", TASK_MARKS[state].sign, cls=f"c-{TASK_MARKS[state].colour}"),
            f" {number:,} {TASK_MARKS[state].word}",
            href=url(tasks_path, kind=kind, state=TASK_MARKS[state].word),
        )
        for state, number in tally(states)
    ]


def _paths(cells: Sequence[GridCell], columns: int, state: int) -> list[Markup]:
    strokes = "".join(_strokes(cells, columns, state))
    if not strokes:
        return []
    mark = TASK_MARKS[state]
    found = [element("path", cls=f"t-{mark.word} s-{mark.colour}", d=strokes)]
    if state in _OVERLAYS:
        found.append(element("path", cls=f"t-{_OVERLAYS[state]}", d=strokes))
    return found


def _strokes(cells: Sequence[GridCell], columns: int, state: int) -> list[str]:
    """A stroke for each run of cells in this state, along the middle of its row."""
    found = []
    for row, start in enumerate(range(0, len(cells), columns)):
        at = 0
        for shown, run in groupby(cell.state for cell in cells[start : start + columns]):
            length = sum(1 for _ in run)
            if shown == state:
                middle = row * UNITS + UNITS // 2
                found.append(f"M{at * UNITS} {middle}h{length * UNITS}")
            at += length
    return found


def _row_link(
    label: str, kind: str, row: int, tasks_a_row: int, tasks: int, tasks_path: str, columns: int
) -> Markup:
    first = row * tasks_a_row
    last = min(first + tasks_a_row, tasks) - 1
    words = f"{label} {first:,} to {last:,}"
    return element(
        "a",
        element(
            "rect", element("title", words), y=row * UNITS, width=columns * UNITS, height=UNITS
        ),
        href=url(tasks_path, kind=kind, first=first),
        aria_label=words,
    )
