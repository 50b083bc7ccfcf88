"""What travels between a driver and the workers of an engine: the job once, then order and outcome.

Packs files that a job ships, because workers have no disk in common with the driver; lays them out
on the other side. All of it is bytes to the engine. Never runs anything.
"""

from __future__ import annotations

import io
import os
import socket
import tarfile
import tempfile
from collections.abc import Iterable, Sequence

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.cluster.units import decimal_size
from mrstream.mapreduce.attempt.attempt_report import Message, PartitionSize
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.environment import store, tree
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.scheduler.ids import AttemptId, parse_attempt_id
from mrstream.streaming.conf.properties import from_wire, to_wire
from mrstream.streaming.task.shipping import ARCHIVE_SUFFIXES, Shipped, local_path
from mrstream.streaming.task.shipping import unpack as unpack_archive

REPEATS = 1000
"""An execution that an engine repeats has its attempt's number and so much more each time: so does
Hadoop number attempts after a restart of its master."""
ENVIRONMENT_BYTES_MAX = 2 * 10**9
"""An environment goes to a worker in one message."""
KEPT_BYTES_MAX = 1 << 30
"""Of a failed attempt's input so much comes back at most."""


PRINTS = "print:"
"""Where an attempt of a job that prints writes to: its parts come back with its outcome."""


class CannotTravel(UserError):
    """A file that should travel with a job and cannot be read."""


class Parcel(msgspec.Struct, frozen=True):
    """A shipped file or directory, as a tar file; `index` is its place among the job's."""

    index: int
    name: str
    tar: bytes


class Packet(msgspec.Struct, frozen=True):
    """A job and the files that travel with it: what workers need once."""

    spec: JobSpec
    parcels: tuple[Parcel, ...] = ()
    environment: bytes = b""
    """The archive of the job's environment; empty where every host has that."""
    environment_suffix: str = ""


