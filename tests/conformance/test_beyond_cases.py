"""What Hadoop Streaming's specification says and no golden case shows; each test names its section.

The expected bytes are worked out from the specification, not from a run of ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local_jobs import Desk, Ran

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


# ---- 6: reducers that are classes ----------------------------------------------------------------


def test_aggregate_by_its_class_has_no_combiner(desk: Desk) -> None:
    """Section 6.3: only the word `aggregate` brings the combiner with it."""
    desk.write("in", "LongValueSum:a\t1\nLongValueSum:a\t2\n")

    ran = desk.job("-mapper", "cat", "-reducer", f"{LIB}aggregate.ValueAggregatorReducer")

    assert desk.parts()["part-00000"] == b"a\t3\n"
    assert counter(ran, "Reduce input records") == 2


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
