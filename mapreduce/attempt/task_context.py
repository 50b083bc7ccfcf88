"""What every attempt has around it: order, working directory, programs, log, counters, watch.

Takes a job and an order; gives the stages what they need of both, and says which commands are to be
run (`mapreduce.program` runs them). Never moves a record itself.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, Protocol

import msgspec

from mrstream.mapreduce.attempt import in_environment
from mrstream.mapreduce.attempt.attempt_report import AttemptNews, Message
from mrstream.mapreduce.attempt.task_log import ECHO_BYTES_MAX, TaskLog
from mrstream.mapreduce.dataflow.files import Files, RoutedFiles, join, local_path, scheme_of
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.counters import Counters
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.program.command import Command, Workplace
from mrstream.mapreduce.program.flow import InputRange
from mrstream.mapreduce.program.pump import StderrSink, take_largest_program_bytes
from mrstream.mapreduce.program.watch import AttemptWatch
from mrstream.mapreduce.scheduler.ids import LOCAL_JOB, TaskKind, parse_attempt_id
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.conf.properties import from_wire
from mrstream.streaming.conf.submission import task_properties


class AttemptOrder(msgspec.Struct, frozen=True):
    """Which task to try, and where to read and write."""

    attempt_id: str
    maps: int
    """How many maps the job has."""
    directory: str
    """The attempt's own directory on this disk; whoever gave the order removes it."""
    cache: str
    """Unpacked archives and fetched files, shared by the attempts of a job on this host."""
    log_directory: str
    filesystem: str = "file:///"
    split: Split | None = None
    segments: tuple[str, ...] = ()
    """Of a reduce: the segment files of all maps, in map order."""
    segment_partition: int | None = None
    """Where in each of them the input lies, if not at the reduce's own number."""
    segment_path: str = ""
    """Of a map: where its segment goes; empty if the job has no reduces."""
    output_directory: str = ""
    """URL of the attempt's output directory, if it has final output."""
    keep_directory: str = ""
    """Where to keep the input if the attempt fails; empty: do not."""
    replay: str = ""
    """Of a map that is repeated: the file with the bytes that its command was given."""
    sort_bytes: int = 0
    """Memory for sorting, if it shall not be what the job's settings say."""

    @property
    def is_map(self) -> bool:
        return parse_attempt_id(self.attempt_id).task_id.kind is TaskKind.MAP

    @property
    def is_local(self) -> bool:
        """Whether the job runs on one machine, without a cluster."""
        return parse_attempt_id(self.attempt_id).task_id.job_id.startswith(LOCAL_JOB)

    @property
    def task_index(self) -> int:
        """The number of the task in the whole job, which is the number of its part file.

        A map's is that of its split: where `-tasks` runs a part of a job on a cluster, tasks are
        counted anew.
        """
        if self.split is not None:
            return self.split.index
        return parse_attempt_id(self.attempt_id).task_id.task_index


Tell = Callable[[Message], None]


class Source(msgspec.Struct, frozen=True):
    """A sorted run of a reduce's input: the partition of one map, or of several merged."""

    run: Callable[[], Iterator[bytes | memoryview]]
    """Gives the run's blocks, from its start each time."""
    maps: int
    records: int
    length: int
    """Bytes as they were stored or sent."""
    raw_bytes: int
    hadoop_bytes: int


class Shuffle(Protocol):
    """Brings a reduce its input from elsewhere."""

    def gather(self) -> list[Source]:
        """Wait until all is here; return the runs in map order."""

    def progress(self) -> tuple[float, int, int]:
        """The share of maps that are done with, records and bytes so far."""