class Task(msgspec.Struct, frozen=True):
    """One attempt for a worker to run. Of a reduce: how much of its input comes from each map."""

    order: AttemptOrder
    inputs: tuple[PartitionSize, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """How one execution of an attempt went: all that it told, and what it left on the worker."""

    attempt_id: str
    """Of this very execution: with it its output is committed."""
    messages: tuple[Message, ...] = ()
    """The last of them is `Done` or `Failed`, unless its process was killed."""
    files: tuple[tuple[str, bytes], ...] = ()
    """Of a job that prints: the parts. Of a failure: `logs/…`, and with `kept/…` its input."""
    host: str = ""


def encode(value: Packet | Task | Outcome) -> bytes:
    return msgspec.msgpack.encode(value)


def pack(spec: JobSpec, *, with_environment: bool = False) -> bytes:
    """Return a job with the local files that it ships and, if asked to, its environment."""
    parcels = []
    for index, item in enumerate(spec.shipped):
        path = local_path(from_wire(item.source))
        if path is not None:
            parcels.append(Parcel(index, os.path.basename(path.rstrip("/")), _tar(path)))
    environment, suffix = b"", ""
    if with_environment and spec.environment is not None:
        environment, suffix = _packed_environment(spec.environment)
    return encode(Packet(spec, tuple(parcels), environment, suffix))


def unpack(packet: Packet, directory: str) -> JobSpec:
    """Lay out the files of a job; return the job as its attempts here see it."""
    shipped: list[Shipped] = list(packet.spec.shipped)
    for parcel in packet.parcels:
        place = os.path.join(directory, f"parcel-{parcel.index}")
        os.makedirs(place)
        with tarfile.open(fileobj=io.BytesIO(parcel.tar)) as tar:
            tar.extractall(place, filter="data")
        path = to_wire(os.path.join(place, parcel.name))
        shipped[parcel.index] = msgspec.structs.replace(shipped[parcel.index], source=path)
    environment = packet.spec.environment
    if environment is not None:
        environment = _settled_environment(packet, environment)
    return msgspec.structs.replace(packet.spec, shipped=tuple(shipped), environment=environment)


def execution_id(attempt_id: str, repeat: int) -> str:
    """Return the id of an attempt that the engine runs for the `repeat`th time, counted from 0."""
    attempt = parse_attempt_id(attempt_id)
    return str(AttemptId(attempt.task_id, attempt.number + REPEATS * repeat))


def placed(order: AttemptOrder, repeat: int, directory: str, *, prints: bool) -> AttemptOrder:
    """Return an order as one worker runs it: below a directory of its own, under its own id.

    Output goes beside, never into, the directory of another execution (E1): whoever is taken for
    dead may still write.
    """
    name = execution_id(order.attempt_id, repeat)
    mine = os.path.join(directory, name)
    output = order.output_directory
    if output:
        own = f"{output.rpartition('/')[0]}/{name}"
        output = f"file:{mine}/output" if prints else own
    return msgspec.structs.replace(
        order,
        attempt_id=name,
        directory=mine,
        cache=os.path.join(directory, "cache"),
        log_directory=os.path.join(mine, "logs"),
        segments=(),
        segment_path=os.path.join(mine, "segment") if order.segment_path else "",
        output_directory=output,
        keep_directory=os.path.join(mine, "kept") if order.keep_directory else "",
    )


def read_files(root: str, names: Iterable[str], bytes_max: int) -> list[tuple[str, bytes]]:
    """Read the files below these directories of `root`, by their paths from there, while they are
    not more than `bytes_max` together."""
    found: list[tuple[str, bytes]] = []
    left = bytes_max
    for name in names:
        for path in _files_below(os.path.join(root, name)):
            left -= os.path.getsize(path)
            if left < 0:
                return found
            with open(path, "rb") as file:
                found.append((to_wire(os.path.relpath(path, root)), file.read()))
    return found


def write_files(root: str, files: Sequence[tuple[str, bytes]]) -> None:
    """Write files below a directory; a path that leads out of it is refused."""
    for name, data in files:
        path = os.path.normpath(os.path.join(root, from_wire(name)))
        if not path.startswith(root.rstrip("/") + "/"):
            raise ValueError(f"{name!r} is not inside {root}")
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def _packed_environment(environment: Environment) -> tuple[bytes, str]:
    """Return an environment as bytes, and the suffix that tells what they are."""
    source = from_wire(environment.source)
    suffixes = [suffix for suffix in ARCHIVE_SUFFIXES if source.lower().endswith(suffix)]
    with tempfile.TemporaryDirectory(prefix="mrstream-environment-") as room:
        if suffixes and os.path.isfile(source):
            # As it was packed: what settled here has this machine's paths in it.
            packed, suffix = source, suffixes[0]
        else:
            packed, suffix = os.path.join(room, "environment.tar.gz"), ".tar.gz"
            tree.pack(from_wire(environment.path), packed)
        if (size := os.path.getsize(packed)) > ENVIRONMENT_BYTES_MAX:
            raise CannotTravel(
                f"the environment {source} has {decimal_size(size)} when packed, and at most "
                f"{decimal_size(ENVIRONMENT_BYTES_MAX)} travel to an engine: install it there"
            )
        with open(packed, "rb") as file:
            return file.read(), suffix


def _settled_environment(packet: Packet, environment: Environment) -> Environment:
    """Return the environment as it lies on this host: unpacked once, for all jobs that use it."""

    def fill(_: int) -> Environment:
        if not packet.environment:
            raise CannotTravel(
                f"{socket.gethostname()} does not have the environment {environment.source}, and "
                "was not here when the job began: run the job again"
            )
        directory = store.directory_of(environment.key)
        with tempfile.TemporaryDirectory(prefix="mrstream-environment-") as room:
            packed = os.path.join(room, f"environment{packet.environment_suffix}")
            with open(packed, "wb") as file:
                file.write(packet.environment)
            unpack_archive(packed, directory)
        here = msgspec.structs.replace(environment, path=to_wire(tree.root_of(directory)))
        tree.settle(from_wire(here.path), here)
        return here

    return store.kept(environment.key, fill, lambda _: None)


def _files_below(directory: str) -> list[str]:
    return sorted(
        os.path.join(root, name) for root, _, names in os.walk(directory) for name in names
    )


def _tar(path: str) -> bytes:
    target = io.BytesIO()
    try:
        with tarfile.open(fileobj=target, mode="w") as tar:
            tar.add(os.path.realpath(path), arcname=os.path.basename(path.rstrip("/")))
    except OSError as error:
        raise CannotTravel(f"{path} cannot travel with the job: {error}") from error
    return target.getvalue()
