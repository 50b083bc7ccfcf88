"""Where a local job's results go: a directory through the committer, or standard output in order.

Takes attempts that may commit; makes what they wrote visible. Never decides who may.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import BinaryIO, Protocol

from mrstream.mapreduce.dataflow.committer import committer_for
from mrstream.mapreduce.dataflow.files import Files, LocalFiles, copy_parts, local_path
from mrstream.streaming.conf.jobconf import JobConf


class Output(Protocol):
    """The results of a job, from its start to its end."""

    @property
    def temporary(self) -> str | None:
        """The directory on this disk that holds what is not visible yet, if it is on this disk."""

    def begin(self) -> None:
        """Make room; nothing is visible yet."""

    def attempt_directory(self, attempt_id: str) -> str:
        """Make the directory into which an attempt writes, and give its URL."""

    def commit_task(self, attempt_id: str, place: int) -> None:
        """Make visible what an attempt wrote; `place` counts the tasks with output from 0."""

    def skip_task(self, place: int) -> None:
        """This task has failed for good and leaves nothing; the job goes on."""

    def abort_task(self, attempt_id: str) -> None:
        """Throw away what an attempt wrote."""

    def commit_job(self) -> None:
        """All is there."""

    def abort_job(self, *, is_interrupted: bool) -> None:
        """Clear up after a job that failed or was stopped."""


class DirectoryOutput:
    """An output directory, as Hadoop leaves it."""

    def __init__(self, conf: JobConf, files: Files, url: str) -> None:
        self._committer = committer_for(conf, url, files)
        self.url = self._committer.output_url

    @property
    def temporary(self) -> str | None:
        """`OUT/_temporary`, if that is on this disk."""
        if not self.url.startswith("file:"):
            return None
        return os.path.join(local_path(self.url), "_temporary")

    def refuse_existing(self, inputs: Sequence[str]) -> None:
        """Raise OutputExists if the directory is there already."""
        self._committer.check_output(inputs)

    def begin(self) -> None:
        """Make the directory."""
        self._committer.clear_output()
        self._committer.setup_job()

    def attempt_directory(self, attempt_id: str) -> str:
        """Make the attempt's directory below `_temporary`."""
        return self._committer.setup_task(attempt_id)

    def commit_task(self, attempt_id: str, place: int) -> None:
        """Rename the attempt's files to their final names."""
        self._committer.commit_task(attempt_id)

    def skip_task(self, place: int) -> None:
        """Nothing to do: a missing part is missing."""

    def abort_task(self, attempt_id: str) -> None:
        self._committer.abort_task(attempt_id)

    def commit_job(self) -> None:
        """Delete `_temporary` and make `_SUCCESS`."""
        self._committer.commit_job()

    def abort_job(self, *, is_interrupted: bool) -> None:
        """Delete `_temporary`, and a directory that was made in vain if a person stopped us."""
        self._committer.abort_job(is_killed=is_interrupted)


class StandardOutput:
    """Standard output: parts in the order of their partitions, each as soon as it is its turn."""

    def __init__(self, directory: str, stream: BinaryIO | None = None) -> None:
        self._directory = directory
        self._stream = stream if stream is not None else sys.stdout.buffer
        self._ready: dict[int, str] = {}
        self._next_place = 0

    @property
    def temporary(self) -> str | None:
        """None: it is part of the job's scratch directory."""
        return None

    def begin(self) -> None:
        """Make room for the parts."""
        os.makedirs(self._directory)

    def attempt_directory(self, attempt_id: str) -> str:
        path = os.path.join(self._directory, attempt_id)
        os.makedirs(path)
        return f"file:{path}"

    def commit_task(self, attempt_id: str, place: int) -> None:
        """Copy out this part, and those behind it that waited for it."""
        self._ready[place] = os.path.join(self._directory, attempt_id)
        self._copy_ready()

    def skip_task(self, place: int) -> None:
        """Let the parts behind this one pass."""
        self._ready[place] = ""
        self._copy_ready()

    def abort_task(self, attempt_id: str) -> None:
        shutil.rmtree(os.path.join(self._directory, attempt_id), ignore_errors=True)

    def commit_job(self) -> None:
        """Hand over the last bytes."""
        assert not self._ready, f"parts {sorted(self._ready)} still wait for {self._next_place}"
        self._stream.flush()

    def abort_job(self, *, is_interrupted: bool) -> None:
        """What is printed is printed."""

    def _copy_ready(self) -> None:
        while (directory := self._ready.pop(self._next_place, None)) is not None:
            self._next_place += 1
            if directory:
                copy_parts(LocalFiles(), f"file:{directory}", self._stream)
                shutil.rmtree(directory, ignore_errors=True)
        self._stream.flush()
