"""streaming/conf/configuration_file.py: what stands in a `-conf` file (spec 1.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.streaming.command.command import command_of
from mrstream.streaming.command.options import parse
from mrstream.streaming.conf.configuration_file import BadConfigurationFile, read_configuration


def write(path: Path, *elements: str) -> str:
    body = "".join(elements)
    path.write_text(
        f'<configuration xmlns:xi="http://www.w3.org/2001/XInclude">{body}</configuration>'
    )
    return str(path)


def entry(name: str, value: str, more: str = "") -> str:
    return f"<property><name> {name} </name><value>{value}</value>{more}</property>"


def test_names_are_trimmed_and_values_are_not(tmp_path: Path) -> None:
    (found,) = read_configuration(write(tmp_path / "c.xml", "<!-- x -->", entry("a", " b ")))

    assert (found.name, found.value, found.is_final) == ("a", " b ", False)


def test_name_and_value_may_be_attributes(tmp_path: Path) -> None:
    path = write(tmp_path / "c.xml", '<property name="a" value="b" final="true"/>')

    (found,) = read_configuration(path)

    assert (found.name, found.value, found.is_final) == ("a", "b", True)


def test_a_property_without_a_value_sets_nothing(tmp_path: Path) -> None:
    assert (
        read_configuration(write(tmp_path / "c.xml", "<property><name>a</name></property>")) == []
    )


def test_included_files_count_in_their_place_and_are_relative_to_the_including_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "inner.xml", entry("b", "2"))
    path = write(
        tmp_path / "c.xml", entry("a", "1"), '<xi:include href="sub/inner.xml"/>', entry("c", "3")
    )

    assert [found.name for found in read_configuration(path)] == ["a", "b", "c"]


def test_an_include_that_is_not_there_needs_a_fallback(tmp_path: Path) -> None:
    fallback = f"<xi:fallback>{entry('a', '1')}</xi:fallback>"
    with_one = write(tmp_path / "c.xml", f'<xi:include href="no.xml">{fallback}</xi:include>')
    without = write(tmp_path / "d.xml", '<xi:include href="no.xml"/>')

    assert [found.name for found in read_configuration(with_one)] == ["a"]
    with pytest.raises(BadConfigurationFile, match=r"include for 'no\.xml'"):
        read_configuration(without)


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "c.xml", f'<xi:include href="{tmp_path / "c.xml"}"/>')

    with pytest.raises(BadConfigurationFile, match="includes itself"):
        read_configuration(path)


def test_a_final_property_beats_later_files_but_no_words(tmp_path: Path) -> None:
    """Also under its old name."""
    first = write(tmp_path / "a.xml", entry("a", "1", "<final>true</final>"),
                  entry("mapred.reduce.tasks", "7", "<final>true</final>"))  # fmt: skip
    later = write(tmp_path / "b.xml", entry("a", "2"), entry("mapreduce.job.reduces", "8"))
    job = ["-input", "in", "-output", "out", "-conf", first, "-additionalconfspec", later]

    conf = command_of(parse(job)).conf

    assert (conf.get("a"), conf.reduces) == ("1", 7)
    assert command_of(parse([*job, "-D", "a=3"])).conf.get("a") == "3"
