"""Jobs on a cluster in which everything dies all the time: `python tests/cluster/job_soak.py`.

Kills and stops random daemons (both masters, workers, chunkservers) of five hosts while jobs run
two at a time; every job must give local mode's bytes and leave nothing behind. `--minutes N`,
`--seed S`. Prints what it did, so that a failure can be read.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.cluster.job_faults import CHUNK_BYTES, JOB_MASTER, ROLES, WORKER, JobRoom, RunningJob
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster

HOSTS = 5
JOBS_AT_ONCE = 2


class Chaos:
    """Breaks one thing after another, and mends it a little later."""

    def __init__(self, room: JobRoom, seed: int) -> None:
        self._room = room
        self._cluster = room.cluster
        self._chance = random.Random(seed)
        self._broken: dict[tuple[str, str], tuple[float, str]] = {}
        self._next_at_s = 0.0

    def step(self, now_s: float) -> None:
        """Mend what is due, and break the next thing when it is time."""
        self._mend(now_s)
        if now_s >= self._next_at_s:
            self._next_at_s = now_s + self._chance.uniform(0.5, 5.0)
            self._break(now_s)

    def end(self) -> None:
        """Mend everything."""
        self._mend(float("inf"))

    def _mend(self, now_s: float) -> None:
        for (role, host), (mend_at_s, how) in list(self._broken.items()):
            if mend_at_s <= now_s:
                del self._broken[role, host]
                if how == "stop":
                    self._cluster.signal(role, host, signal.SIGCONT)
                else:
                    self._cluster.launch(role, host)

    def _break(self, now_s: float) -> None:
        role = self._chance.choice([WORKER, WORKER, WORKER, JOB_MASTER, CHUNKSERVER, MASTER])
        host = self._chance.choice(self._cluster.hosts_of(role))
        # Two of three replicas must live, or there is nothing to read for a while.
        hurt = [name for name in self._broken if name[0] == role]
        if (role, host) in self._broken or (role == CHUNKSERVER and hurt):
            return
        how = self._chance.choice(["kill", "kill", "stop"])
        mend_at_s = now_s + self._chance.choice([0.0, 0.5, 2.0, 5.0])
        print(f"{now_s:7.1f}s {how} {role} {host} for {mend_at_s - now_s:g} s", flush=True)
        if how == "stop":
            self._cluster.signal(role, host, signal.SIGSTOP)
        else:
            self._cluster.kill(role, host)
        self._broken[role, host] = (mend_at_s, how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="job-soak-"))
    dfs = {"chunk_size": f"{CHUNK_BYTES // 1024}KiB"}
    with LocalCluster(directory, HOSTS, roles=ROLES, dfs=dfs) as cluster:
        room = JobRoom(cluster, directory)
        slow = room.program("slow.py", "time.sleep(0.7)\nsys.stdout.writelines(sys.stdin)\n")
        return _run(room, Chaos(room, chosen.seed), slow, chosen.minutes * 60)


def _run(room: JobRoom, chaos: Chaos, program: str, length_s: float) -> int:
    began_s = time.monotonic()
    jobs: list[tuple[RunningJob, str]] = []
    done = 0
    while jobs or time.monotonic() - began_s < length_s:
        now_s = time.monotonic() - began_s
        if now_s < length_s:
            chaos.step(now_s)
            if len(jobs) < JOBS_AT_ONCE:
                job = room.start(mapper=program, reducer=program)
                jobs.append((job, room.output))
        else:
            chaos.end()
        for job, output in [item for item in jobs if not item[0].is_running]:
            jobs.remove((job, output))
            room.check(job, output)
            done += 1
            print(f"{now_s:7.1f}s job {done} is right ({output})", flush=True)
        time.sleep(0.05)
    print(f"{done} jobs, all right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
