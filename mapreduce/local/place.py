"""Where the attempts of a job run, and who runs them, as far as its shell must know.

`Attempts` is the face of whoever runs them: the zygote of this machine, or an engine. `Place` says
how many at once, how often a task is tried and where results go; `this_machine` is the usual one.
Never starts anything itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from mrstream.mapreduce.attempt.attempt_report import Message
from mrstream.mapreduce.attempt.zygote import Ended
from mrstream.mapreduce.dataflow.committer import publishes_at_once
from mrstream.mapreduce.dataflow.files import Files, RoutedFiles
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.job.rules import local_settings
from mrstream.mapreduce.local.output import DirectoryOutput, Output, StandardOutput
from mrstream.mapreduce.scheduler.events import JobSettings

FILESYSTEM = "file:///"


class Attempts(Protocol):
    """Who runs attempts: a `Zygote`, or an engine with its face."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when an attempt has ended."""

    def start(self, order: bytes, mark: str) -> tuple[int, int]:
        """Start an attempt; return its token and the descriptor of its messages. -1 for that: they
        come all at once, as its last words."""

    def kill(self, token: int) -> None:
        """End an attempt; `Ended` still follows."""

    def ended(self) -> Ended:
        """Take the next `Ended`."""

    def last_words(self, token: int) -> Iterable[Message]:
        """Take the messages of an attempt that has ended, if they come no other way."""

    def remove_at_end(self, path: str) -> None:
        """Have a directory removed when this process is gone."""

    def keep(self, path: str) -> None:
        """Take back `remove_at_end`."""

    def hold(self, descriptor: int) -> None:
        """Have a descriptor kept open until all is cleared up, even if this process is killed."""

    def close(self) -> None:
        """End every attempt and clear up."""


@dataclass(frozen=True)
class Place:
    """Where the attempts of a job run, as far as its shell must know."""

    filesystem: str
    """Where paths without a scheme lie."""
    settings: JobSettings
    maps_max: int
    """So many at once."""
    reduces_max: int
    output: Output


def this_machine(spec: JobSpec, record: JobRecord) -> Place:
    """Return this machine as the place of a job: as many attempts at once as there are cores."""
    conf = spec.conf()
    cores = len(os.sched_getaffinity(0))
    # Where nothing would be left of the others' output anyway, a failed task ends the job at once.
    leaves_parts = spec.output is not None and not publishes_at_once(conf, spec.output)
    return Place(
        FILESYSTEM,
        local_settings(conf, leaves_parts=leaves_parts),
        conf.local_maps_max or cores,
        conf.local_reduces_max or cores,
        output_of(spec, RoutedFiles(FILESYSTEM, spec.working_directory), record),
    )


def output_of(spec: JobSpec, files: Files, record: JobRecord) -> Output:
    """Return where the results of a job go; `OutputExists` if they cannot go there."""
    if spec.output is None:
        return StandardOutput(os.path.join(record.scratch, "output"))
    output = DirectoryOutput(spec.conf(), files, spec.output)
    output.refuse_existing(spec.inputs)
    return output
