"""GFS §3 and §5 on real chunk services and sockets; the test plays the master's part."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import DiskFailed, Unavailable
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import BulkServer
from mrstream.dfs.chunk import BLOCK_BYTES, ChunkHandle, ChunkVersion, ServerId
from mrstream.dfs.chunks.chunk_service import ChunkService
from mrstream.dfs.chunks.chunk_store import ChunkStore, Reserve
from mrstream.dfs.chunks.commands import CommandRunner, Throttle
from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.chunks.push_buffer import PushBuffer
from mrstream.dfs.chunks.replica_files import path_of
from mrstream.dfs.client.chunk_source import LocalSource, RemoteSource
from mrstream.dfs.client.chunk_writer import Run, ask_primary, push, write_run
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.topology import Place, chain, nearest_first
from mrstream.dfs.errors import (
    ChunkCorrupt,
    ChunkFull,
    DataNotPushed,
    LeaseExpired,
    NoReplica,
    NotPrimary,
    RecordTooLarge,
    ReplicaFailed,
    StaleReplica,
)
from mrstream.dfs.protocol import (
    AppendRecord,
    ApplyMutation,
    ChunkGrant,
    CloneChunk,
    CopyChunk,
    CreateChunk,
    GrantLease,
    LocatedChunk,
    ServerAddress,
    SetVersion,
    TruncateChunk,
    WriteChunk,
)
from mrstream.dfs.transfer.bulk_pool import BulkPool
from tests.support.manual_clock import ManualClock

IDENTITY = Identity("cluster-1", b"s" * 32, "dfs.chunkserver", "test")
CHUNK_BYTES = 1 << 20
HANDLE = ChunkHandle(0x1234)


class Server:
    """A chunkserver without a master."""

    def __init__(self, name: str, root: Path, clock: ManualClock, push_bytes: int) -> None:
        self.name = ServerId(name)
        self.root = root
        self.clock = clock
        self.failures: list[DiskFailed] = []
        pool = BulkPool(IDENTITY, timeout_s=30.0, connect_s_max=30.0)
        self.store = ChunkStore(
            [OsDisk(str(root))],
            cluster="cluster-1",
            server=name,
            reserve=Reserve(fraction=0.0),
        )
        self.order = MutationOrder()
        self.order.contact(clock.now_s(), 10.0)
        self.service = ChunkService(
            self.name, self.store, self.order, PushBuffer(push_bytes), pool, clock,
            self.failures.append,
        )  # fmt: skip
        throttle = Throttle(0, lambda: False, lambda seconds: None)
        self.runner = CommandRunner(self.service, pool, clock, throttle)
        self.bulk = BulkServer(self.service.serve, IDENTITY)
        port = int(self.bulk.start("127.0.0.1:0").rpartition(":")[2])
        socket_path = str(root / "sock")
        self.local = BulkServer(self.service.serve, IDENTITY)
        self.local.start(f"unix:{socket_path}")
        self.address = ServerAddress(self.name, "127.0.0.1", 0, port, "", socket_path)

    def close(self) -> None:
        self.bulk.close()
        self.local.close()


class Servers:
    """A few of them, and a client."""

    def __init__(self, root: Path, count: int, push_bytes: int = 8 << 20) -> None:
        self.clock = ManualClock(100.0)
        self.all: dict[str, Server] = {}
        for number in range(1, count + 1):
            path = root / f"h{number}"
            path.mkdir()
            self.all[f"h{number}"] = Server(f"h{number}", path, self.clock, push_bytes)
        self.client = DfsClient(
            "127.0.0.1:1", IDENTITY, retry=RetryPolicy(total_s=30.0, first_s=0.01)
        )

    def close(self) -> None:
        self.client.close()
        for server in self.all.values():
            server.close()

    def grant(self, *names: str, version: int = 1, handle: ChunkHandle = HANDLE) -> ChunkGrant:
        """Make the chunk on these servers, the first one primary."""
        for name in names:
            lease_s = 60.0 if name == names[0] else 0.0
            self.all[name].runner.run(
                CreateChunk(0, handle, ChunkVersion(version), lease_s), self.clock.now_s()
            )
        return self.granted(*names, version=version, handle=handle)

    def granted(self, *names: str, version: int, handle: ChunkHandle = HANDLE) -> ChunkGrant:
        addresses = tuple(self.all[name].address for name in names)
        return ChunkGrant(
            0, handle, ChunkVersion(version), ServerId(names[0]), addresses, 60.0, CHUNK_BYTES
        )

    def regrant(self, *names: str, version: int) -> ChunkGrant:
        """Raise the version on these servers and give the first one the lease."""
        for name in names:
            runner = self.all[name].runner
            runner.run(SetVersion(0, HANDLE, ChunkVersion(1), ChunkVersion(version)), 0.0)
        self.all[names[0]].runner.run(
            GrantLease(0, HANDLE, ChunkVersion(version), 60.0), self.clock.now_s()
        )
        return self.granted(*names, version=version)

    def write(self, grant: ChunkGrant, offset: int, data: bytes) -> ChunkGrant:
        def no_repair(old: ChunkGrant, failed: tuple[ServerId, ...]) -> ChunkGrant:
            raise AssertionError(f"unexpected repair, {failed} failed")

        run = Run(0, offset, memoryview(data))
        return write_run(self.client, run, grant, no_repair)

    def append(self, grant: ChunkGrant, record: bytes) -> int:
        run = Run(0, 0, memoryview(record))
        push(self.client, run, grant)
        request = AppendRecord(
            grant.handle, grant.version, len(record), run.data_id, grant.replicas, CHUNK_BYTES
        )
        return int(ask_primary(self.client, grant, request).value)

    def contents(self, name: str, handle: ChunkHandle = HANDLE) -> bytes:
        server = self.all[name]
        return bytes(server.store.read(server.store.get(handle), 0, 1 << 30))

    def read(self, name: str, start: int, stop: int, version: int = 1) -> bytes:
        chunk = LocatedChunk(0, HANDLE, ChunkVersion(version), 0, ())
        source = RemoteSource(self.client.pool, self.all[name].address, chunk, start, stop)
        pieces = []
        while piece := source.next_piece():
            pieces.append(bytes(piece))
        return b"".join(pieces)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    cluster = Servers(tmp_path, 3)
    yield cluster
    cluster.close()


def test_a_write_reaches_all_replicas_before_it_is_acknowledged(servers: Servers) -> None:
    """§3.1: push to all, write request to the primary, serial number, forward, acks, reply."""
    grant = servers.grant("h1", "h2", "h3")
    data = random.Random(1).randbytes(300_000)

    servers.write(grant, 0, data)

    for name in ("h1", "h2", "h3"):
        assert servers.contents(name) == data
        path = servers.all[name].root / path_of(HANDLE, "data")
        assert path.read_bytes() == data


def test_data_is_everywhere_before_the_primary_is_asked_and_numbers_are_given_in_order(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§3.1, Figure 2 (GFS-37): push to all replicas, under an id, in bounded buffers; the write
    request to the primary; its serial number; forward; acks; reply."""
    grant = servers.grant("h1", "h2", "h3")
    steps: list[tuple[str, str, int]] = []
    for name, server in servers.all.items():
        service = server.service

        def kept(*pushed: Any, name: str = name, keep: Any = service._buffer.keep) -> None:
            keep(*pushed)
            steps.append(("pushed", name, 0))

        def write(request: WriteChunk, name: str = name, write: Any = service.write) -> None:
            steps.append(("asked", name, 0))
            write(request)
            steps.append(("replies", name, 0))

        def apply(request: ApplyMutation, name: str = name, apply: Any = service.apply) -> None:
            apply(request)
            steps.append(("applied", name, request.serial))

        monkeypatch.setattr(service._buffer, "keep", kept)
        monkeypatch.setattr(service, "write", write)
        monkeypatch.setattr(service, "apply", apply)

    for serial in (1, 2):
        servers.write(grant, (serial - 1) * 300_000, bytes([serial]) * 300_000)

        assert sorted(steps[:3]) == [("pushed", name, 0) for name in ("h1", "h2", "h3")]
        assert steps[3] == ("asked", "h1", 0)
        assert sorted(steps[4:6]) == [("applied", "h2", serial), ("applied", "h3", serial)]
        assert steps[6:] == [("replies", "h1", 0)]
        steps.clear()


