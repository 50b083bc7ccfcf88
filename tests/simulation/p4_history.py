"""Simulated histories of the course's master: workers crash, stop and come back, messages are late.

The master's real brain, workers that exist only here, and a clock that jumps from event to event;
everything is drawn from one seed. The world keeps books of its own: who may be taken for dead, who
has which task, what is finished. They judge every command; the oracle judges the results.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

from mrstream.mapreduce.p4.brain.events import (
    Command,
    DeliveryFailed,
    End,
    Event,
    Forget,
    Grouped,
    InputListed,
    ListInput,
    MakeDirectories,
    MergeAndCut,
    PlaceResults,
    ResultsPlaced,
    Send,
    TimePassed,
)
from mrstream.mapreduce.p4.brain.master import MasterBrain
from mrstream.mapreduce.p4.brain.messages import (
    AnyStatus,
    Heartbeat,
    NewMasterJob,
    NewSortJob,
    NewWorkerJob,
    Register,
    RegisterAck,
    Shutdown,
)

TICK_S, BEAT_S, SILENCE_S = 0.5, 2.0, 12.0
FAULTS_S = 150.0
END_S = 1500.0
Order = NewWorkerJob | NewSortJob
Key = tuple[str, ...]


class Broken(AssertionError):
    """A promise is broken."""


def key_of(order: Order) -> Key:
    """What a task writes is what it is."""
    if isinstance(order, NewSortJob):
        return (order.output_file,)
    folder = order.output_directory.rstrip("/")
    return tuple(f"{folder}/{path.rpartition('/')[2]}" for path in order.input_files)


class SimWorker:
    """A worker process: it may be stopped, and it may be gone."""

    def __init__(self, pid: int, port: int, rng: Random) -> None:
        self.pid, self.port = pid, port
        self.is_odd = rng.random() < 0.2
        """Reports paths that nobody knows: statuses are matched by their order alone (R3)."""
        self.is_gone = self.is_stopped = self.beats = False
        self.orders: list[Order] = []
        self.works = False
        self.sent_at_s = self.told_at_s = 0.0


class World:
    """A master, its workers and their files."""

    def __init__(self, seed: int, make_brain: type[MasterBrain] = MasterBrain) -> None:
        self.rng = Random(seed)
        self.limit = self.rng.choice([0, 0, 1, 2])
        self.work_s = self.rng.choice([0.5, 3.0, 12.0])
        """A task, on average."""
        self.brain = make_brain(outstanding_max=self.limit)
        self.now_s = 0.0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        self.story: list[str] = []
        self.workers: dict[int, SimWorker] = {}
        self.jobs: list[NewMasterJob] = []
        self.directories: set[int] = set()
        self.running: int | None = None
        self.started: list[int] = []
        self.results: dict[int, dict[str, object]] = {}
        self.files: dict[str, object] = {}
        # The books about who lives, by what reached the master.
        self.heard_s: dict[int, float] = {}
        self.buried: set[int] = set()
        self.may_bury: set[int] = set()
        # The books about tasks.
        self.owned: dict[int, list[Key]] = {}
        self.held: dict[Key, set[int]] = {}
        self.finished: set[Key] = set()
        self.statuses: list[AnyStatus] = []
        self.paused_until_s = 0.0
        self.looked_s = 0.0
        self.is_over = False

    # ---- time ------------------------------------------------------------------------------

    def later(self, delay_s: float, do: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.agenda, (self.now_s + delay_s, self.number, do))

    def run(self) -> None:
        """Live through the faults, then through the quiet that must end every job."""
        for _ in range(self.rng.randint(1, 4)):
            self.later(self.rng.uniform(0, 60), self.submit)
        for _ in range(self.rng.randint(1, 4)):
            self.later(self.rng.uniform(0, 20), self.start_worker)
        for _ in range(self.rng.choice([0, 3, 8, 25])):
            self.later(self.rng.uniform(1, FAULTS_S), self.fault)
        # Whatever happened: one worker that nothing happens to.
        self.later(FAULTS_S + 1, self.start_worker)
        self.tick()
        while self.agenda and not self.is_done():
            at_s, _, do = heapq.heappop(self.agenda)
            self.now_s = max(self.now_s, at_s)
            if self.now_s > END_S:
                raise Broken(f"jobs {sorted(set(range(len(self.jobs))) - set(self.results))} hang")
            do()
        self.check_results()
        self.check_shutdown()

    def is_done(self) -> bool:
        return self.now_s > FAULTS_S + 20 and len(self.results) == len(self.jobs)

    def tick(self) -> None:
        self.later(TICK_S, self.tick)
        if self.now_s < self.paused_until_s:
            return
        slept_s = self.now_s - self.looked_s
        self.looked_s = self.now_s
        if slept_s > BEAT_S:
            self.heard_s = {p: min(self.now_s, s + slept_s) for p, s in self.heard_s.items()}
        self.tell(TimePassed())
        for pid, heard_s in self.heard_s.items():
            if pid not in self.buried and self.now_s - heard_s > SILENCE_S + 2 * TICK_S:
                raise Broken(f"{pid} is silent for {self.now_s - heard_s:.1f} s and not dead")

    # ---- what happens ----------------------------------------------------------------------

    def submit(self) -> None:
        job = len(self.jobs)
        files, maps = self.rng.randint(0, 9), self.rng.randint(1, 6)
        request = NewMasterJob(f"in{job}", f"out{job}", "map", "reduce", maps,
                               self.rng.randint(1, 4))  # fmt: skip
        self.jobs.append(request)
        self.files.update({f"in{job}/f{n}": ("input", job, n) for n in range(files)})
        self.tell(request)
        if job not in self.directories:
            raise Broken(f"job {job} arrived and has no directories")

    def start_worker(self) -> None:
        pid = len(self.workers) + 101
        worker = self.workers[pid] = SimWorker(pid, 6000 + pid, self.rng)
        self.register(worker)
        if self.rng.random() < 0.2:
            self.later(0.3, lambda: self.register(worker))

    def register(self, worker: SimWorker) -> None:
        if not worker.is_gone:
            self.heard_s[worker.pid] = self.now_s
            self.buried.discard(worker.pid)
            self.owned.setdefault(worker.pid, [])
            self.tell(Register("localhost", worker.port, worker.pid))

    def fault(self) -> None:
        living = [w for w in self.workers.values() if not w.is_gone and not w.is_stopped]
        kind = self.rng.choice(["crash", "stop", "stop", "pause", "rubbish", "repeat", "join"])
        self.story.append(f"{self.now_s:.1f} {kind}")
        if kind == "crash" and living:
            self.rng.choice(living).is_gone = True
        elif kind == "stop" and living:
            worker = self.rng.choice(living)
            if not worker.is_odd:
                worker.is_stopped = True
                self.later(self.rng.uniform(1, 40), lambda: self.resume(worker))
        elif kind == "pause":
            self.paused_until_s = self.now_s + self.rng.uniform(3, 30)
        elif kind == "rubbish":
            self.tell(AnyStatus(7, "finished", ["var/job-0/mapper-output/f0"]))
            self.tell(Heartbeat(7))
        elif kind == "repeat" and self.statuses:
            self.arrive(self.rng.choice(self.statuses))
        elif kind == "join":
            self.start_worker()

    def resume(self, worker: SimWorker) -> None:
        worker.is_stopped = False
        self.work(worker)

    # ---- workers ---------------------------------------------------------------------------

    def deliver(self, worker: SimWorker, send: Send) -> None:
        if worker.is_gone:
            self.later(SILENCE_S, lambda: self.undelivered(worker.pid))
            return
        match send.message:
            case RegisterAck():
                if not worker.beats:
                    worker.beats = True
                    self.beat(worker)
            case NewWorkerJob() | NewSortJob() as order:
                worker.orders.append(order)
                self.work(worker)
            case Shutdown():
                worker.is_gone = True

    def undelivered(self, pid: int) -> None:
        if pid not in self.buried:
            self.may_bury.add(pid)
            self.tell(DeliveryFailed(pid))

    def beat(self, worker: SimWorker) -> None:
        if worker.is_gone:
            return
        self.later(BEAT_S, lambda: self.beat(worker))
        if not worker.is_stopped and self.rng.random() > 0.05:
            self.later(self.rng.uniform(0, 0.05), lambda: self.beat_arrives(worker.pid))

    def beat_arrives(self, pid: int) -> None:
        if self.wait_for_master(lambda: self.beat_arrives(pid)):
            return
        if pid in self.heard_s and pid not in self.may_bury:
            self.heard_s[pid] = self.now_s
            self.buried.discard(pid)
        self.tell(Heartbeat(pid))

    def work(self, worker: SimWorker) -> None:
        if worker.orders and not worker.works and not worker.is_stopped:
            worker.works = True
            self.later(self.rng.expovariate(1 / self.work_s), lambda: self.end_work(worker))

    def end_work(self, worker: SimWorker) -> None:
        if worker.is_gone or worker.is_stopped:
            worker.works = False
            return
        order = worker.orders.pop(0)
        self.write(order)
        paths = list(key_of(order)) if not worker.is_odd else [f"odd-{self.number}"]
        status = AnyStatus(worker.pid, "finished", paths)
        worker.sent_at_s = max(worker.sent_at_s, self.now_s + self.rng.uniform(0, 0.2))
        self.later(worker.sent_at_s - self.now_s, lambda: self.arrive(status))
        worker.works = False
        self.work(worker)

    def write(self, order: Order) -> None:
        read = [self.read(path) for path in order.input_files]
        if isinstance(order, NewSortJob):
            self.files[order.output_file] = ("sorted", *read)
            return
        for path, content in zip(key_of(order), read, strict=True):
            self.files[path] = (order.executable, content)

    def read(self, path: str) -> object:
        if path not in self.files:
            raise Broken(f"{path} is read before it is written")
        return self.files[path]

    def wait_for_master(self, again: Callable[[], None]) -> bool:
        """What comes while the master is stopped is there when it wakes."""
        if self.now_s >= self.paused_until_s:
            return False
        self.later(self.paused_until_s - self.now_s, again)
        return True

    def arrive(self, status: AnyStatus) -> None:
        if self.wait_for_master(lambda: self.arrive(status)):
            return
        self.note(status)
        if not status.outputs[0].startswith("odd"):
            self.statuses.append(status)
        self.tell(status)

    def note(self, status: AnyStatus) -> None:
        """Put a status into the books as the specification has it."""
        mine = self.owned.get(status.worker_pid, [])
        key = status.outputs
        if key[0].startswith("odd"):
            if not mine:
                return
            key = mine[0]
        if key in mine:
            mine.remove(key)
            self.finished.add(key)
        elif status.worker_pid in self.held.get(key, ()):
            self.finished.add(key)  # late, of one that was given up (P4-29)

    # ---- commands --------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        if self.is_over:
            return
        idle = not any(self.owned.get(pid) for pid in self.owned)
        given: Counter[int] = Counter()
        for command in self.brain.handle(event, self.now_s):
            for pid in self.do(command):
                given[pid] += 1
        alive = [pid for pid in self.heard_s if pid not in self.buried]
        if given and idle and not self.limit:
            counts = [given[pid] for pid in alive]
            if max(counts) - min(counts) > 1:
                raise Broken(f"tasks are not even: {given}")

    def do(self, command: Command) -> Iterator[int]:
        match command:
            case MakeDirectories(job_id=job):
                self.directories.add(job)
            case ListInput(job_id=job, directory=directory):
                self.begin(job)
                names = sorted(p for p in self.files if p.startswith(f"{directory}/"))
                self.later(0.01, lambda: self.tell(InputListed(job, tuple(names))))
            case Forget(pid=pid):
                self.bury(pid)
            case Send(message=NewWorkerJob() | NewSortJob()):
                self.check_order(command)
                self.post(command)
                yield command.pid
            case Send():
                self.post(command)
            case MergeAndCut(job_id=job):
                self.barrier(job)
                self.cut(command)
                self.later(self.rng.uniform(0, 3), lambda: self.tell(Grouped(job)))
            case PlaceResults(job_id=job):
                self.barrier(job)
                pairs = zip(command.names, command.sources, strict=True)
                self.results[job] = {name: self.read(path) for name, path in pairs}
                self.running = None
                self.later(0.01, lambda: self.tell(ResultsPlaced(job)))
            case End():
                self.is_over = True

    def post(self, send: Send) -> None:
        """Deliver a message a little later, behind those that were sent to its worker before."""
        worker = self.workers[send.pid]
        worker.told_at_s = max(worker.told_at_s, self.now_s + self.rng.uniform(0, 0.1))
        self.later(worker.told_at_s - self.now_s, lambda: self.deliver(worker, send))

    def begin(self, job: int) -> None:
        if self.running is not None:
            raise Broken(f"job {job} begins while {self.running} runs")
        if job != len(self.started):
            raise Broken(f"job {job} begins before {len(self.started)}")
        self.started.append(job)
        self.running = job

    def bury(self, pid: int) -> None:
        silent_s = self.now_s - self.heard_s[pid]
        if silent_s < SILENCE_S and pid not in self.may_bury:
            raise Broken(f"{pid} is taken for dead after {silent_s:.2f} s")
        self.buried.add(pid)
        self.owned[pid] = []

    def check_order(self, send: Send) -> None:
        order = send.message
        assert isinstance(order, NewWorkerJob | NewSortJob)
        key = key_of(order)
        if not order.input_files:
            raise Broken("an empty task is sent")
        if send.pid in self.buried:
            raise Broken(f"{key} goes to {send.pid}, which is dead")
        owners = [pid for pid, keys in self.owned.items() if key in keys]
        if owners:
            raise Broken(f"{key} goes to {send.pid} while {owners[0]} has it")
        if key in self.finished:
            raise Broken(f"{key} is finished, and goes to {send.pid}")
        folder = key[0].rpartition("/")[0]
        if not folder.startswith(f"var/job-{self.running}/"):
            raise Broken(f"{key} is not of job {self.running}")
        for pid, keys in self.owned.items():
            if any(other[0].rpartition("/")[0] != folder for other in keys):
                raise Broken(f"{key} begins while {pid} has a task of the phase before")
        self.owned[send.pid].append(key)
        self.held.setdefault(key, set()).add(send.pid)
        if self.limit and len(self.owned[send.pid]) > self.limit:
            raise Broken(f"{send.pid} has more than {self.limit} tasks")

    def barrier(self, job: int) -> None:
        writers = [pid for pid, keys in self.owned.items() if keys]
        if writers:
            raise Broken(f"job {job} goes on while {writers} write")

    def cut(self, command: MergeAndCut) -> None:
        lines = [line for path in command.sources for line in self.contents(path)]
        for number, path in enumerate(command.targets):
            self.files[path] = ("part", number, tuple(sorted(lines)))

    def contents(self, path: str) -> tuple[object, ...]:
        content = self.read(path)
        assert isinstance(content, tuple) and content[0] == "sorted"
        return content[1:]

    # ---- the end ---------------------------------------------------------------------------

    def check_results(self) -> None:
        for job, request in enumerate(self.jobs):
            files = [c for p, c in self.files.items() if p.startswith(f"in{job}/")]
            lines = tuple(sorted(("map", content) for content in files))
            wanted = {
                f"input_{n}": ("reduce", ("part", n, lines)) for n in range(request.num_reducers)
            }
            if self.results.get(job) != wanted:
                raise Broken(f"job {job} gave {self.results.get(job)}, not {wanted}")

    def check_shutdown(self) -> None:
        told = [c.pid for c in self.brain.handle(Shutdown(), self.now_s) if isinstance(c, Send)]
        if sorted(told) != sorted(self.heard_s):
            raise Broken(f"the end is told to {told}, not to {sorted(self.heard_s)}")
        if self.brain.handle(TimePassed(), self.now_s + 60):
            raise Broken("a master goes on after its end")


def run(seed: int, make_brain: type[MasterBrain] = MasterBrain) -> World:
    """Run one history."""
    world = World(seed, make_brain)
    try:
        world.run()
    except AssertionError as error:
        error.add_note(f"seed {seed}; " + "; ".join(world.story))
        raise
    return world
