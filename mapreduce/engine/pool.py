"""The driver's side of an engine: attempts that run elsewhere, with the face of a zygote.

Takes orders from the job's shell and hands them to an engine; takes outcomes from the engine's
threads and turns them into last words. Brings home what a failed attempt left, and the parts of a
job that prints. Never commits, never decides about retries: the brain does.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from mrstream.mapreduce.attempt.attempt_report import (
    Done,
    Failed,
    Failure,
    Message,
    PartitionSize,
)
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.attempt.zygote import Ended, Zygote
from mrstream.mapreduce.dataflow.committer import TEMPORARY
from mrstream.mapreduce.dataflow.files import join
from mrstream.mapreduce.engine.packet import PRINTS, Outcome, Task, pack, write_files
from mrstream.mapreduce.engine.reach import Look, looks_at
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.local.output import DirectoryOutput, Output

Finished = Callable[[int, Outcome | None, str], None]
"""What an engine calls when an attempt is over: its token, its outcome or why there is none."""


class Work(msgspec.Struct, frozen=True):
    """A job as an engine sees it: its packet, and how many tasks it has."""

    job_id: str
    packet: bytes
    maps: int
    reduces: int


class Engine(Protocol):
    """Runs attempts; `finished` is told of each, from any thread, once."""

    def check(
        self, looks: Sequence[Look], filesystem: str, environment: Environment | None
    ) -> bool:
        """Raise `Unreachable` if a worker would not find what the job reads and writes, and
        `BadEnvironment` if its environment cannot run there; say whether all have that."""

    def begin(self, job: Work, finished: Finished) -> None:
        """Take the job that all tasks belong to."""

    def start(self, token: int, task: Task, segments: Sequence[str]) -> None:
        """Have an attempt run. Of a reduce, `segments` names the maps' segments in order; a map's
        own is `task.order.segment_path`."""

    def kill(self, token: int) -> None:
        """End an attempt; `finished` still follows."""

    def close(self) -> None:
        """End all attempts, wait until they are gone, and let go of the engine."""


class EngineOutput:
    """The output of a job whose attempts run elsewhere.

    E1: what is committed is the directory of the execution whose outcome came first; those of
    other executions of the attempt are never looked at.
    """

    def __init__(self, inner: Output) -> None:
        self._inner = inner
        self._prints = not isinstance(inner, DirectoryOutput)
        self._execution: dict[str, str] = {}

    @property
    def temporary(self) -> str | None:
        return self._inner.temporary

    @property
    def room(self) -> str | None:
        """URL of the directory below which attempts write; None: they print."""
        if not isinstance(self._inner, DirectoryOutput):
            return None
        return join(self._inner.url, TEMPORARY)

    def begin(self) -> None:
        self._inner.begin()

    def attempt_directory(self, attempt_id: str) -> str:
        """Make the directory of an attempt; one that prints has it on its worker's disk."""
        directory = self._inner.attempt_directory(attempt_id)
        return f"{PRINTS}{attempt_id}" if self._prints else directory

    def ran(self, attempt_id: str, outcome: Outcome) -> None:
        """Hear which execution of an attempt is the one that counts."""
        self._execution[attempt_id] = outcome.attempt_id

    def commit_task(self, attempt_id: str, place: int) -> None:
        """Make visible what that execution wrote."""
        self._inner.commit_task(self._execution[attempt_id], place)

    def skip_task(self, place: int) -> None:
        self._inner.skip_task(place)

    def abort_task(self, attempt_id: str) -> None:
        self._inner.abort_task(self._execution.get(attempt_id, attempt_id))

    def commit_job(self) -> None:
        self._inner.commit_job()

    def abort_job(self, *, is_interrupted: bool) -> None:
        self._inner.abort_job(is_interrupted=is_interrupted)


