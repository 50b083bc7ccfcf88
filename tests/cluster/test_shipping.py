"""A job's files on their way: stored once by content, fetched once a host, evicted by size."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.dfs.client.client import DfsClient
from mrstream.mapreduce.client.staging import stage
from mrstream.mapreduce.dfs_layout import STAGED
from mrstream.mapreduce.master.job_output import clear_staged
from mrstream.mapreduce.worker.host_cache import HostCache
from mrstream.streaming.task.shipping import Shipped, link_shipped
from tests.cluster.local import LocalCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("shipping"), 1) as started:
        yield started


@pytest.fixture
def client(cluster: LocalCluster) -> DfsClient:
    return cluster.client()


def staged_files(client: DfsClient) -> list[str]:
    return [entry.path for entry in client.find(STAGED) if not entry.is_directory]


def test_the_same_content_is_stored_once_whoever_ships_it(
    client: DfsClient, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for place in "ab":
        (tmp_path / place / "words.txt").write_text("the same words\n")
    before = len(staged_files(client)) if client_has(client, STAGED) else 0

    first = stage([Shipped(str(tmp_path / "a" / "words.txt"), "words.txt")], client)
    second = stage([Shipped(str(tmp_path / "b" / "words.txt"), "words.txt")], client)

    assert first == second
    assert len(staged_files(client)) == before + 1


def client_has(client: DfsClient, path: str) -> bool:
    try:
        client.stat(path)
    except FileNotFoundError:
        return False
    return True


def test_a_file_that_no_job_ships_any_more_goes_after_a_month(
    client: DfsClient, tmp_path: Path
) -> None:
    (tmp_path / "old.txt").write_text("once\n")
    (tmp_path / "used.txt").write_text("often\n")
    shipped = [Shipped(str(tmp_path / name), name) for name in ("old.txt", "used.txt")]
    old, used = (item.source.removeprefix("dfs://") for item in stage(shipped, client))
    long_ago_s = time.time() - 31 * 24 * 3600
    client.set_times(old, modified_at_s=long_ago_s)
    client.set_times(used, modified_at_s=long_ago_s)

    stage(shipped[1:], client)
    clear_staged(client, time.time())

    assert not client_has(client, old)
    assert client_has(client, used)


def test_a_script_keeps_its_run_bit_and_is_linked_under_its_name(
    client: DfsClient, tmp_path: Path
) -> None:
    script = tmp_path / "m.py"
    script.write_text("#!/bin/sh\ncat\n")
    script.chmod(0o755)
    cache = HostCache(str(tmp_path / "cache"), 1 << 30)

    here = cache.localise("job_1", stage([Shipped(str(script), "m.py")], client), client)
    (tmp_path / "cwd").mkdir()
    link_shipped(str(tmp_path / "cwd"), here, str(tmp_path / "unused"))

    linked = tmp_path / "cwd" / "m.py"
    assert linked.read_text() == script.read_text()
    assert os.access(linked, os.X_OK)


def test_archives_and_directories_arrive_unpacked(client: DfsClient, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "lib.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("inside/x.txt")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"x\n"))
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "y.txt").write_text("y\n")
    cache = HostCache(str(tmp_path / "cache"), 1 << 30)
    shipped = [
        Shipped(str(tmp_path / "lib.tar.gz"), "lib", archive=True),
        Shipped(str(tree), "tree"),
    ]

    here = cache.localise("job_1", stage(shipped, client), client)
    (tmp_path / "cwd").mkdir()
    link_shipped(str(tmp_path / "cwd"), here, str(tmp_path / "unused"))

    assert (tmp_path / "cwd" / "lib" / "inside" / "x.txt").read_text() == "x\n"
    assert (tmp_path / "cwd" / "tree" / "deep" / "y.txt").read_text() == "y\n"


def test_a_host_fetches_a_file_once_and_evicts_the_one_not_used_for_longest(
    client: DfsClient, tmp_path: Path
) -> None:
    files = []
    for number in range(3):
        path = tmp_path / f"f{number}"
        path.write_bytes(bytes([number]) * 1000)
        files.append(Shipped(str(path), f"f{number}"))
    staged = stage(files, client)
    cache = HostCache(str(tmp_path / "cache"), 2500)

    first = cache.localise("job_1", staged[:1], client)
    os.utime(os.path.dirname(first[0].source), (1, 1))
    os.unlink(first[0].source)
    Path(first[0].source).write_bytes(b"marked")
    again = cache.localise("job_1", staged[:1], client)
    marked = Path(again[0].source).read_bytes()
    Path(first[0].source).write_bytes(b"\0" * 1000)
    cache.release("job_1")
    os.utime(os.path.dirname(first[0].source), (1, 1))
    rest = cache.localise("job_2", staged[1:], client)

    assert marked == b"marked", "the second job took the file that was already here"
    assert not os.path.exists(first[0].source)
    assert all(os.path.exists(item.source) for item in rest), "a running job's files stay"
