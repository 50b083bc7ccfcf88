"""A job's settings, typed. Reads what `submission` writes: no other module asks for
Hadoop's properties by name.

Takes the properties of `streaming.conf.properties`; gives numbers, booleans, byte
separators and the specs of partitioner and comparator. Cheap to build, and as
`to_dict` fit for the wire. Never reads a file of the user's and never runs anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from mrstream.streaming import classes
from mrstream.streaming.conf import setting
from mrstream.streaming.conf.properties import Properties, current_name, from_wire, to_wire
from mrstream.streaming.conf.setting import Setting
from mrstream.streaming.records.comparator import (
    BYTE_ORDER,
    ComparatorSpec,
    KeySerial,
    LongOrder,
    key_field_order,
)
from mrstream.streaming.records.csv_dialect import Dialect
from mrstream.streaming.records.key_value import KeyValueRule, rule
from mrstream.streaming.records.partitioner import (
    BinaryPartition,
    HashPartition,
    KeyPartitionerSpec,
    LongHashPartition,
    TotalOrderPartition,
    key_field_partition,
)

LINE_BYTES_MAX = 2**31 - 1
COUNT_MAX = 2**63 - 1
# Hadoop's first word of the environment: a program may itself call hadoop, which logs elsewhere.
NO_HADOOP_LOGGER = "HADOOP_ROOT_LOGGER="


_CLASSES_OF_ANY_JOB = {
    "mapreduce.input.pathFilter.class": "pathfilter",
    "stream.io.identifier.resolver.class": "resolver",
}
_CLASSES_OF_REDUCES = {
    "mapreduce.job.output.key.comparator.class": "comparator",
    "mapreduce.job.output.group.comparator.class": "comparator",
}
_CLASSES_OF_PARTITIONS = {"mapred.partitioner.class": "partitioner"}

_KEY_SERIALS = {
    classes.TEXT: KeySerial.TEXT,
    classes.BYTES_WRITABLE: KeySerial.BYTES,
    classes.TYPED_BYTES_WRITABLE: KeySerial.BYTES,
}


def _class_of(role: str) -> Callable[[str, str], str]:
    """Read a class name; a simple or new-API name becomes the full old one, others stay."""

    def read(value: str, name: str) -> str:
        return classes.canonical(value.strip(), role) or value.strip()

    return read


class JobConf(Properties):
    """The settings of one job: `conf.reduces`, `conf.map_output_rule`, …"""

    __slots__ = ()

    # --- the job
    job_name = Setting("mapreduce.job.name", setting.text)
    reduces = Setting("mapreduce.job.reduces", setting.whole)
    # Hadoop's hint is 2; of 1 a tiny file becomes one task, and that is what people expect.
    maps_hint = Setting("mapreduce.job.maps", setting.whole, ours="1")
    maps_max = Setting("mapreduce.job.max.map", setting.whole, "-1")
    framework = Setting("mapreduce.framework.name", setting.trimmed)
    default_filesystem = Setting("fs.defaultFS", setting.trimmed)
    local_dir = Setting("mapreduce.cluster.local.dir", setting.optional_text, ours="")
    extras = Setting("mrstream.job.extras", setting.extra_names)
    engine = Setting("mrstream.engine", setting.trimmed, "")

    # --- input
    input_format_class = Setting(
        "mapred.input.format.class", _class_of("inputformat"), classes.TEXT_INPUT
    )
    input_recursive = Setting(
        "mapreduce.input.fileinputformat.input.dir.recursive", setting.true_or(False)
    )
    input_ignore_subdirs = Setting(
        "mapreduce.input.fileinputformat.input.dir.nonrecursive.ignore.subdirs",
        setting.true_or(False),
    )
    split_bytes_min = Setting("mapreduce.input.fileinputformat.split.minsize", setting.whole, "0")
    split_bytes_max = Setting("mapreduce.input.fileinputformat.split.maxsize", setting.whole, "0")
    split_bytes_min_host = Setting(
        "mapreduce.input.fileinputformat.split.minsize.per.node", setting.whole, "0"
    )
    split_bytes_min_rack = Setting(
        "mapreduce.input.fileinputformat.split.minsize.per.rack", setting.whole, "0"
    )
    local_block_bytes = Setting("fs.local.block.size", setting.optional_whole)
    lines_per_map = Setting("mapreduce.input.lineinputformat.linespermap", setting.whole, "1")
    line_bytes_max = Setting(
        "mapreduce.input.linerecordreader.line.maxlength", setting.whole, str(LINE_BYTES_MAX)
    )
    record_bytes = Setting("fixedlengthinputformat.record.length", setting.whole, "0")
    key_filter_class = Setting(
        "mapreduce.input.sequencefileinputfilter.class",
        _class_of("keyfilter"),
        f"{classes.SEQUENCE_FILE_FILTER}$PercentFilter",
    )
    key_filter_frequency = Setting(
        "mapreduce.input.sequencefileinputfilter.frequency", setting.whole, "10"
    )
    key_filter_regex = Setting(
        "mapreduce.input.sequencefileinputfilter.regex", setting.optional_text
    )
    record_delimiter = Setting("textinputformat.record.delimiter", setting.optional_bytes)
    key_value_input_separator = Setting(
        "mapreduce.input.keyvaluelinerecordreader.key.value.separator", setting.separator
    )
    record_reader_class = Setting("stream.recordreader.class", setting.optional_text)
    input_columns = Setting("mrstream.input.columns", setting.words)
    input_where = Setting("mrstream.input.where", setting.text)
    input_lines = Setting("mrstream.input.lines", setting.one_of("json", "tsv"), "json")
    input_borders = Setting("mrstream.input.borders", setting.one_of("auto", "exact"), "auto")
    proto_descriptors = Setting("mrstream.proto.descriptors", setting.text)
    csv_header = Setting("mrstream.csv.header", setting.true_or(True))
    csv_delimiter = Setting("mrstream.csv.delimiter", setting.one_byte, ",")
    csv_quote = Setting("mrstream.csv.quote", setting.one_byte_or_none, '"')
    csv_encoding = Setting("mrstream.csv.encoding", setting.byte_encoding, "utf-8")

    # --- what goes to and comes from commands
    map_input_identifier = Setting("stream.map.input", setting.identifier)
    map_output_identifier = Setting("stream.map.output", setting.identifier)
    reduce_input_identifier = Setting("stream.reduce.input", setting.identifier)
    reduce_output_identifier = Setting("stream.reduce.output", setting.identifier)
    map_input_ignore_key = Setting("stream.map.input.ignoreKey", setting.optional_bool)
    map_input_separator = Setting("stream.map.input.field.separator", setting.separator)
    map_output_separator = Setting("stream.map.output.field.separator", setting.separator)
    map_output_key_fields = Setting("stream.num.map.output.key.fields", setting.whole, "1")
    reduce_input_separator = Setting("stream.reduce.input.field.separator", setting.separator)
    reduce_output_separator = Setting("stream.reduce.output.field.separator", setting.separator)
    reduce_output_key_fields = Setting("stream.num.reduce.output.key.fields", setting.whole, "1")

    # --- commands
    map_concurrency = Setting("mrstream.map.concurrency", setting.whole, "1")
    nonzero_exit_is_failure = Setting("stream.non.zero.exit.is.failure", setting.true_or(True))
    skip_after_records = Setting("stream.minRecWrittenToEnableSkip_", setting.optional_count)
    environment_value_length_max = Setting("stream.jobconf.truncate.limit", setting.whole, "-1")
    join_delay_s = Setting("stream.joindelay.milli", setting.milliseconds, "0")
    reporter_prefix = Setting("stream.stderr.reporter.prefix", setting.byte_string, "reporter:")

    # --- partition and sort
    partitioner_class = Setting(
        "mapred.partitioner.class", _class_of("partitioner"), classes.HASH_PARTITIONER
    )
    partitioner_options = Setting("mapreduce.partition.keypartitioner.options", setting.text)
    partitioner_fields_count = Setting("num.key.fields.for.partition", setting.optional_whole)
    binary_partition_left = Setting(
        "mapreduce.partition.binarypartitioner.left.offset", setting.whole, "0"
    )
    binary_partition_right = Setting(
        "mapreduce.partition.binarypartitioner.right.offset", setting.whole, "-1"
    )
    partition_by = Setting("mrstream.partition.by", setting.one_of("key", "value"), "key")
    sort_values = Setting("mrstream.sort.values", setting.true_or(False))
    total_order_path = Setting(
        "mapreduce.totalorderpartitioner.path", setting.text, "_partition.lst"
    )
    total_order_by_bytes = Setting(
        "mapreduce.totalorderpartitioner.naturalorder", setting.true_or(True)
    )
    comparator_class = Setting("mapreduce.job.output.key.comparator.class", _class_of("comparator"))
    comparator_options = Setting("mapreduce.partition.keycomparator.options", setting.text)
    key_field_separator = Setting("mapreduce.map.output.key.field.separator", setting.separator)

    # --- memory and intermediate data
    io_sort_bytes = Setting("mapreduce.task.io.sort.mb", setting.mebibytes)
    io_sort_factor = Setting("mapreduce.task.io.sort.factor", setting.whole)
    combine_spills_min = Setting("mapreduce.map.combine.minspills", setting.whole, "3")
    map_output_compress = Setting("mapreduce.map.output.compress", setting.true_or(False))
    map_output_codec_class = Setting("mapreduce.map.output.compress.codec", _class_of("codec"))
    shuffle_parallel_copies = Setting("mapreduce.reduce.shuffle.parallelcopies", setting.whole)

    # --- attempts
    local_maps_max = Setting("mapreduce.local.map.tasks.maximum", setting.optional_whole)
    local_reduces_max = Setting("mapreduce.local.reduce.tasks.maximum", setting.optional_whole)
    running_maps_max = Setting("mapreduce.job.running.map.limit", setting.whole, "0")
    running_reduces_max = Setting("mapreduce.job.running.reduce.limit", setting.whole, "0")
    # Unless given, as many as fit the mode: one on one machine, Hadoop's four on a cluster.
    map_attempts_max = Setting("mapreduce.map.maxattempts", setting.optional_whole, ours="")
    reduce_attempts_max = Setting("mapreduce.reduce.maxattempts", setting.optional_whole, ours="")
    map_failures_percent = Setting("mapreduce.map.failures.maxpercent", setting.whole, "0")
    reduce_failures_percent = Setting("mapreduce.reduce.failures.maxpercent", setting.whole, "0")
    task_timeout_s = Setting("mapreduce.task.timeout", setting.milliseconds)
    map_speculative = Setting("mapreduce.map.speculative", setting.true_or(True))
    reduce_speculative = Setting("mapreduce.reduce.speculative", setting.true_or(True))
    slowstart = Setting("mapreduce.job.reduce.slowstart.completedmaps", setting.decimal)
    map_skip_records_max = Setting("mapreduce.map.skip.maxrecords", setting.whole)
    reduce_skip_groups_max = Setting("mapreduce.reduce.skip.maxgroups", setting.whole)
    skip_start_attempts = Setting("mapreduce.task.skip.start.attempts", setting.whole)
    skip_output = Setting("mapreduce.job.skip.outdir", setting.optional_text)
    counters_max = Setting("mapreduce.job.counters.max", setting.whole)
    priority = Setting("mapreduce.job.priority", setting.priority, "NORMAL")
    map_memory_bytes = Setting("mapreduce.map.memory.mb", setting.memory_limit)
    reduce_memory_bytes = Setting("mapreduce.reduce.memory.mb", setting.memory_limit)
    workers_max = Setting("mrstream.job.workers.max", setting.whole, "0")

    # --- output
    declared_output_format_class = Setting(
        "mapred.output.format.class", _class_of("outputformat"), classes.TEXT_OUTPUT
    )
    lazy_output_format_class = Setting(
        "mapreduce.output.lazyoutputformat.outputformat",
        _class_of("outputformat"),
        classes.TEXT_OUTPUT,
    )
    output_separator = Setting("mapreduce.output.textoutputformat.separator", setting.separator)
    output_compress = Setting("mapreduce.output.fileoutputformat.compress", setting.true_or(False))
    output_codec_class = Setting(
        "mapreduce.output.fileoutputformat.compress.codec", _class_of("codec")
    )
    output_compression_type = Setting(
        "mapreduce.output.fileoutputformat.compress.type", setting.trimmed
    )
    output_key_class = Setting(
        "mapreduce.job.output.key.class", setting.trimmed, classes.LONG_WRITABLE
    )
    output_value_class = Setting("mapreduce.job.output.value.class", setting.trimmed, classes.TEXT)
    outputs = Setting("mrstream.outputs", setting.named_formats)
    output_schema = Setting("mrstream.output.schema", setting.text)
    overwrites_output = Setting("mrstream.output.overwrite", setting.true_or(False))
    output_rejects = Setting("mrstream.output.rejects", setting.percent, "0")
    map_file_interval = Setting("io.map.index.interval", setting.whole)
    trailing_legs = Setting("mapred.outputformat.numOfTrailingLegs", setting.whole, "0")
    output_replication = Setting("dfs.replication", setting.optional_count)
    """Copies of each chunk of output; none: as many as the directory or the cluster has."""
    committer_version = Setting("mapreduce.fileoutputcommitter.algorithm.version", setting.whole)
    mark_success = Setting(
        "mapreduce.fileoutputcommitter.marksuccessfuljobs", setting.true_or(True)
    )

    # --- built-ins
    regex = Setting("mapreduce.mapper.regex", setting.text)
    regex_group = Setting("mapreduce.mapper.regexmapper..group", setting.whole, "0")
    field_separator = Setting("mapreduce.fieldsel.data.field.separator", setting.text, "\t")
    map_fields_spec = Setting(
        "mapreduce.fieldsel.map.output.key.value.fields.spec", setting.text, "0-:"
    )
    reduce_fields_spec = Setting(
        "mapreduce.fieldsel.reduce.output.key.value.fields.spec", setting.text, "0-:"
    )
    aggregate_descriptors = Setting("mapreduce.aggregate.descriptor.num", setting.whole, "0")
    unique_values_max = Setting("aggregate.max.num.unique.values", setting.whole, str(COUNT_MAX))

    saw_program = Setting("mrstream.saw.program", setting.text, "")
    """The text of a Sawzall program in base64: its `${` are its own."""
    saw_name = Setting("mrstream.saw.name", setting.text, "program.szl")
    saw_protos = Setting("mrstream.saw.protos", setting.text, "")
    """What its `proto` files describe: descriptors by file, in base64."""
    saw_ignore_undefs = Setting("mrstream.saw.ignore.undefs", setting.true_or(False))
    saw_zone = Setting("mrstream.saw.timezone", setting.text, "UTC")

    # --- the console
    is_quiet = Setting("mrstream.console.quiet", setting.true_or(False))
    client_output_filter = Setting("mapreduce.client.output.filter", setting.trimmed)
    poll_interval_s = Setting("mapreduce.client.progressmonitor.pollinterval", setting.milliseconds)

    @classmethod
    def from_dict(cls, properties: Mapping[str, str]) -> JobConf:
        """Return the settings that `to_dict` gave."""
        return cls({name: from_wire(value) for name, value in properties.items()})

    def to_dict(self) -> dict[str, str]:
        """Return what the job was given, as text that any wire format takes."""
        return {name: to_wire(value) for name, value in self.given().items()}

    def is_given_setting(self, attribute: str) -> bool:
        """Whether the job itself was given a setting."""
        return self.is_given(setting_name(attribute))

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
    def binary_output_classes(self) -> tuple[str, str]:
        """The classes that stand in the header of a SequenceFileAsBinaryOutputFormat's file."""
        key = self.get("mapreduce.output.seqbinaryoutputformat.key.class")
        value = self.get("mapreduce.output.seqbinaryoutputformat.value.class")
        return (key or self.output_key_class).strip(), (value or self.output_value_class).strip()

    def aggregate_descriptor(self, index: int) -> str:
        """Return one of the descriptors of ValueAggregatorMapper: `UserDefined,CLASS`."""
        return (self.get(f"mapreduce.aggregate.descriptor.{index}") or "").strip()

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

    def of_named_output(self, name: str, kind: str) -> JobConf:
        """Return the settings for an output with a name: its own format, schema and codec. What has
        no format is compressed only if its own codec says so."""
        schema = self.get(f"mrstream.outputs.{name}.schema") or ""
        own = {"mrstream.output.schema": to_wire(schema)}
        if kind:
            own["mapred.output.format.class"] = kind
        codec = self.get(f"mrstream.outputs.{name}.codec") or ("" if kind else "none")
        if codec:
            own["mapreduce.output.fileoutputformat.compress"] = str(codec != "none").lower()
        if codec not in ("", "none"):
            own["mapreduce.output.fileoutputformat.compress.codec"] = to_wire(codec)
        return JobConf.from_dict({**self.to_dict(), **own})

    @property
    def tmpdir(self) -> str:
        """Where Hadoop would pack the job's files, for the line that says so."""
        return self.get("stream.tmpdir") or "null"

    @property
    def tracker_address(self) -> str:
        """Where Hadoop 1 would submit the job, for the line that says so."""
        return self.get("mapreduce.jobtracker.address") or "null"

    @property
    def given_inputs(self) -> list[str]:
        """Input paths that stand in a property; those of `-input` are added to them."""
        listed = self.get("mapreduce.input.fileinputformat.inputdir") or ""
        paths = re.findall(r"(?:[^,\\]|\\.)+", listed, re.DOTALL)
        return [re.sub(r"\\([,\\])", r"\1", path) for path in paths]

    @property
    def added_environment(self) -> str:
        """The words NAME=VALUE of all `-cmdenv`, with blanks between them."""
        return self.get("stream.addenvironment") or NO_HADOOP_LOGGER

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
    def csv_dialect(self) -> Dialect:
        """How CSV is read and written."""
        return Dialect(self.csv_delimiter, self.csv_quote, self.csv_header, self.csv_encoding)

    @property
    def comparator_spec(self) -> ComparatorSpec:
        """In which order keys reach the reducers."""
        name = self.comparator_class
        if name == classes.KEY_FIELD_COMPARATOR:
            serial = _KEY_SERIALS.get(self.map_output_key_class, KeySerial.PLAIN)
            return key_field_order(self.comparator_options, self.key_field_separator, serial)
        if name == classes.LONG_DESCENDING:
            return LongOrder(reverse=True)
        if self.map_output_key_class in classes.INTEGER_WRITABLES:
            return LongOrder()
        return BYTE_ORDER

    @property
    def _order_of_cuts(self) -> ComparatorSpec:
        """How cut points are compared: keys as objects, not as KeyFieldBasedComparator sees their
        bytes. Natural order, which is by bytes, counts only where keys are bytes."""
        is_by_fields = self.comparator_class == classes.KEY_FIELD_COMPARATOR
        if self.map_output_key_class in classes.INTEGER_WRITABLES:
            return LongOrder() if is_by_fields else self.comparator_spec
        return BYTE_ORDER if self.total_order_by_bytes or is_by_fields else self.comparator_spec

    def partitioner_spec(self, cuts: Sequence[bytes] = ()) -> KeyPartitionerSpec:
        """To which reducer a key goes; `cuts` are the keys of `total_order_path`, if that is it."""
        match self.partitioner_class:
            case classes.KEY_FIELD_PARTITIONER:
                return key_field_partition(
                    self.partitioner_options,
                    self.key_field_separator,
                    fields_count=self.partitioner_fields_count,
                )
            case classes.TOTAL_ORDER_PARTITIONER:
                return TotalOrderPartition(tuple(cuts), self._order_of_cuts)
            case classes.BINARY_PARTITIONER:
                return BinaryPartition(self.binary_partition_left, self.binary_partition_right)
        if self.map_output_key_class in classes.INTEGER_WRITABLES:
            return LongHashPartition()
        return HashPartition()

    def unknown_classes(self) -> Iterator[tuple[str, str, str]]:
        """Yield (property, class, role) of the Java classes that the job would use and we lack."""
        roles = dict(_CLASSES_OF_ANY_JOB)
        if self.reduces > 0:
            roles |= _CLASSES_OF_REDUCES
        if self.reduces > 1:
            roles |= _CLASSES_OF_PARTITIONS
        for name, role in roles.items():
            given = (self.get(name) or "").strip()
            if given and classes.canonical(given, role) is None:
                yield name, given, role

    def class_of(self, stage: str) -> str | None:
        """Return the class of a mapper, combiner or reducer that stands in a property."""
        return self.get(f"mapred.{stage}.class")

    @property
    def is_total_order(self) -> bool:
        """Whether `partitioner_spec` wants the cut points of `total_order_path`."""
        return self.partitioner_class == classes.TOTAL_ORDER_PARTITIONER


def settings() -> Iterator[tuple[str, Setting[object]]]:
    """Yield (attribute, setting) of every property that mrstream itself honours."""
    for attribute, member in vars(JobConf).items():
        if isinstance(member, Setting):
            yield attribute, member


def setting_name(attribute: str) -> str:
    """Return the property behind an attribute, for messages and for writers of properties."""
    member = vars(JobConf)[attribute]
    assert isinstance(member, Setting)
    return current_name(member.name)
