"""Three job masters in the simulator: the real scheduler, duties and fold over real consensus
brains and the real group log on disks that forget; one leads, the others are its shadows.

Checked as things happen: C1 to C7 by the oracle of the consensus, every order and answer is of the
latest epoch that spoke (C4); a shadow's fold is that of what is committed. What workers, the dfs
and clients see of it is judged by the referee of `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.consensus.records import MARK
from mrstream.dfs.chunk import Fence, Fences
from mrstream.dfs.errors import FencedOff
from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.master.duties import FENCE, Duties, is_deposed
from mrstream.mapreduce.master.job_journal import JobAccepted, JobClosed, Journaled, OpenJob
from mrstream.mapreduce.scheduler.commands import (
    Command,
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    LoseWorker,
    RecordCommit,
    StartAttempt,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    CommitRequested,
    Event,
    JobSubmitted,
    Tick,
    WorkerHeard,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId
from mrstream.mapreduce.scheduler.limits import SchedulerLimits
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from tests.simulation.consensus.host import PlacedHost
from tests.simulation.consensus.network import Network
from tests.simulation.consensus.oracle import Oracle
from tests.simulation.consensus.process import Process
from tests.simulation.job_master import done_of
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.jobs.connection import Connection
    from tests.simulation.jobs.run import Run

LIMITS = SchedulerLimits(silence_s_max=4.0, restored_hold_s=1.5, restored_segments_wait_s=4.0)
TICK_S = 0.5
LOCKS_EVERY = 8
"""Ticks between two looks at whether the locks of jobs hold."""
OPERATE_S = 0.3
LOSS = 0.002
NAMES = ("m1", "m2", "m3")


def fold(records: Sequence[tuple[int, bytes]]) -> Journaled:
    """The state after these records of a group's log."""
    journaled = Journaled()
    journaled.restore((), ((0, payload) for _, payload in records if payload[0] != MARK))
    return journaled


def job_of(known: OpenJob) -> tuple[JobSubmitted, Fences]:
    """What its client wants run, and under which locks; as durable as the job."""
    return msgspec.msgpack.decode(known.accepted.spec, type=tuple[JobSubmitted, Fences])


def image_of(journaled: Journaled) -> bytes:
    return msgspec.msgpack.encode(list(journaled.pieces()))


class MasterHost(PlacedHost):
    """A host that a master runs on."""

    group: Masters


class GroupLog:
    """The group's log as the duties use it."""

    def __init__(self, member: JobMaster) -> None:
        self._member = member

    @property
    def seen(self) -> int:
        return self._member.replica.last

    @property
    def durable(self) -> int:
        return self._member.replica.committed

    def append(self, payload: bytes) -> int:
        """As `ReplicatedJournal.append`: the state machine applies it at once."""
        member = self._member
        member.handle(e.Proposed((payload,)))
        member.applied = member.replica.last
        return member.replica.last


