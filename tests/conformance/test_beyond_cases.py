"""What Hadoop Streaming's specification says and no golden case shows; each test names its section.

The expected bytes are worked out from the specification, not from a run of ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.local_jobs import Desk, Ran

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LIB = "org.apache.hadoop.mapred.lib."


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("in", "b\t1\na\t2\nc\t3\na\t4\n")
    return desk


def maps_only(desk: Desk, *words: str, mapper: str = "cat") -> bytes:
    """Run a job of maps only over `in`; give its one part."""
    ran = desk.job(*words, "-mapper", mapper, "-reducer", "NONE")
    assert ran.status == 0, ran.stderr
    return desk.parts()["part-00000"]


def counter(ran: Ran, name: str) -> int:
    """Give the value of a counter that the job printed."""
    return int(ran.line(f"\t\t{name}=").rpartition("=")[2])


# ---- 1: the command line -------------------------------------------------------------------------


def test_formats_are_chosen_by_options_alone(desk: Desk) -> None:
    """Section 1.2: what options set, their defaults too, beats properties."""
    written = maps_only(
        desk,
        "-D", f"mapred.input.format.class={LIB}NLineInputFormat",
        "-D", f"mapred.output.format.class={LIB}NullOutputFormat",
    )  # fmt: skip

    assert written == b"b\t1\na\t2\nc\t3\na\t4\n"


def test_an_empty_command_fails_the_task(desk: Desk) -> None:
    """Section 7.1."""
    ran = desk.job("-mapper", "''", "-reducer", "NONE")

    assert ran.status == 1
    assert "the command is empty" in ran.stderr
    assert "Job not successful!" in ran.stderr


# ---- 3: input ------------------------------------------------------------------------------------


def test_a_file_that_is_only_a_byte_order_mark_has_no_record(desk: Desk) -> None:
    """Section 3.4: the mark is removed, and nothing is left."""
    desk.write("in", BYTE_ORDER_MARK)

    assert maps_only(desk) == b""


@pytest.mark.parametrize("speaks", ["text", "typedbytes"])
def test_a_byte_order_mark_does_not_count_for_the_longest_line(desk: Desk, speaks: str) -> None:
    """Section 3.4: a line of 4 bytes with its end, behind the mark, is shorter than 5."""
    desk.write("in", BYTE_ORDER_MARK + b"aaa\nbbbb\nccc\n")

    ran = desk.job(
        "-D", "mapreduce.input.linerecordreader.line.maxlength=5",
        "-D", f"stream.map.input={speaks}", "-mapper", "cat", "-reducer", "NONE",
    )  # fmt: skip

    assert counter(ran, "Map input records") == 2


@pytest.mark.parametrize(
    ("input_format", "given"),
    [
        ("KeyValueTextInputFormat", b"a;b\t\nc;d\t\n"),
        (f"{LIB}CombineTextInputFormat", b"0\ta\n2\tb\nc\t\n6\td\n\t\n"),
    ],
)
def test_only_text_has_a_record_delimiter(desk: Desk, input_format: str, given: bytes) -> None:
    """Section 3.4: the property is TextInputFormat's, and that of the formats which use it."""
    desk.write("in", "a;b\nc;d\n")

    written = maps_only(
        desk, "-D", "textinputformat.record.delimiter=;", "-inputformat", input_format
    )

    assert written == given


# ---- 5: partition and sort -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("-partitioner", f"{LIB}TotalOrderPartitioner"),
        ("-D", "mapreduce.partition.keypartitioner.options=-kx",
         "-partitioner", f"{LIB}KeyFieldBasedPartitioner"),
    ],
)  # fmt: skip
def test_a_partitioner_of_one_reducer_is_never_asked(desk: Desk, words: tuple[str, ...]) -> None:
    """Section 5: R = 1; so neither a missing partition file nor a wrong key spec is noticed."""
    ran = desk.job(*words, "-mapper", "cat", "-reducer", "cat")

    assert ran.status == 0, ran.stderr


def test_a_comparator_that_is_not_known_is_refused(desk: Desk) -> None:
    """Section 2: Hadoop fails too, but when the job runs."""
    ran = desk.job(
        "-D", "mapreduce.job.output.key.comparator.class=com.acme.Order", "-mapper", "cat"
    )

    assert ran.status == 1
    assert "com.acme.Order is a Java class" in ran.stderr


# ---- 6: combiners, and reducers that are classes -------------------------------------------------


def test_a_combiner_that_gives_other_types_than_the_maps_is_refused(desk: Desk) -> None:
    """Section 6.1: its stdout is the reduce side's, here text; Hadoop refuses it when it writes."""
    ran = desk.job(
        "-D", "stream.map.output=rawbytes", "-D", "stream.reduce.input=rawbytes",
        "-mapper", r"printf \000\000\000\001a\000\000\000\001b",
        "-combiner", "cat", "-reducer", "cat",
    )  # fmt: skip

    assert ran.status == 1
    assert (
        "wrong key class: class org.apache.hadoop.io.Text "
        "is not class org.apache.hadoop.io.BytesWritable" in ran.stderr
    )


def test_aggregate_by_its_class_has_no_combiner(desk: Desk) -> None:
    """Section 6.3: only the word `aggregate` brings the combiner with it."""
    desk.write("in", "LongValueSum:a\t1\nLongValueSum:a\t2\n")

    ran = desk.job("-mapper", "cat", "-reducer", f"{LIB}aggregate.ValueAggregatorReducer")

    assert desk.parts()["part-00000"] == b"a\t3\n"
    assert counter(ran, "Reduce input records") == 2


