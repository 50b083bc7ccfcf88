"""GFS §3.2 and §5.2 on the way: data is passed on as it arrives, and a bit flipped between two
hosts is never stored and never read."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from mrstream.cluster.wire.network import BulkServer, BulkStream
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, ServerId
from mrstream.dfs.chunks.commands import Throttle
from mrstream.dfs.client.chunk_writer import Run, write_run
from mrstream.dfs.errors import ChunkCorrupt
from mrstream.dfs.protocol import ChunkGrant, CloneChunk, Done, PushData, ServerAddress
from mrstream.dfs.transfer.forward import FORWARD_BYTES
from tests.paper.test_gfs_chunks import HANDLE, IDENTITY, Servers
from tests.support.relays import DamagingRelay

SMALL = random.Random(1).randbytes(200_000)
LARGE = random.Random(2).randbytes(700_000)
IN_THE_DATA = 100_000
"""Far behind the greetings and the request, far before the end."""

Damage = Callable[..., DamagingRelay]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    cluster = Servers(tmp_path, 3)
    yield cluster
    cluster.close()


@pytest.fixture
def damage(servers: Servers) -> Iterator[Damage]:
    """Put a relay that flips one bit before a server."""
    relays: list[DamagingRelay] = []

    def before(name: str, *, towards_server: bool) -> DamagingRelay:
        server = servers.all[name]
        relay = DamagingRelay(
            server.address.bulk_port, towards_server=towards_server, at_byte=IN_THE_DATA
        )
        server.address = msgspec.structs.replace(
            server.address, bulk_port=relay.port, local_socket=""
        )
        relays.append(relay)
        return relay

    yield before
    for relay in relays:
        relay.close()


def write(servers: Servers, grant: ChunkGrant, data: bytes) -> None:
    """Write as a client does; the master answers a failure with the same grant."""

    def same(old: ChunkGrant, failed: tuple[ServerId, ...]) -> ChunkGrant:
        return old

    write_run(servers.client, Run(0, 0, memoryview(data)), grant, same)


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["in one go", "pushed first"])
@pytest.mark.parametrize("where", ["h1", "h2"], ids=["to the primary", "along the chain"])
def test_5_2_bytes_damaged_while_they_are_pushed_are_pushed_again(
    servers: Servers, damage: Damage, data: bytes, where: str
) -> None:
    """Stored as they came they would get checksums of their own, and be wrong for good."""
    relay = damage(where, towards_server=True)
    grant = servers.grant("h1", "h2", "h3")

    write(servers, grant, data)

    assert relay.damaged
    assert [servers.contents(name) == data for name in ("h1", "h2", "h3")] == [True] * 3


def test_5_2_a_reader_is_never_given_bytes_that_were_damaged_on_their_way(
    servers: Servers, damage: Damage
) -> None:
    servers.write(servers.grant("h1"), 0, LARGE)
    relay = damage("h1", towards_server=False)

    with pytest.raises(ChunkCorrupt, match="damaged on their way from h1"):
        servers.read("h1", 0, len(LARGE))

    assert relay.damaged
    assert servers.read("h1", 0, len(LARGE)) == LARGE


def test_5_2_a_clone_is_made_of_what_the_source_has_not_of_what_arrived(
    servers: Servers, damage: Damage
) -> None:
    """The second source is asked when the first one's bytes came damaged."""
    servers.write(servers.grant("h1", "h2"), 0, LARGE)
    relay = damage("h1", towards_server=False)
    sources = (servers.all["h1"].address, servers.all["h2"].address)
    command = CloneChunk(0, ChunkHandle(HANDLE), ChunkVersion(1), len(LARGE), sources, urgent=True)

    version, length = servers.all["h3"].runner.run(command, servers.clock.now_s())

    assert relay.damaged
    assert (version, length) == (1, len(LARGE))
    assert servers.contents("h3") == LARGE


@pytest.mark.parametrize(
    ("busy", "urgent", "waits"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_4_3_a_clone_leaves_the_disks_to_clients(
    servers: Servers, busy: bool, urgent: bool, waits: bool
) -> None:
    """GFS-62: while clients are served it keeps to its pace, unless one copy is left."""
    servers.write(servers.grant("h1", "h2"), 0, LARGE)
    waited_s: list[float] = []
    runner = servers.all["h3"].runner
    runner.throttle = Throttle(1 << 20, lambda: busy, waited_s.append)
    sources = (servers.all["h1"].address,)
    command = CloneChunk(0, ChunkHandle(HANDLE), ChunkVersion(1), len(LARGE), sources, urgent)

    runner.run(command, servers.clock.now_s())

    assert servers.contents("h3") == LARGE
    assert sum(waited_s) == pytest.approx(len(LARGE) / (1 << 20) if waits else 0.0)


def test_3_2_a_server_passes_data_on_while_it_still_receives_it(servers: Servers) -> None:
    """GFS-40: the next in the chain has the first half before the second half was sent."""
    arrived = threading.Event()
    half = len(LARGE) // 2

    def next_in_chain(stream: BulkStream) -> None:
        request = stream.receive(PushData)
        stream.receive_bytes(half - FORWARD_BYTES)
        arrived.set()
        stream.receive_bytes(request.length_bytes - (half - FORWARD_BYTES))
        stream.send(Done())

    last = BulkServer(next_in_chain, IDENTITY)
    port = int(last.start("127.0.0.1:0").rpartition(":")[2])
    chain = (ServerAddress(ServerId("h9"), "127.0.0.1", 0, port, "", ""),)
    first = servers.client.pool.connect(f"127.0.0.1:{servers.all['h1'].address.bulk_port}")
    with first:
        first.send(PushData(b"d" * 16, len(LARGE), chain, crc32c(LARGE)))
        first.send_bytes(memoryview(LARGE)[:half])

        assert arrived.wait(60), "it was kept back until all of it had arrived"

        first.send_bytes(memoryview(LARGE)[half:])
        first.receive(Done)
    last.close()
