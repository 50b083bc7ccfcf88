"""Jobs while job masters fall: `python -m tests.simulation.jobs.run SEED [--locks] [-v]`.

Maps whose output is the job's, backups among them, on workers that are cut off and die; a dfs that
knows fences; clients that repeat what they submitted, some, with `--locks`, under locks that others
take from them.
Checked as things happen: no worker does what a deposed leader ordered (F2), a submission is one
job, under one id, over any number of leaders (F5), no change of a deposed leader, nor for a job
whose lock has a later holder, reaches the dfs (F6), a task is recorded once, and what is recorded
is what lies in the output (S1); what one leader said every later one knows (M1).
"""

from __future__ import annotations

import contextlib
import logging
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from mrstream.cluster.consensus.records import MARK
from mrstream.dfs.chunk import Fence, Fences
from mrstream.dfs.errors import FencedOff
from mrstream.dfs.metadata.fences import Fences as RaisedFences
from mrstream.dfs.metadata.fences import Fencing
from mrstream.mapreduce.master.duties import FENCE
from mrstream.mapreduce.master.job_journal import Journaled
from mrstream.mapreduce.scheduler.commands import (
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    RecordCommit,
    StartAttempt,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptProgress,
    AttemptSucceeded,
    CommitRequested,
    Event,
    JobSettings,
    JobSubmitted,
    MapTaskSpec,
    WorkerHeard,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    HostName,
    JobId,
    TaskId,
    WorkerId,
    parse_attempt_id,
)
from mrstream.mapreduce.worker.allegiance import Allegiance, StaleLeader
from tests.simulation.jobs.connection import Connection
from tests.simulation.jobs.masters import LIMITS, NAMES, JobMaster, Masters, fold, job_of
from tests.simulation.world import Place, World

SECONDS = 25.0
SETTLE_S = 120.0
BEAT_S = 0.5
End = AttemptSucceeded | AttemptFailed | AttemptKilled


class NoFiles:
    """The files that the dfs takes over when a fence is raised: none stays open here."""

    def take_over_fenced(self, fence: Fence) -> None:
        pass


class Dfs:
    """The output of jobs, and fences, by the real brain's rules; a server that never fails."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.fences = RaisedFences()
        no_files: Any = NoFiles()
        self._fencing = Fencing(self.fences, no_files, self._raise)
        self.touched: dict[str, int] = {}
        """By lock, and for leaders: the highest generation whose holder changed something, the
        referee's own count."""
        self.refused = 0
        self.lost = 0
        self.places: dict[AttemptId, None] = {}
        self.output: dict[TaskId, AttemptId] = {}

    def _raise(self, record: Any) -> None:
        self.fences.apply(record)

    def change(self, who: str, fences: Fences, truth: Fences) -> None:
        """Let a change through, or raise `FencedOff`. `truth` is what the referee knows of who asks
        and for whom; it may ask by something else."""
        self._fencing.admit(fences, self.run.world.now_s)
        for name, generation in truth:
            seen = self.touched.get(name, 0)
            what = "epoch" if name == FENCE else name
            assert generation >= seen, f"F6: {who} of {what} {generation} after {seen}"
            self.touched[name] = generation

    def asked(
        self,
        master: JobMaster,
        job_id: JobId | None,
        fences: Fences,
        change: Callable[[], None],
        then: Callable[[], None],
        refused: Callable[[FencedOff], None],
    ) -> None:
        """A thread of a master wants a change under its fences; a stopped thread wants it late."""
        truth = ((FENCE, master.serving_epoch), *self.run.locks_of(job_id))

        def arrive() -> None:
            answer = then
            try:
                self.change(str(master.me), fences, truth)
                change()
            except FencedOff as error:
                self.refused += error.name == FENCE
                self.lost += error.name != FENCE
                answer = partial(refused, error)
            self.run.world.after(0.001, partial(master.host.when_running, master, answer))

        self.run.world.after(self.run.chance.choice([0.002, 0.01, 0.05, 0.5, 3.0]), arrive)

    def drop(self, attempts: Sequence[AttemptId]) -> None:
        for attempt_id in attempts:
            self.places.pop(attempt_id, None)

    def drop_attempts(self, job_id: JobId) -> None:
        """What bears the id of a job, in a directory that may be another's."""
        self.drop([place for place in self.places if place.task_id.job_id == job_id])

    def abort_job(self, job_id: JobId) -> None:
        """Clear the whole temporary directory: the jobs under a lock have one, in turn."""
        locks = dict(self.run.locks_of(job_id))
        for place in list(self.places):
            owner = place.task_id.job_id
            owners = dict(self.run.locks_of(owner))
            if owner == job_id or (locks and owners.keys() == locks.keys()):
                is_later = any(owners[name] > locks[name] for name in locks)
                assert not is_later, f"F6: {job_id} clears what {owner} has in their directory"
                del self.places[place]

    def commit_job(self, finish: FinishJob) -> None:
        if finish.outcome is not JobOutcome.SUCCEEDED:
            return
        # A leader may fall between a record and its carrying out: the next knows it from the log.
        known = self.run.log().jobs.get(finish.job_id)
        if known is None:
            return  # closed: a change that was on its way before that, of the same leader
        asked, _ = job_of(known)
        assert len(known.committed) == len(asked.maps), f"{finish.job_id} is not complete"
        for record in known.committed.values():
            winner = parse_attempt_id(record.attempt_id)
            found = self.output.get(winner.task_id)
            assert found == winner, f"S1: {winner} is recorded, the output is of {found}"

    def commit_task(self, attempt_id: AttemptId) -> bool:
        if attempt_id not in self.places:
            return False
        del self.places[attempt_id]
        book = self.run.book(attempt_id.task_id.job_id)
        winner = book.recorded.get(attempt_id.task_id, attempt_id)
        assert winner == attempt_id, f"S1: {attempt_id} commits after {winner} was recorded"
        self.output[attempt_id.task_id] = attempt_id
        return True


