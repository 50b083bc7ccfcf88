"""What a master decides: registration, the queue of jobs, the three phases, deaths, reassignment.

`handle(event, now_s)` gives commands in the order in which they must be done. One job runs at a
time, the others wait in the order of their arrival (P4-08); a phase begins in the handling of the
event that ends the one before (P4-16).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import assert_never

import msgspec

from mrstream.mapreduce.p4.brain import layout
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
    Say,
    Send,
    TimePassed,
)
from mrstream.mapreduce.p4.brain.layout import Edition
from mrstream.mapreduce.p4.brain.messages import (
    AnyStatus,
    Heartbeat,
    NewMasterJob,
    Register,
    RegisterAck,
    Shutdown,
)
from mrstream.mapreduce.p4.brain.tasks import Phase, Task
from mrstream.mapreduce.p4.brain.workers import Worker, Workers

JOBS_WAITING_MAX = 1000


class Step(Enum):
    """How far a job is."""

    LISTING = "listing"
    MAP = "map"
    GROUP = "group"
    MERGE = "merge"
    REDUCE = "reduce"
    PLACING = "placing"


class Job(msgspec.Struct, eq=False):
    job_id: int
    request: NewMasterJob
    step: Step = Step.LISTING
    map_outputs: tuple[str, ...] = ()


class MasterBrain:
    """All that a master knows. Holds T1, T2, W1 and W2."""

    def __init__(self, *, outstanding_max: int = 0, edition: Edition = layout.DEFAULT) -> None:
        self._edition = edition
        self._workers = Workers(outstanding_max)
        self._queue: deque[Job] = deque()
        self._jobs_count = 0
        self._job: Job | None = None
        """The one that runs."""
        self._phase = Phase([])
        self._is_over = False

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """Take one event; give what to do, in order."""
        if self._is_over:
            return []
        return [*self._heard(event, now_s), *self._go_on()]

    def states(self) -> dict[int, str]:
        """Every worker that ever registered, and whether it is ready, busy or dead (P4-05)."""
        return {worker.pid: worker.state for worker in self._workers}

    def _heard(self, event: Event, now_s: float) -> Iterator[Command]:
        match event:
            case Register():
                yield from self._register(event, now_s)
            case Heartbeat(worker_pid=pid):
                yield from self._beat(pid, now_s)
            case NewMasterJob():
                yield from self._submit(event)
            case AnyStatus():
                yield from self._status(event)
            case TimePassed():
                for worker in self._workers.silent(now_s):
                    yield from self._bury(worker, "was silent for too long")
            case DeliveryFailed(pid=pid):
                yield from self._undelivered(pid)
            case InputListed() | Grouped() | ResultsPlaced():
                yield from self._answered(event)
            case Shutdown():
                yield from self._shut_down()
            case _:
                assert_never(event)

    # --- workers

    def _register(self, said: Register, now_s: float) -> Iterator[Command]:
        known = self._workers.get(said.worker_pid)
        if known is None and self._workers.is_full:
            yield Say(f"worker {said.worker_pid} is refused: there are too many")
            return
        same = known is not None and (known.host, known.port) == (
            said.worker_host,
            said.worker_port,
        )
        if known is not None and not (same and not known.is_dead):
            # Its number was given to another process, or it comes back: what it had, it lost.
            yield from self._bury(known, "registered anew")
            known = None
        worker = known or self._workers.add(said, now_s)
        worker.heard_at_s = now_s
        ack = RegisterAck(said.worker_host, said.worker_port, said.worker_pid)
        yield self._send(worker, ack)
        yield Say(f"worker {worker.pid} registered, on port {worker.port}")

    def _beat(self, pid: int, now_s: float) -> Iterator[Command]:
        worker = self._workers.get(pid)
        if worker is None or worker.is_unreachable:
            return  # P4-28
        worker.heard_at_s = now_s
        if worker.is_dead:
            # Its tasks have gone to others; it can take new ones.
            worker.is_dead = False
            yield Say(f"worker {pid} is back")

    def _undelivered(self, pid: int) -> Iterator[Command]:
        worker = self._workers.get(pid)
        if worker is not None and not worker.is_dead:
            worker.is_unreachable = True
            yield from self._bury(worker, f"takes no messages on port {worker.port}")

    def _bury(self, worker: Worker, reason: str) -> Iterator[Command]:
        """Mark a worker dead, and take its tasks back, finished ones excepted (P4-22, P4-24)."""
        if worker.is_dead:
            return
        worker.is_dead = True
        lost, worker.tasks = worker.tasks, []
        for task in lost:
            self._phase.take_back(task)
        yield Forget(worker.pid)
        yield Say(f"worker {worker.pid} is dead: it {reason}; {len(lost)} tasks go to others")

    def _send(
        self, worker: Worker, message: RegisterAck | Shutdown
    ) -> Send:  # fmt: skip
        return Send(worker.pid, worker.host, worker.port, message)

    def _shut_down(self) -> Iterator[Command]:
        for worker in self._workers:
            yield self._send(worker, Shutdown())
        yield End()
        self._is_over = True

    # --- jobs

    def _submit(self, request: NewMasterJob) -> Iterator[Command]:
        if len(self._queue) >= JOBS_WAITING_MAX:
            yield Say(f"a job is refused: {JOBS_WAITING_MAX} wait already")
            return
        job = Job(self._jobs_count, request)
        self._jobs_count += 1
        self._queue.append(job)
        yield MakeDirectories(job.job_id)
        yield Say(f"job {job.job_id} arrived: {request.input_directory}")

    def _answered(self, event: InputListed | Grouped | ResultsPlaced) -> Iterator[Command]:
        job = self._job
        assert job is not None and job.job_id == event.job_id, "one job at a time"
        if event.error:
            yield Say(f"job {job.job_id} failed: {event.error}")
            self._end_job()
            return
        match event:
            case InputListed(files=files):
                self._begin(Step.MAP, self._map_tasks(job, files))
            case Grouped():
                self._begin(Step.REDUCE, self._reduce_tasks(job))
            case ResultsPlaced():
                yield Say(f"job {job.job_id} is done: {job.request.output_directory}")
                self._end_job()

    def _end_job(self) -> None:
        self._job, self._phase = None, Phase([])

    def _begin(self, step: Step, tasks: list[Task]) -> None:
        assert self._job is not None and not self._phase.left, "T2: the phase before is over"
        self._job.step, self._phase = step, Phase(tasks)

    def _go_on(self) -> Iterator[Command]:
        """Begin whatever can begin now."""
        if self._is_over:
            return
        if self._job is None and self._queue and self._workers.alive():
            job = self._job = self._queue.popleft()
            yield ListInput(job.job_id, job.request.input_directory)
        while self._job is not None and self._is_phase_over():
            if command := self._end_phase(self._job):
                yield command
        yield from self._deal()

    def _is_phase_over(self) -> bool:
        assert self._job is not None, "the caller has a job"
        return self._job.step in (Step.MAP, Step.GROUP, Step.REDUCE) and not self._phase.left

    def _end_phase(self, job: Job) -> Command | None:
        edition, job_id = self._edition, job.job_id
        if job.step is Step.MAP:
            job.map_outputs = tuple(sorted(p for t in self._phase.tasks for p in t.outputs))
            self._begin(Step.GROUP, self._sort_tasks(job))
            return None
        reduces = range(job.request.num_reducers)
        if job.step is Step.GROUP:
            job.step = Step.MERGE
            sources = tuple(task.outputs[0] for task in self._phase.tasks)
            targets = tuple(edition.reduce_input(job_id, n) for n in reduces)
            return MergeAndCut(job_id, sources, targets)
        job.step = Step.PLACING
        outputs = tuple(task.outputs[0] for task in self._phase.tasks)
        names = tuple(edition.result(n) for n in reduces)
        return PlaceResults(job_id, outputs, names, job.request.output_directory)

    # --- tasks

    def _map_tasks(self, job: Job, files: tuple[str, ...]) -> list[Task]:
        folder = self._edition.folder(job.job_id, layout.MAPPER)
        return [
            Task(part, tuple(layout.under(folder, path) for path in part),
                 job.request.mapper_executable, folder)
            for part in layout.dealt(files, job.request.num_mappers)
        ]  # fmt: skip

    def _sort_tasks(self, job: Job) -> list[Task]:
        # If nobody lives now, whoever comes first sorts all of it.
        hands = max(1, len(self._workers.alive()))
        return [
            Task(part, (self._edition.sorted_file(job.job_id, number),))
            for number, part in enumerate(layout.dealt(job.map_outputs, hands))
        ]

    def _reduce_tasks(self, job: Job) -> list[Task]:
        folder = self._edition.folder(job.job_id, layout.REDUCER)
        inputs = [
            self._edition.reduce_input(job.job_id, n) for n in range(job.request.num_reducers)
        ]
        return [
            Task((path,), (layout.under(folder, path),), job.request.reducer_executable, folder)
            for path in inputs
        ]

    def _deal(self) -> Iterator[Command]:
        """Give what waits to who is free: task j to worker j mod w, if all are (P4-10, P4-11)."""
        waiting = self._phase.waiting
        while waiting:
            if waiting[0].is_done:
                waiting.popleft()
                continue
            worker = self._workers.next_free()
            if worker is None:
                return
            task = waiting.popleft()
            self._phase.give(task, worker.pid)
            worker.tasks.append(task)
            yield Send(worker.pid, worker.host, worker.port, task.order(worker.pid))

    def _status(self, said: AnyStatus) -> Iterator[Command]:
        worker = self._workers.get(said.worker_pid)
        ours = worker is not None and self._phase.is_ours(said.outputs)
        task = self._phase.spoken_of(said.outputs, worker.tasks) if worker and ours else None
        if worker is None or task is None or task.is_done or worker.pid not in task.holders:
            yield Say(f"a status of {said.worker_pid} is ignored: it speaks of no open task")
        elif task.owner == worker.pid:
            worker.tasks.remove(task)
            self._phase.finish(task)
        elif task.owner is None:
            self._phase.finish(task)  # P4-29: late, and nobody else has begun
        else:
            # Late, while another works on it: that one still writes these files, and what comes
            # next would read them half written. So the task ends with it, or with its death.
            task.is_written = True
