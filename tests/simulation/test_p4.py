"""The course's master through crashes, stops and late messages, and masters wrong on purpose.

Requirements P4-05 … P4-10, P4-15, P4-16, P4-20 … P4-25, P4-28, P4-29; rules R3, R6, R7.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from mrstream.mapreduce.p4.brain import layout, workers
from mrstream.mapreduce.p4.brain.events import Command, Event, TimePassed
from mrstream.mapreduce.p4.brain.master import Job, MasterBrain, Step
from mrstream.mapreduce.p4.brain.messages import AnyStatus, NewMasterJob, Shutdown
from mrstream.mapreduce.p4.brain.tasks import Phase, Task
from mrstream.mapreduce.p4.brain.workers import Worker, Workers
from tests.simulation.p4_history import Broken, run

SEEDS = range(int(os.environ.get("MRSTREAM_P4_SEEDS", "40")))
MUTANT_SEEDS = range(400)


def test_histories() -> None:
    """Every job ends with the right results, and no promise is broken on the way."""
    for seed in SEEDS:
        run(seed)


def test_a_seed_gives_the_same_commands_whatever_the_order_of_sets_is() -> None:
    code = (
        "from tests.simulation.p4_history import World\n"
        "from mrstream.mapreduce.p4.brain.master import MasterBrain\n"
        "class Loud(MasterBrain):\n"
        "    def handle(self, event, now_s):\n"
        "        commands = super().handle(event, now_s)\n"
        "        if commands: print(now_s, event, commands)\n"
        "        return commands\n"
        "for seed in range(6): World(seed, Loud).run()\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]

    assert told[0] == told[1]
    assert told[0].count(b"\n") > 60


class WorkersOf(MasterBrain):
    """A brain with other books about workers."""

    books: type[Workers] = Workers

    def __init__(self, *, outstanding_max: int = 0, edition: Any = layout.DEFAULT) -> None:
        super().__init__(outstanding_max=outstanding_max, edition=edition)
        self._workers = self.books(outstanding_max)


class Impatient(Workers):
    def silent(self, now_s: float) -> list[Worker]:
        super().silent(now_s)
        return [w for w in self.alive() if now_s - w.heard_at_s >= workers.SILENCE_S_MAX - 2]


class TakesPeopleForDeadEarly(WorkersOf):
    """P4-22: more than five beats, not five."""

    books = Impatient


class Trusting(Workers):
    def silent(self, now_s: float) -> list[Worker]:
        return []


class NeverTakesAnyoneForDead(WorkersOf):
    """P4-22."""

    books = Trusting


class Sleepless(Workers):
    def silent(self, now_s: float) -> list[Worker]:
        return [w for w in self.alive() if now_s - w.heard_at_s >= workers.SILENCE_S_MAX]


class BlamesOthersForItsOwnSleep(WorkersOf):
    """W1: a master that was stopped has heartbeats to read."""

    books = Sleepless


class Favouring(Workers):
    def next_free(self) -> Worker | None:
        free = super().next_free()
        return self.alive()[0] if free else None


class GivesAllToTheFirst(WorkersOf):
    """P4-10 and R6."""

    books = Favouring


class LosesTasksOfTheDead(MasterBrain):
    """P4-22: what a dead worker had goes to others."""

    def _bury(self, worker: Worker, reason: str) -> Iterator[Command]:
        for task in worker.tasks:
            task.owner = None
        worker.tasks = []
        yield from super()._bury(worker, reason)


class Eager(Phase):
    def finish(self, task: Task) -> None:
        super().finish(task)
        self.left = min(self.left, max(0, self.left - 1))


class BeginsPhasesEarly(MasterBrain):
    """P4-16: after the last map, not the last but one."""

    def _begin(self, step: Step, tasks: list[Task]) -> None:
        super()._begin(step, tasks)
        self._phase = Eager(tasks)


class RunsFinishedTasksOfTheDeadAgain(MasterBrain):
    """P4-24: finished outputs stay valid."""

    def _bury(self, worker: Worker, reason: str) -> Iterator[Command]:
        yield from super()._bury(worker, reason)
        for task in self._phase.tasks:
            if task.is_done and task.holders and task.holders[-1] == worker.pid:
                task.is_done = False
                self._phase.left += 1
                self._phase.waiting.append(task)


class TakesTheLastJobFirst(MasterBrain):
    """P4-08: in the order of arrival."""

    def _submit(self, request: NewMasterJob) -> Iterator[Command]:
        yield from super()._submit(request)
        self._queue.rotate(1)


class RunsJobsSideBySide(MasterBrain):
    """P4-08: one at a time."""

    def _submit(self, request: NewMasterJob) -> Iterator[Command]:
        yield from super()._submit(request)
        if self._job is not None and self._job.step is Step.REDUCE:
            self._job = None


class MakesDirectoriesLate(MasterBrain):
    """P4-06: when the job arrives, even if it waits."""

    def _submit(self, request: NewMasterJob) -> Iterator[Command]:
        commands = list(super()._submit(request))
        yield from commands if self._job is None else commands[1:]


class SendsEmptyTasks(MasterBrain):
    """R7."""

    def _map_tasks(self, job: Job, files: tuple[str, ...]) -> list[Task]:
        tasks = super()._map_tasks(job, files)
        while files and len(tasks) < job.request.num_mappers:
            tasks.append(Task((), (), "map", "var/job-0/mapper-output"))
        return tasks


class Speculates(MasterBrain):
    """P4-23: to a second worker only when the first is dead."""

    def _heard(self, event: Event, now_s: float) -> Iterator[Command]:
        yield from super()._heard(event, now_s)
        for worker in self._workers.alive() if isinstance(event, TimePassed) else []:
            if worker.tasks and now_s - worker.heard_at_s > 5:
                task = worker.tasks.pop()
                self._phase.take_back(task)


class TakesAnyStatusForTheOldestTask(MasterBrain):
    """R3: by names first; a repeated status is of no open task."""

    def _status(self, said: AnyStatus) -> Iterator[Command]:
        worker = self._workers.get(said.worker_pid)
        if worker is not None and worker.tasks:
            task = worker.tasks.pop(0)
            self._phase.finish(task)
        yield from ()


class ForgetsJobsOfPaths(Phase):
    def is_ours(self, outputs: Sequence[str]) -> bool:
        return True


class TakesStatusesOfOtherJobs(MasterBrain):
    """A status of another job or phase finishes nothing here, though names may be equal."""

    def _begin(self, step: Step, tasks: list[Task]) -> None:
        super()._begin(step, tasks)
        self._phase = ForgetsJobsOfPaths(tasks)


class GoesOnWhileTheSecondStillWrites(MasterBrain):
    """T2: a late status of the dead does not end a task that another has in hand."""

    def _status(self, said: AnyStatus) -> Iterator[Command]:
        yield from super()._status(said)
        for task in self._phase.tasks:
            if task.is_written and not task.is_done:
                self._phase.finish(task)


class ForgetsLateStatuses(MasterBrain):
    """P4-29: accepted if the task is still open."""

    def _status(self, said: AnyStatus) -> Iterator[Command]:
        yield from super()._status(said)
        for task in self._phase.tasks:
            task.is_written = False


class NeverWakesForNewWorkers(MasterBrain):
    """P4-25: a job without workers goes on when one comes."""

    def _deal(self) -> Iterator[Command]:
        for command in super()._deal():
            if self._was_deserted:
                return
            yield command

    _was_deserted = False

    def _bury(self, worker: Worker, reason: str) -> Iterator[Command]:
        yield from super()._bury(worker, reason)
        self._was_deserted = self._was_deserted or not self._workers.alive()


class ForgetsTheDeadAtTheEnd(MasterBrain):
    """P4-21: the end is told to every worker that ever registered."""

    def _shut_down(self) -> Iterator[Command]:
        for worker in self._workers.alive():
            yield self._send(worker, Shutdown())
        self._is_over = True


# Each with what the world must say of it: a finding of another kind is none of it.
EARLY = (
    r"goes on while .* write|begins while .* has a task of the phase before|before it is written"
)
MUTANTS = {
    TakesPeopleForDeadEarly: r"is taken for dead after",
    NeverTakesAnyoneForDead: r"is silent for .* and not dead",
    BlamesOthersForItsOwnSleep: r"is taken for dead after",
    GivesAllToTheFirst: r"tasks are not even|has more than \d tasks",
    LosesTasksOfTheDead: r"jobs .* hang",
    BeginsPhasesEarly: EARLY,
    RunsFinishedTasksOfTheDeadAgain: r"is finished, and goes to",
    TakesTheLastJobFirst: r"job \d+ begins before",
    RunsJobsSideBySide: r"job \d+ begins while \d+ runs",
    MakesDirectoriesLate: r"arrived and has no directories",
    SendsEmptyTasks: r"an empty task is sent",
    Speculates: r"goes to \d+ while \d+ has it",
    TakesAnyStatusForTheOldestTask: rf"{EARLY}|is finished, and goes to",
    TakesStatusesOfOtherJobs: EARLY,
    GoesOnWhileTheSecondStillWrites: EARLY,
    ForgetsLateStatuses: r"is finished, and goes to",
    NeverWakesForNewWorkers: r"jobs .* hang",
    ForgetsTheDeadAtTheEnd: r"the end is told to",
}


@pytest.mark.parametrize(
    ("mutant", "finding"), MUTANTS.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_a_wrong_master_is_found_out(mutant: type[MasterBrain], finding: str) -> None:
    for seed in MUTANT_SEEDS:
        try:
            run(seed, mutant)
        except Broken as error:
            assert re.search(finding, str(error)), error
            return
    raise AssertionError(f"{mutant.__name__} lives through {len(MUTANT_SEEDS)} histories")