@dataclass
class Book:
    """What the referee knows of a job."""

    recorded: dict[TaskId, AttemptId] = field(default_factory=dict)
    granted: dict[AttemptId, None] = field(default_factory=dict)
    is_closed: bool = False
    is_lost: bool = False


@dataclass
class Body:
    """An attempt as a worker has it."""

    attempt_id: AttemptId
    fences: Fences = ()
    wants_commit: bool = False
    is_committing: bool = False


class Worker:
    """One worker; does what `worker` and `master_link` do."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name
        self.life = 0
        self.met = 0
        """The highest epoch that it heard of: the referee's own count."""
        self._begin()
        run.world.after(run.chance.uniform(0.0, BEAT_S), self._beat)

    def _begin(self) -> None:
        self.life += 1
        self.met = 0
        self.allegiance = Allegiance()
        self.link: Connection | None = None
        """What it is registered over."""
        self.tries: list[Connection] = []
        """What else is open: masters that were asked, and have not answered."""
        self.heard_at_s = self.run.world.now_s
        self.bodies: dict[AttemptId, Body] = {}
        self.unheard: dict[AttemptId, End] = {}

    def die(self) -> None:
        self._part()
        self._begin()

    # --- the link

    def _beat(self) -> None:
        run = self.run
        run.world.at_host(self.name, BEAT_S, self._beat)
        if self.link is not None and run.world.now_s < self.heard_at_s + 3 * BEAT_S:
            self._say(WorkerHeard(WorkerId(self.name)), self._alive)
            return
        self._part()
        for name in NAMES:  # as the finding: whoever answers that it leads
            self._register(Connection(run, self, name))

    def _alive(self) -> None:
        self.heard_at_s = self.run.world.now_s

    def _part(self) -> None:
        for link in [*self.tries, *([self.link] if self.link else [])]:
            link.hang_up()

    def parted(self, link: Connection) -> None:
        """A connection is lost, with what was on it: a new one says all that matters."""
        if self.link is link:
            self.link = None
        elif link in self.tries:
            self.tries.remove(link)

    def _register(self, link: Connection) -> None:
        self.tries.append(link)
        running = tuple(dict.fromkeys([*self.bodies, *self.unheard]))[:2]
        event = WorkerRegistered(WorkerId(self.name), HostName(self.name), 2, 2, 2, running=running)

        def respond(epoch: int) -> None:
            link.push(partial(self._registered, link, epoch) if epoch else link.hang_up)

        link.call(lambda master: master.register(link, event, respond))

    def _registered(self, link: Connection, epoch: int) -> None:
        try:
            self.allegiance.meet(epoch)
        except StaleLeader:
            link.hang_up()
            return
        self.met = max(self.met, epoch)
        self.parted(link)
        self._part()
        self.link = link
        self._alive()
        for body in self.bodies.values():
            if body.wants_commit:
                self._say(CommitRequested(body.attempt_id))
        for end in list(self.unheard.values()):
            self._say_end(end)

    def _say(self, event: Event, acknowledge: Callable[[], None] = lambda: None) -> None:
        link = self.link
        if link is not None:
            link.call(lambda master: master.tell(link, event, partial(link.push, acknowledge)))

    def _say_end(self, end: End) -> None:
        self._say(end, lambda: self.unheard.pop(end.attempt_id, None))

    def _ended(self, end: End) -> None:
        self.bodies.pop(end.attempt_id, None)
        self.unheard[end.attempt_id] = end
        self._say_end(end)

    # --- orders

    def pushed(
        self, epoch: int, order: StartAttempt | KillAttempt | GrantCommit, fences: Fences
    ) -> None:
        try:
            self.allegiance.meet(epoch)
        except StaleLeader:
            self.run.refused += 1
            return
        assert epoch >= self.met, f"F2: {self.name} obeys epoch {epoch} after {self.met}: {order}"
        self.met = epoch
        body = self.bodies.get(order.attempt_id)
        match order:
            case StartAttempt(attempt_id=attempt_id):
                if body is None:
                    assert len(self.bodies) < 2, f"S5: {self.name} is to run {attempt_id} as well"
                    self.bodies[attempt_id] = Body(attempt_id, fences)
                    self._later(
                        self.run.chance.choice([0.3, 0.6, 1.0, 6.0]), attempt_id, self._wrote
                    )
            case KillAttempt(attempt_id=attempt_id):
                if body is None or not body.is_committing:
                    self._ended(AttemptKilled(attempt_id, "killed"))
            case GrantCommit(attempt_id=attempt_id):
                if body is not None and body.wants_commit:
                    body.wants_commit, body.is_committing = False, True
                    wait_s = self.run.chance.choice([0.001, 0.05, 1.0, 3.0, 9.0])
                    self._later(wait_s, attempt_id, partial(self._commit, epoch))

    def _later(self, seconds: float, attempt_id: AttemptId, act: Callable[[Body], None]) -> None:
        life = self.life

        def do() -> None:
            body = self.bodies.get(attempt_id)
            if life == self.life and body is not None:
                act(body)

        self.run.world.at_host(self.name, seconds, do)

    def _wrote(self, body: Body) -> None:
        if self.run.chance.random() < 0.05:
            self._ended(AttemptFailed(body.attempt_id, "exit status 1"))
            return
        if not self._changes_dfs(body):
            return
        self.run.dfs.places[body.attempt_id] = None
        self._say(AttemptProgress(body.attempt_id, 1.0))
        body.wants_commit = True
        self._say(CommitRequested(body.attempt_id))

    def _changes_dfs(self, body: Body) -> bool:
        """Is the job still under its lock? Else the attempt has failed."""
        truth = self.run.locks_of(body.attempt_id.task_id.job_id)
        try:
            if body.fences:
                self.run.dfs.change(str(body.attempt_id), body.fences, truth)
            return True
        except FencedOff as error:
            self.run.dfs.lost += 1
            self._ended(AttemptFailed(body.attempt_id, str(error)))
            return False

    def _commit(self, epoch: int, body: Body) -> None:
        """As `Worker._commit`: a right of a leader before is asked for again."""
        body.is_committing = False
        if not self.allegiance.holds(epoch):
            body.wants_commit = True
            self._say(CommitRequested(body.attempt_id))
            return
        assert epoch == self.met, f"F2: {body.attempt_id} commits by epoch {epoch} in {self.met}"
        if not self._changes_dfs(body):
            return
        if self.run.dfs.commit_task(body.attempt_id):
            self._ended(AttemptSucceeded(body.attempt_id))
        else:
            self._ended(AttemptKilled(body.attempt_id, "fenced"))


