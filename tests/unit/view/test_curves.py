"""The three curves of a job as numbers (view/curves.py)."""

from __future__ import annotations

from mrstream.mapreduce.snapshot import RatePoint
from mrstream.view.curves import curves, levels, resample, time_ticks

POINTS = [RatePoint(100.0 + i, 1e6 * i, 2e6, 0.0) for i in range(61)]


def test_more_values_than_columns_are_means_and_fewer_are_repeated() -> None:
    assert resample([1, 3, 5, 7], 2) == [2.0, 6.0]
    assert resample([1, 2], 4) == [1.0, 1.0, 2.0, 2.0]
    assert resample([], 3) == [0.0, 0.0, 0.0]


def test_the_highest_column_has_all_steps() -> None:
    assert levels([0, 4, 12, 16], columns=4, steps=16) == [0, 4, 12, 16]
    assert levels([0, 0], columns=2, steps=16) == [0, 0]


def test_a_curve_says_its_last_and_its_highest_rate() -> None:
    read, shuffled, written = curves(POINTS)

    assert [curve.label for curve in (read, shuffled, written)] == ["input", "shuffle", "output"]
    assert (read.now, read.peak) == ("57M/s", "57M/s")
    assert (shuffled.now, written.peak) == ("1.9M/s", "0B/s")
    assert [curve.now for curve in curves([])] == ["0B/s"] * 3


def test_ticks_go_from_the_first_point_to_the_last() -> None:
    assert time_ticks(POINTS) == ["0s", "1:00"]
    assert time_ticks(POINTS, 4) == ["0s", "20s", "40s", "1:00"]
    assert time_ticks([]) == ["0s", "0s"]
