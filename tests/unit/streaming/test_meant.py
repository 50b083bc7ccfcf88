"""What was probably meant by words that set nothing."""

from __future__ import annotations

import pytest

from mrstream.streaming.command.meant import misspelt_inputs, odd_settings
from mrstream.streaming.command.options import parse


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("stream.map.output.field.seperator", "stream.map.output.field.separator"),
        ("mapreduce.job.reducers", "mapreduce.job.reduces"),
        ("mapred.reduce.task", "mapred.reduce.tasks"),
        ("mrstream.job.extra", "mrstream.job.extras"),
    ],
)
def test_a_misspelt_property_is_named_with_the_one_that_is_read(name: str, meant: str) -> None:
    (line,) = odd_settings(parse(["-D", f"{name}=x"]))
    assert line == f"-D {name}: nothing reads this property; did you mean {meant}?"


@pytest.mark.parametrize(
    "name",
    ["mapreduce.job.reduces", "mapred.reduce.tasks", "my.own.setting", "x", "fs.defaultFS"],
)
def test_properties_that_are_known_or_like_no_other_say_nothing(name: str) -> None:
    assert list(odd_settings(parse(["-D", f"{name}=x"]))) == []


def test_words_that_set_nothing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVEL", "3")
    monkeypatch.delenv("FOO", raising=False)
    said = parse(["-D", "foo", "-cmdenv", "LEVEL", "-cmdenv", "FOO", "-cmdenv", "BAR=1"])

    assert list(odd_settings(said)) == [
        "-D foo sets nothing: it must be NAME=VALUE",
        '-cmdenv LEVEL sets nothing: did you mean -cmdenv LEVEL="$LEVEL"?',
        "-cmdenv FOO sets nothing: did you mean -cmdenv FOO=VALUE?",
    ]


def test_an_input_that_looks_like_an_option_is_asked_about() -> None:
    said = parse(["-input", "a", "-mappper", "b", "-zzz"])

    assert list(misspelt_inputs(said)) == [
        "-mappper is taken for an input path: there is no such option; did you mean -mapper?",
        "-zzz is taken for an input path: there is no such option",
    ]
