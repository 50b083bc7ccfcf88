"""What a restarted job master must go on with is the fold of its journal."""

from __future__ import annotations

import msgspec
import pytest

from mrstream.cluster.errors import JournalCorrupt
from mrstream.cluster.journal.journal import Journal
from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.master import job_journal
from mrstream.mapreduce.master.job_journal import (
    AnyRecord,
    CommitGranted,
    JobAccepted,
    JobClosed,
    JobDecided,
    Journaled,
    MasterStarted,
    PriorityChanged,
    TaskAbandoned,
    TaskCommitted,
)
from tests.support.forgetful_disk import ForgetfulDisk

JOB = "job_1700000000000_0001"
FIRST = "attempt_1700000000000_0001_m_000000_0"
SECOND = "attempt_1700000000000_0001_m_000000_1"


def accepted(job_id: str = JOB) -> JobAccepted:
    return JobAccepted(job_id, f"token of {job_id}", b"spec", 1, False, 5.0)


def fold(records: list[AnyRecord]) -> Journaled:
    journaled = Journaled()
    journaled.restore((), enumerate(map(job_journal.encode, records), 1))
    return journaled


def test_a_later_commit_of_a_task_replaces_an_earlier_one() -> None:
    """MapReduce §3.3: a map whose output was lost runs again; its first run is void."""
    journaled = fold(
        [
            MasterStarted(1),
            accepted(),
            TaskCommitted(JOB, FIRST, "h1", Done({}), 1.0),
            TaskCommitted(JOB, SECOND, "h2", Done({}), 2.0),
        ]
    )

    (commit,) = journaled.jobs[JOB].committed.values()
    assert (commit.attempt_id, commit.worker_id) == (SECOND, "h2")


def test_a_task_that_was_given_up_stays_so_and_an_earlier_commit_of_it_is_void() -> None:
    """A map whose output nobody could fetch, and that then failed too often."""
    journaled = fold(
        [
            accepted(),
            TaskCommitted(JOB, FIRST, "h1", Done({}), 1.0),
            TaskAbandoned(JOB, "task_1700000000000_0001_m_000000"),
        ]
    )
    again = Journaled()
    again.restore(journaled.pieces(), [])

    for found in (journaled.jobs[JOB], again.jobs[JOB]):
        assert list(found.abandoned) == ["task_1700000000000_0001_m_000000"]
        assert found.committed == {}


def test_a_closed_job_leaves_nothing() -> None:
    journaled = fold([accepted(), JobDecided(JOB, "succeeded", ""), JobClosed(JOB)])

    assert journaled.jobs == {}


def test_a_decided_job_that_is_not_closed_is_closed_by_the_next_life() -> None:
    journaled = fold([accepted(), JobDecided(JOB, "killed", "by its user")])

    decided = journaled.jobs[JOB].decided
    assert decided is not None
    assert (decided.outcome, decided.reason) == ("killed", "by its user")


def test_a_checkpoint_says_the_same_as_the_records_before_it() -> None:
    """Decision 5: recovery is the newest checkpoint and the records after it."""
    other = "job_1700000000000_0002"
    records: list[AnyRecord] = [
        MasterStarted(3),
        accepted(),
        accepted(other),
        PriorityChanged(JOB, 5),
        TaskCommitted(JOB, FIRST, "h1", Done({"g": {"c": 7}}), 1.0),
        JobClosed(other),
    ]
    whole = fold(records)

    restored = Journaled()
    restored.restore(whole.pieces(), [(7, job_journal.encode(JobDecided(JOB, "failed", "why")))])

    assert restored.life == 3
    assert list(restored.jobs) == [JOB]
    known = restored.jobs[JOB]
    assert known.accepted == accepted()
    assert known.priority == 5
    assert list(known.committed.values()) == list(whole.jobs[JOB].committed.values())
    assert known.decided is not None


@pytest.mark.parametrize(("tasks", "spec_bytes"), [(1000, 10), (10, 3 << 20)])
def test_a_checkpoint_of_any_size_is_read_back(tasks: int, spec_bytes: int) -> None:
    """A journal cuts it into blocks of its own, wherever records end: a master with more than 256
    of them, or with more than 1 MiB, did not start again."""
    disk = ForgetfulDisk()
    journal = Journal("/j", "c1", disk=disk)
    journal.recover()
    journal.append(b"a record")
    sequence = journal.rotate()
    journal.commit()
    job = JobAccepted(JOB, "token", bytes(spec_bytes), 1, False, 5.0)
    attempts = [f"attempt_1700000000000_0001_m_{number:06d}_0" for number in range(tasks)]
    commits = [TaskCommitted(JOB, attempt, "h1", Done({}), 1.0) for attempt in attempts]
    journal.write_checkpoint(sequence, fold([MasterStarted(2), job, *commits]).pieces())

    again = Journaled()
    again.restore(Journal("/j", "c1", disk=disk).recover().checkpoint, [])

    assert again.life == 2 and again.jobs[JOB].accepted == job
    assert list(again.jobs[JOB].committed.values()) == commits


