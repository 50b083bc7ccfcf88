"""GFS as its clients see it: sections 2, 3 and 4 on a real local cluster."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mrstream.cluster.disk import OsDisk
from mrstream.dfs.chunk import BLOCK_BYTES, ChunkHandle
from mrstream.dfs.chunks.chunk_store import ChunkStore
from mrstream.dfs.chunks.replica_files import path_of
from mrstream.dfs.client import reader as reader_module
from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.filesystem import DfsFileSystem
from mrstream.dfs.client.keeper import KEEP_ALIVE_S
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.records import RecordAppender, RecordCutter
from mrstream.dfs.client.topology import Place
from mrstream.dfs.errors import FileReplaced, NoReplica, RecordTooLarge
from mrstream.dfs.metadata.grants import HANDLES_RESERVED_AT_ONCE
from mrstream.dfs.protocol import ChunkFact
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for

CHUNK_BYTES = 256 * 1024
LEASE_S = 2.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {
        "chunk_size": "256KiB",
        "lease": f"{LEASE_S:g}s",
        "dead_after": "5s",
        "replication": "2",
    }
    with LocalCluster(tmp_path_factory.mktemp("gfs"), 3, dfs=settings) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> DfsClient:
    return cluster.client()


@pytest.fixture
def path(client: DfsClient, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"/{request.node.name[:80]}"
    yield name
    client.delete(name, recursive=True, skip_trash=True)


def put(client: DfsClient, path: str, data: bytes) -> None:
    with writer.create(client, path) as file:
        file.write(data)


def read(client: DfsClient, path: str) -> bytes:
    with DfsReader(client, path) as file:
        return file.pread(0, 1 << 30)


def chunks_of(client: DfsClient, path: str) -> list[ChunkFact]:
    return [chunk for page in client.fsck(path) for fact in page.files for chunk in fact.chunks]


def data_files(cluster: LocalCluster, handle: int) -> list[Path]:
    places = [cluster.host_directory(host) / CHUNKSERVER for host in cluster.hosts]
    return [p / path_of(handle, "data") for p in places if (p / path_of(handle, "data")).exists()]


def test_a_file_is_cut_into_fixed_chunks_that_are_plain_files(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§2.3, §2.5 (GFS-02, 04): 3⅛ chunks ⇒ 3 full and a short one, each an ordinary file twice."""
    data = random.Random(2).randbytes(3 * CHUNK_BYTES + CHUNK_BYTES // 8)
    put(client, path, data)

    chunks = chunks_of(client, path)

    assert [chunk.length_bytes for chunk in chunks] == [CHUNK_BYTES] * 3 + [CHUNK_BYTES // 8]
    for chunk in chunks:
        files = data_files(cluster, chunk.handle)
        start = chunk.index * CHUNK_BYTES
        assert len(files) == 2
        assert all(file.read_bytes() == data[start : start + CHUNK_BYTES] for file in files)


def test_names_and_bytes_are_the_same_through_library_shell_and_fsspec(
    cluster: LocalCluster, client: DfsClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§2.2 (GFS-01): create, open, write, close, read, rename and delete in a tree of names, with
    no help of the kernel."""
    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
    fs = DfsFileSystem(cluster=cluster.file, skip_instance_cache=True)
    run = cluster.mrstream

    client.make_directory(f"{path}/deep", parents=True)
    put(client, f"{path}/deep/library", b"by the library")
    assert run("dfs", "-put", "-", f"{path}/deep/shell", input=b"by the shell").returncode == 0
    fs.pipe_file(f"{path}/deep/fsspec", b"by fsspec")

    for name, content in (
        ("library", "by the library"),
        ("shell", "by the shell"),
        ("fsspec", "by fsspec"),
    ):
        where = f"{path}/deep/{name}"
        assert read(client, where) == content.encode()
        assert run("dfs", "-cat", where).stdout == content.encode()
        assert fs.cat_file(where) == content.encode()
    names = [f"{path}/deep/{name}" for name in ("fsspec", "library", "shell")]
    assert [status.path for status in client.list(f"{path}/deep")] == names
    assert run("dfs", "-ls", "-C", f"{path}/deep").stdout.decode().split() == names
    assert sorted(fs.ls(f"{path}/deep", detail=False)) == names

    client.rename(f"{path}/deep/library", f"{path}/moved")
    assert run("dfs", "-rm", "-skipTrash", f"{path}/deep/shell").returncode == 0
    fs.rm(f"{path}/deep/fsspec")

    assert list(client.list(f"{path}/deep")) == []
    assert fs.cat_file(f"{path}/moved") == b"by the library"


def test_a_file_replaced_by_a_rename_is_seen_whole_before_and_after(
    client: DfsClient, cluster: LocalCluster, path: str
) -> None:
    """§2.7.2 (GFS-31): write under a temporary name, then rename: readers see all of one or all of
    the other, never a mixture and never nothing."""
    client.make_directory(path)
    put(client, f"{path}/file", b"0" * 300_000)
    over = threading.Event()
    seen: list[bytes] = []

    def look() -> None:
        reader = cluster.client()
        while not over.is_set():
            # Whoever has the one open that was replaced is told so, and opens the other.
            with contextlib.suppress(FileReplaced):
                seen.append(read(reader, f"{path}/file"))

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        try:
            for version in range(1, 10):
                put(client, f"{path}/.tmp", b"%d" % version * 300_000)
                client.rename(f"{path}/.tmp", f"{path}/file", overwrite=True)
        finally:
            over.set()
        looking.result()

    assert seen
    assert all(len(one) == 300_000 and len(set(one)) == 1 for one in seen)
    assert read(client, f"{path}/file") == b"9" * 300_000


def test_a_reader_with_old_locations_sees_at_worst_an_early_end(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§2.7.1 (GFS-30): most files are appended to, so that an outdated replica or length means a
    premature end; asking the master again gives current data."""
    old, new = b"old" * 40_000, b"new" * 40_000
    put(client, path, old)

    with DfsReader(client, path) as file:
        assert file.pread(0, 1 << 30) == old
        with writer.append(cluster.client(), path) as appended:
            appended.write(new)
        assert file.pread(0, 1 << 30) in (old, old + new)
        assert file.pread(0, 1 << 30) == old + new


def test_a_reader_that_jumps_about_asks_for_whole_checksum_blocks(
    client: DfsClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§5.2 (GFS-83): so that no block is verified for a part of it twice."""
    data = random.Random(83).randbytes(CHUNK_BYTES)
    put(client, path, data)
    client.place = Place()  # not on a replica's host: over the network
    asked: list[tuple[int, int]] = []

    class Recorded(reader_module.RemoteSource):
        def __init__(self, pool: Any, server: Any, chunk: Any, start: int, stop: int) -> None:
            asked.append((start, stop))
            super().__init__(pool, server, chunk, start, stop)

    monkeypatch.setattr(reader_module, "RemoteSource", Recorded)
    with DfsReader(client, path) as file:
        assert file.pread(100_000, 10) == data[100_000:100_010]
        assert file.pread(10, 10) == data[10:20]

    assert [stop for _, stop in asked] == [2 * BLOCK_BYTES, BLOCK_BYTES]


def test_file_bytes_never_cross_the_master(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§2.3 (GFS-05): the master's process reads and writes under 1 % of what clients do."""
    before = _process_bytes(cluster.pid(MASTER, "h1"))
    size = 40 << 20
    with writer.create(client, path, chunk_bytes=8 << 20) as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))
    client.place = Place()
    assert len(read(client, path)) == size

    moved = _process_bytes(cluster.pid(MASTER, "h1")) - before
    assert moved < 2 * size / 100


def _process_bytes(pid: int) -> int:
    """What a process has read and written so far, sockets included."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"]) + int(fields["wchar"])


def test_locations_are_asked_ahead_and_kept_for_a_while(
    client: DfsClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§2.4 (GFS-06, GFS-07, GFS-08): n chunks cost at most ⌈n/k⌉ calls, a second read none, a read
    after the time is over one again; reopening drops what was kept."""
    put(client, path, bytes(10 * CHUNK_BYTES))
    before = client.calls_count

    with DfsReader(client, path) as file:
        assert len(file.pread(0, 1 << 30)) == 10 * CHUNK_BYTES
        first = client.calls_count - before
        file.pread(5 * CHUNK_BYTES, 100)
        second = client.calls_count - before - first
    monkeypatch.setattr(reader_module, "LOCATIONS_S_MAX", -1.0)
    with DfsReader(client, path) as file:
        before_third = client.calls_count
        file.pread(5 * CHUNK_BYTES, 100)
        third = client.calls_count - before_third

    # The last call of the first read finds that the file ends.
    assert (first, second) == (-(-10 // reader_module.LOCATE_COUNT) + 1, 0)
    assert third == 1


def test_a_second_client_sees_an_append_right_after_it_was_acknowledged(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§2.3 (GFS-09): no file data is cached anywhere but in the operating system."""
    other = cluster.client()
    with writer.create(client, path) as file:
        for number in range(5):
            file.write(b"%d" % number)
            file.flush()
            assert read(other, path) == b"01234"[: number + 1]


def test_a_small_file_costs_little_more_than_its_bytes(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§2.5 (GFS-10): space is allocated lazily."""
    put(client, path, bytes(1000))

    (chunk,) = chunks_of(client, path)
    for file in data_files(cluster, chunk.handle):
        sums = file.with_suffix(".sums")
        assert (file.stat().st_blocks + sums.stat().st_blocks) * 512 <= 16 * 1024


def test_connections_to_chunkservers_are_kept(
    client: DfsClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§2.5 (GFS-11): a hundred reads of as many files' worth of ranges, a few connections."""
    put(client, path, bytes(2 * CHUNK_BYTES))
    client.place = Place()
    opened: list[str] = []
    real = client.pool.connect
    monkeypatch.setattr(
        client.pool, "connect", lambda address: opened.append(address) or real(address)
    )

    with DfsReader(client, path) as file:
        for number in range(100):
            file.pread(number * 4096 % (2 * CHUNK_BYTES - 4096), 4096)
            file.pread(CHUNK_BYTES * (number % 2) + 17, 10)

    assert len(opened) <= 4


def test_replication_can_be_raised_on_a_live_file_and_readers_spread(
    client: DfsClient, path: str
) -> None:
    """§2.5 (GFS-12): a hot file's reads go to all of its replicas."""
    put(client, path, b"hot")
    client.set_replication(path, 3)
    wait_for(
        lambda: len([r for r in chunks_of(client, path)[0].replicas if r.state == "good"]) == 3,
        60.0,
        "three replicas",
    )
    client.place = Place()

    served = set()
    for _ in range(60):
        with DfsReader(client, path) as file:
            assert file.pread(0, 10) == b"hot"
            served.add(file._server.server)

    assert served == {"h1", "h2", "h3"}


def test_a_client_on_a_replica_s_host_reads_it_there(client: DfsClient, path: str) -> None:
    """§2.3 (GFS-13), decision 6: the local replica, by its files."""
    put(client, path, bytes(range(256)) * 2048)
    (chunk, _) = chunks_of(client, path)
    client.place = Place(chunk.replicas[0].server)

    with DfsReader(client, path) as file:
        assert file.pread(0, CHUNK_BYTES) == (bytes(range(256)) * 2048)[:CHUNK_BYTES]
        assert file.local_bytes == CHUNK_BYTES


def test_a_local_reader_that_meets_rot_asks_the_server_and_gets_the_right_bytes(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """Decision 6: the server is the only judge of corruption."""
    data = random.Random(6).randbytes(200_000)
    put(client, path, data)
    (chunk,) = chunks_of(client, path)
    host = chunk.replicas[0].server
    file_path = cluster.host_directory(host) / CHUNKSERVER / path_of(chunk.handle, "data")
    content = bytearray(file_path.read_bytes())
    content[70_000] ^= 8
    file_path.write_bytes(content)
    client.place = Place(host)

    assert read(client, path) == data
    wait_for(
        lambda: (
            all(file.read_bytes() == data for file in data_files(cluster, chunk.handle))
            and len(data_files(cluster, chunk.handle)) == 2
        ),
        60.0,
        "the replica to be replaced",
    )


def test_all_replicas_gone_is_a_clear_error(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§2.7.1 (GFS-29): never wrong bytes."""
    put(client, path, b"precious" * 1000)
    (chunk,) = chunks_of(client, path)
    for file in data_files(cluster, chunk.handle):
        content = bytearray(file.read_bytes())
        content[100] ^= 1
        file.write_bytes(content)
    impatient = cluster.client(retry_s=1.0)

    with pytest.raises(NoReplica, match=r"chunk 0 .*replica"):
        read(impatient, path)


def test_a_long_writer_keeps_its_lease_without_asking_for_it(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§3.1 (GFS-34): extensions ride on heartbeats; the writer makes no calls of its own."""
    watching = cluster.client()
    file = writer.create(client, path)
    count, silence_s = 0, LEASE_S
    deadline_s = time.monotonic() + 120.0
    # Where the machine stood still for so long that no heartbeat came, leases end rightly: the time
    # that counts is one in which the master heard from all servers.
    while silence_s > LEASE_S / 2:
        assert time.monotonic() < deadline_s, f"heartbeats come {silence_s:.1f} s late, again"
        file.write(b"x")
        file.flush()
        grant, calls, began_s = file._grant, client.calls_count, time.monotonic()
        silence_s, asked_s = 0.0, began_s
        while time.monotonic() < began_s + 2.5 * LEASE_S:
            file.write(b"x")
            file.flush()
            count += 1
            heard = max(each.last_heard_s_ago for each in watching.report().servers)
            silence_s = max(silence_s, heard, time.monotonic() - asked_s)
            asked_s = time.monotonic()
            threading.Event().wait(0.1)
        count += 1
    keep_alives = 1 + (time.monotonic() - began_s) // KEEP_ALIVE_S

    assert file._grant == grant, "the lease of 2 s has lasted for 5 s"
    assert client.calls_count - calls <= keep_alives
    file.close()
    assert read(client, path) == b"x" * count


def test_a_write_over_chunk_edges_is_split(client: DfsClient, path: str) -> None:
    """§3.1 (GFS-39): by the client, at any place."""
    data = random.Random(39).randbytes(3 * CHUNK_BYTES)
    with writer.create(client, path) as file:
        file.write(data[: CHUNK_BYTES - 1])
        file.write(data[CHUNK_BYTES - 1 : 2 * CHUNK_BYTES + 1])
        file.write(data[2 * CHUNK_BYTES + 1 :])

    assert read(client, path) == data
    with DfsReader(client, path) as reading:
        edge = reading.pread(CHUNK_BYTES - 10, 20)
    assert edge == data[CHUNK_BYTES - 10 : CHUNK_BYTES + 10]


def test_records_are_appended_over_chunk_edges_with_padding_between(
    client: DfsClient, path: str
) -> None:
    """§3.3 (GFS-43, 44, 45): the reader skips the padding."""
    writer.create(client, path, first_chunk=False).close()
    appender = RecordAppender(client, path)
    payloads = [bytes([65 + number]) * 50_000 for number in range(12)]
    offsets = [appender.append_record(payload) for payload in payloads]

    content = read(client, path)
    found = list(RecordCutter(CHUNK_BYTES // 4).feed(content))

    assert [record.payload for record in found] == payloads
    assert [record.offset for record in found] == offsets
    assert all(offset // CHUNK_BYTES == (offset + 50_000) // CHUNK_BYTES for offset in offsets)
    with pytest.raises(RecordTooLarge, match="a fourth of a chunk"):
        appender.append(bytes(CHUNK_BYTES // 4 + 1))


def test_a_consumer_follows_producers_and_empty_reads_are_normal(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§6.3.2 (GFS-48): a queue of many producers and one consumer."""
    writer.create(client, path, first_chunk=False).close()
    done = threading.Event()

    def produce(number: int) -> None:
        appender = RecordAppender(cluster.client(), path)
        for count in range(10):
            appender.append_record(b"%d-%d" % (number, count))

    producers = [threading.Thread(target=produce, args=(number,)) for number in range(3)]
    for producer in producers:
        producer.start()
    cutter = RecordCutter(CHUNK_BYTES // 4)
    seen: set[bytes] = set()
    position = 0

    def consume() -> bool:
        nonlocal position
        with DfsReader(client, path) as file:
            part = file.pread(position, 1 << 20)
        position += len(part)
        seen.update(record.payload for record in cutter.feed(part))
        return len(seen) == 30

    wait_for(consume, 60.0, "thirty records")
    done.set()
    for producer in producers:
        producer.join()
    assert seen == {b"%d-%d" % (n, c) for n in range(3) for c in range(10)}


def test_the_first_write_after_a_snapshot_copies_on_the_same_servers(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§3.4 (GFS-49, 50, 51, 52): nothing is copied at first, and no bytes go between servers."""
    put(client, path, b"shared" * 1000)
    snap = path + ".snap"
    (before,) = chunks_of(client, path)

    client.snapshot(path, snap)
    (shared,) = chunks_of(client, snap)
    assert (shared.handle, shared.references) == (before.handle, 2)
    with writer.append(client, path) as file:
        file.write(b"!")

    (own,) = chunks_of(client, path)
    assert own.handle != before.handle
    assert {one.server for one in own.replicas} == {one.server for one in before.replicas}
    assert read(client, path) == b"shared" * 1000 + b"!"
    assert read(client, snap) == b"shared" * 1000
    client.delete(snap, skip_trash=True)


def test_an_alien_chunk_is_found_by_heartbeats_and_collected(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§4.4.1 (GFS-67): a server reports a few chunks at a time; the master names the unknown. (One
    that the log never reserved a handle for would show that the log is old, and stop the master.)
    """
    put(client, path, b"known")
    cluster.kill(CHUNKSERVER, "h2")
    disk = OsDisk(str(cluster.host_directory("h2") / CHUNKSERVER))
    store = ChunkStore([disk], cluster=cluster.secret.cluster_id, server="h2")
    alien = ChunkHandle(HANDLES_RESERVED_AT_ONCE - 1)
    store.write(store.create(alien, 1), 0, [b"alien"])

    cluster.start(CHUNKSERVER, "h2")

    wait_for(lambda: not data_files(cluster, alien), 60.0, "the alien chunk to be deleted")
    assert read(client, path) == b"known"


def test_a_chunk_file_removed_by_hand_is_missed_and_made_again(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§2.6.2 (GFS-15): the server has the last word on what it holds."""
    put(client, path, b"bytes" * 100)
    (chunk,) = chunks_of(client, path)
    host = chunk.replicas[0].server
    cluster.kill(CHUNKSERVER, host)
    for suffix in ("data", "sums"):
        (cluster.host_directory(host) / CHUNKSERVER / path_of(chunk.handle, suffix)).unlink()

    cluster.start(CHUNKSERVER, host)

    wait_for(
        lambda: (
            len(data_files(cluster, chunk.handle)) == 2 and client.report().under_replicated == 0
        ),
        60.0,
        "the replica to be made again",
    )
    assert read(client, path) == b"bytes" * 100


def test_a_port_scanner_does_not_disturb_a_chunkserver(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """Strangers, half-open connections and huge headers cost a refusal, nothing more."""
    put(client, path, b"bytes")
    address = ("127.0.0.2", cluster.config.port("dfs.chunkserver.bulk"))
    silent = [socket.create_connection(address) for _ in range(20)]
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, os.urandom(4096), b"\0" * 13):
        with socket.create_connection(address) as stranger:
            stranger.sendall(noise)

    client.place = Place("h2")
    assert read(client, path) == b"bytes"
    for connection in silent:
        connection.close()


def test_every_request_for_bytes_is_in_the_diagnostic_log_without_its_payload(
    cluster: LocalCluster, client: DfsClient, path: str
) -> None:
    """§5.3 (GFS-84): who asked what, how long it took, how it ended."""
    put(client, path, b"payload" * 100)
    client.place = Place()
    read(client, path)
    (chunk,) = chunks_of(client, path)

    def logged() -> bool:
        texts = [
            (cluster.host_directory(host) / "logs" / f"{CHUNKSERVER}.bulk.rpc.log").read_text()
            for host in cluster.hosts
        ]
        lines = [line for text in texts for line in text.splitlines()]
        written = [one for one in lines if f"WriteChunk handle={chunk.handle} " in one]
        asked = [one for one in lines if f"ReadChunk handle={chunk.handle} " in one]
        return bool(written and asked) and not any("payload" in one for one in lines)

    wait_for(logged, 60.0, "the log to have both")
