"""Whether the workers of an engine reach what a job reads and writes, and have this very mrstream.

`looks_at` says in the driver what to look at, `look` looks in a worker, `judge` puts what they
found into one clear line. Only reads.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence

import msgspec

from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.version import version
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.dataflow.files import RoutedFiles, local_path
from mrstream.mapreduce.engine.choice import EngineChoice
from mrstream.mapreduce.environment import store
from mrstream.mapreduce.job.environment import (
    Environment,
    Platform,
    refuse_misfit,
    this_platform,
)
from mrstream.streaming.formats.input_format import InputFormat


class Unreachable(UserError):
    """A host of the engine would not find the job's input or output, or has another mrstream."""


class Look(msgspec.Struct, frozen=True):
    """A file or directory that workers must reach: its URL; if it is local, which one it is."""

    url: str
    identity: tuple[int, int] = (0, 0)


class Seen(msgspec.Struct, frozen=True):
    """What one worker found: its host, its version, and what it misses, with the reason."""

    host: str
    version: str
    missing: tuple[tuple[str, str], ...] = ()
    platform: Platform = Platform()
    has_environment: bool = True
    """Whether what `-env` names lies there already, if the job has one."""


def looks_at(order: AttemptOrder, output: str | None) -> list[Look]:
    """Return what to look at: the first file of the input, and the place of the output."""
    urls = [] if output is None else [output]
    split = order.split
    if split is not None and split.input_format is not InputFormat.PROGRAM:
        urls.append(split.pieces[0].url)
    return [Look(url, _identity(url)) for url in urls]


def look(looks: Sequence[Look], filesystem: str, environment_key: str = "") -> Seen:
    """See whether these are here, and the same; and the environment of that key, if any."""
    missing = []
    files = RoutedFiles(filesystem)
    for item in looks:
        try:
            if item.url.startswith("file:"):
                if _identity(item.url) != item.identity:
                    missing.append((item.url, "this disk has another file there, or none"))
            elif not files.exists(item.url):
                missing.append((item.url, "it is not there"))
        except (ClusterError, OSError, ImportError, ValueError) as error:
            missing.append((item.url, f"{type(error).__name__}: {error}"))
    has_environment = not environment_key or store.is_here(environment_key)
    return Seen(socket.gethostname(), version(), tuple(missing), this_platform(), has_environment)


def judge(choice: EngineChoice, found: Iterable[Seen], environment: Environment | None) -> bool:
    """Raise `Unreachable` or `BadEnvironment` for the first host that cannot do the job; say
    whether all have its environment."""
    has_all = True
    for seen in found:
        has_all = has_all and seen.has_environment
        if environment is not None:
            refuse_misfit(environment, seen.platform, seen.host)
        if seen.version != version():
            raise Unreachable(
                f"-engine {choice}: {seen.host} has mrstream {seen.version}, and here it is "
                f"{version()}: install the same on all hosts of the engine"
            )
        for url, why in seen.missing:
            raise Unreachable(
                f"-engine {choice}: {seen.host} does not reach {url} ({why}); input and output "
                "must be where all hosts of the engine find them: dfs://, s3://, a shared disk"
            )
    return has_all


def _identity(url: str) -> tuple[int, int]:
    if not url.startswith("file:"):
        return (0, 0)
    try:
        status = os.stat(local_path(url))
    except OSError:
        return (0, 0)
    return status.st_ino, status.st_mtime_ns
