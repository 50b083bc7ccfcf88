"""What a worker's zygote forks: a process that runs attempts of one job of the cluster.

Takes a `WorkOrder`; runs the very attempt that the local engine runs, with the dfs below it and,
for a reduce, a shuffle that hears of maps through the attempt's socket. Made before the fork, with
all modules and tables that an attempt needs: a fork then has nothing left to load. After a map that
went well it takes another one of its job: its connections and its memory are warm. The user's
programs are new processes for every attempt.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import msgspec

from mrstream.cluster.config.config import WORKER, Cluster
from mrstream.cluster.wire.messages import make_decoders
from mrstream.mapreduce.attempt import attempt
from mrstream.mapreduce.attempt.attempt_report import Ready, send
from mrstream.mapreduce.attempt.pipe_frames import receive
from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder
from mrstream.mapreduce.attempt.task_log import OutputSample
from mrstream.mapreduce.attempt.zygote import MARK
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dataflow.files import Files, files_for
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.program.spawn import keep_descriptors_from_programs
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.mapreduce.worker.shuffle import NewsShuffle
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.task.child import task_environment

ATTEMPTS_MAX: Final = 100
"""A process ends after so many attempts: whatever might pile up in it goes with it."""


class WorkOrder(msgspec.Struct, frozen=True):
    """A job, its files as they lie on this host, and which attempt at it to run."""

    spec: bytes
    order: AttemptOrder


class AttemptProcess:
    """The target of a worker's zygote."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        _warm_up()

    def __call__(self, packed: bytes, report: int, lifeline: int) -> int:
        """Run attempts to their ends while the worker has more of them; gives the exit status."""
        files: Files | None = None
        attempts_count = 0
        while True:
            work = msgspec.msgpack.decode(packed, type=WorkOrder)
            spec, order = job.decode(work.spec), work.order
            if files is None:
                dfs_files.serve(self._cluster, spec.user, spec.conf().output_replication or 0)
                files = files_for(order.filesystem, spec.working_directory)
            os.environ[MARK] = order.attempt_id
            status = self._run(spec, order, files, report, lifeline)
            attempts_count += 1
            if status != 0 or attempts_count == ATTEMPTS_MAX or not _may_go_on(spec, order):
                return status
            send(report, Ready())
            packed = _next_order(report)
            if not packed:
                return 0

    def _run(
        self, spec: JobSpec, order: AttemptOrder, files: Files, report: int, lifeline: int
    ) -> int:
        def prepare(attempt: Attempt) -> None:
            attempt.files = files
            attempt.tee = OutputSample(os.path.join(order.log_directory, "stdout"))
            if order.output_directory:
                # Made even for a task without output: a commit that does not find it was fenced.
                attempt.files.mkdirs(order.output_directory)
            if not order.is_map:
                identity = self._cluster.identity(WORKER, self._host)
                attempt.shuffle = NewsShuffle(attempt, report, identity)

        return attempt.run(spec, order, report, lifeline, prepare)


def _may_go_on(spec: JobSpec, order: AttemptOrder) -> bool:
    """Say whether this process may run another attempt after this one.

    Not after a reduce: news of maps may still be on its socket. Not where memory is limited: what
    an attempt is charged for must be its own.
    """
    return order.is_map and not spec.conf().map_memory_bytes


def _next_order(report: int) -> bytes:
    """Wait for another order; nothing if the worker has none, or is gone."""
    with socket.socket(fileno=os.dup(report)) as ours:
        return receive(ours)


def _warm_up() -> None:
    """Have tables and decoders made once here, instead of by every attempt (about 8 ms each)."""
    order = AttemptOrder("attempt_0_0000_m_000000_0", 0, "", "", "")
    spec = JobSpec(JobId(""), {}, Program(), None, None, 0, (), None)
    work = msgspec.msgpack.encode(WorkOrder(job.encode(spec), order))
    job.decode(msgspec.msgpack.decode(work, type=WorkOrder).spec)
    task_environment(JobConf(), {}, {}, "")
    keep_descriptors_from_programs()
    make_decoders()
    "localhost".encode("idna")  # what connecting to a named host loads
