"""`mrstream top --demo`: the paper's sort on 1,746 workers, simulated, in fast motion.

The real scheduler decides every attempt; only the machines are numbers. No cluster is needed and
none is touched. All actions that make sense work on the simulated job.
"""

from __future__ import annotations

import threading
import time

from mrstream.cluster.config.config import DFS_MASTER, LOCK_MASTER, MAPREDUCE_MASTER, group_name
from mrstream.cluster.errors import UserError
from mrstream.cluster.leader.group_view import LEADER, SHADOW, GroupView, MemberView
from mrstream.mapreduce.notices import Notices
from mrstream.mapreduce.protocol import AttemptRecord, JobReport
from mrstream.mapreduce.scheduler.events import (
    FailAttemptRequested,
    JobKilled,
    KillAttemptRequested,
)
from mrstream.mapreduce.scheduler.ids import JobId, TaskKind, parse_attempt_id
from mrstream.mapreduce.scheduler.phases import JobView
from mrstream.mapreduce.simulation import MB, ClusterPlan, SimulatedCluster, Stage, Workload
from mrstream.mapreduce.snapshot import (
    ClusterSnapshot,
    DiskRow,
    JobBoard,
    JobRow,
    JobSeen,
    JobSnapshot,
)
from mrstream.mapreduce.tally import Figures, JobTally
from mrstream.view.demo_files import DemoFiles
from mrstream.view.picture import (
    ChunkCounts,
    ChunkPlace,
    KeyEntry,
    Masters,
    Storage,
    StorageRow,
)

SPEED = 12.0
"""Simulated seconds a second: the paper's 891 s pass in about a minute and a quarter."""
CATCH_UP_S = 0.3
WORKERS, MAPS, REDUCES, KILLED = 1746, 15_000, 4_000, 200
GB = 1000 * MB
_DISK_BYTES = 80 * GB
MASTERS_COUNT = 3
LED_SINCE_S = 1.0
FILE_HOSTS = 12
"""So many hosts hold the files of the demonstration: a map of all would be empty for the most."""


def paper_sort(seed: int = 1) -> SimulatedCluster:
    """The sort of §5.3 with the deaths of §5.5: 10^10 records, 200 workers killed."""
    plan = ClusterPlan(hosts=WORKERS, kill_workers=KILLED, kill_at_s=420.0)
    return SimulatedCluster(plan, Workload(maps=MAPS, reduces=REDUCES), seed)


