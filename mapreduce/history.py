"""What is kept of jobs, under the user's state directory, so that a failure can be looked at later.

    HOME/jobs/JOB_ID/report.json            how the job went; of a good job nothing else stays
                     job.msgpack            the job, whole
                     logs/ATTEMPT/stderr    what its programs said
                     kept/ATTEMPT/…         a failed attempt and its input: what `-repeat` runs

Directories are the user's alone (mode 0700): inputs may be private. Whatever is older than seven
days goes, and the oldest go while all together are larger than 5 GB. Never touches a running job.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

from mrstream.mapreduce.job.errors import NoStateDirectory, NoSuchAttempt
from mrstream.mapreduce.job.job import JobSpec, decode, encode
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, parse_attempt_id

KEPT_S_MAX = 7 * 24 * 3600.0
KEPT_BYTES_MAX = 5 * 10**9
_NUMBERS_MAX = 1000


def home() -> str:
    """Return the state directory: $MRSTREAM_HOME, else ~/.mrstream."""
    return os.path.abspath(os.environ.get("MRSTREAM_HOME") or os.path.expanduser("~/.mrstream"))


class JobRecord:
    def __init__(self, job_id: JobId, directory: str) -> None:
        self.job_id = job_id
        self.directory = directory
        self.scratch = self.mark
        """Where a running local job keeps segments and working directories."""

    @property
    def mark(self) -> str:
        """The directory that is there as long as the job runs."""
        return os.path.join(self.directory, "work")

    def put_scratch_in(self, parent: str) -> None:
        """Keep segments and working directories on another disk."""
        self.scratch = os.path.join(os.path.abspath(parent), f"mrstream-{self.job_id}")
        os.makedirs(self.scratch, mode=0o700)

    def log_directory(self, attempt_id: str) -> str:
        return os.path.join(self.directory, "logs", attempt_id)

    def kept_directory(self, attempt_id: str) -> str:
        """Where a failed attempt and its input are kept."""
        return os.path.join(self.directory, "kept", attempt_id)

    def write_spec(self, spec: JobSpec) -> None:
        write_whole(os.path.join(self.directory, "job.msgpack"), encode(spec))

    def read_spec(self) -> JobSpec:
        with open(os.path.join(self.directory, "job.msgpack"), "rb") as file:
            return decode(file.read())

    def write_report(self, report: dict[str, Any]) -> None:
        text = json.dumps(report, indent=1, ensure_ascii=False)
        write_whole(os.path.join(self.directory, "report.json"), text.encode())

    def read_report(self) -> dict[str, Any]:
        """Return how the job went; empty while it runs."""
        try:
            with open(os.path.join(self.directory, "report.json"), "rb") as file:
                report: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return {}
        return report

    def drop_scratch(self) -> None:
        """Remove what only the running job needed."""
        for path in {self.scratch, self.mark}:
            shutil.rmtree(path, ignore_errors=True)

    def drop_all(self) -> None:
        """Keep nothing: the job never ran, or a person stopped it."""
        self.drop_scratch()
        shutil.rmtree(self.directory, ignore_errors=True)

    def drop_all_but_report(self) -> None:
        """Keep of a good job how it went."""
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            if name == "report.json":
                continue
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


def begin(job_number: int | None = None) -> JobRecord:
    """Make the directory of a new local job, and with it an id that no other job has."""
    jobs = os.path.join(home(), "jobs")
    try:
        os.makedirs(jobs, mode=0o700, exist_ok=True)
    except OSError as error:
        raise NoStateDirectory(
            f"the state directory cannot be made: {error}; set MRSTREAM_HOME to one that can"
        ) from error
    first = int(time.time() * 1000) if job_number is None else job_number
    for number in range(first, first + _NUMBERS_MAX):
        job_id = JobId(f"job_local{number}_0001")
        directory = os.path.join(jobs, job_id)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
            os.mkdir(os.path.join(directory, "work"), 0o700)
            return JobRecord(job_id, directory)
    raise FileExistsError(f"{jobs}: {_NUMBERS_MAX} jobs in a row are there from {first} on")


def find(job_id: JobId) -> JobRecord | None:
    """Return the record of a job, if there is one."""
    directory = os.path.join(home(), "jobs", job_id)
    return JobRecord(job_id, directory) if os.path.isdir(directory) else None


def attempt_named(text: str) -> AttemptId:
    """Return the attempt that a user names; NoSuchAttempt if nothing is called so."""
    try:
        return parse_attempt_id(text)
    except ValueError:
        raise NoSuchAttempt(
            f"{text!r} is not an attempt id, such as attempt_local1700000000000_0001_m_000000_0"
        ) from None


def find_attempt(text: str) -> tuple[JobRecord, str]:
    """Return the job and the directory of a kept attempt; NoSuchAttempt says why there is none."""
    attempt = attempt_named(text)
    record = find(attempt.task_id.job_id)
    if record is None:
        raise NoSuchAttempt(
            f"{text}: nothing is kept of {attempt.task_id.job_id} in {home()}/jobs "
            f"(failed jobs are kept for {KEPT_S_MAX / 86400:g} days)"
        )
    directory = record.kept_directory(text)
    if not os.path.isdir(directory):
        kept = os.path.join(record.directory, "kept")
        others = ", ".join(sorted(os.listdir(kept))) if os.path.isdir(kept) else "none"
        raise NoSuchAttempt(f"{text} is not kept; of {record.job_id} these are: {others}")
    return record, directory


def all_jobs() -> Iterator[JobRecord]:
    """Yield the kept jobs, oldest first."""
    jobs = os.path.join(home(), "jobs")
    if os.path.isdir(jobs):
        for name in sorted(os.listdir(jobs)):
            if name.startswith("job_"):
                yield JobRecord(JobId(name), os.path.join(jobs, name))


def prune(now_s: float, running: JobId | None = None) -> list[JobId]:
    """Remove what is too old, then the oldest while all is too large; return what was removed."""
    removed: list[JobId] = []
    kept: list[tuple[float, int, JobRecord]] = []
    for record in all_jobs():
        if record.job_id == running or os.path.isdir(record.mark):
            continue
        changed_at_s, size_bytes = _age_and_size(record.directory)
        if now_s - changed_at_s > KEPT_S_MAX:
            shutil.rmtree(record.directory, ignore_errors=True)
            removed.append(record.job_id)
        else:
            kept.append((changed_at_s, size_bytes, record))
    kept.sort(key=lambda entry: entry[0])
    total_bytes = sum(size_bytes for _, size_bytes, _ in kept)
    for _, size_bytes, record in kept:
        if total_bytes <= KEPT_BYTES_MAX:
            break
        shutil.rmtree(record.directory, ignore_errors=True)
        removed.append(record.job_id)
        total_bytes -= size_bytes
    return removed


def prune_if_due(now_s: float) -> None:
    """Prune if the oldest job's id says that it is too old; a look at names, no more."""
    oldest = next(all_jobs(), None)
    number = oldest.job_id.removeprefix("job_local").partition("_")[0] if oldest else ""
    if number.isdigit() and now_s - int(number) / 1000 > KEPT_S_MAX:
        prune(now_s)


def _age_and_size(directory: str) -> tuple[float, int]:
    changed_at_s, size_bytes = 0.0, 0
    with contextlib.suppress(FileNotFoundError):  # another mrstream may be pruning too
        changed_at_s = os.stat(directory).st_mtime
        for root, _, names in os.walk(directory):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    status = os.lstat(os.path.join(root, name))
                    size_bytes += status.st_size
                    changed_at_s = max(changed_at_s, status.st_mtime)
    return changed_at_s, size_bytes


def write_whole(path: str, data: bytes, *, sync: bool = False) -> None:
    """Write a file that is there whole or not at all; an `OSError` names it, which that of a full
    disk does not, and leaves nothing."""
    partial = f"{path}.{os.getpid()}"
    try:
        with open(partial, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # it may not even have been made
            os.unlink(partial)
        raise OSError(error.errno, error.strerror, path) from None
