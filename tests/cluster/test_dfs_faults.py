"""Fault gates of the chunk store on real processes: kill, stop, fill, flip, swap.

Each ends with a clean fsck and a full read-back. Chunks and times are small, so that each takes
seconds.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.dfs.chunks.replica_files import path_of
from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.records import RecordAppender, RecordCutter
from mrstream.dfs.errors import NoSuchFile, WriterFenced
from mrstream.dfs.protocol import ChunkFact
from tests.cluster.dfs_soak import resume_with_a_late_write
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for

CHUNK_BYTES = 256 * 1024


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    options = dict(getattr(request, "param", {}))
    count = options.pop("count", 4)
    settings = {"chunk_size": "256KiB", **options.pop("dfs", {})}
    with LocalCluster(tmp_path, count, dfs=settings, **options) as running:
        try:
            yield running
        except BaseException:
            for role, hosts in ((MASTER, running.hosts[:1]), (CHUNKSERVER, running.hosts)):
                for host in hosts:
                    print(f"== {role} {host}\n{running.output(role, host)[-3000:]}")
            raise


def put(client: DfsClient, path: str, data: bytes) -> None:
    with writer.create(client, path) as file:
        file.write(data)


def read(client: DfsClient, path: str) -> bytes:
    with DfsReader(client, path) as file:
        return file.pread(0, 1 << 30)


def chunks_of(client: DfsClient, path: str = "/") -> list[ChunkFact]:
    return [chunk for page in client.fsck(path) for fact in page.files for chunk in fact.chunks]


def good(chunk: ChunkFact) -> list[str]:
    return [replica.server for replica in chunk.replicas if replica.state == "good"]


def is_clean(client: DfsClient) -> bool:
    """Every chunk has exactly its goal of good replicas, and no others."""
    report = client.report()
    if report.under_replicated or report.missing or report.corrupt:
        return False
    return all(len(good(chunk)) == len(chunk.replicas) == chunk.goal for chunk in chunks_of(client))


def wait_clean(client: DfsClient, seconds: float = 60.0) -> None:
    try:
        wait_for(lambda: is_clean(client) or None, seconds, "fsck to be clean")
    except AssertionError:
        print(client.report(), [c for c in chunks_of(client) if len(good(c)) != c.goal])
        raise


def wait_dead(client: DfsClient, *hosts: str) -> None:
    """Wait until the master has given servers up: until then all looks well."""

    def dead() -> bool:
        states = {one.address.server: one.state for one in client.report().servers}
        return all(states[host] == "dead" for host in hosts)

    wait_for(lambda: dead() or None, 60.0, f"{hosts} to be dead")


def replica_file(cluster: LocalCluster, host: str, handle: int, suffix: str) -> Path:
    return cluster.host_directory(host) / CHUNKSERVER / path_of(handle, suffix)


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def in_threads(count: int, action: Callable[[int], None]) -> None:
    """Run `action(0…count-1)` at once; raise the first failure."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            action(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("cluster", [{"count": 5}], indirect=True)
def test_gate_1_a_chunkserver_killed_during_a_hundred_writes_loses_nothing(
    cluster: LocalCluster,
) -> None:
    """Writers finish by replacing the pipeline; what is under-replicated is repaired."""
    client = cluster.client(retry_s=30.0)
    written: dict[str, bytes] = {}
    half = threading.Event()

    def write(number: int) -> None:
        data = random.Random(number).randbytes(random.Random(-number).randrange(400_000))
        with writer.create(client, f"/w/{number}") as file:
            for at in range(0, len(data), 50_000):
                file.write(data[at : at + 50_000])
                file.flush()
        written[f"/w/{number}"] = data
        if len(written) > 20:
            half.set()

    def kill() -> None:
        assert half.wait(60)
        cluster.kill(CHUNKSERVER, "h3")

    killer = threading.Thread(target=kill)
    killer.start()
    in_threads(100, write)
    killer.join()

    assert len(written) == 100
    for path, data in written.items():
        assert read(client, path) == data, path
    wait_dead(client, "h3")
    wait_clean(client)
    cluster.start(CHUNKSERVER, "h3")
    wait_clean(client)


