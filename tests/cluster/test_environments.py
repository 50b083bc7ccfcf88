"""`-env` on three hosts that do not have the packages: built and sent once, refused where it cannot
run, unable to leave its directory.

numpy and ujson come from PyPI once, as wheels; then nothing is asked of it any more.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.dfs.client import writer
from mrstream.mapreduce.dfs_layout import ENVIRONMENTS
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.master.job_output import clear_environments
from mrstream.mapreduce.worker.host_cache import HostCache
from mrstream.streaming.task.shipping import BadArchive
from tests.cluster.local import LocalCluster, wait_for

ROLES = ("dfs.master", "dfs.chunkserver", "mapreduce.master", "mapreduce.worker")
MAPPER = """#!/usr/bin/env python3
import os, sys
import numpy, ujson
for line in sys.stdin:
    total = int(numpy.arange(int(line)).sum())
    print(ujson.dumps([total, numpy.__version__, ujson.__file__, os.environ["VIRTUAL_ENV"]]))
"""
FUNCTIONS = """
import sys
import mrstream as mr

def totals(line):
    import numpy, ujson
    yield ujson.dumps(int(numpy.arange(int(line)).sum())), sys.prefix

def count(total, prefixes):
    yield total, sorted(set(prefixes))

maps = {"mapreduce.job.maps": 6}
job = mr.Job("/in", mapper=totals, reducer=count, env="requirements.txt", D=maps)
for total, prefixes in job.run():
    print(total, *prefixes)
"""
MISFIT = "import platform; platform.machine = lambda: 'sparc64'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three hosts of one slot each, so that six maps reach them all."""
    directory = tmp_path_factory.mktemp("environments")
    wheels = directory / "wheels"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary", ":all:", "--dest", wheels, "numpy==2.1.3", "ujson==5.10.0"),
        ],
        check=True,
    )
    (directory / "requirements.txt").write_text(
        "--no-index\n--find-links wheels\nnumpy==2.1.3\nujson==5.10.0\n"
    )
    (directory / "m.py").write_text(MAPPER)
    (directory / "functions.py").write_text(FUNCTIONS)
    (directory / "in.txt").write_text("".join(f"{number}\n" for number in range(1000)))
    with LocalCluster(directory, 3, roles=ROLES, slots=1, dfs={"dead_after": "30s"}) as running:
        assert running.mrstream("dfs", "-put", str(directory / "in.txt"), "/in").returncode == 0
        yield running


