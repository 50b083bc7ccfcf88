"""A job as data: all that a task needs, in one frozen value that crosses process and host borders.

Takes a parsed command line; gives a `JobSpec`. Never opens an input.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.user import user_name
from mrstream.cluster.wire.messages import unpack
from mrstream.mapreduce.dataflow.files import Files, is_object_store
from mrstream.mapreduce.dataflow.split_plan import Split, SplitPlan, plan_splits
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.job.errors import LaunchFailed
from mrstream.mapreduce.job.task_choice import chosen_maps
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming import classes
from mrstream.streaming.command.command import (
    REDUCES_MAX,
    InputSource,
    Program,
    StreamingCommand,
)
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.conf.submission import INPUT_INDEX, job_properties
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.output_format import OutputFormat
from mrstream.streaming.task.shipping import Shipped

if TYPE_CHECKING:
    from mrstream.cluster.config.config import ClusterConfig

_LINES = (InputFormat.TEXT.name, InputFormat.KEY_VALUE_TEXT.name)
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".avro": "avro", ".arrow": "arrow",
    ".feather": "arrow", ".warc": "warc",
}  # fmt: skip
SPEC_BYTES_MAX = 24 * 1024 * 1024 - 64 * 1024
"""Of a packed job: it must fit into a message and into a record of a group's journal, 24 MiB."""


class JobSpec(msgspec.Struct, frozen=True):
    """One job: what to run, on what, and how."""

    job_id: JobId
    properties: dict[str, str]
    mapper: Program
    combiner: Program | None
    reducer: Program | None
    reduces: Annotated[int, msgspec.Meta(ge=0, le=REDUCES_MAX)]
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
    sources: tuple[InputSource, ...] = ()
    """The inputs, where they have mappers and formats of their own; else empty."""
    environment: Environment | None = None
    """The Python environment of its programs; None: that of the host."""

    def conf(self) -> JobConf:
        return JobConf.from_dict(self.properties)

    def of_source(self, index: int) -> JobSpec:
        """Return the job as the maps of one source see it: with its mapper and its settings."""
        if not self.sources:
            return self
        source = self.sources[index]
        properties = self.properties | source.properties | {INPUT_INDEX: str(index)}
        return msgspec.structs.replace(self, mapper=source.mapper, properties=properties)


def spec_from(command: StreamingCommand) -> JobSpec:
    """Return the job of a command line; its id and its splits come when it is started."""
    spec = JobSpec(
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
        sources=command.sources,
        environment=Environment(command.environment) if command.environment else None,
        extras=tuple(dict.fromkeys((*command.conf.extras, *_needed_extras(command)))),
    )
    if command.mapper.builtin != classes.SAW:
        return spec
    from mrstream.mapreduce.job import saw_program  # nothing of it loads for other jobs

    return saw_program.checked(spec)


def _needed_extras(command: StreamingCommand) -> Iterator[str]:
    """Yield the extras that the job's own formats and places need, whatever its programs do."""
    given = command.conf.to_dict()
    for source in ({}, *(source.properties for source in command.sources)):
        conf = JobConf.from_dict(given | source)
        kind = InputFormat.by_class_name(conf.input_format_class)
        yield from kind.extras if kind is not None else ()
    for name in (command.conf.output_format_class, *command.conf.outputs.values()):
        output = OutputFormat.by_class_name(name)
        yield from output.extras if output is not None else ()
    inputs = [*command.inputs, *(path for source in command.sources for path in source.inputs)]
    if any(is_object_store(path) for path in [*inputs, command.output or ""]):
        yield "s3"


def require_extras(spec: JobSpec, config: ClusterConfig | None = None) -> None:
    """Raise `MissingExtra` if this machine, or the cluster that the job is for, lacks an extra."""
    if not spec.extras:
        return
    from mrstream.cluster.config import extras  # few jobs need it

    if config is not None:
        extras.require_of_cluster(spec.extras, config.extras, config.name, "this job")
    extras.require(spec.extras, "this job")


