"""`Job`: what to run on what, in Python; it becomes the words of a `mrstream` command line.

Takes functions, commands and settings; gives words, and a `Result` when it is run. Knows nothing
that the command line cannot say.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mrstream.api import codecs
from mrstream.api.codecs import Codec, codec_of
from mrstream.api.functions import LINK, Functions, keep, pack, stage_of, takes_pairs
from mrstream.api.layout import FIELD_END, Layout
from mrstream.api.source import is_source, name_of
from mrstream.streaming.command import options as command_options
from mrstream.streaming.command.command import NO_REDUCER, command_of
from mrstream.streaming.conf.jobconf import setting_name

if TYPE_CHECKING:
    from mrstream.api.result import Result

Path = str | os.PathLike[str]
Source = Any
"""An object, or a class, with `splits()` and `records(split)`."""
Program = Any
"""A command (text), a function, or a class or object with `map`/`reduce`, `setup` and `close`."""


class Job:
    """A MapReduce job.

    >>> import mrstream as mr
    >>> def words(line):
    ...     for word in line.split():
    ...         yield word, 1
    >>> def total(word, counts):
    ...     yield word, sum(counts)
    >>> job = mr.Job(input="/logs", mapper=words, combiner=total, reducer=total, reduces=4)
    >>> for word, count in job.run():
    ...     print(word, count)

    It runs where the `mrstream` command would run it: on the current cluster, or on this machine
    if there is none.

    `input` is a path, several of them, or an object that gives the records itself: `splits()` gives
    what there is to read, values that JSON can hold, and `records(split)`, called in the map of a
    split, its lines, or pairs if the mapper takes pairs; the same ones each time.

    `mapper`, `combiner` and `reducer` are commands, run as on the command line, or Python:

    * a mapper takes a line of text, or, if it has two parameters, a key and a value, and yields
      records (or returns a list of them, or None);
    * a combiner and a reducer take a key and an iterator over its values, and yield records;
    * a class instead of a function has `map` or `reduce`, and may have `setup()` and `close()`,
      which may yield records too: one object is made for each task.

    A record is a pair `(key, value)`; the last function may also yield values that are no pairs.
    Between functions, and in the output, records are lines of `codec`: `mr.json` (the default
    between functions), `mr.text` (the default beside commands), `mr.pickle`, `mr.raw` or a pair of
    functions. `reads` is the codec of the input, for mappers of two parameters; `writes` that of
    the output. Keys are grouped, and by default sorted, as their bytes.

    `partition(key, reduces)` chooses the reduce of a key; `sort_key(key)` gives what keys are
    sorted by; `sort_values` sorts the values of a key, by themselves if it is True, else by
    `sort_values(value)`.

    `D` are properties, `cmdenv` variables of the programs' environment, `files` and `archives`
    travel with the job, `options` are more words of the command line, such as
    `["-inputformat", "…"]`. `env` is the Python environment of functions and programs: a
    requirements.txt, a pyproject.toml, the directory of a virtual environment, or an archive
    (conda-pack, pex); it is built once, here, and sent to each host once.
    `engine` runs it elsewhere: `"ray"`, `"ray://HOST"`, `"spark"`; `"hadoop"` if it has no
    functions.
    """

    def __init__(
        self,
        input: Path | Iterable[Path] | Source,
        *,
        mapper: Program = None,
        combiner: Program = None,
        reducer: Program = None,
        output: Path | None = None,
        reduces: int | None = None,
        codec: Codec | tuple[Any, Any] | None = None,
        reads: Codec | tuple[Any, Any] | None = None,
        writes: Codec | tuple[Any, Any] | None = None,
        partition: Callable[[Any, int], int] | None = None,
        sort_key: Callable[[Any], Any] | None = None,
        sort_values: bool | Callable[[Any], Any] = False,
        name: str | None = None,
        D: Mapping[str, object] | None = None,
        env: Path | None = None,
        cmdenv: Mapping[str, str] | None = None,
        files: Iterable[Path] = (),
        archives: Iterable[Path] = (),
        options: Sequence[str] = (),
        cluster: str | None = None,
        engine: str | None = None,
        local: bool = False,
    ) -> None:
        self.source = input if is_source(input) else None
        self.inputs = [name_of(input)] if is_source(input) else _paths(input)
        self.output = None if output is None else os.fspath(output)
        self.mapper, self.combiner, self.reducer = mapper, combiner, reducer
        self.reduces = reduces
        self.name = name
        self.cluster = cluster
        self.codec = codec_of(codec) if codec is not None else self._codec()
        self.layout = Layout(self.codec, partition, sort_key, sort_values)
        pairs = is_function(mapper) and (reads is not None or takes_pairs(mapper))
        self.reads = codec_of(reads if reads is not None else self.codec) if pairs else None
        self.writes = codec_of(writes) if writes is not None else self._result_codec()
        self._more = [*_setting_words(D or {}), *_environment_words(env, cmdenv or {})]
        self._files = [os.fspath(path) for path in files]
        self._archives = [os.fspath(path) for path in archives]
        self._options = [*options, *(["-jt", "local"] if local else [])]
        self._options += ["-engine", engine] if engine is not None else []
        self._check()

    def __repr__(self) -> str:
        stages = {"mapper": self.mapper, "combiner": self.combiner, "reducer": self.reducer}
        shown = [f"{role}={_name_of(given)}" for role, given in stages.items() if given is not None]
        return f"Job({', '.join([repr(','.join(self.inputs)), *shown])})"

    def run(self, *, progress: bool | None = None, fence: tuple[str, int] | None = None) -> Result:
        """Run the job to its end and give its result; `JobFailed` if it fails.

        `progress` says whether to show how far it is; by default it is shown on a terminal and in
        a notebook. An interrupt (Ctrl-C, the notebook's stop) kills the job. With `fence`, that of
        a held lock (`held.fence`), it changes nothing in the dfs once the lock has a later holder,
        and fails.
        """
        return self.submit(fence=fence).wait(progress=progress)

    def submit(self, *, fence: tuple[str, int] | None = None) -> Result:
        """Start the job and give its result, which is yet to come. The job ends with this Python
        if it is not over by then."""
        from mrstream.api.files import is_here
        from mrstream.api.result import Result

        words = self.words()
        # A mistake is told here, before anything starts.
        command = command_of(command_options.parse(words))
        return Result(
            words,
            self.writes,
            cluster=command.cluster,
            output=self.output,
            is_here=is_here(command),
            engine=command.conf.engine,
            environment=None if fence is None else _fenced_environment(fence),
        )

    def words(self) -> list[str]:
        """Return the words of the command line that is this job, and keep its functions in the
        state directory for as long as failed jobs are kept."""
        files = list(self._files)
        if any(map(is_function, (self.mapper, self.combiner, self.reducer, self.source))):
            files.append(f"{keep(pack(self.functions()))}#{LINK}")
        words: list[str] = []
        for path in self.inputs:
            words += ["-input", path]
        if self.source is not None:
            words += ["-inputformat", f"program:{child_command('source', sys.executable)}"]
        words += ["-output", self.output] if self.output is not None else []
        words += self._program_words()
        words += ["-numReduceTasks", str(self.reduces)] if self.reduces is not None else []
        words += ["-files", ",".join(files)] if files else []
        words += ["-archives", ",".join(self._archives)] if self._archives else []
        words += [] if self.name is None else ["-D", f"{setting_name('job_name')}={self.name}"]
        words += [] if self.cluster is None else ["-cluster", self.cluster]
        return [*words, *self._layout_words(), *self._more, *self._options]

    def functions(self) -> Functions:
        """Return what travels to the tasks."""
        return Functions(
            mapper=self.mapper if is_function(self.mapper) else None,
            combiner=self.combiner if is_function(self.combiner) else None,
            reducer=self.reducer if is_function(self.reducer) else None,
            layout=self.layout,
            reads=self.reads,
            writes=self.writes,
            is_map_only=self.reducer is None,
            only_pairs=self.combiner is not None,
            source=self.source,
            keeps_bytes=(self.writes if self.reducer is None else self.codec) is not codecs.json,
        )

    # --- what was not said

    def _codec(self) -> Codec:
        """JSON where functions speak to functions, text where a command takes part."""
        parts = [self.mapper] if self.reducer is None else [self.mapper, self.reducer]
        parts += [self.combiner] if self.combiner is not None else []
        return codecs.json if all(map(is_function, parts)) else codecs.text

    def _result_codec(self) -> Codec:
        last = self.mapper if self.reducer is None else self.reducer
        return self.codec if is_function(last) else codecs.text

    def _check(self) -> None:
        for given, method in (
            (self.mapper, "map"), (self.combiner, "reduce"), (self.reducer, "reduce"),
        ):  # fmt: skip
            if is_function(given) and not isinstance(given, type):
                stage_of(given, method)
        if self.source is not None and "-inputformat" in self._options:
            raise ValueError("an input with splits() and records() is its own -inputformat")
        if self.reducer is None and (self.combiner is not None or self.reduces):
            raise ValueError("a job without a reducer has no combiner and no reduces")
        if not self.layout.is_plain:
            if not is_function(self.mapper) or not is_function(self.reducer):
                raise ValueError(
                    "partition, sort_key and sort_values are for jobs whose mapper and reducer are "
                    "Python functions; for commands there are -partitioner and comparators"
                )
            if self.combiner is not None and not is_function(self.combiner):
                raise ValueError("with partition, sort_key or sort_values a combiner is a function")

    # --- words

    def _program_words(self) -> list[str]:
        words = []
        stages = (("map", self.mapper), ("combine", self.combiner), ("reduce", self.reducer))
        for stage, given in stages:
            option = {"map": "-mapper", "combine": "-combiner", "reduce": "-reducer"}[stage]
            if given is not None:
                words += [option, child_command(stage) if is_function(given) else str(given)]
        return words if self.reducer is not None else [*words, "-reducer", NO_REDUCER]

    def _layout_words(self) -> list[str]:
        words = []
        if self._writes_whole_lines and "-outputformat" not in self._options:
            stage = "map" if self.reducer is None else "reduce"
            words += ["-D", f"{setting_name(f'{stage}_output_identifier')}=keyonlytext"]
        layout = self.layout
        if not layout.is_plain:
            separator = f"{setting_name('key_field_separator')}={FIELD_END.decode()}"
            options = f"{setting_name('partitioner_options')}=-k1,{layout.partition_fields}"
            words += ["-D", separator, "-D", options, "-partitioner", "KeyFieldBasedPartitioner"]
        return words

    @property
    def _writes_whole_lines(self) -> bool:
        """Whether the output has the very lines of the last function. With a combiner it cannot:
        the framework takes its lines and the reducer's apart in one way, at the first tab."""
        last = self.mapper if self.reducer is None else self.reducer
        return is_function(last) and self.combiner is None


def is_function(given: Program) -> bool:
    """Whether a program is Python, not a command."""
    return given is not None and not isinstance(given, str)


def child_command(stage: str, python: str = "") -> str:
    """Return the command that runs the function of a stage: by the Python that runs the tasks, or
    by that of the job's environment, which needs a file to find mrstream; outside a task by
    `python`. Words behind the command go to the child."""
    own = f"${{MRSTREAM_PYTHON:-{python}}}" if python else "$MRSTREAM_PYTHON"
    python = f'"${{MRSTREAM_ENV_PYTHON:-{own}}}" -P ${{MRSTREAM_RUN:+"$MRSTREAM_RUN"}}'
    words = ' "$0" "$@"' if stage == "source" else ""
    return f"sh -c 'exec {python} -m mrstream.api.child -{stage}{words}'"


def _paths(given: Path | Iterable[Path]) -> list[str]:
    paths = [given] if isinstance(given, str | os.PathLike) else list(given)
    if not paths:
        raise ValueError("a job needs an input: a path, or several")
    return [os.fspath(path) for path in paths]


def _setting_words(settings: Mapping[str, object]) -> list[str]:
    words = []
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += ["-D", f"{name}={text}"]
    return words


def _environment_words(env: Path | None, variables: Mapping[str, str]) -> list[str]:
    if isinstance(env, Mapping):
        raise TypeError("env is the job's Python environment; variables are cmdenv={…}")
    words = [] if env is None else ["-env", os.fspath(env)]
    return words + [w for name, value in variables.items() for w in ("-cmdenv", f"{name}={value}")]


def _fenced_environment(fence: tuple[str, int]) -> dict[str, str]:
    """Return that of a command which works under a lock, and under those held around it."""
    from mrstream.dfs.client.fence import SEQUENCER, fences_of_environment, format_fences, within

    fences = within((fence,), fences_of_environment())
    return {**os.environ, SEQUENCER: format_fences(fences)}


def _name_of(given: Program) -> str:
    return repr(given) if isinstance(given, str) else getattr(given, "__qualname__", repr(given))
