"""Reports of ended jobs are found where they are kept, by whoever leads."""

from __future__ import annotations

from pathlib import Path

from mrstream.mapreduce.master import job_history
from mrstream.mapreduce.master.job_history import JobHistory, OwnDisk
from mrstream.mapreduce.protocol import JobReport
from mrstream.mapreduce.scheduler.ids import job_order
from mrstream.mapreduce.snapshot import JobRow


def report(job_id: str, name: str = "") -> JobReport:
    return JobReport(JobRow(job_id, name))


class InMemory(OwnDisk):
    """Another place, that counts how often it is read."""

    reads = 0

    def read(self, job_id: str, name: str) -> bytes | None:
        self.reads += 1
        return super().read(job_id, name)


def test_jobs_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Numbers go on for ever, and have no fixed width."""
    history = JobHistory(OwnDisk(str(tmp_path)))
    ids = ["job_5_9999", "job_5_10000", "job_4_0002"]
    for job_id in ids:
        history.write(report(job_id), None)

    assert history.job_ids() == ["job_4_0002", "job_5_9999", "job_5_10000"]
    assert sorted(ids, key=job_order) == history.job_ids()
    assert [row.key for row in history.rows(2)] == ["job_5_9999", "job_5_10000"]


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    history = JobHistory(OwnDisk(str(tmp_path)))
    for number in range(job_history.JOBS_MAX + 2):
        (tmp_path / f"job_5_{number}").mkdir()

    history.prune()

    assert len(history.job_ids()) == job_history.JOBS_MAX
    assert history.job_ids()[0] == "job_5_2"


def test_what_a_master_that_was_alone_kept_is_still_found(tmp_path: Path) -> None:
    before = OwnDisk(str(tmp_path / "before"))
    JobHistory(before).write(report("job_1_0001", "old"), b"its spec")
    history = JobHistory(OwnDisk(str(tmp_path / "now")), before)
    history.write(report("job_2_0001", "new"), None)

    assert history.job_ids() == ["job_1_0001", "job_2_0001"]
    found = history.read("job_1_0001")
    assert found is not None and found.job.name == "old"
    assert history.read_spec("job_1_0001") == b"its spec"
    assert history.read_spec("job_2_0001") is None


def test_a_report_is_read_once_for_lists(tmp_path: Path) -> None:
    """They never change, and in the dfs each costs a question or two."""
    place = InMemory(str(tmp_path))
    history = JobHistory(place)
    history.write(report("job_1_0001"), None)

    for _ in range(3):
        assert len(history.rows(10)) == 1

    assert place.reads == 1


def test_what_is_no_id_of_a_job_names_no_directory(tmp_path: Path) -> None:
    history = JobHistory(OwnDisk(str(tmp_path / "in")))
    (tmp_path / "report.msgpack").write_bytes(b"a secret")

    assert history.read("..") is None and history.read_spec("../x") is None
