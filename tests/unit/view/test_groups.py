"""Groups of masters in words (view/groups.py), and the line of a new epoch (view/picture.py)."""

from __future__ import annotations

from dataclasses import replace

from mrstream.cluster.config.config import DFS_MASTER, MAPREDUCE_MASTER
from mrstream.view.groups import last_event, lines, troubles
from mrstream.view.palette import Colour
from mrstream.view.picture import EVENTS_MAX, Picture
from tests.support.tui_states import NOW_S, group, groups


def test_every_member_has_a_badge_and_who_leads_comes_first() -> None:
    (line,) = lines(groups(group(DFS_MASTER, "h2", 8, silent=("h1",))), NOW_S)

    assert line.name == "dfs"
    assert [badge.text for badge in line.badges] == [
        "★ h2 leader epoch 8",
        "✗ h1 does not answer",
        "○ h3 shadow 0.0 s behind",
    ]
    assert [badge.colour for badge in line.badges] == [
        Colour.SKY,
        Colour.VERMILLION,
        Colour.PLAIN,
    ]
    assert line.led_for == "led for 3:07"


def test_only_groups_that_are_not_well_are_warned_of_cells_included() -> None:
    said = troubles(
        groups(
            group(DFS_MASTER),
            group(f"{DFS_MASTER}@logs", "", silent=("h1", "h3")),
            group(MAPREDUCE_MASTER, "h2", silent=("h1",)),
        )
    )

    assert [cell.text for cell in said] == [
        "✗ dfs@logs: no quorum (1 of 3): changes are refused",
        "✗ jobs: h1 does not answer: the next failure stops writes",
    ]
    assert all(cell.loud for cell in said)


def test_there_is_a_line_for_each_new_epoch_and_none_for_the_same() -> None:
    picture = Picture()
    before = groups(group(DFS_MASTER), group(MAPREDUCE_MASTER, "h3", 3))
    assert picture.see_groups(before, NOW_S) == [], "nobody took over while we looked"
    assert len(picture.events) == 2
    assert picture.see_groups(before, NOW_S + 2) == []

    unled = groups(group(DFS_MASTER, "", 8, silent=("h1",)), group(MAPREDUCE_MASTER, "h3", 3))
    assert picture.see_groups(unled, NOW_S + 4) == [], "nobody has been chosen yet"
    after = groups(group(DFS_MASTER, "h2", 8), group(MAPREDUCE_MASTER, "h3", 3))
    (event,) = picture.see_groups(after, NOW_S + 6)

    assert event.text == "dfs: h2 leads, epoch 8"
    assert event.at_s == NOW_S - 187, "when it began, not when we heard of it"
    assert picture.groups == after
    assert len(picture.events) == 3


def test_of_one_that_does_not_say_since_when_it_leads_there_is_a_line_only_if_we_saw_it() -> None:
    """A leader of a version before, while an `up` replaces it: nobody took over `0s ago`."""
    picture = Picture()

    picture.see_groups(groups(replace(group(DFS_MASTER), since_s=0.0)), NOW_S)
    assert picture.events == []

    picture.see_groups(groups(replace(group(DFS_MASTER, "h2", 8), since_s=0.0)), NOW_S + 2)
    assert [(event.at_s, event.text) for event in picture.events] == [
        (NOW_S + 2, "dfs: h2 leads, epoch 8")
    ]


def test_the_last_one_that_took_over_is_told_with_its_age() -> None:
    picture = Picture()
    assert last_event(picture, NOW_S) == ""

    picture.see_groups(groups(group(DFS_MASTER, "h2", 8)), NOW_S)

    assert last_event(picture, NOW_S) == "3:07 ago: dfs: h2 leads, epoch 8"


def test_a_master_that_comes_and_goes_does_not_fill_the_memory() -> None:
    picture = Picture()
    for epoch in range(1, EVENTS_MAX + 20):
        picture.see_groups(groups(group(DFS_MASTER, "h1", epoch)), NOW_S)

    assert len(picture.events) == EVENTS_MAX
    assert picture.events[-1].text.endswith(f"epoch {EVENTS_MAX + 19}")
