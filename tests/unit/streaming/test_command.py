"""streaming/command/command.py and shipment.py: a checked job out of options."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrstream.streaming import classes
from mrstream.streaming.command.command import (
    RunsNoJava,
    StreamingCommand,
    command_of,
    opening_lines,
    url_encoded,
)
from mrstream.streaming.command.options import BadCommandLine, parse
from mrstream.streaming.command.shipment import NoSuchShippedFile
from mrstream.streaming.conf.configuration_file import BadConfigurationFile
from mrstream.streaming.task.child import parse_command
from mrstream.streaming.task.shipping import link_shipped

JOB = ("-input", "in", "-output", "out")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(*words: str) -> StreamingCommand:
    return command_of(parse([*JOB, *words]))


def test_input_is_required_and_output_is_not() -> None:
    with pytest.raises(BadCommandLine, match="Required argument: -input <name>"):
        command_of(parse(["-mapper", "cat"]))
    assert command_of(parse(["-input", "a,b", "c"])).output is None


def test_left_over_words_are_refused() -> None:
    """Case cli_extra."""
    with pytest.raises(BadCommandLine, match=r"Found 2 unexpected arguments .* \[a, b\]"):
        job("-mapper", "cat", "a", "b")


@pytest.mark.parametrize(
    ("words", "reduces"),
    [
        (["-D", "mapreduce.job.reduces=2"], 2),
        (["-D", "mapreduce.job.reduces=2", "-D", "mapreduce.job.reduces=3"], 3),
        (["-D", "mapreduce.job.reduces=2", "-numReduceTasks", "3"], 3),
        (["-D", "mapreduce.job.reduces=2", "-jobconf", "mapreduce.job.reduces=4"], 4),
        (["-jobconf", "mapred.reduce.tasks=4", "-D", "mapreduce.job.reduces=2"], 2),
        (["-reducer", "NONE", "-numReduceTasks", "3"], 0),
        (["-D", "mapred.reduce.tasks= 5 "], 5),
        ([], 1),
    ],
)
def test_the_strongest_source_of_a_property_wins(words: list[str], reduces: int) -> None:
    """Spec 1.2; a new name beats an old one whatever the order."""
    assert job(*words).reduces == reduces


def test_configuration_files_are_weaker_than_words(empty_directory: Path) -> None:
    """Cases cli_conf_file, cli_additionalconf."""
    (empty_directory / "c.xml").write_text(
        "<configuration><property><name>mapreduce.job.reduces</name><value>7</value></property>"
        "<property><name>a.b</name><value>x y</value></property></configuration>"
    )

    command = job("-D", "mapreduce.job.reduces=2", "-conf", "c.xml")

    assert (command.reduces, command.conf.get("a.b")) == (2, "x y")


def test_a_configuration_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadConfigurationFile, match=r"-conf no\.xml: no such file"):
        job("-conf", "no.xml")


def test_inputs_of_a_property_and_of_options_add_up() -> None:
    r"""Hadoop keeps both in one property, commas in a path as `\,`."""
    command = job("-D", r"mapred.input.dir=/a,/b\,c", "-input", "d,{e,f}")

    assert command.inputs == ("/a", "/b,c", "in", "d", "{e,f}")


def test_variables_in_paths_are_expanded() -> None:
    """Spec 1.1: paths travel as properties, too."""
    command = command_of(parse(["-D", "d=x", "-input", "a${d}", "b", "-output", "o-${d}"]))

    assert (command.inputs, command.output) == (("ax", "b"), "o-x")


@pytest.mark.parametrize("number", ["x", "-1", "1.5", " 3", "1_0"])
def test_the_number_of_reducers_is_checked(number: str) -> None:
    with pytest.raises(BadCommandLine, match="-numReduceTasks is"):
        job("-numReduceTasks", number)


@pytest.mark.parametrize("number", ["100001", "99999999", str(2**31), str(2**70)])
def test_more_reducers_than_anything_can_hold_are_refused_at_once(number: str) -> None:
    for words in (["-numReduceTasks", number], ["-D", f"mapreduce.job.reduces={number}"]):
        with pytest.raises(BadCommandLine, match=r"number of reducers is .*may have 100,000"):
            job(*words)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("-inputformat", "-inputformat : class not found : no.such.Thing"),
        ("-outputformat", "-outputformat : class not found : no.such.Thing"),
        ("-partitioner", "-partitioner : class not found : no.such.Thing"),
        ("-inputreader", "-inputreader: class not found: no.such.Thing"),
    ],
)
def test_an_unknown_class_is_refused_in_hadoops_words(option: str, message: str) -> None:
    """Spec 1.3."""
    with pytest.raises(BadCommandLine) as refused:
        job(option, "no.such.Thing")

    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    "name",
    [
        "NLineInputFormat",
        "org.apache.hadoop.mapred.lib.NLineInputFormat",
        "org.apache.hadoop.mapreduce.lib.input.NLineInputFormat",
    ],
)
def test_simple_and_new_names_of_a_known_class_work(name: str) -> None:
    command = job("-inputformat", name)

    assert command.conf.input_format_class == "org.apache.hadoop.mapred.lib.NLineInputFormat"


def test_a_java_class_that_we_lack_is_said_to_be_java() -> None:
    with pytest.raises(RunsNoJava, match=r"com\.acme\.MyMapper is a Java class") as refused:
        job("-mapper", "com.acme.MyMapper")
    assert refused.value.exit_status == 1
    with pytest.raises(RunsNoJava, match="-libjars"):
        job("-libjars", "x.jar")


def test_a_mapper_that_is_no_known_class_is_a_command() -> None:
    assert job("-mapper", "m.py -x").mapper.command == "m.py -x"
    assert job("-mapper", "IdentityMapper").mapper.builtin == classes.IDENTITY_MAPPER


def test_without_a_mapper_a_reducer_command_gets_lines_as_from_cat() -> None:
    """Where Hadoop fails with a type mismatch."""
    assert job("-reducer", "wc").mapper.command == "cat"
    assert job().mapper.builtin == classes.IDENTITY_MAPPER
    assert job("-reducer", "wc", "-inputformat", "KeyValueTextInputFormat").mapper.builtin


def test_the_reducer_aggregate_brings_its_combiner() -> None:
    """Spec 6.1."""
    command = job("-mapper", "cat", "-combiner", "wc", "-reducer", "Aggregate")

    assert command.reducer is not None and command.combiner is not None
    assert command.reducer.builtin == classes.AGGREGATE_REDUCER
    assert command.combiner.builtin == classes.AGGREGATE_COMBINER


def test_a_job_of_maps_only_has_neither_reducer_nor_combiner() -> None:
    command = job("-mapper", "cat", "-combiner", "wc", "-reducer", "wc", "-numReduceTasks", "0")

    assert (command.combiner, command.reducer) == (None, None)


def test_an_input_reader_brings_the_stream_input_format() -> None:
    """Spec 3.6."""
    conf = job("-inputreader", "StreamXmlRecordReader,begin=<a>,end=</a>").conf

    assert conf.input_format_class == classes.STREAM_INPUT
    assert conf.record_reader_class == classes.XML_READER
    assert conf.record_reader_options == {"begin": "<a>", "end": "</a>"}


def test_record_classes_follow_from_the_programs() -> None:
    """Spec 2: text for commands, offsets for a job without any."""
    assert job("-mapper", "cat").conf.map_output_key_class == classes.TEXT
    assert job("-mapper", "cat").conf.output_key_class == classes.LONG_WRITABLE
    assert job("-mapper", "cat", "-reducer", "cat").conf.output_key_class == classes.TEXT
    assert job().conf.map_output_key_class == classes.LONG_WRITABLE
    raw = job("-mapper", "cat", "-reducer", "cat", "-io", "rawbytes").conf
    assert raw.output_value_class == classes.BYTES_WRITABLE


def test_lazy_output_wraps_the_format_that_was_given() -> None:
    conf = job("-lazyOutput", "-outputformat", "SequenceFileOutputFormat").conf

    assert conf.lazy_output
    assert conf.output_format_class == "org.apache.hadoop.mapred.SequenceFileOutputFormat"


@pytest.mark.parametrize(
    ("words", "local"),
    [
        (["-jt", "local"], True),
        (["-fs", "local"], True),
        (["-fs", "file:///"], True),
        (["-D", "mapreduce.framework.name=local"], True),
        (["-D", "fs.default.name=file:///"], True),
        (["-fs", "dfs://demo"], False),
        ([], False),
    ],
)
def test_local_mode_can_be_asked_for(words: list[str], local: bool) -> None:
    assert job(*words).force_local is local


def test_a_command_stands_in_the_properties_as_java_encodes_it() -> None:
    assert url_encoded("grep -v 'ä~*'") == "grep+-v+%27%C3%A4%7E*%27"


def test_verbose_lines_show_how_the_job_was_understood(empty_directory: Path) -> None:
    """Spec 1.3."""
    (empty_directory / "m.sh").touch()

    lines = opening_lines(job("-verbose", "-file", "m.sh", "-mapper", "./m.sh x"))

    assert lines[:5] == [
        "STREAM: addTaskEnvironment=HADOOP_ROOT_LOGGER=",
        f"STREAM: shippedCanonFiles_=[{empty_directory}/m.sh]",
        f"STREAM: shipped: true {empty_directory}/m.sh",
        "STREAM: cmd=m.sh x",
        "STREAM: cmd=null",
    ]
    assert "STREAM: mapreduce.job.reduces=1" in lines
    assert lines[-2:] == [
        "STREAM: submitting to jobconf: null",
        "packageJobJar: [m.sh] [] tmpDir=null",
    ]


def test_without_verbose_and_file_nothing_is_printed_before_the_job() -> None:
    assert opening_lines(job("-mapper", "cat")) == []


def test_jars_and_classes_are_also_where_the_jobs_jar_has_them(empty_directory: Path) -> None:
    """Spec 7.3."""
    for name in ("a.txt", "b.zip", "c.class"):
        (empty_directory / name).touch()

    command = job("-file", "a.txt", "b.zip", "c.class", "-mapper", "cat")

    assert [item.link for item in command.shipped] == [
        "a.txt", "b.zip", "lib/b.zip", "c.class", "classes/c.class",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "reduces", "is_used"),
    [
        ("mapred.output.key.comparator.class", 1, True),
        ("mapred.output.value.groupfn.class", 1, True),
        ("mapreduce.job.output.key.comparator.class", 0, False),
        ("mapred.partitioner.class", 2, True),
        ("mapred.partitioner.class", 1, False),
        ("mapreduce.input.pathFilter.class", 0, True),
        ("stream.io.identifier.resolver.class", 0, True),
    ],
)
def test_a_class_in_a_property_that_the_job_would_use_is_refused(
    name: str, reduces: int, is_used: bool
) -> None:
    words = ["-D", f"{name}=com.acme.Thing", "-numReduceTasks", str(reduces), "-mapper", "cat"]
    if not is_used:
        assert job(*words).reduces == reduces
        return
    with pytest.raises(RunsNoJava, match=r"com\.acme\.Thing is a Java class"):
        job(*words)


def test_programs_may_stand_in_properties_as_classes() -> None:
    """Hadoop's own properties; options beat them."""
    lib = "org.apache.hadoop.mapred.lib."
    words = ["-D", f"mapred.mapper.class={lib}InverseMapper"]

    assert job(*words).mapper.builtin == f"{lib}InverseMapper"
    assert job(*words, "-mapper", "cat").mapper.command == "cat"
    with pytest.raises(RunsNoJava, match=r"the reducer com\.acme\.R is a Java class"):
        job("-D", "mapred.reducer.class=com.acme.R")