class Attempt:
    """The surroundings of one attempt: its directory, programs, log, counters and watch."""

    def __init__(
        self,
        spec: JobSpec,
        order: AttemptOrder,
        tell: Tell,
        lifeline: int | None = None,
        *,
        echo_bytes_max: int = ECHO_BYTES_MAX,
    ) -> None:
        if order.split is not None:
            spec = spec.of_source(order.split.source)
        self.spec = spec
        self.order = order
        self.conf: JobConf = spec.conf()
        self.files: Files = RoutedFiles(order.filesystem, spec.working_directory)
        self.counters = Counters()
        self.tell = tell
        os.makedirs(order.log_directory, mode=0o700, exist_ok=True)
        self.log = TaskLog(
            os.path.join(order.log_directory, "stderr"),
            tell,
            prefix=self.conf.reporter_prefix,
            user_counters_max=self.conf.counters_max,
            echo_bytes_max=echo_bytes_max,
        )
        self.watch = AttemptWatch(order.attempt_id, self.timeout_s, lifeline)
        self.progress: Callable[[], tuple[float, int, int]] = lambda: (0.0, 0, 0)
        self.phase = "map" if order.is_map else "reduce"
        self.input_range: Callable[[], InputRange | None] = lambda: None
        self.keep_input: Callable[[str], None] = lambda directory: None
        self.shuffle: Shuffle | None = None
        """Where a reduce's input comes from; None: from the segment files of the order."""
        self.tee: Callable[[memoryview], object] | None = None
        """Also gets what the map or reduce command writes, as it writes it."""
        self.began_cpu_s = used_cpu_s()
        """CPU time of this process before the attempt: it may have run others."""
        self.workplace = Workplace(
            order.directory,
            self.conf,
            spec.shipped,
            self._task_properties(),
            {**_inherited(self.conf.extras, spec.environment), **self._outputs_variable()},
            cache=order.cache,
            fetch=self._fetch,
        )

    @property
    def outputs_directory(self) -> str:
        """Where programs write outputs with names, if the job has any."""
        return os.path.join(self.order.directory, "outputs")

    def _outputs_variable(self) -> dict[str, str]:
        if not self.conf.outputs:
            return {}
        os.makedirs(self.outputs_directory, exist_ok=True)
        return {"MRSTREAM_OUTPUTS": self.outputs_directory}

    def command(
        self, program: Program, stage: str, ear: Callable[[], StderrSink] | None = None
    ) -> Command:
        """Return a command of this attempt; the log hears it unless another ear is given."""
        return Command(program, stage, self.workplace, ear=ear or self.log.ear, watch=self.watch)

    def overheard(self, collect: Callable[[memoryview], None]) -> Callable[[memoryview], None]:
        """Return a function that collects, and lets `tee` see it too if there is one."""
        tee = self.tee
        if tee is None:
            return collect

        def both(data: memoryview) -> None:
            tee(data)
            collect(data)

        return both

    def skips(self, allowed: int) -> bool:
        """Whether this attempt looks for bad records: the job allows it, others have failed."""
        number = parse_attempt_id(self.order.attempt_id).number
        return allowed > 0 and number >= self.conf.skip_start_attempts

    def program_of(self, stage: str) -> Program | None:
        spec = self.spec
        return {"map": spec.mapper, "combine": spec.combiner, "reduce": spec.reducer}.get(stage)

    def memory_limit(self) -> tuple[int, str]:
        """Return what the attempt's processes may hold together (0: no limit), and who says so."""
        conf = self.conf
        if self.order.is_map:
            return conf.map_memory_bytes, setting_name("map_memory_bytes")
        return conf.reduce_memory_bytes, setting_name("reduce_memory_bytes")

    @property
    def timeout_s(self) -> float:
        """How long programs may be silent, 0 for ever: as in Hadoop's local mode so on one machine,
        unless the job asks for a limit."""
        if self.order.is_local and not self.conf.is_given_setting("task_timeout_s"):
            return 0.0
        return self.conf.task_timeout_s

    @property
    def scratch(self) -> str:
        """Where merges and spills may leave files for a while."""
        path = os.path.join(self.order.directory, "scratch")
        os.makedirs(path, exist_ok=True)
        return path

    def create_output(self, name: str) -> BinaryIO:
        """Make a file of the attempt's output directory."""
        return self.files.create(join(self.order.output_directory, name))

    def report(self) -> None:
        fraction, records, bytes_done = self.progress()
        self.tell(
            AttemptNews(
                self.order.attempt_id,
                min(1.0, max(0.0, fraction)),
                records,
                bytes_done,
                self.phase,
                self.log.status,
                self.log.user_counters(),
            )
        )

    def all_counters(self) -> dict[str, dict[str, int]]:
        total = Counters(self.counters.as_dict(), user_counters_max=self.conf.counters_max)
        total.add_all(self.log.user_counters())
        return total.as_dict()

    def _fetch(self, url: str, path: str) -> None:
        with self.files.open(self.files.qualify(url)) as source, open(path, "wb") as target:
            while data := source.read(1 << 20):
                target.write(data)

    def _task_properties(self) -> dict[str, str]:
        order = self.order
        attempt = parse_attempt_id(order.attempt_id)
        piece = order.split.pieces[0] if order.split and order.split.pieces else None
        output = order.output_directory
        return task_properties(
            job_id=attempt.task_id.job_id,
            task_id=str(attempt.task_id),
            attempt_id=order.attempt_id,
            is_map=order.is_map,
            partition=order.task_index,
            maps=order.maps,
            output_dir=local_path(output) if output.startswith("file:") else output,
            local_dir=order.directory,
            user=self.spec.user,
            is_local=order.is_local,
            input_file=piece.url if piece else None,
            input_start=piece.start if piece else 0,
            input_length=piece.length if piece else 0,
            skipping=self.skips(
                self.conf.map_skip_records_max if order.is_map else self.conf.reduce_skip_groups_max
            ),
        )


