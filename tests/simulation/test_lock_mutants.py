"""The simulator of the lock cell finds every cell and client that is wrong on purpose.

Each by the seed that is kept for it, or, where a second rule hides the first one's absence from any
history, by the test of the paper's section that has the rule.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.paper import test_chubby as paper
from tests.simulation.lock.mutants import MUTANTS, put_in
from tests.simulation.lock.run import Run

SEEDS = {
    "half of the delay": 5,
    "a new leader writes delays off": 19,
    "an ephemeral lock leaves with its delay": 64,
    "the new leader waits for nobody": 1,
    "the new leader tells nobody": 1,
    "calls of any epoch are taken": 1,
    "the client counts its lease from the answer": 1,
    "the client keeps its cache in jeopardy": 50,
    "the client hears leaders of before": 7,
    "the client keeps what was invalidated on its way": 1,
    "the client keeps its cache over a fail-over": 1,
    "the leader's clock may run fast": 3,
}
"""Of the others, 0."""
MORE = 10
"""Seeds that are tried besides: a change of the cell may give the kept one another history."""
DIRECTED: dict[str, Callable[[], None]] = {
    "what is changing is cached": (
        paper.TestCaching().test_2_7_meanwhile_reads_go_on_and_nobody_caches
    ),
    "the leader blames clients for its own silence": (
        paper.TestSessions().test_2_8_a_leader_that_stood_still_blames_nobody
    ),
    "the next invalidation is taken for acknowledged": (
        paper.TestCaching().test_2_7_a_change_that_is_given_up_leaves_the_node_cachable
    ),
    "a session is kept without acknowledging": (
        paper.TestSessions().test_2_8_a_session_is_not_kept_without_acknowledging
    ),
    "a short lease is logged at once": (
        paper.TestSessions().test_2_8_a_short_lease_is_logged_only_when_no_long_one_is_left
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_wrong_is_found(name: str) -> None:
    with put_in(name), pytest.raises(AssertionError):
        if name in DIRECTED:
            DIRECTED[name]()
        else:
            for seed in (SEEDS.get(name, 0), *range(MORE)):
                Run(seed).all()
