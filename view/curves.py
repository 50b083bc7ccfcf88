"""Three curves over time as numbers, as in the MapReduce paper's Figure 3: input, shuffle, output.

Takes the rates of a job; gives as many points, levels and ticks as a medium has room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mrstream.mapreduce.snapshot import RatePoint
from mrstream.view.palette import Colour
from mrstream.view.words import rate, span


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: bytes a second, oldest first."""

    label: str
    colour: Colour
    values: tuple[float, ...]

    @property
    def now(self) -> str:
        """The last rate, in words."""
        return rate(self.values[-1] if self.values else 0.0)

    @property
    def peak(self) -> str:
        """The highest rate, in words."""
        return rate(max(self.values, default=0.0))


def curves(points: Sequence[RatePoint]) -> tuple[Curve, Curve, Curve]:
    return (
        Curve("input", Colour.SKY, tuple(point.input_rate for point in points)),
        Curve("shuffle", Colour.ORANGE, tuple(point.shuffle_rate for point in points)),
        Curve("output", Colour.GREEN, tuple(point.output_rate for point in points)),
    )


def resample(values: Sequence[float], columns: int) -> list[float]:
    """Return `columns` means of equal stretches of `values`; repeats where there are fewer."""
    if not values:
        return [0.0] * columns
    count = len(values)
    means = []
    for column in range(columns):
        start = column * count // columns
        stop = max(start + 1, (column + 1) * count // columns)
        means.append(sum(values[start:stop]) / (stop - start))
    return means


def levels(values: Sequence[float], columns: int, steps: int) -> list[int]:
    """Return the height of each column in whole steps; the highest column has them all."""
    means = resample(values, columns)
    top = max(means) or 1.0
    return [round(mean / top * steps) for mean in means]


def time_ticks(points: Sequence[RatePoint], count: int = 2) -> list[str]:
    """Return `count` moments at equal distances from the first point to the last, in words."""
    elapsed_s = points[-1].at_s - points[0].at_s if points else 0.0
    return [span(elapsed_s * tick / (count - 1)) for tick in range(count)]
