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
from mrstream.dfs.transfer import forward
from tests.paper.test_gfs_chunks import HANDLE, Servers
from tests.support.relays import SilentRelay

WAIT_S, PATIENCE_S = 0.3, 30.0
"""How long a server waits for the silent one; for one that answers, if a busy machine lets it."""


class Cable(SilentRelay):
    """That of the third server."""

    def __init__(self, servers: Servers) -> None:
        server = servers.all["h3"]
        super().__init__(server.address.bulk_port)
        server.address = msgspec.structs.replace(
            server.address, bulk_port=self.port, local_socket=""
        )
        self._servers = servers

    def pull(self, *beside: str) -> None:
        """From now on nothing arrives; those who talk to that server shall not wait for long."""
        for name in beside:
            self._servers.all[name].service._pool.timeout_s = WAIT_S
        self.is_silent = True


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    cluster = Servers(tmp_path, 3)
    yield cluster
    cluster.close()


@pytest.fixture
def cable(servers: Servers) -> Iterator[Cable]:
    relay = Cable(servers)
    yield relay
    relay.close()


def test_a_question_that_is_answered_by_silence_is_not_asked_again(
    servers: Servers, cable: Cable
) -> None:
    """Over a connection of before, and then over a new one, it took twice as long: the client gave
    up in between, and blamed the one that had answered for it."""
    servers.grant("h3")
    pool = servers.all["h1"].service._pool
    address = pool.address_of(servers.all["h3"].address)
    ask = ChunkLength(HANDLE, servers.granted("h3", version=1).version)
    assert pool.call(address, ask).value == 0
    assert cable.connections_count == 1
    cable.pull("h1")

    with pytest.raises(CallTimedOut):
        pool.call(address, ask)

    assert cable.connections_count == 1
    assert pool.idle(address) is None, "nobody else tries what lay idle beside it"


def test_a_connection_that_ended_while_it_lay_idle_is_made_anew(
    servers: Servers, cable: Cable
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


def test_the_server_next_to_a_silent_one_names_it(
    servers: Servers, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain goes through the second: were it to wait for as long as the first does, the first
    would be heard before it, and would name the second, which has every byte."""
    monkeypatch.setattr(forward, "HOP_S", PATIENCE_S)
    grant = servers.grant("h1", "h2", "h3")
    push(servers.client, Run(0, 0, memoryview(b"before")), grant)
    cable.pull("h1", "h2")

    with pytest.raises(ReplicaFailed) as failed:
        push(servers.client, Run(0, 0, memoryview(b"after")), grant)

    assert failed.value.details["servers"] == ["h3"]


def test_a_small_write_waits_for_a_silent_replica_once(
    servers: Servers, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and the order to write them go together; when the bytes did not arrive everywhere, the
    order is not passed on to wait for the same server once more."""
    grant = servers.grant("h1", "h3")
    servers.write(grant, 0, b"before")
    cable.pull("h1")
    failures: list[tuple[ServerId, ...]] = []

    def repaired(old: ChunkGrant, failed: tuple[ServerId, ...]) -> ChunkGrant:
        failures.append(failed)
        return servers.regrant("h1", version=2)

    primary = servers.all["h1"].service
    mutate, mutated = primary._mutate, []

    def noted(*words: Any, **named: Any) -> None:
        mutated.append(named["version"])
        mutate(*words, **named)

    monkeypatch.setattr(primary, "_mutate", noted)
    write_run(servers.client, Run(0, 6, memoryview(b"after")), grant, repaired)

    assert failures == [("h3",)]
    assert mutated == [2]
    assert servers.contents("h1") == b"beforeafter"


def test_who_waited_behind_a_mutation_that_waited_in_vain_is_told_the_same(
    servers: Servers, cable: Cable
) -> None:
    """One after the other they held the chunk's lock for as long each; the next version, which the
    master sends to end that, waited behind them all until the master gave the server up."""
    grant = servers.grant("h1", "h3")
    primary = servers.all["h1"].service
    runs = [Run(0, 0, memoryview(b"record %d" % number)) for number in range(5)]
    for run in runs:
        push(servers.client, run, grant)
    pool = primary._pool
    pool.forget(pool.address_of(servers.all["h3"].address))
    cable.pull("h1")
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
    numbered = primary.order.assign(HANDLE, 1, servers.clock.now_s()) - 1
    assert numbered == 1, "the first asked; the others need not"
