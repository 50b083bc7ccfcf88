"""For all histories: the real brain over the real files, under loss, repeats, one-way and partial
cuts, stops, hung loops, power cuts in the middle of a command list, emptied disks, changes of
members and hand-overs. C1 to C8 are checked after each event.

A seed that fails prints the command that replays it. `make soak` runs thousands of others.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mrstream.cluster.consensus.replica import Replica
from tests.simulation.consensus.exhaustive import GATE, Bounds, Search
from tests.simulation.consensus.histories import HISTORIES
from tests.simulation.consensus.mutants import ALL
from tests.simulation.consensus.run import Pair, play

SEEDS = range(30)
BATCH = 15


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, BATCH))
def test_no_history_of_faults_breaks_a_promise_of_the_group(first: int) -> None:
    """GFS-16, GFS-76, CH-02: nothing acknowledged is lost, and nobody answers out of turn."""
    for seed in range(first, min(first + BATCH, SEEDS.stop)):
        play(seed)


def test_no_history_of_two_hosts_loses_what_was_acknowledged() -> None:
    """C8: one decides, the other listens; the power of both may fail, at once too."""
    answers = 0
    for seed in range(5):
        run = play(seed, kind=Pair)
        answers += sum(client.done for client in run.clients)
    assert answers > 500
    early = ALL["sends to a listener what its own disk does not have"]
    with pytest.raises(AssertionError, match="C8"):
        for seed in range(5):
            play(seed, early.replica, kind=Pair)


def test_the_histories_reach_what_they_are_made_for() -> None:
    """A simulator in which nothing happens proves nothing."""
    lines: list[str] = []
    leaders = records = 0
    for seed in range(90, 108):
        run = play(seed)
        lines += run.world.trace
        leaders += len(run.oracle.leaders)
        records += len(run.oracle.committed)

    text = "\n".join(lines)
    assert leaders > 40 and records > 2000
    for what in (
        "is deposed", "sends its checkpoint", "loses power before", "fault empty", "fault transfer",
        "fault change_members", "fault cut_partly", "fault hang", "stands for epoch",
    ):  # fmt: skip
        assert what in text, what


@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_the_group_comes_well_out_of(name: str) -> None:
    HISTORIES[name](None)


def test_one_seed_gives_one_history_whatever_the_hash_seed() -> None:
    """S6: same events, same commands; iteration over sets would show here."""
    outputs = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.consensus.run", "4", "-v"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        outputs.add(done.stdout)

    assert len(outputs) == 1


@pytest.mark.parametrize("bounds", GATE, ids=["two epochs", "three epochs", "a crash"])
def test_every_history_of_a_small_group_keeps_the_log_safe(bounds: Bounds) -> None:
    """C1, C2, C3 without any rule about time, over all interleavings."""
    search = Search(bounds)

    assert search.run()
    assert search.states > 10_000


@pytest.mark.parametrize(
    "name",
    [
        "votes for any log",
        "needs half of the voters, not more",
        "takes records of a leader of the past",
    ],
)
def test_the_search_finds_a_brain_that_is_wrong(name: str) -> None:
    with pytest.raises(AssertionError, match=r"C[123]:"):
        Search(Bounds(2, 1, 1, 0, 3, is_lean=True), ALL[name].replica).run()


def test_the_search_finds_a_vote_that_is_forgotten() -> None:
    with pytest.raises(AssertionError, match="C1:"):
        Search(Bounds(2, 0, 1, 0, 4, is_lean=True), Replica, forgets_votes=True).run()
