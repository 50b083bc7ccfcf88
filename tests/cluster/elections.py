"""Nobody is elected while everybody sorts: `python tests/cluster/elections.py --minutes N`.

Three hosts on this machine with three masters of each kind, the lock cell included, and the usual
lease of 3 s; one sort after the other, all cores busy. A leader that pauses for too long, by a
fork, its garbage, or a disk that is full of chunks, would be deposed: the epochs of the groups
before and after say how often that was. (make soak)
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from mrstream.cluster.config.config import LOCK_MASTER
from mrstream.cluster.leader.group_view import look_at_groups
from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster, wait_for

MORE = "masters: [h1, h2, h3]\nlock: {}\n"
LINE_BYTES = 100


def epochs(cluster: LocalCluster) -> dict[str, int]:
    """Of each group, once all have a leader."""

    def look() -> dict[str, int]:
        views = look_at_groups(cluster.cluster)
        is_led = len(views) == 3 and all(view.leader for view in views.values())
        return {name: view.epoch for name, view in views.items()} if is_led else {}

    return wait_for(look, 60.0, "every group to have a leader")


def write_lines(path: Path, megabytes: int) -> None:
    chance = random.Random(1)
    with open(path, "wb") as file:
        for _ in range(megabytes):
            lines = [chance.randbytes(LINE_BYTES // 2).hex()[1:] for _ in range(10_000)]
            file.write(("\n".join(lines) + "\n").encode())


def sort(cluster: LocalCluster, number: int) -> None:
    """Sort the input; the output is as large, and is removed."""
    out = f"/sorted-{number}"
    ran = cluster.mrstream(
        "-D", "mapreduce.job.reduces=4", "-input", "/in", "-output", out,
        "-mapper", "cat", "-reducer", "cat",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    ran = cluster.mrstream("dfs", "-rm", "-r", "-skipTrash", out)
    assert ran.returncode == 0, ran.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    until_s = time.monotonic() + 60.0 * options.minutes
    count, loads = 0, [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="mrs-elections-") as place:
        directory = Path(place)
        lines = directory / "in"
        write_lines(lines, options.megabytes)
        roles = [*ROLES, LOCK_MASTER]
        dfs = {"chunk_size": "32MiB", "replication": "2"}
        with LocalCluster(directory / "cluster", 3, roles=roles, dfs=dfs, more=MORE) as cluster:
            put = cluster.mrstream("dfs", "-put", str(lines), "/in")
            assert put.returncode == 0, put.stderr
            before = epochs(cluster)
            while time.monotonic() < until_s:
                sort(cluster, count)
                count += 1
                loads.append(os.getloadavg()[0])
            after = epochs(cluster)
    held = {name: after[name] - epoch for name, epoch in before.items()}
    print(
        f"{count} sorts of {options.megabytes} MB in {options.minutes:g} min, load "
        f"{min(loads):.0f} to {max(loads):.0f}; elections: {held}"
    )
    return 1 if any(held.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
