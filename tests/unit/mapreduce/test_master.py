"""The job master below the process: its real desks, brain, journal and history in one loop.

Requests are put to its handlers, workers are doubles that keep what is pushed to them, output goes
to a directory here, and time is a number. A crash is a new master over the same files. What is
asked: lost, repeated and delayed messages, and lives that end between any two of them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mrstream.cluster.config.config import MAPREDUCE_MASTER, Cluster, ClusterConfig, HostConfig
from mrstream.cluster.config.state import Secret
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.errors import UserError
from mrstream.cluster.wire.messages import Message, Request
from mrstream.dfs.chunk import Fences
from mrstream.dfs.errors import FencedOff
from mrstream.mapreduce.attempt.attempt_report import AttemptNews, Done, Failure
from mrstream.mapreduce.dataflow.committer import OutputExists
from mrstream.mapreduce.dataflow.split_plan import Piece, Split
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.errors import NoSuchJob
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.launch import failure_in
from mrstream.mapreduce.master.duties import FENCE
from mrstream.mapreduce.master.job_desk import FENCES_EVERY_S
from mrstream.mapreduce.master.job_output import JobOutput
from mrstream.mapreduce.master.master import Master
from mrstream.mapreduce.protocol import (
    AllowCommit,
    AttemptEnded,
    AttemptShuffled,
    AttemptWantsCommit,
    FetchTrouble,
    ForgetJob,
    Heartbeat,
    JobNews,
    KeptSegment,
    KillJob,
    ListJobs,
    Register,
    ReportOfJob,
    RunAttempt,
    SegmentNews,
    SetPriority,
    StopAttempt,
    StopRunning,
    SubmitJob,
    WaitForNews,
    WatchJob,
)
from mrstream.mapreduce.scheduler.events import Tick
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from tests.support.manual_clock import ManualClock

HOST = HostConfig("h1", "127.0.0.1")
CONFIG = ClusterConfig("test", "h1", (HOST,))
T = TypeVar("T", bound=Message)


class WorkerDouble:
    """A worker's end of its connection: what the master pushes stays here."""

    request_id = (1, 1)

    def __init__(self, room: Room, name: str) -> None:
        self.room, self.name = room, name
        self.pushed: list[Message] = []
        self.context: Any = None
        self.is_closed = False

    def push(self, message: Message) -> None:
        self.pushed.append(message)

    def close(self) -> None:
        self.is_closed = True

    def take(self, kind: type[T]) -> list[T]:
        """Take the orders of a kind that came since."""
        found = [order for order in self.pushed if isinstance(order, kind)]
        self.pushed = [order for order in self.pushed if not isinstance(order, kind)]
        return found

    def register(self, **brings: Any) -> Any:
        return self.room.ask(
            Register(self.name, 1, f"{self.name}:1", f"{self.name}:2", 2, **brings), self
        )

    def beat(self, *news: AttemptNews) -> Any:
        return self.room.ask(Heartbeat(self.name, 1, news), self)

    def done(self, attempt_id: str, done: Done | None = None) -> None:
        self.room.ask(AttemptEnded(self.name, attempt_id, done=done or map_done()), self)

    def commit(self, attempt_id: str) -> None:
        """What a worker does with its right: its part appears."""
        self.room.committer.commit_task(attempt_id)


