"""One game of `rounds`: the faults that no other test of the gate has, under all users at once.

Writers and renamers, appenders, clients of the same names, a job with known output and 20 clients
of the lock cell go on while the host of all leaders is cut off with a second one, is cut off in one
direction, loses its power, loses packets, has a full disk. Kill, hang and cut of each group's
leader have tests of their own.
"""

from __future__ import annotations

import random

from tests.cluster.rounds import Waits, play

FAULTS = ["cut two", "one way", "power off", "loss", "full disk"]
SHORT = Waits(without_majority_s=5.0, watched_s=3.0, lossy_s=8.0, full_s=8.0)


def test_users_go_on_in_time_and_what_they_were_told_is_so() -> None:
    """EV-01, A20, A27: nothing acknowledged is lost or done twice, names are linearizable, the
    job's output is what it must be, no lock is lost; nobody waits for longer than was promised, and
    no command of a person is needed but the one that starts a host which lost its power."""
    rounds = play(FAULTS, random.Random(11), SHORT)

    assert [one.fault for one in rounds] == FAULTS
    assert not [f"{one.fault}: {one.verdict}; {one.last}" for one in rounds if not one.is_good]
