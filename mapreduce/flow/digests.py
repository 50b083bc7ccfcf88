"""What a step depends on from outside of its flow, as a digest: words, programs, inputs.

Of programs and other files that travel the content counts; of inputs their names, lengths and times
of change; of what a program reads (`-inputformat program:…`) its words alone. Takes steps; reads
files and lists directories, changes nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.dataflow.files import Files, local_path, scheme_of
from mrstream.mapreduce.dataflow.input_paths import list_input_files
from mrstream.mapreduce.flow.brain.plan import JOB, REFERENCE, Step
from mrstream.mapreduce.job.job import spec_from
from mrstream.streaming import classes
from mrstream.streaming.command import options
from mrstream.streaming.command.command import StreamingCommand, command_of
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.conf.properties import from_wire
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.task import shipping


def digest_of(step: Step, files: Files) -> str:
    """Return the digest of a step; `UserError` if its words make no job."""
    found = hashlib.sha256()
    until = "" if step.until is None else repr(step.until)
    for part in (step.kind, *step.words, step.output, step.first, until):
        found.update(part.encode("utf-8", "surrogateescape") + b"\0")
    for fact in _job_facts(step, files) if step.kind == JOB else _files_in(step.words):
        found.update(fact.encode("utf-8", "surrogateescape") + b"\0")
    return found.hexdigest()[:32]


def command_of_step(step: Step) -> StreamingCommand:
    """Return the job that a step's words ask for, with a stand-in for what is not known yet."""
    words = [REFERENCE.sub("/a-step-before", word) for word in step.words]
    try:
        return command_of(options.parse([*words, "-output", "/its-place"]))
    except UserError as error:
        raise type(error)(f"step {step.name!r}: {error}") from None


def _job_facts(step: Step, files: Files) -> Iterator[str]:
    command = command_of_step(step)
    for item in command.shipped:
        path = shipping.local_path(item.source)
        yield item.link
        yield from _contents(path) if path is not None else [item.source]
    if command.mapper.builtin == classes.SAW:
        properties = spec_from(command).conf()
        yield from (properties.saw_program, properties.saw_protos)
    if command.environment is not None:
        from mrstream.mapreduce.environment.source import source_of  # few steps have one

        named = from_wire(command.environment)
        yield named if named.startswith("dfs://") else source_of(named).key
    words = step.words
    inputs = [words[at + 1] for at in range(len(words) - 1) if words[at] == "-input"]
    outside = [path for path in [*inputs, step.first] if path and not REFERENCE.search(path)]
    if outside:
        by_programs = _inputs_of_programs(command)
        paths = [each for path in outside for each in options.split_paths(path)]
        paths = [path for path in paths if path not in by_programs]
        for status in list_input_files(paths, files, recursive=True):
            yield f"{status.url} {status.length} {_changed_at(status.url)}"


def _inputs_of_programs(command: StreamingCommand) -> set[str]:
    """Return the inputs that are no paths, but words for the program that reads them."""
    given = [(source.inputs, source.properties) for source in command.sources]
    found: set[str] = set()
    for inputs, properties in given or [(command.inputs, {})]:
        conf = JobConf.from_dict({**command.conf.to_dict(), **properties})
        if InputFormat.by_class_name(conf.input_format_class) is InputFormat.PROGRAM:
            found.update(map(from_wire, inputs))
    return found


def _changed_at(url: str) -> str:
    if scheme_of(url) in (None, "file"):
        return str(os.stat(local_path(url)).st_mtime_ns)
    import fsspec  # only inputs elsewhere need it

    found, path = fsspec.core.url_to_fs(url)
    info = found.info(path)
    return " ".join(str(info[key]) for key in ("mtime", "ETag", "LastModified") if key in info)


def _files_in(words: tuple[str, ...]) -> Iterator[str]:
    for word in words:
        if os.path.isfile(word):
            yield from _contents(word)


def _contents(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        for root, names, members in os.walk(path):
            names.sort()
            for name in sorted(members):
                yield os.path.relpath(os.path.join(root, name), path)
                yield _content(os.path.join(root, name))
    elif os.path.exists(path):
        yield _content(path)


def _content(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
