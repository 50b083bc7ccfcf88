"""The life of an attempt: it starts, asks to commit, and ends in one of four ways.

Each function takes the state and changes it by one step of an attempt's life,
emitting the commands that follow from it. Never chooses which task is next.
"""

from __future__ import annotations

from mrstream.mapreduce.scheduler import ending, outputs, slots
from mrstream.mapreduce.scheduler.commands import (
    GrantCommit,
    Locality,
    PublishSegment,
    QuarantineWorker,
    RecordCommit,
    StartAttempt,
)
from mrstream.mapreduce.scheduler.ids import AttemptId, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.phases import Job
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.task import Attempt, Change, Task, TaskState
from mrstream.mapreduce.scheduler.workers import FAILURES_IN_A_ROW_MAX, Worker

# How much the latest attempt weighs in the estimate of a worker's slowness.
SLOWNESS_WEIGHT = 0.3


def start(
    state: State, job: Job, task: Task, worker: Worker, locality: Locality, *, is_backup: bool
) -> None:
    """Start the next attempt of a task on a worker with room."""
    attempt_id = AttemptId(task.task_id, task.next_number)
    attempt = Attempt(
        attempt_id,
        task,
        worker.worker_id,
        now_s=state.now_s,
        locality=locality,
        is_backup=is_backup,
    )
    slots.attach(state, job, attempt, worker)
    totals = job.totals
    if task.task_id.kind is TaskKind.MAP:
        totals.launched_maps += 1
        totals.backup_maps += is_backup
        totals.host_local_maps += locality is Locality.HOST
        totals.rack_local_maps += locality is Locality.RACK
        totals.remote_maps += locality is Locality.REMOTE
        if job.pending_maps.count == 0 and job.pending_reduce_count:
            state.has_opened_gate = True
    else:
        totals.launched_reduces += 1
        totals.backup_reduces += is_backup
    state.commands.append(StartAttempt(attempt_id, worker.worker_id, locality, is_backup))


def request_commit(state: State, attempt: Attempt) -> None:
    """Grant the commit to the first attempt of a task that asks; a second one waits."""
    task = attempt.task
    attempt.wants_commit = True
    attempt.heard_at_s = state.now_s
    if task.granted is None:
        task.granted = attempt
        task.let_number = attempt.attempt_id.number
    # A repeated question gets the same answer again.
    if task.granted is attempt:
        state.commands.append(GrantCommit(attempt.attempt_id, attempt.worker_id))


def succeed(state: State, job: Job, attempt: Attempt) -> None:
    """Commit the task by this attempt, unless another was let commit after it."""
    task = attempt.task
    kind = task.task_id.kind
    # S1: whoever was let last may have laid its output over this one's, or may do so yet, though
    # it does not run as far as we know: its worker may only be silent.
    if job.has_final_output(kind) and task.let_number not in (-1, attempt.attempt_id.number):
        kill_ended(state, job, attempt)
        return
    worker = state.workers.by_id[attempt.worker_id]
    slots.release(state, job, attempt)
    _learn_speed(state, job, attempt, worker)
    worker.failures_in_a_row.clear()
    job.totals.useful_s += state.now_s - attempt.started_at_s
    job.totals.backups_that_won += attempt.is_backup
    commit(state, job, task, attempt.attempt_id, worker)


def commit(state: State, job: Job, task: Task, attempt_id: AttemptId, worker: Worker) -> None:
    """Make `attempt_id` the winner of its task; kill what else runs of it."""
    kind = task.task_id.kind
    for other in task.running:
        job.totals.backup_wasted_s += state.now_s - other.started_at_s
        slow_worker = state.workers.by_id[other.worker_id]
        slow_worker.slowness = max(slow_worker.slowness, other.pace)
        slots.doom(state, job, other, "another attempt of the task has committed")
    if task.pending_key >= 0:
        job.pending_maps.remove(task)
    task.change(Change.SUCCEEDED)
    task.granted = None
    task.winner_worker = worker.worker_id
    task.winner_number = attempt_id.number
    task.fetch_failures = 0
    job.phase(kind).committed += 1
    state.commands.append(RecordCommit(attempt_id, worker.worker_id))
    if not job.has_final_output(kind):
        worker.segments.setdefault(job.job_id, {})[task.task_id.task_index] = None
        state.commands.append(PublishSegment(attempt_id, worker.worker_id))
    ending.task_is_over(state, job, task)


