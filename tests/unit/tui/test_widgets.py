"""Bars, keys, the summary, curves and grids as a terminal shows them (tui/widgets)."""

from __future__ import annotations

from mrstream.mapreduce.snapshot import BACKUP, COMMITTED, FAILED, IDLE, RUNNING
from mrstream.tui.widgets.bar import bar
from mrstream.tui.widgets.curves import plot
from mrstream.tui.widgets.key_line import Key, laid_out
from mrstream.tui.widgets.summary import summary
from mrstream.tui.widgets.task_grid import cell_sign
from mrstream.view.grid import block_cell
from mrstream.view.picture import Picture
from tests.support import tui_states


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


def test_a_plot_has_the_shape_of_its_values() -> None:
    lines = plot([0, 4, 12, 16], width=4, height=2)

    assert lines == ["  ▄█", " ▄██"]


def test_a_cell_for_several_tasks_is_shaded_by_how_many_are_done() -> None:
    blocks = [[COMMITTED, FAILED], [COMMITTED, BACKUP], [COMMITTED] * 5, [COMMITTED, IDLE]]
    single = [[IDLE], [RUNNING], [COMMITTED]]

    assert [cell_sign(block_cell(bytes(block))) for block in blocks] == ["✗", "◆", "■", "▒"]
    assert [cell_sign(block_cell(bytes(task))) for task in single] == ["·", "▸", "■"]
