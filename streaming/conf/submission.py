"""What options, a submission and a running task write as Hadoop's properties.

The twin of `streaming.conf.jobconf`, which reads them: programs find all of these in their
environment (spec 7.4). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mrstream.streaming import classes
from mrstream.streaming.conf.jobconf import NO_HADOOP_LOGGER, JobConf, setting_name

# Which of the `-as` of a command line a map's input is of, counted from 0.
INPUT_INDEX = "mrstream.input.index"
_STREAMING = "org.apache.hadoop.streaming."
_PIPES = {
    "mapper": _STREAMING + "PipeMapper",
    "combiner": _STREAMING + "PipeCombiner",
    "reducer": _STREAMING + "PipeReducer",
}
_IO_CLASSES = {
    "text": "Text",
    "rawbytes": "RawBytes",
    "typedbytes": "TypedBytes",
    "keyonlytext": "KeyOnlyText",
}


class OptionProperties:
    """Writes what options say as the properties that Hadoop keeps it in.

    These values beat any that the job was given by name.
    """

    def __init__(self, conf: JobConf) -> None:
        self.conf = conf

    def set(self, attribute: str, value: str) -> None:
        """A setting of ours, by its name in `JobConf`."""
        self.conf.set(setting_name(attribute), value)

    def set_reduces(self, reduces: int) -> None:
        """`-numReduceTasks N`, and 0 for `-reducer NONE`."""
        self.conf.set("mapreduce.job.reduces", str(reduces))

    def set_input_format(self, name: str) -> None:
        """`-inputformat CLASS`."""
        for setting, value in self.input_format(name).items():
            self.conf.set(setting, value)

    @staticmethod
    def input_format(name: str) -> dict[str, str]:
        """What `-inputformat CLASS` means, as properties."""
        return {"mapred.input.format.class": name}

    def set_record_reader(self, name: str, options: Mapping[str, str]) -> None:
        """`-inputreader CLASS,k=v`."""
        self.conf.set("stream.recordreader.class", name)
        for key, value in options.items():
            self.conf.set(f"stream.recordreader.{key}", value)

    def set_output_format(self, name: str) -> None:
        """`-outputformat CLASS`."""
        self.conf.set("mapred.output.format.class", name)

    def make_output_lazy(self) -> None:
        """`-lazyOutput`: the lazy format around the one that the job has."""
        inner = self.conf.output_format_class
        self.conf.set("mapreduce.output.lazyoutputformat.outputformat", inner)
        self.conf.set("mapred.output.format.class", classes.LAZY_OUTPUT)

    def set_partitioner(self, name: str) -> None:
        """`-partitioner CLASS`."""
        self.conf.set("mapred.partitioner.class", name)

    def set_io(self, identifier: str) -> None:
        """`-io NAME`: all four directions."""
        for side in ("map.input", "map.output", "reduce.input", "reduce.output"):
            self.conf.set(f"stream.{side}", identifier)

    def sort_values(self) -> None:
        """`mrstream.sort.values`: the whole line is sorted, and the key alone says where it goes;
        with `mrstream.partition.by=value` what stands behind the key says it."""
        conf = self.conf
        fields = conf.map_output_key_fields
        by_value = conf.partition_by == "value"
        separator = conf.map_output_separator.decode("utf-8", "surrogateescape")
        for name, value in {
            "stream.map.output": "keyonlytext",
            "stream.reduce.input": "keyonlytext",
            "mapred.partitioner.class": classes.KEY_FIELD_PARTITIONER,
            "mapreduce.partition.keypartitioner.options": (
                f"-k{fields + 1}" if by_value else f"-k1,{fields}"
            ),
            "mapreduce.map.output.key.field.separator": separator,
            "mrstream.partition.by": "key",
        }.items():
            conf.set(name, value)

    def set_output_dir(self, path: str) -> None:
        """`-output PATH`."""
        self.conf.set("mapreduce.output.fileoutputformat.outputdir", path)

    def set_debug_scripts(self, mapper: str | None, reducer: str | None) -> None:
        """`-mapdebug` and `-reducedebug`, which nothing runs."""
        self.conf.set("mapreduce.map.debug.script", mapper or "")
        self.conf.set("mapreduce.reduce.debug.script", reducer or "")

    def set_environment(self, cmdenv: Sequence[str]) -> None:
        """`-cmdenv NAME=VALUE`, all of them, behind the one that Hadoop adds itself."""
        self.conf.set("stream.addenvironment", " ".join([NO_HADOOP_LOGGER, *cmdenv]))

    def set_places(self, *, filesystem: str | None, tracker: str | None) -> None:
        """`-fs URI` and `-jt local|HOST:PORT`."""
        if filesystem is not None:
            local = filesystem == "local"
            self.conf.set("fs.defaultFS", "file:///" if local else filesystem)
        if tracker == "local":
            self.conf.set("mapreduce.framework.name", "local")
        if tracker is not None:
            self.conf.set("yarn.resourcemanager.address", tracker)

    def set_programs(
        self, *, mapper: tuple[str, str], combiner: tuple[str, str], reducer: tuple[str, str]
    ) -> None:
        """The (command, class) of each program, and the record classes that follow from them."""
        for kind, stage, (command, builtin) in (
            ("map", "mapper", mapper),
            ("combine", "combiner", combiner),
            ("reduce", "reducer", reducer),
        ):
            self.conf.set(f"stream.{kind}.streamprocessor", command)
            self.conf.set(f"mapred.{stage}.class", _PIPES[stage] if command else builtin)
        if mapper[0]:
            self.conf.set("mapred.map.runner.class", _STREAMING + "PipeMapRunner")
        self._set_record_classes(mapper[0], reducer[0])

    def set_saw_program(self, program: str, name: str) -> None:
        """The text of a Sawzall program in base64, and the file that it is from."""
        self.conf.set("mrstream.saw.program", program)
        self.conf.set("mrstream.saw.name", name)

    def set_saw_ways(self, *, ignore_undefs: bool, zone: str) -> None:
        """`--ignore_undefs` and `--timezone`."""
        self.conf.set("mrstream.saw.ignore.undefs", str(ignore_undefs).lower())
        self.conf.set("mrstream.saw.timezone", zone)

    def set_saw_records(self, *, are_states: bool) -> None:
        """What a Sawzall mapper gives: states, bytes all the way into shards, or lines of text."""
        kind = classes.BYTES_WRITABLE if are_states else classes.TEXT
        for part in ("map.output.key", "map.output.value", "job.output.key", "job.output.value"):
            self.conf.set(f"mapreduce.{part}.class", kind)
        if are_states:
            self.set_output_format(classes.SEQUENCE_FILE_OUTPUT)

    def _set_record_classes(self, mapper: str, reducer: str) -> None:
        """The classes of records follow from the commands, and from how they speak."""
        conf = self.conf
        if mapper or conf.is_given("stream.map.output"):
            key, value = _RECORD_CLASSES[conf.map_output_identifier]
            conf.set("mapreduce.map.output.key.class", key)
            conf.set("mapreduce.map.output.value.class", value)
            if conf.reduces == 0:
                self._set_output_classes(conf.map_output_identifier)
        if conf.reduces and (reducer or conf.is_given("stream.reduce.output")):
            self._set_output_classes(conf.reduce_output_identifier)
        for side in ("map", "reduce"):
            reads = _IO_CLASSES[getattr(conf, f"{side}_input_identifier")]
            writes = _IO_CLASSES[getattr(conf, f"{side}_output_identifier")]
            conf.set(f"stream.{side}.input.writer.class", f"{_STREAMING}io.{reads}InputWriter")
            conf.set(f"stream.{side}.output.reader.class", f"{_STREAMING}io.{writes}OutputReader")

    def _set_output_classes(self, identifier: str) -> None:
        key, value = _RECORD_CLASSES[identifier]
        self.conf.set("mapreduce.job.output.key.class", key)
        self.conf.set("mapreduce.job.output.value.class", value)


_RECORD_CLASSES = {
    "text": (classes.TEXT, classes.TEXT),
    "rawbytes": (classes.BYTES_WRITABLE, classes.BYTES_WRITABLE),
    "typedbytes": (classes.TYPED_BYTES_WRITABLE, classes.TYPED_BYTES_WRITABLE),
    "keyonlytext": (classes.TEXT, classes.NULL_WRITABLE),
}


def job_properties(
    given: Mapping[str, str],
    *,
    job_name: str,
    user: str,
    host: str,
    working_directory: str,
    inputs: Sequence[str],
    output: str,
    files: int,
    maps: int,
) -> dict[str, str]:
    """Return the given properties with what submitting a job adds to them; paths are qualified.

    `job_name` is for a job that was given none, `files` the number of its input files, `maps`
    that of its splits.
    """
    escaped = (path.replace("\\", "\\\\").replace(",", "\\,") for path in inputs)
    return {
        "mapreduce.job.name": job_name,
        **given,
        "mapreduce.job.user.name": user,
        "mapreduce.job.submithostname": host,
        "mapreduce.job.submithostaddress": host,
        "mapreduce.job.working.dir": working_directory,
        "mapreduce.input.fileinputformat.inputdir": ",".join(escaped),
        "mapreduce.input.fileinputformat.numinputfiles": str(files),
        "mapreduce.output.fileoutputformat.outputdir": output,
        "mapreduce.job.maps": str(maps),
        "mapreduce.client.genericoptionsparser.used": "true",
        "mapred.mapper.new-api": "false",
        "mapred.reducer.new-api": "false",
        "mapred.queue.default.acl-administer-jobs": "*",
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
    is_local: bool = False,
    input_file: str | None = None,
    input_start: int = 0,
    input_length: int = 0,
    skipping: bool = False,
) -> dict[str, str]:
    """Return the properties that a task sets itself: programs see them under old names too.

    `output_dir` is the attempt's own output directory; `input_file` is for maps only.
    `is_local`: the job runs without a cluster, where Hadoop's tasks set a little else.
    """
    properties = {
        "mapreduce.job.id": job_id,
        "mapreduce.task.id": task_id,
        "mapreduce.task.attempt.id": attempt_id,
        "mapreduce.task.ismap": "true" if is_map else "false",
        "mapreduce.task.partition": str(partition),
        "mapreduce.task.output.dir": output_dir,
        "mapreduce.cluster.local.dir": local_dir,
        "mapreduce.job.skiprecords": "true" if skipping else "false",
    }
    if is_local:
        properties["mapreduce.job.user.name"] = user
    else:
        properties["mapreduce.job.local.dir"] = local_dir
    if not is_map:
        properties["mapreduce.job.maps"] = str(maps)
        if is_local:
            properties["mapreduce.jobtracker.address"] = "local"
    elif input_file is not None:
        properties["mapreduce.map.input.file"] = input_file
        properties["mapreduce.map.input.start"] = str(input_start)
        properties["mapreduce.map.input.length"] = str(input_length)
    return properties