@pytest.mark.parametrize("cluster", [{"count": 5}], indirect=True)
def test_gate_2_chunks_with_one_copy_left_are_repaired_first(cluster: LocalCluster) -> None:
    """GFS §4.3 (GFS-61): two holders gone at once; all stays readable. The master is started after
    their death, so that it learns of both together."""
    client = cluster.client()
    data = {f"/f{number}": random.Random(number).randbytes(400_000) for number in range(12)}
    for path, content in data.items():
        put(client, path, content)
    wait_clean(client)
    killed = set(good(chunks_of(client)[0])[:2])
    left = {chunk.handle: len(set(good(chunk)) - killed) for chunk in chunks_of(client)}
    before = set(_clone_order(cluster))

    cluster.kill(MASTER, "h1")
    for host in sorted(killed):
        cluster.kill(CHUNKSERVER, host)
    cluster.start(MASTER, "h1")
    for path, content in data.items():
        assert read(client, path) == content
    wait_clean(client)

    cloned = [handle for handle in _clone_order(cluster) if handle not in before]
    singles = [handle for handle in cloned if left.get(handle) == 1]
    assert singles
    firsts = [handle for handle in cloned[: len(singles)] if left.get(handle) == 1]
    # Two clones go on at a time, so that the last of these may end after the first of the others.
    assert len(firsts) >= len(singles) - 1, (cloned, left)
    for path, content in data.items():
        assert read(client, path) == content


def _clone_order(cluster: LocalCluster) -> list[int]:
    """The chunks in the order in which their first clones ended, by the servers' logs."""
    ended: list[tuple[str, int]] = []
    for host in cluster.hosts:
        log = cluster.host_directory(host) / "logs" / f"{CHUNKSERVER}.log"
        for line in log.read_text().splitlines():
            if " cloned handle=" in line:
                handle = int(line.partition(" cloned handle=")[2][:16], 16)
                ended.append((line.partition(" ")[0], handle))
    order: dict[int, None] = {}
    for _, handle in sorted(ended):
        order.setdefault(handle)
    return list(order)


_BROKEN_FSYNC = """
import os
real = os.fdatasync
def fdatasync(fd):
    if os.path.exists("fsync-fails"):
        raise OSError(5, "Input/output error")
    real(fd)
os.fdatasync = fdatasync
"""


def test_gate_6_a_server_whose_fsync_fails_ends_and_the_cluster_goes_on(
    cluster: LocalCluster,
) -> None:
    """Nothing is acknowledged that the disk may not have kept."""
    client = cluster.client()
    put(client, "/before", b"b" * 300_000)
    cluster.kill(CHUNKSERVER, "h2")
    cluster.start(CHUNKSERVER, "h2", prelude=_BROKEN_FSYNC)
    (cluster.host_directory("h2") / "fsync-fails").touch()

    data = {f"/f{number}": random.Random(number).randbytes(300_000) for number in range(10)}
    for path, content in data.items():
        put(client, path, content)
    status = cluster.wait_exit(CHUNKSERVER, "h2")

    assert status != 0
    assert "fsync" in cluster.output(CHUNKSERVER, "h2")
    for path, content in data.items():
        assert read(client, path) == content
    wait_dead(client, "h2")
    wait_clean(client)


