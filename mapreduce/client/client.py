"""Runs a job on a cluster, as its user sees it: the same lines and exit status as local mode.

Takes a `JobSpec` and the cluster's file; ships the job's own files, plans its splits, submits, and
waits. Rides over a restart of the master, and over another that takes its place. Ctrl-C kills the
job. Without an output directory results go to standard output in partition order. Never decides
anything about tasks.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from mrstream.cluster.config import state
from mrstream.cluster.config.config import MAPREDUCE_MASTER, Cluster, ClusterConfig
from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.cluster.leader.connection import connect_to_leader
from mrstream.cluster.retry import SILENCE_S, RetryPolicy
from mrstream.cluster.units import decimal_size
from mrstream.cluster.wire.addresses import CONNECT_S_MAX, why_wait
from mrstream.cluster.wire.messages import Request
from mrstream.mapreduce.client import staging
from mrstream.mapreduce.console import LIVE_EVERY_S, Console
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dataflow.committer import OutputExists, committer_for
from mrstream.mapreduce.dataflow.files import Files, RoutedFiles, copy_parts
from mrstream.mapreduce.dfs_layout import RESULTS
from mrstream.mapreduce.interrupts import exit_status, interruptible
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.counters import dump_of
from mrstream.mapreduce.job.errors import LaunchFailed
from mrstream.mapreduce.job.job import SPEC_BYTES_MAX, JobSpec
from mrstream.mapreduce.protocol import (
    JobEnd,
    JobNews,
    KillJob,
    ListJobs,
    SubmitJob,
    WaitForNews,
)
from mrstream.streaming.conf.jobconf import JobConf

FAILED = 1
CALL_S_MAX = 30.0
MASTER_AWAY = RetryPolicy(total_s=600.0, first_s=0.2, longest_s=0.2)
"""A master that is away for longer is given up; the job itself goes on when it comes back."""
_log = logging.getLogger(__name__)


def run(
    spec: JobSpec,
    config: ClusterConfig,
    *,
    background: bool = False,
    console: Console | None = None,
) -> int:
    """Run a job to its end, or only start it; return the exit status."""
    job.require_extras(spec, config)
    cluster = Cluster(config, state.read_identity(state.identity_file(config.name)))
    dfs_files.serve(cluster)
    with JobClient(cluster) as client:
        console = console or Console(is_quiet=spec.conf().is_quiet)
        return ClusterJob(spec, client, console).run(background=background)


class _Waiter:
    """Tells people, once, why they wait for the job master."""

    def __init__(self, on_wait: Callable[[str], None]) -> None:
        self._on_wait = on_wait
        self._began_s = time.monotonic()
        self._has_told = False

    def tell(self, error: Unavailable) -> None:
        """Nobody answers, or nobody can do it."""
        if not self._has_told:
            self._has_told = True
            self._on_wait(f"{why_wait('job', error)}; waiting for it")

    def lost(self, error: Unavailable) -> None:
        """One of several does not answer; the next may do so at once."""
        if time.monotonic() - self._began_s >= SILENCE_S:
            self.tell(error)


class JobClient:
    """Questions to the job master that leads, asked again while none does."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._connection = connect_to_leader(cluster, MAPREDUCE_MASTER, connect_s_max=CONNECT_S_MAX)

    def __enter__(self) -> JobClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()

    def hang_up(self) -> None:
        """End the connection; the next call makes a new one."""
        self._connection.close()

    def call(self, request: Request, timeout_s: float = CALL_S_MAX) -> Any:
        return self._connection.call(request, timeout_s, on_lost=_Waiter(_log.warning).lost)

    def call_patiently(
        self,
        request: Request,
        timeout_s: float = CALL_S_MAX,
        on_wait: Callable[[str], None] = _log.warning,
    ) -> Any:
        """Ask until there is an answer; `on_wait` is told of the first failure."""
        number = self._connection.next_number()
        waiter = _Waiter(on_wait)
        for attempt in MASTER_AWAY.attempts():
            try:
                return self._connection.call(request, timeout_s, number, on_lost=waiter.lost)
            except Unavailable as error:
                waiter.tell(error)
                attempt.failed(error)
        raise AssertionError("attempts do not end")


