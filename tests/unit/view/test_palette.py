"""Signs and colours of states (view/palette.py)."""

from __future__ import annotations

import pytest

from mrstream.view.palette import ON_DARK, TASK_MARKS, Colour, attempt_mark, host_mark, job_mark


def test_every_state_of_a_task_has_its_own_sign_and_colour() -> None:
    """It reads without colour, and by colour alone."""
    marks = TASK_MARKS.values()

    assert len({mark.sign for mark in marks}) == len({mark.colour for mark in marks}) == 5


def test_every_colour_but_the_medium_s_own_ink_has_a_value() -> None:
    assert set(Colour) - set(ON_DARK) == {Colour.PLAIN, Colour.FAINT}


def test_a_state_that_nobody_knows_is_shown_as_it_is() -> None:
    """A master newer than this program may have more states."""
    assert job_mark("frozen").text == attempt_mark("frozen").text == "? frozen"


@pytest.mark.parametrize(
    ("roles", "shown"),
    [
        ({}, "✗ lost"),
        ({"worker": "up"}, "■ up"),
        ({"worker": "up", "chunkserver": "up"}, "■ up"),
        ({"worker": "up", "chunkserver": "lost"}, "✗ no chunkserver"),
        ({"worker": "lost", "chunkserver": "up"}, "✗ no worker"),
        ({"worker": "lost", "chunkserver": "dead"}, "✗ lost"),
        ({"worker": "quarantined", "chunkserver": "up"}, "◆ quarantined"),
        ({"worker": "quarantined", "chunkserver": "lost"}, "◆ quarantined"),
    ],
)
def test_a_host_is_as_well_as_the_worse_of_its_roles(roles: dict[str, str], shown: str) -> None:
    assert host_mark(roles).text == shown
