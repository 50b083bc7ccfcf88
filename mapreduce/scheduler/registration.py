"""Workers come, go and come back; jobs come back after a restart of the master.

What a worker says it has (running attempts, segments) is compared with what we believe:
what fits is kept, what does not is killed, what is missing is gone. So a healed partition
or a restarted master repeats no finished map. Never trusts a report against a commit.
"""

from __future__ import annotations

from mrstream.mapreduce.scheduler import attempts, ending, outputs, slots
from mrstream.mapreduce.scheduler.commands import (
    JobOutcome,
    KillAttempt,
    LoseWorker,
    PublishSegment,
)
from mrstream.mapreduce.scheduler.events import JobRestored, WorkerRegistered
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, TaskKind
from mrstream.mapreduce.scheduler.phases import Job
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.task import RUNNING_ATTEMPTS_MAX, Attempt, Change, Task, TaskState
from mrstream.mapreduce.scheduler.workers import Worker


def register(state: State, event: WorkerRegistered) -> None:
    """Take in a worker, new or known, with what it brings."""
    worker = state.workers.by_id.get(event.worker_id)
    if worker is not None:
        _forget_what_is_missing(state, worker, event)
    if worker is None or _has_changed(worker, event):
        if worker is not None:
            leave(state, worker)
        worker = state.workers.add(event, state.now_s)
        for job in state.queue:
            job.pending_maps.learn_host(worker)
    worker.heard_at_s = state.now_s
    state.workers.set_draining(worker, False)
    for attempt_id in event.segments:
        _take_segment(state, worker, attempt_id)
    for attempt_id in event.running:
        known = state.attempts.get(attempt_id)
        if known is None:
            _adopt(state, worker, attempt_id)
        elif known.is_dying:  # the request to kill it may have been lost
            _drop(state, worker, attempt_id)
    for job in list(state.queue):
        for index in job.awaited.pop(worker.worker_id, ()):
            _lose_if_not_shown(state, job, job.maps.tasks[index], worker)
    state.freed[worker.worker_id] = worker


def leave(state: State, worker: Worker) -> None:
    """A worker is gone, and its disks with it (MapReduce §3.3)."""
    for attempt in list(worker.running.values()):
        _end(state, attempt)
    kept, worker.segments = worker.segments, {}
    for job_id, indexes in kept.items():
        for index in indexes:
            _lose(state, job_id, index, worker)
    state.workers.remove(worker)
    state.has_new_work = True


def lose_silent(state: State) -> None:
    """Lose the workers that were silent for too long, through no fault of the master's."""
    gap_s, state.ticked_at_s = state.now_s - state.ticked_at_s, state.now_s
    silence_s_max = state.limits.silence_s_max
    if silence_s_max <= 0:
        return
    if gap_s > state.limits.tick_gap_s_max:
        state.workers.forgive(gap_s, state.now_s)
    for worker in state.workers.silent_since(state.now_s - silence_s_max):
        reason = f"no heartbeat for {state.now_s - worker.heard_at_s:.1f} s"
        state.commands.append(LoseWorker(worker.worker_id, reason))
        leave(state, worker)


def restore(state: State, job: Job, event: JobRestored) -> None:
    """Bring back the commits of an unfinished job; segments wait for their workers."""
    for committed in event.committed:
        task = job.task(committed.attempt_id.task_id)
        task.change(Change.SUCCEEDED)
        task.winner_worker = committed.worker_id
        task.winner_number = committed.attempt_id.number
        job.phase(task.task_id.kind).committed += 1
        outputs.refresh_need(state, job, task)
        if job.has_final_output(task.task_id.kind):
            continue
        index = task.task_id.task_index
        job.awaited.setdefault(committed.worker_id, []).append(index)
    for task_id in event.abandoned:
        task = job.task(task_id)
        task.change(Change.FAILED_FOR_GOOD)
        job.phase(task_id.kind).abandoned += 1
        job.totals.abandoned_tasks += 1
        outputs.refresh_need(state, job, task)
    for attempt_id in event.let:
        job.task(attempt_id.task_id).let_number = attempt_id.number
    job.held_until_s = state.now_s + state.limits.restored_hold_s
    job.awaited_until_s = state.now_s + state.limits.restored_segments_wait_s
    if job.is_over:
        ending.finish_job(state, job, JobOutcome.SUCCEEDED)


def stop_awaiting(state: State, job: Job) -> None:
    """Give up on workers that did not come back after a restart."""
    awaited, job.awaited = job.awaited, {}
    for worker_id, indexes in awaited.items():
        for index in indexes:
            task = job.maps.tasks[index]
            if task.state is TaskState.COMMITTED and task.winner_worker == worker_id:
                outputs.lose_segment(state, job, task)


