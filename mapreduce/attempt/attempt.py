"""One try at a task, in a process of its own.

`run_map` and `run_reduce` take an `Attempt` (the job, the order and all that surrounds it); they
give `Done` or raise. Neither commits anything: whoever gave the order does, once the scheduler says
so. `run` is what the zygote forks: it reports through a pipe and keeps the input of a failure.
Knows nothing of masters, workers or whether the job is local.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.units import decimal_size
from mrstream.mapreduce.attempt.attempt_report import (
    KEPT_FAILURE,
    KEPT_ORDER,
    Done,
    Failed,
    Failure,
    Message,
    Noted,
    send,
)
from mrstream.mapreduce.attempt.map_task import MapTask
from mrstream.mapreduce.attempt.reduce_task import ReduceTask
from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder
from mrstream.mapreduce.attempt.task_memory import MemoryLimit
from mrstream.mapreduce.dataflow.files import local_path
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.program.children import kill_descendants
from mrstream.mapreduce.program.errors import (
    CommandFailed,
    TaskFailed,
    TaskOutOfMemory,
    TaskTimedOut,
)
from mrstream.mapreduce.program.flow import InputRange

_FULL_BYTES = 1 << 20
"""A disk with less than this is called full: what could not be written is gone from it again."""


def run(
    spec: JobSpec,
    order: AttemptOrder,
    report: int,
    lifeline: int | None,
    prepare: Callable[[Attempt], None] | None = None,
) -> int:
    """Be the attempt's process: run it, tell how it went, leave nothing behind.

    `prepare` may change the attempt's surroundings first; its failure is the attempt's.
    """
    lock = threading.Lock()

    def tell(message: Message) -> None:
        with lock, contextlib.suppress(BrokenPipeError):  # nobody listens: soon we are killed
            send(report, message)

    try:
        attempt = Attempt(spec, order, tell, lifeline)
    except (ClusterError, OSError) as error:  # a setting that makes no sense, a full disk
        where = _full_disk(order, error) if isinstance(error, OSError) else ""
        tell(Failed(Failure(f"{error}{where}", log_directory=order.log_directory)))
        return 1

    def on_expiry(error: TaskFailed) -> NoReturn:
        tell(Failed(failure_of(attempt, error)))
        os._exit(1)

    limit_bytes, setting = attempt.memory_limit()
    if limit_bytes:
        attempt.watch.check = MemoryLimit(os.getpid(), limit_bytes, setting).check
    attempt.watch.start(attempt.report, on_expiry)
    try:
        if prepare is not None:
            prepare(attempt)
        done = run_map(attempt) if order.is_map else run_reduce(attempt)
    except BaseException as error:
        attempt.watch.stop()
        failure = failure_of(attempt, error)
        _keep(attempt, failure)
        tell(Failed(failure))
        return 1
    finally:
        attempt.log.close()
        kill_descendants(os.getpid())
    attempt.watch.stop()
    tell(done)
    return 0


def run_map(attempt: Attempt) -> Done:
    """Run a map: its split through the map program, into a segment or into final output."""
    return _with_named_outputs(attempt, MapTask(attempt).run())


def run_reduce(attempt: Attempt) -> Done:
    """Run a reduce: its partition of every segment through the reduce program, into output."""
    return _with_named_outputs(attempt, ReduceTask(attempt).run())


def _with_named_outputs(attempt: Attempt, done: Done) -> Done:
    """Take along what the programs wrote besides, if the job lets them."""
    if not attempt.conf.outputs or not attempt.order.output_directory:
        return done
    from mrstream.mapreduce.attempt import named_outputs  # few jobs have any

    written = named_outputs.publish(attempt)
    return msgspec.structs.replace(
        done,
        counters=named_outputs.counted(done.counters, written),
        output_bytes=done.output_bytes + sum(of.bytes for of in written.values()),
    )


def failure_of(attempt: Attempt, error: BaseException) -> Failure:
    """Put into words and numbers why the attempt failed."""
    is_command = isinstance(error, CommandFailed | TaskTimedOut | TaskOutOfMemory)
    stage = attempt.workplace.stage if is_command or isinstance(error, ClusterError) else ""
    program = attempt.program_of(stage)
    expected = isinstance(error, ClusterError | OSError)
    message = str(error) if isinstance(error, ClusterError) else f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):
        message += _full_disk(attempt.order, error)
    range_of_input: InputRange | None = None
    with contextlib.suppress(Exception):  # a report must not fail for want of a detail
        range_of_input = attempt.input_range()
    return Failure(
        message=message,
        stage=stage,
        command=str(program) if program is not None else "",
        exit_code=error.details.get("exit_code") if isinstance(error, CommandFailed) else None,
        stderr_tail=attempt.log.tail(),
        input=range_of_input,
        log_directory=attempt.order.log_directory,
        is_timeout=isinstance(error, TaskTimedOut),
        trace="" if expected else "".join(traceback.format_exception(error)),
    )


def _full_disk(order: AttemptOrder, error: OSError) -> str:
    """Say which directory's disk is full, if that is the error; the system tells no name."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    places = [order.directory, order.log_directory]
    if order.output_directory.startswith("file:"):
        places.insert(0, local_path(order.output_directory))
    for place in places:
        with contextlib.suppress(OSError):  # it may have vanished meanwhile
            disk = os.statvfs(place)
            if disk.f_bavail * disk.f_frsize < _FULL_BYTES or disk.f_favail < 1 <= disk.f_files:
                left = decimal_size(disk.f_bavail * disk.f_frsize)
                return f": the disk of {place} is full ({left} left)"
    return f": one of the disks of {', '.join(places)}"


def _keep(attempt: Attempt, failure: Failure) -> None:
    """Keep the failed attempt's order, its failure and its input, for `-repeat`."""
    directory = attempt.order.keep_directory
    if not directory:
        return
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for name, value in ((KEPT_ORDER, attempt.order), (KEPT_FAILURE, failure)):
            with open(os.path.join(directory, name), "wb") as file:
                file.write(msgspec.msgpack.encode(value))
        attempt.keep_input(directory)
    except Exception as error:  # the failure itself matters more than keeping its input
        attempt.tell(Noted("WARN", f"the input of {attempt.order.attempt_id} is not kept: {error}"))