def test_gate_7_a_full_disk_is_a_clear_error_and_passes(tmp_path: Path) -> None:
    """No partial file is visible; it recovers when space returns."""
    with (
        _small_disks(tmp_path, 3, "6m") as hosts,
        LocalCluster(tmp_path, 3, dfs={"chunk_size": "256KiB", "reserve": "1MiB"}) as cluster,
    ):
        assert hosts == cluster.hosts
        client = cluster.client(retry_s=3.0)
        put(client, "/fits", b"f" * 1_000_000)

        with pytest.raises(ClusterError) as refused:
            put(client, "/too-large", b"t" * 9_000_000)

        assert any(word in str(refused.value) for word in ("free", "room", "full", "fit")), refused
        with pytest.raises(NoSuchFile):
            client.stat("/too-large")
        assert read(client, "/fits") == b"f" * 1_000_000
        client.delete("/fits", skip_trash=True)
        wait_for(lambda: _put_works(client, b"n" * 2_000_000), 60.0, "space to return")
        assert read(client, "/again") == b"n" * 2_000_000
        wait_clean(client)


def _put_works(client: DfsClient, data: bytes) -> bool:
    try:
        with writer.create(client, "/again", overwrite=True) as file:
            file.write(data)
    except Unavailable:
        return False
    return True


class _small_disks:
    """A tmpfs of that size as the state directory of each chunkserver."""

    def __init__(self, directory: Path, count: int, size: str) -> None:
        self._names = [f"h{number}" for number in range(1, count + 1)]
        self._places = [directory / "hosts/test" / name / CHUNKSERVER for name in self._names]
        self._size = size

    def __enter__(self) -> list[str]:
        for place in self._places:
            place.mkdir(parents=True)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(place)],
                check=True,
            )
        return self._names

    def __exit__(self, *exc: object) -> None:
        for place in self._places:
            subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_failed_disk_is_taken_out_and_the_rest_serve_on(tmp_path: Path) -> None:
    """One of two disks of a server goes; its chunks are copied again, the server lives."""
    place = tmp_path / "h1-disk0"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=True)
    mounted = True
    try:
        settings = {"chunk_size": "256KiB", "replication": "2"}
        with LocalCluster(tmp_path, 3, dfs=settings, disks=2) as cluster:
            client = cluster.client()
            data = {f"/f{n}": random.Random(n).randbytes(300_000) for n in range(12)}
            for path, content in data.items():
                put(client, path, content)
            wait_clean(client)
            subprocess.run(["umount", "-l", str(place)], check=True)
            mounted = False

            for path, content in data.items():
                assert read(client, path) == content
            put(client, "/after", b"after")
            wait_for(lambda: _all_verify(client) and is_clean(client), 60.0, "repair")
            for path, content in data.items():
                assert read(client, path) == content
            assert cluster.health(CHUNKSERVER, "h1").ready
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("suffix", ["data", "sums"])
def test_gate_8_a_flipped_bit_is_never_read_and_its_replica_is_replaced(
    cluster: LocalCluster, suffix: str
) -> None:
    """GFS §5.2 (GFS-79): error to the reader, report, another replica, clone, delete."""
    client = cluster.client()
    data = random.Random(8).randbytes(250_000)
    put(client, "/f", data)
    wait_clean(client)
    (chunk,) = chunks_of(client)
    for host in good(chunk)[:2]:
        path = replica_file(cluster, host, chunk.handle, suffix)
        flip(path, 100_000 if suffix == "data" else 1024)

    for _ in range(6):
        assert read(client, "/f") == data

    _verify_everywhere(client)
    if suffix == "data":
        _wait_replaced(client, cluster, chunk.handle, data)
    else:
        wait_for(
            lambda: all(
                "replica_corrupt" in cluster.output(CHUNKSERVER, host) for host in good(chunk)[:2]
            ),
            60.0,
            "the servers to find it",
        )
        wait_for(lambda: _all_verify(client) and is_clean(client), 60.0, "repair")


def _verify_everywhere(client: DfsClient) -> None:
    """Have every server read every replica: what is bad is found."""
    _all_verify(client)


