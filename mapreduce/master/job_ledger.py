"""What the master keeps of one job beside the brain: its spec, its tasks' results, what people see.

Takes what attempts reported and what the scheduler decided; gives counters (each task once, of the
attempt that committed: MapReduce §4.9), progress, the lines for whoever waits, and the report that
history keeps. Does no IO and reads no clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mrstream.mapreduce.attempt.attempt_report import Done, Failure
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.counters import Counters
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.master.job_journal import LIFE_ATTEMPTS
from mrstream.mapreduce.master.job_output import JobOutput
from mrstream.mapreduce.progress import JobProgress
from mrstream.mapreduce.protocol import (
    AttemptNews,
    AttemptRecord,
    JobEnd,
    JobReport,
    NewsLine,
    SegmentAt,
)
from mrstream.mapreduce.report import JobFacts, TaskTime, closing_text, failure_text
from mrstream.mapreduce.scheduler.events import JobSettings, JobSubmitted, MapTaskSpec
from mrstream.mapreduce.scheduler.ids import AttemptId, HostName, JobId, TaskId, TaskKind
from mrstream.mapreduce.scheduler.phases import JobTotals
from mrstream.mapreduce.scheduler.scheduler import JobView
from mrstream.mapreduce.snapshot import JobRow, JobSnapshot
from mrstream.streaming.conf.jobconf import JobConf

ATTEMPTS_MAX: Final = 4
"""Attempts at a task, unless the job says otherwise (Hadoop's number)."""
LINES_MAX: Final = 10_000
SAID_CHARS_MAX: Final = 1 << 20
SAID_KEPT_CHARS_MAX: Final = 256 << 10
"""What all attempts of a job said is kept here up to so much: their hosts may be lost."""
_NO_LIMIT: Final = 1 << 30


class Result(msgspec.Struct):
    """How a task was done."""

    attempt_id: str
    done: Done
    seconds: float


class Live(msgspec.Struct):
    """An attempt that runs, as last heard of."""

    started_at_s: float
    news: AttemptNews | None = None


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
        self.name = self.conf.job_name or f"streamjob{job_id.removeprefix('job')}"
        self.output = JobOutput(spec, filesystem)
        self.submitted_at_s = submitted_at_s
        self.is_output_temporary = is_output_temporary
        self.settings = settings_of(self.conf)
        self.has_named_outputs = bool(self.conf.outputs)
        self.live: dict[AttemptId, Live] = {}
        self.results: dict[TaskId, Result] = {}
        self.offered: dict[AttemptId, Done] = {}
        """Ends that were reported, until the scheduler says whether they count."""
        self.fenced: dict[AttemptId, None] = {}
        """Attempts whose output was taken away, since another of their task may commit."""
        self.segments: dict[int, SegmentAt] = {}
        """What reduces were told of map output, and those that start later are."""
        self.abandoned: dict[int, None] = {}
        """Maps that have failed for good: reduces do without them."""
        self.failures: list[str] = []
        self.workers: dict[str, None] = {}
        self.worker_deaths = 0
        self.lines: list[NewsLine] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.end: JobEnd | None = None
        self.said: dict[str, str] = {}
        """By attempt: the beginning of what its programs said."""
        self._said_chars = 0
        self._said_kept_chars = 0
        self._counters = Counters(user_counters_max=_NO_LIMIT)
        self._done = dict.fromkeys(TaskKind, 0)
        self._segment_bytes = 0

    # --- what the scheduler must know

    def asked(self) -> JobSubmitted:
        """Give what the client wants run."""
        maps = tuple(
            MapTaskSpec(split.length, tuple(HostName(host) for host in split.hosts))
            for split in self.spec.splits
        )
        return JobSubmitted(self.job_id, maps, self.spec.reduces, self.settings)

    def has_final_output(self, task_id: TaskId) -> bool:
        """Whether a task's output is the job's."""
        return task_id.kind is TaskKind.REDUCE or not self.spec.reduces

    def commits(self, task_id: TaskId) -> bool:
        """Whether a task leaves files in the output directory: outputs with names, at least."""
        return self.has_final_output(task_id) or self.has_named_outputs

    def is_last_try(self, attempt_id: AttemptId) -> bool:
        """Whether this attempt's failure may end the job: then its input is worth keeping."""
        is_map = attempt_id.task_id.kind is TaskKind.MAP
        settings = self.settings
        tries = settings.map_attempts_max if is_map else settings.reduce_attempts_max
        return attempt_id.number % LIFE_ATTEMPTS + 1 >= tries

    # --- what happens

    def started(self, attempt_id: AttemptId, worker_id: str, now_s: float) -> None:
        """An attempt was ordered."""
        self.live[attempt_id] = Live(now_s)
        self.workers[worker_id] = None

    def heard(self, attempt_id: AttemptId, news: AttemptNews) -> None:
        """An attempt tells how far it is."""
        live = self.live.get(attempt_id)
        if live is not None:
            live.news = news

    def abandon(self, task_id: TaskId) -> None:
        """A task has failed for good, and the job goes on without it."""
        if task_id.kind is TaskKind.MAP:
            self.abandoned[task_id.task_index] = None

    def committed(self, attempt_id: AttemptId, now_s: float) -> Result:
        """The task is done by this attempt: from now on its counters count, and no other's."""
        task_id = attempt_id.task_id
        done = self.offered.pop(attempt_id, None) or Done({})
        live = self.live.pop(attempt_id, None)
        result = Result(str(attempt_id), done, now_s - live.started_at_s if live else 0.0)
        self.put_result(task_id, result)
        return result

    def put_result(self, task_id: TaskId, result: Result) -> None:
        """Remember how a task was done, instead of what was known before."""
        before = self.results.get(task_id)
        self.results[task_id] = result
        self._segment_bytes += result.done.segment_bytes
        if before is None:
            self._done[task_id.kind] += 1
            self._counters.add_all(result.done.counters)
        else:
            # The map ran again since its output was lost: what it counted before is void.
            self._segment_bytes -= before.done.segment_bytes
            self._counters = Counters(user_counters_max=_NO_LIMIT)
            for other in self.results.values():
                self._counters.add_all(other.done.counters)

    def failed(self, attempt_id: AttemptId, failure: Failure, host: str) -> None:
        """An attempt failed: people hear of it, of the first one in full."""
        self.live.pop(attempt_id, None)
        name = str(attempt_id)
        logs = f"mrstream job -logs {self.job_id} {name}"
        text = failure_text(
            name,
            msgspec.structs.replace(failure, log_directory=logs),
            repeatable=self.is_last_try(attempt_id),
            host=host,
        )
        self.failures.append(text)
        if self.conf.client_output_filter.upper() in ("FAILED", "ALL"):
            self.say("INFO", f"Task Id : {name}, Status : FAILED")
            line = f"{name} failed on {host}: {failure.message}"
            if self.is_last_try(attempt_id):
                line += f" (repeat it: mrstream -repeat {name})"
            self.say("", text if len(self.failures) == 1 else line)

    def killed(self, attempt_id: AttemptId) -> None:
        """An attempt is gone."""
        self.live.pop(attempt_id, None)

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

    def counters(self, totals: JobTotals | None) -> Counters:
        """Give the counters so far: of tasks that are done, of one running attempt of each of the
        others (users' only), and those of the job itself."""
        total = Counters(self._counters.as_dict(), user_counters_max=_NO_LIMIT)
        for news in self._furthest():
            total.add_all(news.counters)
        if totals is not None:
            for name, value in _job_counters(totals):
                if value:
                    total.add(c.JOB, name, value)
        for kind, name in ((TaskKind.MAP, c.MAPS_MS), (TaskKind.REDUCE, c.REDUCES_MS)):
            seconds = sum(r.seconds for t, r in self.results.items() if t.kind is kind)
            if kind is TaskKind.MAP or self.spec.reduces:
                total.add(c.JOB, name, int(seconds * 1000))
        return total

    def _furthest(self) -> Iterable[AttemptNews]:
        """Give what the furthest running attempt of each task told that is not done yet."""
        found: dict[TaskId, AttemptNews] = {}
        for attempt_id, live in self.live.items():
            task_id, news = attempt_id.task_id, live.news
            if news is None or task_id in self.results:
                continue
            if task_id not in found or found[task_id].fraction < news.fraction:
                found[task_id] = news
        return found.values()

    def progress(self, view: JobView | None, now_s: float) -> JobProgress:
        """Give how far the job is."""
        maps, reduces = len(self.spec.splits), self.spec.reduces
        done = self._done
        in_maps = done[TaskKind.MAP] < maps
        kind = TaskKind.MAP if in_maps else TaskKind.REDUCE
        moving = [
            live.news
            for attempt_id, live in self.live.items()
            if live.news is not None and attempt_id.task_id.kind is kind
        ]
        name = c.MAP_INPUT_RECORDS if in_maps else c.REDUCE_INPUT_RECORDS
        return JobProgress(
            map_fraction=view.map_fraction if view else done[TaskKind.MAP] / max(1, maps),
            reduce_fraction=(
                view.reduce_fraction if view else done[TaskKind.REDUCE] / max(1, reduces)
            )
            if reduces
            else 0.0,
            maps_done=done[TaskKind.MAP],
            maps=maps,
            reduces_done=done[TaskKind.REDUCE],
            reduces=reduces,
            records=self._counters.value(name) + sum(news.records for news in moving),
            bytes_done=sum(news.bytes for news in moving)
            + self._counters.get(c.FILE_INPUT, c.BYTES_READ),
            shuffled_bytes=self._segment_bytes,
            elapsed_s=max(0.0, now_s - self.submitted_at_s),
            status=next((news.status for news in reversed(moving) if news.status), ""),
        )

    def facts(self, now_s: float) -> JobFacts:
        """Give what the job took."""
        times: dict[TaskKind, list[TaskTime]] = {TaskKind.MAP: [], TaskKind.REDUCE: []}
        for task_id, result in self.results.items():
            times[task_id.kind].append(_task_time(task_id, result))
        return JobFacts(
            max(0.0, now_s - self.submitted_at_s),
            self._counters.get(c.FILE_INPUT, c.BYTES_READ),
            self._segment_bytes,
            self._counters.get(c.FILE_OUTPUT, c.BYTES_WRITTEN),
            times[TaskKind.MAP],
            times[TaskKind.REDUCE],
        )

    def closing(self, now_s: float) -> str:
        """Give the closing report in words."""
        return closing_text(self.facts(now_s))

    def report(
        self, row: JobRow, snapshot: JobSnapshot | None, totals: JobTotals | None, now_s: float
    ) -> JobReport:
        """Give all that is known of the job."""
        attempts = snapshot.attempts.rows if snapshot else ()
        return JobReport(
            row,
            self.counters(totals).as_dict(),
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
            self.closing(now_s),
            self.spec.properties,
            dict(self.said),
        )  # fmt: skip

    def _table(self, totals: JobTotals | None, now_s: float) -> dict[str, float]:
        """Give the columns of the paper's Table 1, and what else a person may ask (§6)."""
        facts = self.facts(now_s)
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
        """Give what was needed before the first map could run (§5.2)."""
        waited_s = min(started_at_s, default=self.submitted_at_s) - self.submitted_at_s
        return {
            "prepared_s": self.spec.prepared_s,
            "start_up_s": self.spec.prepared_s + max(0.0, waited_s),
        }


def settings_of(conf: JobConf) -> JobSettings:
    """Give what a job's properties ask of the scheduler."""
    return JobSettings(
        map_attempts_max=conf.map_attempts_max or ATTEMPTS_MAX,
        reduce_attempts_max=conf.reduce_attempts_max or ATTEMPTS_MAX,
        map_failures_percent_max=conf.map_failures_percent,
        reduce_failures_percent_max=conf.reduce_failures_percent,
        slowstart=conf.slowstart,
        backup_maps=conf.map_speculative,
        backup_reduces=conf.reduce_speculative,
        # An attempt watches its own programs; the master only finds attempts that say nothing.
        task_timeout_s=conf.task_timeout_s * 1.5 + 30.0 if conf.task_timeout_s else 0.0,
        running_maps_max=conf.running_maps_max,
        running_reduces_max=conf.running_reduces_max,
        priority=conf.priority,
        workers_max=conf.workers_max,
    )


def _task_time(task_id: TaskId, result: Result) -> TaskTime:
    is_map = task_id.kind is TaskKind.MAP
    counters = Counters(result.done.counters, user_counters_max=_NO_LIMIT)
    return TaskTime(
        f"{'map' if is_map else 'reduce'} {task_id.task_index}",
        result.seconds,
        counters.value(c.MAP_INPUT_RECORDS if is_map else c.REDUCE_INPUT_RECORDS),
        counters.get(c.FILE_INPUT, c.BYTES_READ) if is_map else result.done.output_bytes,
        result.done.largest_key,
        result.done.largest_key_records,
    )


def _job_counters(totals: JobTotals) -> tuple[tuple[str, int], ...]:
    return (
        (c.LAUNCHED_MAPS, totals.launched_maps),
        (c.LAUNCHED_REDUCES, totals.launched_reduces),
        (c.FAILED_MAPS, totals.failed_maps),
        (c.FAILED_REDUCES, totals.failed_reduces),
        (c.KILLED_MAPS, totals.killed_maps),
        (c.KILLED_REDUCES, totals.killed_reduces),
        (c.DATA_LOCAL_MAPS, totals.host_local_maps),
        (c.RACK_LOCAL_MAPS, totals.rack_local_maps),
        (c.OTHER_LOCAL_MAPS, totals.remote_maps),
    )
