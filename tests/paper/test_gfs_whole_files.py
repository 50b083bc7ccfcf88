"""Files that are whole or not there, on a real local cluster: hidden until they are complete, one
file to the end for a reader, given up when their end fails, refused under an older lock."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.ending import Ending
from mrstream.dfs.client.fence import SEQUENCER, fences_of_environment
from mrstream.dfs.client.filesystem import DfsFileSystem
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import FencedOff, FileReplaced, NotAligned, SpaceQuotaExceeded
from mrstream.dfs.protocol import NO_FILE
from tests.cluster.local import LocalCluster
from tests.house.tree import ROOT

CHUNK_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"chunk_size": "64KiB", "replication": "1"}
    with LocalCluster(tmp_path_factory.mktemp("whole"), 2, dfs=settings) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> DfsClient:
    return cluster.client()


@pytest.fixture
def path(client: DfsClient, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"/{request.node.name[:80]}"
    client.make_directory(name)
    yield f"{name}/file"
    client.delete(name, recursive=True, skip_trash=True)


def put(client: DfsClient, path: str, data: bytes, **ending: bool) -> None:
    with writer.create_hidden(client, path, overwrite=True) as file:
        for name, value in ending.items():
            setattr(file.ending, name, value)
        file.write(data)


def read(client: DfsClient, path: str) -> bytes:
    with DfsReader(client, path) as file:
        return file.pread(0, 1 << 30)


def everything(client: DfsClient, path: str) -> list[str]:
    """All files in the directory of a path, also those that no listing shows."""
    directory = path.rpartition("/")[0]
    return [fact.status.path for page in client.fsck(directory) for fact in page.files]


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_reader_never_gives_bytes_of_two_files(
    client: DfsClient, path: str, is_kept: bool
) -> None:
    """G2: one read of 40 chunks gave 8 of the old file and 32 of the new, and no error."""
    old, new = (random.Random(seed).randbytes(40 * CHUNK_BYTES) for seed in (1, 2))
    put(client, path, old)

    with DfsReader(client, path) as file:
        got = file.read(3 * CHUNK_BYTES)
        put(client, path, new, keep_replaced=is_kept)
        if is_kept:
            while piece := file.read(1 << 20):
                got += piece
            assert got == old
        else:
            with pytest.raises(FileReplaced, match="open it again"):
                while piece := file.read(1 << 20):
                    got += piece
            assert old.startswith(got) and len(got) < len(old)

    assert read(client, path) == new


def test_a_file_that_is_renamed_is_read_on(client: DfsClient, path: str) -> None:
    data = random.Random(1).randbytes(20 * CHUNK_BYTES)
    put(client, path, data)

    with DfsReader(client, path) as file:
        begin = file.read(CHUNK_BYTES)
        client.rename(path, f"{path}-2")
        assert begin + file.pread(CHUNK_BYTES, len(data)) == data


def test_a_file_is_opened_by_its_id(client: DfsClient, path: str) -> None:
    put(client, path, b"old")
    old = client.stat(path).file_id
    put(client, path, b"new", keep_replaced=True)

    with DfsReader(client, path, old) as file:
        assert file.pread(0, 100) == b"old"


def test_of_writers_of_one_path_each_is_whole_and_the_last_to_close_has_it(
    client: DfsClient, path: str
) -> None:
    """With one temporary name for all of them the first got WriterFenced."""
    files = [writer.create_hidden(client, path, overwrite=True) for _ in range(4)]
    contents = [bytes([65 + number]) * (3 * CHUNK_BYTES + number) for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda pair: pair[0].write(pair[1]), zip(files, contents, strict=True)))
    for number in (2, 0, 3, 1):
        files[number].close()
        assert read(client, path) == contents[number]

    assert everything(client, path) == [path]


def test_conditions_and_attributes_come_with_the_close(client: DfsClient, path: str) -> None:
    deep = f"{path}/a/b"
    with writer.create_hidden(client, deep, parents=True) as file:
        file.write(b"12345")
        file.ending.attributes["etag"] = b"\x01"
        file.ending.replaces = NO_FILE
    first = client.attributes(deep)
    assert (first.status.length_bytes, first.values) == (5, {"etag": b"\x01"})

    late = writer.create_hidden(client, deep, overwrite=True)
    put(client, deep, b"another")
    late.ending.replaces = first.status.file_id
    with pytest.raises(FileReplaced):
        late.close()

    assert read(client, deep) == b"another"
    assert client.find_keys(path).entries[0].key == "a/b"
    assert everything(client, deep) == [deep], "what was refused is given up"
    client.delete(deep, prune_to=path.rpartition("/")[0])
    assert [status.path for status in client.list(path.rpartition("/")[0])] == []


@pytest.mark.parametrize("is_hidden", [False, True])
def test_what_fails_inside_close_leaves_nothing(
    client: DfsClient, path: str, is_hidden: bool
) -> None:
    """The last bytes are written by close; where there is no room for them the file was left to be
    closed without them, and looked complete."""
    make = writer.create_hidden if is_hidden else writer.create
    client.set_quota(path.rpartition("/")[0], space_bytes=10)
    file = make(client, path, first_chunk=False)
    file.write(b"x" * 100)

    with pytest.raises(SpaceQuotaExceeded):
        file.close()

    assert everything(client, path) == []


def test_fsspec_keeps_the_old_file_until_the_new_one_is_complete(
    cluster: LocalCluster, client: DfsClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
    fs = DfsFileSystem(cluster=cluster.file, skip_instance_cache=True)
    fs.pipe_file(path, b"old")
    client.set_quota(path.rpartition("/")[0], space_bytes=10)

    with pytest.raises(SpaceQuotaExceeded), fs.open(path, "wb") as file:
        file.write(b"x" * 100)
    with pytest.raises(SpaceQuotaExceeded):
        fs.pipe_file(path, b"y" * 100)
    with pytest.raises(RuntimeError), fs.open(path, "wb", block_size=1024) as file:
        file.write(b"")
        raise RuntimeError("in the middle")

    assert fs.cat_file(path) == b"old"
    assert everything(client, path) == [path]
    client.clear_quota(path.rpartition("/")[0], space=True)
    with fs.open(path, "wb") as file:
        file.write(b"n" * 5_000_000)
        assert fs.cat_file(path) == b"old"
    assert fs.size(path) == 5_000_000


def test_files_are_joined_without_moving_a_byte(client: DfsClient, path: str) -> None:
    data = random.Random(1).randbytes(5 * CHUNK_BYTES + 7)
    parts = [
        data[: 2 * CHUNK_BYTES],
        data[2 * CHUNK_BYTES : 4 * CHUNK_BYTES],
        data[4 * CHUNK_BYTES :],
    ]
    for number, part in enumerate(parts):
        put(client, f"{path}-{number}", part)
    ids = [client.stat(f"{path}-{number}").file_id for number in range(3)]

    with pytest.raises(NotAligned):
        client.join(path, [ids[2], ids[0]])
    client.join(path, ids, Ending(attributes={"parts": b"3"}))

    assert read(client, path) == data
    assert everything(client, path) == [path]


def test_who_lost_the_lock_changes_nothing_any_more(
    cluster: LocalCluster, client: DfsClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CH-20: the file system itself refuses a late write of an ex-holder; so does the shell."""
    old, new = (cluster.client().under(((path, generation),)) for generation in (1, 2))
    late = writer.create_hidden(old, path)
    late.write(b"late")
    put(new, path, b"new")

    with pytest.raises(FencedOff):
        late.close()
    with pytest.raises(FencedOff):
        old.delete(path)
    done = cluster.mrstream("dfs", "-rm", path)
    assert done.returncode == 0
    cluster.environment[SEQUENCER] = f"{path}:1"
    try:
        done = cluster.mrstream("dfs", "-mkdir", f"{path}-d")
    finally:
        del cluster.environment[SEQUENCER]

    assert done.returncode == 1
    assert b"generation 1 is over, 2 has come" in done.stderr
    assert everything(client, path) == []
    monkeypatch.setenv(SEQUENCER, "/ls/local/x:7")
    assert fences_of_environment() == (("/ls/local/x", 7),)
    assert cluster.client().works_under == (("/ls/local/x", 7),)


def test_the_python_of_the_guide_runs_as_it_is_written(
    cluster: LocalCluster, client: DfsClient
) -> None:
    """Every block of docs/guide/dfs.md, one after the other, as a user of the cluster."""
    page = (ROOT / "docs" / "guide" / "dfs.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    client.make_directory("/data/in", parents=True)
    client.make_directory("/data/out", parents=True)
    put(client, "/data/in/a.csv", b"n\n1\n")
    put(client, "/data/report", b"of before")
    put(client, "/queue", b"")
    for number in range(3):
        put(client, f"/data/part-{number}", bytes(CHUNK_BYTES))

    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], env=cluster.environment,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert len(blocks) == 3 and ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["0", "b'payload'"]
    assert read(client, "/data/report") == b"all of it"
    assert client.stat("/data/whole").length_bytes == 3 * CHUNK_BYTES
    client.delete("/data", recursive=True, skip_trash=True)
    client.delete("/queue", skip_trash=True)
