"""What the master keeps of all jobs: results for the journal, and the same after a restart."""

from __future__ import annotations

from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.master.job_books import RECENT_JOBS_MAX, JobBooks
from mrstream.mapreduce.master.job_journal import (
    JobAccepted,
    JobDecided,
    Journaled,
    TaskAbandoned,
    TaskCommitted,
)
from mrstream.mapreduce.notices import AFTER_A_RESTART
from mrstream.mapreduce.scheduler.commands import LoseWorker, RecordCommit, StartAttempt
from mrstream.mapreduce.scheduler.events import AttemptSucceeded, JobRestored, Tick
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, TaskId, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from mrstream.mapreduce.snapshot import JobSeen
from tests.unit.mapreduce.test_job_ledger import JOB, attempt, ledger_of

FIRST = attempt(TaskKind.MAP, 0)
H1 = WorkerId("h1")


def test_the_journal_gets_what_the_attempt_that_committed_had_reported() -> None:
    books = JobBooks(Scheduler())
    ledger = ledger_of()
    books.admit(ledger)
    books.take_down(Tick(), [StartAttempt(FIRST, H1)], 200.0)
    books.notices.offer(FIRST, Done({"Mine": {"seen": 3}}, segment_bytes=9))

    books.take_down(AttemptSucceeded(FIRST), [RecordCommit(FIRST, H1)], 202.5)

    assert books.result(FIRST) == (Done({"Mine": {"seen": 3}}, segment_bytes=9), 2.5)


def test_a_restored_job_has_the_results_of_the_life_before() -> None:
    books, journaled = JobBooks(Scheduler()), Journaled()
    ledger = ledger_of()
    books.admit(ledger)
    for record in (
        JobAccepted(JOB, "token", b"spec", 1, False, 5.0),
        TaskCommitted(JOB, str(FIRST), "h1", Done({"Mine": {"seen": 3}}), 1.5),
        TaskAbandoned(JOB, str(TaskId(JOB, TaskKind.MAP, 1))),
        JobDecided(JOB, "failed", "why", str(attempt(TaskKind.MAP, 1, 3))),
    ):
        journaled.apply(record)

    books.restore(ledger, journaled.jobs[JOB], 300.0)

    assert ledger.tally.counters(None).get("Mine", "seen") == 3
    assert list(ledger.abandoned) == [1]
    assert list(ledger.workers) == ["h1"]
    row = books.notices.jobs.get(JOB)
    assert row is not None and (row.state, row.diagnosis) == ("failed", "why")


def test_what_a_life_before_saw_is_said_to_be_missing_and_its_workers_count() -> None:
    """The attempt was started by the master before; this one hears of its end only."""
    books = JobBooks(Scheduler())
    ledger = ledger_of()
    books.admit(ledger)

    books.take_down(JobRestored(JOB, (), 0, ledger.settings, (), 1000), [], 300.0)
    books.take_down(AttemptSucceeded(FIRST), [RecordCommit(FIRST, H1)], 301.0)

    board = books.notices.job(JOB, JobSeen(), 302.0)
    assert board is not None
    assert [row.text for row in board.events][1:] == [AFTER_A_RESTART]
    assert list(ledger.workers) == ["h1"]


def test_the_loss_of_a_worker_counts_for_the_jobs_that_used_it() -> None:
    """MapReduce Table 1: worker deaths."""
    books = JobBooks(Scheduler())
    used, unused = ledger_of(), ledger_of()
    unused.job_id = JobId("job_1700000000000_0002")
    for ledger in (used, unused):
        books.admit(ledger)
    books.take_down(Tick(), [StartAttempt(FIRST, H1)], 200.0)

    books.take_down(Tick(), [LoseWorker(H1, "no heartbeat for 10.1 s")], 211.0)

    assert (used.worker_deaths, unused.worker_deaths) == (1, 0)


def test_jobs_that_are_closed_can_be_asked_about_for_a_while() -> None:
    books = JobBooks(Scheduler())
    for number in range(RECENT_JOBS_MAX + 1):
        ledger = ledger_of()
        ledger.job_id = JobId(f"job_1700000000000_{number:04d}")
        books.admit(ledger)
        assert books.job_of(AttemptId(TaskId(ledger.job_id, TaskKind.MAP, 0), 0)) is ledger
        books.retire(ledger)

    assert books.jobs == {}
    assert books.ledger("job_1700000000000_0000") is None
    assert books.ledger("job_1700000000000_0001") is not None
