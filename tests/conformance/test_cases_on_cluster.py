"""The same golden cases on a cluster: input and output in the dfs, tasks on three hosts.

Bytes, exit status, messages and counters are those of Hadoop, as in local mode. A case that is
about local paths, or about what only a local runner does, is listed below with its reason.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import NoSuchFile
from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster, wait_for
from tests.conformance import cases

MRSTREAM = [sys.executable, "-P", "-m", "mrstream.streaming.cli"]
LOCAL_ONLY = {
    "env_inherit": "a task of local mode inherits the client's environment; a daemon has its own",
    "in_scheme": "reads and writes file:// URLs, which other hosts do not share",
}
# What these are about is done by the same code wherever a task runs; test_cases.py has them all.
# Here the first of each family stands for it; `make soak` has all (MRSTREAM_CASES=all).
ANYWHERE = ("aggregate_", "builtin_", "cmd_", "hash_", "kfbc_", "kfbp_", "kv_", "reducer_", "sort_")
# Words in which {case} is a path of the job's file system, and no file to be shipped.
DFS_PATHS = ("{case}/old", "mapreduce.totalorderpartitioner.path=")


def chosen() -> list[str]:
    """The cases that run here."""
    there = [name for name in cases.names() if name not in LOCAL_ONLY]
    if os.environ.get("MRSTREAM_CASES") == "all":
        return there
    firsts = {next(name for name in there if name.startswith(family)) for family in ANYWHERE}
    return [name for name in there if name in firsts or not name.startswith(ANYWHERE)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("cases")
    with LocalCluster(directory, 3, roles=ROLES, dfs={"chunk_size": "64MiB"}) as running:
        put = running.mrstream("dfs", "-put", str(cases.ROOT), "/cases")
        assert put.returncode == 0, put.stderr
        yield running


@pytest.mark.parametrize("name", chosen())
def test_a_job_does_what_hadoop_did(name: str, cluster: LocalCluster, tmp_path: Path) -> None:
    case = cases.Case(name)

    outcome = _run(case, cluster, tmp_path)

    wanted = case.expected.get("stderr_contains", [])
    case.expected["stderr_contains"] = [re.sub("file:$", "dfs:", words) for words in wanted]
    assert case.differences(outcome) == [], case.expected["title"]


def test_every_excused_case_exists() -> None:
    assert set(LOCAL_ONLY) <= set(cases.names())


def _run(case: cases.Case, cluster: LocalCluster, room: Path) -> cases.Outcome:
    name = case.directory.name
    client = cluster.client()
    words = [
        _placed(word, name, str(case.directory))
        for word in json.loads((case.directory / "args").read_text())
    ]
    done = subprocess.run(
        [*MRSTREAM, *words],
        cwd=room,
        env={**os.environ, **cluster.environment, **case.expected.get("env", {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120.0,
        check=False,
    )
    if "-background" in words:
        done_mark = f"/out/{name}/_SUCCESS"
        wait_for(lambda: client.stat(done_mark), 60.0, f"{done_mark} of a job in background")
    return cases.Outcome(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
        _visible_files(client, f"/out/{name}"),
    )


def _placed(word: str, name: str, case: str) -> str:
    if word.startswith(DFS_PATHS):
        case = f"/cases/{name}"
    places = {"{in}": f"/cases/{name}/in", "{out}": f"/out/{name}", "{case}": case}
    for mark, path in places.items():
        word = word.replace(mark, path)
    return word


def _visible_files(client: DfsClient, directory: str) -> dict[str, bytes]:
    """Give all files below a directory of the dfs that are not hidden."""
    found: dict[str, bytes] = {}
    waiting = [directory]
    while waiting:
        try:
            entries = list(client.list(waiting.pop()))
        except NoSuchFile:
            continue
        for entry in entries:
            if entry.is_directory:
                waiting.append(entry.path)
            elif not entry.path.rpartition("/")[2].startswith("."):
                with DfsReader(client, entry.path) as file:
                    found[entry.path.removeprefix(directory + "/")] = file.pread(0, 1 << 30)
    return found
