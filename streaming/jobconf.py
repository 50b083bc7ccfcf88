"""A job's settings, typed. The only module that knows Hadoop's property names.

Takes the properties of `streaming.properties`; gives numbers, booleans, byte
separators and the specs of partitioner and comparator. Cheap to build, and as
`to_dict` fit for the wire. Never reads a file of the user's and never runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

from streaming import classes
from streaming.comparator import BYTE_ORDER, ComparatorSpec, LongOrder, key_field_order
from streaming.key_value import KeyValueRule, rule
from streaming.partitioner import (
    BinaryPartition,
    HashPartition,
    LongHashPartition,
    PartitionerSpec,
    TotalOrderPartition,
    key_field_partition,
)
from streaming.properties import (
    BadProperty,
    Properties,
    current_name,
    from_wire,
    to_wire,
)

T = TypeVar("T")

UNSET = ""  # a setting whose default is not text: absent means what its reader makes of this
LINE_BYTES_MAX = 2**31 - 1
COUNT_MAX = 2**63 - 1
SORT_BUFFER_MEBIBYTES_MAX = 2047
IO_IDENTIFIERS = ("text", "rawbytes", "typedbytes", "keyonlytext")


class Setting(Generic[T]):
    """One property with its type; reading it from a JobConf gives the value in force.

    `default` stands for a property that neither the job nor Hadoop's defaults have;
    `ours` replaces Hadoop's default where mrstream differs on purpose.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[str, str], T],
        default: str = UNSET,
        *,
        ours: str | None = None,
    ) -> None:
        self.name = name
        self._read = read
        self._default = default
        self._ours = ours

    @overload
    def __get__(self, conf: None, owner: type[JobConf]) -> Setting[T]: ...
    @overload
    def __get__(self, conf: JobConf, owner: type[JobConf]) -> T: ...
    def __get__(self, conf: JobConf | None, owner: type[JobConf]) -> T | Setting[T]:
        if conf is None:
            return self
        if self._ours is not None and not conf.is_given(self.name):
            return self._read(self._ours, self.name)
        value = conf.get(self.name)
        return self._read(self._default if value is None else value, self.name)


def _text(value: str, name: str) -> str:
    return value


def _trimmed(value: str, name: str) -> str:
    return value.strip()


def _optional_text(value: str, name: str) -> str | None:
    return value or None


