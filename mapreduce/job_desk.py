"""Where jobs come in and go out: submission, restoration, the end of a job, requests about jobs.

Takes what clients ask; a job is accepted once that is durable, and closed once its output is final
and its report written. The dfs is touched in threads only. Never decides what runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from cluster.config import ClusterConfig
from cluster.errors import ClusterError, UserError
from cluster.extras import require_of_cluster
from cluster.network import Handler, Peer
from mapreduce.attempt_report import Failure
from mapreduce.duties import Duties
from mapreduce.job_history import JobHistory
from mapreduce.job_journal import JobAccepted, JobClosed, OpenJob, PriorityChanged
from mapreduce.job_ledger import JobLedger, Result
from mapreduce.job_output import clear_leftovers
from mapreduce.protocol import ForgetJob, JobEnd, KillJob, SetPriority, StopAttempt, SubmitJob
from mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    JobOutcome,
    RecordCommit,
)
from mapreduce.scheduler.events import (
    CommittedTask,
    FailAttemptRequested,
    JobKilled,
    JobPrioritySet,
    JobRestored,
    JobSubmitted,
    KillAttemptRequested,
    Tick,
)
from mapreduce.scheduler.ids import (
    AttemptId,
    JobId,
    WorkerId,
    parse_attempt_id,
    parse_task_id,
)
from mapreduce.scheduler.phases import JobTotals
from mapreduce.snapshot import PRIORITY_NAMES, JobRow, JobSeen

log = logging.getLogger(__name__)

LIFE_ATTEMPTS: Final = 1000
"""Attempts of one life of the master are numbered from here times the life on."""
CLEAR_EVERY_S: Final = 600.0


class JobDesk:
    """Jobs, from their submission to their report."""

    def __init__(self, duties: Duties, history: JobHistory, config: ClusterConfig) -> None:
        self._duties = duties
        self._history = history
        self._config = config
        self._submissions: dict[str, JobId] = {}
        self._jobs_count = 0
        self._clear_at_s = duties.clock.now_s() + CLEAR_EVERY_S
        self._started_ms = int(duties.clock.wall_s() * 1000)
        duties.on_finish = self._finish
        self.handlers: Mapping[type[Any], Handler] = {
            SubmitJob: self._submit,
            KillJob: self._kill_job,
            SetPriority: self._set_priority,
            StopAttempt: self._stop_attempt,
        }

    # --- coming in

    async def _submit(self, request: SubmitJob, peer: Peer) -> str:
        duties = self._duties
        known = self._submissions.get(request.submission)
        if known is not None:
            return known
        self._jobs_count += 1
        job_id = JobId(f"job_{self._started_ms}_{self._jobs_count:04d}")
        self._submissions[request.submission] = job_id
        record = JobAccepted(
            job_id, request.submission, request.spec, request.file_count,
            request.is_output_temporary, duties.clock.wall_s(),
        )  # fmt: skip
        try:
            ledger = self._ledger_of(record)
            # Its client has seen to this by its own cluster file, which may be another than ours.
            require_of_cluster(
                ledger.spec.extras, self._config.extras, self._config.name, "this job"
            )
            await duties.in_thread(ledger.output.check)
            # Accepted first, made then: a client whose answer was lost with a master asks the next
            # one again, which must not find the directory and refuse.
            duties.append(record)
            await duties.when_durable()
        except BaseException:
            del self._submissions[request.submission]
            raise
        try:
            await duties.in_thread(ledger.output.set_up)
        except (UserError, OSError):
            duties.append(JobClosed(job_id))
            del self._submissions[request.submission]
            raise
        self._admit(ledger)
        log.info("job=%s user=%s maps=%d reduces=%d submitted", job_id, ledger.spec.user,
                 len(ledger.spec.splits), ledger.spec.reduces)  # fmt: skip
        if not len(duties.links):
            ledger.say("WARN", "no worker is connected: the job waits for one")
        duties.event(JobSubmitted(job_id, ledger.map_specs(), ledger.spec.reduces, ledger.settings))
        return job_id

    def _ledger_of(self, record: JobAccepted) -> JobLedger:
        return JobLedger(
            JobId(record.job_id),
            record.spec,
            record.submitted_at_s,
            f"dfs://{self._config.name}/",
            is_output_temporary=record.is_output_temporary,
        )

    def _admit(self, ledger: JobLedger) -> None:
        self._duties.jobs[ledger.job_id] = ledger
        self._duties.notices.job_submitted(
            JobRow(
                ledger.job_id,
                ledger.name,
                ledger.spec.user,
                submitted_at_s=ledger.submitted_at_s,
                maps=len(ledger.spec.splits),
                reduces=ledger.spec.reduces,
                priority=PRIORITY_NAMES[ledger.settings.priority],
                output=ledger.spec.output or "",
            )
        )

    def restore(self, known: OpenJob, life: int) -> None:
        """Go on with a job that a life before had not closed."""
        duties = self._duties
        ledger = self._ledger_of(known.accepted)
        self._submissions[known.accepted.submission] = ledger.job_id
        self._admit(ledger)
        commits = [
            (parse_attempt_id(record.attempt_id), record) for record in known.committed.values()
        ]
        for attempt_id, record in commits:
            result = Result(record.attempt_id, record.done, record.seconds)
            ledger.put_result(attempt_id.task_id, result)
            ledger.workers[record.worker_id] = None
        abandoned = tuple(parse_task_id(task_id) for task_id in known.abandoned)
        for task_id in abandoned:
            ledger.abandon(task_id)
        seen: list[Command] = [RecordCommit(a, WorkerId(r.worker_id)) for a, r in commits]
        seen += [AbandonTask(task_id, "before the master's restart") for task_id in abandoned]
        log.info("job=%s restored commits=%d", ledger.job_id, len(commits))
        if known.decided is not None:
            outcome = JobOutcome(known.decided.outcome)
            seen.append(FinishJob(ledger.job_id, outcome, known.decided.reason))
        duties.notices.observe(Tick(), seen, duties.clock.wall_s())
        if known.decided is not None:
            duties.spawn(self._close(ledger, outcome, known.decided.reason))
            return
        duties.event(
            JobRestored(
                ledger.job_id,
                ledger.map_specs(),
                ledger.spec.reduces,
                ledger.settings,
                tuple(CommittedTask(a, WorkerId(r.worker_id)) for a, r in commits),
                LIFE_ATTEMPTS * (life - 1),
                abandoned,
            )
        )
        if known.priority is not None:
            duties.event(JobPrioritySet(ledger.job_id, known.priority))

    # --- going out

    def _finish(self, finish: FinishJob) -> None:
        ledger = self._duties.jobs[finish.job_id]
        self._duties.spawn(self._close(ledger, finish.outcome, finish.reason))

    async def _close(self, ledger: JobLedger, outcome: JobOutcome, reason: str) -> None:
        """Make the output final or clear it, write the report, then tell everybody."""
        duties = self._duties
        try:
            await self._settle_output(ledger, outcome)
        except (UserError, OSError) as error:
            log.error("job=%s output: %s", ledger.job_id, error)
            if outcome is JobOutcome.SUCCEEDED:
                outcome, reason = JobOutcome.FAILED, f"the output cannot be committed: {error}"
        succeeded = outcome is JobOutcome.SUCCEEDED
        totals, wall_s = self._totals(ledger.job_id), duties.clock.wall_s()
        counters = ledger.counters(totals).as_dict()
        ledger.end = JobEnd(outcome.value, reason, counters, ledger.closing(wall_s))
        duties.notices.counters(ledger.job_id, counters)
        row = duties.notices.jobs.get(ledger.job_id) or JobRow(ledger.job_id)
        snapshot = duties.notices.job(ledger.job_id, JobSeen(), wall_s)
        report = ledger.report(row, snapshot, totals, wall_s)
        packed = duties.journaled.jobs[ledger.job_id].accepted.spec
        await duties.in_thread(self._history.write, report, None if succeeded else packed)
        duties.append(JobClosed(ledger.job_id))
        await duties.when_durable()
        duties.retire(ledger)
        for link in duties.links:
            link.push(ForgetJob(ledger.job_id, succeeded))
            link.forget(ledger.job_id)
        log.info("job=%s %s %s", ledger.job_id, outcome.value, reason)
        ledger.wake()

    async def _settle_output(self, ledger: JobLedger, outcome: JobOutcome) -> None:
        duties, output = self._duties, ledger.output
        if outcome is JobOutcome.SUCCEEDED:
            await duties.in_thread(output.commit_job)
            return
        is_killed = outcome is JobOutcome.KILLED
        await duties.in_thread(lambda: output.abort_job(is_killed=is_killed))
        if ledger.is_output_temporary:
            await duties.in_thread(output.remove)

    def _totals(self, job_id: JobId) -> JobTotals | None:
        try:
            return self._duties.scheduler.totals(job_id)
        except KeyError:
            return None  # it was settled in a life before

    def clear_leftovers_if_due(self) -> None:
        """From time to time, delete what jobs left behind."""
        now_s = self._duties.clock.now_s()
        if now_s >= self._clear_at_s:
            self._clear_at_s = now_s + CLEAR_EVERY_S
            self._duties.spawn(self._clear_leftovers())

    async def _clear_leftovers(self) -> None:
        try:
            await self._duties.in_thread(clear_leftovers, self._duties.clock.wall_s())
        except ClusterError as error:
            log.info("leftovers are not cleared: %s", error)

    def tell_counters(self) -> None:
        """Bring the counters that watchers see up to date."""
        for ledger in self._duties.jobs.values():
            counters = ledger.counters(self._totals(ledger.job_id))
            self._duties.notices.counters(ledger.job_id, counters.as_dict())

    # --- what people ask for

    async def _kill_job(self, request: KillJob, peer: Peer) -> bool:
        if JobId(request.job_id) not in self._duties.jobs:
            return False
        reason = request.reason or "killed on request"
        self._duties.event(JobKilled(JobId(request.job_id), reason))
        await self._duties.when_durable()
        return True

    async def _set_priority(self, request: SetPriority, peer: Peer) -> bool:
        if not 1 <= request.priority <= 5:
            raise UserError(f"priority {request.priority} is not 1 (very low) to 5 (very high)")
        if JobId(request.job_id) not in self._duties.jobs:
            return False
        self._duties.append(PriorityChanged(request.job_id, request.priority))
        self._duties.event(JobPrioritySet(JobId(request.job_id), request.priority))
        await self._duties.when_durable()
        return True

    def _stop_attempt(self, request: StopAttempt, peer: Peer) -> bool:
        attempt_id = _attempt_id(request.attempt_id)
        ledger = self._duties.jobs.get(attempt_id.task_id.job_id)
        if ledger is None or attempt_id not in ledger.live:
            return False
        if request.fail:
            ledger.failed(attempt_id, Failure("failed on request"), "")
            self._duties.event(FailAttemptRequested(attempt_id))
        else:
            self._duties.event(KillAttemptRequested(attempt_id))
        return True


def _attempt_id(text: str) -> AttemptId:
    try:
        return parse_attempt_id(text)
    except ValueError as error:
        raise UserError(str(error)) from None