def _inherited(extras: Sequence[str], chosen: Environment | None) -> Mapping[str, str]:
    """Return the environment that commands begin with: ours, and which Python has mrstream; a job
    that needs extras finds the Python that has them first, one with a Python environment that."""
    environment = {**os.environ, "MRSTREAM_PYTHON": sys.executable}
    path = os.environ.get("PATH", os.defpath)
    if extras:
        path = f"{os.path.dirname(sys.executable)}{os.pathsep}{path}"
    if chosen is not None:
        root = from_wire(chosen.path)
        path = f"{os.path.join(root, 'bin')}{os.pathsep}{path}"
        # What the daemon's own Python was told is not for another one.
        for name in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"):
            environment.pop(name, None)
        environment["CONDA_PREFIX" if chosen.brings_python else "VIRTUAL_ENV"] = root
        environment |= in_environment.variables(os.path.join(root, "bin", "python"))
    if extras or chosen is not None:
        environment["PATH"] = path
    return environment


def used_cpu_s() -> float:
    """Return the CPU time of this process and of the programs that it has waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    programs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + programs.ru_utime + programs.ru_stime


def count_resources(attempt: Attempt) -> None:
    """Count CPU time and the memory of the largest process, when the work is done.

    Not the sum: a program's peak begins with the pages that it had of us before its exec.
    """
    own_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory_bytes = max(own_bytes, take_largest_program_bytes())
    attempt.counters.framework(c.CPU_MS, int((used_cpu_s() - attempt.began_cpu_s) * 1000))
    attempt.counters.framework(c.PHYSICAL_MEMORY_BYTES, memory_bytes)
    peak = c.PEAK_MAP_MEMORY_BYTES if attempt.order.is_map else c.PEAK_REDUCE_MEMORY_BYTES
    attempt.counters.framework(peak, memory_bytes)


def count_file_bytes(
    counters: Counters, url: str, *, read_bytes: int = 0, written_bytes: int = 0
) -> None:
    """Count bytes of a file system, named as Hadoop names it (`FILE:`, `DFS:`)."""
    name = (scheme_of(url) or "file").upper()
    counters.add(c.FILE_SYSTEM, f"{name}: Number of bytes read", read_bytes)
    counters.add(c.FILE_SYSTEM, f"{name}: Number of bytes written", written_bytes)


def count_output(attempt: Attempt, written_bytes: int) -> None:
    """Count the bytes of final output."""
    attempt.counters.add(c.FILE_OUTPUT, c.BYTES_WRITTEN, written_bytes)
    count_file_bytes(attempt.counters, attempt.order.output_directory, written_bytes=written_bytes)
