"""The order of duties of the job master: decide, journal, and only then send.

Holds the brain and what it decides about: ledgers, links to workers, the journal, the notice board.
`event` is the one way to the brain. Commands wait until what they rest on is durable, and are
carried out in the order in which they were given. Never decides anything itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, assert_never

from cluster.daemon import Daemon
from cluster.errors import ClusterError
from cluster.journal import Journal
from mapreduce import job_journal, job_output
from mapreduce.job_journal import (
    AnyRecord,
    JobDecided,
    Journaled,
    TaskAbandoned,
    TaskCommitted,
)
from mapreduce.job_ledger import JobLedger
from mapreduce.notices import Notices
from mapreduce.protocol import AllowCommit, RunAttempt, SegmentAt, StopRunning
from mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    KillAttempt,
    PublishSegment,
    QuarantineWorker,
    RecordCommit,
    ReleaseWorker,
    StartAttempt,
    WithdrawSegment,
)
from mapreduce.scheduler.events import CommitRequested, Event, Tick
from mapreduce.scheduler.ids import AttemptId, JobId, TaskKind, WorkerId
from mapreduce.scheduler.scheduler import Scheduler
from mapreduce.worker_links import WorkerLinks

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
CHECKPOINT_BYTES: Final = 64 << 20
RECENT_JOBS_MAX: Final = 50


class Duties:
    """The brain and its surroundings; all on one loop."""

    def __init__(self, daemon: Daemon) -> None:
        self.clock = daemon.clock
        self.loop = daemon.loop
        self.scheduler = Scheduler()
        self.notices = Notices()
        self.links = WorkerLinks()
        self.journaled = Journaled()
        self.journal = Journal(
            os.path.join(daemon.state_directory, "journal"),
            daemon.identity.cluster_id,
            on_failure=lambda error: daemon.fail(error, "job journal"),
        )
        self.jobs: dict[JobId, JobLedger] = {}
        """Jobs that are not closed."""
        self.on_finish: Callable[[FinishJob], None] = lambda finish: None
        self._daemon = daemon
        self._recent: dict[JobId, JobLedger] = {}
        self._held: deque[tuple[int, list[Command]]] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._journal_bytes = 0
        self._waker: asyncio.TimerHandle | None = None
        self._news_due = False

    # --- work beside the loop

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something on the loop; a bug in it ends the master."""
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._spawned_ended)

    def _spawned_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._daemon.fail(error, "job master")

    def in_thread(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Do something that blocks, such as asking the dfs."""
        return self.loop.run_in_executor(None, work, *arguments)

    async def close(self) -> None:
        """End what was begun; make durable what was decided."""
        if self._waker is not None:
            self._waker.cancel()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        job_output.stop_trying()
        await self.in_thread(self.journal.close)

    # --- the one way to the brain

    def event(self, event: Event) -> None:
        """Let the brain decide; journal; and when that is durable, send."""
        commands = self.scheduler.handle(event, self.clock.now_s())
        self.notices.observe(event, commands, self.clock.wall_s())
        for command in commands:
            self._take_down(command)
        if commands:
            if self.is_durable and not self._held:
                self._carry_out(commands)
            else:
                self._held.append((self.journal.sequence, commands))
                self.when_durable().add_done_callback(self._release)
        self._set_waker()

    def append(self, record: AnyRecord) -> None:
        """Put a record into the journal; it is not durable yet."""
        payload = job_journal.encode(record)
        self.journaled.apply(record)
        self.journal.append(payload)
        self._journal_bytes += len(payload)

    @property
    def is_durable(self) -> bool:
        """Whether all that was said so far survives a crash."""
        return self.journal.durable >= self.journal.sequence

    def when_durable(self) -> asyncio.Future[None]:
        """Give a future that is done once all that was said so far survives a crash."""
        return self.journal.when_durable(self.journal.sequence)

    def checkpoint_if_due(self) -> None:
        """Write a checkpoint, beside the service, once the journal has grown enough."""
        if self._journal_bytes > CHECKPOINT_BYTES:
            self._journal_bytes = 0
            self.journal.fork_checkpoint(self.journaled.pieces)

    def ledger(self, job_id: str) -> JobLedger | None:
        """Give a job that runs, or ended not long ago."""
        return self.jobs.get(JobId(job_id)) or self._recent.get(JobId(job_id))

    def retire(self, ledger: JobLedger) -> None:
        """A job is closed; it can be asked about for a while."""
        del self.jobs[ledger.job_id]
        self._recent[ledger.job_id] = ledger
        if len(self._recent) > RECENT_JOBS_MAX:
            del self._recent[next(iter(self._recent))]

    # --- what a command changes, before it is carried out

    def _take_down(self, command: Command) -> None:
        match command:
            case StartAttempt(attempt_id=attempt_id, worker_id=worker_id):
                self._job_of(attempt_id).started(attempt_id, worker_id, self.clock.wall_s())
            case RecordCommit(attempt_id=attempt_id, worker_id=worker_id):
                ledger = self._job_of(attempt_id)
                result = ledger.committed(attempt_id, self.clock.wall_s())
                self.append(
                    TaskCommitted(
                        ledger.job_id, str(attempt_id), worker_id, result.done, result.seconds
                    )
                )
            case PublishSegment(attempt_id=attempt_id, worker_id=worker_id):
                index = attempt_id.task_id.task_index
                at = SegmentAt(index, str(attempt_id), worker_id)
                self._job_of(attempt_id).segments[index] = at
            case WithdrawSegment(attempt_id=attempt_id):
                self._job_of(attempt_id).segments.pop(attempt_id.task_id.task_index, None)
            case AbandonTask(task_id=task_id):
                self.jobs[task_id.job_id].abandon(task_id)
                self.append(TaskAbandoned(task_id.job_id, str(task_id)))
            case FinishJob(job_id=job_id, outcome=outcome, reason=reason, culprit=culprit):
                self.append(JobDecided(job_id, outcome.value, reason, str(culprit or "")))
            case KillAttempt() | GrantCommit() | QuarantineWorker() | ReleaseWorker():
                pass
            case _:
                assert_never(command)

    def _job_of(self, attempt_id: AttemptId) -> JobLedger:
        return self.jobs[attempt_id.task_id.job_id]

    # --- what is sent, once all that it rests on is durable

    def _release(self, durable: asyncio.Future[None]) -> None:
        if durable.exception() is not None:
            return  # the journal has told the daemon, which is ending
        while self._held and self._held[0][0] <= self.journal.durable:
            self._carry_out(self._held.popleft()[1])

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case StartAttempt(attempt_id=attempt_id, worker_id=worker_id):
                    self._order(attempt_id, worker_id)
                case KillAttempt(attempt_id=attempt_id, worker_id=worker_id, reason=reason):
                    self.links.push(worker_id, StopRunning(str(attempt_id), reason))
                case GrantCommit(attempt_id=attempt_id, worker_id=worker_id):
                    self._grant(attempt_id, worker_id)
                case PublishSegment() | WithdrawSegment() | AbandonTask():
                    self._spread(command)
                case FinishJob():
                    self.on_finish(command)
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
        ledger = self.jobs.get(task.job_id)
        if ledger is None:
            return  # it ended while this waited; a KillAttempt follows
        is_map, name = task.kind is TaskKind.MAP, str(attempt_id)
        is_final = ledger.has_final_output(task)
        order = RunAttempt(
            name,
            len(ledger.spec.splits),
            split=ledger.spec.splits[task.task_index] if is_map else None,
            output_directory=ledger.output.attempt_directory(name) if is_final else "",
            keep_input=ledger.is_last_try(attempt_id),
        )
        self.links.run(worker_id, ledger, order, is_map=is_map)

    def _grant(self, attempt_id: AttemptId, worker_id: WorkerId) -> None:
        """Let an attempt commit; one that was let before it, and went away, must not any more."""
        ledger = self.jobs.get(attempt_id.task_id.job_id)
        if ledger is None:
            return
        before = ledger.granted.get(attempt_id.task_id)
        if before is not None and before != attempt_id:
            self.spawn(self._fence(ledger, before, attempt_id))
            return
        ledger.granted[attempt_id.task_id] = attempt_id
        self.links.push(worker_id, AllowCommit(str(attempt_id)))

    async def _fence(self, ledger: JobLedger, before: AttemptId, after: AttemptId) -> None:
        """Take the output of the attempt before away; then ask again for the one after it."""
        delay_s = 0.0
        try:
            await self.in_thread(ledger.output.fence, str(before))
            ledger.granted.pop(before.task_id, None)
        except ClusterError as error:
            log.warning("cannot fence %s yet: %s", before, error)
            delay_s = TICK_S
        self.loop.call_later(delay_s, self.event, CommitRequested(after))

    def _spread(self, command: PublishSegment | WithdrawSegment | AbandonTask) -> None:
        """Tell reduces of map output, with all else that one turn of the loop brings."""
        match command:
            case PublishSegment(attempt_id=attempt_id, worker_id=worker_id):
                index = attempt_id.task_id.task_index
                at = SegmentAt(index, str(attempt_id), worker_id)
                self.links.publish(attempt_id.task_id.job_id, at)
            case WithdrawSegment(attempt_id=attempt_id):
                task = attempt_id.task_id
                self.links.withdraw(task.job_id, task.task_index, str(attempt_id))
            case AbandonTask(task_id=task_id):
                if task_id.kind is not TaskKind.MAP:
                    return
                self.links.abandon(task_id.job_id, task_id.task_index)
        if not self._news_due:
            self._news_due = True
            self.loop.call_soon(self._tell_news)

    def _tell_news(self) -> None:
        self._news_due = False
        self.links.tell_news()

    def _set_waker(self) -> None:
        """Wake the brain when it says that waiting tasks may start then."""
        if self._waker is not None:
            self._waker.cancel()
            self._waker = None
        wake_at_s = self.scheduler.wake_at_s
        if wake_at_s is not None:
            delay_s = max(0.001, wake_at_s - self.clock.now_s() + 0.001)
            if delay_s < TICK_S:
                self._waker = self.loop.call_later(delay_s, self.event, Tick())