class Room:
    """A master, and its life after a crash."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory / "out"
        self.clock = ManualClock()
        self.masters: list[tuple[Daemon, Master]] = []
        (directory / MAPREDUCE_MASTER).mkdir()
        self.begin_life()

    def begin_life(self) -> None:
        """Start a master over what is on the disk; one before it is not heard of any more."""
        daemon = Daemon(
            MAPREDUCE_MASTER, Cluster(CONFIG, Secret("c1", b"s" * 32)), HOST, str(self.directory)
        )
        daemon.clock = self.clock  # type: ignore[assignment]
        self.loop, self.master = daemon.loop, Master(daemon)
        self.masters.append((daemon, self.master))
        self.loop.run_until_complete(self.master.start())
        self.settle()

    def close(self) -> None:
        for daemon, master in self.masters:
            daemon.loop.run_until_complete(master.stop())
            daemon.loop.run_until_complete(daemon.loop.shutdown_default_executor())
            daemon.loop.close()

    def ask(self, request: Request, peer: WorkerDouble | None = None) -> Any:
        """Put a request to the master; whatever follows from it has happened when this returns."""
        answer = self.master.handlers[type(request)](request, peer or WorkerDouble(self, ""))  # type: ignore[arg-type]
        if inspect.isawaitable(answer):
            answer = self.loop.run_until_complete(_awaited(answer))
        self.settle()
        return answer

    def settle(self) -> None:
        """Let the journal flush, and what waited for that be said."""
        self.loop.run_until_complete(self._settled())

    async def _settled(self) -> None:
        shell = self.master._shell
        while True:
            await shell.settled()
            for _ in range(3):
                await asyncio.sleep(0)
            if shell.duties.is_clear and not shell._tasks:
                return
            await shell._tasks.over()

    def pass_s(self, seconds: int, *alive: WorkerDouble) -> None:
        """Let time pass, a tick each second, as the master's own timer does; only those `alive`
        give signs of it."""
        for _ in range(seconds):
            self.clock.advance(1.0)
            for worker in alive:
                worker.beat()
            self.master._shell.event(Tick())
            self.master._shell.books.notices.tick(self.clock.wall_s())
            self.settle()

    def worker(self, name: str, **brings: Any) -> WorkerDouble:
        worker = WorkerDouble(self, name)
        worker.register(**brings)
        return worker

    def packed_job(
        self, maps: int = 2, reduces: int = 1, fences: Fences = (), **more: str
    ) -> bytes:
        spec = JobSpec(
            JobId(""),
            JobConf({"mapreduce.job.reduce.slowstart.completedmaps": "1.0", **more}).to_dict(),
            Program("cat"),
            None,
            Program("cat"),
            reduces,
            ("/in",),
            f"file:{self.output}",
            splits=tuple(
                Split(index, "TEXT", (Piece("file:/in", index * 10, 10),)) for index in range(maps)
            ),
            fences=fences,
        )
        return job.encode(spec)

    def submit(
        self,
        maps: int = 2,
        reduces: int = 1,
        submission: str = "token",
        fences: Fences = (),
        **more: str,
    ) -> str:
        packed = self.packed_job(maps, reduces, fences, **more)
        job_id: str = self.ask(SubmitJob(submission, packed, 1))
        return job_id

    @property
    def committer(self) -> Any:
        (ledger,) = self.master._shell.books.jobs.values()
        return ledger.output.committer

    def attempt_directory(self, attempt_id: str) -> Path:
        return Path(self.committer.attempt_dir(attempt_id).removeprefix("file:"))

    def news(self, job_id: str) -> JobNews:
        found: JobNews = self.ask(WaitForNews(job_id, 0, 0.0))
        return found


async def _awaited(answer: Any) -> Any:
    return await answer


def map_done(records: int = 10) -> Done:
    framework = {c.MAP_INPUT_RECORDS: records}
    counters = {c.FRAMEWORK: framework, c.FILE_INPUT: {c.BYTES_READ: records * 10}}
    return Done({**counters, "Mine": {"seen": records}}, segment_bytes=records)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def run_maps(*workers: WorkerDouble) -> list[str]:
    """Have all maps that were ordered end well."""
    names = []
    for worker in workers:
        for order in worker.take(RunAttempt):
            assert "_m_" in order.attempt_id
            worker.done(order.attempt_id)
            names.append(order.attempt_id)
    return names


def reduce_on(*workers: WorkerDouble) -> tuple[WorkerDouble, str]:
    """Take the one reduce that was ordered: where, and its name."""
    found = [(worker, order.attempt_id) for worker in workers for order in worker.take(RunAttempt)]
    ((worker, name),) = found
    assert "_r_" in name
    return worker, name


def test_of_two_jobs_that_come_at_once_one_gets_the_directory(room: Room) -> None:
    """Both find none, and the later commit would replace the other's results without a word."""
    peer: Any = WorkerDouble(room, "")

    async def both() -> list[Any]:
        submit = room.master.handlers[SubmitJob]
        asked = [submit(SubmitJob(name, room.packed_job(), 1), peer) for name in ("one", "two")]
        return await asyncio.gather(*asked, return_exceptions=True)

    taken, refused = room.loop.run_until_complete(both())
    room.settle()

    assert isinstance(refused, OutputExists) and f"already exists: {taken} has it" in str(refused)
    assert [row.key for row in room.ask(ListJobs(True))] == [taken]
    with pytest.raises(OutputExists, match=f"{taken} has it"):
        room.submit(submission="three")


