"""For all histories: the real brain, log and chunk store under crashes, losses, partitions, full
and failing disks, stopped hosts, clock jumps and bit rot, many seeds over.

Checked in each run: no acknowledged byte lost, none silently wrong; the namespace's history
linearizable; never two primaries; replicas of a defined region equal; repair ends; garbage goes. A
seed that fails prints the command that replays it. `MRSTREAM_SEEDS=FROM:TO` runs others (`make
soak`).
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mrstream.dfs.metadata.image import pack_image
from mrstream.dfs.metadata.operations import parts_of
from mrstream.dfs.oplog import decode_record
from tests.simulation.dfs.run import SECONDS, Run
from tests.support.dfs_model import CHUNK, Model

SEEDS = range(*map(int, os.environ.get("MRSTREAM_SEEDS", "0:120").split(":")))
BATCH = 10


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, BATCH))
def test_no_history_of_faults_loses_or_falsifies_an_acknowledged_byte(first: int) -> None:
    """Fault gates 1–13, 15–17, 26 and 30 in simulated time."""
    for seed in range(first, min(first + BATCH, SEEDS.stop)):
        run = Run(seed)
        try:
            run.live(SECONDS)
            run.settle()
            run.check()
        except BaseException as error:
            command = f"{sys.executable} -m tests.simulation.dfs.run {seed} -v"
            raise AssertionError(f"seed {seed} fails; replay it with\n  {command}") from error


def test_one_seed_gives_one_history_whatever_the_hash_seed() -> None:
    """S6: same events, same commands; iteration over sets would show here."""
    outputs = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.dfs.run", "7", "-v"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        outputs.add(done.stdout)

    assert len(outputs) == 1


def test_the_master_killed_at_every_record_comes_back_with_exactly_what_it_had_said() -> None:
    """Fault gate 3, exhaustively: a small run with every kind of change, cut after each record."""
    from mrstream.dfs import protocol as p

    model = Model(servers=4)
    states = {len(model.log): b"".join(pack_image(model.brain))}

    def note() -> None:
        states[len(model.log)] = b"".join(pack_image(model.brain))

    def act(*requests: object) -> None:
        for request in requests:
            model.call(request)  # type: ignore[arg-type]
            note()

    model.put("/a/b/f", 2 * CHUNK + 5)
    note()
    model.put("/a/g", 10)
    note()
    act(
        p.Rename("/a/g", "/a/h", "me"),
        p.Delete("/a/h", "me"),
        p.Undelete("/a/h", "me"),
        p.SetReplication("/a", 2, "me"),
        p.SetMode("/a/h", 0o600, "me"),
        p.SetOwner("/a", "me", "ann", "lab", recursive=True),
        p.SetPolicy("/a", "me", replication=2),
        p.Snapshot("/a", "/save", "me"),
        p.FindLease("/a/b/f", 1),
        p.MakeDirectory("/x/y/z", "me", parents=True),
        p.Rename("/a", "/x/y/z/a", "me"),
        p.Delete("/save", "me", recursive=True, skip_trash=True),
    )
    model.put("/a/b/f", 7, overwrite=True)
    note()
    log = list(model.log)

    for cut in range(len(log) + 1):
        brain = model._new_brain()
        for payload in log[:cut]:
            brain.apply(decode_record(payload))
        brain.check_invariants(everything=True)
        if cut in states:
            assert b"".join(pack_image(brain)) == states[cut], f"after record {cut}"

    # No change of names takes more than one record, so none can be seen by half.
    for request, kind in (
        (p.Rename, "Renamed"),
        (p.Delete, "Trashed"),
        (p.Snapshot, "Snapshotted"),
    ):
        records = [record for entry in log for record in parts_of(decode_record(entry))]
        assert any(type(record).__name__ == kind for record in records), request


@pytest.mark.parametrize("crash_at", range(1, 60, 3))
def test_a_live_master_killed_at_this_record_goes_on_as_if_nothing_had_been(crash_at: int) -> None:
    """Fault gate 3 with clients and chunkservers at work, on a journal over a disk that forgets."""
    run = Run(1000)
    run.master.crash_at_record = crash_at
    run.world.run(3.5)
    run._make_shared()
    until_s = run.world.now_s + 15.0
    for client in run.clients:
        client.run(client.program(until_s))

    run.world.run(until_s)
    run.settle()

    assert run.master.lives == 2
    run.check()
