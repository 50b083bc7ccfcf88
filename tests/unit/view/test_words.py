"""Numbers in a narrow column (view/words.py)."""

from __future__ import annotations

import pytest

from mrstream.view.words import count, mode, natural, percent, size, span


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (0, "0B"),
        (999, "999B"),
        (1000, "1.0K"),
        (64 << 20, "64M"),
        (1023 << 20, "1.0G"),
        (5e18, "4441P"),
    ],
)
def test_a_size_takes_at_most_five_characters(given: float, shown: str) -> None:
    assert size(given) == shown


def test_spans_counts_and_percentages_read_as_people_say_them() -> None:
    assert [span(s) for s in (-1, 59, 187, 8100)] == ["–", "59s", "3:07", "2:15:00"]
    assert [count(n) for n in (9999, 15_000, 123_456_789)] == ["9999", "15.0k", "123.5M"]
    assert [percent(f) for f in (0, 0.999, 1)] == ["  0%", " 99%", "100%"]


def test_hosts_are_sorted_as_people_count() -> None:
    assert sorted(["h10", "h2", "a", "h2b"], key=natural) == ["a", "h2", "h2b", "h10"]


def test_a_mode_is_written_as_ls_does() -> None:
    assert mode(0o755, is_directory=True) == "drwxr-xr-x"
    assert mode(0o640, is_directory=False) == "-rw-r-----"
