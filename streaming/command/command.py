"""A job as the command line states it, checked: settings, programs, files to ship.

Takes the `Options` that `streaming.command.options` cut out of the words; gives a
`StreamingCommand`. Reads configuration files and looks whether shipped files are
there; never opens an input, never makes anything, prints nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.streaming import classes
from mrstream.streaming.command import meant, options, saw_words
from mrstream.streaming.command.options import BadCommandLine, Options
from mrstream.streaming.command.shipment import Shipment
from mrstream.streaming.conf.configuration_file import read_configuration
from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.conf.properties import current_name, to_wire
from mrstream.streaming.conf.submission import OptionProperties
from mrstream.streaming.formats.codec import codec_by_class
from mrstream.streaming.formats.input_format import FILTERED, InputFormat
from mrstream.streaming.formats.output_format import OutputFormat
from mrstream.streaming.task.child import parse_command
from mrstream.streaming.task.shipping import Shipped, local_path

NO_REDUCER = "NONE"
AGGREGATE = "aggregate"
REDUCES_MAX = 100_000
_UNRESERVED = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-*_")


class RunsNoJava(UserError):
    """The job needs a Java class or jar that mrstream does not have."""


class InvalidJobConf(UserError):
    """Settings that do not go together, by Hadoop's own check of an output format."""

    exit_status: ClassVar[int] = 3


class Program(msgspec.Struct, frozen=True):
    """What a stage runs: a command line, or the built-in for a Java class name."""

    command: str = ""
    builtin: str = ""

    def __str__(self) -> str:
        return self.command or self.builtin


class InputSource(msgspec.Struct, frozen=True):
    """Inputs with a mapper and settings of their own (`-as`); the format is one of these."""

    inputs: tuple[str, ...]
    mapper: Program
    properties: dict[str, str] = {}


class StreamingCommand(msgspec.Struct, frozen=True):
    """One job, as it was asked for.

    `inputs` are cut at commas, with globs in place. `reducer` is None for a job of
    maps only. `force_local` says that the user asked for this machine, `cluster` names a
    cluster.yaml. `packed` are the words of `-file`. `warnings` and `notes` are lines for the log,
    `understood` those of `-verbose`.
    """

    conf: JobConf
    inputs: tuple[str, ...]
    output: str | None
    mapper: Program
    combiner: Program | None
    reducer: Program | None
    reduces: int
    shipped: tuple[Shipped, ...] = ()
    sources: tuple[InputSource, ...] = ()
    background: bool = False
    verbose: bool = False
    debug: bool = False
    tasks: str | None = None
    environment: str | None = None
    cluster: str | None = None
    force_local: bool = False
    packed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    understood: tuple[str, ...] = ()


def command_of(said: Options) -> StreamingCommand:
    """Return the job that the options ask for, or raise a UserError with Hadoop's message."""
    if said.left_over:
        words = ", ".join(said.left_over)
        raise BadCommandLine(
            f"Found {len(said.left_over)} unexpected arguments on the command line [{words}]"
        )
    if jars := said.first("libjars"):
        raise RunsNoJava(f"-libjars {jars}: mrstream runs no Java; write the classes as programs")
    shipment = Shipment()
    shipment.add_option_files(said)
    inputs = [path for value in said.all("input") for path in options.split_paths(value)]
    if not inputs:
        raise BadCommandLine("Required argument: -input <name>")
    conf = _configured(said)
    told = OptionProperties(conf)
    _set_formats(said, told)
    _set_plain_options(said, told)
    check_formats(told)
    if conf.outputs and said.first("output") is None:
        raise BadCommandLine(f"-D {setting_name('outputs')} needs -output: its files go there")
    _ship_input_program(conf, shipment)
    sources = _sources(said, conf, shipment)
    command = _with_programs(said, told, shipment)
    return msgspec.structs.replace(
        command,
        inputs=tuple(to_wire(path) for path in (*conf.given_inputs, *map(conf.expanded, inputs))),
        sources=(*sources, *_rest(said, conf, command.mapper)) if sources else (),
        warnings=(
            *options.warnings(said),
            *meant.misspelt_inputs(said),
            *meant.odd_settings(said),
            *shipment.warnings,
        ),
        notes=tuple(
            f"{old} is deprecated. Instead, use {new}" for old, new in conf.old_names_used()
        ),
        packed=tuple(said.all("file")),
        understood=tuple(_understood(said, shipment, conf)) if command.verbose else (),
    )


