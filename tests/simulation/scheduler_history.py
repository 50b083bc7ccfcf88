"""Random histories of a small cluster around the real scheduler, with a referee.

Takes a seed; makes workers, jobs and faults of it (deaths, partitions that heal, failing and
hanging attempts, failed fetches, lost segments, kills, pauses and crashes of the master, whose disk
forgets what was not synced), runs them to the end and raises AssertionError when the master breaks
a promise. The referee judges by what workers, reduces and clients really see, not by the
scheduler's own tables: what was carried out must rest on durable records (M1). Then the same
events are given to a second scheduler: same events, same commands (S6).

Replay one seed by hand:  python tests/simulation --seed N
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import assert_never

from mrstream.mapreduce.master.duties import Duties
from mrstream.mapreduce.master.job_journal import JobClosed, OpenJob, PriorityChanged
from mrstream.mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    LoseWorker,
    PublishSegment,
    QuarantineWorker,
    RecordCommit,
    ReleaseWorker,
    StartAttempt,
    WithdrawSegment,
)
from mrstream.mapreduce.scheduler.events import (
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
    JobSettings,
    JobSubmitted,
    KillAttemptRequested,
    MapTaskSpec,
    OutputLost,
    ShuffleFinished,
    Tick,
    WorkerDraining,
    WorkerHeard,
    WorkerRegistered,
    WorkerResumed,
)
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    HostName,
    JobId,
    RackName,
    TaskId,
    TaskKind,
    WorkerId,
    parse_attempt_id,
    parse_task_id,
)
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from tests.simulation.job_master import LIMITS, SimJobMaster, accepted, done_of

FAULTS_END_AT_S = 120.0
JOBS_END_BEFORE_S = 4_000.0
STEPS_MAX = 200_000
HEARTBEAT_S = 3.0
End = AttemptSucceeded | AttemptFailed | AttemptKilled


@dataclass
class Body:
    """An attempt as the worker has it."""

    attempt_id: AttemptId
    is_alive: bool = True
    wants_commit: bool = False
    fetched: dict[int, AttemptId] = field(default_factory=dict)


@dataclass
class Box:
    """A worker as it really is."""

    worker_id: WorkerId
    host: HostName
    rack: RackName
    slots: int
    map_slots: int
    reduce_slots: int
    is_up: bool = True
    is_cut_off: bool = False
    bodies: dict[AttemptId, Body] = field(default_factory=dict)
    unheard: dict[AttemptId, End] = field(default_factory=dict)
    """Ends of attempts that the master has not acknowledged."""
    segments: dict[AttemptId, None] = field(default_factory=dict)


@dataclass
class Book:
    """What the referee knows of a job."""

    submitted: JobSubmitted
    journal: dict[TaskId, CommittedTask] = field(default_factory=dict)
    published: dict[int, tuple[AttemptId, WorkerId]] = field(default_factory=dict)
    skipped: dict[int, None] = field(default_factory=dict)
    failures: dict[TaskId, int] = field(default_factory=dict)
    granted: dict[TaskId, AttemptId] = field(default_factory=dict)
    abandoned: dict[TaskId, None] = field(default_factory=dict)
    finished: FinishJob | None = None
    finished_in_life: int = 0
    was_killed: bool = False
    is_accepted: bool = False
    """Its client was told so."""
    is_closed: bool = False
    priorities: list[int] = field(default_factory=list)
    """What people asked for."""
    priority_answered: int = -1
    """Up to which of them they had an answer."""


class History:
    """One seeded history, from first worker to last job."""

    def __init__(self, seed: int, duties: type[Duties] = Duties) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_s = 0.0
        self.master = SimJobMaster(seed, self.chance, self._judge, duties)
        self._flush_due = False
        self.boxes: dict[WorkerId, Box] = {}
        self.books: dict[JobId, Book] = {}
        self.started: dict[AttemptId, None] = {}
        self.connected: dict[WorkerId, None] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.failure_rate = self.chance.choice([0.0, 0.02, 0.1, 0.3])
        self.fault_rate = self.chance.choice([0.0, 0.02, 0.08])
        self._plan()

    @property
    def log(self) -> list[tuple[int, float, Event, list[Command]]]:
        return self.master.log

    def run(self) -> None:
        """Run to the end of all jobs; raise AssertionError at the first broken promise."""
        for _ in range(STEPS_MAX):
            if self.is_over():
                break
            at_s, _, action = heappop(self._queue)
            self.now_s = max(self.now_s, at_s)  # after a pause, what was due meanwhile comes late
            assert self.now_s < JOBS_END_BEFORE_S, f"not over at {self.now_s} s: {self._open()}"
            action()
        assert self.is_over(), f"{STEPS_MAX} steps were not enough: {self._open()}"
        self._check_replay()

    def is_over(self) -> bool:
        return bool(self.books) and all(book.is_closed for book in self.books.values())

    def _open(self) -> list[JobId]:
        return [job_id for job_id, book in self.books.items() if not book.finished]

    # --- the plan ---------------------------------------------------------------------

    def _plan(self) -> None:
        chance = self.chance
        is_shared = chance.random() < 0.6
        for number in range(chance.randint(1, 7)):
            slots = chance.randint(1, 3)
            box = Box(
                WorkerId(f"w{number}"),
                HostName(f"h{number}"),
                RackName(f"r{number % 3}"),
                slots if is_shared else 2 * slots,
                slots,
                slots,
            )
            self.boxes[box.worker_id] = box
            self._at(chance.uniform(0, 3), lambda box=box: self._beat(box))  # type: ignore[misc]
        for number in range(chance.randint(1, 4)):
            self._at(chance.uniform(0, 40), lambda number=number: self._submit(number))  # type: ignore[misc]
        # The first job is there from the start, so that a history is never over before it begins.
        self._submit(99)
        self._at(0.5, self._tick)
        self._at(1.0, self._trouble)

    def _submit(self, number: int) -> None:
        chance = self.chance
        hosts = [box.host for box in self.boxes.values()]
        maps = tuple(
            MapTaskSpec(1, tuple(chance.sample(hosts, min(len(hosts), chance.randint(0, 3)))))
            for _ in range(chance.choice([0, 1, 3, 12, 30]))
        )
        settings = JobSettings(
            priority=chance.randint(1, 5),
            map_attempts_max=chance.randint(1, 4),
            reduce_attempts_max=chance.randint(2, 4),
            map_failures_percent_max=chance.choice([0, 0, 20]),
            slowstart=chance.choice([0.0, 0.05, 0.5, 1.0]),
            backup_maps=chance.random() < 0.7,
            backup_reduces=chance.random() < 0.7,
            task_timeout_s=chance.choice([20.0, 60.0]),
            locality_wait_s=chance.choice([0.0, 1.0, 3.0]),
            workers_max=chance.choice([0, 0, 0, 2]),
            running_maps_max=chance.choice([0, 0, 0, 3]),
        )
        job_id = JobId(f"job_{self.seed}_{number:04d}")
        event = JobSubmitted(job_id, maps, chance.choice([0, 1, 2, 8]), settings)
        self.books[job_id] = Book(event)
        self._ask(self.books[job_id])

    def _ask(self, book: Book) -> None:
        """A client submits; it is answered once that is durable, and asks again until then."""
        self.master.append(accepted(book.submitted, self.now_s))
        self.master.when_durable(self._in_this_life(lambda: self._accept(book)))
        self._flush_soon()

    def _accept(self, book: Book) -> None:
        book.is_accepted = True
        self._soon(self._in_this_life(lambda: self._tell(book.submitted)))

    def _in_this_life(self, action: Callable[[], None]) -> Callable[[], None]:
        """What a master meant to do is gone with it."""
        life = self.master.lives

        def act() -> None:
            if self.master.lives == life:
                action()

        return act

    def _at(self, at_s: float, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (max(at_s, self.now_s), self._count, action))

    def _soon(self, action: Callable[[], None]) -> None:
        self._at(self.now_s + self.chance.uniform(0.001, 0.05), action)

    # --- talking to the scheduler -------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self.master.event(event, self.now_s)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self.master.is_durable and not self._flush_due:
            self._flush_due = True
            at_s = self.now_s + self.chance.uniform(0.0005, 0.01)
            self._at(at_s, self._in_this_life(self._flush))

    def _flush(self) -> None:
        if self.now_s < FAULTS_END_AT_S and self.chance.random() < self.fault_rate / 4:
            self._restart_master()  # in the middle of it, when a crash hurts most
            return
        self._flush_due = False
        self.master.commit()
        self._flush_soon()

    def _report(self, box: Box, event: Event) -> None:
        """A worker tells the master something, if it can be heard."""
        if box.is_up and not box.is_cut_off and box.worker_id in self.connected:
            self._tell(event)

    def _report_end(self, box: Box, event: End) -> None:
        """As `_report`; said again with every registration until it is acknowledged."""
        box.unheard[event.attempt_id] = event
        self._say_end(box, event)

    def _say_end(self, box: Box, event: End) -> None:
        if not box.is_up or box.is_cut_off or box.worker_id not in self.connected:
            return

        def acknowledge() -> None:
            if box.worker_id in self.connected and box.unheard.get(event.attempt_id) is event:
                del box.unheard[event.attempt_id]

        self._tell(event)
        self.master.when_durable(acknowledge)

    def _beat(self, box: Box) -> None:
        """A sign of life; a worker that the master does not know registers first."""
        if box.worker_id in self.connected:
            self._report(box, WorkerHeard(box.worker_id))
        else:
            self._register(box)
        self._at(self.now_s + HEARTBEAT_S, lambda: self._beat(box))

    def _tick(self) -> None:
        self._tell(Tick())
        wake_at_s = self.master.brain.wake_at_s
        next_s = self.now_s + 1.0
        self._at(next_s if wake_at_s is None else min(next_s, wake_at_s), self._tick)

    def _register(self, box: Box) -> None:
        if not box.is_up or box.is_cut_off:
            return
        self.connected[box.worker_id] = None
        running = self._named(box)
        self._tell(
            WorkerRegistered(
                box.worker_id,
                box.host,
                box.slots,
                box.map_slots,
                box.reduce_slots,
                box.rack,
                running,
                tuple(box.segments),
            )
        )
        for body in list(box.bodies.values()):
            if body.wants_commit:
                self._report(box, CommitRequested(body.attempt_id))
        for event in list(box.unheard.values()):
            self._say_end(box, event)

    def _named(self, box: Box) -> tuple[AttemptId, ...]:
        """What a worker says it runs: bodies, and what ended unheard as far as slots go."""
        room = {TaskKind.MAP: box.map_slots, TaskKind.REDUCE: box.reduce_slots}
        named: list[AttemptId] = []
        for attempt_id in dict.fromkeys([*box.bodies, *box.unheard]):
            kind = attempt_id.task_id.kind
            if attempt_id not in box.segments and room[kind] > 0 and len(named) < box.slots:
                room[kind] -= 1
                named.append(attempt_id)
        return tuple(named)

    # --- the referee --------------------------------------------------------------------

    def _judge(self, command: Command) -> None:
        match command:
            case StartAttempt():
                self._start(command)
            case KillAttempt():
                box = self.boxes[command.worker_id]
                if command.reason.startswith("no news"):
                    self._count_failure(command.attempt_id)
                if box.worker_id in self.connected and not box.is_cut_off:
                    self._soon(lambda: self._kill(box, command.attempt_id))
            case GrantCommit():
                self._grant(command)
            case RecordCommit():
                self._record(command)
            case PublishSegment():
                book = self.books[command.attempt_id.task_id.job_id]
                index = command.attempt_id.task_id.task_index
                assert book.journal[command.attempt_id.task_id].attempt_id == command.attempt_id, (
                    f"S2: {command.attempt_id} is published but not committed"
                )
                book.published[index] = (command.attempt_id, command.worker_id)
            case WithdrawSegment():
                book = self.books[command.attempt_id.task_id.job_id]
                book.published.pop(command.attempt_id.task_id.task_index, None)
            case AbandonTask():
                book = self.books[command.task_id.job_id]
                book.abandoned[command.task_id] = None
                book.journal.pop(command.task_id, None)
                if command.task_id.kind is TaskKind.MAP:
                    book.skipped[command.task_id.task_index] = None
            case FinishJob():
                self._finish(command)
            case LoseWorker():
                box = self.boxes[command.worker_id]
                is_well = box.is_up and not box.is_cut_off and box.worker_id in self.connected
                assert not is_well, f"{box.worker_id} beats and was lost: {command.reason}"
            case QuarantineWorker() | ReleaseWorker():
                pass
            case _:
                assert_never(command)

    def _start(self, command: StartAttempt) -> None:
        attempt_id = command.attempt_id
        assert attempt_id not in self.started, f"S4: {attempt_id} was started twice"
        self.started[attempt_id] = None
        assert not self.books[attempt_id.task_id.job_id].finished
        box = self.boxes[command.worker_id]
        if not box.is_up or box.is_cut_off or box.worker_id not in self.connected:
            return  # the message is lost; the worker's silence will tell
        body = Body(attempt_id)
        box.bodies[attempt_id] = body
        assert len(box.bodies) <= box.slots, f"S5: {box.worker_id} runs {list(box.bodies)}"
        book = self.books[attempt_id.task_id.job_id]
        if self.chance.random() < self.failure_rate and self.now_s < FAULTS_END_AT_S:
            self._misbehave(box, body)
        elif attempt_id.task_id.kind is TaskKind.MAP:
            usual_s = self.chance.choice([0.2, 1.0, 1.0, 1.5, 8.0])
            done = self._ask_commit if not book.submitted.reduces else self._map_done
            self._at(self.now_s + usual_s, lambda: done(box, body))
        else:
            self._soon(lambda: self._shuffle(box, body))

    def _misbehave(self, box: Box, body: Body) -> None:
        if self.chance.random() < 0.2:
            return  # hangs: the timeout finds it
        at_s = self.now_s + self.chance.uniform(0.01, 2.0)
        self._at(at_s, lambda: self._fail(box, body))

    def _grant(self, command: GrantCommit) -> None:
        task_id = command.attempt_id.task_id
        book = self.books[task_id.job_id]
        assert task_id not in book.journal, f"S1: {task_id} is committed and granted again"
        book.granted[task_id] = command.attempt_id
        box = self.boxes[command.worker_id]
        body = box.bodies.get(command.attempt_id)
        if body is not None and not box.is_cut_off:
            self._soon(lambda: self._succeed(box, body))

    def _record(self, command: RecordCommit) -> None:
        task_id = command.attempt_id.task_id
        book = self.books[task_id.job_id]
        is_final = task_id.kind is TaskKind.REDUCE or not book.submitted.reduces
        if is_final:
            assert task_id not in book.journal, f"S1/S3: {task_id} was committed twice"
        else:
            assert task_id.task_index not in book.published, f"S1: {task_id} has a segment already"
        book.journal[task_id] = CommittedTask(command.attempt_id, command.worker_id)

    def _finish(self, command: FinishJob) -> None:
        book = self.books[command.job_id]
        assert book.finished_in_life < self.master.lives, f"{command.job_id} ended twice"
        assert book.finished in (None, command), f"M1: {command} was {book.finished} before"
        book.finished, book.finished_in_life = command, self.master.lives
        at_s = self.now_s + self.chance.uniform(0.05, 1.0)
        self._at(at_s, self._in_this_life(lambda: self._close(command.job_id)))
        kind = TaskKind.REDUCE if book.submitted.reduces else TaskKind.MAP
        total = book.submitted.reduces or len(book.submitted.maps)
        if command.outcome is JobOutcome.SUCCEEDED:
            done = [task for task in book.journal if task.kind is kind]
            given_up = [task for task in book.abandoned if task.kind is kind]
            assert len({*done, *given_up}) == total, f"{command.job_id} is not complete"
        elif command.outcome is JobOutcome.FAILED:
            assert command.culprit is not None
            settings = book.submitted.settings
            limit = min(settings.map_attempts_max, settings.reduce_attempts_max)
            assert book.failures.get(command.culprit.task_id, 0) >= limit, (
                f"{command.job_id} failed although {command.culprit.task_id} had attempts left"
            )
        else:
            assert book.was_killed

    def _close(self, job_id: JobId) -> None:
        """The output is final and the report written: nothing more is to be done."""
        submission = accepted(self.books[job_id].submitted, 0.0).submission
        self.master.append(JobClosed(job_id, submission, self.now_s))
        self.master.when_durable(lambda: self._closed(job_id))
        self._flush_soon()

    def _closed(self, job_id: JobId) -> None:
        self.books[job_id].is_closed = True
        for box in self.boxes.values():
            for attempt_id in list(box.segments):
                if attempt_id.task_id.job_id == job_id:
                    del box.segments[attempt_id]

    # --- what attempts do ---------------------------------------------------------------

    def _gone(self, box: Box, body: Body) -> bool:
        return not body.is_alive or not box.is_up

    def _end(self, box: Box, body: Body) -> None:
        body.is_alive = False
        box.bodies.pop(body.attempt_id, None)

    def _kill(self, box: Box, attempt_id: AttemptId) -> None:
        box.segments.pop(attempt_id, None)
        body = box.bodies.get(attempt_id)
        if box.is_up:
            if body is not None:
                self._end(box, body)
            self._report_end(box, AttemptKilled(attempt_id, "killed"))

    def _fail(self, box: Box, body: Body) -> None:
        if self._gone(box, body):
            return
        self._end(box, body)
        self._count_failure(body.attempt_id)
        self._report_end(box, AttemptFailed(body.attempt_id, "exit status 1"))

    def _count_failure(self, attempt_id: AttemptId) -> None:
        failures = self.books[attempt_id.task_id.job_id].failures
        failures[attempt_id.task_id] = failures.get(attempt_id.task_id, 0) + 1

    def _map_done(self, box: Box, body: Body) -> None:
        if not self._gone(box, body):
            self._end(box, body)
            if self.books[body.attempt_id.task_id.job_id].finished is None:
                box.segments[body.attempt_id] = None
            self._report_end(box, AttemptSucceeded(body.attempt_id))

    def _ask_commit(self, box: Box, body: Body) -> None:
        if not self._gone(box, body):
            body.wants_commit = True
            self._report(box, CommitRequested(body.attempt_id))

    def _succeed(self, box: Box, body: Body) -> None:
        if not self._gone(box, body):
            if box.is_cut_off or box.worker_id not in self.connected:
                return  # it keeps the news until it can be heard, by asking again
            self._end(box, body)
            self._report_end(box, AttemptSucceeded(body.attempt_id))

    def _shuffle(self, box: Box, body: Body) -> None:
        """Fetch what is published; come back until all of it is here."""
        book = self.books[body.attempt_id.task_id.job_id]
        if self._gone(box, body) or book.finished:
            return
        self._report(box, AttemptProgress(body.attempt_id, len(body.fetched) / 100))
        for index, (map_attempt_id, worker_id) in list(book.published.items()):
            if index in body.fetched:
                continue
            source = self.boxes[worker_id]
            is_there = source.is_up and not source.is_cut_off and map_attempt_id in source.segments
            if is_there and not box.is_cut_off:
                assert book.journal[map_attempt_id.task_id].attempt_id == map_attempt_id, "S2"
                body.fetched[index] = map_attempt_id
            else:
                self._count_failure(map_attempt_id)
                self._report(box, FetchFailed(body.attempt_id, map_attempt_id))
        missing = len(book.submitted.maps) - len({**body.fetched, **book.skipped})
        if missing:
            self._at(self.now_s + 1.0, lambda: self._shuffle(box, body))
        else:
            self._report(box, ShuffleFinished(body.attempt_id))
            usual_s = self.chance.choice([0.5, 1.0, 6.0])
            self._at(self.now_s + usual_s, lambda: self._ask_commit(box, body))

    # --- trouble ------------------------------------------------------------------------

    def _trouble(self) -> None:
        if self.now_s > FAULTS_END_AT_S:
            for box in self.boxes.values():
                self._revive(box)
            return
        for box in list(self.boxes.values()):
            if self.chance.random() < self.fault_rate:
                self._hurt(box)
        if self.chance.random() < self.fault_rate / 4:
            self._restart_master()
        if self.chance.random() < self.fault_rate:
            self._meddle()
        if self.chance.random() < self.fault_rate / 2:
            self.master.checkpoint()
        if self.chance.random() < self.fault_rate / 8:
            self.now_s += self.chance.uniform(1.0, 30.0)  # the master is stopped, and goes on
        self._at(self.now_s + self.chance.uniform(0.5, 2.0), self._trouble)

    def _hurt(self, box: Box) -> None:
        how = self.chance.randrange(5)
        if not box.is_up or box.is_cut_off:
            self._revive(box)
        elif how == 0:
            self._die(box, keeps_disk=self.chance.random() < 0.5)
        elif how == 1:
            box.is_cut_off = True
            self.connected.pop(box.worker_id, None)
        elif how == 2 and box.segments:
            attempt_id = self.chance.choice(list(box.segments))
            del box.segments[attempt_id]
            self._count_failure(attempt_id)
            self._report(box, OutputLost(attempt_id, "disk error"))
        elif how == 3:
            self._report(box, WorkerDraining(box.worker_id))
            self._at(self.now_s + 5.0, lambda: self._report(box, WorkerResumed(box.worker_id)))
        else:
            self._register(box)  # a dropped connection, taken up again at once

    def _die(self, box: Box, *, keeps_disk: bool) -> None:
        box.is_up = False
        self.connected.pop(box.worker_id, None)
        for body in list(box.bodies.values()):
            self._end(box, body)
        box.unheard.clear()
        if not keeps_disk:
            box.segments.clear()
        self._at(self.now_s + self.chance.uniform(1.0, 30.0), lambda: self._revive(box))

    def _revive(self, box: Box) -> None:
        if not box.is_up or box.is_cut_off or box.worker_id not in self.connected:
            box.is_up = True
            box.is_cut_off = False
            self._register(box)

    def _meddle(self) -> None:
        """A person kills a job or an attempt, or changes a priority."""
        open_jobs = self._open()
        live = [body.attempt_id for box in self.boxes.values() for body in box.bodies.values()]
        how = self.chance.randrange(4)
        if how == 0 and len(open_jobs) > 1:
            victim = self.chance.choice(open_jobs)
            self.books[victim].was_killed = True
            self._tell(JobKilled(victim, "killed on request"))
        elif how == 1 and open_jobs:
            self._set_priority(self.chance.choice(open_jobs), self.chance.randint(1, 5))
        elif how == 2 and live:
            self._tell(KillAttemptRequested(self.chance.choice(live)))
        elif how == 3 and live:
            attempt_id = self.chance.choice(live)
            self._count_failure(attempt_id)
            self._tell(FailAttemptRequested(attempt_id))

    def _set_priority(self, job_id: JobId, priority: int) -> None:
        book = self.books[job_id]
        if not book.is_accepted:
            return
        book.priorities.append(priority)
        answered = len(book.priorities) - 1
        self.master.append(PriorityChanged(job_id, priority))
        self._tell(JobPrioritySet(job_id, priority))
        self.master.when_durable(lambda: setattr(book, "priority_answered", answered))

    def _restart_master(self) -> None:
        """Cut the power of the master; a new one knows the journal, and workers come back."""
        self.master.crash()
        self.connected.clear()
        self._flush_due = False
        self.master.start()
        for job_id, book in self.books.items():
            self._check_kept(book, self.master.journaled.jobs.get(job_id))
        self.master.restore(self.now_s)
        self.master.brain.check_invariants()
        self._flush_soon()
        for box in self.boxes.values():
            self._at(
                self.now_s + self.chance.uniform(0.1, 4.0),
                lambda box=box: self._register(box),  # type: ignore[misc]
            )
        if self.chance.random() < 0.3:
            self._at(self.now_s + self.chance.uniform(0.0, 0.02), self._restart_master)

    def _check_kept(self, book: Book, known: OpenJob | None) -> None:
        """M1: what anyone was told of a job is what the next life begins with, or less than it."""
        job_id = book.submitted.job_id
        book.published.clear()
        self._check_grants(book, known)
        if known is None:
            if not book.is_accepted:
                self._soon(self._in_this_life(lambda: self._ask(book)))
                return
            assert book.finished, f"M1: {job_id} was accepted and is forgotten"
            book.is_closed = True  # though nobody was told
            return
        assert not book.is_closed, f"M1: {job_id} was closed and is open again"
        book.is_accepted = True
        self._check_commits(book, known)
        given_up = {parse_task_id(task_id): None for task_id in known.abandoned}
        if known.decided is None:
            assert book.finished is None, f"M1: {job_id} had ended and goes on"
        for task_id in book.abandoned:
            assert task_id in given_up, f"M1: {task_id} was given up and is not any more"
        if book.priority_answered >= 0:
            may_be = book.priorities[book.priority_answered :]
            assert known.priority in may_be, f"M1: {job_id} lost its priority"
        book.abandoned = given_up

    def _check_grants(self, book: Book, known: OpenJob | None) -> None:
        """S1: who may have made output visible is known to every later life, until its task is
        over: another may only after its output was taken away."""
        for task_id, attempt_id in book.granted.items():
            if known is None or task_id in book.journal or str(task_id) in known.abandoned:
                continue
            is_over = str(attempt_id).rpartition("_")[0] in known.committed
            is_known = str(attempt_id) in known.granted_with(str(attempt_id))
            assert is_over or is_known, f"S1: {attempt_id} may have committed and is forgotten"

    def _check_commits(self, book: Book, known: OpenJob) -> None:
        found: dict[TaskId, CommittedTask] = {}
        for record in known.committed.values():
            attempt_id = parse_attempt_id(record.attempt_id)
            assert record.done == done_of(record.attempt_id), f"{attempt_id} counts another's"
            found[attempt_id.task_id] = CommittedTask(attempt_id, WorkerId(record.worker_id))
        for task_id, commit in book.journal.items():
            is_final = task_id.kind is TaskKind.REDUCE or not book.submitted.reduces
            if str(task_id) in known.abandoned and not is_final:
                continue
            assert task_id in found, f"M1: {task_id} was committed and is forgotten"
            if is_final:
                assert found[task_id] == commit, f"M1: {commit} became {found[task_id]}"
        book.journal = found

    # --- S6 -----------------------------------------------------------------------------

    def _check_replay(self) -> None:
        second = Scheduler(LIMITS)
        life = 1
        for lives, now_s, event, commands in self.log:
            if lives != life:
                second, life = Scheduler(LIMITS), lives
            again = second.handle(event, now_s)
            assert again == commands, f"S6: at {now_s} {event} gave {again}, before {commands}"


def run(seed: int) -> None:
    """Run one history; on failure name the seed and how to see it again."""
    history = History(seed)
    try:
        history.run()
    except (AssertionError, KeyError, IndexError) as error:
        error.add_note(
            f"seed {seed} at {history.now_s:.3f} s; python tests/simulation --seed {seed}"
        )
        raise
