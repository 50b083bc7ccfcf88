"""What a local job has done so far: counters, times and sizes of its tasks, for console and report.

Takes what attempts tell; gives `JobProgress`, `JobFacts` and the report that is kept. Counters of
attempts that did not commit never count (MapReduce §4.9). Does no IO and reads no clock.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mrstream.mapreduce.attempt.attempt_report import Done, Failure, Progress
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.counters import Counters
from mrstream.mapreduce.progress import JobProgress
from mrstream.mapreduce.report import JobFacts, TaskTime
from mrstream.mapreduce.scheduler.ids import AttemptId, TaskKind


class _Live(msgspec.Struct):
    kind: TaskKind
    started_at_s: float
    progress: Progress | None = None


class Tally:
    """The sums of one job."""

    def __init__(
        self,
        maps: int,
        reduces: int,
        started_at_s: float,
        counters: Counters,
        *,
        may_fail: tuple[int, int] = (0, 0),
    ) -> None:
        """`may_fail` says without how many maps and reduces the job would go on."""
        self._may_fail = dict(zip((TaskKind.MAP, TaskKind.REDUCE), may_fail, strict=True))
        self.maps = maps
        self.reduces = reduces
        self.started_at_s = started_at_s
        self.counters = counters
        self.finished: dict[TaskKind, list[TaskTime]] = {TaskKind.MAP: [], TaskKind.REDUCE: []}
        self.failures: list[tuple[AttemptId, Failure]] = []
        self.map_output_bytes = 0
        self._live: dict[AttemptId, _Live] = {}
        self._abandoned = {TaskKind.MAP: 0, TaskKind.REDUCE: 0}

    def started(self, attempt_id: AttemptId, now_s: float) -> None:
        """An attempt has begun."""
        kind = attempt_id.task_id.kind
        self._live[attempt_id] = _Live(kind, now_s)
        self.counters.add(c.JOB, c.LAUNCHED_MAPS if kind is TaskKind.MAP else c.LAUNCHED_REDUCES, 1)

    def heard(self, attempt_id: AttemptId, progress: Progress) -> None:
        """An attempt tells how far it is."""
        if attempt_id in self._live:
            self._live[attempt_id].progress = progress

    def committed(self, attempt_id: AttemptId, done: Done, now_s: float) -> None:
        """An attempt's task is done, by this attempt: its counters count, once."""
        live = self._live.pop(attempt_id)
        self.counters.add_all(done.counters)
        counters = Counters(done.counters, user_counters_max=1 << 30)
        is_map = live.kind is TaskKind.MAP
        passed_s = now_s - live.started_at_s
        self.counters.add(c.JOB, c.MAPS_MS if is_map else c.REDUCES_MS, int(passed_s * 1000))
        self.map_output_bytes += done.segment_bytes
        self.finished[live.kind].append(
            TaskTime(
                f"{'map' if is_map else 'reduce'} {attempt_id.task_id.task_index}",
                passed_s,
                counters.value(c.MAP_INPUT_RECORDS if is_map else c.REDUCE_INPUT_RECORDS),
                counters.get(c.FILE_INPUT, c.BYTES_READ) if is_map else done.output_bytes,
                done.largest_key,
                done.largest_key_records,
            )
        )

    def failed(self, attempt_id: AttemptId, failure: Failure) -> None:
        """An attempt failed."""
        live = self._live.pop(attempt_id, None)
        kind = attempt_id.task_id.kind
        if live is not None:
            self.counters.add(c.JOB, c.FAILED_MAPS if kind is TaskKind.MAP else c.FAILED_REDUCES, 1)
        self.failures.append((attempt_id, failure))

    def killed(self, attempt_id: AttemptId) -> None:
        """An attempt was killed."""
        if self._live.pop(attempt_id, None) is not None:
            kind = attempt_id.task_id.kind
            self.counters.add(c.JOB, c.KILLED_MAPS if kind is TaskKind.MAP else c.KILLED_REDUCES, 1)

    def abandoned(self, kind: TaskKind) -> None:
        """A task has failed for good, and the job goes on without it."""
        self._abandoned[kind] += 1

    def abandoned_tasks(self, kind: TaskKind) -> int:
        """Count the tasks of a kind that have failed for good."""
        return self._abandoned[kind]

    def failed_tasks(self, kind: TaskKind) -> int:
        """Count the tasks of a kind of which an attempt failed."""
        return len({x.task_id for x, _ in self.failures if x.task_id.kind is kind})

    def progress(self, now_s: float) -> JobProgress:
        """Give how far the job is."""
        in_maps = not self._all_over(TaskKind.MAP)
        live = [x for x in self._live.values() if x.progress is not None]
        kind = TaskKind.MAP if in_maps else TaskKind.REDUCE
        moving = [x.progress for x in live if x.kind is kind and x.progress is not None]
        status = next((p.status for p in reversed(moving) if p.status), "")
        return JobProgress(
            map_fraction=self._fraction(TaskKind.MAP),
            reduce_fraction=self._fraction(TaskKind.REDUCE),
            maps_done=len(self.finished[TaskKind.MAP]),
            maps=self.maps,
            reduces_done=len(self.finished[TaskKind.REDUCE]),
            reduces=self.reduces,
            records=self.counters.value(c.MAP_INPUT_RECORDS if in_maps else c.REDUCE_INPUT_RECORDS)
            + sum(p.records for p in moving),
            bytes_done=sum(t.size_bytes for t in self.finished[kind])
            + sum(p.bytes for p in moving),
            shuffled_bytes=self.map_output_bytes,
            elapsed_s=now_s - self.started_at_s,
            status=status,
        )

    def facts(self, now_s: float) -> JobFacts:
        """Give what the job took."""
        return JobFacts(
            now_s - self.started_at_s,
            self.counters.get(c.FILE_INPUT, c.BYTES_READ),
            self.map_output_bytes,
            self.counters.get(c.FILE_OUTPUT, c.BYTES_WRITTEN),
            self.finished[TaskKind.MAP],
            self.finished[TaskKind.REDUCE],
        )

    def kept_report(self, job_id: str, name: str, state: str, now_s: float) -> dict[str, Any]:
        """Give the report that history keeps."""
        facts = self.facts(now_s)
        return {
            "job_id": job_id,
            "name": name,
            "state": state,
            "elapsed_s": round(facts.elapsed_s, 3),
            "input_bytes": facts.input_bytes,
            "shuffled_bytes": facts.shuffled_bytes,
            "output_bytes": facts.output_bytes,
            "tasks": {
                task.name: {"seconds": round(task.seconds, 3), "records": task.records}
                for task in (*facts.maps, *facts.reduces)
            },
            "failures": [
                {"attempt_id": str(attempt_id), "message": failure.message}
                for attempt_id, failure in self.failures
            ],
            "counters": self.counters.as_dict(),
        }

    def _all_over(self, kind: TaskKind) -> bool:
        return len(self.finished[kind]) + self._abandoned[kind] >= self._count(kind)

    def _count(self, kind: TaskKind) -> int:
        return self.maps if kind is TaskKind.MAP else self.reduces

    def _fraction(self, kind: TaskKind) -> float:
        tasks = self._count(kind)
        if not tasks:
            return 1.0 if kind is TaskKind.MAP else 0.0
        # What fails the job was not done.
        done = len(self.finished[kind]) + min(self._abandoned[kind], self._may_fail[kind])
        running = sum(
            live.progress.fraction
            for live in self._live.values()
            if live.kind is kind and live.progress is not None
        )
        return min(1.0, (done + running) / tasks)