def test_a_job_goes_from_its_submission_to_its_report(room: Room) -> None:
    a = room.worker("a")
    job_id = room.submit()
    first, second = a.take(RunAttempt)
    assert first.spec and not second.spec, "a job's spec goes down a connection once"
    a.beat(AttemptNews(first.attempt_id, 0.5, 5, 50, "map", "half way"))
    room.pass_s(1)
    assert room.news(job_id).progress.map_fraction == 0.25
    for order in (first, second):
        a.done(order.attempt_id)

    _, reduce_id = reduce_on(a)
    news = a.take(SegmentNews)[0]  # the rest repeats what the job's first reduce here was told
    a.beat(AttemptNews(reduce_id, 0.2, 0, 12, "shuffle"))
    room.ask(AttemptShuffled("a", reduce_id), a)
    a.beat(AttemptNews(reduce_id, 0.9, 9, 6, "reduce"))
    room.attempt_directory(reduce_id).mkdir(parents=True)
    room.ask(AttemptWantsCommit("a", reduce_id), a)
    assert [order.attempt_id for order in a.take(AllowCommit)] == [reduce_id]
    a.commit(reduce_id)
    a.done(reduce_id, Done({}, output_bytes=7))

    assert [at.attempt_id for at in news.added] == [first.attempt_id, second.attempt_id]
    assert news.addresses == {"a": "a:2"}
    end = room.news(job_id).end
    assert end is not None and (end.outcome, end.reason) == ("succeeded", "")
    assert end.counters["Mine"]["seen"] == 20
    assert end.counters[c.JOB][c.LAUNCHED_MAPS] == 2
    assert (room.output / "_SUCCESS").exists()
    assert [order.succeeded for order in a.take(ForgetJob)] == [True]
    report = room.ask(ReportOfJob(job_id))
    assert [each.state for each in report.attempts] == ["succeeded"] * 3
    assert (report.job.maps_done, report.job.reduces_done, report.job.state) == (2, 1, "succeeded")


def test_a_submission_that_is_said_again_is_one_job_in_this_life_and_the_next(room: Room) -> None:
    job_id = room.submit()

    assert room.submit() == job_id
    room.begin_life()

    assert room.submit() == job_id
    assert [row.key for row in room.ask(ListJobs())] == [job_id]


def test_an_end_that_is_said_again_counts_once(room: Room) -> None:
    """The answer to a worker's report may be lost."""
    a = room.worker("a")
    job_id = room.submit()
    (name, _) = run_maps(a)

    a.done(name)

    progress = room.news(job_id).progress
    assert (progress.maps_done, progress.records) == (2, 20)
    assert len(a.take(RunAttempt)) == 1, "one reduce, once"


def test_a_right_to_commit_that_got_lost_is_given_again(room: Room) -> None:
    a = room.worker("a")
    room.submit()
    run_maps(a)
    _, name = reduce_on(a)

    for _ in range(3):
        room.ask(AttemptWantsCommit("a", name), a)

    assert [order.attempt_id for order in a.take(AllowCommit)] == [name] * 3


def test_who_was_let_commit_before_can_do_so_no_more_when_another_is(room: Room) -> None:
    """S1 where two hold the right: a host that was lost between its right and its commit comes
    back when another attempt of its task has the right. What it wrote must be gone by then."""
    a, b = room.worker("a"), room.worker("b")
    room.submit()
    run_maps(a, b)
    first, old = reduce_on(a, b)
    other = b if first is a else a
    room.attempt_directory(old).mkdir(parents=True)
    room.ask(AttemptWantsCommit(first.name, old), first)
    assert first.take(AllowCommit)

    room.pass_s(40, other)  # the first is not heard of again
    run_maps(other)  # what was on the lost disk
    _, new = reduce_on(other)
    gone = []
    push = other.push
    other.push = lambda order: (  # type: ignore[method-assign]
        gone.append(not room.attempt_directory(old).exists())
        if isinstance(order, AllowCommit)
        else None,
        push(order),
    )[1]
    room.ask(AttemptWantsCommit(other.name, new), other)

    assert [order.attempt_id for order in other.take(AllowCommit)] == [new]
    assert gone == [True]


