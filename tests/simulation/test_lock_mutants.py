"""The simulator of the lock cell finds every cell and client that is wrong on purpose.

Each by the seed that is kept for it, or, where a second rule hides the first one's absence from any
history, by the test of the paper's section that has the rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.paper import test_chubby as paper
from tests.simulation.lock.mutants import MUTANTS, put_in
from tests.simulation.lock.run import Run

KEPT = {
    "a reader shares with a writer": (0, "L1"),
    "no delay after a failure": (0, "L3"),
    "half of the delay": (5, "L3"),
    "a new leader writes delays off": (19, "L7"),
    "an ephemeral lock leaves with its delay": (64, "L3"),
    "numbers begin again with a new instance": (0, "L2"),
    "locks are freed before their session ends": (0, "L3"),
    "a new leader restores no lease": (0, "L5"),
    "the leader's clock may run fast": (3, "L5"),
    "a change waits for no cache": (0, "L4"),
    "who caches is forgotten": (0, "L4"),
    "the new leader waits for nobody": (1, "L4"),
    "the new leader tells nobody": (1, "L4"),
    "calls of any epoch are taken": (1, "L4"),
    "a handle means any instance": (0, "L6"),
    "a repeat is done again": (0, "F5"),
    "the client counts its lease from the answer": (1, "L5"),
    "the client keeps what was invalidated on its way": (1, "L4"),
    "the client keeps its cache over a fail-over": (1, "L4"),
    "the client keeps its cache in jeopardy": (50, "L4"),
    "the client does not invalidate": (0, "L4"),
    "the client hears leaders of before": (7, "L4"),
    "answers before the log is durable": (0, "L2"),
}
"""The seed that shows it, and the law that is broken."""
MORE = 10
"""Seeds that are tried besides: a change of the cell may give the kept one another history."""
S_MAX = 3.0
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


def test_every_wrong_cell_has_its_history() -> None:
    assert sorted([*KEPT, *DIRECTED]) == sorted(MUTANTS)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_wrong_is_found(name: str) -> None:
    kept, law = KEPT[name]
    began_s = time.process_time()

    with put_in(name), pytest.raises(AssertionError, match=f"^{law}: "):
        for seed in (kept, *range(MORE)):
            Run(seed).all()

    assert time.process_time() - began_s < S_MAX, "what is wrong is to be found in three seconds"


@pytest.mark.parametrize("name", DIRECTED)
def test_what_no_history_shows_is_found_by_the_papers_section(name: str) -> None:
    DIRECTED[name]()

    with put_in(name), pytest.raises(AssertionError):
        DIRECTED[name]()
