"""mapreduce.program.command and ending: a task's commands, where they run and how they end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrstream.mapreduce.program.command import Command, Workplace
from mrstream.mapreduce.program.ending import ExitRule, judge
from mrstream.mapreduce.program.errors import CommandFailed
from mrstream.mapreduce.program.flow import UNREAD_BYTES_MAX, Flow
from mrstream.mapreduce.program.watch import AttemptWatch
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.task.shipping import Shipped


class Ear:
    """Hears nothing."""

    def feed(self, data: bytes) -> None:
        """Drop it."""

    def close(self) -> None:
        """Nothing to end."""


def fetch(url: str, path: str) -> None:
    raise AssertionError(f"{url} is local")


def workplace(directory: Path, *shipped: Shipped) -> Workplace:
    properties = {"mapreduce.task.partition": "7"}
    cache = str(directory / "cache")
    return Workplace(
        str(directory), JobConf(), shipped, properties, os.environ, cache=cache, fetch=fetch
    )


def command(place: Workplace, words: str, stage: str = "map") -> Command:
    watch = AttemptWatch("attempt_x", 0.0, None)
    return Command(Program(command=words), stage, place, ear=Ear, watch=watch)


def output_of(command: Command, feed: bytes = b"") -> bytes:
    got = bytearray()
    command.run([feed], got.extend, ExitRule(), lambda: 0)
    return bytes(got)


def test_a_command_runs_among_its_links_with_the_variables_of_its_task(tmp_path: Path) -> None:
    """Spec 7: shipped files lie in the working directory, properties are variables."""
    (tmp_path / "list").write_text("words\n")
    shipped = Shipped(str(tmp_path / "list"), "list.txt")
    place = workplace(tmp_path / "task", shipped)

    said = output_of(command(place, "sh -c 'cat list.txt; echo $mapreduce_task_partition; pwd'"))

    assert said.decode().split() == ["words", "7", str(tmp_path / "task" / "work")]


def test_a_task_without_commands_makes_no_directory(tmp_path: Path) -> None:
    place = workplace(tmp_path / "task")
    command(place, "cat")

    assert not (tmp_path / "task").exists()


def test_who_started_last_is_to_blame(tmp_path: Path) -> None:
    """A combiner runs while a map does: the report names the one whose program failed."""
    place = workplace(tmp_path)
    output_of(command(place, "cat", "map"))
    with pytest.raises(CommandFailed, match="subprocess failed with code 3"):
        output_of(command(place, "sh -c 'exit 3'", "combine"))

    assert place.stage == "combine"


def test_a_command_tells_how_far_its_last_run_got(tmp_path: Path) -> None:
    cat = command(workplace(tmp_path), "cat")
    assert cat.flow is None

    assert output_of(cat, b"to be") == b"to be"

    assert cat.flow == Flow(given_bytes=5, read_bytes=5, left_bytes=0, is_broken=False)


@pytest.mark.parametrize(
    ("exit_code", "unread_bytes", "rule", "fails"),
    [
        (0, 0, ExitRule(), False),
        (1, 0, ExitRule(), True),
        (1, 0, ExitRule(nonzero_is_failure=False), False),
        (0, UNREAD_BYTES_MAX, ExitRule(), False),
        (0, UNREAD_BYTES_MAX + 1, ExitRule(), True),
        (0, UNREAD_BYTES_MAX + 1, ExitRule(skip_after_records=5), False),
        (0, UNREAD_BYTES_MAX + 1, ExitRule(skip_after_records=6), True),
    ],
)
def test_an_end_is_judged_by_code_and_unread_input(
    exit_code: int, unread_bytes: int, rule: ExitRule, fails: bool
) -> None:
    """Spec 8.2: what Hadoop would not notice is no failure; five records were written."""
    flow = Flow(unread_bytes, 0, 0, is_broken=True)

    if fails:
        with pytest.raises(CommandFailed):
            judge(exit_code, flow, rule, lambda: 5)
    else:
        judge(exit_code, flow, rule, lambda: 5)
