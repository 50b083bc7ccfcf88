"""Hadoop as an engine: our kinder command line becomes strict words of `mapred streaming`.

Takes what was said and how it was understood; gives the words that mean the same to Hadoop (generic
options first, full class names, every file that a command names shipped) and runs Hadoop's own
client with them, whose lines, counters and exit status are then the job's. Gives results back by
Hadoop's client, too: it alone knows where its paths are. What only mrstream has is refused by name.
Never runs a task itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

from mrstream.cluster.errors import UserError
from mrstream.cluster.terminal import show
from mrstream.mapreduce.engine.choice import BadEngine, EngineChoice
from mrstream.mapreduce.interrupts import exit_status, interruptible
from mrstream.streaming import classes
from mrstream.streaming.command.command import NO_REDUCER, Program, StreamingCommand
from mrstream.streaming.command.options import Options
from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.conf.properties import current_name, from_wire
from mrstream.streaming.task.shipping import Shipped, local_path

COMMAND = "mapred"
FILES_COMMAND = "hadoop"
KILL_S_MAX = 20.0
"""As long Hadoop may take to be told that a job is to end."""
READ_BYTES = 1 << 20
_OURS = "mrstream."
_OWN_SCRIPT = b"mrstream.mapreduce.hadoop_commands"
_LOOKED_AT_BYTES = 4096
# Options whose values go as they are; those of `_flags` have none.
_PLAIN = ("cmdenv", "io", "mapdebug", "reducedebug")
_FLAGS = ("lazyOutput", "background", "verbose", "debug")
_FUNCTIONS = "mrstream.api.child"
# The first of the two comes before the job is submitted.
_JOB = re.compile(rb"INFO .*(?:Submitting tokens for|Running) job: (job_\w+)")


class OnlyOurs(BadEngine):
    """The job uses something that Hadoop does not have."""


class NoHadoop(BadEngine):
    """There is no Hadoop where it was looked for."""


def run(said: Options, command: StreamingCommand, choice: EngineChoice) -> int:
    """Run the job with Hadoop's own client; return its exit status. Whoever interrupts us ends the
    job there: of itself Hadoop's client would leave it running."""
    program = program_of(choice)
    words = [program, "streaming", *words_of(said, command)]
    with interruptible():
        # In a group of its own: Ctrl-C is for us, who need the client's last words.
        client = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
        )
        told = _Told(client)
        try:
            told.pass_on()
            return client.wait()
        except KeyboardInterrupt as stop:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            client.terminate()
            try:
                client.wait(KILL_S_MAX)
            except subprocess.TimeoutExpired:
                client.kill()
            told.pass_on()
            _kill(program, told.job_id)
            return exit_status(stop)


class _Told:
    """What Hadoop's client says: passed on, and read for the id of the job."""

    def __init__(self, client: subprocess.Popen[bytes]) -> None:
        assert client.stderr is not None
        self._lines = client.stderr
        self.job_id = ""

    def pass_on(self) -> None:
        for line in self._lines:
            show(sys.stderr, line)
            if found := _JOB.search(line):
                self.job_id = found[1].decode()


def _kill(program: str, job_id: str) -> None:
    """Have Hadoop end a job; without an id it has not begun, and ends with its client."""
    if not job_id:
        return
    words = [program, "job", "-kill", job_id]
    try:
        told = subprocess.run(words, capture_output=True, timeout=KILL_S_MAX, check=False)
        said = told.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = said if told.returncode else ""
    except subprocess.TimeoutExpired:
        why = f"no answer in {KILL_S_MAX:.0f} s"
    if why:
        print(f"{job_id} may still run there ({why}): mapred job -kill {job_id}", file=sys.stderr)


def output_of(choice: EngineChoice, directory: str) -> Iterator[bytes]:
    """Yield the bytes of a job's parts, in the order of their names, unpacked, as Hadoop's client
    shows them."""
    program = os.path.join(os.path.dirname(program_of(choice)), FILES_COMMAND)
    if not os.access(program, os.X_OK):
        raise NoHadoop(
            f"-engine {choice}: {program} is no program, and only Hadoop can read {directory}"
        )
    words = [program, "fs", "-text", f"{directory.rstrip('/')}/part-*"]
    with (
        tempfile.TemporaryFile() as told,
        subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told
        ) as client,
    ):
        assert client.stdout is not None
        yield from iter(partial(client.stdout.read, READ_BYTES), b"")
        if client.wait():
            told.seek(0)
            lines = told.read().decode("utf-8", "replace").strip().splitlines()
            # Behind an exception stand the places that it came through.
            said = [line for line in lines if not line.startswith("\tat ")]
            raise UserError(f"{directory} cannot be read: {said[-1] if said else 'no reason'}")


