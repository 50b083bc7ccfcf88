"""mapreduce.local.output: results on standard output come in the order of their partitions; a
directory is one job's at a time."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from pathlib import Path

import pytest

from mrstream.mapreduce.dataflow.committer import OutputExists
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.local.output import DirectoryOutput, StandardOutput
from mrstream.streaming.conf.jobconf import JobConf


def write_part(output: StandardOutput, name: str, data: bytes) -> None:
    directory = Path(output.attempt_directory(name).removeprefix("file:"))
    (directory / "part").write_bytes(data)


def test_a_part_waits_for_those_before_it(tmp_path: Path) -> None:
    stream = io.BytesIO()
    output = StandardOutput(str(tmp_path / "out"), stream)
    output.begin()
    for number in range(4):
        write_part(output, f"a{number}", b"%d\n" % number)

    output.commit_task("a2", 2)
    assert stream.getvalue() == b""
    output.commit_task("a0", 0)
    assert stream.getvalue() == b"0\n"
    output.skip_task(1)
    output.commit_task("a3", 3)
    output.commit_job()

    assert stream.getvalue() == b"0\n2\n3\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a1"]


def test_the_parts_of_a_task_come_before_what_it_wrote_below_them(tmp_path: Path) -> None:
    """Named outputs of a job without an output directory, the same here as on a cluster."""
    stream = io.BytesIO()
    output = StandardOutput(str(tmp_path / "out"), stream)
    output.begin()
    directory = Path(output.attempt_directory("a").removeprefix("file:"))
    for name in ("even/part", "odd/part", "part-1", "part-0", "_logs/x"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(f"{name}\n")

    output.commit_task("a", 0)

    assert stream.getvalue() == b"part-0\npart-1\neven/part\nodd/part\n"


def test_what_an_attempt_wrote_in_vain_is_not_printed(tmp_path: Path) -> None:
    stream = io.BytesIO()
    output = StandardOutput(str(tmp_path / "out"), stream)
    output.begin()
    write_part(output, "first", b"bad\n")
    output.abort_task("first")
    write_part(output, "second", b"good\n")

    output.commit_task("second", 0)

    assert stream.getvalue() == b"good\n"


# --- one job at a time


def job_into(url: str | Path, **settings: str) -> DirectoryOutput:
    """The output of a job that was let pass, and has not begun."""
    output = DirectoryOutput(JobConf(settings), RoutedFiles(), str(url))
    output.refuse_existing(())
    return output


def begin(output: DirectoryOutput) -> None:
    output.take()
    output.begin()


OVERWRITE = {"mrstream.output.overwrite": "true"}


def test_of_two_jobs_that_both_found_nothing_one_gets_the_directory(tmp_path: Path) -> None:
    """Both ran, both succeeded, and the later commit replaced the other's results."""
    one, two = job_into(tmp_path / "out"), job_into(tmp_path / "out")
    begin(one)

    with pytest.raises(OutputExists, match="is being written by another job"):
        two.take()
    one.commit_job()
    one.release()
    with pytest.raises(OutputExists, match=f"Output directory file:{tmp_path}/out already exists"):
        two.take()

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_SUCCESS"]


def test_overwriting_deletes_what_is_over_and_never_what_is_being_written(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00000").write_text("old")
    one, two = (job_into(tmp_path / "out", **OVERWRITE) for _ in range(2))
    begin(one)
    (tmp_path / "out" / "part-00000").write_text("new")

    with pytest.raises(OutputExists, match="is being written by another job"):
        begin(two)
    assert (tmp_path / "out" / "part-00000").read_text() == "new"
    assert (tmp_path / "out" / "_temporary").exists()

    one.commit_job()
    one.release()
    begin(two)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_temporary"]


def test_a_lock_is_of_the_directory_that_has_the_name(tmp_path: Path) -> None:
    """The one that was locked may be deleted by whoever had it, and be another's by now."""
    one, two, three = (job_into(tmp_path / "out") for _ in range(3))
    begin(one)
    one.abort_job(is_interrupted=True)
    assert not (tmp_path / "out").exists()
    begin(two)
    one.release()

    with pytest.raises(OutputExists, match="is being written by another job"):
        three.take()


def test_the_lock_of_another_place_is_in_the_state_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path))
    one, two, other = job_into("memory://o/1"), job_into("memory://o/1"), job_into("memory://o/2")
    one.take()
    other.take()

    with pytest.raises(OutputExists, match=r"memory://.*1 is being written by another job"):
        two.take()
    one.release()
    other.release()
    two.take()
    two.release()

    assert os.listdir(tmp_path / "outputs") == []


def test_without_locks_the_second_finds_the_room_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems of networks have none."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    one, two = job_into(tmp_path / "out"), job_into(tmp_path / "out")
    assert (one.take(), two.take()) == (-1, -1)
    one.begin()

    with pytest.raises(OutputExists, match="another job has begun to write it"):
        two.begin()
