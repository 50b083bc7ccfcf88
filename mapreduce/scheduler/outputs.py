"""Segments of committed maps: who still needs them, and what their loss means.

S3: the loss of a segment un-commits its map only while a reduce may still fetch it
(MapReduce §3.3); otherwise the map is parked, and un-committed when a reduce is in
need again. Never touches a reduce's output: that lies in the dfs.
"""

from __future__ import annotations

from mrstream.mapreduce.scheduler.commands import WithdrawSegment
from mrstream.mapreduce.scheduler.ids import TaskKind
from mrstream.mapreduce.scheduler.phases import Job
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.task import Change, Task, TaskState


def lose_segment(state: State, job: Job, task: Task) -> None:
    """The segment of a committed map is gone: run the map again if a reduce needs it."""
    assert task.state is TaskState.COMMITTED and task.winner_worker is not None
    if task.task_id.task_index in job.parked:
        return
    state.commands.append(WithdrawSegment(task.winner(), task.winner_worker))
    if job.reduces_in_need > 0:
        uncommit(state, job, task)
    else:
        job.parked[task.task_id.task_index] = None


def uncommit(state: State, job: Job, task: Task) -> None:
    """Send a committed map back to idle."""
    task.change(Change.OUTPUT_LOST)
    task.winner_worker = None
    task.winner_number = -1
    task.fetch_failures = 0
    job.maps.committed -= 1
    job.totals.rerun_maps += 1
    requeue(state, job, task)


def requeue(state: State, job: Job, task: Task) -> None:
    """Put an idle task back to where slots look for work."""
    state.has_new_work = True
    if task.task_id.kind is TaskKind.MAP:
        job.pending_maps.add_again(task, state.workers)
        assert task.spec is not None, "maps have a spec"
        state.wanted_hosts.extend(task.spec.hosts)
    else:
        job.add_pending_reduce(task)


def refresh_need(state: State, job: Job, task: Task) -> None:
    """Bring up to date whether a reduce may still fetch, and un-park maps if one must."""
    if task.task_id.kind is TaskKind.MAP:
        return
    needs = not task.is_over and not any(attempt.is_shuffled for attempt in task.running)
    if needs == task.needs_segments:
        return
    task.needs_segments = needs
    job.reduces_in_need += 1 if needs else -1
    if job.reduces_in_need and job.parked:
        parked, job.parked = job.parked, {}
        for index in parked:
            uncommit(state, job, job.maps.tasks[index])
