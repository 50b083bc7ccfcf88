"""What the master keeps of all jobs beside the brain: their ledgers, and the notice board.

Takes what was decided before it is carried out, and gives what the journal must hold of a result.
Jobs that ended not long ago can still be asked about. Does no IO, reads no clock, decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.master.duties import end_of
from mrstream.mapreduce.master.job_journal import OpenJob
from mrstream.mapreduce.master.job_ledger import JobLedger
from mrstream.mapreduce.notices import Notices
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
from mrstream.mapreduce.scheduler.events import Event, Tick
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    JobId,
    WorkerId,
    parse_attempt_id,
    parse_task_id,
)
from mrstream.mapreduce.scheduler.phases import JobTotals, JobView
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from mrstream.mapreduce.snapshot import PRIORITY_NAMES, JobRow

RECENT_JOBS_MAX = 50


class JobBooks:
    """The ledgers of jobs, and what watchers see; the `Books` of `duties`."""

    def __init__(self, brain: Scheduler) -> None:
        self._brain = brain
        self.notices = Notices(self.view_of)
        self.jobs: dict[JobId, JobLedger] = {}
        """Jobs that are not closed."""
        self._recent: dict[JobId, JobLedger] = {}

    def view_of(self, job_id: JobId) -> JobView | None:
        """Say how far a job is, or was; None if it was decided in a life before."""
        known = self._brain.known(job_id)
        return known[0] if known else None

    def totals(self, job_id: JobId) -> JobTotals | None:
        """Say what was started for a job; None if it was decided in a life before."""
        known = self._brain.known(job_id)
        return known[1] if known else None

    def ledger(self, job_id: str) -> JobLedger | None:
        """Return a job that runs, or ended not long ago."""
        return self.jobs.get(JobId(job_id)) or self._recent.get(JobId(job_id))

    def admit(self, ledger: JobLedger) -> None:
        """A job is accepted."""
        self.jobs[ledger.job_id] = ledger
        self.notices.job_submitted(
            JobRow(
                ledger.job_id,
                ledger.name,
                ledger.spec.user,
                submitted_at_s=ledger.submitted_at_s,
                maps=len(ledger.spec.splits),
                reduces=ledger.spec.reduces,
                priority=PRIORITY_NAMES[ledger.settings.priority],
                output=ledger.spec.output or "",
            ),
            ledger.tally,
        )

    def restore(self, ledger: JobLedger, known: OpenJob, wall_s: float) -> None:
        """Enter what a life before knew of a job that was admitted just now."""
        seen: list[Command] = []
        for record in known.committed.values():
            attempt_id = parse_attempt_id(record.attempt_id)
            ledger.tally.restore(attempt_id, record.done, record.seconds)
            ledger.workers[record.worker_id] = None
            seen.append(RecordCommit(attempt_id, WorkerId(record.worker_id)))
        for task_id in map(parse_task_id, known.abandoned):
            ledger.abandon(task_id)
            seen.append(AbandonTask(task_id, "before the master's restart"))
        if known.decided is not None:
            seen.append(end_of(known.decided))
        self.notices.observe(Tick(), seen, wall_s)

    def retire(self, ledger: JobLedger) -> None:
        """A job is closed; it can be asked about for a while."""
        del self.jobs[ledger.job_id]
        self._recent[ledger.job_id] = ledger
        if len(self._recent) > RECENT_JOBS_MAX:
            del self._recent[next(iter(self._recent))]

    # --- what was decided, before it is carried out

    def take_down(self, event: Event, commands: Sequence[Command], wall_s: float) -> None:
        """Take note of an event and of what was decided on it."""
        self.notices.observe(event, commands, wall_s)
        for command in commands:
            match command:
                case StartAttempt(attempt_id=attempt_id, worker_id=worker_id):
                    self.job_of(attempt_id).workers[worker_id] = None
                case RecordCommit(attempt_id=attempt_id, worker_id=worker_id):
                    # Of an attempt that a life of the master before started, too.
                    self.job_of(attempt_id).workers[worker_id] = None
                case LoseWorker(worker_id=worker_id):
                    for ledger in self.jobs.values():
                        ledger.worker_deaths += worker_id in ledger.workers
                case KillAttempt() | GrantCommit() | AbandonTask() | FinishJob():
                    pass
                case PublishSegment() | WithdrawSegment() | QuarantineWorker() | ReleaseWorker():
                    pass
                case _:
                    assert_never(command)

    def result(self, attempt_id: AttemptId) -> tuple[Done, float]:
        """Return what the attempt that committed its task reported, and the seconds it took."""
        result = self.job_of(attempt_id).tally.results[attempt_id.task_id]
        assert result.attempt_id == str(attempt_id), f"{result.attempt_id} is not {attempt_id}"
        return result.done, result.seconds

    def job_of(self, attempt_id: AttemptId) -> JobLedger:
        """Return the ledger of an attempt's job, which is not closed."""
        return self.jobs[attempt_id.task_id.job_id]
