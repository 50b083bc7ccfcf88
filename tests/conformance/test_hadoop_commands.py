"""Programs that call Hadoop's commands run on mrstream, unmodified: mrjob, Luigi, old scripts.

The programs lie in `tests/mrjob`. They run on a cluster of two hosts, one without any.
"""

from __future__ import annotations

import ast
import io
import itertools
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from mrstream.mapreduce.hadoop_commands import write_commands
from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster
from tests.support.local_jobs import TREE

PROGRAMS = TREE / "tests" / "mrjob"
TEXT = "a rose is a rose\nis the rose a rose\n\nthe end of the rose\n"


class Desk:
    """A place with Hadoop's commands on the path."""

    def __init__(self, room: Path, environment: dict[str, str]) -> None:
        self.room = room
        commands = room / "commands"
        write_commands(str(commands))
        path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {
            **environment,
            "PATH": path, "HADOOP_HOME": str(commands), "PYTHONPATH": str(TREE),
        }  # fmt: skip
        (room / "text").write_text(TEXT)

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in words],
            cwd=self.room, env=self.environment, capture_output=True, text=True, timeout=240,
            check=False,
        )  # fmt: skip

    def mrjob(self, name: str, *words: str | Path) -> tuple[dict[object, object], str]:
        """Run a program of mrjob's; give its output and what it logged."""
        done = self.run(sys.executable, PROGRAMS / f"{name}.py", "-r", "hadoop", *words)
        assert done.returncode == 0, done.stderr
        pairs = [line.split("\t") for line in done.stdout.splitlines()]
        return {_key(ast.literal_eval(k)): ast.literal_eval(v) for k, v in pairs}, done.stderr


def _key(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    # Tasks find the Python that has the libraries of the programs.
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    room = tmp_path_factory.mktemp("hadoop")
    with LocalCluster(room, 2, roles=ROLES, environment=environment) as cluster:
        yield Desk(tmp_path_factory.mktemp("desk"), dict(cluster.environment))


def test_a_job_of_mrjob_runs_without_a_cluster_too(tmp_path: Path) -> None:
    inherited = {k: v for k, v in os.environ.items() if k != "MRSTREAM_CLUSTER"}
    alone = Desk(tmp_path, {**inherited, "MRSTREAM_HOME": str(tmp_path / "home")})
    wanted = {"chars": len(TEXT) - TEXT.count("\n"), "words": len(TEXT.split()), "lines": 4}

    assert alone.mrjob("count_all", "text")[0] == wanted
    assert list((tmp_path / "home" / "hdfs").rglob("part-*")) == [], "mrjob clears up"


def test_two_steps_a_combiner_and_counters_read_back(desk: Desk) -> None:
    (desk.room / "stop").write_text("a the\n")

    found, log = desk.mrjob("most_used", "--stop-words", "stop", "text")

    assert found == {"rose": 5}
    assert re.search(r"\ttext\n\t\tlines=4\n\t\tstop words=6\n", log), log
    assert "Running step 2 of 2" in log
    assert re.search(r"Submitted application application_\d+_\d{4}", log)


def test_sorted_values_and_two_reducers(desk: Desk) -> None:
    found, _ = desk.mrjob("next_word", "text")

    after = Counter(pair for line in TEXT.split("\n") for pair in itertools.pairwise(line.split()))
    totals = Counter(word for word, _ in after.elements())
    assert found == {pair: amount / totals[pair[0]] for pair, amount in after.items()}


def _warc(path: Path, servers: list[str]) -> None:
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        writer.write_record(writer.create_warcinfo_record(path.name, {"software": "test"}))
        for server in servers:
            headers = StatusAndHeaders("200 OK", [("Server", server)], protocol="HTTP/1.0")
            writer.write_record(
                writer.create_warc_record(
                    "http://a.example/", "response", io.BytesIO(b"text"), http_headers=headers
                )
            )


def test_a_job_over_warc_files_with_an_archive(desk: Desk) -> None:
    """As the jobs over Common Crawl are written: the input names files, the map opens them."""
    _warc(desk.room / "one.warc.gz", ["nginx", "Apache", "nginx"])
    _warc(desk.room / "two.warc.gz", ["httpd", "nginx"])
    paths = "".join(f"{desk.room}/{name}.warc.gz\n" for name in ("one", "two"))
    (desk.room / "paths").write_text(paths)
    with tarfile.open(desk.room / "names.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("aliases")
        member.size = len(b"httpd Apache\n")
        archive.addfile(member, io.BytesIO(b"httpd Apache\n"))

    found, log = desk.mrjob(
        "server_count", "--archives", f"{desk.room}/names.tar.gz#names", "paths"
    )

    assert found == {"nginx": 3, "Apache": 2}
    assert "responses=5" in log and "other records=2" in log


def test_a_step_that_fails_is_told_with_its_cause(desk: Desk) -> None:
    done = desk.run(
        sys.executable, PROGRAMS / "most_used.py", "-r", "hadoop", "--stop-words", "text",
        "-D", "mapreduce.map.maxattempts=1", "--setup", "false", "text",
    )  # fmt: skip

    assert done.returncode != 0
    assert "Step 1 of 2 failed" in done.stderr
    assert "exit code 1" in done.stderr


def test_a_luigi_task_runs_its_job_and_knows_that_it_is_done(desk: Desk) -> None:
    assert desk.run("hadoop", "fs", "-put", "text", "/luigi-in").returncode == 0
    jar = next((desk.room / "commands").rglob("hadoop-streaming*.jar"))
    (desk.room / "luigi.cfg").write_text(f"[hadoop]\nstreaming-jar = {jar}\n")
    words = (
        sys.executable, "-m", "luigi", "--module", "luigi_words", "Words", "--local-scheduler",
        "--source", "/luigi-in", "--target", "/luigi-out",
    )  # fmt: skip
    desk.environment["PYTHONPATH"] = f"{TREE}:{PROGRAMS}"

    first, again = desk.run(*words), desk.run(*words)

    assert first.returncode == again.returncode == 0, first.stderr
    found = desk.run("hadoop", "fs", "-cat", "/luigi-out/part-*").stdout
    counts = dict(line.split("\t") for line in found.splitlines())
    assert {word: int(amount) for word, amount in counts.items()} == Counter(TEXT.split())
    assert "* 1 ran successfully:\n    - 1 Words(" in first.stderr, first.stderr
    assert "* 1 complete ones were encountered:\n    - 1 Words(" in again.stderr, again.stderr
    assert "Did not run any tasks" in again.stderr


def test_an_old_script_runs_as_it_stands(desk: Desk) -> None:
    done = desk.run(PROGRAMS / "old_script.sh", "text")

    assert done.returncode == 0, done.stderr + (desk.room / "log").read_text()
    counts = Counter(TEXT.replace("\n", " ").split())
    found = dict(reversed(line.split()) for line in done.stdout.splitlines() if line.split()[1:])
    assert {word: int(amount) for word, amount in found.items()} == counts
    assert (desk.room / "records").read_text() == "4\n"


def test_what_needs_java_is_refused_by_name(desk: Desk) -> None:
    for words in (
        ("hadoop", "distcp", "a", "b"), ("hadoop", "jar", "my.jar", "Main"), ("hdfs", "namenode"),
        ("yarn", "nodemanager"), ("mapred", "historyserver"), ("hadoop", "fs", "-nothing"),
    ):  # fmt: skip
        done = desk.run(*words)
        assert done.returncode in (1, 255)
        assert words[1] in done.stderr or words[-1] in done.stderr
        assert "Traceback" not in done.stderr
