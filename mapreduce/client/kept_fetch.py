"""Brings a failed attempt of a cluster here, so that it can be repeated under its user's eyes.

Takes an attempt id; asks the job master for the job and for what the attempt's worker kept, and
writes both, whole or not at all, where history looks for attempts of this machine. Never runs
anything.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.errors import UserError
from mrstream.mapreduce import history
from mrstream.mapreduce.attempt.attempt_report import KEPT_FILES, KEPT_ORDER
from mrstream.mapreduce.client import environment_staging
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.job import job
from mrstream.mapreduce.protocol import LogPiece, ReadKept, SpecOfJob


def is_here(attempt_id: str) -> bool:
    """Whether an attempt was brought before."""
    kept = _record(attempt_id).kept_directory(attempt_id)
    return os.path.exists(os.path.join(kept, KEPT_ORDER))


def fetch(attempt_id: str, cluster: Cluster) -> None:
    """Have an attempt of this cluster in the history of this machine; once is enough."""
    record = _record(attempt_id)
    dfs_files.serve(cluster)
    if is_here(attempt_id):
        return
    directory = record.kept_directory(attempt_id)
    os.makedirs(record.directory, mode=0o700, exist_ok=True)
    try:
        # Whole or not at all: whoever finds the directory repeats from it, without a cluster too.
        with (
            JobClient(cluster) as client,
            tempfile.TemporaryDirectory(dir=record.directory, prefix="fetched-") as room,
        ):
            spec = job.decode(client.call(SpecOfJob(record.job_id)))
            if spec.environment is not None:
                spec = environment_staging.fetch(spec, dfs_files.new_client(), _say)
            fetched = os.path.join(room, attempt_id)
            os.mkdir(fetched, 0o700)
            for name in KEPT_FILES:
                _fetch_file(client, attempt_id, name, os.path.join(fetched, name))
            record.write_spec(spec)
            os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
            try:
                os.rename(fetched, directory)
            except OSError:
                if not is_here(attempt_id):
                    raise  # else another process has brought the same meanwhile
    except BaseException:
        with contextlib.suppress(OSError):  # attempts of the job that came before stay
            os.rmdir(record.directory)
        raise


def _record(attempt_id: str) -> JobRecord:
    job_id = history.attempt_named(attempt_id).task_id.job_id
    return JobRecord(job_id, os.path.join(history.home(), "jobs", job_id))


def _say(text: str) -> None:
    print(f"environment: {text}", file=sys.stderr, flush=True)


def _fetch_file(client: JobClient, attempt_id: str, name: str, path: str) -> None:
    """Copy one kept file, if there is one of that name."""
    offset = 0
    with open(path, "wb") as file:
        while True:
            piece: LogPiece = client.call(ReadKept(attempt_id, name, offset))
            if not piece.data:
                break
            file.write(piece.data)
            offset += len(piece.data)
    if offset == 0:
        if name == KEPT_ORDER:
            raise UserError(f"nothing is kept of {attempt_id}: it did not fail, or too long ago")
        os.unlink(path)
