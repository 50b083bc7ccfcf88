"""The three curves of a job, drawn in eighths of a cell."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from mrstream.mapreduce.snapshot import RatePoint
from mrstream.view.curves import curves, levels, time_ticks
from mrstream.view.palette import ON_DARK

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def plot(values: Sequence[float], width: int, height: int) -> list[str]:
    """Draw a filled curve in eighths of a cell, `height` lines of `width` cells, top line first."""
    columns = levels(values, width, height * 8)
    return [
        "".join(_EIGHTHS[min(8, max(0, level - floor))] for level in columns)
        for floor in range((height - 1) * 8, -1, -8)
    ]


class Curves(Widget):
    """The three rates of a job, one panel below the other, each with its own scale."""

    DEFAULT_CSS = "Curves { height: 1fr; min-height: 6; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[list[Segment]] = []
        self._points: list[RatePoint] = []
        self._drawn = (-1, 0, 0)

    def show(self, points: list[RatePoint]) -> None:
        """Draw these points; does nothing if none came since."""
        self._points = points
        if self._drawn[0] != len(points):
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if self._drawn != (len(self._points), width, height):
            self._draw(width, height)
        segments = self._lines[y] if y < len(self._lines) else []
        return Strip(segments).adjust_cell_length(width)

    def _draw(self, width: int, height: int) -> None:
        self._drawn = (len(self._points), width, height)
        panel = max(2, (height - 1) // 3)  # one line is left for the axis of time
        lines: list[list[Segment]] = []
        for curve in curves(self._points):
            style = Style(color=ON_DARK[curve.colour])
            title = f"{curve.label:<8}{curve.now:>8}  top: {curve.peak}"
            lines.append([Segment(title[:width], style + Style(bold=True))])
            lines += [[Segment(line, style)] for line in plot(curve.values, width, panel - 1)]
        if self._points and len(lines) < height:
            first, last = time_ticks(self._points)
            lines.append([Segment(first + last.rjust(width - len(first)), Style(dim=True))])
        self._lines = lines
