"""Jobs whose results were seen on Hadoop 3.4.2's local runner, beside the golden cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.streaming.command.command import REDUCES_MAX
from tests.conformance.cases import sequence_file
from tests.support.local_jobs import Desk

LIB = "org.apache.hadoop.mapred.lib."
FILTER = "org.apache.hadoop.mapred.SequenceFileInputFilter"
TEN = [(b"k%02d" % number, b"v%d" % number) for number in range(10)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("in", b"".join(b"%s\t%s\n" % pair for pair in TEN))
    return desk


def made(desk: Desk, name: str) -> dict[str, bytes]:
    """Sort the ten records into an output of this format."""
    ran = desk.job("-mapper", "cat", "-reducer", "cat", "-outputformat", name)
    assert ran.status == 0, ran.stderr
    return {
        str(path.relative_to(desk.out)): path.read_bytes()
        for path in desk.out.rglob("*")
        if path.is_file() and not path.name.startswith(("_", "."))
    }


def test_a_map_file_is_a_directory_of_data_and_index(desk: Desk) -> None:
    files = made(desk, "org.apache.hadoop.mapred.MapFileOutputFormat")

    assert sorted(files) == ["part-00000/data", "part-00000/index"]
    plain = made_as_sequence_file(desk)
    assert sequence_file(files["part-00000/data"]) == sequence_file(plain)


def made_as_sequence_file(desk: Desk) -> bytes:
    ran = desk.run(
        *("-input", "in", "-output", "plain", "-mapper", "cat", "-reducer", "cat"),
        *("-outputformat", "org.apache.hadoop.mapred.SequenceFileOutputFormat"),
    )
    assert ran.status == 0, ran.stderr
    return (desk.cwd / "plain" / "part-00000").read_bytes()


def test_several_sequence_files_are_sequence_files(desk: Desk) -> None:
    files = made(desk, LIB + "MultipleSequenceFileOutputFormat")

    assert sequence_file(files["part-00000"]) == sequence_file(made_as_sequence_file(desk))


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ([f"class={FILTER}$PercentFilter", "frequency=3"], [0, 3, 6, 9]),
        ([f"class={FILTER}$RegexFilter", "regex=k0[2-4]"], [2, 3, 4]),
        ([f"class={FILTER}$MD5Filter", "frequency=2"], [0, 1, 7, 8, 9]),
    ],
    ids=["percent", "regex", "md5"],
)
def test_a_filter_chooses_records_of_a_sequence_file(
    desk: Desk, options: list[str], numbers: list[int]
) -> None:
    made_as_sequence_file(desk)
    words = [word for option in options for word in ("-D", f"sequencefile.filter.{option}")]

    ran = desk.run(
        *words, "-inputformat", FILTER, "-input", "plain/part-*", "-mapper", "cat",
        "-reducer", "NONE",
    )  # fmt: skip

    assert ran.stdout.splitlines() == [b"%s\t%s" % TEN[number] for number in numbers], ran.stderr


def test_sequence_files_are_combined_into_splits(desk: Desk) -> None:
    made_as_sequence_file(desk)

    ran = desk.run(
        *("-inputformat", LIB + "CombineSequenceFileInputFormat", "-input", "plain/part-*"),
        *("-mapper", "cat", "-reducer", "NONE"),
    )

    assert ran.stdout.splitlines() == [b"%s\t%s" % pair for pair in TEN], ran.stderr


def test_files_of_one_host_fill_splits_whatever_the_least_size_of_a_host_is(desk: Desk) -> None:
    """Six files of 40 bytes in splits of 100 at most. (Where there are several hosts it matters:
    unit/mapreduce/test_split_plan.py.)"""
    for number in range(6):
        desk.write(f"six/{number}", "x\n" * 20)
    words = ["-inputformat", LIB + "CombineTextInputFormat", "-input", "six"]
    words += ["-mapper", "wc -l", "-reducer", "NONE"]
    size = "mapreduce.input.fileinputformat.split"

    for per_node in ([], ["-D", f"{size}.minsize.per.node=50"]):
        ran = desk.run("-D", f"{size}.maxsize=100", *per_node, *words)
        assert [int(line) for line in ran.stdout.split()] == [60, 60], ran.stderr


def test_an_output_below_a_plain_file_is_status_1(desk: Desk) -> None:
    ran = desk.run("-input", "in", "-output", "in/below", "-mapper", "cat", "-reducer", "NONE")

    assert ran.status == 1, ran.stderr
    assert "in/below" in ran.stderr and "Traceback" not in ran.stderr


def test_more_reduces_than_a_job_may_have_are_refused_at_once(desk: Desk) -> None:
    for count in (REDUCES_MAX + 1, 99_999_999, 2**31):
        ran = desk.job("-mapper", "cat", "-reducer", "cat", "-numReduceTasks", str(count))
        assert ran.status == 1 and not desk.out.exists(), ran.stderr
