"""What an engine's worker runs for each attempt: a process around the unchanged attempt.

Takes a job (once) and a task as bytes; brings a reduce its input as a file, has the attempt run in
a nest beside this process, and gives back its outcome and, of a map, its partitions. The engine may
run it again at any moment, here or elsewhere, also while an older run of it still goes on: nothing
it writes is shared with another run (E1). Imports nothing of an engine.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, cast

import msgspec

from mrstream.mapreduce.attempt.attempt_report import Done, Failed, Failure, death_text
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.engine.nest import (
    SHUFFLED,
    Answer,
    Assignment,
    Opened,
    read_exactly,
    read_frame,
    write_frame,
)
from mrstream.mapreduce.engine.packet import (
    KEPT_BYTES_MAX,
    PRINTS,
    Outcome,
    Task,
    execution_id,
    placed,
    read_files,
)

_LOOK_S = 0.25
"""An engine that cancels a task sets a flag which Python sees between calls: none waits longer."""
_END_S_MAX = 20.0
_PRINTED_BYTES_MAX = 1 << 62


class NestGone(Exception):
    """The process beside this worker ended while it was needed."""


class Nest:
    """The process beside this worker, for the attempts of one job."""

    def __init__(self, job_id: str, packet: bytes) -> None:
        self.job_id = job_id
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mrstream.mapreduce.engine.nest"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C at a terminal is for the driver
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._orders: BinaryIO = cast(BinaryIO, self._process.stdin)
        self._answers: BinaryIO = cast(BinaryIO, self._process.stdout)
        opened = msgspec.msgpack.decode(self._ask(packet), type=Opened)
        if opened.problem:
            raise NestGone(f"the job cannot be laid out here: {opened.problem}")
        self.directory = opened.directory

    def run(self, task: Assignment) -> Answer:
        return msgspec.msgpack.decode(self._ask(msgspec.msgpack.encode(task)), type=Answer)

    def close(self) -> None:
        """End whatever runs there, and wait until nothing of it is left."""
        for stream in (self._orders, self._answers):
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self._process.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, data: bytes) -> bytes:
        try:
            write_frame(self._orders, data)
            while not select.select([self._answers], [], [], _LOOK_S)[0]:
                pass
            answer = read_frame(self._answers)
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise NestGone("the process that runs attempts beside the engine's worker is gone")
        return answer


_nest: Nest | None = None
"""The nest of the job that this worker served last: to start one takes longer than most maps."""


def run_task(
    job_id: str,
    packet: Callable[[], bytes],
    task: Task,
    repeat: int,
    partitions: Iterable[bytes] = (),
) -> tuple[Outcome, Iterator[bytes]]:
    """Run an attempt, for the `repeat`th time; return its outcome and, of a map, its partitions.

    `packet` gives the bytes of the job where this worker does not know it yet. The partitions are
    to be taken before the next task.
    """
    try:
        nest = _nest_of(job_id, packet)
        prints = task.order.output_directory.startswith(PRINTS)
        order = placed(task.order, repeat, nest.directory, prints=prints)
        os.makedirs(order.directory, mode=0o700)
        if not order.is_map:
            _bring(os.path.join(order.directory, SHUFFLED), partitions)
        return _harvest(order, nest.run(Assignment(order, task.inputs)), prints=prints)
    except (NestGone, OSError) as error:  # also a full disk; another try may be elsewhere
        drop_nest()
        return _could_not(task.order, repeat, error), iter(())
    except BaseException:
        drop_nest()  # cancelled, or a bug: in either case nothing may go on here
        raise


def drop_nest() -> None:
    """End the nest of this worker, if it has one."""
    global _nest
    if _nest is not None:
        _nest.close()
        _nest = None


def _nest_of(job_id: str, packet: Callable[[], bytes]) -> Nest:
    global _nest
    if _nest is None or _nest.job_id != job_id:
        drop_nest()
        _nest = Nest(job_id, packet())
    return _nest


def _bring(path: str, partitions: Iterable[bytes]) -> None:
    with open(path, "wb", buffering=0) as file:
        for partition in partitions:
            view = memoryview(partition)
            while len(view):
                view = view[file.write(view) :]


def _harvest(
    order: AttemptOrder, answer: Answer, *, prints: bool
) -> tuple[Outcome, Iterator[bytes]]:
    last = answer.messages[-1] if answer.messages else None
    messages = answer.messages
    files: list[tuple[str, bytes]] = []
    if isinstance(last, Done):
        if prints and order.output_directory:
            files = read_files(order.directory, ["output"], _PRINTED_BYTES_MAX)
    else:
        files = read_files(order.directory, ["logs"], KEPT_BYTES_MAX)
        files += read_files(order.directory, ["kept"], KEPT_BYTES_MAX)
        if not isinstance(last, Failed):
            messages = (*messages, Failed(Failure(death_text(answer.status))))
    outcome = Outcome(order.attempt_id, messages, tuple(files), socket.gethostname())
    if isinstance(last, Done) and order.segment_path:
        return outcome, _partitions(order, last)
    shutil.rmtree(order.directory, ignore_errors=True)
    return outcome, iter(())


def _partitions(order: AttemptOrder, done: Done) -> Iterator[bytes]:
    """Yield the partitions of a map's segment, one after the other; the file goes when all are."""
    try:
        with open(order.segment_path, "rb", buffering=0) as file:
            for size in done.partitions:
                file.seek(size.offset)
                yield read_exactly(file, size.length)
    finally:
        shutil.rmtree(order.directory, ignore_errors=True)


def _could_not(order: AttemptOrder, repeat: int, error: Exception) -> Outcome:
    host = socket.gethostname()
    failed = Failed(Failure(f"{type(error).__name__} on {host}: {error}"))
    return Outcome(execution_id(order.attempt_id, repeat), (failed,), host=host)
