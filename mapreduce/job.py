"""A job as data: all that a task needs, in one frozen value that crosses process and host borders.

Takes a parsed command line; gives a `JobSpec`. Never opens an input.
"""

from __future__ import annotations

import os

import msgspec

from mapreduce.dataflow.split_plan import Split
from mapreduce.scheduler.ids import JobId
from streaming.command import Program, StreamingCommand
from streaming.jobconf import JobConf
from streaming.properties import user_name
from streaming.shipping import Shipped


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
    cmdenv: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ()
    working_directory: str = "/"
    user: str = ""
    tasks: str = ""
    """Which maps to run, such as `m0,m3-5`; empty: all of them."""

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
        cmdenv=command.cmdenv,
        working_directory=os.getcwd(),
        user=user_name(),
        tasks=command.tasks or "",
    )


def encode(spec: JobSpec) -> bytes:
    """Give the bytes of a job."""
    return msgspec.msgpack.encode(spec)


def decode(data: bytes) -> JobSpec:
    """Give the job of these bytes."""
    return msgspec.msgpack.decode(data, type=JobSpec)
