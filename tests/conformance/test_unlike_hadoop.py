"""Each line of the list of differences (docs/guide/options.md) has a test that shows ours.

What Hadoop does was seen on Hadoop 3.4.2's local runner.
"""

from __future__ import annotations

import bz2
import re
import shutil
from pathlib import Path

import pytest

from tests.support.local_jobs import TREE, Desk

LIST = TREE / "docs" / "guide" / "options.md"
HERE = "conformance/test_unlike_hadoop.py"
LOCAL = "conformance/test_local_jobs.py"
COMMAND = "unit/streaming/test_command.py"
PROVED_BY = {
    "a `-conf` file that does not exist": (
        COMMAND, "test_a_configuration_file_that_is_not_there_is_named",
    ),
    "a `.bz2` file that lacks its last bytes": (HERE, "test_a_cut_bzip2_file_fails_the_task"),
    "rawbytes that end inside a length": (HERE, "test_raw_bytes_cut_inside_a_length_are_refused"),
    r"RegexMapper's `(?U)`, `\p{In…}`, `\p{java…}`, `\G` and scripts that few people match": (
        "unit/streaming/test_builtin.py", "test_a_pattern_that_cannot_be_translated_is_refused",
    ),
    "`-libjars`, and classes that are not [listed](#class-names)": (
        COMMAND, "test_a_java_class_that_we_lack_is_said_to_be_java",
    ),
    "order of equal keys": (HERE, "test_equal_keys_keep_the_order_of_emission"),
    "order of the files of a local directory": (HERE, "test_files_of_a_directory_come_by_name"),
    "`mapreduce.job.maps`": (HERE, "test_a_tiny_file_is_one_task"),
    "block size of local files": (
        "unit/mapreduce/test_split_plan.py", "test_the_last_piece_may_be_a_tenth_larger",
    ),
    "Combine… formats without a maximum size": (
        "unit/mapreduce/test_split_plan.py", "test_ten_thousand_small_files_are_few_splits",
    ),
    "users' counters": (HERE, "test_hadoops_own_counters_do_not_count_among_the_users"),
    "attempts, timeouts and tolerated failures on one machine": (
        "paper/test_mapreduce_jobs.py",
        "test_user_counters_count_each_task_once_though_an_attempt_failed",
    ),
    "tasks on one machine": (HERE, "test_a_task_has_a_directory_of_its_own"),
    "`PYTHONUNBUFFERED` of the caller": (HERE, "test_pythonunbuffered_is_not_inherited"),
    "bytes of compressed files and map output": (
        "property/streaming/test_formats_round_trips.py",
        "test_a_codec_gives_back_concatenated_streams_however_they_are_cut",
    ),
    "skipping of bad records": (
        LOCAL, "test_a_poison_record_is_found_and_skipped_if_the_job_allows_it",
    ),
    "`.crc` files beside those of a local output": (HERE, "test_output_has_no_checksum_files"),
    "counters of Java and of the operations of file systems": (
        HERE, "test_there_are_counters_of_the_job_and_none_of_java",
    ),
    "why a job failed, on one machine": (
        "unit/mapreduce/test_local_job.py",
        "test_a_failed_job_names_its_task_and_counts_the_failed",
    ),
    "lines on the console": (HERE, "test_console_lines_name_no_java_class"),
    "an empty file named `.gz` or `.deflate`": (HERE, "test_an_empty_packed_file_has_no_records"),
    '`-input ""` beside other inputs': (HERE, "test_an_empty_input_word_is_ignored"),
    "an output directory that is there and empty": (HERE, "test_an_empty_directory_is_used"),
    "`.tar.bz2` and `.tar.xz` in `-archives`": (HERE, "test_more_kinds_of_archives_are_unpacked"),
    "blanks in the names of `-files`": (HERE, "test_a_file_with_a_blank_in_its_name_is_shipped"),
    "BinaryPartitioner on an empty key": (
        "unit/streaming/test_comparator.py", "test_binary_partitions_hash_a_part_of_the_key",
    ),
    "`reporter:counter:` of a name that Hadoop's own group has not": (
        "unit/mapreduce/test_counters.py",
        "test_a_program_may_add_to_hadoops_own_counters_by_their_java_names",
    ),
    "control characters in a property": (HERE, "test_a_separator_may_be_a_control_character"),
    "generic options behind others": (
        "unit/streaming/test_options.py", "test_generic_options_may_stand_anywhere",
    ),
    "no `-output`": (LOCAL, "test_without_output_results_go_to_stdout_in_partition_order"),
    "a reducer command without a mapper, on text": (
        COMMAND, "test_without_a_mapper_a_reducer_command_gets_lines_as_from_cat",
    ),
    "simple and new-API class names": (
        COMMAND, "test_simple_and_new_names_of_a_known_class_work",
    ),
    "a local script as a command": (
        LOCAL, "test_a_script_is_shipped_by_itself_and_needs_no_run_bit",
    ),
}  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("in", "b\t1\na\t2\nc\t3\na\t4\n")
    return desk


def maps_only(desk: Desk, *words: str, mapper: str = "cat") -> bytes:
    ran = desk.job(*words, "-mapper", mapper, "-reducer", "NONE")
    assert ran.status == 0, ran.stderr
    return desk.parts()["part-00000"]


def listed() -> list[str]:
    """Give the first cells of the list's rows."""
    part = LIST.read_text().partition("## Where it differs from Hadoop\n")[2]
    rows = re.findall(r"^\| (.*?) \| .* \| .* \|$", part, re.MULTILINE)
    return [row for row in rows if row not in ("what", "---")]


