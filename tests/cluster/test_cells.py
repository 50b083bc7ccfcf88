"""Two masters over the same chunkservers, as real processes (EV-02, EV-03)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.dfs.chunk import cell_of
from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import WrongCell
from mrstream.dfs.protocol import Stat
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for

LOGS = f"{MASTER}@logs"
ROLES = (MASTER, LOGS, CHUNKSERVER, "mapreduce.master", "mapreduce.worker")
DATA = random.Random(1).randbytes(2_500_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"cells": "{logs: {path: /logs}}", "replication": "2"}
    directory = tmp_path_factory.mktemp("cells")
    with LocalCluster(directory, 2, roles=ROLES, dfs=settings, slots=1) as running:
        yield running


def good(cluster: LocalCluster, *words: str) -> str:
    ended = cluster.mrstream(*words)
    assert ended.returncode == 0, (words, ended.stderr.decode())
    return ended.stdout.decode()


def write(client: DfsClient, path: str, data: bytes = DATA) -> None:
    with writer.create(client, path, overwrite=True) as file:
        file.write(data)


def read(client: DfsClient, path: str) -> bytes:
    with DfsReader(client, path) as file:
        return file.read()


def chunks_on(cluster: LocalCluster, host: str) -> list[int]:
    place = cluster.host_directory(host) / CHUNKSERVER / "chunks"
    return [int(path.stem, 16) for path in place.glob("*/*.data")]


def test_verbs_see_one_tree_and_bytes_lie_side_by_side(cluster: LocalCluster) -> None:
    local = Path(cluster.shared) / "data"
    local.write_bytes(DATA)
    good(cluster, "dfs", "-mkdir", "/in")
    good(cluster, "dfs", "-put", str(local), "/in/a")
    good(cluster, "dfs", "-put", str(local), "/logs/b")

    listed = [line.split()[-1] for line in good(cluster, "dfs", "-ls", "/").splitlines()[1:]]
    assert listed == ["/in", "/logs"]
    for host in cluster.hosts:
        assert {cell_of(handle) for handle in chunks_on(cluster, host)} == {0, 1}
    moved = cluster.mrstream("dfs", "-mv", "/in/a", "/logs/a")
    assert moved.returncode == 1
    assert moved.stderr.decode() == (
        "mv: /in/a is in the root cell, /logs/a in cell logs: a rename does not cross cells; "
        "copy it (-cp), then delete it\n"
    )
    good(cluster, "dfs", "-cp", "/in/a", "/logs/a")
    good(cluster, "dfs", "-get", "/logs/a", str(local) + ".back")
    assert Path(str(local) + ".back").read_bytes() == DATA
    assert "Status: HEALTHY" in good(cluster, "dfs", "-fsck", "/")


def test_a_job_reads_and_writes_across_cells(cluster: LocalCluster) -> None:
    client = cluster.client()
    write(client, "/words/a", b"x\ny\n")
    write(client, "/logs/words", b"y\nz\n")
    ended = cluster.mrstream(
        "-input", "/words", "-input", "/logs/words", "-output", "/logs/counted",
        "-mapper", "cat", "-reducer", "uniq -c",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr.decode()
    assert read(client, "/logs/counted/part-00000").split() == b"1 x 2 y 1 z".split()
    assert cell_of(client.stat("/logs/counted/part-00000").file_id) == 1


def test_what_one_cell_throws_away_and_who_restarts_is_nothing_to_the_other(
    cluster: LocalCluster,
) -> None:
    """T of EV-02: garbage, a chunkserver's restart and the death of a master in one cell."""
    client = cluster.client(retry_s=60.0)
    write(client, "/keep/a")
    write(client, "/logs/keep")
    gone = {cell: _deleted(client, path) for cell, path in ((0, "/gone"), (1, "/logs/gone"))}
    cluster.kill(CHUNKSERVER, "h2")
    cluster.start(CHUNKSERVER, "h2")

    def collected() -> bool:
        left = {handle for host in cluster.hosts for handle in chunks_on(cluster, host)}
        return not left & {handle for handles in gone.values() for handle in handles}

    wait_for(collected, 60.0, "garbage of both cells to go")
    for role, other, own in ((LOGS, "/keep/a", "/logs/keep"), (MASTER, "/logs/keep", "/keep/a")):
        cluster.kill(role, "h1")
        write(client, other + "-meanwhile")
        assert read(client, other) == DATA
        cluster.start(role, "h1")
        assert read(client, own) == DATA
    assert {one.path for one in client.list("/")} >= {"/keep", "/logs"}


def _deleted(client: DfsClient, path: str) -> set[int]:
    write(client, path)
    handles = {int(chunk.handle) for chunk in client.locate(path).chunks}
    assert len(handles) == 3
    client.delete(path, skip_trash=True)
    return handles


def test_a_client_with_an_old_table_is_told_so(cluster: LocalCluster) -> None:
    from mrstream.cluster.leader.connection import connect_to_leader

    with (
        connect_to_leader(cluster.cluster, MASTER) as root,
        pytest.raises(WrongCell, match="your cluster file is older than the cluster"),
    ):
        root.call(Stat("/logs/words"), 10.0)
