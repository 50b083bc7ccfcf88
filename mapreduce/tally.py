"""What a job has done: the one bookkeeping of it, in local mode, in the master and on its board.

Observes what the scheduler was told and what it decided, and hears what attempts tell of
themselves; gives `JobProgress`, counters (each task once, of the attempt that committed: MapReduce
§4.9) and `JobFacts`. How many tasks are done and how far they are is the scheduler's knowledge: its
`JobView` says so, and is not kept here a second time. Does no IO and reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mrstream.mapreduce.attempt.attempt_report import AttemptNews, Done
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.counters import NO_LIMIT, Counters
from mrstream.mapreduce.progress import JobProgress
from mrstream.mapreduce.report import JobFacts, TaskTime
from mrstream.mapreduce.scheduler.commands import (
    Command,
    KillAttempt,
    LoseWorker,
    RecordCommit,
    StartAttempt,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptSucceeded,
    Event,
    FailAttemptRequested,
    WorkerLost,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId, TaskId, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.phases import JobTotals, JobView


class Figures(msgspec.Struct, frozen=True):
    """What an attempt, or all of a job's, has moved. None of these ever falls."""

    records: int = 0
    """Read by maps, and given to reducers."""
    input_bytes: int = 0
    """Of splits."""
    shuffle_bytes: int = 0
    """Of map output, brought to reduces."""
    merged_bytes: int = 0
    """Of that, on its way through reducers: what they have read of it."""
    output_bytes: int = 0

    def plus(self, new: Figures, old: Figures) -> Figures:
        """Add what `new` has beyond `old`."""
        return Figures(*map(_grown, self._all(), new._all(), old._all()))

    def at_least(self, other: Figures) -> Figures:
        return Figures(*map(max, self._all(), other._all()))

    def _all(self) -> tuple[int, ...]:
        figures: tuple[int, ...] = msgspec.structs.astuple(self)
        return figures


def figures_told(progress: AttemptNews, kind: TaskKind) -> Figures:
    """What a running attempt has moved, as it tells: a reduce counts what it fetches, and from the
    end of its shuffle on what its program reads."""
    if kind is TaskKind.MAP:
        return Figures(progress.records, input_bytes=progress.bytes)
    if progress.phase == "shuffle":
        return Figures(progress.records, shuffle_bytes=progress.bytes)
    return Figures(progress.records, merged_bytes=progress.bytes)


def figures_done(done: Done, kind: TaskKind) -> Figures:
    """What a complete attempt has moved, by its counters: short ones never told on the way."""
    framework = done.counters.get(c.FRAMEWORK, {})
    if kind is TaskKind.MAP:
        return Figures(
            framework.get(c.MAP_INPUT_RECORDS, 0),
            input_bytes=done.counters.get(c.FILE_INPUT, {}).get(c.BYTES_READ, 0),
            output_bytes=done.output_bytes,
        )
    shuffled = framework.get(c.REDUCE_SHUFFLE_BYTES, 0)
    return Figures(
        framework.get(c.REDUCE_INPUT_RECORDS, 0),
        shuffle_bytes=shuffled,
        merged_bytes=shuffled,
        output_bytes=done.output_bytes,
    )


class Running(msgspec.Struct):
    """An attempt that holds a slot, as last heard of."""

    worker_id: WorkerId
    started_at_s: float
    told: AttemptNews | None = None
    figures: Figures = Figures()
    is_dying: bool = False
    """It is to be killed: what it told counts no more."""


class Result(msgspec.Struct, frozen=True):
    """How a task was done."""

    attempt_id: str
    done: Done
    seconds: float


