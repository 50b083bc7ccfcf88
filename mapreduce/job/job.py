"""A job as data: all that a task needs, in one frozen value that crosses process and host borders.

Takes a parsed command line; gives a `JobSpec`. Never opens an input.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from mrstream.cluster.wire.messages import unpack
from mrstream.mapreduce.dataflow.files import Files
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.mapreduce.job.errors import LaunchFailed
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command.command import Program, StreamingCommand
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.conf.properties import user_name
from mrstream.streaming.conf.submission import job_properties
from mrstream.streaming.task.shipping import Shipped

if TYPE_CHECKING:
    from mrstream.cluster.config.config import ClusterConfig


class JobSpec(msgspec.Struct, frozen=True):
    """One job: what to run, on what, and how."""

    job_id: JobId
    properties: dict[str, str]
    mapper: Program
    combiner: Program | None
    reducer: Program | None
    reduces: int
    inputs: tuple[str, ...]
    output: str | None
    """Where results go; None: to standard output."""
    shipped: tuple[Shipped, ...] = ()
    splits: tuple[Split, ...] = ()
    working_directory: str = "/"
    user: str = ""
    tasks: str = ""
    """Which maps to run, such as `m0,m3-5`; empty: all of them."""
    prepared_s: float = 0.0
    """How long the client took to plan the input and to ship programs (MapReduce §5.2)."""
    extras: tuple[str, ...] = ()
    """The optional parts of mrstream that its attempts need wherever they run."""

    def conf(self) -> JobConf:
        """Give the job's settings, typed."""
        return JobConf.from_dict(self.properties)


def spec_from(command: StreamingCommand) -> JobSpec:
    """Give the job of a command line; its id and its splits come when it is started."""
    return JobSpec(
        job_id=JobId(""),
        properties=command.conf.to_dict(),
        mapper=command.mapper,
        combiner=command.combiner,
        reducer=command.reducer,
        reduces=command.reduces,
        inputs=command.inputs,
        output=command.output,
        shipped=command.shipped,
        working_directory=os.getcwd(),
        user=user_name(),
        tasks=command.tasks or "",
        extras=command.conf.extras,
    )


def require_extras(spec: JobSpec, config: ClusterConfig | None = None) -> None:
    """Raise `MissingExtra` if this machine, or the cluster that the job is for, lacks an extra."""
    if not spec.extras:
        return
    from mrstream.cluster.config import extras  # few jobs need it

    if config is not None:
        extras.require_of_cluster(spec.extras, config.extras, config.name, "this job")
    extras.require(spec.extras, "this job")


def submitted(spec: JobSpec, files: Files, *, file_count: int, maps: int) -> JobSpec:
    """Give the job with what its submission adds to its properties, for programs to see."""
    properties = job_properties(
        spec.properties,
        job_name=f"streamjob{time.time_ns()}",
        user=spec.user,
        host=os.uname().nodename,
        working_directory=files.qualify("."),
        inputs=[files.qualify(path) for path in spec.inputs],
        output="" if spec.output is None else files.qualify(spec.output),
        files=file_count,
        maps=maps,
    )
    return msgspec.structs.replace(spec, properties=properties)


def encode(spec: JobSpec) -> bytes:
    """Give the bytes of a job."""
    return msgspec.msgpack.encode(spec)


def decode(data: bytes) -> JobSpec:
    """Give the job of these bytes, which may come from anyone who submits one."""
    try:
        spec: JobSpec = unpack(data, JobSpec)
    except msgspec.DecodeError as error:
        raise LaunchFailed(f"the job cannot be read: {error}") from None
    return spec
