"""Stores the Python environment of a job in the dfs, before the job is submitted; brings one back.

What is there is neither built nor sent again, whoever stored it: the key says what it is. The file
of facts is written last, so an environment that has one is whole; that it is used is noted by its
time. Never touches a host's disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time

import msgspec

from mrstream.cluster.units import decimal_size
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import DfsWriter, create_hidden
from mrstream.dfs.errors import NoSuchFile
from mrstream.mapreduce.dfs_layout import (
    ENVIRONMENT_NOTED_S,
    environment_directory,
    environment_facts,
)
from mrstream.mapreduce.environment import store, tree
from mrstream.mapreduce.environment.build import Say
from mrstream.mapreduce.environment.source import Kind, Source, source_of
from mrstream.mapreduce.job.environment import BadEnvironment, Environment
from mrstream.mapreduce.job.job import JobSpec
from mrstream.streaming.conf.properties import from_wire, to_wire
from mrstream.streaming.task.shipping import ARCHIVE_SUFFIXES, unpack

_COPY_BYTES = 1 << 20
_FACTS_BYTES_MAX = 1 << 16


def stage(spec: JobSpec, client: DfsClient, say: Say) -> JobSpec:
    """Return the job with its environment in the dfs, built and sent if it is not there."""
    assert spec.environment is not None, "asked for a job that has one"
    named = from_wire(spec.environment.source)
    if named.startswith("dfs://"):
        found = _stored(os.path.basename(os.path.dirname(named)), client)
        if found is None:
            raise BadEnvironment(f"-env {named}: there is no environment")
        return msgspec.structs.replace(spec, environment=found)
    source = source_of(named)
    environment = _stored(source.key, client)
    if environment is None:
        environment = _store(source, client, say)
    else:
        say(f"{source.path} is in the dfs: nothing is built or sent")
    environment = msgspec.structs.replace(environment, source=to_wire(source.path))
    store.refuse_other_python(spec, environment)
    return msgspec.structs.replace(spec, environment=environment)


def fetch(spec: JobSpec, client: DfsClient, say: Say) -> JobSpec:
    """Return the job with its environment on this machine, from the dfs if it is not here."""
    environment = spec.environment
    assert environment is not None, "asked for a job that has one"

    def fill(_: int) -> Environment:
        assert environment is not None
        say("fetching the environment of the job")
        directory = store.directory_of(environment.key)
        with tempfile.TemporaryDirectory(prefix="mrstream-environment-") as room:
            path = environment.path.removeprefix("dfs://")
            packed = os.path.join(room, os.path.basename(path))
            with DfsReader(client, path) as file, open(packed, "wb") as copy:
                copy.writelines(file.pieces())
            unpack(packed, directory)
        here = msgspec.structs.replace(environment, path=to_wire(tree.root_of(directory)))
        tree.settle(from_wire(here.path), here)
        return here

    try:
        here = store.kept(environment.key, fill, say)
    except NoSuchFile:
        raise BadEnvironment(
            f"the environment of the job, {environment.source}, is in the dfs no more: run it again"
        ) from None
    return msgspec.structs.replace(spec, environment=here)


def _stored(key: str, client: DfsClient) -> Environment | None:
    """Return an environment that is whole in the dfs, and note that it is used."""
    path = environment_facts(key)
    try:
        status = client.stat(path)
        with DfsReader(client, path) as file:
            data = file.read(_FACTS_BYTES_MAX)
        environment = msgspec.json.decode(data, type=Environment)
        client.stat(environment.path.removeprefix("dfs://"))
    except (NoSuchFile, msgspec.MsgspecError):
        return None
    if time.time() - status.modified_at_s > ENVIRONMENT_NOTED_S:
        client.set_times(path, modified_at_s=time.time())
    return environment


def _store(source: Source, client: DfsClient, say: Say) -> Environment:
    here = store.here(source, say)
    with tempfile.TemporaryDirectory(prefix="mrstream-environment-") as room:
        if source.kind is Kind.ARCHIVE:
            packed = source.path
            suffix = next(s for s in ARCHIVE_SUFFIXES if source.path.lower().endswith(s))
        else:
            suffix = ".tar.gz"
            packed = os.path.join(room, f"environment{suffix}")
            tree.pack(from_wire(here.path), packed)
        size = os.path.getsize(packed)
        say(f"sending {decimal_size(size)} to the dfs")
        target = f"{environment_directory(source.key)}/environment{suffix}"
        with open(packed, "rb") as file, _hidden(client, target) as copy:
            shutil.copyfileobj(file, copy, _COPY_BYTES)
    stored = msgspec.structs.replace(here, path=f"dfs://{target}")
    with _hidden(client, environment_facts(source.key)) as facts:
        facts.write(msgspec.json.encode(stored))
    return stored


def _hidden(client: DfsClient, target: str) -> DfsWriter:
    """Hidden until it is whole: another client may be writing just the same."""
    return create_hidden(client, target, overwrite=True, parents=True)
