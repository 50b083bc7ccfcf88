"""What the master keeps of one job beside the brain: its spec, its tally, what people are told.

Takes what attempts reported; gives the lines for whoever waits, and the report that history keeps.
What the job has done is in its `tally`. Does no IO and reads no clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from mrstream.cluster.terminal import in_one_line
from mrstream.mapreduce.attempt.attempt_report import Failure
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.job.rules import TaskRules, cluster_settings
from mrstream.mapreduce.master.job_output import JobOutput
from mrstream.mapreduce.protocol import (
    AttemptRecord,
    JobEnd,
    JobReport,
    NewsLine,
)
from mrstream.mapreduce.report import FailuresTold, closing_text, failure_text
from mrstream.mapreduce.scheduler.events import JobSubmitted, MapTaskSpec
from mrstream.mapreduce.scheduler.ids import AttemptId, HostName, JobId, TaskId, TaskKind
from mrstream.mapreduce.scheduler.phases import JobTotals
from mrstream.mapreduce.snapshot import JobRow, JobSnapshot
from mrstream.mapreduce.tally import JobTally
from mrstream.streaming.conf.jobconf import JobConf

LINES_MAX = 10_000
SAID_CHARS_MAX = 1 << 20
SAID_KEPT_CHARS_MAX = 256 << 10
"""What all attempts of a job said is kept here up to so much: their hosts may be lost."""


class JobLedger:
    """One job, from its acceptance until its report is written."""

    def __init__(
        self,
        job_id: JobId,
        packed: bytes,
        submitted_at_s: float,
        filesystem: str,
        *,
        is_output_temporary: bool,
    ) -> None:
        spec: JobSpec = msgspec.structs.replace(job.decode(packed), job_id=job_id)
        self.job_id = job_id
        self.spec = spec
        self.for_workers = job.encode(msgspec.structs.replace(spec, splits=()))
        """The packed spec without splits, which attempts get one by one."""
        self.conf: JobConf = spec.conf()
        self.name = in_one_line(self.conf.job_name) or f"streamjob{job_id.removeprefix('job')}"
        self.output = JobOutput(spec, filesystem)
        self.submitted_at_s = submitted_at_s
        self.is_output_temporary = is_output_temporary
        self.settings = cluster_settings(self.conf)
        self.rules = TaskRules(spec, self.settings)
        self.tally = JobTally(job_id, len(spec.splits), spec.reduces, submitted_at_s)
        self.fenced: dict[AttemptId, None] = {}
        """Attempts whose output was taken away, since another of their task may commit."""
        self.segments: dict[int, SegmentAt] = {}
        """What reduces were told of map output, and those that start later are."""
        self.abandoned: dict[int, None] = {}
        """Maps that have failed for good: reduces do without them."""
        self.failures: list[str] = []
        self._failures_told = FailuresTold(self.conf.client_output_filter)
        self.workers: dict[str, None] = {}
        self.worker_deaths = 0
        self.lines: list[NewsLine] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.end: JobEnd | None = None
        self.said: dict[str, str] = {}
        """By attempt: the beginning of what its programs said."""
        self._said_chars = 0
        self._said_kept_chars = 0

    # --- what the scheduler must know

    def asked(self) -> JobSubmitted:
        """Return what the client wants run."""
        maps = tuple(
            MapTaskSpec(split.length, tuple(HostName(host) for host in split.hosts))
            for split in self.spec.splits
        )
        return JobSubmitted(self.job_id, maps, self.spec.reduces, self.settings)

    # --- what happens

    def abandon(self, task_id: TaskId) -> None:
        """A task has failed for good, and the job goes on without it."""
        if task_id.kind is TaskKind.MAP:
            self.abandoned[task_id.task_index] = None

    def failed(self, attempt_id: AttemptId, failure: Failure, host: str) -> None:
        """An attempt failed: people hear of it."""
        name = str(attempt_id)
        logs = f"mrstream job -logs {self.job_id} {name}"
        failure = msgspec.structs.replace(failure, log_directory=logs)
        is_kept = self.rules.is_last_try(attempt_id)
        self.failures.append(failure_text(name, failure, repeatable=is_kept, host=host))
        told = self._failures_told.tell(name, failure, repeatable=is_kept, host=host)
        if told is not None:
            self.say("INFO", told[0])
            self.say("", told[1])

    def say(self, level: str, text: str) -> None:
        """Tell whoever waits for the job."""
        if len(self.lines) >= LINES_MAX or self._said_chars > SAID_CHARS_MAX:
            return
        self._said_chars += len(text)
        self.lines.append(NewsLine(level, text))
        self.wake()

    def attempt_said(self, attempt_id: str, level: str, text: str) -> None:
        """Tell what an attempt says to whoever waits, and keep it should its log be lost."""
        self.say(level, text)
        room = SAID_KEPT_CHARS_MAX - self._said_kept_chars
        if room > 0:
            self._said_kept_chars += len(text)
            end = "" if not level else "\n"
            self.said[attempt_id] = self.said.get(attempt_id, "") + text[:room] + end

    def wake(self) -> None:
        """Answer those who wait for news."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- what people see

    def report(
        self, row: JobRow, snapshot: JobSnapshot | None, totals: JobTotals | None, now_s: float
    ) -> JobReport:
        """Return all that is known of the job."""
        attempts = snapshot.attempts.rows if snapshot else ()
        return JobReport(
            row,
            self.tally.counters(totals).as_dict(),
            snapshot.events if snapshot else (),
            tuple(
                AttemptRecord(
                    each.key, each.host, each.state, each.started_at_s, each.finished_at_s,
                    each.locality, each.diagnosis, each.records,
                )
                for each in attempts
            ),
            tuple(self.failures),
            self._table(totals, now_s) | self._start_up([each.started_at_s for each in attempts]),
            closing_text(self.tally.facts(now_s)),
            self.spec.properties,
            dict(self.said),
        )  # fmt: skip

    def _table(self, totals: JobTotals | None, now_s: float) -> dict[str, float]:
        """Return the columns of the paper's Table 1, and what else a person may ask (§6)."""
        facts = self.tally.facts(now_s)
        task_s = [task.seconds for task in (*facts.maps, *facts.reduces)]
        table = {
            "elapsed_s": facts.elapsed_s,
            "task_s_mean": sum(task_s) / len(task_s) if task_s else 0.0,
            "machine_days": sum(task_s) / 86400,
            "input_bytes": float(facts.input_bytes),
            "intermediate_bytes": float(facts.shuffled_bytes),
            "output_bytes": float(facts.output_bytes),
            "workers": float(len(self.workers)),
            "worker_deaths": float(self.worker_deaths),
            "maps": float(len(self.spec.splits)),
            "reduces": float(self.spec.reduces),
        }
        if totals is not None:
            table |= {
                "maps_host_local": float(totals.host_local_maps),
                "maps_rack_local": float(totals.rack_local_maps),
                "maps_remote": float(totals.remote_maps),
                "maps_rerun": float(totals.rerun_maps),
                "backups": float(totals.backup_maps + totals.backup_reduces),
                "backups_that_won": float(totals.backups_that_won),
                "useful_s": totals.useful_s,
                "wasted_s": totals.wasted_s,
            }
        return table

    def _start_up(self, started_at_s: Sequence[float]) -> dict[str, float]:
        """Return what was needed before the first map could run (§5.2)."""
        waited_s = min(started_at_s, default=self.submitted_at_s) - self.submitted_at_s
        return {
            "prepared_s": self.spec.prepared_s,
            "start_up_s": self.spec.prepared_s + max(0.0, waited_s),
        }