@pytest.mark.parametrize(
    ("spec", "written"),
    [(":0-", b"1\t2\t3\na\tb\tc\n"), ("0,1:", b"1\t2\na\tb\n"), ("0-:", b"")],
)
def test_a_side_of_which_no_field_is_selected_is_left_out_with_its_tab(
    desk: Desk, spec: str, written: bytes
) -> None:
    """Sections 6.4 and 4.4: it is null; the default selects neither, and two nulls are no line."""
    desk.write("in", "a\tb\tc\n1\t2\t3\n")

    ran = desk.job(
        "-D", "mapreduce.fieldsel.map.output.key.value.fields.spec=0:1-",
        "-D", f"mapreduce.fieldsel.reduce.output.key.value.fields.spec={spec}",
        "-D", "mapreduce.map.output.key.class=org.apache.hadoop.io.Text",
        "-mapper", f"{LIB}FieldSelectionMapReduce", "-reducer", f"{LIB}FieldSelectionMapReduce",
    )  # fmt: skip

    assert desk.parts()["part-00000"] == written
    assert counter(ran, "Reduce output records") == 2


# ---- 7.4: the environment ------------------------------------------------------------------------


def test_programs_see_what_the_submission_knows(desk: Desk) -> None:
    """Section 7.4: names of the job, its input and output, how many maps it has."""
    names = "job_maps job_working_dir input_fileinputformat_inputdir"
    script = f'for x in {names} job_name; do v=mapreduce_$x; echo "${{!v}}"; done'

    written = maps_only(desk, "-D", "mapred.job.name=mine", mapper=f"bash -c '{script}'")

    assert [line.rstrip("\t") for line in written.decode().splitlines()] == [
        "1",
        f"file:{desk.cwd}",
        f"file:{desk.cwd}/in",
        "mine",
    ]


def test_a_job_without_a_name_is_given_one(desk: Desk) -> None:
    """Section 7.4."""
    assert maps_only(desk, mapper="bash -c 'echo $mapreduce_job_name'").startswith(b"streamjob")


def test_variables_in_cmdenv_are_expanded_as_in_any_property(desk: Desk) -> None:
    """Sections 1.1 and 7.4: the words travel as the property stream.addenvironment."""
    written = maps_only(desk, "-D", "my.k=v", "-cmdenv", "X=<${my.k}>", mapper="bash -c 'echo $X'")

    assert written == b"<v>\t\n"


def test_a_path_of_the_jobs_own_does_not_hide_the_programs_of_the_system(desk: Desk) -> None:
    """Section 7.2: a program is looked for along the PATH of who starts it, then gets the job's."""
    written = maps_only(desk, "-cmdenv", "PATH=/nowhere", mapper="printenv PATH")

    assert written == b"/nowhere\t\n"


# ---- 8.1: counters -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["GzipCodec", "Lz4Codec"])
def test_reduces_count_the_bytes_that_travel(desk: Desk, codec: str) -> None:
    """Section 8.1: shuffle bytes are the materialized bytes that were fetched, packed if they are
    packed."""
    desk.write("in", "".join(f"{n % 7}\tthe same words again and again\n" for n in range(2000)))

    ran = desk.job(
        "-D", "mapreduce.map.output.compress=true",
        "-D", f"mapreduce.map.output.compress.codec=org.apache.hadoop.io.compress.{codec}",
        "-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "3",
    )  # fmt: skip

    shuffled = counter(ran, "Reduce shuffle bytes")
    assert shuffled == counter(ran, "Map output materialized bytes")
    assert shuffled < counter(ran, "Map output bytes") / 4


# ---- 8.4 and 11: what a failed job leaves --------------------------------------------------------


def test_the_other_maps_of_a_failed_job_leave_their_parts(desk: Desk) -> None:
    """On one machine all maps run, those too that start after the failure."""
    (desk.cwd / "in").unlink()
    desk.write("in/bad", "bad bad\n")  # the longest: map 0
    for name in "cdef":
        desk.write(f"in/{name}", f"{name}\n")

    script = "read x; echo $x; case $x in bad*) exit 1;; esac"
    ran = desk.job(
        "-D", "mapreduce.local.map.tasks.maximum=1", "-mapper", f"bash -c '{script}'",
        "-reducer", "NONE",
    )  # fmt: skip

    assert ran.status == 1
    assert "failedMaps:1 failedReduces:0" in ran.stderr
    assert sorted(desk.parts()) == ["part-00001", "part-00002", "part-00003", "part-00004"]


def test_the_other_reduces_of_a_failed_job_leave_their_parts(desk: Desk) -> None:
    desk.write("in", "a\nb\nc\n")  # hashes 128, 129, 130: reducers 2, 0, 1

    script = "read x; echo $x; case $x in b*) exit 1;; esac"
    ran = desk.job(
        "-D", "mapreduce.local.reduce.tasks.maximum=1", "-mapper", "cat",
        "-reducer", f"bash -c '{script}'", "-numReduceTasks", "3",
    )  # fmt: skip

    assert ran.status == 1
    assert sorted(desk.parts()) == ["part-00001", "part-00002"]
