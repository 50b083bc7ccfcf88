"""Runs a flow: the shell around its brain, and its order of duties.

1 take an event, 2 let the brain decide, 3 write what must be durable, 4 only then do what it says,
5 what comes back is a new event. Jobs are processes of the `mrstream` command that end with this
one, however it ends. Never decides what runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.cluster.units import duration
from mrstream.mapreduce.dataflow.files import Files
from mrstream.mapreduce.flow.book import FlowBook, FlowState
from mrstream.mapreduce.flow.brain.brain import FlowBrain
from mrstream.mapreduce.flow.brain.messages import (
    Begin,
    Clear,
    Command,
    Event,
    Finish,
    OutputPublished,
    Publish,
    StartStep,
    StepEnded,
    Write,
)
from mrstream.mapreduce.flow.brain.plan import JOB
from mrstream.mapreduce.flow.digests import digest_of
from mrstream.mapreduce.flow.places import PlaceKeeper
from mrstream.mapreduce.interrupts import interruptible
from mrstream.mapreduce.launch import (
    Launch,
    command_words,
    complaint_in,
    failure_in,
    program_words,
)
from mrstream.streaming.conf.jobconf import setting_name

if TYPE_CHECKING:
    from mrstream.mapreduce.flow.dfs_book import DfsFlowBook

Say = Callable[[str], None]
COMMAND_ENDS_S_MAX = 5.0
"""As long a command may clear up, or look away, when its flow is interrupted."""
_JOB_NAME = setting_name("job_name")
"""A job of a flow is called after both, unless it has a name: so it is known in every list."""


class _Running:
    """A step that runs: a job, or any other command."""

    def __init__(self, step: StartStep, words: list[str], log: str, *, is_job: bool) -> None:
        self.step = step
        self.began_s = time.monotonic()
        self._log = log
        self.launch: Launch | None = None
        self.process: subprocess.Popen[bytes] | None = None
        if is_job:
            self.launch = Launch(words, ends_with_us=True)
            pid = self.launch.pid
        else:
            environment = {**os.environ, "OUTPUT": step.place}
            with open(log, "wb") as said:
                self.process = subprocess.Popen(
                    program_words(words), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                    env=environment, process_group=0,
                )  # fmt: skip
            pid = self.process.pid
        self.ended = os.pidfd_open(pid)

    def finish(self) -> tuple[bool, str]:
        """Take in what is left; says whether it went well, and if not, why."""
        os.close(self.ended)
        if self.launch is None:
            assert self.process is not None
            status = self.process.wait()
            return status == 0, f"exit status {status}; what it said is in {self._log}"
        self.launch.wait()
        lines = list(self.launch.lines)
        with open(self._log, "w", encoding="utf-8") as log:
            log.write("\n".join([*lines, ""]))
        failure = failure_in(lines)
        reason = failure.text if failure is not None else complaint_in(lines)
        return self.launch.status == 0, reason

    def kill(self) -> None:
        if self.launch is not None:
            self.launch.kill()
        elif self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(COMMAND_ENDS_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        os.close(self.ended)


class FlowRunner:
    def __init__(
        self, state: FlowState, files: Files, say: Say, book: DfsFlowBook | None = None
    ) -> None:
        """`book` is that of a detached flow; else it is kept on this machine."""
        self._state = state
        self._plan = state.plan
        self._book: FlowBook | DfsFlowBook = book or FlowBook(state.plan.flow_id)
        self._files = files
        self._keeper = PlaceKeeper(files)
        self._say = say
        self._running: dict[str, _Running] = {}
        self._brain = FlowBrain(state.plan)
        self.started: list[str] = []
        """The keys of the steps that this run started."""

    def run(self) -> bool:
        """Run to the end, or on from where it was; says whether the flow succeeded."""
        digests = {step.name: digest_of(step, self._files) for step in self._plan.steps}
        with self._book.held(), _polite():
            self._note("running")
            for record in self._book.open():
                self._brain.apply(record)
            try:
                finish = self._loop(self._beginning(digests))
            except BaseException:
                for running in self._running.values():
                    running.kill()
                self._note("interrupted")
                raise
            self._note("succeeded" if finish.succeeded else "failed", finish.reason)
            if not finish.succeeded:
                self._say(finish.reason)
            return finish.succeeded

    def results(self) -> dict[str, str]:
        """Return where the output of each step lies."""
        return self._brain.results()

    def _note(self, state: str, reason: str = "") -> None:
        self._state.state, self._state.reason = state, reason
        if state == "running":
            self._state.began_at_s = self._state.began_at_s or time.time()
        else:
            self._state.ended_at_s = time.time()
        self._book.write_state(self._state)

    def _beginning(self, digests: dict[str, str]) -> Begin:
        keeper = self._keeper
        whole = frozenset(place for place in self._brain.places() if keeper.is_whole(place))
        outputs = [step.output for step in self._plan.steps if step.output]
        marks = {output: keeper.mark_of(output) for output in outputs}
        return Begin(digests, whole, {name: mark for name, mark in marks.items() if mark})

    def _loop(self, event: Event) -> Finish:
        queue: list[Event] = [event]
        while True:
            while queue:
                for command in self._brain.handle(queue.pop(0)):
                    if isinstance(command, Finish):
                        return command
                    if (answer := self._do(command)) is not None:
                        queue.append(answer)
            queue += self._ended_steps()

    def _do(self, command: Command) -> Event | None:
        match command:
            case Write(record=record):
                self._book.write(record)
            case StartStep():
                self._start(command)
            case Publish(name=name, place=place, final=final):
                self._keeper.publish(place, final)
                self._say(f"{name}: {final} is there")
                return OutputPublished(name)
            case Clear(places=places):
                for place in places:
                    self._keeper.remove(place)
            case Finish():
                raise AssertionError("the loop has taken it")
            case _:
                assert_never(command)
        return None

    def _start(self, command: StartStep) -> None:
        is_job = self._plan.step(command.name).kind == JOB
        words = list(command.words)
        if is_job:
            words += ["-output", command.place]
            words = ["-D", f"{_JOB_NAME}={self._plan.name}: {command.key}", *words]
            if self._state.cluster is not None and "-cluster" not in words:
                words += ["-cluster", self._state.cluster]
        else:
            self._keeper.make(command.place)
        log = self._book.log_path(command.key)
        self._running[command.key] = _Running(command, words, log, is_job=is_job)
        self.started.append(command.key)
        self._say(f"{command.key}: started")

    def _ended_steps(self) -> list[Event]:
        """Wait until a step ends; return what the brain is to hear."""
        assert self._running, "the brain waits for nothing"
        by_handle = {running.ended: running for running in self._running.values()}
        ends = select.poll()  # select() knows 1,024 descriptors
        for handle in by_handle:
            ends.register(handle, select.POLLIN)
        return [self._end(by_handle[handle]) for handle, _ in ends.poll()]

    def _end(self, running: _Running) -> StepEnded:
        key = running.step.key
        del self._running[key]
        succeeded, reason = running.finish()
        self._book.keep_log(key)
        took = duration(time.monotonic() - running.began_s)
        self._say(f"{key}: {'done' if succeeded else 'FAILED'} after {took}")
        if not succeeded:
            return StepEnded(key, False, reason)
        self._keeper.mark(running.step.place)
        counters = {}
        if running.launch is not None:
            counters = running.launch.report(self._state.cluster).get("counters", {})
        return StepEnded(key, True, "", counters)


def _polite() -> contextlib.AbstractContextManager[None]:
    """Take a request to end for Ctrl-C, where signals can be heard."""
    is_main = threading.current_thread() is threading.main_thread()
    return interruptible() if is_main else contextlib.nullcontext()


def dry_run(state: FlowState, files: Files) -> list[str]:
    """Return the lines of a flow's plan: what runs when, and its command; reads, changes
    nothing."""
    lines = [f"flow {state.plan.name}: {len(state.plan.steps)} steps"]
    wave: dict[str, int] = {}
    for step in state.plan.steps:
        digest_of(step, files) if not step.needs else None  # inputs that are not there are told
        wave[step.name] = 1 + max((wave[need] for need in step.needs), default=0)
        needs = f" after {', '.join(step.needs)}" if step.needs else ""
        lines.append(f"{wave[step.name]}. {step.name}{needs}")
        words = command_words(step.words)[4:] if step.kind == JOB else list(step.words)
        said = " ".join(word if word and " " not in word else repr(word) for word in words)
        lines.append(f"     {'mrstream ' if step.kind == JOB else ''}{said}")
        if step.output:
            lines.append(f"     into {step.output}")
        if step.until is not None:
            until = step.until
            lines.append(
                f"     until {until.group},{until.counter} {until.relation} {until.value}, at most "
                f"{until.at_most} times, from {step.first}"
            )
    return lines


def same_flow(state: FlowState, flow_id: str) -> FlowState:
    """Return a flow that goes on under another's id; `UserError` if that is one of another name."""
    kept = FlowBook(flow_id).read_state()
    if kept.plan.name != state.plan.name:
        raise UserError(f"{flow_id} is a flow called {kept.plan.name!r}, not {state.plan.name!r}")
    plan = msgspec.structs.replace(state.plan, flow_id=flow_id, work=kept.plan.work)
    return msgspec.structs.replace(state, plan=plan, began_at_s=kept.began_at_s)
