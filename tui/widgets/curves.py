"""Three curves over time, as in the MapReduce paper's Figure 3: input, shuffle and output rate."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from mapreduce.snapshot import RatePoint
from view.words import rate, span

_EIGHTHS = " ▁▂▃▄▅▆▇█"
# Blue, orange and green of a palette that the colour-blind can tell apart.
COLOURS = ("#56b4e9", "#e69f00", "#009e73")
LABELS = ("input", "shuffle", "output")


def resample(values: Sequence[float], columns: int) -> list[float]:
    """Give `columns` means of equal stretches of `values`; repeats where there are fewer."""
    if not values:
        return [0.0] * columns
    count = len(values)
    means = []
    for column in range(columns):
        start = column * count // columns
        stop = max(start + 1, (column + 1) * count // columns)
        means.append(sum(values[start:stop]) / (stop - start))
    return means


def plot(values: Sequence[float], width: int, height: int) -> list[str]:
    """Draw a filled curve in eighths of a cell, `height` lines of `width` cells, top line first."""
    columns = resample(values, width)
    top = max(columns) or 1.0
    levels = [round(value / top * height * 8) for value in columns]
    return [
        "".join(_EIGHTHS[min(8, max(0, level - floor))] for level in levels)
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
        """Give one line of the panels."""
        width, height = self.size
        if self._drawn != (len(self._points), width, height):
            self._draw(width, height)
        segments = self._lines[y] if y < len(self._lines) else []
        return Strip(segments).adjust_cell_length(width)

    def _draw(self, width: int, height: int) -> None:
        self._drawn = (len(self._points), width, height)
        panel = max(2, height // 3)
        lines: list[list[Segment]] = []
        series = (
            [point.input_rate for point in self._points],
            [point.shuffle_rate for point in self._points],
            [point.output_rate for point in self._points],
        )
        for label, colour, values in zip(LABELS, COLOURS, series, strict=True):
            now, peak = (values[-1], max(values)) if values else (0.0, 0.0)
            title = f"{label:<8}{rate(now):>8}  peak {rate(peak)}"
            lines.append([Segment(title[:width], Style(color=colour, bold=True))])
            for line in plot(values, width, panel - 1):
                lines.append([Segment(line, Style(color=colour))])
        if self._points and len(lines) < height:
            elapsed = span(self._points[-1].at_s - self._points[0].at_s)
            lines.append([Segment("0s" + elapsed.rjust(width - 2), Style(dim=True))])
        self._lines = lines