def plan_input(spec: JobSpec, files: Files) -> SplitPlan:
    """Find and cut the input of a job: each source by its own format, longest splits first."""
    try:
        return _plan_of_sources(spec, files) if spec.sources else _planned(spec, spec.inputs, files)
    except OSError as error:
        if isinstance(error, ClusterError):
            raise
        raise LaunchFailed(f"the input cannot be read: {error}") from None


def foreign_input(plan: SplitPlan) -> str:
    """Say that an input which is read as lines is none, as far as its name tells; else nothing."""
    for split in plan.splits:
        if split.kind not in _LINES:
            continue
        for piece in split.pieces:
            kind = _FORMATS.get(os.path.splitext(piece.url)[1].lower())
            if kind is not None:
                return (
                    f"{piece.url} looks like {kind} and is read as lines of text: its mapper gets "
                    f"bytes that mean nothing; -inputformat {kind} reads its records"
                )
    return ""


def _plan_of_sources(spec: JobSpec, files: Files) -> SplitPlan:
    found: list[Split] = []
    file_count = 0
    for index, source in enumerate(spec.sources):
        plan = _planned(spec.of_source(index), source.inputs, files)
        found += [msgspec.structs.replace(split, source=index) for split in plan.splits]
        file_count += plan.file_count
    found.sort(key=lambda split: -split.length)
    splits = (msgspec.structs.replace(split, index=n) for n, split in enumerate(found))
    return SplitPlan(tuple(splits), file_count)


def qualified_inputs(spec: JobSpec, files: Files) -> list[str]:
    """Return the inputs as URLs; the words of an input program are its own affair."""
    sources = spec.sources or (InputSource(spec.inputs, spec.mapper),)
    paths = {
        path
        for index, source in enumerate(sources)
        if not _is_program(spec.of_source(index).conf())
        for path in source.inputs
    }
    return [files.qualify(path) if path in paths else path for path in spec.inputs]


def _is_program(conf: JobConf) -> bool:
    return InputFormat.by_class_name(conf.input_format_class) is InputFormat.PROGRAM


def _planned(spec: JobSpec, inputs: Sequence[str], files: Files) -> SplitPlan:
    conf = spec.conf()
    if not _is_program(conf):
        return plan_splits(conf, inputs, files)
    from mrstream.mapreduce.job.program_splits import list_splits  # few jobs have one

    return list_splits(conf, inputs, spec.shipped, files)


def planned(spec: JobSpec, files: Files, warn: Callable[[str], None]) -> tuple[JobSpec, int]:
    """Return the job as it is submitted, wherever it runs: with the splits that are to be run; and
    of how many files they are."""
    plan = plan_input(spec, files)
    if odd := foreign_input(plan):
        warn(odd)
    splits = tuple(plan.splits[index] for index in chosen_maps(spec.tasks, len(plan.splits)))
    properties = _submitted(spec, files, plan.file_count, len(splits))
    return msgspec.structs.replace(spec, properties=properties, splits=splits), plan.file_count


def _submitted(spec: JobSpec, files: Files, file_count: int, maps: int) -> dict[str, str]:
    """Return what its submission makes of a job's properties, for programs to see."""
    return job_properties(
        spec.properties,
        job_name=f"streamjob{time.time_ns()}",
        user=spec.user,
        host=os.uname().nodename,
        working_directory=files.qualify("."),
        inputs=qualified_inputs(spec, files),
        output="" if spec.output is None else files.qualify(spec.output),
        files=file_count,
        maps=maps,
    )


def encode(spec: JobSpec) -> bytes:
    return msgspec.msgpack.encode(spec)


def decode(data: bytes) -> JobSpec:
    """Return the job of these bytes, which may come from anyone who submits one."""
    try:
        spec: JobSpec = unpack(data, JobSpec)
    except msgspec.DecodeError as error:
        raise LaunchFailed(f"the job cannot be read: {error}") from None
    return spec