def test_every_line_of_the_list_is_proved_by_a_test_that_exists() -> None:
    assert sorted(listed()) == sorted(PROVED_BY)
    for path, name in PROVED_BY.values():
        assert f"def {name}(" in (TREE / "tests" / path).read_text(), name


@pytest.mark.parametrize("lost", [1, 8])
def test_a_cut_bzip2_file_fails_the_task(desk: Desk, lost: int) -> None:
    (desk.cwd / "in").unlink()
    desk.write("in/x.bz2", bz2.compress(b"line\n" * 2000)[:-lost])

    ran = desk.job("-mapper", "cat", "-reducer", "NONE")

    assert ran.status == 1
    assert "the bzip2 stream is cut off" in ran.stderr


def test_raw_bytes_cut_inside_a_length_are_refused(desk: Desk) -> None:
    ran = desk.job(
        "-D", "stream.map.output=rawbytes", "-reducer", "NONE",
        "-mapper", r"printf \000\000\000\001a\000\000\000\001b\000\000",
    )  # fmt: skip

    assert ran.status == 1
    assert "the output ends inside a record" in ran.stderr


def test_equal_keys_keep_the_order_of_emission(desk: Desk) -> None:
    lines = [f"k\t{number}\n" for number in range(50)]
    desk.write("in", "".join(lines))

    assert desk.job("-mapper", "cat", "-reducer", "cat").status == 0
    assert desk.parts()["part-00000"] == "".join(lines).encode()


def test_files_of_a_directory_come_by_name(desk: Desk) -> None:
    (desk.cwd / "in").unlink()
    for name in "zfamq":
        desk.write(f"in/{name}", f"{name}\n")

    assert desk.job("-mapper", "cat", "-reducer", "NONE").status == 0
    assert (
        b"".join(data for _, data in sorted(desk.parts().items())) == b"a\t\nf\t\nm\t\nq\t\nz\t\n"
    )


def test_a_tiny_file_is_one_task(desk: Desk) -> None:
    maps_only(desk)

    assert sorted(desk.parts()) == ["_SUCCESS", "part-00000"]


def test_hadoops_own_counters_do_not_count_among_the_users(desk: Desk) -> None:
    script = "for i in $(seq 120); do echo reporter:counter:g,c$i,1 >&2; done; cat"
    ran = desk.job("-mapper", f"bash -c '{script}'", "-reducer", "NONE")

    assert ran.status == 0
    assert ran.stderr.count("\t\tc") == 120


def test_a_task_has_a_directory_of_its_own(desk: Desk) -> None:
    where = maps_only(desk, mapper="pwd").decode().strip()

    assert Path(where) != desk.cwd
    assert not Path(where).exists()


def test_pythonunbuffered_is_not_inherited(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")

    assert maps_only(desk, mapper="bash -c 'echo =$PYTHONUNBUFFERED'") == b"=\t\n"


def test_output_has_no_checksum_files(desk: Desk) -> None:
    ran = desk.job("-mapper", "cat", "-reducer", "cat")

    parts = {path.name: path.stat().st_size for path in desk.out.iterdir()}
    assert sorted(parts) == ["_SUCCESS", "part-00000"]
    assert f"Bytes Written={parts['part-00000']}\n" in ran.stderr


def test_there_are_counters_of_the_job_and_none_of_java(desk: Desk) -> None:
    ran = desk.job("-mapper", "cat", "-reducer", "cat")

    assert "\t\tLaunched map tasks=1\n" in ran.stderr
    assert "\t\tCPU time spent (ms)=" in ran.stderr
    assert not re.search(r"GC time|heap|Virtual memory|operations=", ran.stderr)


def test_console_lines_name_no_java_class(desk: Desk) -> None:
    ran = desk.job("-mapper", "cat", "-reducer", "cat")

    assert "map 100% reduce 100%" in ran.stderr
    assert not re.search(r"(INFO|WARN) [a-z]+\.[A-Z]", ran.stderr)
    assert "url to track" not in ran.stderr


@pytest.mark.parametrize("suffix", ["gz", "deflate"])
def test_an_empty_packed_file_has_no_records(desk: Desk, suffix: str) -> None:
    (desk.cwd / "in").unlink()
    desk.write(f"in/x.{suffix}", b"")

    assert maps_only(desk) == b""


def test_an_empty_input_word_is_ignored(desk: Desk) -> None:
    assert maps_only(desk, "-input", "") == b"b\t1\na\t2\nc\t3\na\t4\n"


def test_an_empty_directory_is_used(desk: Desk) -> None:
    desk.out.mkdir()

    assert maps_only(desk) == b"b\t1\na\t2\nc\t3\na\t4\n"


@pytest.mark.parametrize("kind", ["bztar", "xztar"])
def test_more_kinds_of_archives_are_unpacked(desk: Desk, kind: str) -> None:
    name = Path(shutil.make_archive(str(desk.cwd / "a"), kind, desk.cwd, "in")).name

    found = maps_only(desk, "-archives", name, mapper=f"cat {name}/in")

    assert found == b"b\t1\na\t2\nc\t3\na\t4\n"


def test_a_file_with_a_blank_in_its_name_is_shipped(desk: Desk) -> None:
    desk.write("a b.txt", "hi\n")

    assert maps_only(desk, "-files", "a b.txt", mapper="cat 'a b.txt'") == b"hi\t\n"


def test_a_separator_may_be_a_control_character(desk: Desk) -> None:
    desk.write("in", b"k\x01v\n")

    assert maps_only(desk, "-D", "stream.map.output.field.separator=\x01") == b"k\tv\n"
