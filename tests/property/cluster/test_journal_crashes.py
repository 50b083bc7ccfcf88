"""For all histories of appends, commits, checkpoints and power cuts: J1 and J2."""

from __future__ import annotations

import random

import pytest

from mrstream.cluster.journal.journal import Journal
from tests.support.forgetful_disk import ForgetfulDisk

DIRECTORY = "/j"


@pytest.mark.parametrize("seed", range(150))
def test_a_power_cut_at_any_sync_keeps_what_was_durable_and_invents_nothing(seed: int) -> None:
    """Fault gates 3 to 5: the state after a crash is a prefix of what was appended, and holds at
    least what was acknowledged."""
    chance = random.Random(seed)
    disk = ForgetfulDisk(seed)
    appended: list[bytes] = []

    for _ in range(6):
        acknowledged = _live_until_power_cut(disk, chance, appended)
        disk.crash()
        state = _recovered(disk)
        assert state == appended[: len(state)]
        assert len(state) >= acknowledged
        del appended[len(state) :]


class PowerCutError(Exception):
    """Raised out of a sync: the machine is off."""


def _recovered(disk: ForgetfulDisk) -> list[bytes]:
    journal = Journal(DIRECTORY, "c1", disk=disk)
    found = journal.recover()
    state = b"".join(found.checkpoint).split(b"\n")[:-1]
    state += [payload for _, payload in found.records]
    assert journal.sequence == len(state)
    return state


def _live_until_power_cut(disk: ForgetfulDisk, chance: random.Random, appended: list[bytes]) -> int:
    acknowledged = len(appended)
    syncs_left = chance.randint(1, 25)

    def at_sync() -> None:
        nonlocal syncs_left
        syncs_left -= 1
        if syncs_left <= 0:
            raise PowerCutError

    disk.at_sync = at_sync
    try:
        journal = Journal(DIRECTORY, "c1", disk=disk)
        journal.recover()
        while True:
            for _ in range(chance.randint(1, 5)):
                payload = b"%d:" % (len(appended) + 1) + b"x" * chance.choice([0, 3, 700, 3000])
                appended.append(payload)
                journal.append(payload)
            if chance.random() < 0.3:
                sequence = journal.rotate()
                journal.commit()
                acknowledged = journal.durable
                state = [line + b"\n" for line in appended[:sequence]]
                journal.write_checkpoint(sequence, state)
            else:
                journal.commit()
                acknowledged = journal.durable
    except PowerCutError:
        return acknowledged
    finally:
        disk.at_sync = lambda: None
