"""The three curves of a job as one drawing, with a table of the same numbers beside it.

Takes the rates of a job; gives at most `POINTS_MAX` points a curve, however long it ran.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from mrstream.mapreduce.snapshot import RatePoint
from mrstream.view.curves import Curve, curves, resample, time_ticks
from mrstream.view.words import rate
from mrstream.web.pages.markup import element

POINTS_MAX = 600
WIDTH, HEIGHT = 600, 90
TICKS = 3
ROWS_TOLD = 12


def drawn(points: Sequence[RatePoint]) -> Markup:
    """Return the curves, one below the other, over the same time."""
    told = curves(points)
    ticks = time_ticks(points, TICKS)
    return element(
        "div",
        [_panel(curve, ticks) for curve in told],
        _numbers(points, told),
        cls="curves",
    )


def _panel(curve: Curve, ticks: Sequence[str]) -> Markup:
    columns = min(POINTS_MAX, max(2, len(curve.values)))
    means = resample(curve.values, columns)
    top = max(means) or 1.0
    step = WIDTH / (columns - 1)
    line = " ".join(
        f"{index * step:.4g},{HEIGHT - mean / top * (HEIGHT - 4):.3g}"
        for index, mean in enumerate(means)
    )
    return element(
        "figure",
        element(
            "figcaption",
            element("strong", curve.label, cls=f"c-{curve.colour}"),
            f" {curve.now}  peak {curve.peak}",
        ),
        element(
            "svg",
            element(
                "polygon",
                cls=f"area f-{curve.colour}",
                points=f"0,{HEIGHT} {line} {WIDTH},{HEIGHT}",
            ),
            element("polyline", cls=f"line s-{curve.colour}", points=line),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{curve.label}: now {curve.now}, peak {curve.peak}",
        ),
        element("p", [element("span", tick) for tick in ticks], cls="ticks", aria_hidden="true"),
    )


def _numbers(points: Sequence[RatePoint], told: Sequence[Curve]) -> Markup:
    """The same numbers for who cannot see the drawing, or wants to read them."""
    count = min(ROWS_TOLD, len(points))
    moments = time_ticks(points, count) if count > 1 else time_ticks(points)[:count]
    columns = [resample(curve.values, count) for curve in told]
    titles = ["Time", *(curve.label for curve in told)]
    rows = [
        element(
            "tr",
            element("th", moment, scope="row"),
            [element("td", rate(column[at]), cls="num") for column in columns],
        )
        for at, moment in enumerate(moments)
    ]
    return element(
        "details",
        element("summary", "The same as numbers"),
        element(
            "table",
            element("caption", "Bytes a second"),
            element("thead", element("tr", [element("th", word, scope="col") for word in titles])),
            element("tbody", rows),
            cls="plain",
        ),
    )
