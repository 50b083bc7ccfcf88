"""The job master's loop around the duties: time, threads, the journal's flushes, words to workers.

Holds the brain and what stands around it: ledgers, links to workers, the office that knows whether
this master leads, and its log. `event` is the one way to the brain; what `duties` lets go is
carried out here. Never decides anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, assert_never

from mrstream.cluster.daemon import Daemon
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.leader.office import Office
from mrstream.cluster.tasks import Tasks
from mrstream.dfs.errors import FencedOff
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.master import job_output
from mrstream.mapreduce.master.duties import FENCE, Duties, is_deposed
from mrstream.mapreduce.master.job_books import JobBooks
from mrstream.mapreduce.master.job_journal import AnyRecord, Journaled
from mrstream.mapreduce.master.job_ledger import JobLedger
from mrstream.mapreduce.master.worker_links import WorkerLinks
from mrstream.mapreduce.protocol import AllowCommit, RunAttempt, StopRunning
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

TICK_S = 1.0
CHECKPOINT_BYTES = 64 << 20
LOG = "journal"


class MasterShell:
    """The brain and its surroundings; all on one loop."""

    def __init__(self, daemon: Daemon) -> None:
        self.clock = daemon.clock
        self.loop = daemon.loop
        self.scheduler = Scheduler(SchedulerLimits(silence_s_max=daemon.config.dfs.dead_after_s))
        self.books = JobBooks(self.scheduler)
        self.links = WorkerLinks()
        self.journaled = Journaled()
        self.office = Office(daemon, self, LOG, checkpoint_bytes=CHECKPOINT_BYTES)
        self.duties = Duties(
            self.scheduler,
            self.office.log,
            self.journaled,
            self.books,
            self._carry_out,
            self.office.may_speak,
        )
        self.on_finish: Callable[[FinishJob], None] = lambda finish: None
        self.on_lead: Callable[[], None] = lambda: None
        self._daemon = daemon
        self._fenced: asyncio.Future[None] = daemon.loop.create_future()
        self._tasks = Tasks(daemon.loop, lambda bug: daemon.fail(bug, "job master"))
        self.spawn = self._tasks.start
        """Run something on the loop; a bug in it ends the master."""
        self._waker: asyncio.TimerHandle | None = None
        self._news_due = False

    # --- work beside the loop

    def in_thread(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Do something that blocks, such as asking the dfs."""
        return self.loop.run_in_executor(None, work, *arguments)

    async def in_dfs(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do something that changes the dfs: once it refuses whoever led before us (F6).
        `FencedOff` where a job may not do that any more: its lock has a later holder."""
        await asyncio.shield(self._fenced)
        return await self._unless_deposed(work, *arguments)

    async def _unless_deposed(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Who is fenced off decides nothing any more: what comes of it is the successor's."""
        try:
            return await self.in_thread(work, *arguments)
        except FencedOff as error:
            if not is_deposed(error):
                raise
            log.error("another leads, or led a group of before: %s", error)
            await self.loop.create_future()  # until this process ends

    async def check_fences(self, ledger: JobLedger) -> None:
        """End a job whose lock has a later holder, as far as the dfs can tell."""
        try:
            await self.in_dfs(ledger.output.check_fences)
        except FencedOff as error:
            self.lock_lost(ledger, error)
        except ClusterError as error:
            log.warning("cannot see whether the lock of %s holds: %s", ledger.job_id, error)

    def lock_lost(self, ledger: JobLedger, error: FencedOff) -> None:
        """A job may change nothing any more: it fails."""
        self.duties.lock_lost(ledger.job_id, error, self.clock.now_s(), self.clock.wall_s())
        self._watch()
        self._set_waker()

    async def close(self) -> None:
        """End what was begun; make durable what was decided."""
        if self._waker is not None:
            self._waker.cancel()
        self._tasks.cancel()
        await self._tasks.over()
        job_output.stop_trying()
        await self.office.stop()

    # --- the order of duties

    @property
    def is_alone(self) -> bool:
        """One master, over a journal that never was a group's."""
        return isinstance(self.office.journal, Journal)

    def load(self, pieces: Iterator[bytes]) -> None:
        """The state of a checkpoint."""
        self.journaled.restore(pieces, ())

    def apply(self, payload: bytes) -> None:
        """A record of the log."""
        self.journaled.restore((), ((0, payload),))

    def lead(self, epoch: int) -> None:
        """All that was ever acknowledged is folded: begin a life of the master."""
        if self.is_alone:
            # Nobody else can ever have led: workers and the dfs need not be told one from another.
            dfs_files.serve(self._daemon.cluster)
            self._fenced.set_result(None)
        else:
            self.links.epoch = epoch
            dfs_files.serve(self._daemon.cluster, fence=(FENCE, epoch))
            self.duties.await_fence()
            self.spawn(self._raise_fence(epoch))
        self.duties.begin_life(int(self.clock.wall_s() * 1000))
        self.on_lead()
        self._watch()

    async def _raise_fence(self, epoch: int) -> None:
        """Have the dfs refuse whoever led before; nothing is changed there before that."""
        await self._unless_deposed(job_output.raise_fence, (FENCE, epoch))
        log.info("the dfs knows that epoch=%d leads", epoch)
        self._fenced.set_result(None)
        self.duties.fence_raised()
        self._watch()

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

    async def settled(self) -> None:
        """Return once all that was said so far survives a crash, and an answer may leave."""
        await self.office.settled(self.office.seen)

    def _watch(self) -> None:
        """Be told when the next thing can be said: once for all that one commit makes durable."""
        self.office.watch(self.duties.gate)

    def _set_waker(self) -> None:
        """Wake the brain when it says that waiting tasks may start then."""
        if self._waker is not None:
            self._waker.cancel()
            self._waker = None
        wake_at_s = self.scheduler.wake_at_s
        if wake_at_s is not None:
            delay_s = max(0.001, wake_at_s - self.clock.now_s() + 0.001)
            if delay_s < TICK_S:
                self._waker = self.loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        if self.office.is_leading:  # else that time is nobody's silence; the next tick looks
            self.event(Tick())

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
        commits = ledger.rules.commits(task)
        order = RunAttempt(
            name,
            len(ledger.spec.splits),
            split=ledger.spec.splits[task.task_index] if is_map else None,
            output_directory=ledger.output.committer.attempt_dir(name) if commits else "",
            keep_input=ledger.rules.is_last_try(attempt_id),
        )
        self.links.run(worker_id, ledger, order, is_map=is_map)

    def _grant(self, attempt_id: AttemptId, worker_id: WorkerId) -> None:
        """Let an attempt commit; those that were let before it, in any life, must not any more."""
        ledger = self.books.job_of(attempt_id)
        before = [a for a in self.duties.to_fence(attempt_id) if a not in ledger.fenced]
        if before:
            self.spawn(self._fence(ledger, before, attempt_id))
        else:
            self.links.push(worker_id, AllowCommit(str(attempt_id)))

    async def _fence(self, ledger: JobLedger, before: list[AttemptId], after: AttemptId) -> None:
        """Take the output of the attempts before away; then ask again for the one after them."""
        delay_s = 0.0
        try:
            for attempt_id in before:
                await self.in_dfs(ledger.output.committer.abort_task, str(attempt_id))
                ledger.fenced[attempt_id] = None
        except FencedOff as error:
            self.lock_lost(ledger, error)
            return
        except ClusterError as error:
            log.warning("cannot fence %s yet: %s", ", ".join(map(str, before)), error)
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
