"""The states of tasks as signs: one cell a task, or a block of tasks where they are more."""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from mrstream.mapreduce.snapshot import BACKUP, FAILED
from mrstream.tui.widgets.ink import ink
from mrstream.view.grid import GridCell, block_size, fold, tally
from mrstream.view.palette import TASK_MARKS

STYLES = {
    state: Style.parse(ink(mark.colour, loud=mark.loud)) for state, mark in TASK_MARKS.items()
}
_SHADES = "·░▒▓■"


def cell_sign(cell: GridCell) -> str:
    """Return the sign of a cell: that of its state, or of a block that is well how much is done."""
    mark = TASK_MARKS[cell.state]
    if cell.tasks == 1 or cell.state in (FAILED, BACKUP):
        return mark.sign
    return _SHADES[cell.level(len(_SHADES))]


class TaskGrid(Widget):
    """The states of all tasks of one kind, in order of their number."""

    DEFAULT_CSS = "TaskGrid { height: 1fr; min-height: 3; }"

    def __init__(self, label: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._label = label
        self._states = b""
        self._lines: list[list[Segment]] = []
        self._drawn: tuple[bytes, int, int] = (b"\xff", 0, 0)

    def show(self, states: bytes) -> None:
        """Draw these states, one byte a task; does nothing if they are the same."""
        if states != self._states:
            self._states = states
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return the title or one row of cells."""
        width, height = self.size
        if self._drawn != (self._states, width, height):
            self._draw(width, height)
        segments = self._lines[y] if y < len(self._lines) else []
        return Strip(segments).adjust_cell_length(width)

    def _draw(self, width: int, height: int) -> None:
        self._drawn = (self._states, width, height)
        block = block_size(len(self._states), width * max(1, height - 1))
        cells = fold(self._states, block)
        self._lines = [self._title(block)]
        for start in range(0, len(cells), max(1, width)):
            self._lines.append(_runs(cells[start : start + width]))

    def _title(self, block: int) -> list[Segment]:
        each = "" if block == 1 else f", {block} a cell"
        title = [Segment(f"{self._label} {len(self._states):,}{each}  ", Style(bold=True))]
        for state, number in tally(self._states):
            mark = TASK_MARKS[state]
            title.append(Segment(f"{mark.sign} ", STYLES[state]))
            title.append(Segment(f"{number:,} {mark.word}  "))
        return title


def _runs(cells: Iterable[GridCell]) -> list[Segment]:
    """Join neighbours of one style: a terminal is written in runs, not in cells."""
    segments: list[Segment] = []
    text, state = "", -1
    for cell in cells:
        if cell.state != state and text:
            segments.append(Segment(text, STYLES[state]))
            text = ""
        text, state = text + cell_sign(cell), cell.state
    if text:
        segments.append(Segment(text, STYLES[state]))
    return segments
