"""cluster.units: sizes, times and numbers in a sentence."""

from __future__ import annotations

import pytest

from mrstream.cluster.units import binary_size, decimal_size, duration, with_commas


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (12, "12 s"), (61, "1 min 01 s"), (7300, "2 h 01 min")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e12, "2.5 TB")]
)
def test_what_a_job_moves_is_counted_in_thousands(count: float, text: str) -> None:
    assert decimal_size(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_what_lies_on_a_disk_is_counted_in_powers_of_1024(count: float, text: str) -> None:
    assert binary_size(count) == text


def test_thousands_can_be_seen() -> None:
    assert with_commas(1234567) == "1,234,567"
