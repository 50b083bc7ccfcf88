"""The output directories of jobs, as the master touches them: set up, made final, cleared, fenced.

Every method blocks on the dfs and is called in a thread. What the dfs cannot do right now is tried
again; what it refuses is raised. Never decides which attempt may commit.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable

from mrstream.cluster.errors import Unavailable
from mrstream.cluster.retry import RetryPolicy
from mrstream.dfs.chunk import Fence
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import NoSuchFile
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dataflow.committer import committer_for
from mrstream.mapreduce.dataflow.dfs_files import DfsFiles
from mrstream.mapreduce.dataflow.files import RoutedFiles, scheme_of
from mrstream.mapreduce.dfs_layout import (
    ENVIRONMENT_KEPT_S,
    ENVIRONMENTS,
    RESULTS,
    RESULTS_KEPT_S,
    STAGED,
    STAGED_KEPT_S,
    environment_facts,
)
from mrstream.mapreduce.job.errors import LaunchFailed
from mrstream.mapreduce.job.job import JobSpec

log = logging.getLogger(__name__)

_stopping = threading.Event()
_UNTIL_STOPPED = RetryPolicy(math.inf, first_s=1.0, longest_s=1.0, wait=_stopping.wait)


class JobOutput:
    """The output directory of one job: its committer, and what is tried again until it is done."""

    def __init__(self, spec: JobSpec, filesystem: str) -> None:
        if spec.output is None:
            raise LaunchFailed("a job of the cluster needs an output directory")
        self._spec = spec
        files = RoutedFiles(filesystem, spec.working_directory, spec.fences)
        self.committer = committer_for(spec.conf(), spec.output, files)
        """What it changes is under the job's fences, beside the master's own."""
        self._own_files = RoutedFiles(filesystem, spec.working_directory)
        """Under the master's own alone: for what nobody else can have."""
        self.url = self.committer.output_url

    def set_up(self) -> None:
        """Make the directory; may be repeated."""
        _again(self.committer.setup_job, f"output {self.url}")

    def commit_job(self) -> None:
        """Make the output final, also where a master died before it had made the directory."""

        def commit() -> None:
            self.committer.setup_job()
            self.committer.commit_job()

        _again(commit, f"output {self.url}")

    def abort_job(self, *, is_killed: bool) -> None:
        """Clear up."""
        _again(lambda: self.committer.abort_job(is_killed=is_killed), f"output {self.url}")

    def drop_attempts(self) -> None:
        """Clear up after a job that may change nothing any more: later holders of its lock may have
        the directory, and all in it that does not bear the id of the job."""
        own = committer_for(self._spec.conf(), self.url, self._own_files)
        _again(lambda: own.drop_attempts(self._spec.job_id), f"output {self.url}")

    def remove(self) -> None:
        """Delete the whole directory: it was a temporary one, named after the submission."""
        _again(lambda: self._own_files.delete(self.url), f"output {self.url}")

    def check_fences(self) -> None:
        """Raise `FencedOff` if a fence of the job is over; or why that is not known."""
        place = self.url if scheme_of(self.url) == "dfs" else "dfs:///"
        DfsFiles(place, self._spec.fences).check_fences(place)


def raise_fence(fence: Fence) -> None:
    """Have the dfs refuse the changes of whoever worked under an older one; blocks."""

    def raise_it() -> None:
        with dfs_files.new_client() as client:
            client.raise_fence(fence)

    _again(raise_it, f"fence {fence[0]}")


def stop_trying() -> None:
    """The master stops: whoever tries again in a thread shall give up."""
    _stopping.set()


def clear_leftovers(now_s: float) -> None:
    """Delete what nobody needs any more: old shipped files, and results whose client was killed
    and that nobody came for within a day; blocks."""
    with dfs_files.new_client() as client:
        clear_staged(client, now_s)
        clear_environments(client, now_s)
        try:
            entries = list(client.list(RESULTS))
        except NoSuchFile:
            return
        for entry in entries:
            if now_s - entry.modified_at_s > RESULTS_KEPT_S:
                log.info("results %s are deleted: nobody came for them", entry.path)
                client.delete(entry.path, recursive=True, skip_trash=True)


def clear_staged(client: DfsClient, now_s: float) -> None:
    """Delete files that no job has shipped for a long time."""
    try:
        stored = [status for status in client.find(STAGED) if not status.is_directory]
    except NoSuchFile:
        return
    for status in stored:
        if now_s - status.modified_at_s > STAGED_KEPT_S:
            client.delete(os.path.dirname(status.path), recursive=True, skip_trash=True)


def clear_environments(client: DfsClient, now_s: float) -> None:
    """Delete Python environments that no job has used for a long time, and halves of others."""
    try:
        entries = list(client.list(ENVIRONMENTS))
    except NoSuchFile:
        return
    for entry in entries:
        try:
            used_at_s = client.stat(environment_facts(os.path.basename(entry.path))).modified_at_s
        except NoSuchFile:
            used_at_s = entry.modified_at_s  # on its way, or left by a client that died
        if now_s - used_at_s > ENVIRONMENT_KEPT_S:
            log.info("environment %s is deleted: no job used it for long", entry.path)
            client.delete(entry.path, recursive=True, skip_trash=True)


def _again(work: Callable[[], None], what: str) -> None:
    for attempt in _UNTIL_STOPPED.attempts():
        try:
            work()
            return
        except Unavailable as error:
            log.warning("%s: %s; trying again", what, error)
            attempt.failed(error)
