"""What the job master does to the dfs while that is away, over its real client and brain: it is
tried again until it is done, refused, or the master stops."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest

from mrstream.cluster.errors import CallTimedOut, HostUnreachable, Unavailable, UserError
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.errors import FencedOff
from mrstream.dfs.protocol import CreateFile, Delete, MakeDirectory, RaiseFence
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.master import job_output
from mrstream.mapreduce.master.job_output import JobOutput
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from tests.support.dfs_here import DfsHere

SPEC = JobSpec(
    JobId("job_1_0001"), JobConf({}).to_dict(), Program("cat"), None, None, 0, ("/in",), "/out"
)
WAITS_MAX = 50


class Master:
    """A job master's hand on its output. Its waits between tries take no time, and are counted;
    `on_wait` happens in the middle of them."""

    def __init__(self, dfs: DfsHere, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dfs = dfs
        self.waits = 0
        self.on_wait: Callable[[], None] = lambda: None
        self._stopping = threading.Event()
        policy = RetryPolicy(math.inf, first_s=1.0, longest_s=1.0, wait=self._wait)
        monkeypatch.setattr(job_output, "_stopping", self._stopping)
        monkeypatch.setattr(job_output, "_UNTIL_STOPPED", policy)
        own = dfs.client(patience_s=0.0)
        monkeypatch.setattr(dfs_files, "_own_client", lambda name: own)
        monkeypatch.setattr(dfs_files, "new_client", lambda name="": dfs.client(patience_s=0.0))
        self.output = JobOutput(SPEC, "dfs://test/")

    def _wait(self, seconds: float) -> bool:
        assert seconds <= 1.0, "it looks about once a second"
        self.waits += 1
        assert self.waits < WAITS_MAX, "it never ends"
        self.on_wait()
        return self._stopping.is_set()

    def dfs_is_away(self, waits: int, *kinds: type[Request]) -> None:
        """Until it waited so often, what changes the dfs (of these kinds) meets nobody."""

        def look(request: Request) -> None:
            if self.waits < waits and isinstance(request, kinds):
                raise HostUnreachable("no master leads")

        self.dfs.before = look


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    return Master(DfsHere(), monkeypatch)


def test_an_output_is_set_up_and_made_final_when_the_dfs_is_back(master: Master) -> None:
    master.dfs_is_away(3, Request)
    master.output.set_up()
    assert master.waits == 3
    assert "/out/_temporary" in " ".join(master.dfs.model.paths())

    master.dfs_is_away(6, MakeDirectory, CreateFile, Delete)
    master.output.commit_job()

    assert master.waits == 6
    assert master.dfs.model.paths() == ["/", "/out", "/out/_SUCCESS"]


@pytest.mark.parametrize("kind", [MakeDirectory, CreateFile, Delete])
@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_lost_message_anywhere_in_a_commit_leaves_the_same_output(
    master: Master, kind: type[Request], lost: str
) -> None:
    """What was done before it is done again, and that must be nothing new."""
    master.output.set_up()
    setattr(master.dfs, lost, master.dfs.once(kind, CallTimedOut("no answer")))

    master.output.commit_job()

    assert master.waits == 1, "the client gave up at once; the master did not"
    assert master.dfs.model.paths() == ["/", "/out", "/out/_SUCCESS"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_lost_message_while_clearing_up_leaves_nothing_of_the_attempts(
    master: Master, is_killed: bool
) -> None:
    master.output.set_up()
    master.dfs.after = master.dfs.once(Delete, CallTimedOut("no answer"))

    master.output.abort_job(is_killed=is_killed)
    master.dfs.before = master.dfs.once(Delete, HostUnreachable("no master leads"))
    master.output.remove()

    assert master.waits == 2
    assert master.dfs.model.paths() == ["/"]


def test_what_the_dfs_refuses_is_not_tried_again(master: Master) -> None:
    master.dfs.put("/out", b"a file")

    with pytest.raises(UserError, match="/out"):
        master.output.set_up()

    assert master.waits == 0
    assert master.dfs.get("/out") == b"a file"


def test_a_master_that_stops_gives_up_and_says_why(master: Master) -> None:
    """Its threads must end with it, however long the dfs stays away."""
    master.dfs_is_away(WAITS_MAX, Request)

    def stop() -> None:
        if master.waits == 2:
            job_output.stop_trying()

    master.on_wait = stop

    with pytest.raises(Unavailable, match="no master leads"):
        master.output.set_up()
    assert master.waits == 2
    with pytest.raises(Unavailable):
        master.output.commit_job()
    assert master.waits == 3, "whoever comes later tries once"


def test_the_fence_is_raised_when_the_dfs_is_back_and_never_lowered(master: Master) -> None:
    master.dfs_is_away(2, RaiseFence)

    job_output.raise_fence(("jobs", 5))

    assert master.waits == 2
    with pytest.raises(FencedOff):
        master.dfs.model.call(MakeDirectory("/late", "me", fence=("jobs", 4)))
    with pytest.raises(FencedOff):
        job_output.raise_fence(("jobs", 4))


def test_an_answer_to_the_fence_that_is_lost_raises_it_once(master: Master) -> None:
    master.dfs.after = master.dfs.once(RaiseFence, CallTimedOut("no answer"))

    job_output.raise_fence(("jobs", 5))

    assert master.dfs.count(RaiseFence) == 2
    assert [(fact.name, fact.generation) for fact in master.dfs.client().fences()] == [("jobs", 5)]
