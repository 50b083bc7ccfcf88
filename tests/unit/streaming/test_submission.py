"""streaming/conf/submission.py: what options, a submission and a task write as properties."""

from __future__ import annotations

from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.conf.submission import job_properties, task_properties
from mrstream.streaming.task.child import task_environment


def submitted(given: dict[str, str], *inputs: str) -> dict[str, str]:
    return job_properties(
        given,
        job_name="streamjob1",
        user="me",
        host="here",
        working_directory="file:/home/me",
        inputs=inputs,
        output="file:/out",
        files=2,
        maps=3,
    )


def test_a_map_task_says_what_it_reads_and_a_reduce_task_does_not() -> None:
    """Spec 7.4; case env_reduce."""
    said = {
        is_map: task_properties(
            job_id="job_1_0001",
            task_id="task_1_0001_x_000000",
            attempt_id="attempt_1_0001_x_000000_0",
            is_map=is_map,
            partition=0,
            maps=3,
            output_dir="out",
            local_dir="tmp",
            user="me",
            input_file="file:/x",
        )
        for is_map in (True, False)
    }

    assert said[True]["mapreduce.map.input.file"] == "file:/x"
    assert "mapreduce.map.input.file" not in said[False]
    assert said[False]["mapreduce.job.maps"] == "3"


def test_programs_see_what_the_submission_knows_but_not_under_old_names() -> None:
    """Spec 7.4."""
    variables = task_environment(JobConf(submitted({}, "file:/a", "file:/b")), {}, {}, "/t")

    assert variables["mapreduce_job_name"] == "streamjob1"
    assert variables["mapreduce_job_maps"] == "3"
    assert variables["mapreduce_input_fileinputformat_inputdir"] == "file:/a,file:/b"
    assert variables["mapreduce_job_working_dir"] == "file:/home/me"
    assert "mapred_job_name" not in variables


def test_a_job_keeps_the_name_that_it_was_given() -> None:
    assert submitted({"mapreduce.job.name": "mine"})["mapreduce.job.name"] == "mine"


def test_a_comma_in_an_input_path_is_escaped() -> None:
    said = submitted({}, "file:/{a,b}")

    assert said["mapreduce.input.fileinputformat.inputdir"] == r"file:/{a\,b}"
