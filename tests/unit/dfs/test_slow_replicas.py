"""Fault gate 14: a slow link or a slow disk of one replica, on real services and sockets."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mrstream.dfs.chunk import ChunkVersion
from mrstream.dfs.client.chunk_source import RemoteSource
from mrstream.dfs.client.hedge import quickest
from mrstream.dfs.protocol import LocatedChunk
from tests.paper.test_gfs_chunks import CHUNK_BYTES, HANDLE, Servers
from tests.support.relays import SlowRelay

DATA = random.Random(1).randbytes(CHUNK_BYTES)
ROUND_TRIP_S = 0.2
LOSS = 0.01


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    cluster = Servers(tmp_path, 3)
    yield cluster
    cluster.close()


@pytest.fixture
def slow(servers: Servers) -> Iterator[SlowRelay]:
    """The second server is far away: 200 ms there and back, and of 100 packets one is lost."""
    server = servers.all["h2"]
    relay = SlowRelay(server.address.bulk_port, delay_s=ROUND_TRIP_S / 2, loss=LOSS)
    server.address = msgspec.structs.replace(server.address, bulk_port=relay.port, local_socket="")
    yield relay
    relay.close()


@pytest.mark.parametrize("share", [4, 1], ids=["a quarter of a chunk", "a whole chunk"])
def test_a_write_over_a_long_way_costs_the_same_round_trips_whatever_its_length(
    servers: Servers, slow: SlowRelay, share: int
) -> None:
    """Nothing is sent bit by bit and waited for: only the bytes themselves cost more."""
    data = DATA[: CHUNK_BYTES // share]

    servers.write(servers.grant("h1", "h2", "h3"), 0, data)

    assert [servers.contents(name) == data for name in ("h1", "h2", "h3")] == [True] * 3
    # Two connections with their greetings and proofs, the bytes, the order to write them.
    assert slow.round_trips <= 8


def test_a_read_over_a_long_way_is_whole_though_packets_are_lost(
    servers: Servers, slow: SlowRelay
) -> None:
    servers.write(servers.grant("h1", "h2", "h3"), 0, DATA)
    slow.round_trips = 0

    assert servers.read("h2", 0, len(DATA)) == DATA

    assert slow.lost, "no packet was lost: nothing was tried"
    assert slow.round_trips <= 4


def test_a_replica_on_a_slow_disk_is_not_waited_for(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server has the request and the disk does not answer: another replica is read."""
    servers.write(servers.grant("h1", "h2", "h3"), 0, DATA)
    answers = threading.Event()
    store = servers.all["h1"].store
    read_slowly = store.read

    def read(*words: object, **more: object) -> object:
        assert answers.wait(60)
        return read_slowly(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "read", read)
    chunk = LocatedChunk(0, HANDLE, ChunkVersion(1), 0, ())

    def source(name: str) -> RemoteSource:
        address = msgspec.structs.replace(servers.all[name].address, local_socket="")
        return RemoteSource(servers.client.pool, address, chunk, 0, len(DATA))

    winner = quickest(source("h1"), (source(name) for name in ("h2", "h3")))
    pieces = []
    while piece := winner.next_piece():
        pieces.append(bytes(piece))
    answers.set()

    assert winner.server.server == "h2"
    assert b"".join(pieces) == DATA
