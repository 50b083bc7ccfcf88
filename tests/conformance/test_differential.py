"""The differential runner (differential.py) sees what differs, and nothing else.

The gate has no Hadoop: the other side is what golden cases recorded, and mrstream itself with its
other kernel, which must agree on jobs drawn at random too.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.conformance import generated
from tests.conformance.cases import Outcome
from tests.conformance.differential import MRSTREAM, command_side, compare_job, listed, main
from tests.conformance.test_unlike_hadoop import PROVED_BY

TWIN = shlex.join(["env", "MRSTREAM_KERNEL=python", *MRSTREAM])


def test_golden_cases_agree_with_what_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--other", "recorded", "kfbp_offsets", "map_file_out"]) == 0
    assert "2 of 2 jobs agree" in capsys.readouterr().out


def test_a_command_that_does_otherwise_differs(capsys: pytest.CaptureFixture[str]) -> None:
    other = shlex.join([*MRSTREAM, "-D", "mapreduce.output.textoutputformat.separator=|"])

    assert main(["--other", other, "kfbp_offsets"]) == 1
    assert "other: part-00000 is" in capsys.readouterr().out


def test_both_kernels_do_the_same_with_jobs_drawn_at_random() -> None:
    assert main(["--other", TWIN, "--jobs", "6", "--seed", "3"]) == 0


def test_a_seed_always_draws_the_same_jobs() -> None:
    jobs = [generated.draw(5, number) for number in range(200)]

    assert jobs == [generated.draw(5, number) for number in range(200)]
    assert len({str(job.words) for job in jobs}) > 150


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("print('x', file=open(out + '/part-00000', 'a'))", "part-00000 is"),
        ("open(out + '/more', 'w').close()", "files"),
        ("sys.exit(7)", "status 0, other 7"),
        ("done.stderr = done.stderr.replace(b'input records=', b'input records=4')", "Map input"),
    ],
)
def test_every_kind_of_difference_is_found(tmp_path: Path, change: str, word: str) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "import subprocess, sys\n"
        f"done = subprocess.run([*{MRSTREAM!r}, *sys.argv[1:]], capture_output=True)\n"
        "out = sys.argv[sys.argv.index('-output') + 1]\n"
        f"{change}\n"
        "sys.stderr.write(done.stderr.decode())\n"
    )
    job = generated.Job(
        "one", ["-input", "{in}/f", "-output", "{out}", "-mapper", "cat"], {"f": b"a\nb\n"}
    )

    found, line = compare_job(job, command_side([sys.executable, str(script)]))

    assert line == ""
    assert any(text.startswith(word) for text in found), found


@pytest.mark.parametrize(
    ("partitioner", "status", "says", "is_listed"),
    [
        ("BinaryPartitioner", 1, "java.lang.ArithmeticException: / by zero", True),
        ("BinaryPartitioner", 1, "java.lang.NullPointerException", False),
        ("BinaryPartitioner", 0, "java.lang.ArithmeticException: / by zero", False),
        ("HashPartitioner", 1, "java.lang.ArithmeticException: / by zero", False),
    ],
)
def test_only_what_the_list_of_differences_has_is_taken_for_listed(
    partitioner: str, status: int, says: str, is_listed: bool
) -> None:
    job = generated.Job("one", ["-partitioner", f"{generated.LIB}{partitioner}"], {})

    line = listed(job, Outcome(0, "", "", {}), Outcome(status, "", says, {}))

    assert (line in PROVED_BY) is is_listed
