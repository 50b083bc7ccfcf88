"""Who holds a slot: an attempt enters all tables at its start and leaves them at its end.

S5 holds because there is no other way in or out. A doomed attempt (we asked for it to be
killed) leaves the tables of its task and job at once and its slot when its end is reported.
"""

from __future__ import annotations

from heapq import heappush

from mrstream.mapreduce.scheduler.commands import KillAttempt
from mrstream.mapreduce.scheduler.ids import TaskKind
from mrstream.mapreduce.scheduler.phases import Job
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.task import (
    NO_ATTEMPTS,
    RUNNING_ATTEMPTS_MAX,
    Attempt,
    Change,
    TaskState,
)
from mrstream.mapreduce.scheduler.workers import Worker


def attach(state: State, job: Job, attempt: Attempt, worker: Worker) -> None:
    """Enter an attempt that runs (or is about to) into all tables."""
    task = attempt.task
    assert len(task.running) < RUNNING_ATTEMPTS_MAX
    if task.state is TaskState.IDLE:
        task.change(Change.STARTED)
        if task.task_id.kind is TaskKind.MAP:
            job.pending_maps.remove(task)
        else:
            job.pending_reduce_count -= 1
    task.next_number = max(task.next_number, attempt.attempt_id.number + 1)
    task.running = (*task.running, attempt)
    job.phase(task.task_id.kind).running[attempt.attempt_id] = attempt
    job.workers_in_use[worker.worker_id] = job.workers_in_use.get(worker.worker_id, 0) + 1
    state.attempts[attempt.attempt_id] = attempt
    state.workers.occupy(worker, attempt)
    timeout_s = job.settings.task_timeout_s
    if timeout_s > 0:
        state.started_count += 1
        heappush(state.timeouts, (state.now_s + timeout_s, state.started_count, attempt))


def doom(state: State, job: Job, attempt: Attempt, reason: str) -> None:
    """Ask for a running attempt to be killed; only its slot remembers it from here on."""
    tally_kill(state, job, attempt)
    doom_failed(state, job, attempt, reason)


def bury(state: State, attempt: Attempt) -> None:
    """Free the slot of an attempt that has ended."""
    del state.attempts[attempt.attempt_id]
    worker = state.workers.by_id[attempt.worker_id]
    state.workers.vacate(worker, attempt)
    state.freed[worker.worker_id] = worker


def tally_failure(state: State, job: Job, attempt: Attempt) -> None:
    job.totals.wasted_s += state.now_s - attempt.started_at_s
    is_map = attempt.task.task_id.kind is TaskKind.MAP
    job.totals.failed_maps += is_map
    job.totals.failed_reduces += not is_map


def tally_kill(state: State, job: Job, attempt: Attempt) -> None:
    job.totals.wasted_s += state.now_s - attempt.started_at_s
    is_map = attempt.task.task_id.kind is TaskKind.MAP
    job.totals.killed_maps += is_map
    job.totals.killed_reduces += not is_map


def doom_failed(state: State, job: Job, attempt: Attempt, reason: str) -> None:
    """Like `doom`, for an attempt whose end was tallied as a failure."""
    assert not attempt.is_dying
    _detach(job, attempt)
    attempt.is_dying = True
    state.commands.append(KillAttempt(attempt.attempt_id, attempt.worker_id, reason))


def release(state: State, job: Job, attempt: Attempt) -> None:
    """Take an attempt that has ended out of all tables."""
    _detach(job, attempt)
    bury(state, attempt)


def _detach(job: Job, attempt: Attempt) -> None:
    """Take a running attempt out of its task's and job's tables."""
    task = attempt.task
    if len(task.running) == 1:
        task.running = NO_ATTEMPTS
    else:
        task.running = tuple(other for other in task.running if other is not attempt)
    if task.granted is attempt:
        task.granted = None
    del job.phase(task.task_id.kind).running[attempt.attempt_id]
    count = job.workers_in_use[attempt.worker_id]
    if count == 1:
        del job.workers_in_use[attempt.worker_id]
    else:
        job.workers_in_use[attempt.worker_id] = count - 1