def _all_verify(client: DfsClient) -> bool:
    """Read every replica of every chunk through its own server; are all of them good?"""
    from mrstream.dfs.client.chunk_source import RemoteSource

    all_good = True
    for page in client.fsck("/"):
        for fact in page.files:
            for located in client.locate(fact.status.path, 0, 100).chunks:
                for server in located.replicas:
                    try:
                        source = RemoteSource(client.pool, server, located, 0, located.length_bytes)
                        while source.next_piece():
                            pass
                    except ClusterError:
                        all_good = False
    return all_good


def _wait_replaced(client: DfsClient, cluster: LocalCluster, handle: int, data: bytes) -> None:
    """Wait until three replicas lie on disks and none of them is a bad one."""

    def replaced() -> bool:
        paths = [replica_file(cluster, host, handle, "data") for host in cluster.hosts]
        found = [path.read_bytes() for path in paths if path.exists()]
        return found == [data] * 3 and is_clean(client)

    wait_for(lambda: replaced() or None, 60.0, "the bad replicas to be replaced")


@pytest.mark.parametrize("cluster", [{"dfs": {"scrub_every": "1s"}}], indirect=True)
def test_gate_8_the_scrubber_finds_rot_that_nobody_reads(cluster: LocalCluster) -> None:
    """GFS-82: within one cycle."""
    client = cluster.client()
    data = random.Random(9).randbytes(200_000)
    put(client, "/f", data)
    wait_clean(client)
    (chunk,) = chunks_of(client)
    host = good(chunk)[0]
    flip(replica_file(cluster, host, chunk.handle, "data"), 5)

    wait_for(lambda: "replica_corrupt" in cluster.output(CHUNKSERVER, host), 60.0, "the scrubber")
    _wait_replaced(client, cluster, chunk.handle, data)


def test_gate_9_deleted_and_swapped_files_are_named_and_repaired(cluster: LocalCluster) -> None:
    """fsck names them; no wrong byte is served."""
    client = cluster.client()
    data = {f"/f{number}": random.Random(number).randbytes(200_000) for number in range(4)}
    for path, content in data.items():
        put(client, path, content)
    wait_clean(client)
    chunks = chunks_of(client)
    held = {
        host: [chunk.handle for chunk in chunks if host in good(chunk)] for host in cluster.hosts
    }
    host = max(held, key=lambda name: len(held[name]))
    here = held[host]  # twelve replicas on four hosts: three or more
    replica_file(cluster, host, here[0], "data").unlink()
    for suffix in ("data", "sums"):
        one = replica_file(cluster, host, here[1], suffix)
        two = replica_file(cluster, host, here[2], suffix)
        content = one.read_bytes()
        one.write_bytes(two.read_bytes())
        two.write_bytes(content)

    checked = cluster.mrstream("dfs", "-fsck", "/", "-compare")
    assert checked.returncode == 1, checked.stdout
    said = checked.stdout.decode()
    for handle in here[:3]:
        (line,) = (each for each in said.splitlines() if f"{handle:016x}" in each)
        assert f"DIFFER: {host}: error" in line or f"CORRUPT at {host}" in line, line
    assert said.endswith("Status: CORRUPT\n")
    _verify_everywhere(client)
    for path, content in data.items():
        assert read(client, path) == content
    cluster.kill(CHUNKSERVER, host)
    cluster.start(CHUNKSERVER, host)
    wait_for(lambda: _all_verify(client) and is_clean(client), 60.0, "repair")

    for path, content in data.items():
        assert read(client, path) == content
    for chunk in chunks_of(client):
        for server in good(chunk):
            assert replica_file(cluster, server, chunk.handle, "data").exists()


def test_gate_9_a_stale_replica_is_never_served(cluster: LocalCluster) -> None:
    """GFS-27, 71: stop a server, change the chunk, start the server: its replica is stale."""
    client = cluster.client()
    put(client, "/f", b"old" * 1000)
    wait_clean(client)
    (chunk,) = chunks_of(client)
    host = good(chunk)[0]
    cluster.kill(CHUNKSERVER, host)
    with writer.append(client, "/f") as file:
        file.write(b"new" * 1000)
    expected = b"old" * 1000 + b"new" * 1000

    cluster.start(CHUNKSERVER, host)

    for _ in range(10):
        (now,) = chunks_of(client)
        (located,) = client.locate("/f", 0, 1).chunks
        fresh = {one.server for one in now.replicas if one.version == now.version}
        assert {server.server for server in located.replicas} <= fresh
        assert read(client, "/f") == expected
    wait_clean(client)


