"""What a worker's zygote forks: one attempt of a job of the cluster, in a process of its own.

Takes a `WorkOrder`; runs the very attempt that the local engine runs, with the dfs below it and,
for a reduce, a shuffle that hears of maps through the attempt's socket. Made before the fork, with
all modules and tables that an attempt needs: a fork then has nothing left to load.
"""

from __future__ import annotations

import os

import msgspec

from cluster.config import WORKER, Cluster
from cluster.messages import make_decoders
from mapreduce import attempt, job
from mapreduce.dataflow import dfs_files
from mapreduce.dataflow.spawn import keep_descriptors_from_programs
from mapreduce.job import JobSpec
from mapreduce.scheduler.ids import JobId
from mapreduce.shuffle import NewsShuffle
from mapreduce.task_context import Attempt, AttemptOrder
from mapreduce.task_log import OutputSample
from streaming.child import task_environment
from streaming.command import Program
from streaming.jobconf import JobConf


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
        """Run one attempt to its end; gives the exit status."""
        work = msgspec.msgpack.decode(packed, type=WorkOrder)
        spec, order = job.decode(work.spec), work.order

        def prepare(attempt: Attempt) -> None:
            dfs_files.serve(self._cluster, spec.user)
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
