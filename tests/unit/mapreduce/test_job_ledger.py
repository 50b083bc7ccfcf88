"""What the master keeps of a job: people hear of failures, the report has what papers ask."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.attempt.attempt_report import Done, Failure
from mrstream.mapreduce.dataflow.split_plan import Piece, Split
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.errors import LaunchFailed
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.master.job_ledger import SAID_KEPT_CHARS_MAX, JobLedger
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, TaskId, TaskKind
from mrstream.mapreduce.scheduler.phases import JobTotals
from mrstream.mapreduce.snapshot import JobRow
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf

JOB = JobId("job_1700000000000_0001")


def ledger_of(properties: dict[str, str] | None = None, reduces: int = 1) -> JobLedger:
    spec = JobSpec(
        JobId(""),
        JobConf(properties or {}).to_dict(),
        Program("cat"),
        None,
        Program("cat"),
        reduces,
        ("/in",),
        "dfs://test/out",
        splits=tuple(
            Split(index, "TEXT", (Piece("dfs://test/in", index * 10, 10, ("h1", "h2")),))
            for index in range(2)
        ),
    )
    return JobLedger(JOB, job.encode(spec), 100.0, "dfs://test/", is_output_temporary=False)


def attempt(kind: TaskKind, index: int, number: int = 0) -> AttemptId:
    return AttemptId(TaskId(JOB, kind, index), number)


def test_a_name_stays_in_its_row() -> None:
    """In lists of jobs a name with a line end would begin a row that is no job."""
    name = "nightly\njob_1_0001\tSUCCEEDED\u2028\x1b[2J"

    assert ledger_of({"mapreduce.job.name": name}).name == "nightly job_1_0001 SUCCEEDED \x1b[2J"
    assert ledger_of({"mapreduce.job.name": "\n"}).name == " "


def test_the_first_failure_is_told_in_full_with_its_host_and_later_ones_in_a_line() -> None:
    ledger = ledger_of()

    for number in range(2):
        failure = Failure("it broke", stage="map", command="m.py", stderr_tail=("oh no",))
        ledger.failed(attempt(TaskKind.MAP, 0, number), failure, "h2")

    texts = [line.text for line in ledger.lines]
    assert texts[0].endswith("_m_000000_0, Status : FAILED")
    assert "host:" in texts[1] and "h2" in texts[1] and "oh no" in texts[1]
    assert texts[3].endswith("failed on h2: it broke")
    assert len(ledger.failures) == 2


def test_what_attempts_said_is_kept_for_the_report_within_bounds() -> None:
    """Their logs may be lost with their hosts."""
    ledger = ledger_of()

    ledger.attempt_said("a", "", "first line\nsec")
    ledger.attempt_said("a", "", "ond\n")
    ledger.attempt_said("a", "WARN", "a counter makes no sense")
    ledger.attempt_said("b", "", "x" * SAID_KEPT_CHARS_MAX)
    ledger.attempt_said("c", "", "too late\n")

    said = ledger.report(JobRow(JOB), None, None, 110.0).said
    assert said["a"] == "first line\nsecond\na counter makes no sense\n"
    assert len(said["a"]) + len(said["b"]) <= SAID_KEPT_CHARS_MAX + 1
    assert "c" not in said


def test_the_scheduler_learns_sizes_homes_and_wishes() -> None:
    """MapReduce §3.4 and appendix A: homes of splits, limits of a job."""
    ledger = ledger_of(
        {
            "mapreduce.map.maxattempts": "2",
            "mapreduce.job.priority": "high",
            "mrstream.job.workers.max": "7",
            "mapreduce.map.speculative": "false",
        }
    )

    assert [(spec.length_bytes, spec.hosts) for spec in ledger.asked().maps] == [
        (10, ("h1", "h2"))
    ] * 2
    settings = ledger.settings
    assert (settings.map_attempts_max, settings.reduce_attempts_max) == (2, 4)
    assert (settings.priority, settings.workers_max) == (4, 7)
    assert (settings.backup_maps, settings.backup_reduces) == (False, True)


def test_only_the_last_try_keeps_its_input_whatever_life_the_master_is_in() -> None:
    ledger = ledger_of({"mapreduce.map.maxattempts": "2"})

    assert not ledger.rules.is_last_try(attempt(TaskKind.MAP, 0, 0))
    assert ledger.rules.is_last_try(attempt(TaskKind.MAP, 0, 1))
    assert not ledger.rules.is_last_try(attempt(TaskKind.MAP, 0, 1000))


def test_the_report_has_the_columns_of_the_papers_table() -> None:
    """MapReduce §6, Table 1 (MR-39)."""
    ledger = ledger_of()
    ledger.tally.restore(attempt(TaskKind.MAP, 0), Done({}, segment_bytes=20), 1.5)
    ledger.workers["h1"] = None
    ledger.worker_deaths = 1

    facts = ledger.report(JobRow(JOB), None, JobTotals(rerun_maps=2), 110.0).facts

    assert facts["elapsed_s"] == 10.0
    assert facts["task_s_mean"] == 1.5
    assert facts["intermediate_bytes"] == 20
    assert (facts["workers"], facts["worker_deaths"], facts["maps_rerun"]) == (1, 1, 2)
    assert (facts["maps"], facts["reduces"]) == (2, 1)


@pytest.mark.parametrize("packed", [b"", b"\xc0", b"\x91" * 5000, b"\x81\xa6job_id\xa2\xff\xfe"])
def test_a_job_that_cannot_be_read_is_refused(packed: bytes) -> None:
    """Whoever submits one has the secret, but not the right to end the master."""
    with pytest.raises(LaunchFailed, match="the job cannot be read"):
        job.decode(packed)
