"""A job as words, and what cannot be one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mrstream as mr
from mrstream.api import result
from mrstream.api.files import is_here
from mrstream.streaming.command.command import command_of
from mrstream.streaming.command.options import parse


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        mr.count("test", "words")
        yield word, 1


def total(word: str, counts: Iterable[int]) -> Iterator[tuple[str, int]]:
    yield word, sum(counts)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))


def test_commands_and_settings_become_the_words_that_one_would_type(tmp_path: Path) -> None:
    job = mr.Job(
        ["a", tmp_path / "b"], mapper="grep x", reducer="uniq -c", output=tmp_path / "out",
        reduces=3, name="errs", D={"k": True}, cmdenv={"A": "1"}, options=["-lazyOutput"],
    )  # fmt: skip

    assert job.words() == [
        "-input", "a", "-input", f"{tmp_path}/b", "-output", f"{tmp_path}/out",
        "-mapper", "grep x", "-reducer", "uniq -c", "-numReduceTasks", "3",
        "-D", "mapreduce.job.name=errs", "-D", "k=true", "-cmdenv", "A=1", "-lazyOutput",
    ]  # fmt: skip
    assert job.codec is job.writes is mr.text


def test_a_job_of_functions_is_one_that_the_command_line_takes() -> None:
    job = mr.Job("in", mapper=words, combiner=total, reducer=total, reduces=4)
    command = command_of(parse(job.words()))

    assert command.reduces == 4
    assert command.mapper.command.endswith("mrstream.api.child -map'")
    assert [item.link for item in command.shipped] == ["mrstream.functions"]
    assert job.codec is mr.json
    assert repr(job) == "Job('in', mapper=words, combiner=total, reducer=total)"


@pytest.mark.parametrize(
    "wrong",
    [
        {"mapper": words, "combiner": total},
        {"mapper": words, "reduces": 2},
        {"mapper": 7},
        {"mapper": "cat", "reducer": total, "sort_values": True},
        {"mapper": words, "combiner": "cat", "reducer": total, "partition": lambda k, n: 0},
        {"mapper": words, "codec": "json"},
    ],
)
def test_what_cannot_be_a_job_is_told_when_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        mr.Job("in", **wrong)
    with pytest.raises(ValueError, match="needs an input"):
        mr.Job([], mapper=words)


def test_a_job_can_be_tested_without_running_it() -> None:
    job = mr.Job("in", mapper=words, combiner=total, reducer=total)

    found = mr.test(job, ["b a", "a"])

    assert found == [("a", 2), ("b", 1)]
    assert found.counters == {"test": {"words": 3}}
    assert mr.test(job, []) == []
    with pytest.raises(ValueError, match="is a command"):
        mr.test(mr.Job("in", mapper="cat"), ["x"])


def test_a_test_finds_what_the_codec_would_do() -> None:
    """A tuple inside of a value comes out as a list, as it would of the job."""
    job = mr.Job("in", mapper=lambda line: [(line, (1, 2))])

    assert mr.test(job, ["x"]) == [("x", [1, 2])]


def test_with_a_combiner_the_reducer_must_give_pairs() -> None:
    job = mr.Job("in", mapper=words, combiner=total, reducer=lambda k, v: [k])

    with pytest.raises(mr.BadRecord, match="combiner"):
        mr.test(job, ["a"])


@pytest.mark.parametrize("name", ["", "a,b", "a\nb"])
def test_a_counter_that_would_be_read_as_another_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a counter"):
        mr.count("group", name)


def test_everything_promised_is_there_and_documented() -> None:
    import mrstream

    assert set(mrstream.__all__) <= set(dir(mrstream))
    undocumented = [name for name in mrstream.__all__ if not getattr(mrstream, name).__doc__]
    assert undocumented == []
    with pytest.raises(AttributeError):
        mrstream.nothing  # noqa: B018


def test_a_job_names_its_engine() -> None:
    job = mr.Job("in", mapper="cat", engine="ray://head")

    assert job.words()[-2:] == ["-engine", "ray://head"]


def test_the_output_of_an_engines_job_lies_where_it_would_without_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id is that of a job of this machine, and its output was looked for here, not in the
    dfs."""

    def is_here_of(*words: str) -> bool:
        given = ["-input", "/in", "-output", "/out", "-mapper", "cat", *words]
        return is_here(command_of(parse(given)))

    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    assert is_here_of() and is_here_of("-engine", "ray")

    (tmp_path / "clusters" / "demo").mkdir(parents=True)
    (tmp_path / "clusters" / "demo" / "cluster.yaml").touch()
    (tmp_path / "current").write_text("demo\n")

    assert not is_here_of() and not is_here_of("-engine", "ray")
    assert is_here_of("-jt", "local") and is_here_of("-jt", "local", "-engine", "ray")


def test_a_job_of_a_lock_holder_is_started_under_its_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And under those of locks held around it."""
    started: list[dict[str, str] | None] = []

    class Started:
        """What would run the command."""

        def __init__(self, words: Any, **options: Any) -> None:
            started.append(options["environment"])

    monkeypatch.setattr(result, "Launch", Started)
    monkeypatch.setenv("MRSTREAM_SEQUENCER", "/ls/local/a:3")
    job = mr.Job("/in", mapper="cat", output="/out", local=True)

    job.submit(fence=("/ls/local/b", 7))
    job.submit()

    fenced, plain = started
    assert fenced is not None and fenced["MRSTREAM_SEQUENCER"] == "/ls/local/b:7\n/ls/local/a:3"
    assert plain is None, "the command's is this process's"
