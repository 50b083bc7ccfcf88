"""The notice board of a job master: what the scheduler was told and what it decided, as rows.

Takes each event with the commands that followed, and the figures that heartbeats bring; keeps the
rows of `snapshot` up to date, each in constant time. The master answers watchers from it, and so
does the demonstration over a simulated cluster. Nothing is decided from it; never does IO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.job.counters import (
    BYTES_READ,
    FILE_INPUT,
    FRAMEWORK,
    MAP_INPUT_RECORDS,
    REDUCE_INPUT_RECORDS,
    REDUCE_SHUFFLE_BYTES,
)
from mrstream.mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    KillAttempt,
    LoseWorker,
    PublishSegment,
    QuarantineWorker,
    RecordCommit,
    ReleaseWorker,
    StartAttempt,
    WithdrawSegment,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptProgress,
    AttemptSucceeded,
    Event,
    FailAttemptRequested,
    JobPrioritySet,
    ShuffleFinished,
    WorkerDraining,
    WorkerLost,
    WorkerRegistered,
    WorkerResumed,
)
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    JobId,
    TaskId,
    TaskKind,
    WorkerId,
    parse_attempt_id,
)
from mrstream.mapreduce.snapshot import (
    BACKUP,
    COMMITTED,
    FAILED,
    IDLE,
    PRIORITY_NAMES,
    RUNNING,
    AttemptRow,
    Board,
    ClusterSnapshot,
    DiskRow,
    EventRow,
    HostRow,
    JobBoard,
    JobRow,
    JobSeen,
    JobSnapshot,
    RatePoint,
    TaskRow,
)

JOBS_KEPT_MAX = 200
"""Ended jobs shown in the table, oldest forgotten first; their report stays in the history."""
BOARDS_KEPT_MAX = 20
"""Ended jobs whose every attempt is still shown."""
_SHUFFLE_SHARE = 1 / 3
"""A reduce's progress is shuffle, sort and reduce, a third each, as Hadoop counts it."""


@dataclass(slots=True)
class Figures:
    """What one attempt has done so far, as its heartbeats say."""

    records: int = 0
    input_bytes: int = 0
    shuffle_bytes: int = 0
    output_bytes: int = 0


def final_figures(done: Done, kind: TaskKind) -> Figures:
    """What a complete attempt has done, by its counters: short ones never sent a heartbeat."""
    framework = done.counters.get(FRAMEWORK, {})
    if kind is TaskKind.MAP:
        read = done.counters.get(FILE_INPUT, {}).get(BYTES_READ, 0)
        return Figures(framework.get(MAP_INPUT_RECORDS, 0), read, 0, done.output_bytes)
    return Figures(
        framework.get(REDUCE_INPUT_RECORDS, 0),
        0,
        framework.get(REDUCE_SHUFFLE_BYTES, 0),
        done.output_bytes,
    )


@dataclass(slots=True)
class _Watched:
    """A job's board and the sums that its row shows."""

    board: JobBoard
    running: dict[TaskId, dict[AttemptId, None]] = field(default_factory=dict)
    figures: dict[AttemptId, Figures] = field(default_factory=dict)
    moved: Figures = field(default_factory=Figures)
    moved_before: Figures = field(default_factory=Figures)
    progress: dict[TaskId, float] = field(default_factory=dict)
    map_sum: float = 0.0
    shuffle_sum: float = 0.0
    reduce_sum: float = 0.0
    done: dict[TaskKind, int] = field(default_factory=lambda: {TaskKind.MAP: 0, TaskKind.REDUCE: 0})
    failed: int = 0
    ticked_at_s: float = 0.0