class JobMaster(Process):
    """One life of one master; does what `master_shell` and the desks do."""

    host: MasterHost
    duties_kind: type[Duties] = Duties

    def __init__(self, host: MasterHost) -> None:
        self.group = host.group
        self.run: Run = self.group.run
        self.journaled = Journaled()
        self.brain = Scheduler(LIMITS)
        self.links: dict[str, Connection] = {}
        """Workers that registered, and over what each did last."""
        self.fenced: dict[AttemptId, None] = {}
        self.settling: list[tuple[int, Callable[[], None]]] = []
        self.number = 0
        self._ticks = 0
        super().__init__(host)
        self.duties = self.duties_kind(
            self.brain, GroupLog(self), self.journaled, self, self._carry_out, self.may_speak
        )

    def begin(self) -> None:
        self.group.world.at_host(self.host.name, TICK_S, self._tick_brain)

    # --- the state machine

    def load(self, image: bytes) -> None:
        self.journaled.restore(msgspec.msgpack.decode(image, type=list[bytes]), ())

    def apply_one(self, payload: bytes) -> None:
        if payload[0] != MARK:
            self.journaled.restore((), ((0, payload),))

    def image(self) -> bytes:
        return image_of(self.journaled)

    def lead(self, epoch: int) -> None:
        super().lead(epoch)
        if self.may_speak():  # else it was stopped, another leads, and nothing will leave here
            self.run.took_over(self)
        self.duties.await_fence()
        self.duties.begin_life(1000)
        for known in list(self.journaled.jobs.values()):
            asked = job_of(known)[0]
            self.duties.restore(known, asked, self.now_s, self.now_s)
        self.change_dfs(None, lambda: None, self._fence_raised)

    def _fence_raised(self) -> None:
        self.duties.fence_raised()

    @property
    def is_leading(self) -> bool:
        is_first = self.serving_epoch == self.replica.epoch and self.replica.is_leading
        return self.is_alive and is_first and not self.is_parked

    def may_speak(self) -> bool:
        return self.is_leading and self.may_answer()

    @property
    def now_s(self) -> float:
        return self.host.clock_s()

    def _answer(self) -> None:
        """More is committed, or the lease has come back."""
        if not self.is_alive or not self.host.is_lively:
            return
        self.duties.gate.release()
        while self.settling and self.settling[0][0] <= self.replica.committed and self.may_speak():
            self.oracle.answered(self.me, self.serving_epoch)
            self.settling.pop(0)[1]()

    def settled(self, action: Callable[[], None]) -> None:
        """Act once all that was said so far is committed, and an answer may leave."""
        self.settling.append((self.replica.last, action))
        self._answer()

    # --- the order of duties

    def event(self, event: Event) -> None:
        if self.is_alive and self.serving_epoch:
            self.duties.event(event, self.now_s, self.now_s)
            self.brain.check_invariants()

    def take_down(self, event: Event, commands: Sequence[Command], wall_s: float) -> None:
        """The books: nothing is shown to anybody."""

    def result(self, attempt_id: AttemptId) -> tuple[Done, float]:
        return done_of(str(attempt_id)), 1.0

    def _carry_out(self, command: Command) -> None:
        if not self.is_alive:
            return
        self.oracle.answered(self.me, self.serving_epoch)
        match command:
            case StartAttempt() | KillAttempt():
                self._order(command.worker_id, command)
            case GrantCommit():
                self._grant(command)
            case RecordCommit():
                self.run.recorded(command)
            case FinishJob():
                self._finish(command)
            case LoseWorker(worker_id=worker):
                link = self.links.get(worker)
                if link is not None and not self.brain.knows(worker):
                    self.links.pop(worker).turn_out()
            case _:
                pass  # news of segments, and of whom to trust

    def _order(self, worker: str, order: StartAttempt | KillAttempt | GrantCommit) -> None:
        link = self.links.get(worker)
        if link is not None:
            fences = self.locks_of(order.attempt_id.task_id.job_id)
            link.push(partial(self.run.workers[worker].pushed, self.serving_epoch, order, fences))

    def _grant(self, command: GrantCommit) -> None:
        self.run.granted(command, self.serving_epoch)
        before = [a for a in self.duties.to_fence(command.attempt_id) if a not in self.fenced]
        if not before:
            self._order(command.worker_id, command)
            return

        def fenced() -> None:
            self.fenced.update(dict.fromkeys(before))
            self.event(CommitRequested(command.attempt_id))

        job_id = command.attempt_id.task_id.job_id
        drop = partial(self.run.dfs.drop, before)
        self.change_dfs(job_id, drop, fenced, partial(self._lock_lost, job_id))

    def _finish(self, command: FinishJob) -> None:
        known, job_id, dfs = self.journaled.jobs[command.job_id], command.job_id, self.run.dfs
        is_well = command.outcome is JobOutcome.SUCCEEDED

        def closed() -> None:
            submission = known.accepted.submission
            self.duties.append(JobClosed(job_id, submission, self.now_s))
            self.settled(partial(self.run.closed, job_id))

        def lost(error: FencedOff) -> None:
            """A later holder may have the directory by now."""
            self.change_dfs(None, partial(self.clear_lost, job_id), closed)

        change = partial(dfs.commit_job, command) if is_well else partial(dfs.abort_job, job_id)
        self.change_dfs(job_id, change, closed, lost)

    def clear_lost(self, job_id: JobId) -> None:
        self.run.dfs.drop_attempts(job_id)

    # --- the locks of jobs

    def locks_of(self, job_id: JobId) -> Fences:
        known = self.journaled.jobs.get(job_id)
        return () if known is None else job_of(known)[1]

    def own_fence(self) -> Fence:
        return FENCE, self.serving_epoch

    def fences_for(self, job_id: JobId | None) -> Fences:
        return (self.own_fence(), *(() if job_id is None else self.locks_of(job_id)))

    def _lock_lost(self, job_id: JobId, error: FencedOff) -> None:
        self.run.lost(job_id, error)
        if self.is_alive and self.serving_epoch:
            self.duties.lock_lost(job_id, error, self.now_s, self.now_s)

    def check_lock(self, job_id: JobId, then: Callable[[], None] = lambda: None) -> None:
        def lost(error: FencedOff) -> None:
            self._lock_lost(job_id, error)
            then()

        self.change_dfs(job_id, lambda: None, then, lost)

    def change_dfs(
        self,
        job_id: JobId | None,
        change: Callable[[], None],
        then: Callable[[], None],
        lost: Callable[[FencedOff], None] = lambda error: None,
    ) -> None:
        """A thread of ours asks the dfs, under our fence and those of the job; it may take long,
        and outlive us. `lost` hears if it is the job that may not."""

        def refused(error: FencedOff) -> None:
            if not is_deposed(error):
                lost(error)  # else we wait to be deposed

        self.run.dfs.asked(self, job_id, self.fences_for(job_id), change, then, refused)

    # --- requests

    def register(
        self, link: Connection, event: WorkerRegistered, respond: Callable[[int], None]
    ) -> None:
        """`respond` hears our epoch; 0: we do not lead."""
        if not self.may_speak():
            respond(0)
            return
        before = self.links.get(link.worker)
        if before is not None and before is not link:
            before.turn_out()
        self.links[link.worker] = link
        self.event(event)
        respond(self.serving_epoch)

    def tell(self, link: Connection, event: Event, acknowledge: Callable[[], None]) -> None:
        """A worker says something; it is heard without a lease too, and acknowledged when that is
        settled. Whoever beats must be registered over that very connection; all else is true
        wherever it comes from."""
        is_beat = isinstance(event, WorkerHeard)
        if not self.is_leading or (is_beat and self.links.get(link.worker) is not link):
            return

        def told() -> None:
            self.event(event)
            self.settled(acknowledge)

        job_id = event.attempt_id.task_id.job_id if isinstance(event, AttemptFailed) else None
        if job_id is not None and self.locks_of(job_id):
            self.check_lock(job_id, told)
        else:
            told()

    def submit(
        self,
        submission: str,
        asked: JobSubmitted,
        locks: Fences,
        respond: Callable[[str], None],
    ) -> None:
        """As the desk: said again it is the same job; the answer "" means that we do not lead."""
        if not self.may_speak():
            respond("")
            return
        known = self.journaled.find_submission(submission)
        if known is None:
            self.number = max(self.number, self.journaled.jobs_count) + 1
            known = self.journaled.job_id(self.number)
            asked = msgspec.structs.replace(asked, job_id=JobId(known))
            spec = msgspec.msgpack.encode((asked, locks))
            self.duties.append(JobAccepted(known, submission, spec, 1, False, self.now_s))
            self.settled(partial(self.event, asked))
        self.settled(partial(respond, known))

    def _tick_brain(self) -> None:
        if not self.is_alive:
            return
        self.group.world.at_host(self.host.name, TICK_S, self._tick_brain)
        if self.may_speak():
            self.event(Tick())
            self._ticks += 1
            if self._ticks % LOCKS_EVERY == 0:
                for job in filter(self.locks_of, [view.job_id for view in self.brain.jobs()]):
                    self.check_lock(job)


