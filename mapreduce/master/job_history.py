"""Reports of ended jobs on the master's disk: they outlive restarts of the master.

    DIR/JOB_ID/report.msgpack    all that is known of the job (`JobReport`)
                job.msgpack       the job itself (`JobSpec`), of failed jobs: to repeat an attempt

Written whole or not at all. The oldest go when there are too many.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Final

import msgspec

from mrstream.mapreduce.protocol import JobReport
from mrstream.mapreduce.scheduler.ids import JOB_PATTERN

JOBS_MAX: Final = 1000
_JOB_ID: Final = re.compile(JOB_PATTERN)


class JobHistory:
    """The kept reports."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, exist_ok=True)

    def write(self, report: JobReport, spec: bytes | None) -> None:
        """Keep a report, and the job itself if given."""
        directory = os.path.join(self._directory, report.job.key)
        os.makedirs(directory, exist_ok=True)
        if spec is not None:
            _write(os.path.join(directory, "job.msgpack"), spec)
        _write(os.path.join(directory, "report.msgpack"), msgspec.msgpack.encode(report))
        self._prune()

    def read(self, job_id: str) -> JobReport | None:
        """Give the report of a job, if it is kept."""
        data = self._read(job_id, "report.msgpack")
        return None if data is None else msgspec.msgpack.decode(data, type=JobReport)

    def read_spec(self, job_id: str) -> bytes | None:
        """Give the packed job, if it is kept."""
        return self._read(job_id, "job.msgpack")

    def job_ids(self) -> list[str]:
        """Give the kept jobs, oldest first."""
        return sorted(os.listdir(self._directory))

    def _read(self, job_id: str, name: str) -> bytes | None:
        if not _JOB_ID.fullmatch(job_id):  # it came from outside, and names a directory
            return None
        try:
            with open(os.path.join(self._directory, job_id, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _prune(self) -> None:
        for job_id in self.job_ids()[:-JOBS_MAX]:
            shutil.rmtree(os.path.join(self._directory, job_id), ignore_errors=True)


def _write(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