class Notices:
    """Hosts, jobs, and for each job its tasks, attempts, events and rates."""

    def __init__(self) -> None:
        self.hosts: Board[HostRow] = Board()
        self.jobs: Board[JobRow] = Board()
        self._watched: dict[JobId, _Watched] = {}
        self._ended: list[JobId] = []
        self._host_of: dict[WorkerId, str] = {}
        self.attempts_failed = 0
        """Of all jobs since this master started: it never falls, whatever is forgotten."""

    # What watchers ask ----------------------------------------------------------------

    def snapshot(self, hosts_version: int, jobs_version: int, now_s: float) -> ClusterSnapshot:
        """Give what changed in the tables of hosts and jobs."""
        return ClusterSnapshot(
            now_s, self.hosts.since(hosts_version), self.jobs.since(jobs_version)
        )

    def job(self, job_id: JobId, seen: JobSeen, now_s: float) -> JobSnapshot | None:
        """Give what changed in one job; None if it is not shown (any more)."""
        watched = self._watched.get(job_id)
        return watched.board.since(seen, now_s) if watched else None

    # What the master tells ------------------------------------------------------------

    def job_submitted(self, row: JobRow) -> None:
        """A job was accepted; its row names it and says how many tasks it has."""
        self._watched[JobId(row.key)] = _Watched(JobBoard(row), ticked_at_s=row.submitted_at_s)
        self.jobs.put(row)
        self._note(JobId(row.key), row.submitted_at_s, f"submitted by {row.user}: {row.name}")

    def observe(self, event: Event, commands: Sequence[Command], now_s: float) -> None:
        """Take note of an event and of the commands that it led to."""
        self._see_event(event, now_s)
        for command in commands:
            self._see_command(command, now_s)

    def host_figures(
        self,
        worker_id: WorkerId,
        *,
        load: float,
        memory_used_bytes: int,
        memory_total_bytes: int,
        disks: tuple[DiskRow, ...],
        now_s: float,
    ) -> None:
        """A heartbeat came with what the host is doing."""
        row = self.hosts.get(self._host_of.get(worker_id, ""))
        if row is not None:
            self._put_host(
                row,
                load=round(load, 1),
                memory_used_bytes=memory_used_bytes,
                memory_total_bytes=memory_total_bytes,
                disks=disks,
                heard_at_s=now_s,
            )

    def attempt_figures(
        self, attempt_id: AttemptId, figures: Figures, *, phase: str = "", status: str = ""
    ) -> None:
        """A heartbeat came with what an attempt has done."""
        watched = self._watched.get(attempt_id.task_id.job_id)
        row = watched.board.attempts.get(str(attempt_id)) if watched else None
        if watched is None or row is None:
            return
        old = watched.figures.get(attempt_id, Figures())
        watched.figures[attempt_id] = figures
        moved = watched.moved
        moved.records += figures.records - old.records
        moved.input_bytes += figures.input_bytes - old.input_bytes
        moved.shuffle_bytes += figures.shuffle_bytes - old.shuffle_bytes
        moved.output_bytes += figures.output_bytes - old.output_bytes
        watched.board.attempts.put(
            msgspec.structs.replace(
                row,
                records=figures.records,
                input_bytes=figures.input_bytes or figures.shuffle_bytes,
                output_bytes=figures.output_bytes,
                phase=phase or row.phase,
                status=status or row.status,
            )
        )

    def counters(self, job_id: JobId, counters: dict[str, dict[str, int]]) -> None:
        """The sums of a job's counters over all its tasks."""
        if job_id in self._watched:
            self._watched[job_id].board.counters = counters

    def tick(self, now_s: float) -> None:
        """About a second passed: bring the rows of running jobs and their curves up to date."""
        for watched in self._watched.values():
            if watched.board.job.state in ("waiting", "running"):
                self._tick_job(watched, now_s)

    # Events ---------------------------------------------------------------------------

    def _see_event(self, event: Event, now_s: float) -> None:
        match event:
            case WorkerRegistered():
                self._host_of[event.worker_id] = event.host
                still = [str(attempt) for attempt in event.running]
                old = self.hosts.get(event.host) or HostRow(event.host)
                for text in old.running:
                    if text not in still:  # the worker process was a new one
                        self._attempt_ended(
                            parse_attempt_id(text), "killed", "its worker started again", now_s
                        )
                self._put_host(
                    old,
                    rack=event.rack,
                    state="up",
                    slots=event.slots,
                    slots_used=len(still),
                    running=tuple(still),
                    heard_at_s=now_s,
                    reason="",
                )
            case WorkerLost():
                self._lost(event.worker_id, event.reason, now_s)
            case WorkerDraining():
                self._host_state(event.worker_id, "draining", "gets no more attempts")
            case WorkerResumed():
                self._host_state(event.worker_id, "up", "")
            case AttemptProgress():
                self._progress(event.attempt_id, event.progress)
            case ShuffleFinished():
                self._progress(event.attempt_id, _SHUFFLE_SHARE, phase="reduce")
            case AttemptSucceeded():
                self._progress(event.attempt_id, 1.0)
                self._attempt_ended(event.attempt_id, "succeeded", "", now_s)
            case AttemptFailed():
                self._attempt_ended(event.attempt_id, "failed", event.reason, now_s)
            case AttemptKilled():
                self._attempt_ended(event.attempt_id, "killed", event.reason, now_s)
            case FailAttemptRequested():
                self._attempt_ended(event.attempt_id, "failed", "failed on request", now_s)
            case JobPrioritySet():
                name = PRIORITY_NAMES.get(event.priority, str(event.priority))
                watched = self._watched.get(event.job_id)
                if watched:
                    self._put_job(watched, priority=name)
            case _:
                pass

    def _progress(self, attempt_id: AttemptId, progress: float, phase: str = "") -> None:
        task_id = attempt_id.task_id
        watched = self._watched.get(task_id.job_id)
        row = watched.board.attempts.get(str(attempt_id)) if watched else None
        if watched is None or row is None or row.state != "running":
            return
        changed = msgspec.structs.replace(row, progress=progress, phase=phase or row.phase)
        watched.board.attempts.put(changed)
        old = watched.progress.get(task_id, 0.0)
        if progress > old:
            watched.progress[task_id] = progress
            self._sum(watched, task_id, old, progress)

    @staticmethod
    def _sum(watched: _Watched, task_id: TaskId, old: float, new: float) -> None:
        if task_id.kind is TaskKind.MAP:
            watched.map_sum += new - old
            return
        watched.shuffle_sum += min(1.0, new / _SHUFFLE_SHARE) - min(1.0, old / _SHUFFLE_SHARE)
        rest = 1 - _SHUFFLE_SHARE
        watched.reduce_sum += (
            max(0.0, new - _SHUFFLE_SHARE) - max(0.0, old - _SHUFFLE_SHARE)
        ) / rest

    def _attempt_ended(self, attempt_id: AttemptId, state: str, why: str, now_s: float) -> None:
        task_id = attempt_id.task_id
        watched = self._watched.get(task_id.job_id)
        row = watched.board.attempts.get(str(attempt_id)) if watched else None
        if watched is None or row is None or row.state != "running":
            return
        watched.board.attempts.put(
            msgspec.structs.replace(row, state=state, finished_at_s=now_s, diagnosis=why)
        )
        running = watched.running.get(task_id, {})
        running.pop(attempt_id, None)
        self._host_runs(row.host, remove=str(attempt_id))
        if state != "succeeded":
            self._note(task_id.job_id, now_s, f"{attempt_id} {state} on {row.host}: {why}")
            watched.failed += state == "failed"
            self.attempts_failed += state == "failed"
            task = watched.board.tasks.get(task_key(task_id))
            if task is not None and task.state == COMMITTED:
                return  # its twin had won
            self._put_task(watched, task_id, RUNNING if running else IDLE, row.host, now_s)
            if not running:
                self._sum(watched, task_id, watched.progress.pop(task_id, 0.0), 0.0)

    def _lost(self, worker_id: WorkerId, why: str, now_s: float) -> None:
        self._host_state(worker_id, "lost", why)
        host = self._host_of.get(worker_id, "")
        row = self.hosts.get(host)
        for text in row.running if row else ():
            self._attempt_ended(parse_attempt_id(text), "killed", f"{host} lost: {why}", now_s)

    # Commands -------------------------------------------------------------------------

    def _see_command(self, command: Command, now_s: float) -> None:
        match command:
            case StartAttempt():
                self._attempt_started(command, now_s)
            case RecordCommit():
                task_id = command.attempt_id.task_id
                watched = self._watched.get(task_id.job_id)
                if watched:
                    host = self._host_of.get(command.worker_id, "")
                    watched.done[task_id.kind] += 1
                    old = watched.progress.get(task_id, 0.0)
                    watched.progress[task_id] = 1.0
                    self._sum(watched, task_id, old, 1.0)
                    self._put_task(watched, task_id, COMMITTED, host, now_s)
            case WithdrawSegment():
                self._withdrawn(command, now_s)
            case AbandonTask():
                watched = self._watched.get(command.task_id.job_id)
                if watched:
                    self._put_task(watched, command.task_id, FAILED, "", now_s)
                    text = f"{command.task_id} given up: {command.reason}"
                    self._note(command.task_id.job_id, now_s, text)
            case FinishJob():
                self._finished(command, now_s)
            case LoseWorker():
                self._lost(command.worker_id, command.reason, now_s)
            case QuarantineWorker():
                self._host_state(command.worker_id, "quarantined", command.reason)
            case ReleaseWorker():
                self._host_state(command.worker_id, "up", "")
            case KillAttempt() | GrantCommit() | PublishSegment():
                pass  # what comes of them is seen as events
            case _:
                assert_never(command)

    def _attempt_started(self, command: StartAttempt, now_s: float) -> None:
        attempt_id, task_id = command.attempt_id, command.attempt_id.task_id
        watched = self._watched.get(task_id.job_id)
        if watched is None:
            return
        host = self._host_of.get(command.worker_id, "")
        watched.running.setdefault(task_id, {})[attempt_id] = None
        watched.board.attempts.put(
            AttemptRow(
                str(attempt_id),
                task_key(task_id),
                host,
                locality=command.locality.value,
                started_at_s=now_s,
                phase="map" if task_id.kind is TaskKind.MAP else "shuffle",
            )
        )
        self._put_task(watched, task_id, BACKUP if command.is_backup else RUNNING, host, now_s)
        self._host_runs(host, add=str(attempt_id))
        if watched.board.job.state == "waiting":
            self._put_job(watched, state="running")
        if command.is_backup:
            self._note(task_id.job_id, now_s, f"{attempt_id}: backup started on {host}")

    def _withdrawn(self, command: WithdrawSegment, now_s: float) -> None:
        task_id = command.attempt_id.task_id
        watched = self._watched.get(task_id.job_id)
        if watched is None:
            return
        host = self._host_of.get(command.worker_id, "")
        watched.done[task_id.kind] -= 1
        self._sum(watched, task_id, watched.progress.pop(task_id, 0.0), 0.0)
        self._put_task(watched, task_id, IDLE, host, now_s)
        self._note(task_id.job_id, now_s, f"{task_id}: output on {host} is lost; runs again")

    def _finished(self, command: FinishJob, now_s: float) -> None:
        watched = self._watched.get(command.job_id)
        if watched is None:
            return
        self._tick_job(watched, now_s)
        self._put_job(
            watched,
            state=command.outcome.value,
            finished_at_s=now_s,
            diagnosis=command.reason,
            seconds_left=-1.0,
        )
        self._note(command.job_id, now_s, f"{command.outcome.value} {command.reason}".rstrip())
        self._ended.append(command.job_id)
        if len(self._ended) > BOARDS_KEPT_MAX:
            self._watched.pop(self._ended[-BOARDS_KEPT_MAX - 1], None)
        if len(self._ended) > JOBS_KEPT_MAX:
            self.jobs.drop(self._ended.pop(0))

    # Rows -----------------------------------------------------------------------------

    def _tick_job(self, watched: _Watched, now_s: float) -> None:
        row, moved, before = watched.board.job, watched.moved, watched.moved_before
        passed_s = now_s - watched.ticked_at_s
        if passed_s > 0 and row.state == "running":
            watched.board.rates.append(
                RatePoint(
                    now_s,
                    max(0, moved.input_bytes - before.input_bytes) / passed_s,
                    max(0, moved.shuffle_bytes - before.shuffle_bytes) / passed_s,
                    max(0, moved.output_bytes - before.output_bytes) / passed_s,
                )
            )
        watched.ticked_at_s = now_s
        watched.moved_before = Figures(
            moved.records, moved.input_bytes, moved.shuffle_bytes, moved.output_bytes
        )
        maps, reduces = max(1, row.maps), max(1, row.reduces)
        map_fraction = watched.map_sum / maps if row.maps else 1.0
        reduce_fraction = watched.reduce_sum / reduces
        running = {TaskKind.MAP: 0, TaskKind.REDUCE: 0}
        for task_id, attempts in watched.running.items():
            running[task_id.kind] += len(attempts)
        self._put_job(
            watched,
            maps_done=watched.done[TaskKind.MAP],
            maps_running=running[TaskKind.MAP],
            reduces_done=watched.done[TaskKind.REDUCE],
            reduces_running=running[TaskKind.REDUCE],
            map_fraction=_rounded(map_fraction),
            shuffle_fraction=_rounded(watched.shuffle_sum / reduces),
            reduce_fraction=_rounded(reduce_fraction),
            input_bytes=moved.input_bytes,
            shuffle_bytes=moved.shuffle_bytes,
            output_bytes=moved.output_bytes,
            records_in=moved.records,
            attempts_failed=watched.failed,
            seconds_left=_seconds_left(row, map_fraction, watched, now_s),
        )

    def _put_job(self, watched: _Watched, **changes: object) -> None:
        watched.board.job = msgspec.structs.replace(watched.board.job, **changes)
        self.jobs.put(watched.board.job)

    def _put_task(
        self, watched: _Watched, task_id: TaskId, state: int, host: str, now_s: float
    ) -> None:
        old = watched.board.tasks.get(task_key(task_id))
        started_at_s = old.started_at_s if old and state != RUNNING else now_s
        watched.board.tasks.put(TaskRow(task_key(task_id), state, host, started_at_s))

    def _put_host(self, row: HostRow, **changes: object) -> None:
        self.hosts.put(msgspec.structs.replace(row, **changes))

    def _host_state(self, worker_id: WorkerId, state: str, reason: str) -> None:
        row = self.hosts.get(self._host_of.get(worker_id, ""))
        if row is not None:
            self._put_host(row, state=state, reason=reason)

    def _host_runs(self, host: str, *, add: str = "", remove: str = "") -> None:
        row = self.hosts.get(host)
        if row is None:
            return
        running = tuple(each for each in row.running if each != remove)
        if add:
            running = (*running, add)
        self._put_host(row, running=running, slots_used=len(running))

    def _note(self, job_id: JobId, now_s: float, text: str) -> None:
        watched = self._watched.get(job_id)
        if watched:
            watched.board.events.append(EventRow(now_s, text))


def task_key(task_id: TaskId) -> str:
    """Give the short name of a task within its job: `m000012`."""
    return f"{task_id.kind.value}{task_id.task_index:06d}"


def _rounded(fraction: float) -> float:
    """A row changes when a person would see it, not with every byte."""
    return round(min(1.0, max(0.0, fraction)), 3)


def _seconds_left(row: JobRow, map_fraction: float, watched: _Watched, now_s: float) -> float:
    if row.reduces:
        reduces = max(1, row.reduces)
        reduced = (watched.shuffle_sum * _SHUFFLE_SHARE + watched.reduce_sum) / reduces
        done = (map_fraction + min(1.0, reduced / (1 + _SHUFFLE_SHARE))) / 2
    else:
        done = map_fraction
    elapsed_s = now_s - row.submitted_at_s
    if done < 0.02 or elapsed_s <= 0:
        return -1.0
    return round(elapsed_s * (1 - done) / done)
