"""What a worker's zygote forks: a process that runs attempts of one job of the cluster.

Takes a `WorkOrder`; runs the very attempt that the local engine runs, with the dfs below it and,
for a reduce, a shuffle that hears of maps through the attempt's socket. Made before the fork, with
all modules and tables that an attempt needs: a fork then has nothing left to load. After a map that
went well it takes another one of its job: its connections and its memory are warm. The user's
programs are new processes for every attempt.
"""

from __future__ import annotations

import os

import msgspec

from mrstream.cluster.config.config import WORKER, Cluster
from mrstream.cluster.wire.messages import make_decoders
from mrstream.dfs.client.fence import SEQUENCER, format_fences
from mrstream.mapreduce.attempt import attempt
from mrstream.mapreduce.attempt.in_turn import may_go_on, run_in_turn
from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder
from mrstream.mapreduce.attempt.task_log import OutputSample
from mrstream.mapreduce.attempt.zygote import MARK
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dataflow.files import Files, RoutedFiles
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.program.spawn import keep_descriptors_from_programs
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.mapreduce.worker.shuffle import NewsShuffle
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.task.child import task_environment


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
        """Run attempts to their ends while the worker has more of them; return the exit status."""
        files: Files | None = None

        def run(packed: bytes) -> tuple[int, bool]:
            nonlocal files
            work = msgspec.msgpack.decode(packed, type=WorkOrder)
            spec, order = job.decode(work.spec), work.order
            if files is None:
                # Its own changes, and those of its programs, are under the locks of the job.
                if spec.fences:
                    os.environ[SEQUENCER] = format_fences(spec.fences)
                dfs_files.serve(self._cluster, spec.user, spec.conf().output_replication or 0)
                files = RoutedFiles(order.filesystem, spec.working_directory)
            os.environ[MARK] = order.attempt_id
            return self._run(spec, order, files, report, lifeline), may_go_on(spec, order)

        return run_in_turn(packed, report, run)

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
