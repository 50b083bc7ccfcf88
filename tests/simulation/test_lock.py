"""For all histories: the real lock cell, log, sessions and caches under crashes, fail-overs, loss,
repeats, late messages, cuts, stops and clocks that run off, many seeds over.

Checked after each event: L1 to L7, M1 and F5 (tests/simulation/lock/book.py); at the end, that
everybody gets on. A seed that fails prints the command that replays it. `MRSTREAM_SEEDS=FROM:TO`
runs others (`make soak`).
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.lock.run import Run

SEEDS = range(*map(int, os.environ.get("MRSTREAM_SEEDS", "0:20").split(":")))
BATCH = 10


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, BATCH))
def test_no_history_of_faults_breaks_a_lock_a_session_or_a_cache(first: int) -> None:
    """CH-17, CH-20 to CH-22, CH-26 to CH-28, CH-30 to CH-35, CH-37 to CH-40 in simulated time."""
    cached = 0
    for seed in range(first, min(first + BATCH, SEEDS.stop)):
        try:
            run = Run(seed).all()
        except BaseException as error:
            command = f"{sys.executable} -m tests.simulation.lock.run {seed} -v"
            raise AssertionError(f"seed {seed} fails; replay it with\n  {command}") from error
        cached += sum(client.cached_reads for client in run.clients)
    assert cached > 0, "no read came from a cache: nothing was proven of caches"


def test_one_seed_gives_one_history_whatever_the_hash_seed() -> None:
    """S6: same events, same commands; iteration over sets would show here."""
    outputs = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.lock.run", "7", "-v"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        outputs.add(done.stdout)

    assert len(outputs) == 1
