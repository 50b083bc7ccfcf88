"""What a job asks of the scheduler, and what follows for its tasks, wherever they run.

The master, local mode and the engines all read it here. Takes a job's settings; gives
`JobSettings`, and for a task whether its output is the job's. Never decides what runs.
"""

from __future__ import annotations

import msgspec

from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.scheduler.events import JobSettings
from mrstream.mapreduce.scheduler.ids import LIFE_ATTEMPTS, AttemptId, TaskId, TaskKind
from mrstream.streaming.conf.jobconf import JobConf

ATTEMPTS_MAX = 4
"""Attempts at a task, unless the job says otherwise (Hadoop's number)."""


def cluster_settings(conf: JobConf) -> JobSettings:
    """Return what a job's properties ask of the scheduler of a cluster."""
    return JobSettings(
        map_attempts_max=conf.map_attempts_max or ATTEMPTS_MAX,
        reduce_attempts_max=conf.reduce_attempts_max or ATTEMPTS_MAX,
        map_failures_percent_max=conf.map_failures_percent,
        reduce_failures_percent_max=conf.reduce_failures_percent,
        slowstart=conf.slowstart,
        backup_maps=conf.map_speculative,
        backup_reduces=conf.reduce_speculative,
        # An attempt watches its own programs; the master only finds attempts that say nothing.
        task_timeout_s=conf.task_timeout_s * 1.5 + 30.0 if conf.task_timeout_s else 0.0,
        running_maps_max=conf.running_maps_max,
        running_reduces_max=conf.running_reduces_max,
        priority=conf.priority,
        workers_max=conf.workers_max,
    )


def local_settings(conf: JobConf, *, leaves_parts: bool) -> JobSettings:
    """One attempt a task unless more are asked for, as Hadoop's local mode; no backup tasks.

    A job that lets bad records be skipped gets the attempts that it takes to find them. Where
    `leaves_parts`, a failed task does not keep the others from leaving theirs in the output
    directory (spec 8.4, 11).
    """
    to_skip = conf.skip_start_attempts + 1
    maps = to_skip if conf.map_skip_records_max > 0 else 1
    reduces = to_skip if conf.reduce_skip_groups_max > 0 else 1
    return msgspec.structs.replace(
        without_workers(conf),
        map_attempts_max=conf.map_attempts_max or maps,
        reduce_attempts_max=conf.reduce_attempts_max or reduces,
        outlives_failure=leaves_parts,
        running_maps_max=conf.running_maps_max,
        running_reduces_max=conf.running_reduces_max,
    )


def without_workers(conf: JobConf) -> JobSettings:
    """Return what is asked where the scheduler knows no workers of its own: maps first, then
    reduces, no backups, nothing waits for a host; an attempt watches its own programs."""
    return JobSettings(
        map_attempts_max=conf.map_attempts_max or ATTEMPTS_MAX,
        reduce_attempts_max=conf.reduce_attempts_max or ATTEMPTS_MAX,
        map_failures_percent_max=conf.map_failures_percent,
        reduce_failures_percent_max=conf.reduce_failures_percent,
        slowstart=1.0,
        backup_maps=False,
        backup_reduces=False,
        task_timeout_s=0.0,
        locality_wait_s=0.0,
    )


class TaskRules:
    """What is to be known of the tasks of one job before they run."""

    def __init__(self, spec: JobSpec, settings: JobSettings) -> None:
        self._has_reduces = spec.reduces > 0
        self._has_named_outputs = bool(spec.conf().outputs)
        self._tries = {
            TaskKind.MAP: settings.map_attempts_max,
            TaskKind.REDUCE: settings.reduce_attempts_max,
        }

    def has_final_output(self, task_id: TaskId) -> bool:
        """Whether a task's output is the job's."""
        return task_id.kind is TaskKind.REDUCE or not self._has_reduces

    def commits(self, task_id: TaskId) -> bool:
        """Whether a task leaves files in the output directory: outputs with names, at least."""
        return self.has_final_output(task_id) or self._has_named_outputs

    def is_last_try(self, attempt_id: AttemptId) -> bool:
        """Whether this attempt's failure may end the job: then its input is worth keeping."""
        tries = self._tries[attempt_id.task_id.kind]
        return attempt_id.number % LIFE_ATTEMPTS + 1 >= tries