def job(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[bytes]:
    maps = ("-D", "mapreduce.job.maps=6", "-numReduceTasks", "0")
    mapper = () if "-mapper" in words else ("-mapper", "m.py")
    return cluster.mrstream("-input", "/in", *maps, *mapper, *words)


def stored(cluster: LocalCluster) -> list[tuple[str, int, float]]:
    """Every file of environments in the dfs: one that was sent again would be another file."""
    found = cluster.client().find(ENVIRONMENTS)
    return sorted((s.path, s.file_id, s.modified_at_s) for s in found if not s.is_directory)


def settled(cluster: LocalCluster) -> dict[str, int]:
    """The environments on the disks of hosts, and when each was unpacked."""
    marks = (cluster.directory / "hosts").rglob(".mrstream-settled")
    return {str(mark): mark.stat().st_ctime_ns for mark in marks}


def test_packages_that_no_host_has_run_on_all_and_the_second_job_sends_nothing(
    cluster: LocalCluster,
) -> None:
    first = job(cluster, "-env", "requirements.txt")
    assert first.returncode == 0, first.stderr.decode()
    rows = [json.loads(line) for line in first.stdout.splitlines()]
    totals = [n * (n - 1) // 2 for n in range(1000)]
    assert sorted(row[0] for row in rows) == totals
    assert {row[1] for row in rows} == {"2.1.3"}
    roots = {row[3] for row in rows}
    assert all(row[2].startswith(row[3] + "/lib/") for row in rows)
    hosts = cluster.directory / "hosts" / "test"
    assert {Path(root).relative_to(hosts).parts[0] for root in roots} == {"h1", "h2", "h3"}
    assert b"INFO environment: sending " in first.stderr
    files, unpacked = stored(cluster), settled(cluster)
    assert len(files) == 2 and len(unpacked) == 3

    # Another user, who has built nothing.
    other = {"MRSTREAM_HOME": str(cluster.directory / "other")}
    shutil.copytree(cluster.directory / "home", other["MRSTREAM_HOME"], symlinks=True)
    shutil.rmtree(cluster.directory / "other" / "environments")
    own = dict(cluster.environment)
    try:
        cluster.environment.update(other)
        second = job(cluster, "-env", "requirements.txt")
    finally:
        cluster.environment.update(own)

    assert second.returncode == 0, second.stderr.decode()
    assert sorted(json.loads(line)[0] for line in second.stdout.splitlines()) == totals
    assert b"is in the dfs: nothing is built or sent" in second.stderr
    assert (stored(cluster), settled(cluster)) == (files, unpacked)
    assert not (cluster.directory / "other" / "environments").exists()


def test_functions_run_by_the_python_of_the_environment(cluster: LocalCluster) -> None:
    ran = subprocess.run(
        [sys.executable, "functions.py"], cwd=cluster.directory, capture_output=True, text=True,
        env={**cluster.environment, "PYTHONPATH": str(Path(__file__).parent.parent.parent)},
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    rows = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert sorted(map(int, rows)) == [0, *(n * (n - 1) // 2 for n in range(2, 1000))]
    assert all("/cache/environment-" in prefixes for prefixes in rows.values())


def test_a_failed_attempt_is_repeated_here_with_its_environment(cluster: LocalCluster) -> None:
    (cluster.directory / "bad.py").write_text(MAPPER + "sys.exit('no more ' + numpy.__version__)\n")
    failed = cluster.mrstream(
        "-input", "/in", "-numReduceTasks", "0", "-mapper", "bad.py", "-env", "requirements.txt",
        "-D", "mapreduce.map.maxattempts=1", "-D", "mapreduce.job.maps=1",
    )  # fmt: skip
    assert failed.returncode == 1
    found = re.search(r"attempt_\w+", failed.stderr.decode())
    assert found is not None
    shutil.rmtree(cluster.directory / "home" / "environments")  # so it comes from the dfs

    again = cluster.mrstream("-repeat", found.group())

    assert "no more 2.1.3" in again.stderr.decode(), again.stderr.decode()
    assert again.stdout.count(b"\n") == 1000


def test_an_environment_that_brings_its_python_is_settled_on_each_host(
    cluster: LocalCluster,
) -> None:
    """As conda-pack makes them: a Python inside, and a program that is run where it arrived."""
    made = cluster.directory / "conda"
    (made / "lib" / "python3.9" / "site-packages").mkdir(parents=True)
    (made / "bin").mkdir()
    (made / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (made / "bin" / "say-where").write_text('#!/bin/sh\ncat "$CONDA_PREFIX"/where\n')
    (made / "bin" / "conda-unpack").write_text(
        "import os\nopen('where', 'w').write(os.getcwd() + '\\n')\n"
    )
    for name in ("python", "say-where"):
        (made / "bin" / name).chmod(0o755)
    with tarfile.open(cluster.directory / "conda.tar.gz", "w:gz") as tar:
        for name in sorted(os.listdir(made)):
            tar.add(made / name, name)

    ran = job(cluster, "-env", "conda.tar.gz", "-mapper", "say-where")
    assert ran.returncode == 0, ran.stderr.decode()
    places = {Path(line.decode()) for line in ran.stdout.splitlines()}

    hosts = cluster.directory / "hosts" / "test"
    assert {place.relative_to(hosts).parts[0] for place in places} == {"h1", "h2", "h3"}


def test_a_host_of_another_kind_is_named_before_the_job_starts(cluster: LocalCluster) -> None:
    cluster.kill("mapreduce.worker", "h2")
    cluster.start("mapreduce.worker", "h2", MISFIT)
    try:
        refused = job(cluster, "-env", "requirements.txt", "-output", "/refused")
        fine = job(cluster, "-mapper", "cat")
    finally:
        cluster.kill("mapreduce.worker", "h2")
        cluster.start("mapreduce.worker", "h2")

    assert refused.returncode != 0
    said = refused.stderr.decode()
    assert "cannot run on h2: it is for x86_64, and there is sparc64" in said or (
        "cannot run on h2: it is for aarch64, and there is sparc64" in said
    )
    assert "Running job" not in said
    assert cluster.mrstream("dfs", "-test", "-e", "/refused").returncode == 1
    assert fine.returncode == 0, "a job without an environment runs on any host"


def test_a_planted_archive_cannot_leave_its_directory_on_a_host(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Whoever can write into the dfs can put an archive there that no client of ours packed."""
    client = cluster.client()
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        link = tarfile.TarInfo("bin")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "victim")
        tar.addfile(link)
    (tmp_path / "victim").mkdir()
    with writer.create(client, "/planted/environment.tar.gz", overwrite=True) as file:
        file.write(data.getvalue())
    cache = HostCache(str(tmp_path / "cache"), 1 << 30)
    planted = Environment("x", "../../key", "dfs:///planted/environment.tar.gz", "3.11")

    with pytest.raises(BadArchive, match="leads out of the archive"):
        cache.environment("job_1", planted, client)

    assert not list((tmp_path / "victim").iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "victim"]


def test_an_environment_that_no_job_uses_goes_from_the_dfs_after_a_month(
    cluster: LocalCluster,
) -> None:
    client = cluster.client()
    before = len(stored(cluster))
    assert before
    for path, _, used_at_s in stored(cluster):
        client.set_times(path, modified_at_s=used_at_s - 29 * 86400)
    now_s = max(used_at_s for *_, used_at_s in stored(cluster))

    clear_environments(client, now_s + 29 * 86400)
    assert len(stored(cluster)) == before
    clear_environments(client, now_s + 31 * 86400)

    wait_for(lambda: not stored(cluster), 60.0, "the environments to go")
