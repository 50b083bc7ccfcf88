"""`-engine hadoop`: a kinder command line in the strict words of `mapred streaming`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.mapreduce.engine import hadoop
from mrstream.mapreduce.engine.choice import EngineChoice
from mrstream.mapreduce.engine.hadoop import NoHadoop, OnlyOurs
from mrstream.streaming.command import options
from mrstream.streaming.command.command import command_of


def words(*given: str) -> list[str]:
    said = options.parse(given)
    return hadoop.words_of(said, command_of(said))


def test_generic_options_come_first_and_programs_are_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop fails where a -D stands behind -input, and ships nothing by itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("#!/usr/bin/env python3\n")

    said = words(
        "-input", "a", "-output", "o", "-mapper", "m.py -x", "-reducer", "cat",
        "-numReduceTasks", "2", "-D", "mapreduce.job.name=n", "-engine", "hadoop",
    )  # fmt: skip

    assert said == [
        "-D", "mapreduce.job.maps=1",
        "-D", "mapreduce.job.name=n",
        "-files", f"file://{tmp_path}/m.py#m.py",
        "-input", "a", "-output", "o", "-mapper", "m.py -x", "-reducer", "cat",
        "-numReduceTasks", "2",
    ]  # fmt: skip


def test_classes_have_their_full_names() -> None:
    said = words(
        "-input", "a", "-output", "o", "-mapper", "cat", "-reducer", "aggregate",
        "-inputformat", "KeyValueTextInputFormat", "-jobconf", "mapred.reduce.tasks=3",
    )  # fmt: skip

    assert said[said.index("-inputformat") + 1] == (
        "org.apache.hadoop.mapred.KeyValueTextInputFormat"
    )
    assert said[said.index("-reducer") + 1] == "aggregate"
    assert "-combiner" not in said
    assert said[:4] == ["-D", "mapreduce.job.maps=1", "-D", "mapred.reduce.tasks=3"]


def test_a_reducer_without_a_mapper_gets_lines_as_here() -> None:
    """There Hadoop fails: offsets are no text."""
    said = words("-input", "a", "-output", "o", "-reducer", "wc -l")

    assert said[said.index("-mapper") + 1] == "cat"


def test_a_job_of_maps_only_says_so() -> None:
    said = words("-input", "a", "-output", "o", "-mapper", "cat", "-numReduceTasks", "0")

    assert said[said.index("-reducer") + 1] == "NONE"
    assert "-numReduceTasks" not in said


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("-mapper", "cat"), "no -output"),
        (("-mapper", "cat", "-output", "o", "-tasks", "m0"), "-tasks"),
        (("-as", "cat", "-output", "o"), "-as"),
        (("-mapper", "cat", "-output", "o", "-D", "mrstream.sort.values=true"),
         "mrstream.sort.values"),
        (("-mapper", "cat", "-output", "o", "-inputformat", "csv"), "csv"),
        (("-mapper", "cat", "-output", "o", "-outputformat", "avro"), "avro"),
    ],
)  # fmt: skip
def test_what_only_mrstream_has_is_refused_by_name(given: tuple[str, ...], named: str) -> None:
    with pytest.raises(OnlyOurs, match=named):
        words("-input", "a", *given)


def test_our_own_scripts_of_hadoops_names_are_not_taken_for_hadoop(tmp_path: Path) -> None:
    """With them on PATH the job would run on mrstream, which would run it on Hadoop, and so on."""
    script = tmp_path / "bin" / "mapred"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nexec python3 -P -m mrstream.mapreduce.hadoop_commands mapred\n")
    script.chmod(0o755)

    with pytest.raises(NoHadoop, match="hadoop-commands"):
        hadoop.program_of(EngineChoice("hadoop", str(tmp_path)))
    script.write_text("#!/bin/sh\n")

    assert hadoop.program_of(EngineChoice("hadoop", str(tmp_path))) == str(script)


def test_no_hadoop_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoHadoop, match="HADOOP_HOME"):
        hadoop.program_of(EngineChoice("hadoop", str(tmp_path)))