def _has_changed(worker: Worker, event: WorkerRegistered) -> bool:
    return (worker.host, worker.rack, worker.slots, worker.map_slots, worker.reduce_slots) != (
        event.host,
        event.rack,
        event.slots,
        event.map_slots,
        event.reduce_slots,
    )


def _forget_what_is_missing(state: State, worker: Worker, event: WorkerRegistered) -> None:
    running = dict.fromkeys(event.running)
    for attempt_id, attempt in list(worker.running.items()):
        if attempt_id not in running:
            _end(state, attempt)
    shown = dict.fromkeys(event.segments)
    for job_id, indexes in list(worker.segments.items()):
        job = state.jobs[job_id]
        gone = [index for index in indexes if not _is_shown(job.maps.tasks[index], shown)]
        for index in gone:
            del indexes[index]
            _lose(state, job_id, index, worker)


def _is_shown(task: Task, shown: dict[AttemptId, None]) -> bool:
    return AttemptId(task.task_id, task.winner_number) in shown


def _end(state: State, attempt: Attempt) -> None:
    job = state.jobs.get(attempt.attempt_id.task_id.job_id)
    if attempt.is_dying or job is None:
        slots.bury(state, attempt)
    else:
        attempts.kill_ended(state, job, attempt)


def _lose(state: State, job_id: JobId, index: int, worker: Worker) -> None:
    job = state.jobs.get(job_id)
    if job is None:
        return
    task = job.maps.tasks[index]
    if task.state is TaskState.COMMITTED and task.winner_worker == worker.worker_id:
        outputs.lose_segment(state, job, task)


def _lose_if_not_shown(state: State, job: Job, task: Task, worker: Worker) -> None:
    if task.state is not TaskState.COMMITTED or task.winner_worker != worker.worker_id:
        return
    if task.task_id.task_index not in worker.segments.get(job.job_id, ()):
        outputs.lose_segment(state, job, task)


def _take_segment(state: State, worker: Worker, attempt_id: AttemptId) -> None:
    """Use a segment that a worker holds, if its map has no better one."""
    job = state.jobs.get(attempt_id.task_id.job_id)
    task = _task(job, attempt_id)
    if job is None or task is None or job.has_final_output(task.task_id.kind):
        _drop(state, worker, attempt_id)
    elif task.state in (TaskState.IDLE, TaskState.RUNNING):
        live = state.attempts.get(attempt_id)
        if live is not None and not live.is_dying:
            attempts.succeed(state, job, live)
        else:
            attempts.commit(state, job, task, attempt_id, worker)
    elif (task.winner_worker, task.winner_number) != (worker.worker_id, attempt_id.number):
        _drop(state, worker, attempt_id)
    else:
        kept = worker.segments.setdefault(job.job_id, {})
        if task.task_id.task_index not in kept:
            kept[task.task_id.task_index] = None
            job.parked.pop(task.task_id.task_index, None)
            state.commands.append(PublishSegment(attempt_id, worker.worker_id))


def _adopt(state: State, worker: Worker, attempt_id: AttemptId) -> None:
    """Go on with an attempt that a worker runs, if there is still use for it."""
    job = state.jobs.get(attempt_id.task_id.job_id)
    task = _task(job, attempt_id)
    is_welcome = (
        job is not None
        and task is not None
        and not task.is_over
        and attempt_id.number not in task.failed_numbers
        and len(task.running) < RUNNING_ATTEMPTS_MAX
        and job.phase(attempt_id.task_id.kind).may_run_more()
    )
    if is_welcome:
        assert job is not None and task is not None
        is_backup = bool(task.running)
        attempt = Attempt(
            attempt_id, task, worker.worker_id, now_s=state.now_s, is_backup=is_backup
        )
        slots.attach(state, job, attempt, worker)
    else:
        # It holds its slot until it is gone, though its task is long over.
        ghost = Attempt(
            attempt_id, Task(attempt_id.task_id, None, 0), worker.worker_id, now_s=state.now_s
        )
        ghost.is_dying = True
        state.attempts[attempt_id] = ghost
        state.workers.occupy(worker, ghost)
        _drop(state, worker, attempt_id)


def _task(job: Job | None, attempt_id: AttemptId) -> Task | None:
    if job is None:
        return None
    tasks = job.phase(attempt_id.task_id.kind).tasks
    index = attempt_id.task_id.task_index
    return tasks[index] if index < len(tasks) else None


def _drop(state: State, worker: Worker, attempt_id: AttemptId) -> None:
    kind = "map" if attempt_id.task_id.kind is TaskKind.MAP else "reduce"
    state.commands.append(
        KillAttempt(attempt_id, worker.worker_id, f"nobody waits for this {kind} any more")
    )
