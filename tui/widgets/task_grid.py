"""One cell a task, or a block of tasks where they are more than the cells."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from mapreduce.snapshot import BACKUP, COMMITTED, FAILED, IDLE, RUNNING

# Every state has its own sign, so that the grid reads without colour.
SIGNS = {IDLE: "·", RUNNING: "▸", COMMITTED: "■", FAILED: "✗", BACKUP: "◆"}
STYLES = {
    IDLE: Style(color="#6c7a89"),
    RUNNING: Style(color="#f0e442", bold=True),
    COMMITTED: Style(color="#56b4e9"),
    FAILED: Style(color="#d55e00", bold=True),
    BACKUP: Style(color="#cc79a7", bold=True),
}
NAMES = {IDLE: "idle", RUNNING: "running", COMMITTED: "done", FAILED: "failed", BACKUP: "backup"}
_SHADES = "·░▒▓■"


def block_cell(states: bytes) -> tuple[str, Style]:
    """Give the sign of a block: what needs a look first, else how much of it is done."""
    if len(states) == 1:
        return SIGNS[states[0]], STYLES[states[0]]
    if FAILED in states:
        return SIGNS[FAILED], STYLES[FAILED]
    if BACKUP in states:
        return SIGNS[BACKUP], STYLES[BACKUP]
    done = states.count(COMMITTED)
    shade = _SHADES[done * (len(_SHADES) - 1) // len(states)]
    if done == len(states):
        return shade, STYLES[COMMITTED]
    return shade, STYLES[RUNNING if RUNNING in states else IDLE]


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

    def block_size(self, width: int, height: int) -> int:
        """Give how many tasks share a cell."""
        cells = max(1, width * max(1, height - 1))
        return max(1, -(-len(self._states) // cells))

    def render_line(self, y: int) -> Strip:
        """Give the title or one row of cells."""
        width, height = self.size
        if self._drawn != (self._states, width, height):
            self._draw(width, height)
        segments = self._lines[y] if y < len(self._lines) else []
        return Strip(segments).adjust_cell_length(width)

    def _draw(self, width: int, height: int) -> None:
        self._drawn = (self._states, width, height)
        block = self.block_size(width, height)
        cells = [
            block_cell(self._states[start : start + block])
            for start in range(0, len(self._states), block)
        ]
        self._lines = [self._title(block)]
        for start in range(0, len(cells), max(1, width)):
            self._lines.append(_runs(cells[start : start + width]))

    def _title(self, block: int) -> list[Segment]:
        each = "" if block == 1 else f", {block} a cell"
        title = [Segment(f"{self._label} {len(self._states):,}{each}  ", Style(bold=True))]
        for state, name in NAMES.items():
            number = self._states.count(state)
            if number:
                title.append(Segment(f"{SIGNS[state]} ", STYLES[state]))
                title.append(Segment(f"{number:,} {name}  "))
        return title


def _runs(cells: Sequence[tuple[str, Style]]) -> list[Segment]:
    """Join neighbours of one style: a terminal is written in runs, not in cells."""
    segments: list[Segment] = []
    text, style = "", Style()
    for sign, of_cell in cells:
        if of_cell is not style and text:
            segments.append(Segment(text, style))
            text = ""
        text, style = text + sign, of_cell
    if text:
        segments.append(Segment(text, style))
    return segments