class EnginePool:
    def __init__(
        self, engine: Engine, sweeper: Zygote, record: JobRecord, output: EngineOutput
    ) -> None:
        """`sweeper` removes directories when this process is gone; it starts no attempt."""
        self._engine = engine
        self._sweeper = sweeper
        self._record = record
        self._output = output
        self._bell, self._ringer = socket.socketpair()
        self._over: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._orders: dict[int, AttemptOrder] = {}
        self._words: dict[int, tuple[Message, ...]] = {}
        self._partitions: dict[str, tuple[PartitionSize, ...]] = {}
        self._token = 0

    def fileno(self) -> int:
        return self._bell.fileno()

    def start(self, order: bytes, mark: str) -> tuple[int, int]:
        """Hand an attempt to the engine; its messages come as last words."""
        spec, given = msgspec.msgpack.decode(order, type=tuple[msgspec.Raw, AttemptOrder])
        if not self._token:
            self._begin(msgspec.msgpack.decode(spec, type=JobSpec), given)
        self._token += 1
        with self._lock:
            self._orders[self._token] = given
            inputs = tuple(self._partitions[path][given.task_index] for path in given.segments)
        task = Task(msgspec.structs.replace(given, segments=()), inputs)
        self._engine.start(self._token, task, given.segments)
        return self._token, -1

    def kill(self, token: int) -> None:
        self._engine.kill(token)

    def ended(self) -> Ended:
        self._bell.recv(1)
        token = self._over.get()
        is_done = any(isinstance(word, Done) for word in self._words[token])
        return Ended(token, 0 if is_done else 1)

    def last_words(self, token: int) -> Iterable[Message]:
        return self._words.pop(token)

    def remove_at_end(self, path: str) -> None:
        self._sweeper.remove_at_end(path)

    def keep(self, path: str) -> None:
        self._sweeper.keep(path)

    def close(self) -> None:
        """End every attempt and let go of the engine."""
        try:
            self._engine.close()
        finally:
            self._sweeper.close()
            self._bell.close()
            self._ringer.close()

    def finished(self, token: int, outcome: Outcome | None, why: str) -> None:
        """Hear from the engine; in any thread. Only the first word about an attempt counts (E1)."""
        with self._lock:
            order = self._orders.pop(token, None)
        if order is None:
            return
        words: tuple[Message, ...]
        if outcome is None:
            words = (Failed(Failure(why, log_directory=order.log_directory)),)
        else:
            try:
                words = self._brought_home(order, outcome)
            except OSError as error:
                failure = Failure(f"what the attempt gave back cannot be kept: {error}")
                words = (Failed(failure),)
        self._words[token] = words
        self._over.put(token)
        try:
            self._ringer.send(b"!")
        except OSError:  # the job is over, and nobody listens
            self._words.pop(token, None)

    def _begin(self, spec: JobSpec, first: AttemptOrder) -> None:
        """See whether the engine can do the job, and hand it over; with the first attempt."""
        looks = looks_at(first, self._output.room)
        has_environment = self._engine.check(looks, first.filesystem, spec.environment)
        packet = pack(spec, with_environment=not has_environment)
        work = Work(spec.job_id, packet, first.maps, spec.reduces)
        self._engine.begin(work, self.finished)

    def _brought_home(self, order: AttemptOrder, outcome: Outcome) -> tuple[Message, ...]:
        self._output.ran(order.attempt_id, outcome)
        last = outcome.messages[-1]
        if isinstance(last, Done):
            if order.segment_path:
                with self._lock:
                    self._partitions[order.segment_path] = last.partitions
            if outcome.files:
                place = os.path.join(self._record.scratch, "output", outcome.attempt_id)
                write_files(place, _below("output", outcome))
            return outcome.messages
        assert isinstance(last, Failed), "an attempt ends with one of the two"
        write_files(order.log_directory, _below("logs", outcome))
        if order.keep_directory:
            write_files(order.keep_directory, _below("kept", outcome))
        failure = msgspec.structs.replace(last.failure, log_directory=order.log_directory)
        return (*outcome.messages[:-1], Failed(failure))


def _below(folder: str, outcome: Outcome) -> list[tuple[str, bytes]]:
    start = f"{folder}/"
    return [(name[len(start) :], data) for name, data in outcome.files if name.startswith(start)]