def test_table_1_a_lone_write_is_defined_and_a_failed_one_inconsistent(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§2.7.1, Table 1 (GFS-26): replicas compared byte for byte. (Concurrent writes leave regions
    consistent: `test_overlapping_writers_leave_identical_replicas`.)"""
    grant = servers.grant("h1", "h2", "h3")
    servers.write(grant, 0, b"defined " * 100)
    defined = [servers.contents(name) for name in ("h1", "h2", "h3")]
    assert defined == [b"defined " * 100] * 3

    with monkeypatch.context() as broken:
        broken.setattr(servers.all["h3"].service, "_apply", _refuse)
        with pytest.raises(ReplicaFailed) as failed:
            _write_once(servers, grant, b"failed", offset=800)

    assert failed.value.details["servers"] == ["h3"]
    assert servers.contents("h1") == servers.contents("h2") == defined[0] + b"failed"
    assert servers.contents("h3") == defined[0]


def test_table_1_a_record_append_is_defined_with_inconsistent_regions_between(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§2.7.1, §3.3 (GFS-26, 46): what failed at one replica lies between, at no record's offset."""
    grant = servers.grant("h1", "h2", "h3")
    first = servers.append(grant, b"<first>")
    with monkeypatch.context() as broken:
        broken.setattr(servers.all["h2"].service, "_apply", _refuse)
        with pytest.raises(ReplicaFailed):
            servers.append(grant, b"<again>")

    again = servers.append(grant, b"<again>")

    contents = {name: servers.contents(name) for name in ("h1", "h2", "h3")}
    for content in contents.values():
        assert content[first : first + 7] == b"<first>"
        assert content[again : again + 7] == b"<again>"
    assert again == 14
    assert contents["h1"][7:14] == b"<again>"
    assert contents["h2"][7:14] == bytes(7)


def _refuse(*_: object) -> None:
    raise Unavailable("no")


def test_a_read_gives_the_range_in_pieces_from_one_replica(servers: Servers) -> None:
    """§2.4: (handle, byte range) to one replica."""
    grant = servers.grant("h1", "h2")
    data = random.Random(2).randbytes(3 << 20)
    servers.write(grant, 0, data)

    assert servers.read("h2", 0, 3 << 20) == data
    assert servers.read("h2", 70_000, 1_500_000) == data[70_000:1_500_000]
    assert servers.read("h1", (3 << 20) - 5, 4 << 20) == data[-5:]


def test_overlapping_writers_leave_identical_replicas(servers: Servers) -> None:
    """§2.7.1 (GFS-28): every replica applies mutations in one order."""
    grant = servers.grant("h1", "h2", "h3")
    servers.write(grant, 0, bytes(200_000))

    def writer(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(6):
            offset = chance.randrange(150_000)
            servers.write(grant, offset, bytes([seed]) * chance.randrange(1, 50_000))

    threads = [threading.Thread(target=writer, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert servers.contents("h1") == servers.contents("h2") == servers.contents("h3")


def test_a_dead_secondary_is_named_and_the_write_goes_on_without_it(servers: Servers) -> None:
    """§3.1 (GFS-38): any replica's error reaches the client, which tries again."""
    grant = servers.grant("h1", "h2", "h3")
    servers.write(grant, 0, b"before ")
    servers.all["h2"].close()
    asked: list[tuple[ServerId, ...]] = []

    def repair(old: ChunkGrant, failed: tuple[ServerId, ...]) -> ChunkGrant:
        asked.append(failed)
        return servers.regrant("h3", "h1", version=2)

    run = Run(0, 7, memoryview(b"after"))
    final = write_run(servers.client, run, grant, repair)

    assert asked == [(ServerId("h2"),)]
    assert final.version == 2
    assert servers.contents("h1") == servers.contents("h3") == b"before after"
    with pytest.raises(StaleReplica):
        servers.all["h2"].store.get(HANDLE, 2)


def test_a_writer_with_an_old_version_is_fenced(servers: Servers) -> None:
    """§4.5 (GFS-70, 73): a new lease raises the version, and the receiver checks it."""
    old = servers.grant("h1", "h2", "h3")
    servers.write(old, 0, b"x")
    servers.regrant("h2", "h3", version=2)

    run = Run(0, 1, memoryview(b"late"))
    push(servers.client, run, old)
    request = WriteChunk(HANDLE, old.version, 1, 4, run.data_id, old.replicas)
    with pytest.raises(ReplicaFailed, match="version 2, the request 1"):
        ask_primary(servers.client, old, request)

    assert servers.contents("h2") == servers.contents("h3") == b"x"


def test_an_expired_lease_orders_nothing(servers: Servers) -> None:
    """§3.1 (GFS-33, 36): the primary stops when its term ends…"""
    grant = servers.grant("h1")
    servers.clock.advance(61.0)
    servers.all["h1"].order.contact(servers.clock.now_s(), 10.0)

    with pytest.raises(LeaseExpired, match="the lease ended"):
        _write_once(servers, grant, b"late")


def test_a_primary_out_of_touch_with_the_master_orders_nothing(servers: Servers) -> None:
    """…or when the master may have given it up: a process stopped for long is fenced (gate 12)."""
    grant = servers.grant("h1")
    servers.clock.advance(11.0)

    with pytest.raises(LeaseExpired, match="has not answered"):
        _write_once(servers, grant, b"late")


def test_only_the_primary_orders(servers: Servers) -> None:
    grant = servers.grant("h1", "h2")
    wrong = ChunkGrant(
        0, HANDLE, ChunkVersion(1), ServerId("h2"), grant.replicas, 60.0, CHUNK_BYTES
    )

    with pytest.raises(NotPrimary):
        _write_once(servers, wrong, b"x")


def test_data_that_aged_out_is_pushed_again(tmp_path: Path) -> None:
    """§3.1 (GFS-42): the buffer is bounded, the least recently used goes first."""
    servers = Servers(tmp_path, 2, push_bytes=100_000)
    try:
        grant = servers.grant("h1", "h2")
        run = Run(0, 0, memoryview(b"a" * 60_000))
        push(servers.client, run, grant)
        push(servers.client, Run(0, 0, memoryview(b"b" * 60_000)), grant)

        request = WriteChunk(HANDLE, grant.version, 0, 60_000, run.data_id, grant.replicas)
        with pytest.raises(DataNotPushed):
            ask_primary(servers.client, grant, request)
        servers.write(grant, 0, b"a" * 60_000)

        assert servers.contents("h2") == b"a" * 60_000
    finally:
        servers.close()


IN_RACKS = [
    ServerAddress(ServerId(name), "127.0.0.1", 0, 0, rack)
    for name, rack in [("a", "r1"), ("b", "r2"), ("c", "r1"), ("d", "r2")]
]


def test_the_chain_goes_to_the_nearest_next_hop() -> None:
    """§3.2 (GFS-40, 41): nearness comes from names and racks."""
    order = chain(Place("d", "r2"), IN_RACKS)

    assert [server.server for server in order] == ["d", "b", "a", "c"]


def test_a_reader_tries_the_nearest_replica_first() -> None:
    """§2.4 (GFS-06): that of its own host, then of its rack; equally near ones in any order."""
    orders = {
        tuple(server.server for server in nearest_first(Place("d", "r2"), IN_RACKS, chance))
        for chance in map(random.Random, range(20))
    }

    assert orders == {("d", "b", "a", "c"), ("d", "b", "c", "a")}


def test_a_record_lands_whole_at_an_offset_of_the_primary_s_choice(servers: Servers) -> None:
    """§3.3 (GFS-43, 46): the same offset on all replicas."""
    grant = servers.grant("h1", "h2", "h3")

    offsets = [servers.append(grant, b"record %d;" % number) for number in range(5)]

    assert offsets == [0, 9, 18, 27, 36]
    assert (
        servers.contents("h1")
        == servers.contents("h3")
        == b"".join(b"record %d;" % number for number in range(5))
    )


def test_a_record_that_does_not_fit_pads_the_chunk_everywhere(servers: Servers) -> None:
    """§3.3 (GFS-44): pad on all replicas, then the client takes the next chunk."""
    grant = servers.grant("h1", "h2")
    record = b"r" * (CHUNK_BYTES // 4)
    for _ in range(3):
        servers.append(grant, record)
    servers.append(grant, b"small")

    with pytest.raises(ChunkFull):
        servers.append(grant, record)

    for name in ("h1", "h2"):
        padded = servers.contents(name)
        assert len(padded) == CHUNK_BYTES
        assert padded[-100:] == bytes(100)


def test_a_record_larger_than_a_fourth_of_a_chunk_is_refused(servers: Servers) -> None:
    """§3.3 (GFS-45)."""
    grant = servers.grant("h1")

    with pytest.raises(RecordTooLarge, match="a fourth of a chunk"):
        servers.append(grant, b"r" * (CHUNK_BYTES // 4 + 1))


def test_sixteen_appenders_need_no_other_locking(servers: Servers) -> None:
    """§2.1, §3.3 (GFS-47): every acknowledged record is there, whole."""
    grant = servers.grant("h1", "h2", "h3")
    acknowledged: list[tuple[int, bytes]] = []

    def appender(number: int) -> None:
        for count in range(5):
            record = b"<%02d:%04d>" % (number, count) * 20
            acknowledged.append((servers.append(grant, record), record))

    threads = [threading.Thread(target=appender, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    contents = servers.contents("h2")
    assert len(acknowledged) == 80
    assert all(contents[at : at + len(record)] == record for at, record in acknowledged)


def test_a_flipped_bit_never_reaches_a_reader(servers: Servers) -> None:
    """§5.2 (GFS-79): checked before any byte leaves; the replica is listed as corrupt."""
    grant = servers.grant("h1", "h2")
    data = random.Random(3).randbytes(300_000)
    servers.write(grant, 0, data)
    _flip(servers.all["h1"].root / path_of(HANDLE, "data"), 150_000)

    with pytest.raises(ChunkCorrupt, match="block 2 has crc"):
        servers.read("h1", 140_000, 160_000)

    assert list(servers.all["h1"].store.corrupt()) == [HANDLE]
    assert servers.read("h2", 0, 300_000) == data


def test_a_clone_is_pulled_verified_and_replaces_a_corrupt_replica(servers: Servers) -> None:
    """§4.3, §5.2 (GFS-62, 79): from a valid replica, server to server."""
    grant = servers.grant("h1", "h2")
    data = random.Random(4).randbytes(2_500_000 // 4)
    servers.write(grant, 0, data)
    _flip(servers.all["h2"].root / path_of(HANDLE, "data"), 5)
    with pytest.raises(ChunkCorrupt):
        servers.read("h2", 0, 10)
    sources = (servers.all["h2"].address, servers.all["h1"].address)

    for name in ("h2", "h3"):
        command = CloneChunk(0, HANDLE, ChunkVersion(1), len(data), sources)
        assert servers.all[name].runner.run(command, 0.0) == (1, len(data))

    assert servers.contents("h2") == servers.contents("h3") == data
    assert servers.all["h2"].store.corrupt() == {}


def test_a_clone_from_corrupt_sources_only_fails_and_leaves_nothing(servers: Servers) -> None:
    """§5.2: checksums count towards other servers too, so rot does not spread."""
    grant = servers.grant("h1")
    servers.write(grant, 0, b"x" * 200_000)
    _flip(servers.all["h1"].root / path_of(HANDLE, "data"), 199_999)

    command = CloneChunk(0, HANDLE, ChunkVersion(1), 200_000, (servers.all["h1"].address,))
    with pytest.raises(NoReplica, match="could not be cloned"):
        servers.all["h2"].runner.run(command, 0.0)

    assert servers.all["h2"].store.handles() == []


def test_a_copy_for_a_snapshot_uses_no_network(servers: Servers) -> None:
    """§3.4 (GFS-51): the first write after a snapshot copies the chunk on the same server."""
    grant = servers.grant("h1")
    servers.write(grant, 0, b"shared")
    copy = CopyChunk(0, HANDLE, ChunkVersion(1), ChunkHandle(99), ChunkVersion(1), 6)
    before = servers.all["h1"].service.counters.get("bytes_read", 0)

    assert servers.all["h1"].runner.run(copy, 0.0) == (1, 6)

    assert servers.contents("h1", ChunkHandle(99)) == b"shared"
    assert servers.all["h1"].service.counters.get("bytes_read", 0) == before


def test_sealing_cuts_replicas_to_what_all_have(servers: Servers) -> None:
    """Fault gate 15: whatever was acknowledged is on all of them, so nothing acknowledged goes."""
    grant = servers.grant("h1", "h2")
    servers.write(grant, 0, b"acknowledged")
    servers.all["h1"].store.write(servers.all["h1"].store.get(HANDLE), 12, [b" not"])

    lengths = [
        servers.all[name].runner.run(SetVersion(0, HANDLE, ChunkVersion(1), ChunkVersion(2)), 0.0)[
            1
        ]
        for name in ("h1", "h2")
    ]
    for name in ("h1", "h2"):
        servers.all[name].runner.run(TruncateChunk(0, HANDLE, ChunkVersion(2), min(lengths)), 0.0)

    assert lengths == [16, 12]
    assert servers.contents("h1") == servers.contents("h2") == b"acknowledged"


def test_a_local_reader_gets_the_files_and_verifies_them(servers: Servers) -> None:
    """GFS-13 and decision 6: the server checks the version, passes descriptors, the client
    verifies."""
    grant = servers.grant("h1")
    data = random.Random(5).randbytes(3 * BLOCK_BYTES + 17)
    servers.write(grant, 0, data)
    address = servers.all["h1"].address
    chunk = LocatedChunk(0, HANDLE, ChunkVersion(1), len(data), (address,))

    source = LocalSource(servers.client.pool, address, chunk, 100, len(data))
    found = b"".join(bytes(piece) for piece in iter(source.next_piece, b""))
    source.close()

    assert found == data[100:]
    with pytest.raises(StaleReplica):
        stale = LocatedChunk(0, HANDLE, ChunkVersion(2), len(data), (address,))
        LocalSource(servers.client.pool, address, stale, 0, 1)
    _flip(servers.all["h1"].root / path_of(HANDLE, "data"), BLOCK_BYTES + 5)
    source = LocalSource(servers.client.pool, address, chunk, 0, len(data))
    with pytest.raises(ChunkCorrupt):
        source.next_piece()
    source.close()


def test_a_failing_fsync_ends_the_server_and_nothing_is_acknowledged(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault gate 6."""
    grant = servers.grant("h1")

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(Unavailable):
        _write_once(servers, grant, b"x")

    assert [type(failure) for failure in servers.all["h1"].failures] == [DiskFailed]


def _write_once(servers: Servers, grant: ChunkGrant, data: bytes, offset: int = 0) -> None:
    run = Run(0, offset, memoryview(data))
    push(servers.client, run, grant)
    request = WriteChunk(HANDLE, grant.version, offset, len(data), run.data_id, grant.replicas)
    ask_primary(servers.client, grant, request)


def _flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
