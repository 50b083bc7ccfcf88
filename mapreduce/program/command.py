"""What is to be run: a command of a task, in the task's directory and environment.

Takes a command line as the job gives it and blobs for its standard input; finds the program as
Hadoop would, runs it, hands on what it writes and judges how it ended. The directory with its links
and the environment are made when the first command starts. Never looks into the bytes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from mrstream.mapreduce.program.ending import ExitRule, judge
from mrstream.mapreduce.program.flow import Flow
from mrstream.mapreduce.program.pump import Blob, RunningCommand, StderrSink, Watch
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.task.child import (
    find_program,
    parse_command,
    resolve_words,
    task_environment,
)
from mrstream.streaming.task.shipping import Fetch, Shipped, link_shipped


class Workplace:
    """Where the commands of one task run, and whose turn it is."""

    def __init__(
        self,
        directory: str,
        conf: JobConf,
        shipped: Sequence[Shipped],
        properties: Mapping[str, str],
        inherited: Mapping[str, str],
        *,
        cache: str,
        fetch: Fetch,
    ) -> None:
        """Below `directory`; `properties` are those that the task itself sets, `inherited` is the
        environment that its own begins with, `cache` and `fetch` are as `link_shipped` wants
        them."""
        self.conf = conf
        self.shipped = shipped
        self.stage = ""
        """Whose program runs, or ran last: the one to blame."""
        self._work = os.path.join(directory, "work")
        self._tmp = os.path.join(directory, "tmp")
        self._properties = properties
        self._inherited = inherited
        self._cache = cache
        self._fetch = fetch
        self._environment: dict[str, str] | None = None
        self.finding = threading.Lock()
        """Held while a program is looked for: one without a run bit is replaced by a copy."""

    def surroundings(self) -> tuple[str, dict[str, str]]:
        """Return the directory with its links, and the environment, made when first needed."""
        if self._environment is None:
            os.makedirs(self._work, exist_ok=True)
            os.makedirs(self._tmp, exist_ok=True)
            link_shipped(self._work, self.shipped, self._cache, self._fetch)
            self._environment = task_environment(
                self.conf, self._inherited, self._properties, self._tmp
            )
        return self._work, self._environment

    def search_path(self, environment: Mapping[str, str]) -> str:
        """Return where programs are looked for: along the PATH that we inherit first, as Hadoop
        does, whatever PATH the job gives to them."""
        own, given = self._inherited.get("PATH", os.defpath), environment.get("PATH", "")
        return own if given in ("", own) else f"{own}{os.pathsep}{given}"


class Command:
    """A command of a task, to be run on some input, any number of times."""

    def __init__(
        self,
        program: Program,
        stage: str,
        workplace: Workplace,
        *,
        ear: Callable[[], StderrSink],
        watch: Watch,
    ) -> None:
        """Each process is heard by an `ear` of its own."""
        assert program.command, "a built-in is no command"
        self._program = program
        self._stage = stage
        self._workplace = workplace
        self._ear = ear
        self._watch = watch
        self._running: RunningCommand | None = None

    @property
    def flow(self) -> Flow | None:
        """How far the input of the process that was started last got; None if there was none."""
        return self._running.flow if self._running is not None else None

    def run(
        self,
        feed: Iterable[Blob],
        collect: Callable[[memoryview], None],
        rule: ExitRule,
        records_written: Callable[[], int],
    ) -> None:
        """Feed the command and collect what it writes; CommandFailed if it ends badly."""
        running = self.start(feed, drain=rule.skip_after_records is not None)
        try:
            for blob in running.output():
                collect(blob)
            exit_code = running.finish()
        except BaseException:
            running.abandon()
            raise
        judge(exit_code, running.flow, rule, records_written)

    def start(self, feed: Iterable[Blob], *, drain: bool = False) -> RunningCommand:
        """Start the command; with `drain`, input that it leaves is still taken in."""
        workplace = self._workplace
        workplace.stage = self._stage
        directory, environment = workplace.surroundings()
        words = resolve_words(parse_command(self._program.command), workplace.shipped)
        with workplace.finding:
            argv = find_program(words, directory, workplace.search_path(environment))
        self._running = RunningCommand(
            argv,
            directory,
            environment,
            feed,
            stderr=self._ear(),
            watch=self._watch,
            drain=drain,
            join_delay_s=workplace.conf.join_delay_s,
        )
        return self._running
