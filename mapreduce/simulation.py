"""A cluster that exists only in numbers, driven by the real scheduler.

Takes a plan (hosts, rates, slow hosts, deaths) and a workload (maps, reduces, bytes), runs
the very `Scheduler` that runs real jobs against simulated workers, and gives elapsed time,
rates over time and the states of all attempts at any simulated moment. Seeded: the same
seed gives the same history. The network is a fluid: running shuffles share the switch,
fetches are not simulated one by one. Never sleeps, never does any IO.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from typing import TypeAlias

from mrstream.mapreduce.scheduler.commands import (
    Command,
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    Locality,
    PublishSegment,
    StartAttempt,
    WithdrawSegment,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptKilled,
    AttemptProgress,
    AttemptSucceeded,
    CommitRequested,
    Event,
    JobSettings,
    JobSubmitted,
    MapTaskSpec,
    ShuffleFinished,
    Tick,
    WorkerLost,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    HostName,
    JobId,
    RackName,
    TaskKind,
    WorkerId,
)
from mrstream.mapreduce.scheduler.phases import JobTotals
from mrstream.mapreduce.scheduler.scheduler import Scheduler

MB = 1_000_000
LATENCY_S = 0.001


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The machines: how many, how fast, which of them are bad, and when some die."""

    hosts: int
    map_slots: int = 2
    reduce_slots: int = 1
    hosts_per_rack: int = 40
    replicas: int = 3
    start_up_s: float = 60.0
    """Workers register one by one during this time (MapReduce §5.2: about a minute)."""
    map_bytes_per_s: float = 2.4 * MB
    """How fast one map slot reads, maps and writes its split."""
    remote_read_cost: float = 1.3
    """How much longer a map takes whose split is on another rack."""
    switch_bytes_per_s: float = 7_000 * MB
    """What all shuffles together can move."""
    shuffle_bytes_per_s: float = 4 * MB
    """What one reduce can fetch."""
    sort_bytes_per_s: float = 9 * MB
    write_bytes_per_s: float = 1.75 * MB
    """How fast one reduce writes its output (all copies)."""
    task_start_s: float = 1.0
    noise: float = 0.15
    """Spread of task times on equal hosts (the sigma of a log-normal distribution)."""
    slow_hosts_share: float = 0.015
    """Hosts that turn bad at some moment of the first `slow_within_s` seconds (§3.6)."""
    slow_within_s: float = 700.0
    slow_factor: float = 3.0
    kill_workers: int = 0
    kill_at_s: float = 0.0
    revive_after_s: float | None = 10.0
    """When a killed worker process is there again, its segments lost; None: never."""
    dead_after_s: float = 10.0
    progress_interval_s: int = 10
    event_s: float = 50e-6
    """What one event costs the master."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The job: M, R and bytes."""

    maps: int
    reduces: int
    split_bytes: float = 64 * MB
    shuffled_share: float = 1.0
    """Bytes out of the maps for each byte in."""
    map_speed: float = 1.0
    """How much faster its maps are than those of a sort (a grep writes next to nothing)."""
    slow_map_index: int | None = None
    """One map whose first attempt is slower than it should be."""
    slow_map_factor: float = 10.0
    settings: JobSettings = field(default_factory=JobSettings)
    job_id: JobId = JobId("job_1100000000000_0001")  # noqa: RUF009 - a NewType is its argument


class Stage(IntEnum):
    """What a simulated attempt is doing."""

    MAP = 0
    SHUFFLE = 1
    SORT = 2
    WRITE = 3
    COMMIT = 4
    GONE = 5


