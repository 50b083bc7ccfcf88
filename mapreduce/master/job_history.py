"""Reports of ended jobs, which outlive the master: on its disk, or in the dfs.

    DIR/JOB_ID/report.msgpack    all that is known of the job (`JobReport`)
                job.msgpack       the job itself (`JobSpec`), of failed jobs: to repeat an attempt

A master that is alone keeps them on its own disk. Masters of a group keep them in the dfs, below
/.mrstream/history, where whoever leads next finds them. Written whole or not at all, the report
last; the oldest go when there are too many. All of it blocks, and is called in threads.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Protocol

import msgspec

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import create_hidden
from mrstream.dfs.errors import NoSuchFile
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dfs_layout import HISTORY
from mrstream.mapreduce.history import write_whole
from mrstream.mapreduce.protocol import JobReport
from mrstream.mapreduce.scheduler.ids import JOB_PATTERN, job_order
from mrstream.mapreduce.snapshot import JobRow

JOBS_MAX = 1000
ROWS_MAX = 2 * JOBS_MAX
REPORT = "report.msgpack"
SPEC = "job.msgpack"
_JOB_ID = re.compile(JOB_PATTERN)


class Place(Protocol):
    """Where the files of jobs are, each named by its job and its own name."""

    def write(self, job_id: str, name: str, data: bytes) -> None: ...

    def read(self, job_id: str, name: str) -> bytes | None: ...

    def job_ids(self) -> list[str]: ...

    def remove(self, job_id: str) -> None: ...


class JobHistory:
    """The kept reports."""

    def __init__(self, place: Place, before: Place | None = None) -> None:
        """`before`: where a master that was alone kept them; only read."""
        self._place = place
        self._before = before
        self._rows: dict[str, JobRow] = {}

    def write(self, report: JobReport, spec: bytes | None) -> None:
        """Keep a report, and the job itself if given."""
        if spec is not None:
            self._place.write(report.job.key, SPEC, spec)
        self._place.write(report.job.key, REPORT, msgspec.msgpack.encode(report))

    def read(self, job_id: str) -> JobReport | None:
        data = self._read(job_id, REPORT)
        return None if data is None else msgspec.msgpack.decode(data, type=JobReport)

    def read_spec(self, job_id: str) -> bytes | None:
        """Return the packed job, if it is kept."""
        return self._read(job_id, SPEC)

    def rows(self, count: int) -> list[JobRow]:
        """Return what lists show of the last jobs; a report never changes, so each is read once."""
        found = []
        for job_id in self.job_ids()[-count:]:
            row = self._rows.get(job_id)
            if row is None and (report := self.read(job_id)) is not None:
                row = self._rows[job_id] = report.job
                if len(self._rows) > ROWS_MAX:
                    del self._rows[next(iter(self._rows))]
            if row is not None:
                found.append(row)
        return found

    def job_ids(self) -> list[str]:
        """Return the kept jobs, oldest first."""
        kept = dict.fromkeys(self._place.job_ids())
        if self._before is not None:
            kept |= dict.fromkeys(self._before.job_ids())
        return sorted(kept, key=job_order)

    def prune(self) -> None:
        """Let the oldest go when there are too many."""
        for job_id in sorted(self._place.job_ids(), key=job_order)[:-JOBS_MAX]:
            self._place.remove(job_id)

    def _read(self, job_id: str, name: str) -> bytes | None:
        if not _JOB_ID.fullmatch(job_id):  # it came from outside, and names a directory
            return None
        data = self._place.read(job_id, name)
        if data is None and self._before is not None:
            data = self._before.read(job_id, name)
        return data


class OwnDisk:
    """A directory of the master's host."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, exist_ok=True)

    def write(self, job_id: str, name: str, data: bytes) -> None:
        path = os.path.join(self._directory, job_id, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_whole(path, data, sync=True)

    def read(self, job_id: str, name: str) -> bytes | None:
        try:
            with open(os.path.join(self._directory, job_id, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def job_ids(self) -> list[str]:
        return os.listdir(self._directory)

    def remove(self, job_id: str) -> None:
        shutil.rmtree(os.path.join(self._directory, job_id), ignore_errors=True)


class InDfs:
    """A directory of the dfs; changes are made under the leader's fence."""

    def __init__(self) -> None:
        self._client: DfsClient | None = None

    @property
    def _dfs(self) -> DfsClient:
        """Made when first needed: who leads, and so the fence, is not known before."""
        if self._client is None:
            self._client = dfs_files.new_client()
        return self._client

    def write(self, job_id: str, name: str, data: bytes) -> None:
        path = f"{HISTORY}/{job_id}/{name}"
        with create_hidden(self._dfs, path, overwrite=True, parents=True) as file:
            file.write(data)

    def read(self, job_id: str, name: str) -> bytes | None:
        try:
            with DfsReader(self._dfs, f"{HISTORY}/{job_id}/{name}") as file:
                return file.read()
        except NoSuchFile:
            return None

    def job_ids(self) -> list[str]:
        try:
            return [os.path.basename(entry.path) for entry in self._dfs.list(HISTORY)]
        except NoSuchFile:
            return []

    def remove(self, job_id: str) -> None:
        self._dfs.delete(f"{HISTORY}/{job_id}", recursive=True, skip_trash=True)
