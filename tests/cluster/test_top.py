"""`mrstream top` in a real terminal: walk through it, kill its master, quit cleanly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for
from tests.cluster.terminal import Terminal

JOB_MASTER, WORKER = "mapreduce.master", "mapreduce.worker"
ROOT = str(Path(__file__).parent.parent.parent)
TOP = [
    sys.executable,
    "-c",
    "import sys; from mrstream.tui.cli import main; sys.exit(main(sys.argv[1:]))",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    roles = (MASTER, CHUNKSERVER, JOB_MASTER, WORKER)
    with LocalCluster(tmp_path_factory.mktemp("top"), 3, roles=roles) as started:
        yield started


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": ROOT, "LANG": "C.UTF-8", **more}


@pytest.fixture
def terminal(cluster: LocalCluster) -> Iterator[Terminal]:
    made = Terminal(environment(MRSTREAM_HOME=cluster.environment["MRSTREAM_HOME"]))
    yield made
    made.close()


def quit_cleanly(terminal: Terminal) -> None:
    """The shell is back, on its own screen, and echoes what is typed."""
    terminal.type("q")
    wait_for(lambda: not terminal.in_alternate_screen(), 60.0, "the shell's own screen")
    terminal.run(["echo", "still", "echoing"])
    screen = terminal.wait("still echoing")

    assert "'echo' 'still' 'echoing'" in screen


def test_the_demonstration_needs_no_cluster_and_gives_the_screen_back() -> None:
    made = Terminal(environment(HOME="/nonexistent"), columns=80, lines=24)
    try:
        made.run([*TOP, "--demo"])
        made.wait("sort of 10^10 records")
        made.wait("running")
        made.type("2")
        made.wait("h0001")
        made.type("1")
        made.wait("1100000000000_0001")
        quit_cleanly(made)
    finally:
        made.close()


def test_a_walk_through_the_pages_of_a_real_cluster(
    cluster: LocalCluster, terminal: Terminal, tmp_path: Path
) -> None:
    words = tmp_path / "words.txt"
    words.write_text("to be or not to be\n" * 1000)
    assert cluster.mrstream("dfs", "-put", str(words), "/words.txt").returncode == 0
    done = cluster.mrstream(
        "-D", "mapreduce.job.name=walk", "-input", "/words.txt", "-mapper", "cat", "-reducer", "cat"
    )
    assert done.returncode == 0, done.stderr.decode()

    terminal.run(TOP)
    terminal.wait("walk")
    terminal.type("Enter")
    terminal.wait("Overview")
    terminal.type("Enter")
    terminal.wait("m_000000_0")
    terminal.type("Escape")
    terminal.wait("Left")  # the table of jobs; Escape and a key in one go would be one key
    terminal.type("2")
    terminal.wait("h3")
    terminal.type("3")
    terminal.wait("words.txt")
    terminal.type("?")
    terminal.wait("quit")
    terminal.type("?")
    quit_cleanly(terminal)


def test_a_lost_master_is_said_and_its_return_is_noticed(
    cluster: LocalCluster, terminal: Terminal
) -> None:
    terminal.run(TOP)
    terminal.wait("hosts 3/3")

    cluster.kill(JOB_MASTER, "h1")
    screen = terminal.wait("NO ANSWER")
    cluster.start(JOB_MASTER, "h1")
    terminal.wait("hosts 3/3")

    assert "last picture" in screen
    quit_cleanly(terminal)


def test_a_job_that_does_not_exist_is_said_in_words(
    cluster: LocalCluster, terminal: Terminal
) -> None:
    terminal.run([*TOP, "job_1_0001"])
    terminal.wait("job_1_0001 is not shown")
    quit_cleanly(terminal)
    once = subprocess.run(
        [*TOP, "--once", "job_1_0001"],
        env=environment(MRSTREAM_HOME=cluster.environment["MRSTREAM_HOME"]),
        capture_output=True,
        text=True,
    )

    assert once.returncode == 1
    assert once.stderr.startswith("mrstream top: there is no job job_1_0001") and not once.stdout


def test_one_plain_picture_for_scripts(cluster: LocalCluster) -> None:
    done = subprocess.run(
        [*TOP, "--once"],
        env=environment(MRSTREAM_HOME=cluster.environment["MRSTREAM_HOME"]),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "Cluster: test" in done.stdout
    assert "Missing chunks: 0" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[3:6]] == ["h1", "h2", "h3"]


def test_one_picture_for_programs(cluster: LocalCluster) -> None:
    done = subprocess.run(
        [*TOP, "--once", "--json"],
        env=environment(MRSTREAM_HOME=cluster.environment["MRSTREAM_HOME"]),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    picture = json.loads(done.stdout)
    assert picture["cluster"] == "test" and picture["chunks"]["missing"] == 0
    assert sorted(row["key"] for row in picture["workers"]) == ["h1", "h2", "h3"]