class SimulatedAttempt:
    __slots__ = ("attempt_id", "bytes_in", "ends_at_s", "locality", "slowness", "stage",
                 "stage_at_s", "started_at_s", "volume", "volume_at_end", "worker_id")  # fmt: skip

    def __init__(self, attempt_id: AttemptId, worker_id: WorkerId, now_s: float) -> None:
        self.attempt_id = attempt_id
        self.worker_id = worker_id
        self.started_at_s = now_s
        self.stage = Stage.MAP
        self.stage_at_s = now_s
        self.ends_at_s = now_s
        self.bytes_in = 0.0
        self.slowness = 1.0
        self.volume = 0.0
        """What a shuffle must move, counting a slow host's bytes several times."""
        self.volume_at_end = 0.0
        """A shuffle ends when the fluid's volume has reached this."""
        self.locality = Locality.NONE


@dataclass(frozen=True, slots=True)
class Sample:
    """The rates at one simulated second, in bytes a second, as in the paper's Figures 2 and 3."""

    at_s: float
    read: float
    shuffled: float
    written: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run gave."""

    elapsed_s: float
    outcome: JobOutcome
    totals: JobTotals
    samples: list[Sample]
    events: int
    commands: int
    maps_over_at_s: float
    reduces_left: list[tuple[float, int]]
    """How many reduces were still to commit, at each tenth simulated second."""


class Fluid:
    """Shuffles that share a switch: each gets the same rate, bounded by its own link.

    `volume` is what one shuffle that ran all the time would have moved. A shuffle of b
    bytes that starts at volume v ends when the volume reaches v + b.
    """

    __slots__ = ("_at_s", "_each_max", "_total_max", "active", "volume")

    def __init__(self, total_max: float, each_max: float) -> None:
        self._total_max = total_max
        self._each_max = each_max
        self.volume = 0.0
        self.active = 0
        self._at_s = 0.0

    @property
    def rate_each(self) -> float:
        return min(self._each_max, self._total_max / max(1, self.active))

    def advance(self, now_s: float) -> None:
        self.volume += (now_s - self._at_s) * self.rate_each
        self._at_s = now_s

    def reached_at_s(self, volume: float) -> float:
        return self._at_s + max(0.0, volume - self.volume) / self.rate_each


Happening: TypeAlias = tuple[float, int, str, object]


class SimulatedCluster:
    """The workers, the network and the time around one scheduler and one job."""

    def __init__(self, plan: ClusterPlan, workload: Workload, seed: int) -> None:
        self.plan = plan
        self.workload = workload
        self.scheduler = Scheduler()
        self.now_s = 0.0
        self.attempts: dict[AttemptId, SimulatedAttempt] = {}
        self.live_workers: dict[WorkerId, HostName] = {}
        self._killed: dict[WorkerId, None] = {}
        """Dead workers that the scheduler still believes in."""
        self.samples: list[Sample] = []
        self.reduces_left: list[tuple[float, int]] = []
        self.finished: FinishJob | None = None
        self.observer: Callable[[Event, list[Command], float], None] | None = None
        """Told of every event and the commands that followed; for whoever shows the run."""
        self.events = 0
        self.commands = 0
        self.maps_over_at_s = 0.0
        self._random = random.Random(seed)
        self._hosts = [HostName(f"h{number:04d}") for number in range(1, plan.hosts + 1)]
        slow = round(plan.hosts * plan.slow_hosts_share)
        self._slow_from_s = {
            host: self._random.uniform(0.0, plan.slow_within_s)
            for host in self._random.sample(self._hosts, slow)
        }
        self._queue: list[Happening] = []
        self._happenings = 0
        self._busy_until_s = 0.0
        self._fluid = Fluid(plan.switch_bytes_per_s, plan.shuffle_bytes_per_s)
        self._shuffles: list[tuple[float, int, SimulatedAttempt]] = []
        self._waiting: list[SimulatedAttempt] = []
        """Reduces that fetched all there is, and wait for maps."""
        self._published: dict[int, None] = {}
        self._read_rate = 0.0
        self._write_rate = 0.0
        self._unread_bytes = 0.0
        self._plan_start()

    # --- running

    def run(self) -> Outcome:
        while self.finished is None:
            self._step()
        return self.outcome()

    def run_until(self, at_s: float) -> None:
        """Run to a simulated moment, or to the end of the job if that is sooner."""
        while self.finished is None and self._queue and self._queue[0][0] <= at_s:
            self._step()
        self.now_s = max(self.now_s, at_s)

    def outcome(self) -> Outcome:
        assert self.finished is not None
        return Outcome(
            self.now_s,
            self.finished.outcome,
            self.scheduler.totals(self.workload.job_id),
            self.samples,
            self.events,
            self.commands,
            self.maps_over_at_s,
            self.reduces_left,
        )

    def progress(self, attempt: SimulatedAttempt) -> float:
        """How far an attempt is; a reduce's three stages count a third each."""
        if attempt.stage is Stage.SHUFFLE:
            left = max(0.0, attempt.volume_at_end - self._fluid.volume)
            return max(0.0, 1.0 - left / attempt.volume) / 3
        if attempt.stage is Stage.COMMIT:
            return 1.0
        length_s = attempt.ends_at_s - attempt.stage_at_s
        done = min(1.0, (self.now_s - attempt.stage_at_s) / length_s) if length_s > 0 else 1.0
        if attempt.stage is Stage.MAP:
            return done
        return (done + (1 if attempt.stage is Stage.SORT else 2)) / 3

    @property
    def reduce_bytes(self) -> float:
        work = self.workload
        return work.maps * work.split_bytes * work.shuffled_share / max(1, work.reduces)

    def _plan_start(self) -> None:
        plan, chance = self.plan, self._random
        for number, host in enumerate(self._hosts):
            at_s = plan.start_up_s * (number + 1) / plan.hosts
            self._later(at_s, "register", WorkerId(host))
        maps = tuple(
            MapTaskSpec(int(self.workload.split_bytes), tuple(chance.sample(self._hosts, k=copies)))
            for copies in [min(plan.replicas, plan.hosts)]
            for _ in range(self.workload.maps)
        )
        self._later(
            0.0,
            "event",
            JobSubmitted(self.workload.job_id, maps, self.workload.reduces, self.workload.settings),
        )
        self._later(1.0, "tick", 1)
        for victim in chance.sample(self._hosts, plan.kill_workers):
            self._later(plan.kill_at_s, "kill", WorkerId(victim))

    def _later(self, at_s: float, what: str, subject: object) -> None:
        self._happenings += 1
        heappush(self._queue, (at_s, self._happenings, what, subject))

    def _step(self) -> None:
        self.now_s, _, what, subject = heappop(self._queue)
        if what == "stage":
            assert isinstance(subject, SimulatedAttempt)
            if subject.stage is not Stage.GONE:
                self._stage_ended(subject)
        elif what == "shuffles":
            self._end_shuffles()
        elif what == "event":
            self.tell(subject)  # type: ignore[arg-type]
        elif what == "tick":
            assert isinstance(subject, int)
            self._tick(subject)
        elif what == "register":
            self._register(WorkerId(str(subject)))
        else:
            self._kill(WorkerId(str(subject)))

    def tell(self, event: Event) -> None:
        """Let the scheduler handle an event and carry out what it says."""
        # The master handles one event after another; commands go out when it is done.
        self._busy_until_s = max(self._busy_until_s, self.now_s) + self.plan.event_s
        self.events += 1
        commands = self.scheduler.handle(event, self.now_s)
        if self.observer is not None:
            self.observer(event, commands, self.now_s)
        self.commands += len(commands)
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, StartAttempt):
            self._start(command)
        elif isinstance(command, KillAttempt):
            attempt = self.attempts.get(command.attempt_id)
            if attempt is not None:
                self._end(attempt)
                self._later(
                    self.now_s + LATENCY_S, "event", AttemptKilled(command.attempt_id, "killed")
                )
        elif isinstance(command, GrantCommit):
            attempt = self.attempts.get(command.attempt_id)
            if attempt is not None:
                attempt.ends_at_s = self.now_s + 2 * LATENCY_S
                self._later(attempt.ends_at_s, "stage", attempt)
        elif isinstance(command, PublishSegment):
            self._published[command.attempt_id.task_id.task_index] = None
            if len(self._published) == self.workload.maps:
                self.maps_over_at_s = self.now_s
                self._release_waiting()
        elif isinstance(command, WithdrawSegment):
            self._published.pop(command.attempt_id.task_id.task_index, None)
            self._unread_bytes += self.workload.split_bytes
        elif isinstance(command, FinishJob):
            self.finished = command

    # --- attempts

    def _start(self, command: StartAttempt) -> None:
        if command.worker_id in self._killed:
            return
        begins_at_s = max(self.now_s, self._busy_until_s) + LATENCY_S + self.plan.task_start_s
        attempt = SimulatedAttempt(command.attempt_id, command.worker_id, self.now_s)
        attempt.locality = command.locality
        self.attempts[command.attempt_id] = attempt
        attempt.slowness = self._random.lognormvariate(0.0, self.plan.noise)
        if command.attempt_id.task_id.kind is TaskKind.MAP:
            self._start_map(attempt, begins_at_s)
        else:
            attempt.stage = Stage.SHUFFLE
            self._fluid.advance(self.now_s)
            self._fluid.active += 1
            attempt.bytes_in = self.reduce_bytes
            attempt.volume = attempt.bytes_in * attempt.slowness
            attempt.volume *= self._host_slowness(attempt.worker_id)
            attempt.volume_at_end = self._fluid.volume + attempt.volume
            self._happenings += 1
            heappush(self._shuffles, (attempt.volume_at_end, self._happenings, attempt))
            self._plan_next_shuffle()

    def _start_map(self, attempt: SimulatedAttempt, begins_at_s: float) -> None:
        work = self.workload
        if attempt.locality is Locality.REMOTE:
            attempt.slowness *= self.plan.remote_read_cost
        if attempt.attempt_id.task_id.task_index == work.slow_map_index:
            attempt.slowness *= work.slow_map_factor if attempt.attempt_id.number == 0 else 1.0
        speed = self.plan.map_bytes_per_s * work.map_speed
        slowness = attempt.slowness * self._host_slowness(attempt.worker_id)
        attempt.ends_at_s = begins_at_s + work.split_bytes / speed * slowness
        attempt.bytes_in = work.split_bytes
        self._read_rate += attempt.bytes_in / (attempt.ends_at_s - attempt.started_at_s)
        self._later(attempt.ends_at_s, "stage", attempt)

    def _stage_ended(self, attempt: SimulatedAttempt) -> None:
        if attempt.stage is Stage.MAP:
            self._end(attempt)
            self.tell(AttemptSucceeded(attempt.attempt_id))
        elif attempt.stage is Stage.SORT:
            self._next_stage(attempt, Stage.WRITE, self.plan.write_bytes_per_s)
            self._write_rate += attempt.bytes_in / (attempt.ends_at_s - self.now_s)
        elif attempt.stage is Stage.WRITE:
            self._write_rate -= attempt.bytes_in / (attempt.ends_at_s - attempt.stage_at_s)
            attempt.stage = Stage.COMMIT
            self.tell(CommitRequested(attempt.attempt_id))
        elif attempt.stage is Stage.COMMIT:
            self._end(attempt)
            self.tell(AttemptSucceeded(attempt.attempt_id))

    def _next_stage(self, attempt: SimulatedAttempt, stage: Stage, rate: float) -> None:
        attempt.stage = stage
        attempt.stage_at_s = self.now_s
        slowness = attempt.slowness * self._host_slowness(attempt.worker_id)
        attempt.ends_at_s = self.now_s + attempt.bytes_in / rate * slowness + 1e-6
        self._later(attempt.ends_at_s, "stage", attempt)

    def _host_slowness(self, worker_id: WorkerId) -> float:
        slow_from_s = self._slow_from_s.get(self.live_workers[worker_id])
        is_slow = slow_from_s is not None and slow_from_s <= self.now_s
        return self.plan.slow_factor if is_slow else 1.0

    def _end(self, attempt: SimulatedAttempt) -> None:
        """Take an attempt off its worker, whatever it was doing."""
        if attempt.stage is Stage.MAP:
            self._read_rate -= attempt.bytes_in / (attempt.ends_at_s - attempt.started_at_s)
        elif attempt.stage is Stage.SHUFFLE and attempt not in self._waiting:
            self._fluid.advance(self.now_s)
            self._fluid.active -= 1
        elif attempt.stage is Stage.WRITE:
            self._write_rate -= attempt.bytes_in / (attempt.ends_at_s - attempt.stage_at_s)
        attempt.stage = Stage.GONE
        del self.attempts[attempt.attempt_id]

    # --- the shuffle

    def _plan_next_shuffle(self) -> None:
        while self._shuffles and self._shuffles[0][2].stage is Stage.GONE:
            heappop(self._shuffles)
        if self._shuffles:
            at_s = self._fluid.reached_at_s(self._shuffles[0][0])
            self._later(max(self.now_s, at_s), "shuffles", None)

    def _end_shuffles(self) -> None:
        self._fluid.advance(self.now_s)
        ended = False
        while self._shuffles and self._shuffles[0][0] <= self._fluid.volume + 1.0:
            attempt = heappop(self._shuffles)[2]
            if attempt.stage is Stage.GONE:
                continue
            ended = True
            self._fluid.active -= 1
            self._waiting.append(attempt)
        if ended:
            if len(self._published) == self.workload.maps:
                self._release_waiting()
            self._plan_next_shuffle()

    def _release_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for attempt in waiting:
            if attempt.stage is Stage.SHUFFLE:
                self._next_stage(attempt, Stage.SORT, self.plan.sort_bytes_per_s)
                self.tell(ShuffleFinished(attempt.attempt_id))

    # --- workers and time

    def _register(self, worker_id: WorkerId) -> None:
        host = HostName(worker_id)
        self.live_workers[worker_id] = host
        self._killed.pop(worker_id, None)
        rack = RackName(f"r{(int(host[1:]) - 1) // self.plan.hosts_per_rack:02d}")
        slots = self.plan.map_slots + self.plan.reduce_slots
        self.tell(
            WorkerRegistered(
                worker_id, host, slots, self.plan.map_slots, self.plan.reduce_slots, rack
            )
        )

    def _kill(self, worker_id: WorkerId) -> None:
        """A worker process dies; it comes back empty, or its silence is noticed."""
        self._killed[worker_id] = None
        for attempt in [a for a in self.attempts.values() if a.worker_id == worker_id]:
            self._end(attempt)
        if self.plan.revive_after_s is not None:
            self._later(self.now_s + self.plan.revive_after_s, "register", worker_id)
        else:
            del self.live_workers[worker_id]
            lost = WorkerLost(worker_id, f"silent for {self.plan.dead_after_s:g} s")
            self._later(self.now_s + self.plan.dead_after_s, "event", lost)

    def _tick(self, second: int) -> None:
        for attempt in self._reporting(second):
            self.tell(AttemptProgress(attempt.attempt_id, self.progress(attempt)))
        self.tell(Tick())
        shuffled = self._fluid.active * self._fluid.rate_each
        read = self._read_rate - self._unread_bytes
        self._unread_bytes = 0.0
        self.samples.append(Sample(self.now_s, read, shuffled, self._write_rate))
        view = self.scheduler.job(self.workload.job_id)
        if second % 10 == 0 and view is not None:
            self.reduces_left.append((self.now_s, view.reduces - view.reduces_committed))
        self._later(self.now_s + 1.0, "tick", second + 1)

    def _reporting(self, second: int) -> Iterator[SimulatedAttempt]:
        """Attempts that report in this second; each does once an interval."""
        self._fluid.advance(self.now_s)
        interval_s = self.plan.progress_interval_s
        turn = second % interval_s
        for attempt in list(self.attempts.values()):
            task_id = attempt.attempt_id.task_id
            if task_id.task_index % interval_s == turn and attempt.stage != Stage.GONE:
                yield attempt
