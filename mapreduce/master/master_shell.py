"""The job master's loop around the duties: time, threads, the journal's flushes, words to workers.

Holds the brain and what stands around it: ledgers, links to workers, the journal. `event` is the
one way to the brain; what `duties` lets go is carried out here. Never decides anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, assert_never

from mrstream.cluster.daemon import Daemon
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.journal.journal import Journal
from mrstream.mapreduce.master import job_output
from mrstream.mapreduce.master.duties import Duties
from mrstream.mapreduce.master.job_books import JobBooks
from mrstream.mapreduce.master.job_journal import AnyRecord, Journaled
from mrstream.mapreduce.master.job_ledger import JobLedger
from mrstream.mapreduce.master.worker_links import WorkerLinks
from mrstream.mapreduce.protocol import AllowCommit, RunAttempt, SegmentAt, StopRunning
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
from mrstream.mapreduce.scheduler.events import CommitRequested, Event, Tick
from mrstream.mapreduce.scheduler.ids import AttemptId, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.limits import SchedulerLimits
from mrstream.mapreduce.scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
CHECKPOINT_BYTES: Final = 64 << 20


class MasterShell:
    """The brain and its surroundings; all on one loop."""

    def __init__(self, daemon: Daemon) -> None:
        self.clock = daemon.clock
        self.loop = daemon.loop
        self.scheduler = Scheduler(SchedulerLimits(silence_s_max=daemon.config.dfs.dead_after_s))
        self.books = JobBooks()
        self.links = WorkerLinks()
        self.journaled = Journaled()
        self.journal = Journal(
            os.path.join(daemon.state_directory, "journal"),
            daemon.identity.cluster_id,
            on_failure=lambda error: daemon.fail(error, "job journal"),
        )
        self.duties = Duties(
            self.scheduler, self.journal, self.journaled, self.books, self._carry_out
        )
        self.on_finish: Callable[[FinishJob], None] = lambda finish: None
        self._daemon = daemon
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._is_watching = False
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

    # --- the order of duties

    def start(self) -> None:
        """Recover what was acknowledged, and begin a life of the master."""
        found = self.journal.recover()
        for problem in [*found.problems, *([found.torn] if found.torn else [])]:
            log.warning("recovery: %s", problem)
        self.journaled.restore(found.checkpoint, found.records)
        self.journal.start(self.loop)
        self.duties.begin_life()

    def restore(self, ledger: JobLedger) -> None:
        """Go on with an admitted job of a life before."""
        now_s, wall_s = self.clock.now_s(), self.clock.wall_s()
        known = self.journaled.jobs[ledger.job_id]
        self.books.restore(ledger, known, wall_s)
        self.duties.restore(known, ledger.asked(), now_s, wall_s)
        self._watch()
        self._set_waker()

    def event(self, event: Event) -> None:
        """Let the brain decide; journal; and when that is durable, carry out."""
        self.duties.event(event, self.clock.now_s(), self.clock.wall_s())
        self._watch()
        self._set_waker()

    def append(self, record: AnyRecord) -> None:
        """Put a record into the journal; it is not durable yet."""
        self.duties.append(record)

    def when_durable(self) -> asyncio.Future[None]:
        """Give a future that is done once all that was said so far survives a crash."""
        return self.journal.when_durable(self.journal.sequence)

    def checkpoint_if_due(self) -> None:
        """Write a checkpoint, beside the service, once the journal has grown enough."""
        if self.duties.unsaved_bytes > CHECKPOINT_BYTES:
            self.duties.unsaved_bytes = 0
            self.journal.fork_checkpoint(self.journaled.pieces)

    def _watch(self) -> None:
        """Be told when the next thing can be said: once for all that one commit makes durable."""
        sequence = self.duties.waits_for
        if sequence and not self._is_watching:
            self._is_watching = True
            self.journal.when_durable(sequence).add_done_callback(self._release)

    def _release(self, durable: asyncio.Future[None]) -> None:
        self._is_watching = False
        if durable.exception() is None:  # else the journal has told the daemon, which is ending
            self.duties.release()
            self._watch()

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

    # --- what is carried out, once all that it rests on is durable

    def _carry_out(self, command: Command) -> None:
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
            case LoseWorker(worker_id=worker_id, reason=reason):
                log.warning("worker=%s lost: %s", worker_id, reason)
                if not self.scheduler.knows(worker_id):  # else it came back while this waited
                    self.links.lose(worker_id)
            case QuarantineWorker(worker_id=worker_id, reason=reason):
                log.warning("worker=%s quarantined: %s", worker_id, reason)
            case ReleaseWorker(worker_id=worker_id):
                log.info("worker=%s may work again", worker_id)
            case RecordCommit():
                pass  # durable by now
            case _:
                assert_never(command)

    def _order(self, attempt_id: AttemptId, worker_id: WorkerId) -> None:
        task, name = attempt_id.task_id, str(attempt_id)
        ledger = self.books.job_of(attempt_id)
        is_map = task.kind is TaskKind.MAP
        commits = ledger.commits(task)
        order = RunAttempt(
            name,
            len(ledger.spec.splits),
            split=ledger.spec.splits[task.task_index] if is_map else None,
            output_directory=ledger.output.attempt_directory(name) if commits else "",
            keep_input=ledger.is_last_try(attempt_id),
        )
        self.links.run(worker_id, ledger, order, is_map=is_map)

    def _grant(self, attempt_id: AttemptId, worker_id: WorkerId) -> None:
        """Let an attempt commit; one that was let before it, and went away, must not any more."""
        ledger = self.books.job_of(attempt_id)
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
        """Tell reduces of map output, with all else that one turn of the loop brings; those that
        start later are told what the ledger says."""
        match command:
            case PublishSegment(attempt_id=attempt_id, worker_id=worker_id):
                index = attempt_id.task_id.task_index
                at = SegmentAt(index, str(attempt_id), worker_id)
                self.books.job_of(attempt_id).segments[index] = at
                self.links.publish(attempt_id.task_id.job_id, at)
            case WithdrawSegment(attempt_id=attempt_id):
                task = attempt_id.task_id
                self.books.job_of(attempt_id).segments.pop(task.task_index, None)
                self.links.withdraw(task.job_id, task.task_index, str(attempt_id))
            case AbandonTask(task_id=task_id):
                if task_id.kind is not TaskKind.MAP:
                    return
                self.books.jobs[task_id.job_id].abandon(task_id)
                self.links.abandon(task_id.job_id, task_id.task_index)
            case _:
                assert_never(command)
        if not self._news_due:
            self._news_due = True
            self.loop.call_soon(self._tell_news)

    def _tell_news(self) -> None:
        self._news_due = False
        self.links.tell_news()
