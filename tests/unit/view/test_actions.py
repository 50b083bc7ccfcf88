"""What users may have done, and the questions before it (view/actions.py)."""

from __future__ import annotations

import pytest

from mrstream.cluster.errors import UserError
from mrstream.view import actions
from tests.support.tui_states import Recorded


def test_every_action_asks_by_name_and_says_how_it_ended() -> None:
    source = Recorded()
    asked = [
        actions.kill_job("job_1"),
        actions.kill_attempt("attempt_1"),
        actions.fail_attempt("attempt_1"),
        actions.set_priority("job_1", "high"),
        actions.set_replication("/a", "5"),
        actions.undelete("/a"),
    ]

    ended = [action.act(source) for action in asked]

    assert [action.question for action in asked] == [
        "Kill job_1?",
        "Kill attempt_1? It runs again and does not count as failed.",
        "Fail attempt_1? It counts as a failed attempt.",
        "Make the priority of job_1 HIGH?",
        "Keep 5 copies of /a?",
        "Bring back /a?",
    ]
    assert (
        ended
        == source.done
        == [
            "killed job_1",
            "killed attempt_1",
            "failed attempt_1",
            "job_1 is now HIGH",
            "/a has 5 copies",
            "/a is back",
        ]
    )


@pytest.mark.parametrize("value", ["", "0", "101", "-1", "three", "²"])
def test_a_number_of_copies_is_checked_before_anyone_is_asked(value: str) -> None:
    """A raised two is a digit to Python, and no number."""
    with pytest.raises(UserError, match="no number of copies; 1 to 100"):
        actions.set_replication("/a", value)


def test_a_priority_is_checked_before_anyone_is_asked() -> None:
    with pytest.raises(UserError, match="'urgent' is no priority; one of VERY_HIGH, HIGH"):
        actions.set_priority("job_1", "urgent")
