"""Random histories of a small cluster around the real scheduler, with a referee.

Takes a seed; makes workers, jobs and faults of it (deaths, partitions that heal, failing and
hanging attempts, failed fetches, lost segments, kills, restarts of the master), runs them to
the end and raises AssertionError when the scheduler breaks a promise. The referee judges by
what workers and reduces really see, not by the scheduler's own tables. Then the same events
are given to a second scheduler: same events, same commands (S6).

Replay one seed by hand:  python tests/simulation --seed N
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    PublishSegment,
    RecordCommit,
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
    JobSettings,
    JobSubmitted,
    KillAttemptRequested,
    MapTaskSpec,
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
    TaskId,
    TaskKind,
    WorkerId,
)
from mapreduce.scheduler.scheduler import Scheduler

FAULTS_END_AT_S = 120.0
JOBS_END_BEFORE_S = 4_000.0
STEPS_MAX = 200_000


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
    was_killed: bool = False


class History:
    """One seeded history, from first worker to last job."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_s = 0.0
        self.scheduler = Scheduler()
        self.lives = 1
        self.log: list[tuple[int, float, Event, list[Command]]] = []
        self.boxes: dict[WorkerId, Box] = {}
        self.books: dict[JobId, Book] = {}
        self.started: dict[AttemptId, None] = {}
        self.connected: dict[WorkerId, None] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.failure_rate = self.chance.choice([0.0, 0.02, 0.1])
        self.fault_rate = self.chance.choice([0.0, 0.02, 0.08])
        self._plan()

    def run(self) -> None:
        """Run to the end of all jobs; raise AssertionError at the first broken promise."""
        for _ in range(STEPS_MAX):
            if self.is_over():
                break
            self.now_s, _, action = heappop(self._queue)
            assert self.now_s < JOBS_END_BEFORE_S, f"not over at {self.now_s} s: {self._open()}"
            action()
        assert self.is_over(), f"{STEPS_MAX} steps were not enough: {self._open()}"
        self._check_replay()

    def is_over(self) -> bool:
        return bool(self.books) and all(book.finished for book in self.books.values())

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
            self._at(chance.uniform(0, 3), lambda box=box: self._register(box))  # type: ignore[misc]
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
            map_attempts_max=chance.randint(2, 4),
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
        self._tell(event)

    def _at(self, at_s: float, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (max(at_s, self.now_s), self._count, action))

    def _soon(self, action: Callable[[], None]) -> None:
        self._at(self.now_s + self.chance.uniform(0.001, 0.05), action)

    # --- talking to the scheduler -------------------------------------------------------

    def _tell(self, event: Event) -> None:
        commands = self.scheduler.handle(event, self.now_s)
        self.log.append((self.lives, self.now_s, event, commands))
        for command in commands:
            self._judge(command)
        self.scheduler.check_invariants()

    def _report(self, box: Box, event: Event) -> None:
        """A worker tells the master something, if it can be heard."""
        if box.is_up and not box.is_cut_off and box.worker_id in self.connected:
            self._tell(event)

    def _tick(self) -> None:
        self._tell(Tick())
        wake_at_s = self.scheduler.wake_at_s
        next_s = self.now_s + 1.0
        self._at(next_s if wake_at_s is None else min(next_s, wake_at_s), self._tick)

    def _register(self, box: Box) -> None:
        if not box.is_up or box.is_cut_off:
            return
        self.connected[box.worker_id] = None
        running = tuple(body.attempt_id for body in box.bodies.values() if body.is_alive)
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
            case _:
                pass

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
        assert book.finished is None, f"{command.job_id} ended twice"
        book.finished = command
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
        for box in self.boxes.values():
            for attempt_id in list(box.segments):
                if attempt_id.task_id.job_id == command.job_id:
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
        if body is not None and box.is_up:
            self._end(box, body)
            self._report(box, AttemptKilled(attempt_id, "killed"))

    def _fail(self, box: Box, body: Body) -> None:
        if self._gone(box, body):
            return
        self._end(box, body)
        self._count_failure(body.attempt_id)
        self._report(box, AttemptFailed(body.attempt_id, "exit status 1"))

    def _count_failure(self, attempt_id: AttemptId) -> None:
        failures = self.books[attempt_id.task_id.job_id].failures
        failures[attempt_id.task_id] = failures.get(attempt_id.task_id, 0) + 1

    def _map_done(self, box: Box, body: Body) -> None:
        if not self._gone(box, body):
            self._end(box, body)
            if self.books[body.attempt_id.task_id.job_id].finished is None:
                box.segments[body.attempt_id] = None
            self._report(box, AttemptSucceeded(body.attempt_id))

    def _ask_commit(self, box: Box, body: Body) -> None:
        if not self._gone(box, body):
            body.wants_commit = True
            self._report(box, CommitRequested(body.attempt_id))

    def _succeed(self, box: Box, body: Body) -> None:
        if not self._gone(box, body):
            if box.is_cut_off or box.worker_id not in self.connected:
                return  # it keeps the news until it can be heard, by asking again
            self._end(box, body)
            self._report(box, AttemptSucceeded(body.attempt_id))

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
            self._at(self.now_s + 10.0, lambda: self._declare_dead(box))
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
        if not keeps_disk:
            box.segments.clear()
        if self.chance.random() < 0.5:
            self._at(self.now_s + 10.0, lambda: self._declare_dead(box))
        self._at(self.now_s + self.chance.uniform(1.0, 30.0), lambda: self._revive(box))

    def _declare_dead(self, box: Box) -> None:
        if not box.is_up or box.is_cut_off:
            self._tell(WorkerLost(box.worker_id, "silent for 10 s"))

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
            self._tell(JobPrioritySet(self.chance.choice(open_jobs), self.chance.randint(1, 5)))
        elif how == 2 and live:
            self._tell(KillAttemptRequested(self.chance.choice(live)))
        elif how == 3 and live:
            attempt_id = self.chance.choice(live)
            self._count_failure(attempt_id)
            self._tell(FailAttemptRequested(attempt_id))

    def _restart_master(self) -> None:
        """Kill the master; a new one knows the journal, and workers come back to it."""
        self.scheduler = Scheduler()
        self.lives += 1
        self.connected.clear()
        for job_id, book in self.books.items():
            if book.finished:
                continue
            book.published.clear()
            book.granted.clear()
            event = book.submitted
            self._tell(
                JobRestored(
                    job_id,
                    event.maps,
                    event.reduces,
                    event.settings,
                    tuple(book.journal.values()),
                    attempt_number_first=1000 * self.lives,
                    abandoned=tuple(book.abandoned),
                )
            )
        for box in self.boxes.values():
            self._at(
                self.now_s + self.chance.uniform(0.1, 4.0),
                lambda box=box: self._register(box),  # type: ignore[misc]
            )

    # --- S6 -----------------------------------------------------------------------------

    def _check_replay(self) -> None:
        second = Scheduler()
        life = 1
        for lives, now_s, event, commands in self.log:
            if lives != life:
                second, life = Scheduler(), lives
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