def test_the_next_life_knows_who_was_let_commit(room: Room) -> None:
    """The same over a crash of the master: rights are in its journal."""
    a, b = room.worker("a"), room.worker("b")
    room.submit()
    maps = run_maps(a, b)
    first, old = reduce_on(a, b)
    room.attempt_directory(old).mkdir(parents=True)
    room.ask(AttemptWantsCommit(first.name, old), first)

    room.begin_life()
    segments = tuple(KeptSegment(name, map_done()) for name in maps)
    c_worker = room.worker("c", segments=segments)
    room.pass_s(12, c_worker)
    new = [order.attempt_id for order in c_worker.take(RunAttempt)]
    for name in [name for name in new if "_m_" in name]:
        c_worker.done(name)
    new = [*new, *(order.attempt_id for order in c_worker.take(RunAttempt))]
    (reduce_id,) = [name for name in new if "_r_" in name]
    assert room.attempt_directory(old).exists()
    room.ask(AttemptWantsCommit("c", reduce_id), c_worker)

    assert [order.attempt_id for order in c_worker.take(AllowCommit)] == [reduce_id]
    assert not room.attempt_directory(old).exists()


def test_results_of_a_life_before_count_and_its_attempts_run_on(room: Room) -> None:
    a = room.worker("a")
    job_id = room.submit()
    first, second = (order.attempt_id for order in a.take(RunAttempt))
    a.done(first)

    room.begin_life()
    a = room.worker("a", running=(second,), segments=(KeptSegment(first, map_done()),))
    a.beat(AttemptNews(second, 0.5, 5, 50, "map", "half way"))
    room.pass_s(1)

    news = room.news(job_id).progress
    assert (news.maps_done, news.records, news.status) == (1, 15, "half way")
    board = room.ask(WatchJob(job_id))
    assert [(row.key, row.state, row.progress) for row in board.attempts.rows] == [
        (second, "running", 0.5)
    ]
    assert board.job.state == "running"
    a.done(second)
    room.pass_s(3, a)  # a restored job waits for what workers may still show
    reduce_on(a)


def test_an_attempt_of_a_life_before_can_be_killed_by_name(room: Room) -> None:
    a = room.worker("a")
    room.submit(maps=1)
    (name,) = (order.attempt_id for order in a.take(RunAttempt))
    room.begin_life()
    a = room.worker("a", running=(name,))

    assert room.ask(StopAttempt(name)) is True

    assert [order.attempt_id for order in a.take(StopRunning)] == [name]


def test_the_end_of_an_attempt_that_was_given_up_changes_nothing(room: Room) -> None:
    """A report that comes late, from a worker that was lost meanwhile."""
    a = room.worker("a")
    job_id = room.submit(maps=1)
    (name,) = (order.attempt_id for order in a.take(RunAttempt))
    room.pass_s(40)
    assert a.is_closed
    b = room.worker("b")
    room.pass_s(3)

    a.done(name, map_done(999))

    assert room.news(job_id).progress.records == 0
    (again,) = (order.attempt_id for order in b.take(RunAttempt))
    b.done(again)
    assert room.news(job_id).progress.records == 10


def test_a_worker_that_is_not_known_must_register(room: Room) -> None:
    stranger = WorkerDouble(room, "x")

    assert stranger.beat() is False

    stranger.register()
    assert stranger.beat() is True


def test_the_older_connection_of_a_worker_that_comes_back_is_closed_and_says_nothing(
    room: Room,
) -> None:
    old = room.worker("a")

    new = room.worker("a")

    assert old.is_closed
    assert old.beat() is False
    assert new.beat() is True
    room.master.disconnected(old)  # type: ignore[arg-type]
    room.submit(maps=1)
    assert len(new.take(RunAttempt)) == 1


def test_a_map_whose_output_is_gone_runs_again_and_reduces_hear_of_it(room: Room) -> None:
    a = room.worker("a")
    job_id = room.submit(maps=1)
    (name,) = run_maps(a)
    _, reduce_id = reduce_on(a)
    a.take(SegmentNews)

    room.ask(FetchTrouble(reduce_id, name, "a: damaged", gone=True), a)

    (lost,) = a.take(SegmentNews)
    assert lost.withdrawn == (name,)
    assert room.news(job_id).progress.maps_done == 0
    (again,) = a.take(RunAttempt)
    a.done(again.attempt_id)
    (found,) = a.take(SegmentNews)
    assert [at.attempt_id for at in found.added] == [again.attempt_id]
    assert room.news(job_id).progress.maps_done == 1