class Masters:
    """All of them."""

    def __init__(self, world: World, run: Run, kind: type[JobMaster], lease_s: float = 1.0) -> None:
        self.world, self.run = world, run
        self.hosts: dict[str, MasterHost] = {}
        self._asks = 0
        timing = Timing(lease_s=lease_s, beat_s=lease_s / 6)
        self.oracle = Oracle(timing, lambda: world.now_s, lambda rows: image_of(fold(rows)))
        for name in NAMES:
            host = MasterHost(name, Network(world), self.oracle, timing, kind)
            host.group = self
            host.clock.rate = world.random.choice([0.99, 1.0, 1.01])
            host.message_bytes_max = 10_000
            host.network = self._carry
            self.hosts[name] = host
        self.oracle.ballot_of = lambda member: self.hosts[host_of(member)].durable_ballot()
        for host in self.hosts.values():
            host.start()
        first = self.hosts[NAMES[0]].process
        assert first is not None
        first.handle(e.Found())
        self._operate()

    def _carry(self, sender: MemberId, to: MemberId, word: Any) -> None:
        if self.world.random.random() < LOSS:
            return
        receive = partial(self.hosts[host_of(to)].receive, sender, to, word)
        self.world.send(host_of(sender), host_of(to), receive)

    def _operate(self) -> None:
        """As `cluster up`: who is no member yet listens, catches up and votes."""
        self.world.after(OPERATE_S, self._operate)
        leader = self.leader
        if leader is None:
            return
        members = leader.replica.members
        for host in self.hosts.values():
            member = host.member()
            if host.process is None or member in members.voters:
                continue
            self._asks += 1
            wish: e.Event = e.AddLearner(self._asks, member)
            if member in members.learners:
                wish = e.Promote(self._asks, member)
            self.hosts[leader.host.name].when_running(leader, partial(leader.handle, wish))
            return

    def at(self, name: str) -> JobMaster | None:
        process = self.hosts[name].process
        return process if isinstance(process, JobMaster) else None

    @property
    def leader(self) -> JobMaster | None:
        running = [self.at(name) for name in NAMES]
        serving = [master for master in running if master is not None and master.may_speak()]
        return max(serving, key=lambda master: master.serving_epoch, default=None)

    def check_shadows(self) -> None:
        """A shadow's fold is that of what it has applied of what is committed."""
        for name in NAMES:
            master = self.at(name)
            if master is not None and master.serving_epoch == 0 and master.applied:
                expected = image_of(fold(self.oracle.committed[: master.applied]))
                assert master.image() == expected, f"C2: {master.me} has another state"
