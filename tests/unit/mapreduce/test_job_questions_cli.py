"""mapreduce/client/job_questions_cli.py: the verbs of `mapred job`, asked of a master by hand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from mrstream.cluster.errors import Unavailable, UserError
from mrstream.cluster.wire.messages import Request
from mrstream.mapreduce.client import job_questions_cli as cli
from mrstream.mapreduce.client.job_questions_cli import BadJobCommand
from mrstream.mapreduce.job.errors import NoSuchJob
from mrstream.mapreduce.protocol import (
    AttemptRecord,
    JobReport,
    KillJob,
    ListJobs,
    LogPiece,
    ReadLog,
    ReportOfJob,
    SetPriority,
    StopAttempt,
)
from mrstream.mapreduce.snapshot import EventRow, JobRow

JOB = "job_1700000000000_0001"
FINE, BAD = f"attempt_{JOB[4:]}_m_000000_0", f"attempt_{JOB[4:]}_m_000003_0"
REPORT = JobReport(
    JobRow(JOB, "count", "ann", "running", maps=4, maps_done=1),
    counters={"Mine": {"seen ": 7}},
    events=tuple(EventRow(float(at), f"event {at}") for at in range(5)),
    attempts=(
        AttemptRecord(FINE, "h1", "succeeded", 1.0),
        AttemptRecord(BAD, "h2", "failed", 2.0, diagnosis="exit code 1"),
    ),
    failures=(f"{BAD} failed: exit code 1",),
    said={BAD: "the last that was heard"},
)
LOGS = {FINE: b"all is well\n", BAD: b"oh\ndear\n"}


class ToldMaster:
    """Answers what it is told to; `did` is what it was asked to do."""

    def __init__(self) -> None:
        self.did: list[Request] = []
        self.does = True
        self.has_logs = True

    def call(self, request: Request) -> Any:
        match request:
            case ListJobs():
                return [REPORT.job]
            case ReportOfJob(job_id=job_id):
                if job_id != JOB:
                    raise NoSuchJob(f"{job_id} is not known")
                return REPORT
            case ReadLog(attempt_id=attempt_id, offset=offset):
                if not self.has_logs:
                    raise Unavailable("h2 does not answer")
                log = LOGS[attempt_id]
                return LogPiece(log[offset : offset + 4], len(log))
        raise AssertionError(request)

    def call_patiently(self, request: Request) -> bool:
        self.did.append(request)
        return self.does


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> ToldMaster:
    told = ToldMaster()

    @contextlib.contextmanager
    def client() -> Iterator[ToldMaster]:
        yield told

    monkeypatch.setattr(cli, "_client", client)
    return told


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert cli.main(words) == status
    return capsys.readouterr().out


def test_jobs_and_their_figures_are_shown_as_mapred_job_shows_them(
    master: ToldMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, "-list").splitlines()[0] == "Total jobs:1"
    assert f"Job: {JOB}" in printed(capsys, "-status", JOB)
    assert f"Hadoop job: {JOB}" in printed(capsys, "-history", JOB)
    assert printed(capsys, "-counter", JOB, "Mine", "seen") == "7\n"
    assert printed(capsys, "-counter", JOB, "Mine", "unseen") == "0\n", "as Hadoop's"
    assert printed(capsys, "-list-attempt-ids", JOB, "map", "completed") == f"{FINE}\n"
    assert printed(capsys, "list", "all"), "the dash may be left out"


def test_a_part_of_the_events_can_be_asked_for(
    master: ToldMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, "-events", JOB, "2", "3").splitlines()

    assert [line.rpartition(" event ")[2] for line in lines[1:]] == ["1", "2", "3"]
    assert [event["text"] for event in json.loads(printed(capsys, "-events", JOB, "5", "--json"))]
    with pytest.raises(BadJobCommand, match="FROM is 'x'; it must be a whole number"):
        cli.main(["-events", JOB, "x"])


def test_programs_get_json_of_the_same(
    master: ToldMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = json.loads(printed(capsys, "-list", "--json"))
    report = json.loads(printed(capsys, "-status", JOB, "--json"))

    assert (row["name"], report["job"]["maps"]) == ("count", 4)
    with pytest.raises(BadJobCommand, match="-kill has no such form"):
        cli.main(["-kill", JOB, "--json"])


def test_logs_come_whole_and_those_of_failed_attempts_first(
    master: ToldMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(capsys, "-logs", JOB)

    assert said == (
        f"=== {BAD} on h2: failed exit code 1\noh\ndear\n=== {FINE} on h1: succeeded\nall is well\n"
    )
    for name in ("m3", "m_000003", BAD, BAD.replace("attempt_", "task_")[:-2]):
        assert printed(capsys, "-logs", JOB, name).count("===") == 1
    with pytest.raises(UserError, match="has no task or attempt m9"):
        cli.main(["-logs", JOB, "m9"])


def test_where_a_log_is_lost_what_the_master_heard_is_shown(
    master: ToldMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    master.has_logs = False

    said = printed(capsys, "-logs", JOB, "m3", status=1)

    assert "(its log cannot be read: h2 does not answer)" in said
    assert "the last that was heard\n" in said and f"{BAD} failed: exit code 1" in said


def test_what_is_asked_for_is_done_and_said(
    master: ToldMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, "-kill", JOB) == f"Killed job {JOB}\n"
    assert printed(capsys, "-kill-task", BAD) == f"Killed task {BAD}\n"
    assert printed(capsys, "-fail-task", BAD) == f"Failed task {BAD}\n"
    assert printed(capsys, "-set-priority", JOB, "very_high") == "Changed job priority.\n"

    assert master.did == [
        KillJob(JOB, "killed by mrstream job -kill"),
        StopAttempt(BAD, False),
        StopAttempt(BAD, True),
        SetPriority(JOB, 5),
    ]


def test_what_could_not_be_done_is_said_with_its_status(
    master: ToldMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    master.does = False

    assert printed(capsys, "-kill", JOB) == f"{JOB} has ended already\n"
    assert cli.main(["-kill-task", BAD]) == 1
    assert "it does not run" in capsys.readouterr().err
    with pytest.raises(NoSuchJob):
        cli.main(["-kill", "job_1_0002"])
    with pytest.raises(NoSuchJob, match="does not run"):
        cli.main(["-set-priority", JOB, "LOW"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-frobnicate"], "mrstream job has no '-frobnicate'"),
        (["-status"], "wrong number of words"),
        (["-list", "some"], "only `all` may follow"),
        (["-set-priority", JOB, "9"], "priority '9' is not one of"),
        (["-list-attempt-ids", JOB, "maps", "running"], "-list-attempt-ids maps running"),
    ],
)
def test_a_wrong_word_is_refused_before_anybody_is_asked(words: list[str], why: str) -> None:
    with pytest.raises(BadJobCommand, match=why):
        cli.main(words)


def test_without_a_cluster_the_way_to_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "current_cluster", lambda: None)

    with pytest.raises(UserError, match="`mrstream cluster up` makes one"):
        cli.main(["-list"])
