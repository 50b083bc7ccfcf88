"""The job master: one process that runs every job of the cluster (MapReduce §3.1).

The shell around `mapreduce.scheduler`. Its duties, in order: take one event, let the brain decide,
put what must last into the journal, and only when that is durable answer and send. Killed and
started again it goes on with running jobs: finished maps are not repeated, since workers bring
their segments when they register, and clients that wait ask again. The dfs is touched in threads
only. Never sees a record, never decides anything itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, assert_never

from cluster.config import MAPREDUCE_MASTER
from cluster.daemon import Daemon, run
from cluster.errors import ClusterError, UserError
from cluster.journal import Journal
from cluster.network import Handler, Peer
from mapreduce import job_journal
from mapreduce.attempt_report import Failure
from mapreduce.dataflow import dfs_files
from mapreduce.job_history import JobHistory
from mapreduce.job_journal import (
    AnyRecord,
    JobAccepted,
    JobClosed,
    JobDecided,
    Journaled,
    MasterStarted,
    OpenJob,
    PriorityChanged,
    TaskCommitted,
)
from mapreduce.job_ledger import JobLedger, Result
from mapreduce.job_output import JobOutput
from mapreduce.job_questions import JobQuestions
from mapreduce.notices import Figures, Notices, final_figures
from mapreduce.protocol import (
    AllowCommit,
    AttemptEnded,
    AttemptSaid,
    AttemptShuffled,
    AttemptWantsCommit,
    FetchTrouble,
    ForgetJob,
    Heartbeat,
    JobEnd,
    KillJob,
    Register,
    RunAttempt,
    SegmentAt,
    SetPriority,
    StopAttempt,
    StopRunning,
    SubmitJob,
    WorkerSettings,
)
from mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    PublishSegment,
    QuarantineWorker,
    RecordCommit,
    ReleaseWorker,
    StartAttempt,
    WithdrawSegment,
)
from mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptProgress,
    AttemptSucceeded,
    CommitRequested,
    CommittedTask,
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
    WorkerLost,
    WorkerRegistered,
    WorkerResumed,
)
from mapreduce.scheduler.ids import (
    AttemptId,
    HostName,
    JobId,
    RackName,
    TaskKind,
    WorkerId,
    parse_attempt_id,
)
from mapreduce.scheduler.scheduler import Scheduler
from mapreduce.snapshot import JobRow, JobSeen
from mapreduce.worker_links import WorkerLinks

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
LATE_TICK_S: Final = 3.0
CHECKPOINT_BYTES: Final = 64 << 20
LIFE_ATTEMPTS: Final = 1000
"""Attempts of one life of the master are numbered from here times the life on."""
RECENT_JOBS_MAX: Final = 50


class Master:
    """The service of the `mapreduce.master` daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._clock = daemon.clock
        self._loop = daemon.loop
        self._filesystem = f"dfs://{daemon.config.name}/"
        self._silence_s_max = daemon.config.dfs.dead_after_s
        self._scheduler = Scheduler()
        self._notices = Notices()
        self._links = WorkerLinks()
        self._journaled = Journaled()
        self._journal = Journal(
            os.path.join(daemon.state_directory, "journal"),
            daemon.identity.cluster_id,
            on_failure=lambda error: daemon.fail(error, "job journal"),
        )
        self._history = JobHistory(os.path.join(daemon.state_directory, "history"))
        self._jobs: dict[JobId, JobLedger] = {}
        self._recent: dict[JobId, JobLedger] = {}
        self._submissions: dict[str, JobId] = {}
        self._jobs_count = 0
        self._started_ms = int(self._clock.wall_s() * 1000)
        self._held: deque[tuple[int, list[Command]]] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._journal_bytes = 0
        self._ticker: asyncio.TimerHandle | None = None
        self._waker: asyncio.TimerHandle | None = None
        self._tick_due_s = 0.0
        self._news_due = False
        questions = JobQuestions(
            daemon, self._scheduler, self._notices, self._history, self._find_ledger, self._jobs
        )
        self.handlers: Mapping[type[Any], Handler] = {
            **questions.handlers,
            SubmitJob: self._submit,
            KillJob: self._kill_job,
            SetPriority: self._set_priority,
            StopAttempt: self._stop_attempt,
            Register: self._register,
            Heartbeat: self._heartbeat,
            AttemptEnded: self._attempt_ended,
            AttemptWantsCommit: self._wants_commit,
            AttemptShuffled: self._shuffled,
            FetchTrouble: self._fetch_trouble,
            AttemptSaid: self._attempt_said,
        }

    # --- life

    async def start(self) -> None:
        """Recover what was acknowledged; then workers and clients may come."""
        dfs_files.serve(self._daemon.cluster)
        found = self._journal.recover()
        for problem in [*found.problems, *([found.torn] if found.torn else [])]:
            log.warning("recovery: %s", problem)
        self._journaled.restore(found.checkpoint, found.records)
        self._journal.start(self._loop)
        self._append(MasterStarted(self._journaled.life + 1))
        for open_job in list(self._journaled.jobs.values()):
            self._restore(open_job)
        self._tick_due_s = self._clock.now_s() + TICK_S
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """Make durable what was decided; jobs go on when a master starts again."""
        for timer in (self._ticker, self._waker):
            if timer is not None:
                timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._loop.run_in_executor(None, self._journal.close)

    def ready(self) -> tuple[bool, str]:
        """Serving, and how much there is to do."""
        if self._journal.blocked:
            return False, f"cannot journal: {self._journal.blocked}"
        return True, f"{len(self._jobs)} jobs, {len(list(self._links))} workers"

    def metrics(self) -> dict[str, float]:
        """Counters for whoever asks."""
        return {
            "jobs": float(len(self._jobs)),
            "workers": float(len(list(self._links))),
            "journal_sequence": float(self._journal.sequence),
            "journal_durable": float(self._journal.durable),
        }

    def connected(self, peer: Peer) -> None:
        """Nothing is known of a client until it asks."""

    def disconnected(self, peer: Peer) -> None:
        """A worker's connection ended: it may come back before its silence is too long."""
        if isinstance(peer.context, str):
            link = self._links.get(peer.context)
            if link is not None and link.peer is peer:
                link.peer = None
                log.info("worker=%s disconnected", peer.context)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._spawned_ended)

    def _spawned_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._daemon.fail(error, "job master")

    def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return self._loop.run_in_executor(None, work, *arguments)

    # --- the order of duties

    def _event(self, event: Event) -> None:
        """Let the brain decide; journal; and when that is durable, send."""
        commands = self._scheduler.handle(event, self._clock.now_s())
        self._notices.observe(event, commands, self._clock.wall_s())
        for command in commands:
            self._take_down(command)
        if commands:
            if self._journal.durable >= self._journal.sequence and not self._held:
                self._carry_out(commands)
            else:
                self._held.append((self._journal.sequence, commands))
                self._journal.when_durable(self._journal.sequence).add_done_callback(self._release)
        self._set_waker()

    def _append(self, record: AnyRecord) -> None:
        payload = job_journal.encode(record)
        self._journaled.apply(record)
        self._journal.append(payload)
        self._journal_bytes += len(payload)

    def _take_down(self, command: Command) -> None:
        """Note what a command changes, in the journal if it must last."""
        wall_s = self._clock.wall_s()
        match command:
            case StartAttempt(attempt_id=attempt_id, worker_id=worker_id):
                self._ledger(attempt_id).started(attempt_id, worker_id, wall_s)
            case RecordCommit(attempt_id=attempt_id, worker_id=worker_id):
                ledger = self._ledger(attempt_id)
                result = ledger.committed(attempt_id, wall_s)
                self._append(
                    TaskCommitted(
                        ledger.job_id, str(attempt_id), worker_id, result.done, result.seconds
                    )
                )
            case PublishSegment(attempt_id=attempt_id, worker_id=worker_id):
                index = attempt_id.task_id.task_index
                at = SegmentAt(index, str(attempt_id), worker_id)
                self._ledger(attempt_id).segments[index] = at
            case WithdrawSegment(attempt_id=attempt_id):
                self._ledger(attempt_id).segments.pop(attempt_id.task_id.task_index, None)
            case AbandonTask(task_id=task_id):
                if task_id.kind is TaskKind.MAP:
                    self._jobs[task_id.job_id].abandoned[task_id.task_index] = None
            case FinishJob(job_id=job_id, outcome=outcome, reason=reason, culprit=culprit):
                self._append(JobDecided(job_id, outcome.value, reason, str(culprit or "")))
            case KillAttempt() | GrantCommit() | QuarantineWorker() | ReleaseWorker():
                pass
            case _:
                assert_never(command)

    def _release(self, durable: asyncio.Future[None]) -> None:
        if durable.exception() is not None:
            return  # the journal has told the daemon, which is ending
        while self._held and self._held[0][0] <= self._journal.durable:
            self._carry_out(self._held.popleft()[1])

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case StartAttempt(attempt_id=attempt_id, worker_id=worker_id):
                    self._order(attempt_id, worker_id)
                case KillAttempt(attempt_id=attempt_id, worker_id=worker_id, reason=reason):
                    self._links.push(worker_id, StopRunning(str(attempt_id), reason))
                case GrantCommit(attempt_id=attempt_id, worker_id=worker_id):
                    self._spawn(self._grant(attempt_id, worker_id))
                case PublishSegment(attempt_id=attempt_id):
                    index = attempt_id.task_id.task_index
                    ledger = self._find_ledger(attempt_id.task_id.job_id)
                    at = ledger.segments.get(index) if ledger else None
                    if at is not None:
                        self._links.publish(attempt_id.task_id.job_id, at)
                        self._tell_news_soon()
                case WithdrawSegment(attempt_id=attempt_id):
                    task = attempt_id.task_id
                    self._links.withdraw(task.job_id, task.task_index, str(attempt_id))
                    self._tell_news_soon()
                case AbandonTask(task_id=task_id):
                    if task_id.kind is TaskKind.MAP:
                        self._links.abandon(task_id.job_id, task_id.task_index)
                        self._tell_news_soon()
                case FinishJob(job_id=job_id, outcome=outcome, reason=reason):
                    self._spawn(self._close(self._jobs[job_id], outcome, reason))
                case QuarantineWorker(worker_id=worker_id, reason=reason):
                    log.warning("worker=%s quarantined: %s", worker_id, reason)
                case ReleaseWorker(worker_id=worker_id):
                    log.info("worker=%s may work again", worker_id)
                case RecordCommit():
                    pass  # durable by now
                case _:
                    assert_never(command)

    def _order(self, attempt_id: AttemptId, worker_id: WorkerId) -> None:
        task = attempt_id.task_id
        ledger = self._find_ledger(task.job_id)
        if ledger is None or ledger.job_id not in self._jobs:
            return  # it ended while this waited; a KillAttempt follows
        is_map, name = task.kind is TaskKind.MAP, str(attempt_id)
        output = ""
        if ledger.has_final_output(task):
            output = JobOutput(ledger.spec, self._filesystem).attempt_directory(name)
        order = RunAttempt(
            name,
            len(ledger.spec.splits),
            split=ledger.spec.splits[task.task_index] if is_map else None,
            output_directory=output,
            keep_input=ledger.is_last_try(attempt_id),
        )
        self._links.run(worker_id, ledger, order, is_map=is_map)

    async def _grant(self, attempt_id: AttemptId, worker_id: WorkerId) -> None:
        """Let an attempt commit; one that was let before it, and went away, can no more."""
        ledger = self._find_ledger(attempt_id.task_id.job_id)
        if ledger is None:
            return
        before = ledger.granted.get(attempt_id.task_id)
        if before is not None and before != attempt_id:
            output = JobOutput(ledger.spec, self._filesystem)
            try:
                await self._in_thread(output.fence, str(before))
            except ClusterError as error:
                log.warning("cannot fence %s yet: %s", before, error)
                self._loop.call_later(TICK_S, self._event, CommitRequested(attempt_id))
                return
        ledger.granted[attempt_id.task_id] = attempt_id
        self._links.push(worker_id, AllowCommit(str(attempt_id)))

    def _tell_news_soon(self) -> None:
        """Gather the news of one turn of the loop into one message a worker."""
        if not self._news_due:
            self._news_due = True
            self._loop.call_soon(self._tell_news)

    def _tell_news(self) -> None:
        self._news_due = False
        self._links.tell_news()

    def _ledger(self, attempt_id: AttemptId) -> JobLedger:
        return self._jobs[attempt_id.task_id.job_id]

    def _find_ledger(self, job_id: str) -> JobLedger | None:
        return self._jobs.get(JobId(job_id)) or self._recent.get(JobId(job_id))

    # --- jobs

    async def _submit(self, request: SubmitJob, peer: Peer) -> str:
        known = self._submissions.get(request.submission)
        if known is not None:
            return known
        self._jobs_count += 1
        job_id = JobId(f"job_{self._started_ms}_{self._jobs_count:04d}")
        self._submissions[request.submission] = job_id
        record = JobAccepted(
            job_id, request.submission, request.spec, request.file_count,
            request.is_output_temporary, self._clock.wall_s(),
        )  # fmt: skip
        try:
            ledger = _ledger_of(record)
            output = JobOutput(ledger.spec, self._filesystem)
            await self._in_thread(output.check)
        except BaseException:
            del self._submissions[request.submission]
            raise
        # Accepted first, made then: a client whose answer was lost with a master asks the next
        # one again, which must not find the directory and refuse.
        self._append(record)
        await self._journal.when_durable(self._journal.sequence)
        try:
            await self._in_thread(output.set_up)
        except (UserError, OSError):
            self._append(JobClosed(job_id))
            del self._submissions[request.submission]
            raise
        self._admit(ledger)
        log.info("job=%s user=%s maps=%d reduces=%d submitted", job_id, ledger.spec.user,
                 len(ledger.spec.splits), ledger.spec.reduces)  # fmt: skip
        self._event(JobSubmitted(job_id, ledger.map_specs(), ledger.spec.reduces, ledger.settings))
        return job_id

    def _admit(self, ledger: JobLedger) -> None:
        self._jobs[ledger.job_id] = ledger
        self._notices.job_submitted(
            JobRow(
                ledger.job_id,
                ledger.conf.job_name,
                ledger.spec.user,
                submitted_at_s=ledger.submitted_at_s,
                maps=len(ledger.spec.splits),
                reduces=ledger.spec.reduces,
                output=ledger.spec.output or "",
            )
        )

    def _restore(self, known: OpenJob) -> None:
        """Go on with a job that a life before had not closed."""
        ledger = _ledger_of(known.accepted)
        self._submissions[known.accepted.submission] = ledger.job_id
        self._admit(ledger)
        commits = [
            (parse_attempt_id(record.attempt_id), record) for record in known.committed.values()
        ]
        for attempt_id, record in commits:
            result = Result(record.attempt_id, record.done, record.seconds)
            ledger.put_result(attempt_id.task_id, result)
            ledger.workers[record.worker_id] = None
        seen: list[Command] = [RecordCommit(a, WorkerId(r.worker_id)) for a, r in commits]
        self._notices.observe(Tick(), seen, self._clock.wall_s())
        log.info("job=%s restored commits=%d", ledger.job_id, len(commits))
        if known.decided is not None:
            outcome = JobOutcome(known.decided.outcome)
            finish = FinishJob(ledger.job_id, outcome, known.decided.reason)
            self._notices.observe(Tick(), [finish], self._clock.wall_s())
            self._spawn(self._close(ledger, outcome, known.decided.reason))
            return
        self._event(
            JobRestored(
                ledger.job_id,
                ledger.map_specs(),
                ledger.spec.reduces,
                ledger.settings,
                tuple(CommittedTask(a, WorkerId(r.worker_id)) for a, r in commits),
                LIFE_ATTEMPTS * (self._journaled.life - 1),
            )
        )
        if known.priority is not None:
            self._event(JobPrioritySet(ledger.job_id, known.priority))

    async def _close(self, ledger: JobLedger, outcome: JobOutcome, reason: str) -> None:
        """Make the output final or clear it, write the report, then tell everybody."""
        succeeded = outcome is JobOutcome.SUCCEEDED
        output = JobOutput(ledger.spec, self._filesystem)
        try:
            if succeeded:
                await self._in_thread(output.commit_job)
            else:
                is_killed = outcome is JobOutcome.KILLED
                await self._in_thread(lambda: output.abort_job(is_killed=is_killed))
                if ledger.is_output_temporary:
                    await self._in_thread(output.remove)
        except (UserError, OSError) as error:
            log.error("job=%s output: %s", ledger.job_id, error)
            if succeeded:
                outcome, reason = JobOutcome.FAILED, f"the output cannot be committed: {error}"
        totals = self._scheduler_totals(ledger)
        wall_s = self._clock.wall_s()
        ledger.end = JobEnd(
            outcome.value, reason, ledger.counters(totals).as_dict(), ledger.closing(wall_s)
        )
        self._notices.counters(ledger.job_id, ledger.end.counters)
        row = self._notices.jobs.get(ledger.job_id) or JobRow(ledger.job_id)
        snapshot = self._notices.job(ledger.job_id, JobSeen(), wall_s)
        report = ledger.report(row, snapshot, totals, wall_s)
        packed = self._journaled.jobs[ledger.job_id].accepted.spec
        await self._in_thread(self._history.write, report, None if succeeded else packed)
        self._append(JobClosed(ledger.job_id))
        await self._journal.when_durable(self._journal.sequence)
        del self._jobs[ledger.job_id]
        self._recent[ledger.job_id] = ledger
        if len(self._recent) > RECENT_JOBS_MAX:
            del self._recent[next(iter(self._recent))]
        for link in self._links:
            link.push(ForgetJob(ledger.job_id, succeeded))
            link.forget(ledger.job_id)
        log.info("job=%s %s %s", ledger.job_id, outcome.value, reason)
        ledger.wake()

    def _scheduler_totals(self, ledger: JobLedger) -> Any:
        try:
            return self._scheduler.totals(ledger.job_id)
        except KeyError:
            return None  # it was settled in a life before

    async def _kill_job(self, request: KillJob, peer: Peer) -> bool:
        if JobId(request.job_id) not in self._jobs:
            return False
        self._event(JobKilled(JobId(request.job_id), request.reason or "killed on request"))
        await self._journal.when_durable(self._journal.sequence)
        return True

    async def _set_priority(self, request: SetPriority, peer: Peer) -> bool:
        if not 1 <= request.priority <= 5:
            raise UserError(f"priority {request.priority} is not 1 (very low) to 5 (very high)")
        if JobId(request.job_id) not in self._jobs:
            return False
        self._append(PriorityChanged(request.job_id, request.priority))
        self._event(JobPrioritySet(JobId(request.job_id), request.priority))
        await self._journal.when_durable(self._journal.sequence)
        return True

    def _stop_attempt(self, request: StopAttempt, peer: Peer) -> bool:
        attempt_id = _attempt_id(request.attempt_id)
        ledger = self._find_ledger(attempt_id.task_id.job_id)
        if ledger is None or attempt_id not in ledger.live:
            return False
        if request.fail:
            ledger.failed(attempt_id, Failure("failed on request"), "")
            self._event(FailAttemptRequested(attempt_id))
        else:
            self._event(KillAttemptRequested(attempt_id))
        return True

    # --- workers

    def _register(self, request: Register, peer: Peer) -> WorkerSettings:
        link = self._links.meet(request.worker_id)
        if link.peer is not None and link.peer is not peer:
            link.peer.close()
        peer.context = request.worker_id
        link.connect(peer, self._clock.now_s())
        link.incarnation = request.incarnation
        link.address, link.bulk_address = request.address, request.bulk_address
        segments = []
        for kept in request.segments:
            attempt_id = parse_attempt_id(kept.attempt_id)
            segments.append(attempt_id)
            ledger = self._jobs.get(attempt_id.task_id.job_id)
            if ledger is not None:
                ledger.offered[attempt_id] = kept.done
        log.info("worker=%s registered slots=%d running=%d segments=%d", request.worker_id,
                 request.slots, len(request.running), len(segments))  # fmt: skip
        self._event(
            WorkerRegistered(
                WorkerId(request.worker_id),
                HostName(request.worker_id),
                request.slots,
                request.slots,
                request.slots,
                RackName(request.rack),
                tuple(parse_attempt_id(text) for text in request.running),
                tuple(segments),
            )
        )
        self._retell(link.worker_id)
        return WorkerSettings(self._daemon.config.dfs.heartbeat_s, self._silence_s_max)

    def _retell(self, worker_id: WorkerId) -> None:
        """Tell a worker that came back of the segments that its running reduces wait for."""
        for attempt_id in self._scheduler.running_on(worker_id):
            ledger = self._jobs.get(attempt_id.task_id.job_id)
            if ledger is not None:
                self._links.retell(
                    worker_id, ledger, is_map=attempt_id.task_id.kind is TaskKind.MAP
                )

    def _heartbeat(self, request: Heartbeat, peer: Peer) -> bool:
        link = self._links.get(request.worker_id)
        if link is None or link.peer is not peer or link.incarnation != request.incarnation:
            return False
        link.heard_at_s = self._clock.now_s()
        wall_s = self._clock.wall_s()
        for news in request.attempts:
            attempt_id = parse_attempt_id(news.attempt_id)
            ledger = self._jobs.get(attempt_id.task_id.job_id)
            if ledger is None:
                continue
            ledger.heard(attempt_id, news)
            is_map = attempt_id.task_id.kind is TaskKind.MAP
            figures = Figures(
                news.records, news.bytes if is_map else 0, 0 if is_map else news.bytes
            )
            self._notices.attempt_figures(attempt_id, figures, phase=news.phase, status=news.status)
            self._event(AttemptProgress(attempt_id, news.fraction))
        self._notices.host_figures(
            link.worker_id,
            load=request.load,
            memory_used_bytes=request.memory_used_bytes,
            memory_total_bytes=request.memory_total_bytes,
            disks=request.disks,
            now_s=wall_s,
        )
        if request.is_full != link.is_full:
            link.is_full = request.is_full
            self._event(
                WorkerDraining(link.worker_id) if link.is_full else WorkerResumed(link.worker_id)
            )
        return True

    def _attempt_ended(self, request: AttemptEnded, peer: Peer) -> Any:
        attempt_id = parse_attempt_id(request.attempt_id)
        ledger = self._jobs.get(attempt_id.task_id.job_id)
        self._heard_from(request.worker_id)
        if request.done is not None:
            if ledger is not None:
                ledger.offered[attempt_id] = request.done
            figures = final_figures(request.done, attempt_id.task_id.kind)
            self._notices.attempt_figures(attempt_id, figures)
            self._event(AttemptSucceeded(attempt_id))
            if ledger is not None:
                ledger.offered.pop(attempt_id, None)
        elif request.failure is not None:
            if ledger is not None and attempt_id in ledger.live:
                ledger.failed(attempt_id, request.failure, request.worker_id)
            self._event(AttemptFailed(attempt_id, request.failure.message))
        else:
            if ledger is not None:
                ledger.killed(attempt_id)
            self._event(AttemptKilled(attempt_id, request.killed))
        if self._journal.durable >= self._journal.sequence:
            return None
        return self._journal.when_durable(self._journal.sequence)

    def _wants_commit(self, request: AttemptWantsCommit, peer: Peer) -> None:
        self._heard_from(request.worker_id)
        self._event(CommitRequested(parse_attempt_id(request.attempt_id)))

    def _shuffled(self, request: AttemptShuffled, peer: Peer) -> None:
        self._heard_from(request.worker_id)
        self._event(ShuffleFinished(parse_attempt_id(request.attempt_id)))

    def _fetch_trouble(self, request: FetchTrouble, peer: Peer) -> None:
        reduce_id = parse_attempt_id(request.reduce_attempt_id)
        map_id = parse_attempt_id(request.map_attempt_id)
        log.info("fetch reduce=%s map=%s gone=%s: %s", reduce_id, map_id, request.gone,
                 request.reason)  # fmt: skip
        if request.gone:
            self._event(OutputLost(map_id, request.reason))
        else:
            self._event(FetchFailed(reduce_id, map_id))

    def _attempt_said(self, request: AttemptSaid, peer: Peer) -> None:
        attempt_id = parse_attempt_id(request.attempt_id)
        ledger = self._jobs.get(attempt_id.task_id.job_id)
        if ledger is not None:
            ledger.say(request.level, request.text)

    def _heard_from(self, worker_id: str) -> None:
        link = self._links.get(worker_id)
        if link is not None:
            link.heard_at_s = self._clock.now_s()

    # --- time

    def _set_waker(self) -> None:
        """Wake the brain when it says that waiting tasks may start then."""
        if self._waker is not None:
            self._waker.cancel()
            self._waker = None
        wake_at_s = self._scheduler.wake_at_s
        if wake_at_s is not None:
            delay_s = max(0.001, wake_at_s - self._clock.now_s() + 0.001)
            if delay_s < TICK_S:
                self._waker = self._loop.call_later(delay_s, self._event, Tick())

    def _tick(self) -> None:
        now_s = self._clock.now_s()
        late_s = now_s - self._tick_due_s
        self._tick_due_s = now_s + TICK_S
        for link in self._links:
            if late_s > LATE_TICK_S:
                link.heard_at_s += late_s  # the silence was ours, not theirs
            silence_s = now_s - link.heard_at_s
            if silence_s > self._silence_s_max:
                self._lose(link.worker_id, f"no heartbeat for {silence_s:.1f} s")
        self._event(Tick())
        self._notices.tick(self._clock.wall_s())
        for ledger in self._jobs.values():
            totals = self._scheduler_totals(ledger)
            self._notices.counters(ledger.job_id, ledger.counters(totals).as_dict())
        if self._journal_bytes > CHECKPOINT_BYTES:
            self._journal_bytes = 0
            self._journal.fork_checkpoint(self._journaled.pieces)
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def _lose(self, worker_id: WorkerId, reason: str) -> None:
        log.warning("worker=%s lost: %s", worker_id, reason)
        link = self._links.get(worker_id)
        if link is not None and link.peer is not None:
            link.peer.close()
        self._links.lose(worker_id)
        for ledger in self._jobs.values():
            ledger.worker_deaths += worker_id in ledger.workers
        self._event(WorkerLost(worker_id, reason))


def _ledger_of(record: JobAccepted) -> JobLedger:
    return JobLedger(
        JobId(record.job_id),
        record.spec,
        record.submitted_at_s,
        is_output_temporary=record.is_output_temporary,
    )


def _attempt_id(text: str) -> AttemptId:
    try:
        return parse_attempt_id(text)
    except ValueError as error:
        raise UserError(str(error)) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Be the job master."""
    return run(MAPREDUCE_MASTER, Master, argv)


if __name__ == "__main__":
    sys.exit(main())