# --- properties, weakest first


def _configured(said: Options) -> JobConf:
    conf = JobConf()
    finals: set[str] = set()
    for path in (*said.all("conf"), *said.all("additionalconfspec")):
        for entry in read_configuration(path):
            name = current_name(entry.name)
            if name not in finals:
                conf.set(entry.name, entry.value)
            if entry.is_final:
                finals.add(name)
    for pair in said.all("D"):
        name, equals, value = pair.partition("=")
        if equals:  # a word without one is ignored, as on Hadoop
            conf.set(name, value)
    for pair in said.all("jobconf"):
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadCommandLine(f"-jobconf {pair} sets nothing; it must be NAME=VALUE")
        conf.set(name, value)
    return conf


# --- options that are properties in disguise


def _set_formats(said: Options, told: OptionProperties) -> None:
    # As on Hadoop a missing option overrides the -D property that it would have set.
    reader = said.first("inputreader")
    given = said.first("inputformat")
    input_format = classes.TEXT_INPUT if reader is None else classes.STREAM_INPUT
    if given is not None:
        named = _known_class(given, "inputformat", "-inputformat : class not found : ")
        takes_reader = (classes.KEY_VALUE_INPUT, classes.SEQUENCE_FILE_INPUT)
        if reader is None or named not in takes_reader:
            input_format = named
    told.set_input_format(input_format)
    if reader is not None:
        name, *settings = reader.split(",")
        told.set_record_reader(
            _known_class(name, "inputreader", "-inputreader: class not found: "),
            dict(setting.partition("=")[::2] for setting in settings),
        )
    output_format = classes.TEXT_OUTPUT
    if (given := said.first("outputformat")) is not None:
        output_format = _known_class(given, "outputformat", "-outputformat : class not found : ")
    told.set_output_format(output_format)
    if "lazyOutput" in said.flags:
        told.make_output_lazy()
    if (given := said.first("partitioner")) is not None:
        told.set_partitioner(
            _known_class(given, "partitioner", "-partitioner : class not found : ")
        )


def check_formats(told: OptionProperties) -> None:
    """Refuse settings of record formats that make no sense; files that they name are read here,
    for tasks do not have them."""
    conf = told.conf
    kind = InputFormat.by_class_name(conf.input_format_class)
    if kind is not None and kind.is_rows:
        from mrstream.streaming.formats.row_filter import parse_filter

        if parse_filter(conf.input_where) and kind not in FILTERED:
            raise BadCommandLine(
                f"-inputformat {kind.value} reads no row filter; parquet, arrow and avro do"
            )
        _ = conf.input_lines, conf.input_borders, conf.csv_dialect
        if kind is InputFormat.PROTO:
            _take_descriptors(told)
    for name, named in conf.outputs.items():
        own = conf.of_named_output(name, named)
        if named:
            _check_schema(OutputFormat(named), own)
        elif own.output_compress:
            codec_by_class(own.output_codec_class)
    output = OutputFormat.by_class_name(conf.output_format_class)
    by_record = conf.output_compress and conf.output_compression_type.upper() == "RECORD"
    if output is OutputFormat.SEQUENCE_FILE_AS_BINARY and by_record:
        raise InvalidJobConf(
            "Error launching job , Invalid job conf : "
            "SequenceFileAsBinaryOutputFormat doesn't support Record Compression"
        )
    if output is None or not output.is_rows:
        return
    schema = conf.output_schema
    if schema and ":" not in schema and not schema.lstrip().startswith("{"):
        told.set("output_schema", _content(schema, "the schema of the output"))
    _check_schema(output, conf)


def _check_schema(output: OutputFormat, conf: JobConf) -> None:
    from mrstream.streaming.formats.row_sinks import check_row_output  # few jobs have one

    check_row_output(output, conf)


def _ship_input_program(conf: JobConf, shipment: Shipment) -> None:
    """Ship what `-inputformat program:COMMAND` names: its maps run it where they are."""
    kind, _, command = conf.input_format_class.partition(":")
    if kind == InputFormat.PROGRAM.value:
        shipment.add_words(parse_command(command))