def _bytes(value: str, name: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _separator(value: str, name: str) -> bytes:
    return value.encode("utf-8", "surrogateescape") or b"\t"


def _optional_bytes(value: str, name: str) -> bytes | None:
    return value.encode("utf-8", "surrogateescape") or None


def _whole(value: str, name: str) -> int:
    try:
        text = value.strip()
        return int(text, 16) if text[:2].lower() == "0x" else int(text)
    except ValueError:
        raise BadProperty(f"{name} is {value!r}; it must be a whole number") from None


def _optional_whole(value: str, name: str) -> int | None:
    return _whole(value, name) if value.strip() else None


def _optional_count(value: str, name: str) -> int | None:
    count = _optional_whole(value, name)
    return None if count is None or count < 0 else count


def _decimal(value: str, name: str) -> float:
    try:
        return float(value.strip().rstrip("fFdD"))
    except ValueError:
        raise BadProperty(f"{name} is {value!r}; it must be a number") from None


def _milliseconds(value: str, name: str) -> float:
    return _whole(value, name) / 1000


def _true_or(default: bool) -> Callable[[str, str], bool]:
    """Read a boolean; as with Hadoop, a word that is neither true nor false means the default."""

    def read(value: str, name: str) -> bool:
        return {"true": True, "false": False}.get(value.strip().lower(), default)

    return read


def _optional_bool(value: str, name: str) -> bool | None:
    return {"true": True, "false": False}.get(value.strip().lower())


def _identifier(value: str, name: str) -> str:
    word = value.strip().lower()
    return word if word in IO_IDENTIFIERS else "text"


def _sort_buffer_bytes(value: str, name: str) -> int:
    mebibytes = _whole(value, name)
    if not 0 < mebibytes <= SORT_BUFFER_MEBIBYTES_MAX:
        raise BadProperty(
            f'Invalid "{name}": {mebibytes}; it must be 1 to {SORT_BUFFER_MEBIBYTES_MAX}'
        )
    return mebibytes << 20


def _class_of(role: str) -> Callable[[str, str], str]:
    """Read a class name; a simple or new-API name becomes the full old one, others stay."""

    def read(value: str, name: str) -> str:
        return classes.canonical(value.strip(), role) or value.strip()

    return read


class JobConf(Properties):
    """The settings of one job: `conf.reduces`, `conf.map_output_rule`, …"""

    __slots__ = ()

    # ---- the job
    job_name = Setting("mapreduce.job.name", _text)
    reduces = Setting("mapreduce.job.reduces", _whole)
    # Hadoop's hint is 2; of 1 a tiny file becomes one task, and that is what people expect.
    maps_hint = Setting("mapreduce.job.maps", _whole, ours="1")
    maps_max = Setting("mapreduce.job.max.map", _whole, "-1")
    framework = Setting("mapreduce.framework.name", _trimmed)
    default_filesystem = Setting("fs.defaultFS", _trimmed)
    priority = Setting("mapreduce.job.priority", _trimmed, "NORMAL")
    queue = Setting("mapreduce.job.queuename", _trimmed)
    user_name = Setting("mapreduce.job.user.name", _text)
    working_directory = Setting("mapreduce.job.working.dir", _optional_text)
    local_dir = Setting("mapreduce.cluster.local.dir", _optional_text, ours="")

    # ---- input
    input_format_class = Setting(
        "mapred.input.format.class", _class_of("inputformat"), classes.TEXT_INPUT
    )
    input_recursive = Setting(
        "mapreduce.input.fileinputformat.input.dir.recursive", _true_or(False)
    )
    input_ignore_subdirs = Setting(
        "mapreduce.input.fileinputformat.input.dir.nonrecursive.ignore.subdirs", _true_or(False)
    )
    split_bytes_min = Setting("mapreduce.input.fileinputformat.split.minsize", _whole, "0")
    split_bytes_max = Setting("mapreduce.input.fileinputformat.split.maxsize", _whole, "0")
    local_block_bytes = Setting("fs.local.block.size", _optional_whole)
    lines_per_map = Setting("mapreduce.input.lineinputformat.linespermap", _whole, "1")
    line_bytes_max = Setting(
        "mapreduce.input.linerecordreader.line.maxlength", _whole, str(LINE_BYTES_MAX)
    )
    record_delimiter = Setting("textinputformat.record.delimiter", _optional_bytes)
    key_value_input_separator = Setting(
        "mapreduce.input.keyvaluelinerecordreader.key.value.separator", _separator
    )
    record_reader_class = Setting("stream.recordreader.class", _optional_text)

    # ---- what goes to and comes from commands
    map_input_identifier = Setting("stream.map.input", _identifier)
    map_output_identifier = Setting("stream.map.output", _identifier)
    reduce_input_identifier = Setting("stream.reduce.input", _identifier)
    reduce_output_identifier = Setting("stream.reduce.output", _identifier)
    map_input_ignore_key = Setting("stream.map.input.ignoreKey", _optional_bool)
    map_input_separator = Setting("stream.map.input.field.separator", _separator)
    map_output_separator = Setting("stream.map.output.field.separator", _separator)
    map_output_key_fields = Setting("stream.num.map.output.key.fields", _whole, "1")
    reduce_input_separator = Setting("stream.reduce.input.field.separator", _separator)
    reduce_output_separator = Setting("stream.reduce.output.field.separator", _separator)
    reduce_output_key_fields = Setting("stream.num.reduce.output.key.fields", _whole, "1")

    # ---- commands
    map_command = Setting("stream.map.streamprocessor", _optional_text)
    combine_command = Setting("stream.combine.streamprocessor", _optional_text)
    reduce_command = Setting("stream.reduce.streamprocessor", _optional_text)
    added_environment = Setting("stream.addenvironment", _text)
    nonzero_exit_is_failure = Setting("stream.non.zero.exit.is.failure", _true_or(True))
    skip_after_records = Setting("stream.minRecWrittenToEnableSkip_", _optional_count)
    environment_value_length_max = Setting("stream.jobconf.truncate.limit", _whole, "-1")
    join_delay_s = Setting("stream.joindelay.milli", _milliseconds, "0")
    reporter_prefix = Setting("stream.stderr.reporter.prefix", _bytes, "reporter:")
    tmp_dir = Setting("stream.tmpdir", _optional_text)

    # ---- partition and sort
    partitioner_class = Setting(
        "mapred.partitioner.class", _class_of("partitioner"), classes.HASH_PARTITIONER
    )
    partitioner_options = Setting("mapreduce.partition.keypartitioner.options", _text)
    partitioner_fields_count = Setting("num.key.fields.for.partition", _optional_whole)
    binary_partition_left = Setting(
        "mapreduce.partition.binarypartitioner.left.offset", _whole, "0"
    )
    binary_partition_right = Setting(
        "mapreduce.partition.binarypartitioner.right.offset", _whole, "-1"
    )
    total_order_path = Setting("mapreduce.totalorderpartitioner.path", _text, "_partition.lst")
    total_order_by_bytes = Setting("mapreduce.totalorderpartitioner.naturalorder", _true_or(True))
    comparator_class = Setting("mapreduce.job.output.key.comparator.class", _class_of("comparator"))
    comparator_options = Setting("mapreduce.partition.keycomparator.options", _text)
    group_comparator_class = Setting(
        "mapreduce.job.output.group.comparator.class", _class_of("comparator")
    )
    key_field_separator = Setting("mapreduce.map.output.key.field.separator", _separator)

    # ---- memory and intermediate data
    io_sort_bytes = Setting("mapreduce.task.io.sort.mb", _sort_buffer_bytes)
    io_sort_factor = Setting("mapreduce.task.io.sort.factor", _whole)
    io_sort_spill_fraction = Setting("mapreduce.map.sort.spill.percent", _decimal)
    combine_spills_min = Setting("mapreduce.map.combine.minspills", _whole, "3")
    map_output_compress = Setting("mapreduce.map.output.compress", _true_or(False))
    map_output_codec_class = Setting("mapreduce.map.output.compress.codec", _class_of("codec"))
    shuffle_parallel_copies = Setting("mapreduce.reduce.shuffle.parallelcopies", _whole)

    # ---- attempts
    local_maps_max = Setting("mapreduce.local.map.tasks.maximum", _optional_whole)
    local_reduces_max = Setting("mapreduce.local.reduce.tasks.maximum", _optional_whole)
    running_maps_max = Setting("mapreduce.job.running.map.limit", _whole, "0")
    running_reduces_max = Setting("mapreduce.job.running.reduce.limit", _whole, "0")
    # Unless given, as many as fit the mode: one on one machine, Hadoop's four on a cluster.
    map_attempts_max = Setting("mapreduce.map.maxattempts", _optional_whole, ours="")
    reduce_attempts_max = Setting("mapreduce.reduce.maxattempts", _optional_whole, ours="")
    map_failures_percent = Setting("mapreduce.map.failures.maxpercent", _whole, "0")
    reduce_failures_percent = Setting("mapreduce.reduce.failures.maxpercent", _whole, "0")
    task_timeout_s = Setting("mapreduce.task.timeout", _milliseconds)
    map_speculative = Setting("mapreduce.map.speculative", _true_or(True))
    reduce_speculative = Setting("mapreduce.reduce.speculative", _true_or(True))
    slowstart = Setting("mapreduce.job.reduce.slowstart.completedmaps", _decimal)
    map_skip_records_max = Setting("mapreduce.map.skip.maxrecords", _whole)
    reduce_skip_groups_max = Setting("mapreduce.reduce.skip.maxgroups", _whole)
    skip_start_attempts = Setting("mapreduce.task.skip.start.attempts", _whole)
    skip_output = Setting("mapreduce.job.skip.outdir", _optional_text)
    counters_max = Setting("mapreduce.job.counters.max", _whole)
    counter_groups_max = Setting("mapreduce.job.counters.groups.max", _whole, "50")
    counter_name_chars_max = Setting("mapreduce.job.counters.counter.name.max", _whole, "64")
    counter_group_chars_max = Setting("mapreduce.job.counters.group.name.max", _whole, "128")

    # ---- output
    declared_output_format_class = Setting(
        "mapred.output.format.class", _class_of("outputformat"), classes.TEXT_OUTPUT
    )
    lazy_output_format_class = Setting(
        "mapreduce.output.lazyoutputformat.outputformat",
        _class_of("outputformat"),
        classes.TEXT_OUTPUT,
    )
    output_dir = Setting("mapreduce.output.fileoutputformat.outputdir", _optional_text)
    output_separator = Setting("mapreduce.output.textoutputformat.separator", _separator)
    output_compress = Setting("mapreduce.output.fileoutputformat.compress", _true_or(False))
    output_codec_class = Setting(
        "mapreduce.output.fileoutputformat.compress.codec", _class_of("codec")
    )
    output_compression_type = Setting("mapreduce.output.fileoutputformat.compress.type", _trimmed)
    output_key_class = Setting("mapreduce.job.output.key.class", _trimmed, classes.LONG_WRITABLE)
    output_value_class = Setting("mapreduce.job.output.value.class", _trimmed, classes.TEXT)
    trailing_legs = Setting("mapred.outputformat.numOfTrailingLegs", _whole, "0")
    committer_version = Setting("mapreduce.fileoutputcommitter.algorithm.version", _whole)
    mark_success = Setting("mapreduce.fileoutputcommitter.marksuccessfuljobs", _true_or(True))

    # ---- built-ins
    regex = Setting("mapreduce.mapper.regex", _text)
    regex_group = Setting("mapreduce.mapper.regexmapper..group", _whole, "0")
    field_separator = Setting("mapreduce.fieldsel.data.field.separator", _text, "\t")
    map_fields_spec = Setting("mapreduce.fieldsel.map.output.key.value.fields.spec", _text, "0-:")
    reduce_fields_spec = Setting(
        "mapreduce.fieldsel.reduce.output.key.value.fields.spec", _text, "0-:"
    )
    unique_values_max = Setting("aggregate.max.num.unique.values", _whole, str(COUNT_MAX))

    # ---- the console
    client_output_filter = Setting("mapreduce.client.output.filter", _trimmed)
    poll_interval_s = Setting("mapreduce.client.progressmonitor.pollinterval", _milliseconds)

    @classmethod
    def from_dict(cls, properties: Mapping[str, str]) -> JobConf:
        """Return the settings that `to_dict` gave."""
        return cls({name: from_wire(value) for name, value in properties.items()})

    def to_dict(self) -> dict[str, str]:
        """Return what the job was given, as text that any wire format takes."""
        return {name: to_wire(value) for name, value in self.given().items()}

    @property
    def map_output_rule(self) -> KeyValueRule:
        """How a line of the mapper's output becomes key and value."""
        return rule(self.map_output_separator, self.map_output_key_fields)

    @property
    def reduce_output_rule(self) -> KeyValueRule:
        """How a line of the reducer's, and of the combiner's, output becomes key and value."""
        return rule(self.reduce_output_separator, self.reduce_output_key_fields)

    @property
    def map_output_key_class(self) -> str:
        """The declared class of intermediate keys: its own property, else the job's."""
        return (self.get("mapreduce.map.output.key.class") or self.output_key_class).strip()

    @property
    def map_output_value_class(self) -> str:
        """The declared class of intermediate values: its own property, else the job's."""
        return (self.get("mapreduce.map.output.value.class") or self.output_value_class).strip()

    @property
    def lazy_output(self) -> bool:
        """Whether a part file is made only when it has a first record."""
        return self.declared_output_format_class == classes.LAZY_OUTPUT

    @property
    def output_format_class(self) -> str:
        """The format of part files, also where they are made lazily."""
        if self.lazy_output:
            return self.lazy_output_format_class
        return self.declared_output_format_class

    @property
    def record_reader_options(self) -> dict[str, str]:
        """What stands behind the commas of `-inputreader CLASS,k=v`."""
        prefix = "stream.recordreader."
        return {
            name.removeprefix(prefix): value
            for name, value in self.items()
            if name.startswith(prefix) and name != "stream.recordreader.class"
        }

    @property
    def comparator_spec(self) -> ComparatorSpec:
        """In which order keys reach the reducers."""
        name = self.comparator_class
        if name == classes.KEY_FIELD_COMPARATOR:
            return key_field_order(self.comparator_options, self.key_field_separator)
        if name == classes.LONG_DESCENDING:
            return LongOrder(reverse=True)
        if self.map_output_key_class in classes.INTEGER_WRITABLES:
            return LongOrder()
        return BYTE_ORDER

    def partitioner_spec(self, cuts: Sequence[bytes] = ()) -> PartitionerSpec:
        """To which reducer a key goes; `cuts` are the keys of `total_order_path`, if that is it."""
        match self.partitioner_class:
            case classes.KEY_FIELD_PARTITIONER:
                return key_field_partition(
                    self.partitioner_options,
                    self.key_field_separator,
                    fields_count=self.partitioner_fields_count,
                )
            case classes.TOTAL_ORDER_PARTITIONER:
                natural = self.total_order_by_bytes and (
                    self.map_output_key_class not in classes.INTEGER_WRITABLES
                )
                return TotalOrderPartition(
                    tuple(cuts), BYTE_ORDER if natural else self.comparator_spec
                )
            case classes.BINARY_PARTITIONER:
                return BinaryPartition(self.binary_partition_left, self.binary_partition_right)
        if self.map_output_key_class in classes.INTEGER_WRITABLES:
            return LongHashPartition()
        return HashPartition()

    @property
    def is_total_order(self) -> bool:
        """Whether `partitioner_spec` wants the cut points of `total_order_path`."""
        return self.partitioner_class == classes.TOTAL_ORDER_PARTITIONER


def settings() -> Iterator[tuple[str, Setting[object]]]:
    """Give (attribute, setting) of every property that mrstream itself honours."""
    for attribute, member in vars(JobConf).items():
        if isinstance(member, Setting):
            yield attribute, member


def setting_name(attribute: str) -> str:
    """Return the property behind an attribute, for messages and for writers of properties."""
    member = vars(JobConf)[attribute]
    assert isinstance(member, Setting)
    return current_name(member.name)


def job_properties(
    *,
    job_id: str,
    job_name: str,
    user: str,
    host: str,
    working_directory: str,
    inputs: Sequence[str],
    output: str,
    maps: int,
) -> dict[str, str]:
    """Return what submitting a job adds to its properties; `maps` is the number of its splits."""
    return {
        "mapreduce.job.id": job_id,
        "mapreduce.job.name": job_name,
        "mapreduce.job.user.name": user,
        "mapreduce.job.submithostname": host,
        "mapreduce.job.working.dir": working_directory,
        "mapreduce.input.fileinputformat.inputdir": ",".join(inputs),
        "mapreduce.output.fileoutputformat.outputdir": output,
        "mapreduce.job.maps": str(maps),
    }


def task_properties(
    *,
    job_id: str,
    task_id: str,
    attempt_id: str,
    is_map: bool,
    partition: int,
    maps: int,
    output_dir: str,
    local_dir: str,
    user: str,
    input_file: str | None = None,
    input_start: int = 0,
    input_length: int = 0,
    skipping: bool = False,
) -> dict[str, str]:
    """Return the properties that a task sets itself: programs see them under old names too.

    `output_dir` is the attempt's own output directory; `input_file` is for maps only.
    """
    properties = {
        "mapreduce.job.id": job_id,
        "mapreduce.task.id": task_id,
        "mapreduce.task.attempt.id": attempt_id,
        "mapreduce.task.ismap": "true" if is_map else "false",
        "mapreduce.task.partition": str(partition),
        "mapreduce.task.output.dir": output_dir,
        "mapreduce.cluster.local.dir": local_dir,
        "mapreduce.job.local.dir": local_dir,
        "mapreduce.job.user.name": user,
        "mapreduce.job.skiprecords": "true" if skipping else "false",
    }
    if not is_map:
        properties["mapreduce.job.maps"] = str(maps)
    elif input_file is not None:
        properties["mapreduce.map.input.file"] = input_file
        properties["mapreduce.map.input.start"] = str(input_start)
        properties["mapreduce.map.input.length"] = str(input_length)
    return properties