class DemoSource(DemoFiles):
    """A source whose cluster is simulated up to the moment of each question."""

    cluster = "paper sort (simulated)"
    masters = Masters()

    def __init__(self, simulated: SimulatedCluster | None = None, *, speed: float = SPEED) -> None:
        super().__init__()
        self._simulated = simulated or paper_sort()
        self._speed = speed
        self._notices = Notices(self._view_of)
        self._lock = threading.Lock()
        self._started_at_s = time.monotonic()
        self._ticked_at_s = 0.0
        work = self._simulated.workload
        self.job_id = work.job_id
        self._notices.job_submitted(
            JobRow(
                work.job_id,
                "sort of 10^10 records",
                "you",
                maps=work.maps,
                reduces=work.reduces,
                output="/sorted",
            ),
            JobTally(work.job_id, work.maps, work.reduces, 0.0),
        )
        self._simulated.observer = self._notices.observe

    def _view_of(self, job_id: JobId) -> JobView | None:
        known = self._simulated.scheduler.known(job_id)
        return known[0] if known else None

    # --- time

    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._simulated.now_s

    def advance_to(self, at_s: float) -> None:
        """Let simulated time pass, a second at a time, so that the curves have their points."""
        while self._ticked_at_s + 1 <= at_s and self._simulated.finished is None:
            self._ticked_at_s += 1
            self._simulated.run_until(self._ticked_at_s)
            self._tick()

    def _catch_up(self) -> None:
        """Simulate up to now; on a machine that cannot keep up, or after nobody had looked for
        long, time has passed more slowly: nobody waits for more than `CATCH_UP_S`."""
        asked_at_s = time.monotonic()
        target_s = (asked_at_s - self._started_at_s) * self._speed
        while self._ticked_at_s + 1 <= target_s and self._simulated.finished is None:
            self.advance_to(self._ticked_at_s + 1)
            if time.monotonic() - asked_at_s > CATCH_UP_S:
                self._started_at_s += (target_s - self._ticked_at_s) / self._speed
                return

    def _tick(self) -> None:
        simulated = self._simulated
        for attempt in simulated.attempts.values():
            done = simulated.progress(attempt)
            size = int(attempt.bytes_in)
            if attempt.attempt_id.task_id.kind is TaskKind.MAP:
                figures = Figures(int(size * done) // 100, input_bytes=int(size * done))
                phase = "map"
            else:
                shuffled = int(size * min(1.0, done * 3))
                written = int(size * max(0.0, (done - 2 / 3) * 3))
                figures = Figures(written // 100, shuffle_bytes=shuffled, output_bytes=written)
                phase = {Stage.SHUFFLE: "shuffle", Stage.SORT: "sort"}.get(attempt.stage, "reduce")
            self._notices.moved(attempt.attempt_id, figures, phase)
        self._beat()
        self._notices.tick(simulated.now_s)

    def _beat(self) -> None:
        """The heartbeats of all workers that are there."""
        for worker_id, host in self._simulated.live_workers.items():
            row = self._notices.hosts.get(host)
            busy = row.slots_used if row else 0
            self._notices.host_figures(
                worker_id,
                load=0.2 + busy,
                memory_used_bytes=int((0.6 + 0.5 * busy) * GB),
                memory_total_bytes=4 * GB,
                disks=(DiskRow("/data", int(_DISK_BYTES * 0.4), _DISK_BYTES),),
                now_s=self._simulated.now_s,
            )

    # --- questions

    def snapshot(self, hosts_version: int, jobs_version: int) -> ClusterSnapshot:
        with self._lock:
            self._catch_up()
            return self._notices.snapshot(hosts_version, jobs_version, self.now_s())

    def job(self, job_id: str, seen: JobSeen) -> JobSnapshot:
        with self._lock:
            found = self._notices.job(self.job_id, seen, self.now_s())
            if found is None or job_id != self.job_id:
                raise UserError(f"{job_id}: no such job in the demonstration")
            return found

    def storage(self) -> Storage:
        with self._lock:
            lost = [row.key for row in self._notices.hosts if row.state == "lost"]
            servers = tuple(
                StorageRow(
                    row.key,
                    row.rack,
                    "up" if row.state != "lost" else "lost",
                    int(_DISK_BYTES * 0.4),
                    _DISK_BYTES,
                    480,
                    row.heard_at_s,
                )
                for row in self._notices.hosts
            )
        total = WORKERS * 160
        return Storage(
            self.now_s(),
            servers,
            ChunkCounts(total, under_replicated=len(lost) * 480, repairing=len(lost) * 2),
        )

    def groups(self, wait_s: float = 0.0) -> dict[str, GroupView]:
        """As if the first hosts had masters, of which none dies: the paper had one that did not."""
        with self._lock:
            hosts = tuple(row.key for row in self._notices.hosts)[:MASTERS_COUNT]
        members = {
            host: MemberView(SHADOW if at else LEADER, behind_s=0.0)
            for at, host in enumerate(hosts)
        }
        return {
            group_name(role): GroupView(role, hosts[0], 1, 0, hosts, members, since_s=LED_SINCE_S)
            for role in (DFS_MASTER, MAPREDUCE_MASTER, LOCK_MASTER)
            if hosts
        }

    def log(self, attempt_id: str, stream: str, offset: int) -> bytes:
        return b"a simulated attempt writes nothing\n"[offset:] if stream == "stderr" else b""

    def log_bytes(self, attempt_id: str, stream: str) -> int:
        return len(self.log(attempt_id, stream, 0))

    def failure_report(self, job_id: str) -> str:
        return "This is a simulation: nothing failed that was not meant to."

    def all_jobs(self) -> tuple[JobRow, ...]:
        with self._lock:
            return tuple(self._notices.jobs)

    def figures(self) -> list[tuple[str, str, dict[str, float]]]:
        failed = float(self._notices.attempts_failed)
        return [("mapreduce.master", "", {"attempts_failed": failed})]

    def report(self, job_id: str) -> JobReport:
        board = JobBoard(self.job(job_id, JobSeen()).job)
        board.apply(self.job(job_id, JobSeen()), JobSeen())
        attempts = tuple(
            AttemptRecord(
                row.key, row.host, row.state, row.started_at_s, row.finished_at_s, row.locality,
                row.diagnosis, row.records,
            )
            for row in board.attempts
        )  # fmt: skip
        return JobReport(board.job, board.counters, tuple(board.events), attempts)

    # --- files

    def chunks(self, path: str) -> list[ChunkPlace]:
        return self.chunks_on(path, [row.key for row in self._notices.hosts][:FILE_HOSTS])

    def keys(self) -> list[KeyEntry]:
        return []  # nothing but these pages leads into a simulation

    # --- actions

    def kill_job(self, job_id: str) -> str:
        with self._lock:
            self._simulated.tell(JobKilled(self.job_id, "killed from the monitor"))
        return f"killed {job_id}"

    def kill_attempt(self, attempt_id: str, *, fail: bool) -> str:
        request = FailAttemptRequested if fail else KillAttemptRequested
        with self._lock:
            self._simulated.tell(request(parse_attempt_id(attempt_id)))
        return f"{'failed' if fail else 'killed'} {attempt_id}"

    def set_priority(self, job_id: str, priority: str) -> str:
        raise UserError("the demonstration has one job only; a priority changes nothing")

    def close(self) -> None:
        """Nothing to give up."""