def test_a_job_that_failed_says_why_and_leaves_no_success(room: Room) -> None:
    a = room.worker("a")
    job_id = room.submit(maps=1, **{"mapreduce.map.maxattempts": "2"})
    for _ in range(2):
        (order,) = a.take(RunAttempt)
        failure = Failure("it broke", stage="map", command="m.py")
        room.ask(AttemptEnded("a", order.attempt_id, failure=failure), a)

    assert order.keep_input, "the last try keeps its input"
    news = room.news(job_id)
    assert news.end is not None and news.end.outcome == "failed"
    assert news.end.reason == (
        f"Task failed task_{job_id.removeprefix('job_')}_m_000000\n"
        "Job failed as tasks failed. failedMaps:1 failedReduces:0 killedMaps:0 killedReduces: 0\n"
        "The last failure of the task: it broke"
    )
    assert room.ask(ReportOfJob(job_id)).job.diagnosis == news.end.reason, "who comes later"
    told = "\n".join(line.text for line in news.lines) + f"\ndue to: {news.end.reason}"
    found = failure_in(told.splitlines())
    assert found is not None and found.attempt_id == order.attempt_id, "the one of two to repeat"
    assert found.repeat == f"mrstream -repeat {order.attempt_id}"
    assert news.end.counters[c.JOB][c.FAILED_MAPS] == 2
    assert not (room.output / "_SUCCESS").exists()
    assert room.ask(ReportOfJob(job_id)).job.attempts_failed == 2


def test_a_job_that_is_killed_ends_what_it_ran(room: Room) -> None:
    a = room.worker("a")
    job_id = room.submit()
    names = [order.attempt_id for order in a.take(RunAttempt)]

    assert room.ask(KillJob(job_id)) is True

    assert [order.attempt_id for order in a.take(StopRunning)] == names
    end = room.news(job_id).end
    assert end is not None and end.outcome == "killed"
    assert room.ask(KillJob(job_id)) is False
    assert room.submit(submission="another") != job_id


def test_a_priority_is_kept_over_a_crash(room: Room) -> None:
    job_id = room.submit()
    assert room.ask(SetPriority(job_id, 5)) is True

    room.begin_life()

    (row,) = room.ask(ListJobs())
    assert row.priority == "VERY_HIGH"
    with pytest.raises(UserError, match="priority 9"):
        room.ask(SetPriority(job_id, 9))


def test_what_cannot_be_asked_is_refused_in_words(room: Room) -> None:
    with pytest.raises(NoSuchJob, match="job_1_0001"):
        room.ask(ReportOfJob("job_1_0001"))
    with pytest.raises(NoSuchJob, match="job_1_0001"):
        room.ask(WatchJob("job_1_0001"))
    with pytest.raises(UserError, match="not an attempt id"):
        room.ask(StopAttempt("nonsense"))


def test_a_worker_that_starts_again_at_once_repeats_no_finished_map(room: Room) -> None:
    """Its segments outlive its process; what it ran does not."""
    a = room.worker("a")
    job_id = room.submit(maps=3)
    first, second = (order.attempt_id for order in a.take(RunAttempt))
    a.done(first)
    (third,) = (order.attempt_id for order in a.take(RunAttempt))

    again = room.worker("a", segments=(KeptSegment(first, map_done()),))
    room.pass_s(2, again)

    orders = [order.attempt_id for order in again.take(RunAttempt)]
    assert sorted(orders) == sorted([f"{second[:-1]}1", f"{third[:-1]}1"])
    assert room.news(job_id).progress.maps_done == 1
    assert room.ask(ReportOfJob(job_id)).facts["maps_rerun"] == 0


# --- jobs under a lock ----------------------------------------------------------------------------

LOCK: Fences = (("/ls/local/nightly", 1),)
OVER = "/ls/local/nightly: generation 1 is over, 2 has come"


