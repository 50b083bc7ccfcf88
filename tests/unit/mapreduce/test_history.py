"""mapreduce.history: what is kept of jobs, for how long, and how it is found again."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
from pathlib import Path

import pytest

from mrstream.mapreduce import history
from mrstream.mapreduce.job.errors import NoSuchAttempt
from mrstream.mapreduce.scheduler.ids import JobId

ATTEMPT = "attempt_local5_0001_m_000000_0"
DAY_S = 86400.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def kept_job(number: int, size_bytes: int, changed_at_s: float) -> history.JobRecord:
    """A job that ended at a moment and left so many bytes."""
    record = history.begin(number)
    record.drop_scratch()
    path = os.path.join(record.directory, "kept")
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    os.utime(path, (changed_at_s, changed_at_s))
    os.utime(record.directory, (changed_at_s, changed_at_s))
    return record


def test_two_jobs_of_one_moment_get_two_ids() -> None:
    first, second = history.begin(5), history.begin(5)

    assert (first.job_id, second.job_id) == ("job_local5_0001", "job_local6_0001")


def test_a_jobs_directory_is_its_users_alone() -> None:
    """Inputs of failed attempts may be private."""
    record = history.begin()

    assert stat.S_IMODE(os.stat(record.directory).st_mode) == 0o700


def test_what_is_older_than_seven_days_goes() -> None:
    now_s = 100 * DAY_S
    old = kept_job(1, 10, now_s - 7.1 * DAY_S)
    young = kept_job(2, 10, now_s - 6.9 * DAY_S)

    assert history.prune(now_s) == [old.job_id]
    assert os.path.isdir(young.directory)


def test_the_oldest_go_while_all_together_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_BYTES_MAX", 250)
    now_s = 100 * DAY_S
    jobs = [kept_job(n, 100, now_s - (10 - n) * 60) for n in range(1, 5)]

    removed = history.prune(now_s)

    assert removed == [jobs[0].job_id, jobs[1].job_id]


def test_a_running_job_is_never_pruned() -> None:
    record = history.begin(1)
    os.utime(record.directory, (1, 1))

    assert history.prune(100 * DAY_S) == []
    assert os.path.isdir(record.directory)


def test_a_kept_attempt_is_found_by_its_id() -> None:
    record = history.begin(5)
    os.makedirs(record.kept_directory(ATTEMPT))

    found, directory = history.find_attempt(ATTEMPT)

    assert found.job_id == JobId("job_local5_0001")
    assert directory == record.kept_directory(ATTEMPT)


def test_an_attempt_that_is_not_kept_is_refused_with_those_that_are() -> None:
    record = history.begin(5)
    os.makedirs(record.kept_directory(ATTEMPT))

    with pytest.raises(NoSuchAttempt, match=ATTEMPT):
        history.find_attempt("attempt_local5_0001_m_000007_0")


def test_of_a_good_job_only_the_report_stays() -> None:
    record = history.begin(5)
    record.write_report({"state": "succeeded"})
    os.makedirs(record.log_directory(ATTEMPT))

    record.drop_all_but_report()

    assert os.listdir(record.directory) == ["report.json"]
    assert record.read_report() == {"state": "succeeded"}


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    """What a full disk says has no name in it."""
    path = tmp_path / "file"
    path.write_bytes(b"before")
    before_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before_bytes[1]))
    try:
        with pytest.raises(OSError, match="file") as failed:
            history.write_whole(str(path), bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before_bytes)
        signal.signal(signal.SIGXFSZ, ignored)

    assert failed.value.filename == str(path) and failed.value.errno == errno.EFBIG
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["file"]
