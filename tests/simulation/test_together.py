"""Lock cell, dfs masters, chunkservers and programs in one world: CH-20 from end to end, and
masters, cells and programs that break it on purpose and are found.

A seed that fails prints the command that replays it; `MRSTREAM_TOGETHER_SEEDS=FROM:TO` runs others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.simulation.together import mutants as wrong
from tests.simulation.together.directed import (
    DIRECTED,
    a_lease_outlives_its_holder,
    a_lease_outlives_its_holder_and_its_master,
    a_request_waits_while_the_next_holder_comes,
    a_writer_goes_on_when_the_next_holder_has_come,
    an_answer_is_lost_and_the_next_holder_comes,
)
from tests.simulation.together.mutants import Patch
from tests.simulation.together.run import play

SEEDS = range(*map(int, os.environ.get("MRSTREAM_TOGETHER_SEEDS", "0:30").split(":")))
BATCH = 6
MANY = 40
MORE = 6
"""Seeds that are tried besides the kept one: a change may give that another history."""


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, BATCH))
def test_whoever_held_a_lock_before_changes_nothing_and_nothing_of_it_is_lost(first: int) -> None:
    """Fault gate 31, CH-20, EV-01: C1 to C8, F1 to F6 and L1 to L7 after each event."""
    runs = [play(seed) for seed in range(first, min(first + BATCH, SEEDS.stop))]

    leaders = sum(len(r.group.oracle.leaders) + len(r.cell.oracle.leaders) for r in runs)
    assert leaders > 2 * len(runs), "without a fail-over nothing was proven"


def test_all_that_can_go_wrong_goes_wrong_in_it() -> None:
    """A simulator in which that does not happen proves nothing of it."""
    missing = {
        "late changes are refused", "gets an empty disk", "comes back with an empty disk",
        "session 1: Expired", "is deposed", "hand_over_dfs", "hand_over_locks",
    }  # fmt: skip
    for seed in range(MANY):
        run = play(seed)
        text = "\n".join(run.world.trace)
        missing = {words for words in missing if words not in text}
        if any(holder.refused for holder in run.holders):
            missing.discard("late changes are refused")
        if not missing:
            return
    raise AssertionError(f"in {MANY} histories there is no {sorted(missing)}")


@pytest.mark.parametrize("history", DIRECTED, ids=lambda history: history.__name__)
def test_the_right_ones_pass(history: Callable[[], None]) -> None:
    history()


FOUND_BY_HISTORY: list[tuple[Patch, Callable[[], None], str]] = [
    (wrong.asks_once, a_request_waits_while_the_next_holder_comes, "F6: FileOpened"),
    (wrong.refuses_what_is_done, an_answer_is_lost_and_the_next_holder_comes, "F5: Rename"),
    (
        wrong.answers_before_it_is_closed,
        a_writer_goes_on_when_the_next_holder_has_come,
        "under a fence that is over",
    ),
    (wrong.leaves_leases, a_lease_outlives_its_holder, "records are appended"),
    (
        wrong.leaves_leases_of_before,
        a_lease_outlives_its_holder_and_its_master,
        "records are appended",
    ),
]
FOUND_BY_SEED: list[tuple[Patch, int, str]] = [
    (wrong.a_new_leader_forgets_fences, 1, "F6: FenceRaised"),
    (wrong.one_fence_for_all, 0, "is refused under .*, and nobody came after"),
    (wrong.counts_holders_by_itself, 2, "L2: .* was given to two"),
    (wrong.keeps_its_first_fence, 0, "is refused under .*, and nobody came after"),
]


@pytest.mark.parametrize(
    ("patch", "history", "why"), FOUND_BY_HISTORY, ids=lambda x: getattr(x, "__name__", None)
)
def test_what_is_wrong_is_found_by_a_history(
    patch: Patch, history: Callable[[], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)

    with pytest.raises(AssertionError, match=why):
        history()


@pytest.mark.parametrize(
    ("patch", "kept", "why"), FOUND_BY_SEED, ids=lambda x: getattr(x, "__name__", None)
)
def test_what_is_wrong_is_found_by_a_seed(
    patch: Patch, kept: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)

    with pytest.raises(AssertionError, match=why):
        for seed in (kept, *range(MORE)):
            play(seed)


def test_one_seed_gives_one_history_whatever_the_hash_seed() -> None:
    """Same events, same commands; iteration over sets would show here."""
    outputs = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.together.run", "5", "-v"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        outputs.add(done.stdout)

    assert len(outputs) == 1