class Lock:
    """What the dfs says of the lock of jobs, and what the master did about it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_lost = False
        self.dropped: list[str] = []
        for name in ("check_fences", "set_up", "commit_job", "abort_job"):
            right = getattr(JobOutput, name, None)
            monkeypatch.setattr(JobOutput, name, self._checked(name, right))
        right = JobOutput.drop_attempts

        def drop_attempts(output: JobOutput) -> None:
            self.dropped.append(output.url)
            right(output)

        monkeypatch.setattr(JobOutput, "drop_attempts", drop_attempts)

    def _checked(self, name: str, right: Any) -> Any:
        def checked(output: JobOutput, **options: Any) -> None:
            if self.is_lost:
                raise FencedOff(OVER, name=LOCK[0][0], generation=1, seen=2)
            if name != "check_fences":
                right(output, **options)

        return checked


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> Lock:
    return Lock(monkeypatch)


def end_of(room: Room, job_id: str) -> tuple[str, str]:
    end = room.news(job_id).end
    assert end is not None, "it goes on"
    return end.outcome, end.reason


def test_a_job_whose_lock_is_over_is_refused_at_once(room: Room, lock: Lock) -> None:
    """Also after a crash in the middle of that: it is closed before it is refused."""
    lock.is_lost = True

    with pytest.raises(FencedOff, match=OVER):
        room.submit(fences=LOCK)

    assert room.ask(ListJobs(True)) == ()
    room.begin_life()
    assert room.ask(ListJobs(True)) == ()


def test_a_job_cannot_be_under_the_masters_own_fence(room: Room) -> None:
    """Its loss would be taken for the master's."""
    with pytest.raises(UserError, match="the job master's own"):
        room.submit(fences=((FENCE, 7),))


def test_a_job_without_its_lock_fails_whatever_its_attempts_meet_with(
    room: Room, lock: Lock
) -> None:
    """Its attempt may have lost its file, or its program: why, the dfs says. No other is tried."""
    a = room.worker("a")
    job_id = room.submit(fences=LOCK)
    order, _ = a.take(RunAttempt)
    lock.is_lost = True

    room.ask(AttemptEnded("a", order.attempt_id, failure=Failure("it broke")), a)

    assert end_of(room, job_id) == ("failed", f"its lock is lost: {OVER}")
    assert a.take(RunAttempt) == []
    assert lock.dropped == [f"file:{room.output}"], "nothing but what bears its id is cleared"


def test_an_attempt_that_fails_under_a_lock_that_holds_is_one_that_failed(
    room: Room, lock: Lock
) -> None:
    a = room.worker("a")
    job_id = room.submit(fences=LOCK)
    order, _ = a.take(RunAttempt)

    room.ask(AttemptEnded("a", order.attempt_id, failure=Failure("it broke")), a)

    assert room.news(job_id).end is None
    (again,) = a.take(RunAttempt)
    assert again.attempt_id == order.attempt_id[:-1] + "1"


def test_a_job_that_does_nothing_in_the_dfs_is_ended_too(room: Room, lock: Lock) -> None:
    """In another life of the master as well: the lock is part of the job."""
    room.submit(fences=LOCK, submission="token")
    room.begin_life()
    job_id = room.submit(fences=LOCK, submission="token")
    desk = room.master._job_desk
    desk.check_fences_if_due()
    room.settle()
    lock.is_lost = True
    desk.check_fences_if_due()
    room.settle()
    assert room.news(job_id).end is None, "not at every tick"

    room.clock.advance(FENCES_EVERY_S)
    desk.check_fences_if_due()
    room.settle()

    assert end_of(room, job_id) == ("failed", f"its lock is lost: {OVER}")


def test_the_output_of_a_job_without_its_lock_is_not_made_final(room: Room, lock: Lock) -> None:
    """The last task is committed, then the lock goes to somebody else."""
    a = room.worker("a")
    job_id = room.submit(maps=1, fences=LOCK)
    run_maps(a)
    _, reduce_id = reduce_on(a)
    room.attempt_directory(reduce_id).mkdir(parents=True)
    room.ask(AttemptWantsCommit("a", reduce_id), a)
    a.commit(reduce_id)
    lock.is_lost = True
    a.done(reduce_id, Done({}))

    assert end_of(room, job_id) == ("failed", f"the output cannot be committed: {OVER}")
    assert not (room.output / "_SUCCESS").exists()
    assert lock.dropped == [f"file:{room.output}"]
    room.begin_life()
    assert room.ask(ListJobs()) == (), "it is closed"


def test_who_is_fenced_off_itself_waits_for_its_end(room: Room) -> None:
    """It decides nothing of jobs: neither that they failed, nor that they went well."""
    shell = room.master._shell

    def refused() -> None:
        raise FencedOff("jobs: generation 1 is over, 2 has come", name=FENCE)

    async def ask() -> set[Any]:
        asked = asyncio.ensure_future(shell.in_dfs(refused))
        _, pending = await asyncio.wait([asked], timeout=0.2)
        for each in pending:
            each.cancel()
        return pending

    assert len(room.loop.run_until_complete(ask())) == 1