def test_gate_10_a_misdirected_write_is_caught(cluster: LocalCluster) -> None:
    """One chunk's block and its checksum, written into another: bound to their chunk, they fail."""
    client = cluster.client()
    one, two = random.Random(1).randbytes(200_000), random.Random(2).randbytes(200_000)
    put(client, "/one", one)
    put(client, "/two", two)
    wait_clean(client)
    first, second = chunks_of(client)
    host = next(server for server in good(first) if server in good(second))
    for suffix, start, size in (("data", 0, 65536), ("sums", 1024, 4)):
        source = replica_file(cluster, host, first.handle, suffix).read_bytes()
        target = replica_file(cluster, host, second.handle, suffix)
        content = bytearray(target.read_bytes())
        content[start : start + size] = source[start : start + size]
        target.write_bytes(content)

    for _ in range(6):
        assert read(client, "/two") == two
    _verify_everywhere(client)
    _wait_replaced(client, cluster, second.handle, two)


@pytest.mark.parametrize("cluster", [{"count": 3}], indirect=True)
def test_gate_12_a_lease_holder_stopped_and_resumed_is_fenced(cluster: LocalCluster) -> None:
    """Its late write must not be applied anywhere: no two primaries (GFS-36). With the default
    lease, and a stop as long: `dfs_soak.py`."""
    client = cluster.client(retry_s=60.0)

    resume_with_a_late_write(cluster, client, stopped_s=0.0)

    wait_clean(client)
    assert read(client, "/late") == b"first second third"


_WRITER = """
import os, sys
from mrstream.dfs.client import writer
from mrstream.dfs.client.client import connect
file = writer.create(connect(sys.argv[1]), "/f")
for number in range(1000):
    file.write(b"%07d\\n" % number * 1000)
    file.flush()
    print(number, flush=True)
"""


