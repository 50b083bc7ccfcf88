"""A replica whose host was cut off says nothing: on real services and sockets, who waits for it how
often, and who is blamed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mrstream.cluster.errors import CallTimedOut
from mrstream.dfs.chunk import ServerId
from mrstream.dfs.client.chunk_writer import Run, push, write_run
from mrstream.dfs.errors import ReplicaFailed
from mrstream.dfs.protocol import AppendRecord, ChunkGrant, ChunkLength
from tests.paper.test_gfs_chunks import HANDLE, Servers
from tests.support.relays import SilentRelay

WAIT_S = 0.3
"""How long servers wait for each other here."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    cluster = Servers(tmp_path, 3)
    for server in cluster.all.values():
        server.service._pool.timeout_s = WAIT_S
    yield cluster
    cluster.close()


@pytest.fixture
def cable(servers: Servers) -> Iterator[SilentRelay]:
    """That of the third server."""
    server = servers.all["h3"]
    relay = SilentRelay(server.address.bulk_port)
    server.address = msgspec.structs.replace(server.address, bulk_port=relay.port, local_socket="")
    yield relay
    relay.close()


def test_a_question_that_is_answered_by_silence_is_not_asked_again(
    servers: Servers, cable: SilentRelay
) -> None:
    """Over a connection of before, and then over a new one, it took twice as long: the client gave
    up in between, and blamed the one that had answered for it."""
    servers.grant("h3")
    pool = servers.all["h1"].service._pool
    address = pool.address_of(servers.all["h3"].address)
    ask = ChunkLength(HANDLE, servers.granted("h3", version=1).version)
    assert pool.call(address, ask).value == 0
    assert cable.connections_count == 1
    cable.is_silent = True

    with pytest.raises(CallTimedOut):
        pool.call(address, ask)

    assert cable.connections_count == 1
    assert pool.idle(address) is None, "nobody else tries what lay idle beside it"


def test_a_connection_that_ended_while_it_lay_idle_is_made_anew(
    servers: Servers, cable: SilentRelay
) -> None:
    servers.grant("h3")
    pool = servers.all["h1"].service._pool
    address = pool.address_of(servers.all["h3"].address)
    ask = ChunkLength(HANDLE, servers.granted("h3", version=1).version)
    pool.call(address, ask)
    idle = pool.idle(address)
    assert idle is not None
    idle.sock.shutdown(2)
    pool.give_back(address, idle)

    assert pool.call(address, ask).value == 0


def test_the_server_next_to_a_silent_one_names_it(servers: Servers, cable: SilentRelay) -> None:
    """The chain goes through the second: were it to wait for as long as the first does, the first
    would be heard before it, and would name the second, which has every byte."""
    grant = servers.grant("h1", "h2", "h3")
    run = Run(0, 0, memoryview(b"before"))
    push(servers.client, run, grant)
    cable.is_silent = True

    with pytest.raises(ReplicaFailed) as failed:
        push(servers.client, Run(0, 0, memoryview(b"after")), grant)

    assert failed.value.details["servers"] == ["h3"]


def test_a_small_write_waits_for_a_silent_replica_once(
    servers: Servers, cable: SilentRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and the order to write them go together; when the bytes did not arrive everywhere, the
    order is not passed on to wait for the same server once more."""
    grant = servers.grant("h1", "h2", "h3")
    servers.write(grant, 0, b"before")
    cable.is_silent = True
    failures: list[tuple[ServerId, ...]] = []

    def repaired(old: ChunkGrant, failed: tuple[ServerId, ...]) -> ChunkGrant:
        failures.append(failed)
        return servers.regrant("h1", "h2", version=2)

    primary = servers.all["h1"].service
    mutate, mutated = primary._mutate, []

    def noted(*words: Any, **named: Any) -> None:
        mutated.append(named["version"])
        mutate(*words, **named)

    monkeypatch.setattr(primary, "_mutate", noted)
    write_run(servers.client, Run(0, 6, memoryview(b"after")), grant, repaired)

    assert failures == [("h3",)]
    assert mutated == [2]
    assert servers.contents("h2") == b"beforeafter"


def test_who_waited_behind_a_mutation_that_waited_in_vain_is_told_the_same(
    servers: Servers, cable: SilentRelay
) -> None:
    """One after the other they held the chunk's lock for as long each; the next version, which the
    master sends to end that, waited behind them all until the master gave the server up."""
    grant = servers.grant("h1", "h2", "h3")
    primary = servers.all["h1"].service
    runs = [Run(0, 0, memoryview(b"record %d" % number)) for number in range(5)]
    for run in runs:
        push(servers.client, run, grant)
    cable.is_silent = True
    before = cable.connections_count
    errors: list[ReplicaFailed] = []

    def append(run: Run) -> None:
        request = AppendRecord(
            grant.handle, grant.version, len(run.data), run.data_id, grant.replicas,
            grant.chunk_bytes,
        )  # fmt: skip
        try:
            primary.append(request)
        except ReplicaFailed as error:
            errors.append(error)

    lock = primary.lock_of(HANDLE)
    threads = [threading.Thread(target=append, args=(run,)) for run in runs]
    with lock:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(30.0)

    assert [error.details["servers"] for error in errors] == [["h3"]] * 5
    assert cable.connections_count == before + 1, "the first asked; the others need not"
    assert primary.order.assign(HANDLE, 1, servers.clock.now_s()) == 2