class JobTally:
    """One job, from its submission on."""

    def __init__(
        self,
        job_id: JobId,
        maps: int,
        reduces: int,
        began_at_s: float,
        *,
        user_counters_max: int = NO_LIMIT,
    ) -> None:
        self.job_id = job_id
        self.maps = maps
        self.reduces = reduces
        self.began_at_s = began_at_s
        self.running: dict[AttemptId, Running] = {}
        """As the scheduler has them: entered and left with its events and commands."""
        self.results: dict[TaskId, Result] = {}
        """By which attempt each task was done; of a map whose output was lost until it is done
        again, since the job may end without that."""
        self.failures: list[tuple[AttemptId, str]] = []
        self.moved = Figures()
        """By all attempts, whatever became of them: what rates are made of."""
        self._offered: dict[AttemptId, Done] = {}
        """Ends that were reported, until the scheduler says whether they count."""
        self._user_counters_max = user_counters_max
        self._counters = Counters(user_counters_max=user_counters_max)
        self._segment_bytes = 0
        """Both are sums over `results`."""

    # --- what happens

    def offer(self, attempt_id: AttemptId, done: Done) -> None:
        """An attempt says that it is done; what the scheduler makes of it is observed next."""
        self._offered[attempt_id] = done
        self.move(attempt_id, figures_done(done, attempt_id.task_id.kind))

    def heard(self, attempt_id: AttemptId, told: AttemptNews) -> None:
        """An attempt tells how far it is."""
        running = self.running.get(attempt_id)
        if running is not None:
            running.told = told
            self.move(attempt_id, figures_told(told, attempt_id.task_id.kind))

    def move(self, attempt_id: AttemptId, figures: Figures) -> None:
        """A running attempt has moved so much, since its start."""
        running = self.running.get(attempt_id)
        if running is not None:
            figures = running.figures.at_least(figures)
            self.moved = self.moved.plus(figures, running.figures)
            running.figures = figures

    def observe(self, event: Event, commands: Sequence[Command], now_s: float) -> None:
        """Take note of an event, and of the commands that it led to."""
        match event:
            case WorkerLost(worker_id=worker_id):
                self._lose(worker_id)
            case WorkerRegistered(worker_id=worker_id):
                # What it does not name is gone; what it brings is kept, or killed by a command.
                self._lose(worker_id, kept=event.running)
                for attempt_id in event.running:
                    if attempt_id.task_id.job_id == self.job_id:
                        self.running.setdefault(attempt_id, Running(worker_id, now_s))
            case AttemptFailed(attempt_id=attempt_id, reason=reason):
                self._failed(attempt_id, reason)
            case FailAttemptRequested(attempt_id=attempt_id):
                self._failed(attempt_id, "failed on request")
            case AttemptKilled(attempt_id=attempt_id):
                self._over(attempt_id)
            case _:
                pass
        for command in commands:
            self._take(command, now_s)
        match event:
            case AttemptSucceeded(attempt_id=attempt_id):
                self._over(attempt_id)  # if it counts, that was among the commands
            case WorkerRegistered(segments=segments):
                for attempt_id in segments:
                    self._offered.pop(attempt_id, None)
            case _:
                pass

    def _take(self, command: Command, now_s: float) -> None:
        match command:
            case StartAttempt(attempt_id=attempt_id, worker_id=worker_id):
                if attempt_id.task_id.job_id == self.job_id:
                    self.running[attempt_id] = Running(worker_id, now_s)
            case KillAttempt(attempt_id=attempt_id):
                if attempt_id in self.running:
                    self.running[attempt_id].is_dying = True
            case RecordCommit(attempt_id=attempt_id):
                if attempt_id.task_id.job_id == self.job_id:
                    self._committed(attempt_id, now_s)
            case LoseWorker(worker_id=worker_id):
                self._lose(worker_id)
            case _:
                pass  # changes nothing of what attempts have done

    def _committed(self, attempt_id: AttemptId, now_s: float) -> None:
        """The task is done by this attempt: its counters count, and no other's."""
        known = self.results.get(attempt_id.task_id)
        if known is None or known.attempt_id != str(attempt_id):  # else its worker came back
            running = self.running.get(attempt_id)
            done = self._offered.get(attempt_id, Done({}))
            if running is None:
                self.restore(attempt_id, done, 0.0)
            else:
                result = Result(str(attempt_id), done, now_s - running.started_at_s)
                self._put(attempt_id.task_id, result)
        self._over(attempt_id)

    def restore(self, attempt_id: AttemptId, done: Done, seconds: float) -> None:
        """Enter how a task was done by an attempt that is not known to have run."""
        self.moved = self.moved.plus(figures_done(done, attempt_id.task_id.kind), Figures())
        self._put(attempt_id.task_id, Result(str(attempt_id), done, seconds))

    def _put(self, task_id: TaskId, result: Result) -> None:
        before = self.results.get(task_id)
        self.results[task_id] = result
        self._segment_bytes += result.done.segment_bytes
        if before is None:
            self._counters.add_all(result.done.counters)
            return
        # The map ran again since its output was lost: what it counted before is void.
        self._segment_bytes -= before.done.segment_bytes
        self._counters = Counters(user_counters_max=self._user_counters_max)
        for each in self.results.values():
            self._counters.add_all(each.done.counters)

    def _failed(self, attempt_id: AttemptId, reason: str) -> None:
        if attempt_id in self.running:
            self.failures.append((attempt_id, reason))
            self._over(attempt_id)

    def _over(self, attempt_id: AttemptId) -> None:
        self.running.pop(attempt_id, None)
        self._offered.pop(attempt_id, None)

    def _lose(self, worker_id: WorkerId, kept: Sequence[AttemptId] = ()) -> None:
        held = [each for each, running in self.running.items() if running.worker_id == worker_id]
        for attempt_id in held:
            if attempt_id not in kept:
                self._over(attempt_id)

    # --- what people see

    def done_tasks(self, kind: TaskKind) -> int:
        """Count the tasks of a kind that were ever done."""
        return sum(task_id.kind is kind for task_id in self.results)

    def progress(self, view: JobView | None, now_s: float) -> JobProgress:
        """Return how far the job is; without a view, of one that was over before this process
        was."""
        maps_done = view.maps_committed if view else self.done_tasks(TaskKind.MAP)
        reduces_done = view.reduces_committed if view else self.done_tasks(TaskKind.REDUCE)
        reduced = view.reduce_fraction if view else reduces_done / max(1, self.reduces)
        now = TaskKind.MAP if maps_done < self.maps else TaskKind.REDUCE
        said = [each.told.status for kind, each in self._telling() if kind is now and each.told]
        moved = self.moved
        return JobProgress(
            map_fraction=view.map_fraction if view else maps_done / max(1, self.maps),
            reduce_fraction=reduced if self.reduces else 0.0,
            maps_done=maps_done,
            maps=self.maps,
            reduces_done=reduces_done,
            reduces=self.reduces,
            records=moved.records,
            bytes_done=moved.input_bytes + moved.shuffle_bytes + moved.merged_bytes,
            shuffled_bytes=self._segment_bytes,
            elapsed_s=self._elapsed_s(now_s),
            status=next((text for text in reversed(said) if text), ""),
        )

    def counters(self, totals: JobTotals | None) -> Counters:
        """Return the counters so far: of tasks that are done, of one running attempt of each of the
        others (users' only), and those of the job itself."""
        total = Counters(self._counters.as_dict(), user_counters_max=self._user_counters_max)
        for told in self._furthest():
            total.add_all(told.counters)
        for name, value in _job_counters(totals or JobTotals()):
            if value:
                total.add(c.JOB, name, value)
        for kind, name in ((TaskKind.MAP, c.MAPS_MS), (TaskKind.REDUCE, c.REDUCES_MS)):
            seconds = sum(r.seconds for t, r in self.results.items() if t.kind is kind)
            if kind is TaskKind.MAP or self.reduces:
                total.add(c.JOB, name, int(seconds * 1000))
        return total

    def facts(self, now_s: float) -> JobFacts:
        """Return what the job took."""
        times: dict[TaskKind, list[TaskTime]] = {TaskKind.MAP: [], TaskKind.REDUCE: []}
        for task_id, result in self.results.items():
            times[task_id.kind].append(_task_time(task_id, result))
        return JobFacts(
            self._elapsed_s(now_s),
            self._counters.get(c.FILE_INPUT, c.BYTES_READ),
            self._segment_bytes,
            self._counters.get(c.FILE_OUTPUT, c.BYTES_WRITTEN),
            times[TaskKind.MAP],
            times[TaskKind.REDUCE],
        )

    def _elapsed_s(self, now_s: float) -> float:
        return max(0.0, now_s - self.began_at_s)

    def _telling(self) -> Iterable[tuple[TaskKind, Running]]:
        """The running attempts whose words count."""
        for attempt_id, running in self.running.items():
            if not running.is_dying:
                yield attempt_id.task_id.kind, running

    def _furthest(self) -> Iterable[AttemptNews]:
        """What the furthest running attempt of each task told that was never done."""
        found: dict[TaskId, AttemptNews] = {}
        for attempt_id, running in self.running.items():
            task_id, told = attempt_id.task_id, running.told
            if told is None or running.is_dying or task_id in self.results:
                continue
            if task_id not in found or found[task_id].fraction < told.fraction:
                found[task_id] = told
        return found.values()


