"""Where jobs come in and go out: submission, restoration, the end of a job, requests about jobs.

Takes what clients ask; a job is accepted once that is durable, and closed once its output is final
and its report written. The dfs is touched in threads only. Never decides what runs.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Any

from mrstream.cluster.config.config import ClusterConfig
from mrstream.cluster.config.extras import require_of_cluster
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.terminal import in_one_line
from mrstream.cluster.wire.network import Handler, Peer
from mrstream.dfs.errors import FencedOff
from mrstream.mapreduce.attempt.attempt_report import Failure
from mrstream.mapreduce.dataflow.committer import OutputExists
from mrstream.mapreduce.job.environment import refuse_misfit
from mrstream.mapreduce.master.duties import FENCE
from mrstream.mapreduce.master.job_history import JobHistory
from mrstream.mapreduce.master.job_journal import JobAccepted, JobClosed, PriorityChanged
from mrstream.mapreduce.master.job_ledger import JobLedger
from mrstream.mapreduce.master.job_output import clear_leftovers
from mrstream.mapreduce.master.master_shell import MasterShell
from mrstream.mapreduce.protocol import (
    ForgetJob,
    JobEnd,
    KillJob,
    SetPriority,
    StopAttempt,
    SubmitJob,
)
from mrstream.mapreduce.scheduler.commands import FinishJob, JobOutcome
from mrstream.mapreduce.scheduler.events import (
    FailAttemptRequested,
    JobKilled,
    JobPrioritySet,
    KillAttemptRequested,
)
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, parse_attempt_id
from mrstream.mapreduce.snapshot import JobRow, JobSeen

log = logging.getLogger(__name__)

CLEAR_EVERY_S = 600.0
FENCES_EVERY_S = 5.0


class JobDesk:
    """Jobs, from their submission to their report."""

    def __init__(self, shell: MasterShell, history: JobHistory, config: ClusterConfig) -> None:
        self._shell = shell
        self._history = history
        self._config = config
        self._number = 0
        self._coming: dict[str, asyncio.Task[JobId]] = {}
        """By submission: those that are being taken in."""
        self._arriving: dict[JobId, JobLedger] = {}
        """The same, as far as their output is known; from there on they are in the books."""
        self._clear_at_s = shell.clock.now_s() + CLEAR_EVERY_S
        self._fences_at_s = 0.0
        shell.on_finish = self._finish
        shell.on_lead = self._restore
        self.handlers: Mapping[type[Any], Handler] = {
            SubmitJob: self._submit,
            KillJob: self._kill_job,
            SetPriority: self._set_priority,
            StopAttempt: self._stop_attempt,
        }

    # --- coming in

    async def _submit(self, request: SubmitJob, peer: Peer) -> str:
        """A submission said twice is one job, and its id is an answer only once the job runs:
        whoever has it may kill it."""
        submission = request.submission
        coming = self._coming.get(submission)
        if coming is None:
            known = self._shell.journaled.find_submission(submission)
            if known is not None:
                return await self._known(known)
            coming = self._coming[submission] = asyncio.create_task(self._accept(request))
            coming.add_done_callback(lambda _: self._coming.pop(submission))
        return await asyncio.shield(coming)

    async def _known(self, job_id: str) -> str:
        await self._shell.settled()
        return job_id

    async def _accept(self, request: SubmitJob) -> JobId:
        shell = self._shell
        # Above all that the journal knows, and those on their way into it.
        self._number = max(self._number, shell.journaled.jobs_count) + 1
        job_id = JobId(shell.journaled.job_id(self._number))
        record = JobAccepted(
            job_id, request.submission, request.spec, request.file_count,
            request.is_output_temporary, shell.clock.wall_s(),
        )  # fmt: skip
        ledger = self._ledger_of(record)
        # Its client has seen to this by its own cluster file, which may be another than ours.
        require_of_cluster(ledger.spec.extras, self._config.extras, self._config.name, "this job")
        if ledger.spec.environment is not None:
            for link in shell.links:
                refuse_misfit(ledger.spec.environment, link.platform, link.worker_id)
        if FENCE in (name for name, _ in ledger.spec.fences):
            raise UserError(
                f"a job cannot be under the fence {FENCE!r}: it is the job master's own"
            )
        self._refuse_shared(ledger)
        self._arriving[job_id] = ledger
        try:
            await self._take_in(ledger, record)
        finally:
            del self._arriving[job_id]
        log.info("job=%s user=%s maps=%d reduces=%d submitted", job_id, ledger.spec.user,
                 len(ledger.spec.splits), ledger.spec.reduces)  # fmt: skip
        if not len(shell.links):
            ledger.say("WARN", "no worker is connected: the job waits for one")
        shell.event(ledger.asked())
        return job_id

    def _refuse_shared(self, ledger: JobLedger) -> None:
        """Refuse a second job into one directory. The directory itself tells only once it is made:
        of two that come at the same time both would find none, and the later commit would win."""
        url = ledger.output.url
        for other in (*self._arriving.values(), *self._shell.books.jobs.values()):
            if other.output.url == url:
                raise OutputExists(f"Output directory {url} already exists: {other.job_id} has it")

    async def _take_in(self, ledger: JobLedger, record: JobAccepted) -> None:
        """Make a job durable, and then its directory."""
        shell = self._shell
        await shell.in_dfs(ledger.output.committer.check_output)
        # Accepted first, made then: a client whose answer was lost with a master asks the next
        # one again, which must not find the directory and refuse.
        shell.append(record)
        await shell.settled()
        try:
            await shell.in_dfs(ledger.output.set_up)
        except (UserError, OSError):
            # Refused only when that is durable: the next life must not run what a client gave up.
            shell.append(JobClosed(ledger.job_id))
            await shell.settled()
            raise
        shell.books.admit(ledger)

    def _ledger_of(self, record: JobAccepted) -> JobLedger:
        return JobLedger(
            JobId(record.job_id),
            record.spec,
            record.submitted_at_s,
            f"dfs://{self._config.name}/",
            is_output_temporary=record.is_output_temporary,
        )

    def _restore(self) -> None:
        """Go on with the jobs that a life before, here or elsewhere, had not closed."""
        shell = self._shell
        for known in list(shell.journaled.jobs.values()):
            ledger = self._ledger_of(known.accepted)
            shell.books.admit(ledger)
            log.info("job=%s restored commits=%d", ledger.job_id, len(known.committed))
            shell.restore(ledger)

    # --- going out

    def _finish(self, finish: FinishJob) -> None:
        ledger = self._shell.books.jobs[finish.job_id]
        self._shell.spawn(self._close(ledger, finish.outcome, finish.reason))

    async def _close(self, ledger: JobLedger, outcome: JobOutcome, reason: str) -> None:
        """Make the output final or clear it, write the report, then tell everybody."""
        shell = self._shell
        try:
            await self._settle_output(ledger, outcome)
        except (UserError, OSError) as error:
            log.error("job=%s output: %s", ledger.job_id, error)
            if outcome is JobOutcome.SUCCEEDED:
                outcome, reason = JobOutcome.FAILED, f"the output cannot be committed: {error}"
        succeeded = outcome is JobOutcome.SUCCEEDED
        totals, wall_s = shell.books.totals(ledger.job_id), shell.clock.wall_s()
        row = shell.books.notices.jobs.get(ledger.job_id) or JobRow(ledger.job_id)
        snapshot = shell.books.notices.job(ledger.job_id, JobSeen(), wall_s)
        report = ledger.report(row, snapshot, totals, wall_s)
        ledger.end = JobEnd(outcome.value, reason, report.counters, report.closing)
        shell.books.notices.counters(ledger.job_id, report.counters)
        accepted = shell.journaled.jobs[ledger.job_id].accepted
        await shell.in_dfs(self._history.write, report, None if succeeded else accepted.spec)
        shell.append(JobClosed(ledger.job_id, accepted.submission, shell.clock.wall_s()))
        await shell.settled()
        shell.books.retire(ledger)
        for link in shell.links:
            link.push(ForgetJob(ledger.job_id, succeeded))
            link.forget(ledger.job_id)
        log.info("job=%s %s %s", ledger.job_id, outcome.value, in_one_line(reason))
        ledger.wake()

    async def _settle_output(self, ledger: JobLedger, outcome: JobOutcome) -> None:
        shell, output = self._shell, ledger.output
        try:
            if outcome is JobOutcome.SUCCEEDED:
                await shell.in_dfs(output.commit_job)
                return
            is_killed = outcome is JobOutcome.KILLED
            await shell.in_dfs(lambda: output.abort_job(is_killed=is_killed))
        except FencedOff:
            is_temporary = ledger.is_output_temporary
            await shell.in_dfs(output.remove if is_temporary else output.drop_attempts)
            raise
        if ledger.is_output_temporary:
            await shell.in_dfs(output.remove)

    def clear_leftovers_if_due(self) -> None:
        """From time to time, delete what jobs left behind."""
        now_s = self._shell.clock.now_s()
        if now_s >= self._clear_at_s:
            self._clear_at_s = now_s + CLEAR_EVERY_S
            self._shell.spawn(self._clear_leftovers())

    async def _clear_leftovers(self) -> None:
        try:
            await self._shell.in_dfs(clear_leftovers, self._shell.clock.wall_s())
            await self._shell.in_dfs(self._history.prune)
        except ClusterError as error:
            log.info("leftovers are not cleared: %s", error)

    def check_fences_if_due(self) -> None:
        """From time to time, see whether jobs under a lock still may do what they do: one that may
        not, and has nothing to commit for hours, shall not keep others from the hosts."""
        now_s = self._shell.clock.now_s()
        if now_s >= self._fences_at_s:
            self._fences_at_s = math.inf
            self._shell.spawn(self._check_fences())

    async def _check_fences(self) -> None:
        for ledger in [each for each in self._shell.books.jobs.values() if each.spec.fences]:
            await self._shell.check_fences(ledger)
        self._fences_at_s = self._shell.clock.now_s() + FENCES_EVERY_S

    def tell_counters(self) -> None:
        """Bring the counters that watchers see up to date."""
        for ledger in self._shell.books.jobs.values():
            counters = ledger.tally.counters(self._shell.books.totals(ledger.job_id))
            self._shell.books.notices.counters(ledger.job_id, counters.as_dict())

    # --- what people ask for

    async def _kill_job(self, request: KillJob, peer: Peer) -> bool:
        if JobId(request.job_id) not in self._shell.books.jobs:
            return False
        reason = request.reason or "killed on request"
        self._shell.event(JobKilled(JobId(request.job_id), reason))
        await self._shell.settled()
        return True

    async def _set_priority(self, request: SetPriority, peer: Peer) -> bool:
        if not 1 <= request.priority <= 5:
            raise UserError(f"priority {request.priority} is not 1 (very low) to 5 (very high)")
        if JobId(request.job_id) not in self._shell.books.jobs:
            return False
        if peer.request_id not in self._shell.journaled.jobs[request.job_id].requests:
            self._shell.append(PriorityChanged(request.job_id, request.priority, peer.request_id))
            self._shell.event(JobPrioritySet(JobId(request.job_id), request.priority))
        await self._shell.settled()
        return True

    def _stop_attempt(self, request: StopAttempt, peer: Peer) -> bool:
        attempt_id = _attempt_id(request.attempt_id)
        ledger = self._shell.books.jobs.get(attempt_id.task_id.job_id)
        if ledger is None or attempt_id not in ledger.tally.running:
            return False
        if request.fail:
            ledger.failed(attempt_id, Failure("failed on request"), "")
            self._shell.event(FailAttemptRequested(attempt_id))
        else:
            self._shell.event(KillAttemptRequested(attempt_id))
        return True


def _attempt_id(text: str) -> AttemptId:
    try:
        return parse_attempt_id(text)
    except ValueError as error:
        raise UserError(str(error)) from None
