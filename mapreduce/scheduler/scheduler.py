"""The scheduler: which attempt runs where, and what becomes of it. The brain of the master.

One door: `handle(event, now_s)` gives commands. The modules of this package each hold a
part of the decisions; this one knows which event leads to which. Never does any IO, never
reads a clock, a file or chance: same events, same commands (S6).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from mrstream.mapreduce.scheduler import (
    assignment,
    attempts,
    backup,
    ending,
    invariants,
    outputs,
    registration,
    slots,
)
from mrstream.mapreduce.scheduler.commands import Command, JobOutcome, KillAttempt, ReleaseWorker
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptProgress,
    AttemptSucceeded,
    CommitRequested,
    Event,
    FailAttemptRequested,
    FetchFailed,
    JobKilled,
    JobPrioritySet,
    JobRestored,
    JobSubmitted,
    KillAttemptRequested,
    OutputLost,
    ShuffleFinished,
    Tick,
    WorkerDraining,
    WorkerHeard,
    WorkerLost,
    WorkerRegistered,
    WorkerResumed,
)
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, TaskId, WorkerId
from mrstream.mapreduce.scheduler.limits import SchedulerLimits
from mrstream.mapreduce.scheduler.phases import Job, JobTotals, JobView
from mrstream.mapreduce.scheduler.state import State
from mrstream.mapreduce.scheduler.story import REMEMBERED_MAX, Story
from mrstream.mapreduce.scheduler.task import Attempt, ForbiddenChange, Task, TaskState


class Scheduler:
    """Decides what runs where. Holds all state of running jobs; ended jobs are forgotten."""

    def __init__(
        self, limits: SchedulerLimits | None = None, *, remembered_max: int = REMEMBERED_MAX
    ) -> None:
        self._state = State(limits or SchedulerLimits())
        self._story = Story(remembered_max)
        self._jobs_seen = 0
        self._backups_at_s = 0.0
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            JobSubmitted: self._job_submitted,
            JobRestored: self._job_restored,
            JobKilled: self._job_killed,
            JobPrioritySet: self._job_priority_set,
            WorkerRegistered: self._worker_registered,
            WorkerHeard: self._worker_heard,
            WorkerLost: self._worker_lost,
            WorkerDraining: self._worker_draining,
            WorkerResumed: self._worker_resumed,
            AttemptProgress: self._attempt_progress,
            ShuffleFinished: self._shuffle_finished,
            CommitRequested: self._commit_requested,
            AttemptSucceeded: self._attempt_succeeded,
            AttemptFailed: self._attempt_failed,
            AttemptKilled: self._attempt_killed,
            KillAttemptRequested: self._kill_attempt_requested,
            FailAttemptRequested: self._fail_attempt_requested,
            FetchFailed: self._fetch_failed,
            OutputLost: self._output_lost,
            Tick: self._tick,
        }

    # --- the door, and what may be looked at

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """Take one event at the moment `now_s` (never earlier than the last), give commands."""
        state = self._state
        assert now_s >= state.now_s, f"time went back from {state.now_s} to {now_s}"
        state.now_s = now_s
        try:
            self._handlers[type(event)](event)
            assignment.fill_slots(state)
        except ForbiddenChange as error:
            self._story.add(now_s, event, state.commands)
            raise ForbiddenChange(
                error.task_id, "\n".join([str(error), *self.story(error.task_id)])
            ) from error
        commands = state.forget_event()
        self._story.add(now_s, event, commands)
        return commands

    @property
    def wake_at_s(self) -> float | None:
        """When a Tick would let waiting tasks start, or None if only other events can.

        Timeouts, silence, quarantines and backups are found by the Tick of each second.
        """
        state = self._state
        wakes = [
            at_s
            for job in state.queue
            if job.has_pending()
            for at_s in (job.held_until_s, job.pending_maps.wait_ends_at_s(state.now_s))
            if at_s is not None and at_s > state.now_s
        ]
        return min(wakes, default=None)

    def jobs(self) -> list[JobView]:
        """Show the jobs that have not ended, in the order in which they get slots."""
        return [job.view() for job in self._state.queue]

    def job(self, job_id: JobId) -> JobView | None:
        """Show one job, unless it has ended."""
        job = self._state.jobs.get(job_id)
        return job.view() if job else None

    def known(self, job_id: JobId) -> tuple[JobView, JobTotals] | None:
        """Show one job and its totals, also if it ended not long ago; None if it is not known."""
        job = self._state.jobs.get(job_id)
        return (job.view(), job.totals) if job else self._state.ended.get(job_id)

    def totals(self, job_id: JobId) -> JobTotals:
        """The totals of a job, live while it runs; also of jobs that ended not long ago."""
        known = self.known(job_id)
        assert known is not None, f"{job_id} is not known"
        return known[1]

    def knows(self, worker_id: WorkerId) -> bool:
        """Whether a worker has registered and was not lost since."""
        return worker_id in self._state.workers.by_id

    def holds(self, attempt_id: AttemptId) -> bool:
        """Whether an attempt has a slot of a worker, a dying one too."""
        return attempt_id in self._state.attempts

    def may_commit(self, attempt_id: AttemptId) -> bool:
        """Whether an attempt, and no other of its task, may make its output visible."""
        attempt = self._state.attempts.get(attempt_id)
        return attempt is not None and attempt.task.granted is attempt

    def running_on(self, worker_id: WorkerId) -> list[AttemptId]:
        """Attempts that hold a slot of a worker, dying ones too."""
        worker = self._state.workers.by_id.get(worker_id)
        return list(worker.running) if worker else []

    def story(self, task_id: TaskId) -> list[str]:
        """Tell the life of one task, a line for each event and command that names it."""
        return self._story.of_task(task_id)

    def check_invariants(self) -> None:
        """Check everything that must always hold; walks over all tasks."""
        invariants.check(self._state)

    # --- jobs

    def _job_submitted(self, event: JobSubmitted) -> None:
        job = self._new_job(event, attempt_number_first=0)
        job.start_queues(self._state.workers)
        self._enqueue(job)
        if job.is_over:
            ending.finish_job(self._state, job, JobOutcome.SUCCEEDED)

    def _job_restored(self, event: JobRestored) -> None:
        job = self._new_job(event, attempt_number_first=event.attempt_number_first)
        self._enqueue(job)
        registration.restore(self._state, job, event)
        job.start_queues(self._state.workers)

    def _new_job(self, event: JobSubmitted | JobRestored, *, attempt_number_first: int) -> Job:
        assert event.job_id not in self._state.jobs, f"{event.job_id} was submitted twice"
        self._jobs_seen += 1
        return Job(
            event.job_id,
            event.maps,
            event.reduces,
            event.settings,
            number=self._jobs_seen,
            now_s=self._state.now_s,
            attempt_number_first=attempt_number_first,
        )

    def _enqueue(self, job: Job) -> None:
        self._state.jobs[job.job_id] = job
        insort(self._state.queue, job, key=Job.order)
        self._state.has_new_work = True

    def _job_killed(self, event: JobKilled) -> None:
        job = self._state.jobs.get(event.job_id)
        if job is not None:
            ending.finish_job(self._state, job, event.outcome, event.reason)

    def _job_priority_set(self, event: JobPrioritySet) -> None:
        job = self._state.jobs.get(event.job_id)
        if job is not None:
            self._state.queue.remove(job)
            job.set_priority(event.priority)
            insort(self._state.queue, job, key=Job.order)

    # --- workers

    def _worker_registered(self, event: WorkerRegistered) -> None:
        registration.register(self._state, event)

    def _worker_heard(self, event: WorkerHeard) -> None:
        worker = self._state.workers.by_id.get(event.worker_id)
        if worker is not None:
            worker.heard_at_s = self._state.now_s

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self._state.workers.by_id.get(event.worker_id)
        if worker is not None:
            registration.leave(self._state, worker)

    def _worker_draining(self, event: WorkerDraining) -> None:
        worker = self._state.workers.by_id.get(event.worker_id)
        if worker is not None:
            self._state.workers.set_draining(worker, True)

    def _worker_resumed(self, event: WorkerResumed) -> None:
        worker = self._state.workers.by_id.get(event.worker_id)
        if worker is not None:
            self._state.workers.set_draining(worker, False)
            self._state.has_new_work = True

    # --- attempts

    def _attempt_progress(self, event: AttemptProgress) -> None:
        job, attempt = self._live(event.attempt_id)
        if job is not None and attempt is not None:
            pace = job.pace_of(attempt)
            pace.hear(attempt, event.progress, job.began_at_s(attempt), self._state.now_s)

    def _shuffle_finished(self, event: ShuffleFinished) -> None:
        job, attempt = self._live(event.attempt_id)
        if job is not None and attempt is not None:
            attempt.is_shuffled = True
            attempt.heard_at_s = self._state.now_s
            outputs.refresh_need(self._state, job, attempt.task)

    def _commit_requested(self, event: CommitRequested) -> None:
        _, attempt = self._live(event.attempt_id)
        if attempt is not None:
            attempts.request_commit(self._state, attempt)
        else:
            self._repeat_kill(event.attempt_id)

    def _attempt_succeeded(self, event: AttemptSucceeded) -> None:
        job, attempt = self._live(event.attempt_id)
        if job is not None and attempt is not None:
            attempts.succeed(self._state, job, attempt)
        else:
            self._bury(event.attempt_id)

    def _attempt_failed(self, event: AttemptFailed) -> None:
        job, attempt = self._live(event.attempt_id)
        if job is not None and attempt is not None:
            attempts.fail(self._state, job, attempt, event.reason)
        else:
            self._bury(event.attempt_id)

    def _attempt_killed(self, event: AttemptKilled) -> None:
        job, attempt = self._live(event.attempt_id)
        if job is not None and attempt is not None:
            attempts.kill_ended(self._state, job, attempt)
        else:
            self._bury(event.attempt_id)

    def _kill_attempt_requested(self, event: KillAttemptRequested) -> None:
        job, attempt = self._live(event.attempt_id)
        if job is not None and attempt is not None:
            attempts.kill_running(self._state, job, attempt, "killed on request")

    def _fail_attempt_requested(self, event: FailAttemptRequested) -> None:
        job, attempt = self._live(event.attempt_id)
        if job is not None and attempt is not None:
            attempts.fail_running(self._state, job, attempt, "failed on request")

    def _live(self, attempt_id: AttemptId) -> tuple[Job | None, Attempt | None]:
        """Find a running attempt that still matters, and its job."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is None or attempt.is_dying:
            return None, None
        return self._state.jobs[attempt_id.task_id.job_id], attempt

    def _bury(self, attempt_id: AttemptId) -> None:
        attempt = self._state.attempts.get(attempt_id)
        if attempt is not None:
            slots.bury(self._state, attempt)

    def _repeat_kill(self, attempt_id: AttemptId) -> None:
        """A doomed attempt asks for something: the request to kill it may have been lost."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is not None:
            command = KillAttempt(attempt_id, attempt.worker_id, "its task no longer needs it")
            self._state.commands.append(command)

    # --- segments

    def _fetch_failed(self, event: FetchFailed) -> None:
        job, task = self._winning_map(event.map_attempt_id)
        if job is None or task is None:
            return
        if not self._is_heard_since(task.winner_worker, task.fetch_failed_at_s):
            return
        task.fetch_failures += 1
        task.fetch_failed_at_s = self._state.now_s
        if task.fetch_failures >= self._state.limits.fetch_failures_max:
            reason = f"{task.fetch_failures} failed fetches of its output"
            attempts.blame_output(self._state, job, task, reason)

    def _is_heard_since(self, worker_id: WorkerId | None, moment_s: float) -> bool:
        """Whether a worker speaks though nobody can fetch from it; one that is silent may be
        starting again, and is lost with all that it holds when it stays so."""
        if self._state.limits.silence_s_max <= 0 or worker_id is None:
            return True
        worker = self._state.workers.by_id.get(worker_id)
        return worker is not None and worker.heard_at_s > moment_s

    def _output_lost(self, event: OutputLost) -> None:
        job, task = self._winning_map(event.map_attempt_id)
        if job is not None and task is not None:
            attempts.blame_output(self._state, job, task, event.reason)

    def _winning_map(self, attempt_id: AttemptId) -> tuple[Job | None, Task | None]:
        """Find the committed map that a report is about; reports about the past find none."""
        job = self._state.jobs.get(attempt_id.task_id.job_id)
        if job is None:
            return None, None
        task = job.task(attempt_id.task_id)
        is_current = (
            task.state is TaskState.COMMITTED
            and task.winner_number == attempt_id.number
            and attempt_id.task_id.task_index not in job.parked
        )
        return (job, task) if is_current else (None, None)

    # --- time

    def _tick(self, event: Tick) -> None:
        state = self._state
        registration.lose_silent(state)
        self._expire_attempts()
        for worker in list(state.workers.by_id.values()):
            until_s = worker.quarantined_until_s
            if until_s is not None and until_s <= state.now_s:
                state.workers.release(worker)
                state.commands.append(ReleaseWorker(worker.worker_id))
        for job in list(state.queue):
            if job.awaited and job.awaited_until_s <= state.now_s:
                registration.stop_awaiting(state, job)
        state.has_new_work = any(job.has_pending() for job in state.queue)
        if state.now_s >= self._backups_at_s:
            self._backups_at_s = state.now_s + state.limits.backup_interval_s
            # Idle tasks come before second copies of running ones.
            assignment.fill_slots(state)
            for job in state.queue:
                backup.start_backups(state, job)

    def _expire_attempts(self) -> None:
        state = self._state
        while state.timeouts and state.timeouts[0][0] <= state.now_s:
            _, number, attempt = heappop(state.timeouts)
            job, live = self._live(attempt.attempt_id)
            if job is None or live is not attempt:
                continue
            timeout_s = job.settings.task_timeout_s
            expires_at_s = attempt.heard_at_s + timeout_s
            if expires_at_s > state.now_s:
                heappush(state.timeouts, (expires_at_s, number, attempt))
            else:
                reason = f"no news for {timeout_s:g} s"
                attempts.fail_running(state, job, attempt, reason)
