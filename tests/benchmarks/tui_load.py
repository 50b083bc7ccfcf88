"""The monitor under load, run in a terminal by bench_tui: 200 hosts, 15,000 tasks, all busy."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import msgspec

from mrstream.mapreduce.snapshot import (
    COMMITTED,
    RUNNING,
    ClusterSnapshot,
    JobSeen,
    JobSnapshot,
    RatePoint,
)
from mrstream.tui.app import Monitor
from tests.support.tui_states import JOB, NOW_S, Recorded, huge

CHANGES = 150
"""Tasks that change between two questions: 15,000 tasks in fifty seconds."""


class Busy(Recorded):
    """Every question finds hosts with another load, tasks in another state, a longer curve."""

    round = 0

    def snapshot(self, hosts_version: int, jobs_version: int) -> ClusterSnapshot:
        self.round += 1
        for row in list(self.hosts)[:100]:
            self.hosts.put(msgspec.structs.replace(row, load=(self.round * 7 % 40) / 10))
        row = self.jobs.get(JOB)
        assert row is not None
        done = min(1.0, 0.5 + self.round / 500)
        self.jobs.put(msgspec.structs.replace(row, map_fraction=done, maps_done=int(15_000 * done)))
        return super().snapshot(hosts_version, jobs_version)

    def job(self, job_id: str, seen: JobSeen) -> JobSnapshot:
        board = self.boards[job_id]
        row = self.jobs.get(JOB)
        assert row is not None
        board.job = row
        for number in range(CHANGES):
            key = f"m{(self.round * CHANGES + number) % 15_000:06}"
            old = board.tasks.get(key)
            assert old is not None
            state = COMMITTED if old.state == RUNNING else RUNNING
            board.tasks.put(msgspec.structs.replace(old, state=state))
        board.rates.append(RatePoint(NOW_S + self.round / 2, 1e8 + self.round * 1e5, 5e7, 1e7))
        return super().job(job_id, seen)


if __name__ == "__main__":
    Monitor(Busy(**vars(huge())), job_id=JOB).run()
