"""The notice board of a job master: what the scheduler was told and what it decided, as rows.

Takes each event with the commands that followed, and what attempts tell in heartbeats; feeds the
tallies of jobs with both, and keeps the rows of `snapshot` up to date, each in constant time. The
master answers watchers from it, and so does the demonstration over a simulated cluster. Nothing is
decided from it; never does IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

from mrstream.mapreduce.attempt.attempt_report import AttemptNews, Done
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
from mrstream.mapreduce.scheduler.phases import SHUFFLE_SHARE, JobView
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
from mrstream.mapreduce.tally import Figures, JobTally, concerned

JOBS_KEPT_MAX = 200
"""Ended jobs shown in the table, oldest forgotten first; their report stays in the history."""
BOARDS_KEPT_MAX = 20
"""Ended jobs whose every attempt is still shown."""


@dataclass(slots=True)
class _Watched:
    """A job's board and the tally that its row is made of."""

    board: JobBoard
    tally: JobTally
    ticked_at_s: float
    moved_before: Figures


class Notices:
    """Hosts, jobs, and for each job its tasks, attempts, events and rates."""

    def __init__(self, view_of: Callable[[JobId], JobView | None]) -> None:
        """`view_of` is the scheduler's word on how far a job is, or was when it ended."""
        self._view_of = view_of
        self.hosts: Board[HostRow] = Board()
        self.jobs: Board[JobRow] = Board()
        self._watched: dict[JobId, _Watched] = {}
        self._tallies: dict[JobId, JobTally] = {}
        """Of the same jobs."""
        self._ended: list[JobId] = []
        self._host_of: dict[WorkerId, str] = {}
        self.attempts_failed = 0
        """Of all jobs since this master started: it never falls, whatever is forgotten."""

    # --- what watchers ask

    def snapshot(self, hosts_version: int, jobs_version: int, now_s: float) -> ClusterSnapshot:
        """Return what changed in the tables of hosts and jobs."""
        return ClusterSnapshot(
            now_s, self.hosts.since(hosts_version), self.jobs.since(jobs_version)
        )

    def job(self, job_id: JobId, seen: JobSeen, now_s: float) -> JobSnapshot | None:
        """Return what changed in one job; None if it is not shown (any more)."""
        watched = self._watched.get(job_id)
        return watched.board.since(seen, now_s) if watched else None

    # --- what the master tells

    def job_submitted(self, row: JobRow, tally: JobTally) -> None:
        """A job was accepted; its row names it, and its tally is fed here from now on."""
        self._tallies[tally.job_id] = tally
        self._watched[tally.job_id] = _Watched(
            JobBoard(row), tally, row.submitted_at_s, tally.moved
        )
        self.jobs.put(row)
        self._note(JobId(row.key), row.submitted_at_s, f"submitted by {row.user}: {row.name}")

    def observe(self, event: Event, commands: Sequence[Command], now_s: float) -> None:
        """Take note of an event and of the commands that it led to."""
        for tally in concerned(self._tallies, event, commands):
            tally.observe(event, commands, now_s)
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

    def heard(self, attempt_id: AttemptId, told: AttemptNews) -> None:
        """A heartbeat came with how far an attempt is."""
        tally = self._tallies.get(attempt_id.task_id.job_id)
        if tally is not None:
            tally.heard(attempt_id, told)
            self._put_figures(tally, attempt_id, told.phase, told.status)

    def offer(self, attempt_id: AttemptId, done: Done) -> None:
        """An attempt says that it is done; what becomes of that is observed next."""
        tally = self._tallies.get(attempt_id.task_id.job_id)
        if tally is not None:
            tally.offer(attempt_id, done)
            self._put_figures(tally, attempt_id)

    def moved(self, attempt_id: AttemptId, figures: Figures, phase: str) -> None:
        """An attempt has moved so much since its start: what a simulation says of one."""
        tally = self._tallies.get(attempt_id.task_id.job_id)
        if tally is not None:
            tally.move(attempt_id, figures)
            self._put_figures(tally, attempt_id, phase)

    def _put_figures(
        self, tally: JobTally, attempt_id: AttemptId, phase: str = "", status: str = ""
    ) -> None:
        attempts = self._watched[tally.job_id].board.attempts
        row, running = attempts.get(str(attempt_id)), tally.running.get(attempt_id)
        if row is None or running is None:
            return
        figures = running.figures
        attempts.put(
            msgspec.structs.replace(
                row,
                records=figures.records,
                input_bytes=figures.input_bytes or figures.shuffle_bytes or figures.merged_bytes,
                output_bytes=figures.output_bytes,
                phase=phase or row.phase,
                status=status or row.status,
            )
        )

    def counters(self, job_id: JobId, counters: dict[str, dict[str, int]]) -> None:
        if job_id in self._watched:
            self._watched[job_id].board.counters = counters

    def tick(self, now_s: float) -> None:
        """About a second passed: bring the rows of running jobs and their curves up to date."""
        for watched in self._watched.values():
            if watched.board.job.state in ("waiting", "running"):
                self._tick_job(watched, now_s)

    # --- events

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
                for attempt_id in event.running:  # of a life of the master before
                    self._adopted(attempt_id, event.host, now_s)
            case WorkerLost():
                self._lost(event.worker_id, event.reason, now_s)
            case WorkerDraining():
                self._host_state(event.worker_id, "draining", "gets no more attempts")
            case WorkerResumed():
                self._host_state(event.worker_id, "up", "")
            case AttemptProgress():
                self._progress(event.attempt_id, event.progress)
            case ShuffleFinished():
                self._progress(event.attempt_id, SHUFFLE_SHARE, phase="reduce")
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
        watched = self._watched.get(attempt_id.task_id.job_id)
        row = watched.board.attempts.get(str(attempt_id)) if watched else None
        if watched is not None and row is not None and row.state == "running":
            changed = msgspec.structs.replace(row, progress=progress, phase=phase or row.phase)
            watched.board.attempts.put(changed)

    def _attempt_ended(self, attempt_id: AttemptId, state: str, why: str, now_s: float) -> None:
        task_id = attempt_id.task_id
        watched = self._watched.get(task_id.job_id)
        row = watched.board.attempts.get(str(attempt_id)) if watched else None
        if watched is None or row is None or row.state != "running":
            return
        watched.board.attempts.put(
            msgspec.structs.replace(row, state=state, finished_at_s=now_s, diagnosis=why)
        )
        self._host_runs(row.host, remove=str(attempt_id))
        if state != "succeeded":
            self._note(task_id.job_id, now_s, f"{attempt_id} {state} on {row.host}: {why}")
            self.attempts_failed += state == "failed"
            task = watched.board.tasks.get(task_key(task_id))
            if task is not None and task.state == COMMITTED:
                return  # its twin had won
            running = any(other.task_id == task_id for other in watched.tally.running)
            self._put_task(watched, task_id, RUNNING if running else IDLE, row.host, now_s)

    def _lost(self, worker_id: WorkerId, why: str, now_s: float) -> None:
        self._host_state(worker_id, "lost", why)
        host = self._host_of.get(worker_id, "")
        row = self.hosts.get(host)
        for text in row.running if row else ():
            self._attempt_ended(parse_attempt_id(text), "killed", f"{host} lost: {why}", now_s)

    # --- commands

    def _see_command(self, command: Command, now_s: float) -> None:
        match command:
            case StartAttempt():
                self._attempt_started(command, now_s)
            case RecordCommit():
                task_id = command.attempt_id.task_id
                watched = self._watched.get(task_id.job_id)
                if watched:
                    host = self._host_of.get(command.worker_id, "")
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
        state = BACKUP if command.is_backup else RUNNING
        self._put_attempt(watched, attempt_id, host, command.locality.value, state, now_s)
        self._host_runs(host, add=str(attempt_id))
        if command.is_backup:
            self._note(task_id.job_id, now_s, f"{attempt_id}: backup started on {host}")

    def _adopted(self, attempt_id: AttemptId, host: str, now_s: float) -> None:
        watched = self._watched.get(attempt_id.task_id.job_id)
        if watched is None or str(attempt_id) in watched.board.attempts:
            return
        running = watched.tally.running.get(attempt_id)
        if running is not None and not running.is_dying:
            self._put_attempt(watched, attempt_id, host, "", RUNNING, now_s)

    def _put_attempt(
        self,
        watched: _Watched,
        attempt_id: AttemptId,
        host: str,
        locality: str,
        state: int,
        now_s: float,
    ) -> None:
        task_id = attempt_id.task_id
        watched.board.attempts.put(
            AttemptRow(
                str(attempt_id),
                task_key(task_id),
                host,
                locality=locality,
                started_at_s=now_s,
                phase="map" if task_id.kind is TaskKind.MAP else "shuffle",
            )
        )
        self._put_task(watched, task_id, state, host, now_s)
        if watched.board.job.state == "waiting":
            self._put_job(watched, state="running")

    def _withdrawn(self, command: WithdrawSegment, now_s: float) -> None:
        task_id = command.attempt_id.task_id
        watched = self._watched.get(task_id.job_id)
        if watched is None:
            return
        host = self._host_of.get(command.worker_id, "")
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
            oldest = self._ended[-BOARDS_KEPT_MAX - 1]
            self._watched.pop(oldest, None)
            self._tallies.pop(oldest, None)
        if len(self._ended) > JOBS_KEPT_MAX:
            self.jobs.drop(self._ended.pop(0))

    # --- rows

    def _tick_job(self, watched: _Watched, now_s: float) -> None:
        row, moved, before = watched.board.job, watched.tally.moved, watched.moved_before
        passed_s = now_s - watched.ticked_at_s
        if passed_s > 0 and row.state == "running":
            watched.board.rates.append(
                RatePoint(
                    now_s,
                    (moved.input_bytes - before.input_bytes) / passed_s,
                    (moved.shuffle_bytes - before.shuffle_bytes) / passed_s,
                    (moved.output_bytes - before.output_bytes) / passed_s,
                )
            )
        watched.ticked_at_s, watched.moved_before = now_s, moved
        view = self._view_of(watched.tally.job_id)
        progress = watched.tally.progress(view, now_s)
        shuffled = view.shuffle_fraction if view and row.reduces else progress.reduce_fraction
        self._put_job(
            watched,
            maps_done=progress.maps_done,
            maps_running=view.maps_running if view else 0,
            reduces_done=progress.reduces_done,
            reduces_running=view.reduces_running if view else 0,
            map_fraction=_rounded(progress.map_fraction),
            shuffle_fraction=_rounded(shuffled),
            reduce_fraction=_rounded(
                (progress.reduce_fraction - shuffled * SHUFFLE_SHARE) / (1 - SHUFFLE_SHARE)
            ),
            input_bytes=moved.input_bytes,
            shuffle_bytes=moved.shuffle_bytes,
            output_bytes=moved.output_bytes,
            records_in=moved.records,
            attempts_failed=len(watched.tally.failures),
            seconds_left=-1.0 if progress.left_s is None else round(progress.left_s),
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
    """Return the short name of a task within its job: `m000012`."""
    return f"{task_id.kind.value}{task_id.task_index:06d}"


def _rounded(fraction: float) -> float:
    """A row changes when a person would see it, not with every byte."""
    return round(min(1.0, max(0.0, fraction)), 3)