# ---- files to ship -------------------------------------------------------------------------


def test_files_travel_under_their_base_name_or_alias(empty_directory: Path) -> None:
    """Spec 7.3; case files_alias."""
    for name in ("a.txt", "b.zip"):
        (empty_directory / name).touch()

    command = job("-files", "a.txt#x", "-archives", "b.zip", "-mapper", "cat")

    assert [(os.path.basename(s.source), s.link, s.archive) for s in command.shipped] == [
        ("a.txt", "x", False),
        ("b.zip", "b.zip", True),
    ]


def test_a_missing_file_is_refused_as_each_option_does() -> None:
    """Cases files_missing, file_missing, cachefile_nolink."""
    with pytest.raises(NoSuchShippedFile, match="FileNotFoundException: File nope does not exist"):
        job("-files", "nope")
    with pytest.raises(BadCommandLine, match=r"File: file:/.*/nope does not exist\."):
        job("-file", "nope")
    with pytest.raises(BadCommandLine, match="You need to specify the uris as"):
        job("-cacheFile", "file:///x")


def test_of_two_files_with_one_link_name_the_first_stays(empty_directory: Path) -> None:
    for name in ("a", "b"):
        (empty_directory / name).mkdir()
        (empty_directory / name / "f").touch()

    command = job("-files", "a/f,b/f", "-mapper", "cat")

    assert [item.source for item in command.shipped] == [str(empty_directory / "a" / "f")]
    assert any("conflicts with" in line for line in command.warnings)


