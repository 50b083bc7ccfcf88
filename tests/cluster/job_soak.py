"""Jobs on a cluster in which everything dies all the time: `python tests/cluster/job_soak.py`.

Kills and stops random daemons (both masters, workers, chunkservers) of five hosts while jobs run
two at a time; every job must give local mode's bytes and leave nothing behind. With
`--master-kills N` only the job master dies, so many times. `--hosts local | netns | docker` says
what the hosts are, `--minutes N` how long, `--seed S` which. Prints what it did, so that a failure
can be read.

How long a job takes says nothing where other work takes the cores away: the next fault waits until
programs have ended since the last, and a job is stuck when none does for minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.cluster.docker_hosts import DockerHosts, Engine
from tests.cluster.hosted import Operator
from tests.cluster.hosted_cluster import ROOM, HostedCluster
from tests.cluster.job_faults import (
    JOB_MASTER,
    ROLES,
    ROOM_DFS,
    SLOTS,
    WORKER,
    JobRoom,
    RunningJob,
)
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster
from tests.cluster.machine import TestHosts
from tests.cluster.netns import NetnsHosts

HOSTS = 5
JOBS_AT_ONCE = 2
STUCK_S = 240.0
"""When no program of any job has ended for so long, jobs do not get on."""
ENDED_BETWEEN_FAULTS = 2
"""Programs: so a job wins more between two faults than one of them takes away."""
SLOW = (
    "time.sleep(0.7)\n"
    "sys.stdout.writelines(sys.stdin)\n"
    "sys.stdout.flush()\n"
    "note(f'ended-{attempt}-{time.time_ns()}')\n"
)


class Trouble(Protocol):
    """What happens to the cluster while jobs run."""

    count: int
    """Of faults so far."""

    def step(self, now_s: float, ended: int) -> bool:
        """Do what is due when so many programs have ended; gives whether more is to come."""

    def end(self) -> None:
        """Mend everything."""


class Chaos:
    """Breaks one thing after another, and mends it a little later."""

    def __init__(self, room: JobRoom, seed: int, length_s: float) -> None:
        self._cluster = room.cluster
        self._chance = random.Random(seed)
        self._length_s = length_s
        self._broken: dict[tuple[str, str], tuple[float, str]] = {}
        self._next_at_s = 0.0
        self._next_after = 0
        self.count = 0

    def step(self, now_s: float, ended: int) -> bool:
        """Mend what is due, and break the next thing when it is time."""
        self._mend(now_s)
        if now_s >= self._next_at_s and ended >= self._next_after:
            self._next_at_s = now_s + self._chance.uniform(0.5, 5.0)
            self._next_after = ended + ENDED_BETWEEN_FAULTS
            self._break(now_s)
        return now_s < self._length_s

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
        self.count += 1
        how = self._chance.choice(["kill", "kill", "stop"])
        mend_at_s = now_s + self._chance.choice([0.0, 0.5, 2.0, 5.0])
        print(f"{now_s:7.1f}s {how} {role} {host} for {mend_at_s - now_s:g} s", flush=True)
        if how == "stop":
            self._cluster.signal(role, host, signal.SIGSTOP)
        else:
            self._cluster.kill(role, host)
        self._broken[role, host] = (mend_at_s, how)


class MasterKills:
    """Kills the job master at random moments, so many times, and starts it again at once."""

    def __init__(self, room: JobRoom, seed: int, count: int) -> None:
        self._cluster = room.cluster
        self._chance = random.Random(seed)
        self._left = count
        self._next_at_s = 0.0
        self.count = 0

    def step(self, now_s: float, ended: int) -> bool:
        """Kill it when it is time."""
        if self._left and now_s >= self._next_at_s:
            self._cluster.kill(JOB_MASTER, "h1")
            self._cluster.start(JOB_MASTER, "h1")
            self._left -= 1
            self.count += 1
            self._next_at_s = now_s + self._chance.uniform(0.1, 5.0)
            print(f"{now_s:7.1f}s killed the job master; {self._left} to go", flush=True)
        return self._left > 0

    def end(self) -> None:
        """It is up."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", choices=["local", "netns", "docker"], default="local")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--master-kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="job-soak-"))
    with _room(chosen.hosts, directory) as room:
        slow = room.program("slow.py", SLOW)
        room.job_s_max = 86_400.0
        trouble: Trouble = Chaos(room, chosen.seed, chosen.minutes * 60)
        if chosen.master_kills:
            trouble = MasterKills(room, chosen.seed, chosen.master_kills)
        status = _run(room, trouble, slow)
    if status:
        print(f"what its daemons said is in {directory}")
    else:
        shutil.rmtree(directory)
    return status


@contextlib.contextmanager
def _room(kind: str, directory: Path) -> Iterator[JobRoom]:
    """A cluster of that kind, with an input for jobs in its dfs."""
    with contextlib.ExitStack() as stack:
        if kind == "local":
            local = LocalCluster(directory, HOSTS, roles=ROLES, dfs=ROOM_DFS, slots=SLOTS)
            yield JobRoom(stack.enter_context(local), directory)
            return
        if kind == "docker":
            hosts: TestHosts = DockerHosts(stack.enter_context(contextlib.closing(Engine())), HOSTS)
        else:
            hosts = NetnsHosts(HOSTS)
        stack.enter_context(contextlib.closing(hosts))
        cluster = HostedCluster(Operator(directory / "home", hosts), **ROOM)
        yield JobRoom(stack.enter_context(contextlib.closing(cluster)), directory)


class Ends:
    """How many programs of jobs have ended, and when the last did."""

    def __init__(self, room: JobRoom) -> None:
        self._room = room
        self.count = 0
        self._last_at_s = self._look_at_s = 0.0

    def look(self, now_s: float) -> int:
        """Count; a job that does not get on fails the soak."""
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + 0.5
            count = len(self._room.noted("ended-"))
            if count > self.count:
                self.count, self._last_at_s = count, now_s
            silent_s = now_s - self._last_at_s
            assert silent_s < STUCK_S, f"no program has ended for {silent_s:.0f} s"
        return self.count


def _run(room: JobRoom, trouble: Trouble, program: str) -> int:
    began_s = time.monotonic()
    ends = Ends(room)
    jobs: list[tuple[RunningJob, str]] = []
    done, goes_on = 0, True
    while jobs or goes_on:
        now_s = time.monotonic() - began_s
        ended = ends.look(now_s)
        if goes_on:
            if len(jobs) < JOBS_AT_ONCE:
                jobs.append((room.start(mapper=program, reducer=program), room.output))
            goes_on = trouble.step(now_s, ended)
        else:
            trouble.end()
        for job, output in [item for item in jobs if not item[0].is_running]:
            jobs.remove((job, output))
            # Nothing is mended while this thread reads: it would wait for a master that it stopped.
            trouble.end()
            room.check(job, output)
            done += 1
            print(f"{now_s:7.1f}s job {done} is right ({output})", flush=True)
        time.sleep(0.05)
    print(f"{done} jobs and {trouble.count} faults in {now_s / 60:.1f} min, all right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
