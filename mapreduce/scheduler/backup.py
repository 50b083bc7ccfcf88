"""Backup tasks: a second attempt for stragglers near the end of a phase (MapReduce §3.6).

When a job has no idle task of a kind left and slots are free, the running tasks with
the longest estimated time left get a backup, if a fresh attempt is likely to be sooner.
The first to finish counts; if both turn out slow, the slower one is replaced. The number
of backups is bounded, so that the extra work stays at a few percent. Never touches a task
that is about to commit.
"""

from __future__ import annotations

import math
from heapq import nlargest
from itertools import islice

from mrstream.mapreduce.scheduler import attempts, outputs, slots
from mrstream.mapreduce.scheduler.ids import TaskKind, WorkerId
from mrstream.mapreduce.scheduler.locality import locality_of
from mrstream.mapreduce.scheduler.phases import Job, Phase
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.task import RUNNING_ATTEMPTS_MAX, Attempt, Task
from mrstream.mapreduce.scheduler.workers import Worker

# However small a job is, it may start this many backups of a kind.
BACKUPS_MIN = 4
# An attempt is left alone until it has run for this share of the usual time.
PATIENCE = 0.2
# Two attempts of a task are both given the usual time, and this, before one is replaced.
TWINS_S_MIN = 10.0
# A backup is worth it if the time left is this many times what a fresh attempt would take:
# the lower bound when there are few such attempts, the higher when there are many.
GAIN_MIN = 1.1
GAIN_IN_A_CROWD = 1.5
# How many free workers are compared in search of a quick one.
WORKERS_COMPARED_MAX = 16


def start_backups(state: State, job: Job) -> None:
    """Start backups for the stragglers of a job, as far as slots and bounds allow."""
    if job.settings.backup_maps and not job.pending_maps.count:
        _back_up(state, job, job.maps)
    if job.settings.backup_reduces and not job.pending_reduce_count and job.maps.is_over:
        _back_up(state, job, job.reduces)


def backups_allowed(job: Job, phase: Phase) -> int:
    """How many more backups of a kind a job may start."""
    share = math.ceil(job.settings.backup_share_max * len(phase.tasks))
    return max(BACKUPS_MIN, share) - phase.backups


def _back_up(state: State, job: Job, phase: Phase) -> None:
    free = (
        state.workers.free_for_map if phase.kind is TaskKind.MAP else state.workers.free_for_reduce
    )
    allowed = min(backups_allowed(job, phase), len(free))
    fresh_s = phase.fresh_s()
    if allowed <= 0 or fresh_s is None or not phase.running:
        return
    stragglers: list[tuple[float, int, Task]] = []
    for position, attempt in enumerate(phase.running.values()):
        task = attempt.task
        if task.running[0] is not attempt or task.granted is not None:
            continue
        is_alone = len(task.running) == 1
        patience_s = PATIENCE * fresh_s if is_alone else max(fresh_s, TWINS_S_MIN)
        if any(state.now_s - job.began_at_s(a) < patience_s for a in task.running):
            continue
        left_s = min(_time_left_s(state, job, a) for a in task.running)
        if left_s > GAIN_MIN * fresh_s:
            stragglers.append((left_s, -position, task))
    if len(stragglers) > allowed // 2:
        stragglers = [item for item in stragglers if item[0] > GAIN_IN_A_CROWD * fresh_s]
    for _, _, task in nlargest(allowed, stragglers):
        if not phase.may_run_more():
            return
        worker = _quick_worker(state, job, task, free)
        if worker is not None:
            _replace_slower_twin(state, job, task)
            phase.backups += 1
            locality = locality_of(task, worker, state.workers)
            attempts.start(state, job, task, worker, locality, is_backup=True)


def _time_left_s(state: State, job: Job, attempt: Attempt) -> float:
    return job.pace_of(attempt).time_left_s(attempt, job.began_at_s(attempt), state.now_s)


def _replace_slower_twin(state: State, job: Job, task: Task) -> None:
    """Make room for a third attempt when both that run are slow: S4 allows two."""
    if len(task.running) == RUNNING_ATTEMPTS_MAX:
        slower = max(task.running, key=lambda a: (_time_left_s(state, job, a), a.attempt_id))
        slots.doom(state, job, slower, "another backup is likely to be sooner")
        # It may have been the one that had fetched everything.
        outputs.refresh_need(state, job, task)
        worker = state.workers.by_id[slower.worker_id]
        worker.slowness = max(worker.slowness, slower.pace)


def _quick_worker(
    state: State, job: Job, task: Task, free: dict[WorkerId, Worker]
) -> Worker | None:
    """Choose a free worker on another host: one that holds the data, else the quickest."""
    spec = task.spec
    slow_hosts = [state.workers.by_id[a.worker_id].host for a in task.running]
    near = [
        worker
        for host in (spec.hosts if spec else ())
        for worker in state.workers.by_host.get(host, ())
        if worker.worker_id in free
    ]
    candidates = [*near, *islice(free.values(), WORKERS_COMPARED_MAX)]
    able = [
        worker
        for worker in candidates
        if worker.host not in slow_hosts
        and job.may_use(worker.worker_id)
        and worker.worker_id not in task.failed_on
    ]
    return min(able, key=lambda worker: worker.slowness, default=None)
