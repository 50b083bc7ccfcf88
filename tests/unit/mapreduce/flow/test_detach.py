"""What a detached flow's words become, which jobs are its own, and where it is refused."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, cast

import pytest

from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.flow import detach
from mrstream.mapreduce.flow.book import BadFlowBook
from mrstream.mapreduce.flow.brain.plan import JOB, Step
from mrstream.mapreduce.flow.dfs_book import DfsFlowBook
from mrstream.mapreduce.flow.digests import command_of_step
from mrstream.mapreduce.job.job import spec_from
from mrstream.mapreduce.protocol import ListJobs
from mrstream.mapreduce.snapshot import Changes, ClusterSnapshot, HostRow, JobRow

FLOW = "flow_20261117_201615_de7c"
RUNNER = JobRow("job_1", output=f"dfs://c/.mrstream/flows/{FLOW}/_flow/run.1")
STEP = JobRow("job_2", output=f"dfs://c/.mrstream/flows/{FLOW}/words.1")
LAST = JobRow("job_3", output=f"dfs://c/top/_{FLOW}/last.3")
OTHER = JobRow("job_4", output=f"dfs://c/.mrstream/flows/{FLOW}0/words.1")


def test_options_that_ship_go_with_all_their_values() -> None:
    words = ["-input", "/in", "-file", "a", "b", "-mapper", "m.py -x", "--files", "c,d", "-io", "t"]

    assert list(detach._without(words, detach._SHIPS)) == [
        "-input", "/in", "-mapper", "m.py -x", "-io", "t",
    ]  # fmt: skip


def test_a_file_is_named_as_tasks_find_it() -> None:
    assert detach._renamed("/home/me/m.py --all /home/me/m.pyc", "/home/me/m.py", "m.py") == (
        "m.py --all /home/me/m.pyc"
    )


def test_the_text_of_a_sawzall_program_travels_in_the_words(tmp_path: Path) -> None:
    """The host that runs the flow does not have the file."""
    program = tmp_path / "p.szl"
    program.write_text("n: table sum of int; emit n <- 1;")
    word = f"saw:{program}"
    words = ("-input", "/in", "-mapper", word, "-reducer", word)

    step = detach._portable(Step("s", JOB, words), cast(Any, None), print)

    encoded = base64.b64encode(program.read_bytes()).decode()
    assert step.words == (*words, "-D", f"mrstream.saw.program={encoded}")
    program.unlink()
    assert spec_from(command_of_step(step)).conf().saw_program == encoded


def test_the_jobs_of_a_flow_are_known_by_their_outputs() -> None:
    assert detach.jobs_of(FLOW, [RUNNER, STEP, LAST, OTHER]) == [RUNNER, STEP, LAST]


class Jobs:
    """A master with hosts and jobs."""

    def __init__(self, slots: int, jobs: list[JobRow]) -> None:
        self._hosts = (HostRow("h1", slots=slots), HostRow("h2", slots=9, state="lost"))
        self._jobs = jobs

    def call(self, request: Any) -> Any:
        if isinstance(request, ListJobs):
            return self._jobs
        return ClusterSnapshot(0.0, Changes(1, self._hosts), Changes(1, ()))


def test_a_flow_that_would_hold_the_last_slot_is_refused() -> None:
    """It waits for its steps while these wait for its slot."""
    detach._require_slots(cast(JobClient, Jobs(2, [STEP])))
    with pytest.raises(detach.CannotDetach, match="has 1 slots, and 0 detached flows hold one"):
        detach._require_slots(cast(JobClient, Jobs(1, [])))
    with pytest.raises(detach.CannotDetach, match="has 2 slots, and 1 detached flows hold one"):
        detach._require_slots(cast(JobClient, Jobs(2, [RUNNER])))


def test_a_journal_of_another_version_is_refused_by_name() -> None:
    class Book(DfsFlowBook):
        def _read(self, name: str) -> bytes:
            return b"\x92\x07\x90"

    with pytest.raises(BadFlowBook, match="has version 7, and 1 is known here"):
        Book(FLOW, cast(Any, None)).records()
