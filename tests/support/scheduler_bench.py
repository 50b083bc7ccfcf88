"""A small cluster on the table: a scheduler, a clock that we turn, and words for what happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mrstream.mapreduce.scheduler.commands import Command, KillAttempt, StartAttempt
from mrstream.mapreduce.scheduler.events import (
    AttemptKilled,
    AttemptSucceeded,
    Event,
    JobSettings,
    JobSubmitted,
    MapTaskSpec,
    Tick,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import (
    AttemptId,
    HostName,
    JobId,
    RackName,
    TaskId,
    TaskKind,
    WorkerId,
)
from mrstream.mapreduce.scheduler.limits import SchedulerLimits
from mrstream.mapreduce.scheduler.scheduler import Scheduler

T = TypeVar("T")
JOB = JobId("job_1_0001")
QUICK = JobSettings(locality_wait_s=0.0, slowstart=1.0)


class Bench:
    """Hands events to a scheduler, checks its invariants after each, keeps what runs."""

    def __init__(self, limits: SchedulerLimits | None = None) -> None:
        self.scheduler = Scheduler(limits)
        self.now_s = 0.0
        self.running: dict[AttemptId, StartAttempt] = {}
        self.dying: list[AttemptId] = []

    def tell(self, event: Event) -> list[Command]:
        commands = self.scheduler.handle(event, self.now_s)
        self.scheduler.check_invariants()
        for command in commands:
            if isinstance(command, StartAttempt):
                self.running[command.attempt_id] = command
            elif isinstance(command, KillAttempt):
                self.running.pop(command.attempt_id, None)
                self.dying.append(command.attempt_id)
        return commands

    def bury(self) -> list[Command]:
        """Report the end of everything that we were asked to kill."""
        dying, self.dying = self.dying, []
        commands: list[Command] = []
        for attempt_id in dying:
            commands += self.tell(AttemptKilled(attempt_id, "killed"))
        return commands

    def wait(self, seconds: float) -> list[Command]:
        self.now_s += seconds
        return self.tell(Tick())

    def workers(
        self, *names: str, slots: int = 1, shared: bool = True, rack: str = ""
    ) -> list[Command]:
        commands: list[Command] = []
        for name in names:
            event = WorkerRegistered(
                WorkerId(name),
                HostName(name),
                slots if shared else 2 * slots,
                slots,
                slots,
                RackName(rack),
            )
            commands += self.tell(event)
        return commands

    def submit(
        self,
        maps: int | Sequence[Sequence[str]],
        reduces: int = 0,
        settings: JobSettings = QUICK,
        job_id: JobId = JOB,
    ) -> list[Command]:
        """Submit a job of so many maps, or of maps whose data is on these hosts."""
        homes: Sequence[Sequence[str]] = [()] * maps if isinstance(maps, int) else maps
        specs = tuple(MapTaskSpec(1, tuple(HostName(host) for host in hosts)) for hosts in homes)
        return self.tell(JobSubmitted(job_id, specs, reduces, settings))

    def succeed(self, *attempts: AttemptId) -> list[Command]:
        commands: list[Command] = []
        for attempt_id in attempts:
            self.running.pop(attempt_id, None)
            commands += self.tell(AttemptSucceeded(attempt_id))
        return commands

    def succeed_all(self, kind: TaskKind) -> list[Command]:
        """Let what runs of a kind succeed, and what is started of it in turn."""
        commands: list[Command] = []
        while mine := [a for a in self.running if a.task_id.kind is kind]:
            commands += self.succeed(mine[0])
        return commands

    def where(self, attempt_id: AttemptId) -> str:
        return self.running[attempt_id].worker_id


def map_attempt(index: int, number: int = 0, job_id: JobId = JOB) -> AttemptId:
    return AttemptId(TaskId(job_id, TaskKind.MAP, index), number)


def reduce_attempt(index: int, number: int = 0, job_id: JobId = JOB) -> AttemptId:
    return AttemptId(TaskId(job_id, TaskKind.REDUCE, index), number)


def starts(commands: Sequence[Command]) -> list[tuple[str, str]]:
    """What was started where, as (attempt, worker) with the job's number left out."""
    return [
        (str(command.attempt_id).removeprefix("attempt_1_0001_"), command.worker_id)
        for command in commands
        if isinstance(command, StartAttempt)
    ]


def of_type(commands: Sequence[Command], kind: type[T]) -> list[T]:
    return [command for command in commands if isinstance(command, kind)]