def fail(state: State, job: Job, attempt: Attempt, reason: str) -> None:
    """Count a failed attempt that has ended against its task and its worker."""
    slots.tally_failure(state, job, attempt)
    slots.release(state, job, attempt)
    _blame(state, job, attempt, reason)


def fail_running(state: State, job: Job, attempt: Attempt, reason: str) -> None:
    """Count a failure of an attempt that still runs, and have it killed."""
    slots.tally_failure(state, job, attempt)
    slots.doom_failed(state, job, attempt, reason)
    _blame(state, job, attempt, reason)


def kill_ended(state: State, job: Job, attempt: Attempt) -> None:
    """Take note of an attempt that is gone through no fault of its own."""
    slots.tally_kill(state, job, attempt)
    slots.release(state, job, attempt)
    _task_lost_attempt(state, job, attempt.task)


def kill_running(state: State, job: Job, attempt: Attempt, reason: str) -> None:
    """Have a running attempt killed and its task tried again, at no cost to the task."""
    slots.doom(state, job, attempt, reason)
    _task_lost_attempt(state, job, attempt.task)


def blame_output(state: State, job: Job, task: Task, reason: str) -> None:
    """Treat a committed map whose output nobody can fetch as a failed attempt."""
    assert task.winner_worker is not None
    culprit = task.winner()
    task.failed_on = (*task.failed_on, task.winner_worker)
    job.totals.failed_maps += 1
    distrust(state, job, task.winner_worker)
    outputs.lose_segment(state, job, task)
    if task.state is TaskState.IDLE:
        ending.give_up_if_hopeless(state, job, task, culprit, reason)


def distrust(state: State, job: Job, worker_id: WorkerId) -> None:
    """Count a failure against a worker; quarantine it if it fails everything."""
    worker = state.workers.by_id.get(worker_id)
    if worker is None or worker.quarantined_until_s is not None:
        return
    worker.failures_in_a_row.append(job.job_id)
    count = len(worker.failures_in_a_row)
    if count >= FAILURES_IN_A_ROW_MAX and state.workers.may_quarantine_one_more():
        state.workers.quarantine(worker, state.now_s + state.limits.quarantine_s)
        why = f"{count} failed attempts in a row"
        state.commands.append(QuarantineWorker(worker.worker_id, why))


def _blame(state: State, job: Job, attempt: Attempt, reason: str) -> None:
    task = attempt.task
    task.failed_on = (*task.failed_on, attempt.worker_id)
    task.failed_numbers = (*task.failed_numbers, attempt.attempt_id.number)
    distrust(state, job, attempt.worker_id)
    if not ending.give_up_if_hopeless(state, job, task, attempt.attempt_id, reason):
        _task_lost_attempt(state, job, task)


def _learn_speed(state: State, job: Job, attempt: Attempt, worker: Worker) -> None:
    duration_s = state.now_s - job.began_at_s(attempt)
    pace = job.pace_of(attempt)
    pace.learn_end(duration_s)
    if pace.mean_s > 0:
        ratio = duration_s / pace.mean_s
        worker.slowness += SLOWNESS_WEIGHT * (ratio - worker.slowness)


def _task_lost_attempt(state: State, job: Job, task: Task) -> None:
    """See what is left of a task after one of its attempts ended without success."""
    if task.state is not TaskState.RUNNING:
        return
    if task.running:
        waiting = next((other for other in task.running if other.wants_commit), None)
        if waiting is not None and task.granted is None:
            request_commit(state, waiting)
    else:
        task.change(Change.STOPPED)
        outputs.requeue(state, job, task)
    outputs.refresh_need(state, job, task)
