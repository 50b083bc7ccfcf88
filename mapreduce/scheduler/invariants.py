"""What must hold between any two events; the simulator and the tests check it.

Takes the whole state and raises AssertionError naming the invariant (S1…S5) that is
broken. Walks over everything, so it is not for every event of a large cluster.
"""

from __future__ import annotations

from mrstream.mapreduce.scheduler.ids import AttemptId, TaskKind
from mrstream.mapreduce.scheduler.phases import Job, Phase
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.task import RUNNING_ATTEMPTS_MAX, Task, TaskState


def check(state: State) -> None:
    _check_workers(state)
    assert [job.job_id for job in state.queue] == [
        job.job_id for job in sorted(state.jobs.values(), key=Job.order)
    ], "the queue is not in order"
    for job in state.queue:
        _check_job(state, job)
    for attempt_id, attempt in state.attempts.items():
        worker = state.workers.by_id.get(attempt.worker_id)
        assert worker is not None, f"{attempt_id} runs on {attempt.worker_id}, which is gone"
        assert worker.running.get(attempt_id) is attempt, f"{attempt_id} holds no slot"


def _check_workers(state: State) -> None:
    workers = state.workers
    for worker in workers.by_id.values():
        name = worker.worker_id
        assert len(worker.running) <= worker.slots, f"S5: {name} runs more than its slots"
        assert worker.running_maps <= worker.map_slots, f"S5: {name} runs too many maps"
        assert worker.running_reduces <= worker.reduce_slots, f"S5: {name} runs too many reduces"
        for attempt_id in worker.running:
            assert attempt_id in state.attempts, f"{name} runs {attempt_id}, which is unknown"
        assert (name in workers.free_for_map) == worker.has_room(TaskKind.MAP), name
        assert (name in workers.free_for_reduce) == worker.has_room(TaskKind.REDUCE), name
    assert workers.trusted_count == sum(w.is_trusted for w in workers.by_id.values())
    assert workers.slots_total == sum(w.slots for w in workers.by_id.values())
    assert workers.running_maps == sum(w.running_maps for w in workers.by_id.values())


def _check_job(state: State, job: Job) -> None:
    for phase in (job.maps, job.reduces):
        _check_phase(state, job, phase)
    maps, reduces = job.maps.tasks, job.reduces.tasks
    idle_maps = sum(task.state is TaskState.IDLE for task in maps)
    assert job.pending_maps.count == idle_maps, f"{job.job_id}: idle maps are not all queued"
    idle_reduces = sum(task.state is TaskState.IDLE for task in reduces)
    assert job.pending_reduce_count == idle_reduces, f"{job.job_id}: idle reduces not queued"
    queued = dict.fromkeys(job.pending_reduces)
    for task in reduces:
        if task.state is TaskState.IDLE:
            assert task.task_id.task_index in queued, f"{task.task_id} is idle and not queued"
    for task in reduces:
        has_all = any(attempt.is_shuffled for attempt in task.running)
        needs = not task.is_over and not has_all
        assert task.needs_segments == needs, f"S3: {task.task_id} needs segments: {needs}"
    assert job.reduces_in_need == sum(task.needs_segments for task in reduces)
    assert not (job.reduces_in_need and job.parked), f"S3: {job.job_id} parks maps in need"
    _check_segments(state, job)


def _check_phase(state: State, job: Job, phase: Phase) -> None:
    committed = abandoned = 0
    for task in phase.tasks:
        committed += task.state is TaskState.COMMITTED
        abandoned += task.state is TaskState.ABANDONED
        _check_task(state, phase, task)
    assert phase.committed == committed, f"{job.job_id}: {phase.committed} is not {committed}"
    assert phase.abandoned == abandoned
    limit = phase.running_max
    assert limit <= 0 or len(phase.running) <= limit, f"{job.job_id} runs more than {limit}"


def _check_task(state: State, phase: Phase, task: Task) -> None:
    name = task.task_id
    is_running = task.state is TaskState.RUNNING
    assert bool(task.running) == is_running, f"{name} is {task.state.name} with {task.running}"
    assert len(task.running) <= RUNNING_ATTEMPTS_MAX, f"S4: {name} runs {len(task.running)} times"
    assert len(task.failed_on) <= phase.attempts_max, f"S4: {name} failed too often"
    has_winner = task.winner_worker is not None
    assert has_winner == (task.state is TaskState.COMMITTED), f"S1: {name} has no single winner"
    granted = task.granted
    assert granted is None or granted in task.running, f"S1: {name} granted to a ghost"
    is_last = granted is None or granted.attempt_id.number == task.let_number
    assert is_last, f"S1: {name} granted, and {task.let_number} was let later"
    for attempt in task.running:
        assert state.attempts.get(attempt.attempt_id) is attempt
        assert phase.running.get(attempt.attempt_id) is attempt
        assert not attempt.is_dying


def _check_segments(state: State, job: Job) -> None:
    """S2: each committed map's segment is where we say, or known to be gone and not needed."""
    if not job.reduces.tasks:
        return
    awaited = {index for indexes in job.awaited.values() for index in indexes}
    for task in job.maps.tasks:
        if task.state is not TaskState.COMMITTED:
            continue
        index = task.task_id.task_index
        if index in job.parked or index in awaited:
            continue
        assert task.winner_worker is not None
        worker = state.workers.by_id.get(task.winner_worker)
        assert worker is not None, f"S2: {AttemptId(task.task_id, task.winner_number)} is lost"
        assert index in worker.segments.get(job.job_id, ()), f"S2: {task.task_id} is nowhere"
