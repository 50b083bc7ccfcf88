"""For all histories: the job master keeps M1 and S1–S6 and ends every job, whatever breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import scheduler_history

ROOT = Path(__file__).parent.parent.parent
SEEDS = 60
SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_random_faults_break_no_promise_and_every_job_ends(first: int) -> None:
    """MapReduce §3.3; M1, S1–S6. A failure names its seed and the command that replays it."""
    for seed in range(first, first + SEEDS_A_TEST):
        scheduler_history.run(seed)


@pytest.mark.parametrize("seed", [1117, 1366, 1389, 1689, 2493, 2777, 2827, 3047, 3710])
def test_an_attempt_that_was_given_up_while_its_start_waited_is_not_started(seed: int) -> None:
    """S5: it ran beside its successor, when its worker registered before the start was durable."""
    scheduler_history.run(seed)


def test_a_map_that_failed_on_all_workers_but_one_gets_a_slot_there() -> None:
    """Reduces were killed in vain where it had failed, once a second and without end."""
    scheduler_history.run(3955)


def test_an_attempt_that_failed_and_is_shown_once_more_fails_once() -> None:
    """A registration that came twice brought it back, and its second report failed the job."""
    scheduler_history.run(4266)


def test_the_same_history_gives_the_same_commands_in_every_interpreter() -> None:
    """S6: no decision hangs on the order of a set, which changes at each start of Python."""
    code = (
        "import hashlib; from tests.simulation.scheduler_history import History\n"
        "digest = hashlib.sha256()\n"
        "for seed in range(12):\n"
        "    history = History(seed); history.run()\n"
        "    for entry in history.log: digest.update(repr(entry).encode())\n"
        "print(digest.hexdigest())\n"
    )

    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]

    assert digests[0] == digests[1] != ""