class Client:
    """Submits jobs, each until it has an answer, and sometimes again; some under a lock or two that
    it takes from whoever it was that had them, to whom nobody says so."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name
        self.locks: dict[str, Fences] = {}
        """By submission."""
        self.answers: dict[str, str] = {}
        self.count = 0

    def submit(self) -> None:
        self.count += 1
        chance = self.run.chance
        maps = tuple(MapTaskSpec(1) for _ in range(chance.choice([1, 3, 6])))
        settings = JobSettings(locality_wait_s=0.0, map_attempts_max=30, backup_maps=True)
        asked = JobSubmitted(JobId("job_?"), maps, 0, settings)
        submission = f"{self.name}-{self.count}"
        self.locks[submission] = ()
        if self.run.has_locks:
            names = chance.choice([(), ("a",), ("b",), ("a", "b")])
            self.locks[submission] = tuple((name, self.count) for name in names)
            # Its own commands change something as well.
            self.run.world.after(chance.choice([0.1, 2.0, 9.0]), partial(self._write, submission))
        self._ask(submission, asked, 1 + chance.randrange(4))

    def _write(self, submission: str) -> None:
        locks = self.locks[submission]
        with contextlib.suppress(FencedOff):
            self.run.dfs.change(submission, locks, locks)

    def _ask(self, submission: str, asked: JobSubmitted, times: int) -> None:
        if not times:
            return

        def heard(job_id: str) -> None:
            if not job_id:
                return
            before = self.answers.setdefault(submission, job_id)
            assert before == job_id, f"F5: {submission} was {before}, now {job_id}"
            self.run.books.setdefault(JobId(job_id), Book())

        name = self.run.chance.choice(NAMES)

        def arrive() -> None:
            master = self.run.masters.at(name)
            if master is not None:
                back = partial(self.run.world.send, name, self.name)
                locks = self.locks[submission]
                master.submit(submission, asked, locks, lambda job_id: back(partial(heard, job_id)))

        self.run.world.send(self.name, name, arrive)
        left = times - (submission in self.answers)
        wait_s = self.run.chance.choice([0.5, 0.5, 8.0]) if submission in self.answers else 0.3
        self.run.world.at_host(self.name, wait_s, lambda: self._ask(submission, asked, left))


class Run:
    """One seed, and its referee."""

    def __init__(self, seed: int, kind: type[JobMaster] = JobMaster, *, locks: bool) -> None:
        self.seed = seed
        self.has_locks = locks
        self.world = World(seed)
        self.chance = random.Random(f"{seed}-jobs")
        names = [f"w{number}" for number in range(1, 5)]
        for name in [*NAMES, *names, "c1"]:
            self.world.hosts[name] = Place(name)
        self.books: dict[JobId, Book] = {}
        self.refused = 0
        self.connections = 0
        self._locks: dict[JobId, Fences] = {}
        self.cut_off: dict[str, float] = {}
        """Workers that stay cut off from all masters, and until when."""
        self.workers: dict[str, Worker] = {}
        self.dfs = Dfs(self)
        self.masters = Masters(self.world, self, kind)
        self.oracle = self.masters.oracle
        for name in names:
            self.workers[name] = Worker(self, name)
        self.client = Client(self, "c1")

    # --- the referee

    def book(self, job_id: JobId) -> Book:
        """A job may run before its client has heard of it."""
        if job_id not in self.books:
            self.books[job_id] = Book()
        return self.books[job_id]

    def log(self) -> Journaled:
        """The fold of all that is committed."""
        return fold(self.oracle.committed)

    def granted(self, command: GrantCommit, epoch: int) -> None:
        fence = self.dfs.fences.generation(FENCE)
        assert fence >= epoch, f"F6: {command} before the dfs refuses whoever led before"
        self.book(command.attempt_id.task_id.job_id).granted[command.attempt_id] = None

    def recorded(self, command: RecordCommit) -> None:
        task_id = command.attempt_id.task_id
        book = self.book(task_id.job_id)
        before = book.recorded.setdefault(task_id, command.attempt_id)
        assert before == command.attempt_id, f"S1: {before} was recorded, now {command.attempt_id}"

    def locks_of(self, job_id: JobId | None) -> Fences:
        """The locks that a job was submitted under, by its client's word."""
        if job_id is not None and job_id not in self._locks:
            known = self.log().jobs.get(job_id)
            if known is not None:
                self._locks[job_id] = self.client.locks[known.accepted.submission]
        return () if job_id is None else self._locks.get(job_id, ())

    def lost(self, job_id: JobId, error: FencedOff) -> None:
        """A master says that a job may change nothing any more."""
        known = dict(self.locks_of(job_id))
        later = self.dfs.fences.generation(error.name)
        assert error.name in known and known[error.name] < later, f"{job_id} has its locks: {error}"
        self.book(job_id).is_lost = True

    def closed(self, job_id: JobId) -> None:
        self.book(job_id).is_closed = True

    def took_over(self, master: JobMaster) -> None:
        """M1: what any leader said, this one knows."""
        for job_id, book in self.books.items():
            known = master.journaled.jobs.get(job_id)
            if known is None:
                continue  # closed; or refused, which nobody is here
            assert not book.is_closed, f"M1: {job_id} was closed and is open again"
            for task_id, attempt_id in book.recorded.items():
                found = known.committed.get(str(attempt_id).rpartition("_")[0])
                assert found and found.attempt_id == str(attempt_id), f"M1: {task_id} is forgotten"
            for attempt_id in book.granted:
                text = str(attempt_id)
                is_over = text.rpartition("_")[0] in known.committed
                assert is_over or text in known.granted_with(text), f"S1: {text} is forgotten"

    def check(self) -> None:
        """At the end: every job is closed, and each submission was one."""
        self.masters.check_shadows()
        whole = [p for _, p in self.oracle.committed if p[0] != MARK]
        accepted = [r for r in map(msgspec.msgpack.decode, whole) if r[0] == "JobAccepted"]
        ids, submissions = [r[1] for r in accepted], [r[2] for r in accepted]
        assert len(set(ids)) == len(ids), f"F5: an id was given twice: {ids}"
        assert len(set(submissions)) == len(submissions), f"F5: a job was made twice: {submissions}"
        assert len(self.client.answers) == self.client.count, "a submission was never answered"

    # --- what happens

    def live(self, seconds: float) -> None:
        world, chance = self.world, self.chance
        world.run(3.0)
        until_s = world.now_s + seconds
        world.repeats, world.delays = 0.01, 0.04
        while world.now_s < until_s:
            self.client.submit()
            world.run(world.now_s + chance.uniform(0.3, 2.0))
            self._break_something()
            world.run(world.now_s + chance.uniform(0.1, 4.0))
            self._heal()
        world.repeats = world.delays = 0.0

    def settle(self) -> None:
        self.cut_off.clear()
        self._heal()
        until_s = self.world.now_s + SETTLE_S
        while self.world.now_s < until_s:
            self.world.run(self.world.now_s + 1.0)
            if len(self.client.answers) == self.client.count and not self.log().jobs:
                return
        raise AssertionError(f"not over after {SETTLE_S} s: {list(self.log().jobs)}")

    def _break_something(self) -> None:
        chance, world = self.chance, self.world
        leader = self.masters.leader
        name = leader.host.name if leader is not None and chance.random() < 0.8 else "m2"
        host, worker = self.masters.hosts[name], chance.choice(list(self.workers))
        others = [other for other in NAMES if other != name]
        fault = chance.randrange(8)
        world.note(f"fault {fault} at {name}, {worker}")
        if fault in (0, 1):
            host.end(power=fault == 1)
        elif fault in (2, 3):
            host.stop(chance.uniform(0.5, 6.0))
        elif fault == 4:
            self._cut([(name, other) for other in others])
        elif fault == 5:
            self._cut([(worker, master) for master in NAMES])
            if chance.random() < 0.6:  # for so long that it is given up, and its attempts are not
                self.cut_off[worker] = world.now_s + LIMITS.silence_s_max + 4.0
        elif fault == 6:
            self.workers[worker].die()
        elif leader is not None:
            leader.begin_checkpoint()
            for one in self.masters.hosts.values():
                one.end(power=True)

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        for one, other in pairs:
            self.world.cut[one, other] = self.world.cut[other, one] = None

    def _heal(self) -> None:
        self.world.cut.clear()
        for worker, until_s in self.cut_off.items():
            if self.world.now_s < until_s:
                self._cut([(worker, master) for master in NAMES])
        for host in self.masters.hosts.values():
            if host.process is None:
                host.start_after(self.chance.uniform(0.0, 1.0))


