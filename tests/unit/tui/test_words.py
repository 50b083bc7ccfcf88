"""Numbers in a narrow column, curves and grids (tui/words.py, tui/widgets)."""

from __future__ import annotations

import pytest

from mapreduce.snapshot import BACKUP, COMMITTED, FAILED, IDLE, RUNNING
from tests import tui_states
from tui.snapshot import Picture
from tui.widgets.bar import bar
from tui.widgets.curves import plot, resample
from tui.widgets.key_line import Key, laid_out
from tui.widgets.summary import summary
from tui.widgets.task_grid import SIGNS, block_cell
from tui.words import count, natural, percent, size, span


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


def test_a_bar_is_as_wide_as_asked_whatever_the_fraction() -> None:
    assert [len(bar(f, 10)) for f in (-1, 0, 0.33, 0.999, 1, 7)] == [10] * 6
    assert [bar(f, 4).plain for f in (0, 0.001, 0.5, 0.999, 1)] == [
        "────",
        "╸───",
        "━━──",
        "━━━╸",
        "━━━━",
    ]


def test_keys_that_do_not_fit_go_to_another_line() -> None:
    keys = [Key(letter, letter, "Word") for letter in "abc"]

    assert [(key.line, key.start) for key in laid_out(keys, 16)] == [(0, 1), (0, 9), (1, 1)]


def test_the_summary_leaves_out_what_is_merely_good_to_know_before_what_is_wrong() -> None:
    source = tui_states.failing()
    picture = Picture(cluster="demo")
    picture.see_cluster(source.snapshot(0, 0))
    picture.storage = source.storage()

    line = summary(picture, tui_states.NOW_S, read_only=False, width=80).plain

    assert len(line) <= 80
    assert "2 missing" in line and "1 corrupt" in line and "120 under-replicated" in line
    assert "dfs" not in line


def test_hosts_are_sorted_as_people_count() -> None:
    assert sorted(["h10", "h2", "a", "h2b"], key=natural) == ["a", "h2", "h2b", "h10"]


def test_a_plot_has_the_shape_of_its_values() -> None:
    lines = plot([0, 4, 12, 16], width=4, height=2)

    assert lines == ["  ▄█", " ▄██"]
    assert resample([], 3) == [0.0, 0.0, 0.0]


def test_a_block_of_tasks_shows_what_needs_a_look_first() -> None:
    assert block_cell(bytes([COMMITTED, FAILED, RUNNING]))[0] == SIGNS[FAILED]
    assert block_cell(bytes([COMMITTED, BACKUP]))[0] == SIGNS[BACKUP]
    assert block_cell(bytes([COMMITTED] * 5))[0] == "■"
    assert block_cell(bytes([COMMITTED, IDLE]))[0] == "▒"
    assert block_cell(bytes([IDLE]))[0] == "·"
