"""The examples run as they stand, and give what they say (MapReduce §2.3, MR-03)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/run"))
PAPER = {
    "word_count",
    "grep",
    "url_frequency",
    "reverse_links",
    "term_vectors",
    "inverted_index",
    "sort",
}


def run(name: str, home: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run an example with the `mrstream` of this environment."""
    programs = Path(sys.executable).parent
    return subprocess.run(
        [EXAMPLES / name / "run", *words],
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "MRSTREAM_HOME": str(home),
        },
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_example_gives_the_expected_result(name: str, tmp_path: Path) -> None:
    done = run(name, tmp_path)

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == (EXAMPLES / name / "expected").read_bytes()


def test_the_seven_programs_of_the_paper_are_there() -> None:
    assert set(NAMES) >= PAPER


def test_an_example_takes_more_options(tmp_path: Path) -> None:
    done = run("word_count", tmp_path, "-output", str(tmp_path / "out"))

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_SUCCESS", "part-00000"]
