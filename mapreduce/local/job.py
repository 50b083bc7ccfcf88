"""One job whose brain is here: a thin shell around the scheduler, whoever runs attempts, and disks.

Plans the job, starts the attempts that the brain asks for, as many at once as its place takes,
hears what they tell, commits what may be committed, and reports. On this machine a zygote forks
them; an engine (`mapreduce/engine/`) runs them elsewhere. Never touches a record.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from typing import assert_never

import msgspec

from mrstream.mapreduce.attempt.attempt_report import (
    AttemptNews,
    Decoder,
    Done,
    Failed,
    Failure,
    Message,
    Noted,
    Ready,
    Said,
    Shuffled,
    Unfetched,
    death_text,
)
from mrstream.mapreduce.attempt.pipe_frames import framed
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.attempt.zygote import Ended
from mrstream.mapreduce.console import LIVE_EVERY_S, Console
from mrstream.mapreduce.dataflow.committer import OutputExists
from mrstream.mapreduce.dataflow.files import Files, RoutedFiles
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.job.errors import JobFailed
from mrstream.mapreduce.job.job import JobSpec, planned
from mrstream.mapreduce.job.rules import TaskRules
from mrstream.mapreduce.local.place import Attempts, Place, this_machine
from mrstream.mapreduce.local.talk import LocalTalk
from mrstream.mapreduce.scheduler.commands import (
    AbandonTask,
    Command,
    FinishJob,
    GrantCommit,
    JobOutcome,
    KillAttempt,
    LoseWorker,
    PublishSegment,
    QuarantineWorker,
    RecordCommit,
    ReleaseWorker,
    StartAttempt,
    WithdrawSegment,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptProgress,
    AttemptSucceeded,
    CommitRequested,
    Event,
    JobSubmitted,
    MapTaskSpec,
    WorkerRegistered,
)
from mrstream.mapreduce.scheduler.ids import AttemptId, HostName, TaskId, TaskKind, WorkerId
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from mrstream.mapreduce.tally import JobTally
from mrstream.streaming.conf.jobconf import JobConf

_HERE = WorkerId("localhost")
_READ_BYTES = 1 << 16


class _Running:
    """An attempt that has a process; or, once it is over, the process that waits for another."""

    def __init__(self, attempt_id: AttemptId, token: int, report: int, paper: bytes) -> None:
        self.attempt_id = attempt_id
        self.token = token
        self.report = report
        self.paper = paper
        self.decoder = Decoder()
        self.outcome: Done | Failed | None = None
        self.has_ended = False
        """Whether its process is gone."""


class LocalJob:
    """One job on this machine, from its plan to its report."""

    def __init__(
        self,
        spec: JobSpec,
        record: JobRecord,
        console: Console,
        zygote: Attempts,
        *,
        is_quiet: bool = False,
        place: Place | None = None,
    ) -> None:
        """Check the output and plan the input; nothing is made yet but the job's own directory."""
        self._record = record
        self._console = console
        self._conf: JobConf = spec.conf()
        self._place = place if place is not None else this_machine(spec, record)
        self._files: Files = RoutedFiles(self._place.filesystem, spec.working_directory)
        self._output = self._place.output
        made, self._file_count = planned(spec, self._files, console.warn)
        self._splits: tuple[Split, ...] = made.splits
        self._spec = msgspec.structs.replace(made, splits=())  # attempts get them one by one
        self._packed_spec = msgspec.Raw(msgspec.msgpack.encode(self._spec))
        self._talk = LocalTalk(console, self._spec, record, is_quiet=is_quiet)
        self._scheduler = Scheduler()
        self._settings = self._place.settings
        self._rules = TaskRules(self._spec, self._settings)
        self._running: dict[int, _Running] = {}
        self._waiting: dict[int, _Running] = {}
        """Processes that have done a map well and take another."""
        self._has_run: set[int] = set()
        """Processes that have done one."""
        self._has_more_maps = True
        self._segments: dict[int, str] = {}
        self._has_output = False
        """Whether a failure that can be repeated was told in full; the first of them is."""
        self._finish: FinishJob | None = None
        self._tally = JobTally(
            self._spec.job_id,
            len(self._splits),
            spec.reduces,
            time.monotonic(),
            user_counters_max=self._conf.counters_max,
        )
        self._selector = selectors.DefaultSelector()
        self._zygote = zygote

    def run(self) -> int:
        is_interrupted = True
        self._talk.announce(self._file_count, len(self._splits))
        try:
            self._selector.register(self._zygote, selectors.EVENT_READ)
            self._begin_output()
            self._loop()
            is_interrupted = False
        finally:
            # From here on another Ctrl-C must not stop the clearing up.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._close(is_interrupted)
        assert self._finish is not None
        known = self._scheduler.known(self._spec.job_id)
        assert known is not None, "the job has ended just now"
        return self._talk.end(self._finish, self._tally, *known)

    def _begin_output(self) -> None:
        try:
            if (lock := self._output.take()) >= 0:
                # If we are killed, another job comes in only when ours is cleared up.
                self._zygote.hold(lock)
            if self._output.temporary:
                self._zygote.remove_at_end(self._output.temporary)
            self._output.begin()
        except OutputExists:
            raise
        except OSError as error:
            raise JobFailed(f"Mkdirs failed to create {self._spec.output}: {error}") from error
        self._has_output = True

    # --- the loop: one event, decide, act

    def _loop(self) -> None:
        maps, reduces = self._place.maps_max, self._place.reduces_max
        here = HostName("localhost")
        self._handle(WorkerRegistered(_HERE, here, max(maps, reduces), maps, reduces))
        self._handle(
            JobSubmitted(
                self._spec.job_id,
                tuple(MapTaskSpec(split.length) for split in self._splits),
                self._spec.reduces,
                self._settings,
            )
        )
        wait_s = LIVE_EVERY_S if self._console.is_live else self._conf.poll_interval_s
        show_at_s = 0.0
        while self._finish is None or self._running:
            now_s = time.monotonic()
            if now_s >= show_at_s:
                show_at_s = now_s + wait_s
                view = self._scheduler.job(self._spec.job_id)
                if view is not None:
                    self._talk.progress(self._tally.progress(view, now_s))
            for key, _ in self._selector.select(wait_s):
                if key.fileobj is self._zygote:
                    self._attempt_ended(self._next_ended())
                elif (running := self._running.get(key.data)) is not None:
                    # Its end may have been told in this very round, and then all was read.
                    self._read_report(running)

    def _next_ended(self) -> Ended:
        try:
            return self._zygote.ended()
        except EOFError:
            raise JobFailed(
                "the process that starts attempts is gone: killed by someone, or by the kernel "
                "because memory ran out (`dmesg` tells); the job is stopped"
            ) from None

    def _handle(self, event: Event) -> None:
        """Let the brain decide, take note, then do what it says."""
        now_s = time.monotonic()
        commands = self._scheduler.handle(event, now_s)
        self._tally.observe(event, commands, now_s)
        for command in commands:
            self._obey(command)

    def _obey(self, command: Command) -> None:
        match command:
            case StartAttempt(attempt_id=attempt_id):
                self._start(attempt_id)
            case KillAttempt(attempt_id=attempt_id):
                self._kill(attempt_id)
            case GrantCommit(attempt_id=attempt_id):
                self._commit_granted(attempt_id)
            case RecordCommit():
                pass  # noted
            case AbandonTask(task_id=task_id):
                if self._rules.has_final_output(task_id):
                    self._console.end_progress()  # results may go to the same screen
                    self._output.skip_task(task_id.task_index)
            case FinishJob():
                self._finish = command
            case PublishSegment() | WithdrawSegment():
                pass  # reduces find segments where they lie
            case LoseWorker() | QuarantineWorker() | ReleaseWorker():
                pass  # this machine is the only worker
            case _:
                assert_never(command)

    # --- attempts

    def _start(self, attempt_id: AttemptId) -> None:
        paper = msgspec.msgpack.encode((self._packed_spec, self._order(attempt_id)))
        self._give_to_a_process(attempt_id, paper)

    def _give_to_a_process(self, attempt_id: AttemptId, paper: bytes) -> None:
        kind = attempt_id.task_id.kind
        token, report = self._process_for(kind, paper, self._name(attempt_id))
        self._running[token] = _Running(attempt_id, token, report, paper)
        if report >= 0:
            self._selector.register(report, selectors.EVENT_READ, token)

    def _process_for(self, kind: TaskKind, paper: bytes, name: str) -> tuple[int, int]:
        """Give an order to a process that waits for one, or else to a new one."""
        if kind is TaskKind.REDUCE:  # no reduce begins before the last map is done
            self._has_more_maps = False
            while self._waiting:
                os.close(self._waiting.popitem()[1].report)  # it ends
        while self._waiting:
            token, process = self._waiting.popitem()
            if _send(process.report, framed(paper)):
                return token, process.report
            os.close(process.report)  # it was killed meanwhile
        return self._zygote.start(paper, name)

    def _process_is_ready(self, running: _Running) -> None:
        """Its attempt is over, and nothing is left of that."""
        if running.has_ended:
            return
        del self._running[running.token]
        self._selector.unregister(running.report)
        self._has_run.add(running.token)
        if self._has_more_maps:
            self._waiting[running.token] = running
        else:
            os.close(running.report)

    def _order(self, attempt_id: AttemptId) -> AttemptOrder:
        task = attempt_id.task_id
        is_map = task.kind is TaskKind.MAP
        name = self._name(attempt_id)
        scratch = self._record.scratch
        final = self._rules.has_final_output(task)
        return AttemptOrder(
            attempt_id=name,
            maps=len(self._splits),
            directory=os.path.join(scratch, name),
            cache=os.path.join(scratch, "cache"),
            log_directory=self._record.log_directory(name),
            filesystem=self._place.filesystem,
            split=self._splits[task.task_index] if is_map else None,
            segments=() if is_map else tuple(path for _, path in sorted(self._segments.items())),
            segment_path="" if final else os.path.join(scratch, f"{name}.segment"),
            output_directory=self._output.attempt_directory(name)
            if self._rules.commits(task)
            else "",
            keep_directory=self._record.kept_directory(name)
            if self._rules.is_last_try(attempt_id)
            else "",
        )

    def _kill(self, attempt_id: AttemptId) -> None:
        for running in self._running.values():
            if running.attempt_id == attempt_id:
                self._zygote.kill(running.token)

    def _read_report(self, running: _Running) -> None:
        try:
            data = os.read(running.report, _READ_BYTES)
        except ConnectionResetError:  # it was killed before it read its order
            data = b""
        if not data:
            self._selector.unregister(running.report)
            os.close(running.report)
            running.report = -1
            return
        for message in running.decoder.feed(data):
            self._hear(running, message)

    def _hear(self, running: _Running, message: Message) -> None:
        attempt_id = running.attempt_id
        match message:
            case AttemptNews():
                self._tally.heard(attempt_id, message)
                self._handle(AttemptProgress(attempt_id, message.fraction))
            case Said(text=text):
                self._console.said(text)
            case Noted(level=level, text=text):
                (self._console.warn if level == "WARN" else self._console.info)(text)
            case Ready():
                self._process_is_ready(running)
            case Done():
                running.outcome = message
                self._tally.offer(attempt_id, message)
                self._attempt_done(attempt_id)
            case Failed(failure=failure):
                running.outcome = message
                self._attempt_failed(attempt_id, failure)
            case Shuffled() | Unfetched() | Ready():
                pass  # segments are opened where they lie, and a process runs one attempt
            case _:
                assert_never(message)

    def _attempt_done(self, attempt_id: AttemptId) -> None:
        if not self._rules.has_final_output(attempt_id.task_id):
            path = os.path.join(self._record.scratch, f"{self._name(attempt_id)}.segment")
            self._segments[attempt_id.task_id.task_index] = path
        if self._rules.commits(attempt_id.task_id):
            self._handle(CommitRequested(attempt_id))
        else:
            self._handle(AttemptSucceeded(attempt_id))

    def _attempt_failed(self, attempt_id: AttemptId, failure: Failure) -> None:
        if self._rules.commits(attempt_id.task_id):
            self._output.abort_task(self._name(attempt_id))
        self._talk.failure(self._name(attempt_id), failure)
        self._handle(AttemptFailed(attempt_id, failure.message))

    def _attempt_ended(self, ended: Ended) -> None:
        running = self._running.get(ended.token)
        if running is None:  # its last attempt was over before
            if (process := self._waiting.pop(ended.token, None)) is not None:
                os.close(process.report)
            return
        running.has_ended = True
        while running.report >= 0:
            self._read_report(running)
        for message in self._zygote.last_words(ended.token):
            self._hear(running, message)
        del self._running[ended.token]
        if running.outcome is None:
            name = self._name(running.attempt_id)
            if ended.status == -signal.SIGKILL and self._finish is not None:
                self._handle(AttemptKilled(running.attempt_id, "killed"))
            elif ended.token in self._has_run and not os.path.isdir(
                self._record.log_directory(name)
            ):
                # Killed while it waited, and we could not know: it never read the order.
                self._give_to_a_process(running.attempt_id, running.paper)
            else:
                failure = Failure(death_text(ended.status), log_directory=self._record.directory)
                self._attempt_failed(running.attempt_id, failure)

    def _commit(self, attempt_id: AttemptId) -> None:
        self._console.end_progress()  # results may go to the same screen
        self._output.commit_task(self._name(attempt_id), attempt_id.task_id.task_index)

    def _commit_granted(self, attempt_id: AttemptId) -> None:
        try:
            self._commit(attempt_id)
        except BrokenPipeError:
            raise  # who read our standard output is gone: nobody wants the rest
        except OSError as error:
            reason = f"the output cannot be committed: {error}"
            directory = self._record.log_directory(self._name(attempt_id))
            self._attempt_failed(attempt_id, Failure(reason, log_directory=directory))
        else:
            self._handle(AttemptSucceeded(attempt_id))

    def _number(self, task: TaskId) -> int:
        """Return a task's number in the whole job, of which `-tasks` may run a part."""
        if task.kind is TaskKind.REDUCE:
            return task.task_index
        return self._splits[task.task_index].index

    def _name(self, attempt_id: AttemptId) -> str:
        task = attempt_id.task_id
        return str(AttemptId(TaskId(task.job_id, task.kind, self._number(task)), attempt_id.number))

    # --- the end

    def _close(self, is_interrupted: bool) -> None:
        """End every process, then make the output final or clear it up."""
        succeeded = self._finish is not None and self._finish.outcome is JobOutcome.SUCCEEDED
        if self._output.temporary:
            self._zygote.keep(self._output.temporary)  # what is committed is yet to be moved
        self._zygote.close()
        for running in (*self._running.values(), *self._waiting.values()):
            if running.report >= 0:
                os.close(running.report)
        self._selector.close()
        try:
            if succeeded:
                self._output.commit_job()
            elif self._has_output:
                self._output.abort_job(is_interrupted=is_interrupted)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise JobFailed(f"the output directory cannot be completed: {error}") from error
        finally:
            self._output.release()
            self._record.drop_scratch()


def _send(descriptor: int, data: bytes) -> bool:
    """Write to a process that waits; return whether it was there to take it."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True