def test_a_checkpoint_of_an_earlier_version_is_read() -> None:
    """It has an array for each 256 records, and the journal has cut it anywhere."""
    attempts = [f"attempt_1700000000000_0001_m_{number:06d}_0" for number in range(600)]
    done = Done({"group": {"counter": 1 << 40}}, output_bytes=70_000)
    commits = [TaskCommitted(JOB, attempt, "h1", done, 1.0) for attempt in attempts]
    whole: list[AnyRecord] = [MasterStarted(2), accepted(), *commits]
    state = b"".join(
        msgspec.msgpack.encode(whole[first : first + 256]) for first in range(0, len(whole), 256)
    )

    again = Journaled()
    again.restore([state[:1000], state[1000:]], [])

    assert again.life == 2 and list(again.jobs[JOB].committed.values()) == commits


def test_no_garbage_is_more_than_corruption() -> None:
    whole = b"".join(fold([MasterStarted(2), accepted()]).pieces())
    for garbage in [
        b"\xc1",
        whole[:-1],
        whole + b"\xdd\xff\xff\xff\xff",
        b"\xdf" + b"\xff" * 9,
        whole + b"\xc7\x01\x01a",
    ]:
        with pytest.raises(JournalCorrupt, match="cannot be read"):
            Journaled().restore([garbage], [])


def test_a_record_that_says_nothing_is_corruption() -> None:
    with pytest.raises(JournalCorrupt, match="cannot be read"):
        Journaled().restore((), [(1, b"\xc1")])


def test_a_repeated_submission_finds_its_job_for_an_hour_after_its_end() -> None:
    """F5: a client whose answer was lost asks the next leader, which may come late."""
    journaled = fold(
        [accepted(), JobDecided(JOB, "succeeded", ""), JobClosed(JOB, f"token of {JOB}", 1000.0)]
    )

    assert journaled.jobs == {} and journaled.find_submission(f"token of {JOB}") == JOB
    journaled.apply(JobClosed("job_2_0001", "another", 1000.0 + job_journal.CLOSED_KEPT_S))
    assert journaled.find_submission(f"token of {JOB}") == JOB
    journaled.apply(JobClosed("job_2_0002", "one more", 1001.0 + job_journal.CLOSED_KEPT_S))
    assert journaled.find_submission(f"token of {JOB}") is None
    assert journaled.find_submission("one more") == "job_2_0002"


def test_a_submission_that_was_refused_after_all_is_not_a_job() -> None:
    journaled = fold([accepted(), JobClosed(JOB)])

    assert journaled.find_submission(f"token of {JOB}") is None


def test_job_numbers_come_from_the_fold_whoever_leads() -> None:
    """Also those of jobs that are closed; what was numbered otherwise before does not count."""
    old = "job_1600000000000_0007"
    journaled = fold([MasterStarted(1), accepted(old), MasterStarted(2, 1_700_000_000_000)])
    assert journaled.job_id(journaled.jobs_count + 1) == JOB
    for record in (accepted(), JobClosed(JOB), MasterStarted(3, 1_800_000_000_000)):
        journaled.apply(record)
    again = Journaled()
    again.restore(journaled.pieces(), [])

    for found in (journaled, again):
        assert found.job_id(found.jobs_count + 1) == "job_1700000000000_0002"
        assert list(found.jobs) == [old] and found.life == 3


def test_who_may_have_committed_is_known_until_the_task_is_over() -> None:
    """S1 over lives: a checkpoint keeps it."""
    journaled = fold([accepted(), CommitGranted(JOB, FIRST), CommitGranted(JOB, SECOND)])
    again = Journaled()
    again.restore(journaled.pieces(), [])

    for found in (journaled, again):
        assert list(found.jobs[JOB].granted_with(FIRST)) == [FIRST, SECOND]
        found.apply(TaskCommitted(JOB, SECOND, "h2", Done({}), 2.0))
        assert found.jobs[JOB].granted_with(FIRST) == {}


def test_who_was_let_commit_last_is_behind_though_it_was_let_before() -> None:
    """S1 over lives: only what was let last may have laid its output over that of others."""
    grants = [CommitGranted(JOB, attempt) for attempt in (FIRST, SECOND, FIRST)]
    journaled = fold([accepted(), *grants])
    again = Journaled()
    again.restore(journaled.pieces(), [])

    for found in (journaled, again):
        assert list(found.jobs[JOB].granted_with(FIRST)) == [SECOND, FIRST]


def test_a_priority_that_was_set_by_a_request_is_known_again() -> None:
    """F5: repeated after somebody else's change it must not undo that."""
    journaled = fold([accepted(), PriorityChanged(JOB, 5, (7, 1)), PriorityChanged(JOB, 2, (8, 1))])
    again = Journaled()
    again.restore(journaled.pieces(), [])

    for found in (journaled, again):
        assert found.jobs[JOB].priority == 2
        assert list(found.jobs[JOB].requests) == [(7, 1), (8, 1)]


def test_records_of_the_format_before_are_read() -> None:
    """A field may be added at the end with a default."""
    old = [["MasterStarted", 4], ["JobClosed", JOB], ["PriorityChanged", JOB, 3]]
    journaled = Journaled()
    journaled.restore((), [(0, msgspec.msgpack.encode(record)) for record in old])

    assert (journaled.life, journaled.stamp_ms, journaled.closed) == (4, 0, {})