def play(
    seed: int,
    kind: type[JobMaster] = JobMaster,
    seconds: float = SECONDS,
    *,
    locks: bool = False,
) -> Run:
    """Live through one history; raise where a promise is broken."""
    run = Run(seed, kind, locks=locks)
    try:
        run.live(seconds)
        run.settle()
        run.check()
    except AssertionError as error:
        words = f"{seed} {'--locks ' if locks else ''}-v"
        error.add_note(f"replay: {sys.executable} -m tests.simulation.jobs.run {words}")
        error.lines = run.world.trace  # type: ignore[attr-defined]
        raise
    return run


def main() -> None:
    """Replay one seed."""
    logging.disable(logging.CRITICAL)
    seed, verbose = int(sys.argv[1]), "-v" in sys.argv
    try:
        run = play(seed, locks="--locks" in sys.argv)
    except AssertionError as error:
        if verbose:
            print("\n".join(getattr(error, "lines", [])))
        raise
    if verbose:
        print("\n".join(run.world.trace))
    print(
        f"seed {seed}: {run.world.events} events, {len(run.oracle.leaders)} leaders, "
        f"{len(run.books)} jobs, {run.refused} orders and {run.dfs.refused} changes of deposed "
        f"leaders and {run.dfs.lost} of jobs without their lock refused, "
        f"{sum(book.is_lost for book in run.books.values())} jobs failed for that, all well"
    )


if __name__ == "__main__":
    main()
