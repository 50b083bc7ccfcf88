"""Runs a job on this machine. Takes a `JobSpec`; gives an exit status.

One process decides and talks to people, one (the zygote) forks, and every attempt is a process.
Whatever happens, Ctrl-C and kill -9 included, no process and no temporary file stays behind.

The zygote is forked first, before a thread, a loop or most of our own modules exist: then it loads
what attempts need while this process loads what decides and plans, side by side.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import msgspec

from mrstream.mapreduce import history
from mrstream.mapreduce.attempt.zygote import MARK, Zygote
from mrstream.mapreduce.console import Console
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.interrupts import exit_status, interruptible
from mrstream.mapreduce.job.job import JobSpec, require_extras


def run(spec: JobSpec, *, background: bool = False, console: Console | None = None) -> int:
    """Run a job to its end and return the exit status; a UserError if it cannot even start."""
    require_extras(spec)
    console = console or Console(is_quiet=spec.conf().is_quiet)

    def run_here(spec: JobSpec, record: JobRecord) -> int:
        with contextlib.closing(_zygote(spec)) as zygote:
            zygote.remove_at_end(record.mark)
            if local_dir := spec.conf().local_dir:
                record.put_scratch_in(local_dir.partition(",")[0].strip())
                zygote.remove_at_end(record.scratch)
            from mrstream.mapreduce.local.job import (
                LocalJob,  # while the zygote loads the attempt's side
            )

            return LocalJob(spec, record, console, zygote, is_quiet=background).run()

    return watched(spec, console, run_here)


def watched(spec: JobSpec, console: Console, run: Callable[[JobSpec, JobRecord], int]) -> int:
    """Give a job its id, its directory and its Python environment, and run it: whoever interrupts
    it finds nothing of it left."""
    if spec.environment is not None:
        from mrstream.mapreduce.environment.store import use_here  # few jobs have one

        with interruptible():
            spec = use_here(spec, lambda text: console.info(f"environment: {text}"))
    record = history.begin()
    try:
        with interruptible():
            return run(msgspec.structs.replace(spec, job_id=record.job_id), record)
    except KeyboardInterrupt as stop:
        record.drop_all()
        console.end_progress()
        console.plain("Interrupted: the job is stopped and its temporary files are gone.")
        return exit_status(stop)
    except BaseException:
        record.drop_all()
        raise


def _zygote(spec: JobSpec) -> Zygote:
    load = _load_with_store if "s3" in spec.extras else _load
    return Zygote(_attempt_process, load)


def _load_with_store() -> None:
    """Load boto3, too: it takes as long as a small attempt."""
    _load()
    import boto3  # noqa: F401


def _load() -> None:
    """Load what every attempt needs, once, in the zygote."""
    import mrstream.mapreduce.attempt.attempt  # noqa: F401 - attempts are forked with it in place


def _attempt_process(paper: bytes, report: int, lifeline: int) -> int:
    """Be an attempt, and the next one: what it shall do stands on the paper."""
    from mrstream.mapreduce.attempt import attempt
    from mrstream.mapreduce.attempt.in_turn import may_go_on, run_in_turn
    from mrstream.mapreduce.attempt.task_context import AttemptOrder

    spec: JobSpec | None = None

    def run(paper: bytes) -> tuple[int, bool]:
        nonlocal spec
        packed, order = msgspec.msgpack.decode(paper, type=tuple[msgspec.Raw, AttemptOrder])
        spec = spec or msgspec.msgpack.decode(packed, type=JobSpec)
        os.environ[MARK] = order.attempt_id
        return attempt.run(spec, order, report, lifeline), may_go_on(spec, order)

    return run_in_turn(paper, report, run)