class ClusterJob:
    """One job, from its plan to its report."""

    def __init__(self, spec: JobSpec, client: JobClient, console: Console) -> None:
        """Check the output and plan the input; nothing is made yet."""
        self._began_s = time.monotonic()
        self._client = client
        self._console = console
        self._conf: JobConf = spec.conf()
        self._filesystem = f"dfs://{client.cluster.config.name}/"
        self._files: Files = RoutedFiles(self._filesystem, spec.working_directory)
        self._submission = secrets.token_hex(12)
        self._asked: SubmitJob | None = None
        self._prints = spec.output is None
        self._output_as_given = spec.output
        output = spec.output or f"{RESULTS}/{self._submission}"
        self._output = self._files.qualify(output)
        if not self._prints:
            self._committer = committer_for(self._conf, self._output, self._files)
            self._committer.check_output(spec.inputs)
        planned, self._file_count = job.planned(spec, self._files, console.warn)
        inputs = tuple(job.qualified_inputs(spec, self._files))
        self._spec = msgspec.structs.replace(planned, output=self._output, inputs=inputs)

    def run(self, *, background: bool) -> int:
        """Submit and wait; return the exit status."""
        console = self._console
        job_id = ""
        try:
            with interruptible():
                job_id = self._submit()
                if background:
                    console.job_in_background(self._output_as_given or self._output)
                    return 0
                return self._report(job_id, self._wait(job_id))
        except KeyboardInterrupt as stop:
            console.end_progress()
            self._kill(job_id)
            return exit_status(stop)

    def _submit(self) -> str:
        spec, console = self._spec, self._console
        if spec.shipped:
            shipped = staging.stage(spec.shipped, dfs_files.new_client())
            spec = msgspec.structs.replace(spec, shipped=shipped)
        if spec.environment is not None:
            from mrstream.mapreduce.client import environment_staging  # few jobs have one

            spec = environment_staging.stage(
                spec, dfs_files.new_client(), lambda text: console.info(f"environment: {text}")
            )
        spec = msgspec.structs.replace(spec, prepared_s=time.monotonic() - self._began_s)
        console.input_found(self._file_count, len(spec.splits))
        packed = job.encode(spec)
        if len(packed) > SPEC_BYTES_MAX:
            raise LaunchFailed(
                f"the job has {len(spec.splits):,} splits and {len(spec.properties):,} properties: "
                f"{decimal_size(len(packed))}, and it may have {decimal_size(SPEC_BYTES_MAX)}. "
                "Larger splits help: mapreduce.input.fileinputformat.split.minsize, fewer files"
            )
        if not self._prints:
            self._clear_output()
        self._asked = SubmitJob(self._submission, packed, self._file_count, self._prints)
        job_id: str = self._client.call_patiently(self._asked, on_wait=self._console.warn)
        console.job_runs(job_id)
        return job_id

    def _clear_output(self) -> None:
        """Delete an earlier job's output if this one overwrites; never that of a job which still
        runs: it would go on, and succeed without the parts that it had committed."""
        if self._conf.overwrites_output:
            for row in self._client.call_patiently(ListJobs(), on_wait=self._console.warn):
                if row.output == self._output:
                    raise OutputExists(
                        f"Output directory {self._output} is being written by {row.key}: wait for "
                        f"it, or end it (mrstream job -kill {row.key})"
                    )
        self._committer.clear_output()

    def _wait(self, job_id: str) -> JobEnd:
        console = self._console
        wait_s = LIVE_EVERY_S if console.is_live else self._conf.poll_interval_s
        seen = 0
        while True:
            news: JobNews = self._client.call_patiently(
                WaitForNews(job_id, seen, wait_s), CALL_S_MAX + wait_s, console.warn
            )
            seen = news.seen
            for line in news.lines:
                self._show(line.level, line.text)
            console.progress(news.progress, force=news.end is not None)
            if news.end is not None:
                console.end_progress()
                return news.end

    def _show(self, level: str, text: str) -> None:
        match level:
            case "INFO":
                self._console.info(text)
            case "WARN":
                self._console.warn(text)
            case _:
                self._console.plain(text.removesuffix("\n"))

    def _report(self, job_id: str, end: JobEnd) -> int:
        console = self._console
        if end.outcome != "succeeded":
            console.job_failed(job_id, end.outcome.upper(), end.reason)
            return FAILED
        if self._prints:
            self._print_results()
        counters = dump_of(end.counters)
        console.job_succeeded(job_id, counters, end.closing, self._output_as_given)
        return 0

    def _print_results(self) -> None:
        """Copy the parts to standard output, in the order of their names, and delete them."""
        try:
            copy_parts(self._files, self._output, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        finally:
            self._files.delete(self._output)

    def _kill(self, job_id: str) -> None:
        """Stop the job, as whoever pressed Ctrl-C wants it; another Ctrl-C leaves at once."""
        if self._asked is None:
            return
        try:
            # A frame may have been cut off in the middle: nothing more can be said after it.
            self._client.hang_up()
            # The job may run although its id never came: said again, the submission gives it.
            job_id = job_id or self._client.call(self._asked)
            self._client.call(KillJob(job_id, "interrupted by its user"))
        except UserError:
            return  # it was refused: there is no job
        except ClusterError as error:
            ends = f"`mrstream job -kill {job_id or 'JOB'}` ends it"
            listed = "" if job_id else " (`mrstream job -list` shows it)"
            self._console.warn(f"{job_id or 'the job'} may still run: {error}; {ends}{listed}")
            return
        self._console.plain(f"Interrupted: {job_id} is killed.")
