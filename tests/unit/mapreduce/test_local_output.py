"""mapreduce.local.output: results on standard output come in the order of their partitions."""

from __future__ import annotations

import io
from pathlib import Path

from mrstream.mapreduce.local.output import StandardOutput


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