def concerned(
    tallies: Mapping[JobId, JobTally], event: Event, commands: Sequence[Command]
) -> list[JobTally]:
    """Of many jobs, those that an event and what it led to say something about."""
    if isinstance(event, WorkerLost | WorkerRegistered):
        return list(tallies.values())
    named: dict[JobId, None] = {}
    for record in (event, *commands):
        if isinstance(record, LoseWorker):
            return list(tallies.values())
        attempt_id = getattr(record, "attempt_id", None)
        if attempt_id is not None:
            named[attempt_id.task_id.job_id] = None
    return [tallies[job_id] for job_id in named if job_id in tallies]


def _grown(total: int, new: int, old: int) -> int:
    return total + new - old


def _task_time(task_id: TaskId, result: Result) -> TaskTime:
    is_map = task_id.kind is TaskKind.MAP
    counters = Counters(result.done.counters, user_counters_max=NO_LIMIT)
    return TaskTime(
        f"{'map' if is_map else 'reduce'} {task_id.task_index}",
        result.seconds,
        counters.value(c.MAP_INPUT_RECORDS if is_map else c.REDUCE_INPUT_RECORDS),
        counters.get(c.FILE_INPUT, c.BYTES_READ) if is_map else result.done.output_bytes,
        result.done.largest_key,
        result.done.largest_key_records,
    )


def _job_counters(totals: JobTotals) -> tuple[tuple[str, int], ...]:
    return (
        (c.LAUNCHED_MAPS, totals.launched_maps),
        (c.LAUNCHED_REDUCES, totals.launched_reduces),
        (c.FAILED_MAPS, totals.failed_maps),
        (c.FAILED_REDUCES, totals.failed_reduces),
        (c.KILLED_MAPS, totals.killed_maps),
        (c.KILLED_REDUCES, totals.killed_reduces),
        (c.DATA_LOCAL_MAPS, totals.host_local_maps),
        (c.RACK_LOCAL_MAPS, totals.rack_local_maps),
        (c.OTHER_LOCAL_MAPS, totals.remote_maps),
    )
