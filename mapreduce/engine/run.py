"""Runs a job on an engine: the shell of local mode, with attempts that run elsewhere.

Takes a `JobSpec` and the engine that was chosen; gives an exit status. The brain decides about
tries as it does everywhere; what an engine repeats on its own, because a worker of it died, is
another execution of the same attempt and counts once (E1). Whatever happens here, Ctrl-C and
kill -9 included, nothing stays behind but what the engine's workers clear up themselves.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mrstream.cluster.config import extras
from mrstream.mapreduce.attempt.zygote import Zygote
from mrstream.mapreduce.console import Console
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.engine.choice import RAY, EngineChoice
from mrstream.mapreduce.engine.pool import Engine, EngineOutput, EnginePool
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.job.job import JobSpec, require_extras
from mrstream.mapreduce.job.rules import without_workers
from mrstream.mapreduce.local.job import LocalJob
from mrstream.mapreduce.local.place import FILESYSTEM, Place, output_of
from mrstream.mapreduce.local.run import watched
from mrstream.mapreduce.scheduler.events import JobSettings

if TYPE_CHECKING:
    from mrstream.cluster.config.config import ClusterConfig

AT_ONCE_MAX = 1_000_000
"""How many attempts run at once is the engine's to say: it gets all that may run."""


def run(
    spec: JobSpec,
    choice: EngineChoice,
    cluster: ClusterConfig | None = None,
    *,
    background: bool = False,
    console: Console | None = None,
) -> int:
    """Run a job to its end and return the exit status; a UserError if it cannot even start.

    Paths without a scheme lie where they would without an engine: in the dfs of the cluster, or on
    this machine if there is none.
    """
    require_extras(spec)
    extras.require([choice.kind], f"-engine {choice}")
    console = console or Console(is_quiet=spec.conf().is_quiet)

    def run_there(spec: JobSpec, record: JobRecord) -> int:
        with contextlib.closing(Zygote(_none)) as sweeper:
            sweeper.remove_at_end(record.mark)
            job = _job(spec, choice, _filesystem(cluster), record, console, sweeper, background)
            return job.run()

    return watched(spec, console, run_there)


def _job(
    spec: JobSpec,
    choice: EngineChoice,
    filesystem: str,
    record: JobRecord,
    console: Console,
    sweeper: Zygote,
    background: bool,
) -> LocalJob:
    inner = output_of(spec, RoutedFiles(filesystem, spec.working_directory), record)
    output = EngineOutput(inner)
    settings = _settings(spec)
    engine = _engine(choice, settings, sweeper)
    pool = EnginePool(engine, sweeper, record, output)
    place = Place(filesystem, settings, AT_ONCE_MAX, AT_ONCE_MAX, output)
    return LocalJob(spec, record, console, pool, is_quiet=background, place=place)


def _engine(choice: EngineChoice, settings: JobSettings, sweeper: Zygote) -> Engine:
    if choice.kind == RAY:
        from mrstream.mapreduce.engine.ray import RayEngine

        return RayEngine(choice, settings, sweeper.remove_at_end)
    from mrstream.mapreduce.engine.spark import SparkEngine

    return SparkEngine(choice, settings, sweeper.remove_at_end)


def _filesystem(cluster: ClusterConfig | None) -> str:
    if cluster is None:
        return FILESYSTEM
    from mrstream.cluster.config import state
    from mrstream.cluster.config.config import Cluster
    from mrstream.mapreduce.dataflow import dfs_files

    dfs_files.serve(Cluster(cluster, state.read_identity(state.identity_file(cluster.name))))
    return f"dfs://{cluster.name}/"


def _settings(spec: JobSpec) -> JobSettings:
    """As many tries as on a cluster. Stragglers are the engine's affair: it knows its hosts."""
    return without_workers(spec.conf())


def _none(paper: bytes, report: int, lifeline: int) -> int:
    raise AssertionError("the sweeper starts no attempt")
