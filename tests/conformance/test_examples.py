"""The examples run as they stand, and give what they say (MapReduce §2.3, MR-03)."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from mrstream.cluster.config.config import load

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


def test_the_page_of_the_ten_stages_gives_what_mrstream_gives(tmp_path: Path) -> None:
    """The path of a record, with the product's own stages and nothing around them."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        text = "".join(f"word{n * n % 97} and\tmore {n}\n" for n in range(500 * number))
        (tmp_path / "in" / f"{number}").write_text(text)
    words = [sys.executable, str(EXAMPLES / "ten_stages.py")]
    job = [str(tmp_path / "in"), str(tmp_path / "page"), "tr ' ' '\\n'", "uniq -c", "3"]
    options = ["-input", job[0], "-output", str(tmp_path / "job"), "-mapper", job[2]]
    options += ["-reducer", job[3], "-numReduceTasks", "3"]
    environment = {**os.environ, "MRSTREAM_HOME": str(tmp_path / "home")}

    subprocess.run([*words, *job], check=True, capture_output=True, env=environment)
    mrstream = str(Path(sys.executable).parent / "mrstream")
    subprocess.run([mrstream, *options], check=True, capture_output=True, env=environment)

    there = {path.name: path.read_bytes() for path in (tmp_path / "job").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "page").iterdir()} == there
    assert sum(map(len, there.values())) > 1000


def test_the_demonstration_has_directories_of_its_own(tmp_path: Path) -> None:
    """Else the second user of a machine cannot write where the first one's was, and its end would
    purge a cluster that somebody made from the file of the checkout."""
    demo = runpy.run_path(str(EXAMPLES / "demo.py"))

    config = load(demo["write_cluster"](tmp_path))

    assert [host.dir for host in config.hosts] == [f"{tmp_path}/hosts/h{n}" for n in (1, 2, 3)]
