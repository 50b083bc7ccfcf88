"""How tasks and jobs end: what the end of a task allows, and when a job is over.

Never starts anything; the freed slots and the new work are found by `assignment`.
"""

from __future__ import annotations

from mrstream.mapreduce.scheduler import outputs, slots
from mrstream.mapreduce.scheduler.commands import AbandonTask, FinishJob, JobOutcome
from mrstream.mapreduce.scheduler.ids import AttemptId, TaskKind
from mrstream.mapreduce.scheduler.phases import Job
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.task import Change, Task

# So many ended jobs can still be asked about.
ENDED_JOBS_REMEMBERED_MAX = 256


def task_is_over(state: State, job: Job, task: Task) -> None:
    """See what the end of a task allows: reduces, or the end of the job."""
    if task.task_id.kind is TaskKind.MAP:
        done = job.maps.committed + job.maps.abandoned
        if done == job.slowstart_count:
            state.has_new_work = True
        if job.maps.is_over:
            job.maps_over_at_s = state.now_s
            state.has_new_work = True
    else:
        outputs.refresh_need(state, job, task)
    if job.is_over and job.failure is None:
        finish_job(state, job, JobOutcome.SUCCEEDED)
    elif job.is_over and job.failure is not None:
        _fail_job(state, job, *job.failure)


def give_up_if_hopeless(
    state: State, job: Job, task: Task, culprit: AttemptId, reason: str
) -> bool:
    """Abandon a task that has used up its failures; end the job if that is one too many."""
    phase = job.phase(task.task_id.kind)
    if len(task.failed_on) < phase.attempts_max:
        return False
    for other in task.running:
        slots.doom(state, job, other, "its task has failed too often")
    if task.pending_key >= 0:
        job.pending_maps.remove(task)
    task.change(Change.FAILED_FOR_GOOD)
    phase.abandoned += 1
    job.totals.abandoned_tasks += 1
    kind = task.task_id.kind
    if phase.abandoned > job.failures_allowed(kind):
        if not (job.settings.outlives_failure and job.has_final_output(kind)):
            _fail_job(state, job, reason, culprit)
            return True
        job.failure = job.failure or (reason, culprit)
    state.commands.append(AbandonTask(task.task_id, reason))
    task_is_over(state, job, task)
    return True


def _fail_job(state: State, job: Job, reason: str, culprit: AttemptId) -> None:
    """End a job for a task: said in the words of Hadoop's client on a cluster (spec 8.3), by which
    scripts find the task, and then in the task's own."""
    why = (
        f"Task failed {culprit.task_id}\n"
        f"Job failed as tasks failed. failedMaps:{job.maps.abandoned} "
        f"failedReduces:{job.reduces.abandoned} killedMaps:0 killedReduces: 0\n"
        f"The last failure of the task: {reason}"
    )
    finish_job(state, job, JobOutcome.FAILED, why, culprit)


def finish_job(
    state: State,
    job: Job,
    outcome: JobOutcome,
    reason: str = "",
    culprit: AttemptId | None = None,
) -> None:
    """End a job: kill what runs, forget it, say so."""
    for phase in (job.maps, job.reduces):
        for attempt in list(phase.running.values()):
            slots.doom(state, job, attempt, f"the job has {outcome.value}")
    del state.jobs[job.job_id]
    state.queue.remove(job)
    state.ended[job.job_id] = job.view(), job.totals
    if len(state.ended) > ENDED_JOBS_REMEMBERED_MAX:
        del state.ended[next(iter(state.ended))]
    state.has_new_work = True
    for worker in state.workers.by_id.values():
        worker.segments.pop(job.job_id, None)
        if outcome is JobOutcome.FAILED and job.job_id in worker.failures_in_a_row:
            # A job that fails everywhere says nothing about this worker.
            others = [other for other in worker.failures_in_a_row if other != job.job_id]
            worker.failures_in_a_row = others
            if worker.quarantined_until_s is not None and not others:
                worker.quarantined_until_s = state.now_s
    state.commands.append(FinishJob(job.job_id, outcome, reason, culprit))