def test_a_first_word_that_is_a_file_file_becomes_its_base_name(empty_directory: Path) -> None:
    """Spec 7.2; case file_option."""
    (empty_directory / "d").mkdir()
    (empty_directory / "d" / "m.sh").touch()

    command = job("-file", "d/m.sh", "-mapper", f"{empty_directory}/d/m.sh -v")

    assert command.mapper.command == "m.sh -v"


def test_words_that_name_local_files_are_shipped_by_themselves(empty_directory: Path) -> None:
    for name in ("m.py", "words.txt", "r.sh"):
        (empty_directory / name).touch()
    (empty_directory / "lib").mkdir()
    (empty_directory / "lib" / "x.py").touch()

    command = job(
        "-mapper", "python3 ./m.py words.txt lib/x.py", "-reducer", "bash -c './r.sh|cat'"
    )

    assert [item.link for item in command.shipped] == ["m.py", "words.txt", "lib/x.py", "r.sh"]
    assert command.mapper.command == "python3 ./m.py words.txt lib/x.py"


def test_programs_of_the_system_are_not_shipped() -> None:
    assert job("-mapper", "/bin/sh -c cat").shipped == ()


def test_an_absolute_path_is_shipped_for_hosts_that_lack_it(empty_directory: Path) -> None:
    (empty_directory / "m.py").touch()
    path = str(empty_directory / "m.py")

    (item,) = job("-mapper", path).shipped

    assert (item.link, item.word) == ("m.py", path)


def test_words_that_are_no_utf8_cross_the_wire(empty_directory: Path) -> None:
    """A file name is bytes; Latin-1 ones are still about."""
    name = os.fsdecode(b"caf\xe9.sh")
    (empty_directory / name).touch()

    command = job("-mapper", f"{name} x", "-cmdenv", f"A={name}")

    properties = command.conf.to_dict()
    for text in (command.mapper.command, command.shipped[0].source, *properties.values()):
        text.encode()
    assert parse_command(command.mapper.command)[0] == name
    link_shipped(str(empty_directory / "cwd"), command.shipped, "cache")
    assert os.listdir(empty_directory / "cwd") == [name]


def test_a_shipped_program_may_be_named_like_a_class(tmp_path: Path) -> None:
    """To Hadoop an unknown class is a command; one that nobody ships is refused here already."""
    program = tmp_path / "m"
    program.write_text("#!/bin/sh\ncat\n")

    found = job("-mapper", "com.acme.Mapper", "-files", f"{program}#com.acme.Mapper")

    assert found.mapper.command == "com.acme.Mapper"
    with pytest.raises(RunsNoJava):
        job("-mapper", "com.acme.Other", "-files", f"{program}#com.acme.Mapper")
