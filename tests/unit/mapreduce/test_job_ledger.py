"""What the master keeps of a job: counters count each task once, people hear of failures."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.attempt.attempt_report import Done, Failure
from mrstream.mapreduce.dataflow.split_plan import Piece, Split
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.errors import LaunchFailed
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.master.job_ledger import SAID_KEPT_CHARS_MAX, JobLedger
from mrstream.mapreduce.protocol import AttemptNews
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


def commit(ledger: JobLedger, attempt_id: AttemptId, records: int) -> None:
    ledger.started(attempt_id, "h1", 100.0)
    counters = {c.FRAMEWORK: {c.MAP_INPUT_RECORDS: records}, "Mine": {"seen": records}}
    ledger.offered[attempt_id] = Done(counters, segment_bytes=records * 2)
    ledger.committed(attempt_id, 101.5)


def test_counters_of_a_map_that_ran_again_count_once() -> None:
    """MapReduce §4.9: duplicates of re-executed tasks are not counted twice."""
    ledger = ledger_of()

    commit(ledger, attempt(TaskKind.MAP, 0), 10)
    commit(ledger, attempt(TaskKind.MAP, 1), 5)
    commit(ledger, attempt(TaskKind.MAP, 0, 1), 11)

    counters = ledger.counters(JobTotals(launched_maps=3))
    assert counters.value(c.MAP_INPUT_RECORDS) == 16
    assert counters.get("Mine", "seen") == 16
    assert counters.get(c.JOB, c.LAUNCHED_MAPS) == 3
    progress = ledger.progress(None, 103.0)
    assert (progress.maps_done, progress.maps, progress.shuffled_bytes) == (2, 2, 32)


def test_counters_of_running_tasks_are_seen_once_a_task() -> None:
    """MapReduce §4.9 (MR-34): of two attempts of a task, those of the one that is further."""
    ledger = ledger_of()
    commit(ledger, attempt(TaskKind.MAP, 0), 10)
    for number, fraction, seen in ((0, 0.2, 3), (1, 0.5, 4)):
        running = attempt(TaskKind.MAP, 1, number)
        ledger.started(running, "h1", 100.0)
        ledger.heard(
            running, AttemptNews(str(running), fraction, seen, 0, counters={"Mine": {"seen": seen}})
        )

    before = ledger.counters(None).get("Mine", "seen")
    commit(ledger, attempt(TaskKind.MAP, 1), 6)

    assert before == 14
    assert ledger.counters(None).get("Mine", "seen") == 16


def test_an_attempt_that_did_not_commit_counts_nothing() -> None:
    ledger = ledger_of()
    loser = attempt(TaskKind.MAP, 0)
    ledger.started(loser, "h1", 100.0)

    ledger.killed(loser)

    assert ledger.counters(None).value(c.MAP_INPUT_RECORDS) == 0


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

    assert not ledger.is_last_try(attempt(TaskKind.MAP, 0, 0))
    assert ledger.is_last_try(attempt(TaskKind.MAP, 0, 1))
    assert not ledger.is_last_try(attempt(TaskKind.MAP, 0, 1000))


def test_the_report_has_the_columns_of_the_papers_table() -> None:
    """MapReduce §6, Table 1 (MR-39)."""
    ledger = ledger_of()
    commit(ledger, attempt(TaskKind.MAP, 0), 10)
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