def program_of(choice: EngineChoice) -> str:
    """Find Hadoop's `mapred`: below the directory that was named, $HADOOP_HOME, or on PATH."""
    home = choice.address or os.environ.get("HADOOP_HOME", "")
    path = os.path.join(home, "bin", COMMAND) if home else shutil.which(COMMAND)
    if path is None or not os.access(path, os.X_OK):
        where = f"{path} is no program" if path else f"there is no `{COMMAND}` on PATH"
        raise NoHadoop(f"-engine {choice}: {where}; set HADOOP_HOME, or write hadoop:DIRECTORY")
    with open(path, "rb") as script:
        if _OWN_SCRIPT in script.read(_LOOKED_AT_BYTES):
            raise NoHadoop(
                f"-engine {choice}: {path} was written by `mrstream hadoop-commands` and runs "
                "mrstream; set HADOOP_HOME, or write hadoop:DIRECTORY"
            )
    return path


def words_of(said: Options, command: StreamingCommand) -> list[str]:
    """Return the words of `mapred streaming` for a job, or `OnlyOurs`."""
    _refuse_ours(said, command)
    return [*_generic(said, command), *_streaming(said, command)]


def _generic(said: Options, command: StreamingCommand) -> Iterator[str]:
    for path in (*said.all("conf"), *said.all("additionalconfspec")):
        yield from ("-conf", path)
    if not command.conf.is_given_setting("maps_hint"):
        # Of a tiny file Hadoop's own hint would make two maps, and ours makes one.
        yield from ("-D", f"{setting_name('maps_hint')}={command.conf.maps_hint}")
    for pair in (*said.all("D"), *said.all("jobconf")):
        name, equals, _ = pair.partition("=")
        if equals and current_name(name) != setting_name("engine"):
            yield from ("-D", pair)
    for option, given in (
        ("-fs", said.first("fs") or said.first("dfs")),
        ("-jt", said.first("jt")),
    ):
        if given is not None:
            yield from (option, "file:///" if option == "-fs" and given == "local" else given)
    for option, is_archive in (("-files", False), ("-archives", True)):
        places = [_place(item) for item in command.shipped if item.archive is is_archive]
        if places:
            yield from (option, ",".join(places))


def _streaming(said: Options, command: StreamingCommand) -> Iterator[str]:
    conf = command.conf
    for value in said.all("input"):
        yield from ("-input", value)
    assert command.output is not None, "a job without one is refused"
    yield from ("-output", from_wire(command.output))
    yield from ("-mapper", _program(command.mapper))
    if command.combiner is not None and said.first("combiner") is not None:
        yield from ("-combiner", _program(command.combiner))
    yield from ("-reducer", _reducer(said, command))
    if conf.reduces and said.first("numReduceTasks") is not None:
        yield from ("-numReduceTasks", str(conf.reduces))
    for option, name in (
        ("partitioner", conf.partitioner_class),
        ("inputformat", conf.input_format_class),
        ("outputformat", conf.output_format_class),
    ):
        if said.first(option) is not None:
            yield from (f"-{option}", name)
    if (reader := said.first("inputreader")) is not None:
        yield from ("-inputreader", reader)
    for option in _PLAIN:
        for value in said.all(option):
            yield from (f"-{option}", value)
    yield from (f"-{flag}" for flag in _FLAGS if flag in said.flags)


def _reducer(said: Options, command: StreamingCommand) -> str:
    given = said.first("reducer")
    if command.reducer is None:
        return NO_REDUCER
    if given is not None and given.lower() == "aggregate":
        return given  # the word brings its combiner with it; the class does not
    return _program(command.reducer)


def _program(program: Program) -> str:
    return from_wire(program.command) if program.command else program.builtin


def _place(item: Shipped) -> str:
    """Return a file to ship as Hadoop's list has it."""
    source = from_wire(item.source)
    path = local_path(source)
    link = from_wire(item.link)
    if path is not None:
        source = f"file://{os.path.abspath(path)}"
    place = source if "#" in source else f"{source}#{link}"
    if "," in place:
        raise OnlyOurs(f"-engine hadoop: {source} has a comma in its name, which ends it in a list")
    return place


def _refuse_ours(said: Options, command: StreamingCommand) -> None:
    for what in _only_ours(said, command):
        raise OnlyOurs(f"-engine hadoop: {what}, which only mrstream has; leave it out there")


def _only_ours(said: Options, command: StreamingCommand) -> Iterator[str]:
    if command.output is None:
        yield "the job has no -output: its results would go to standard output"
    for option in ("as", "tasks", "env", "overwrite", "quiet"):
        if option in said.uses:
            yield f"the job uses -{option}"
    for pair in (*said.all("D"), *said.all("jobconf")):
        name = pair.partition("=")[0]
        if name.startswith(_OURS) and name != setting_name("engine"):
            yield f"the job sets {name}"
    for name in _own_formats(command.conf):
        yield f"the job uses the format {name}"
    for program in (command.mapper, command.combiner, command.reducer):
        if program is not None and _FUNCTIONS in program.command:
            yield "the job runs Python functions of the library"
        if program is not None and program.builtin == classes.SAW:
            yield "the job runs a Sawzall program"


def _own_formats(conf: JobConf) -> Iterator[str]:
    """Yield the formats that have no Java class."""
    for name in (conf.input_format_class, conf.output_format_class):
        if "." not in name.partition(":")[0]:
            yield name