def test_gate_15_a_file_whose_writer_died_keeps_what_was_acknowledged(
    cluster: LocalCluster,
) -> None:
    """Its length is the longest prefix that all replicas agree on."""
    client = cluster.client()
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, cluster.file],
        stdout=subprocess.PIPE,
        env={**cluster.environment, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    acknowledged = -1
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged == 70:
            break
    process.kill()
    process.wait()
    for line in process.stdout:
        acknowledged = int(line)

    status = wait_for(lambda: client.recover("/f", force=True), 60.0, "the file to be closed")

    assert not status.is_open
    content = read(client, "/f")
    assert len(content) == status.length_bytes >= (acknowledged + 1) * 8000
    expected = b"".join(b"%07d\n" % number * 1000 for number in range(acknowledged + 3))
    assert expected.startswith(content)
    wait_clean(client)
    with writer.append(client, "/f") as file:
        file.write(b"goes on")
    assert read(client, "/f") == content + b"goes on"


def test_gate_15_a_second_writer_fences_the_first(cluster: LocalCluster) -> None:
    """A writer that was taken over hears of it, and its bytes are not mixed in."""
    first_client, second_client = cluster.client(), cluster.client()
    first = writer.create(first_client, "/f")
    first.write(b"first")
    first.flush()
    second_client.recover("/f", force=True)

    with writer.append(second_client, "/f") as second:
        second.write(b" second")

    with pytest.raises(ClusterError) as refused:
        first.write(b" late" * 100)
        first.close()
    assert isinstance(refused.value, WriterFenced | Unavailable)
    assert read(second_client, "/f") == b"first second"


@pytest.mark.parametrize("cluster", [{"count": 4}], indirect=True)
def test_gate_17_sixteen_record_appenders_lose_and_tear_nothing(cluster: LocalCluster) -> None:
    """GFS §3.3 (GFS-43 … 47): with a server killed meanwhile, and a consumer at the tail."""
    client = cluster.client(retry_s=30.0)
    writer.create(client, "/queue", first_chunk=False).close()
    acknowledged: list[bytes] = []

    def append(number: int) -> None:
        appender = RecordAppender(cluster.client(retry_s=30.0), "/queue")
        for count in range(12):
            payload = b"%02d-%03d;" % (number, count) * 300
            appender.append_record(payload)
            acknowledged.append(payload)
            if number == 0 and count == 4:
                cluster.kill(CHUNKSERVER, "h2")

    in_threads(16, append)

    assert len(acknowledged) == 16 * 12
    cutter = RecordCutter(CHUNK_BYTES // 4)
    content = read(client, "/queue")
    found = [record.payload for record in cutter.feed(content)]
    found += [record.payload for record in cutter.finish()]
    assert set(acknowledged) <= set(found)
    assert all(payload == payload[:7] * 300 for payload in found), "a torn record came out"
    cluster.start(CHUNKSERVER, "h2")
    wait_for(lambda: client.report().under_replicated == 0 or None, 60.0, "repair")


@pytest.mark.parametrize("cluster", [{"count": 4}], indirect=True)
def test_serialised_appends_are_there_once_in_one_order_on_equal_replicas(
    cluster: LocalCluster,
) -> None:
    """EV-08: with a server killed under the appenders, and readers that follow."""
    client = cluster.client(retry_s=60.0)
    client.make_directory("/exact")
    client.set_policy("/exact", appends=1)
    writer.create(client, "/exact/log", first_chunk=False).close()
    offsets: dict[bytes, int] = {}
    seen: list[bytes] = []

    def append(number: int) -> None:
        appender = RecordAppender(cluster.client(retry_s=60.0), "/exact/log")
        for count in range(12):
            data = b"%02d-%03d;" % (number, count) * 900
            offsets[data] = appender.append(data)
            if number == 0 and count == 4:
                cluster.kill(CHUNKSERVER, "h2")
            if number == 1:
                seen.append(read(client, "/exact/log"))
                assert data in seen[-1], "it was acknowledged and is not read"

    in_threads(6, append)

    assert len(offsets) == 6 * 12
    content = read(client, "/exact/log")
    assert all(content[at : at + len(data)] == data for data, at in offsets.items())
    # Nothing else but padding at the ends of chunks, so nothing twice and no fragment.
    assert len(content.replace(b"\0", b"")) == sum(map(len, offsets))
    assert all(content.startswith(before) for before in seen)
    cluster.start(CHUNKSERVER, "h2")
    wait_clean(client)
    for index, chunk in enumerate(chunks_of(client, "/exact/log")):
        files = [replica_file(cluster, host, chunk.handle, "data") for host in good(chunk)]
        mine = content[index * CHUNK_BYTES :][:CHUNK_BYTES]
        assert all(file.read_bytes().startswith(mine) for file in files), f"{chunk} differs"


def test_gate_30_and_75_clients_ride_over_restarts_of_everything(cluster: LocalCluster) -> None:
    """GFS-74, 75: kill is the normal stop; a client waits, reconnects and goes on."""
    client = cluster.client(retry_s=30.0)
    data = random.Random(75).randbytes(1_500_000)
    file = writer.create(client, "/f")
    file.write(data[:700_000])
    file.flush()

    cluster.kill(MASTER, "h1")
    for host in cluster.hosts:
        cluster.kill(CHUNKSERVER, host)
    for host in cluster.hosts:
        cluster.launch(CHUNKSERVER, host)
    cluster.launch(MASTER, "h1")
    file.write(data[700_000:])
    file.close()

    assert read(client, "/f") == data
    wait_clean(client)