def _take_descriptors(told: OptionProperties) -> None:
    import base64

    _, _, rest = told.conf.input_format_class.partition(":")
    path, _, message = rest.rpartition(":")
    if not path or not message:
        raise BadCommandLine(f"-inputformat proto:{rest}; it must be proto:FILE.desc:MESSAGE")
    try:
        with open(path, "rb") as file:
            told.set("proto_descriptors", base64.b64encode(file.read()).decode())
    except OSError as error:
        raise BadCommandLine(f"-inputformat proto:{rest}: {error}") from None


def _content(path: str, what: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise BadCommandLine(f"{what} cannot be read from {path}: {error}") from None


def _sources(said: Options, conf: JobConf, shipment: Shipment) -> list[InputSource]:
    """Return the inputs that have a mapper of their own."""
    found = []
    done = 0
    for count, (word, *rest) in said.sources:
        paths = [p for value in said.all("input")[done:count] for p in options.split_paths(value)]
        if not paths:
            raise BadCommandLine(f"-as {word}: no -input stands before it")
        done = count
        mapper = _program(word, conf, "mapper", "", shipment)
        if mapper.builtin:
            raise BadCommandLine(f"-as {word} is built in; the mapper of an input is a command")
        properties = _source_properties(word, rest)
        told = OptionProperties(JobConf.from_dict(conf.to_dict() | properties))
        check_formats(told)
        _ship_input_program(told.conf, shipment)
        before = conf.to_dict()
        own = {n: value for n, value in told.conf.to_dict().items() if before.get(n) != value}
        found.append(
            InputSource(
                tuple(to_wire(conf.expanded(path)) for path in paths),
                _portable(_shipped(mapper, shipment)),
                own,
            )
        )
    return found


def _source_properties(mapper: str, words: list[str]) -> dict[str, str]:
    """Return the settings of `[FORMAT] [NAME=VALUE…]`; a name without a dot is one of
    `mrstream.input.`"""
    properties: dict[str, str] = {}
    if words and not re.match(r"[\w.-]+=", words[0]):
        name = _known_class(words.pop(0), "inputformat", "-as : class not found : ")
        properties |= OptionProperties.input_format(name)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadCommandLine(
                f"-as {mapper} … {word}: it must be a format first, then NAME=VALUE"
            )
        properties[current_name(name if "." in name else f"mrstream.input.{name}")] = value
    return properties


def _rest(said: Options, conf: JobConf, mapper: Program) -> list[InputSource]:
    """Return the inputs behind the last `-as`, and those of a property, for the job's own
    mapper."""
    done = said.sources[-1][0]
    paths = [p for value in said.all("input")[done:] for p in options.split_paths(value)]
    paths = [*conf.given_inputs, *map(conf.expanded, paths)]
    return [InputSource(tuple(map(to_wire, paths)), mapper)] if paths else []


def _known_class(name: str, role: str, not_found: str) -> str:
    full = classes.canonical(name, role)
    if full is not None:
        return full
    hint = f" ({classes.INSTEAD[role]})" if classes.looks_like_java(name) else ""
    raise BadCommandLine(f"{not_found}{name}{hint}")


def _set_plain_options(said: Options, told: OptionProperties) -> None:
    if (number := said.first("numReduceTasks")) is not None:
        told.set_reduces(_reduces(number))
    if (identifier := said.first("io")) is not None:
        told.set_io(identifier)
    if (output := said.first("output")) is not None:
        told.set_output_dir(output)
    if "overwrite" in said.flags:
        told.set("overwrites_output", "true")
    if "quiet" in said.flags:
        told.set("is_quiet", "true")
    if told.conf.sort_values:
        told.sort_values()
    if told.conf.map_concurrency > 1:
        speaks = (told.conf.map_input_identifier, told.conf.map_output_identifier)
        if not {*speaks} <= {"text", "keyonlytext"}:
            raise BadCommandLine(
                f"-D {setting_name('map_concurrency')} deals out lines; it needs -io text"
            )
    told.set_debug_scripts(said.first("mapdebug"), said.first("reducedebug"))
    told.set_environment(said.all("cmdenv"))
    if (engine := said.first("engine")) is not None:
        told.set("engine", engine)
    told.set_places(
        filesystem=said.first("fs") or _old_filesystem(said.first("dfs")),
        tracker=said.first("jt"),
    )


def _reduces(number: str) -> int:
    reduces = int(number) if re.fullmatch(r"[+-]?[0-9]+", number) else -1
    if reduces < 0:
        raise BadCommandLine(f"-numReduceTasks is {number!r}; it must be a whole number, 0 or more")
    return reduces


def _old_filesystem(name: str | None) -> str | None:
    if name is None or name == "local" or "://" in name:
        return name
    return f"dfs://{name}"


# --- programs


def _with_programs(said: Options, told: OptionProperties, shipment: Shipment) -> StreamingCommand:
    conf = told.conf
    reducer_word = said.first("reducer")
    if reducer_word == NO_REDUCER:
        told.set_reduces(0)
    if conf.reduces < 0:
        raise BadCommandLine(f"the number of reducers is {conf.reduces}; it must be 0 or more")
    if conf.reduces > REDUCES_MAX:
        raise BadCommandLine(
            f"the number of reducers is {conf.reduces:,}; a job may have {REDUCES_MAX:,}: "
            "every map writes a partition for each"
        )
    for name, given, role in conf.unknown_classes():
        raise RunsNoJava(classes.java_message(name, given, role))
    reducer = _program(reducer_word, conf, "reducer", classes.IDENTITY_REDUCER, shipment)
    combiner = _combiner(said, conf, shipment)
    if combiner is not None and (conf.partition_by == "value" or conf.sort_values):
        setting = "partition_by" if conf.partition_by == "value" else "sort_values"
        raise BadCommandLine(
            f"-D {setting_name(setting)} looks at values, and a combiner makes others of them: "
            "leave one of the two out"
        )
    mapper = _mapper(said, conf, reducer, shipment)
    mapper, reducer = _shipped(mapper, shipment), _shipped(reducer, shipment)
    combiner = _shipped(combiner, shipment) if combiner else None
    told.set_programs(
        mapper=_encoded(mapper),
        combiner=_encoded(combiner),
        reducer=_encoded(reducer if conf.reduces else None),
    )
    saw_words.take_program(said, told)
    output = said.first("output")
    return StreamingCommand(
        conf=conf,
        inputs=(),
        output=None if output is None else to_wire(conf.expanded(output)),
        mapper=_portable(mapper),
        combiner=_portable(combiner) if combiner and conf.reduces else None,
        reducer=_portable(reducer) if conf.reduces else None,
        reduces=conf.reduces,
        shipped=tuple(_portable_file(item) for item in shipment.items),
        background="background" in said.flags,
        verbose="verbose" in said.flags,
        debug="debug" in said.flags,
        tasks=said.first("tasks"),
        environment=_environment(said.first("env")),
        cluster=said.first("cluster"),
        force_local=_forces_local(conf),
    )


def _environment(given: str | None) -> str | None:
    """Return the Python environment that `-env` names, as any wire format takes it."""
    if given is None:
        return None
    path = local_path(given)
    if path is None and given.startswith("dfs://"):
        return given  # one that is stored already, by what says so
    if path is None or not os.path.exists(path):
        raise BadCommandLine(f"-env {given}: there is no such file or directory on this machine")
    return to_wire(os.path.abspath(path))


def _shipped(program: Program, shipment: Shipment) -> Program:
    """Return the program as tasks name it; the files that its words name are shipped."""
    if program.builtin:
        return program
    command = shipment.rewritten(program.command)
    shipment.add_words(parse_command(command))
    return Program(command=command)


def _portable(program: Program) -> Program:
    """Return the program as any wire format takes it; `parse_command` undoes it."""
    return msgspec.structs.replace(program, command=to_wire(program.command))


def _portable_file(item: Shipped) -> Shipped:
    return msgspec.structs.replace(
        item, source=to_wire(item.source), link=to_wire(item.link), word=to_wire(item.word)
    )


def _mapper(said: Options, conf: JobConf, reducer: Program, shipment: Shipment) -> Program:
    # A job whose inputs all have mappers of their own is a job of commands.
    word = said.first("mapper") or (said.sources[0][1][0] if said.sources else None)
    mapper = _program(word, conf, "mapper", classes.IDENTITY_MAPPER, shipment)
    offset_keys = conf.input_format_class in classes.OFFSET_KEYED_INPUTS
    if (
        mapper.builtin == classes.IDENTITY_MAPPER
        and offset_keys
        and reducer.command
        and conf.reduces
    ):
        # Hadoop fails here: offsets are no text. The reducer gets lines, as from cat.
        return Program(command="cat")
    return mapper


def _combiner(said: Options, conf: JobConf, shipment: Shipment) -> Program | None:
    if _is_aggregate(said.first("reducer")):  # the word; by its class it has no combiner
        return Program(builtin=classes.AGGREGATE_COMBINER)
    if saw_words.is_saw(said.first("reducer")):
        return Program(builtin=classes.SAW)
    program = _program(said.first("combiner"), conf, "combiner", "", shipment)
    return program if program.command or program.builtin else None


def _is_aggregate(word: str | None) -> bool:
    return word is not None and word.lower() == AGGREGATE


def _program(
    word: str | None, conf: JobConf, role: str, default: str, shipment: Shipment
) -> Program:
    """Return a built-in if the word is the name of a class that we know, else a command.

    Without a word, the class that stands in the role's property; without that, the default.
    """
    if word is None:
        return _program_of_class(conf.class_of(role), role, default)
    if saw_words.is_saw(word):
        return Program(builtin=classes.SAW)
    if role == "reducer" and word == NO_REDUCER:
        return Program(builtin=default)
    if role == "reducer" and _is_aggregate(word):
        return Program(builtin=classes.AGGREGATE_REDUCER)
    full = classes.canonical(word, role)
    if full is not None and not os.path.isfile(word):
        return Program(builtin=full)
    if classes.looks_like_java(word) and not (os.path.isfile(word) or shipment.has(word)):
        raise RunsNoJava(classes.java_message(f"-{role}", word, role))
    return Program(command=word or " ")  # no words at all fail the task, not the command line


def _program_of_class(name: str | None, role: str, default: str) -> Program:
    if name is None:
        return Program(builtin=default)
    full = classes.canonical(name.strip(), role)
    if full is None:
        raise RunsNoJava(classes.java_message(f"the {role}", name, role))
    return Program(builtin=full)


def _encoded(program: Program | None) -> tuple[str, str]:
    """Return (command as it stands in a property, built-in)."""
    return (url_encoded(program.command), program.builtin) if program else ("", "")


def url_encoded(text: str) -> str:
    """Return text as Java's URLEncoder writes it."""
    return "".join(
        "+" if byte == 32 else chr(byte) if byte in _UNRESERVED else f"%{byte:02X}"
        for byte in text.encode("utf-8", "surrogateescape")
    )


def _forces_local(conf: JobConf) -> bool:
    """Whether `-jt local`, `-fs local` or their properties ask for this machine."""
    filesystem = conf.default_filesystem if conf.is_given_setting("default_filesystem") else ""
    framework = conf.framework if conf.is_given_setting("framework") else ""
    return framework == "local" or filesystem.rstrip("/") == "file:"


def _understood(said: Options, shipment: Shipment, conf: JobConf) -> Iterator[str]:
    """Yield the lines of `-verbose`."""
    yield f"addTaskEnvironment={conf.added_environment}"
    yield f"shippedCanonFiles_=[{', '.join(shipment.packed)}]"
    for option in ("mapper", "combiner", "reducer"):
        yield from shipment.told(said.first(option))
    yield "==== JobConf properties:"
    yield from sorted(f"{name}={value}" for name, value in conf.items())
    yield "===="
    yield f"submitting to jobconf: {conf.tracker_address}"


def opening_lines(command: StreamingCommand) -> list[str]:
    """Return what Hadoop prints before a job: that it packs files, and what `-verbose` asks for."""
    lines = [f"STREAM: {line}" for line in command.understood]
    if command.packed:
        lines.append(
            f"packageJobJar: [{', '.join(command.packed)}] [] tmpDir={command.conf.tmpdir}"
        )
    return lines
